"""Models from the hub: the files that are needed, at one commit, and without any request once they are here."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import orjson

from r2med.errors import R2medError
from r2med.hub import Hub

_HUB = Hub("model", R2medError)
_UNUSED = ("onnx/*", "openvino/*", "*.onnx", "*.gguf", "*.h5", "*.msgpack", "*.ot", "*.md", "*.png", "*.jpg", ".git*")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def commit_of(repo: str, revision: str) -> str:
    """The commit behind a revision: what the cache on this machine has under that name, or else what the hub says."""
    known = _HUB.cached_commit(repo, revision)
    if known is not None:
        return known
    # Asked first: a hub that cannot be reached is said at once, where a download would be tried for half a minute.
    newest = _HUB.newest_commit(repo, revision)
    for name in ("config.json", "adapter_config.json"):
        # Fetching a file under the branch's name makes the cache remember which commit that is.
        file = _file(repo, revision, name)
        if file is not None:
            return file.parent.name
    return newest


def small_file(repo: str, commit: str, name: str) -> Path | None:
    """One small file of a repository, or None when it has none of that name."""
    from huggingface_hub import try_to_load_from_cache

    known = try_to_load_from_cache(repo, name, revision=commit)
    if isinstance(known, str):
        return Path(known)
    # Anything else but None is the cache's word that the repository has no such file.
    return _file(repo, commit, name) if known is None else None


def _file(repo: str, revision: str, name: str) -> Path | None:
    from huggingface_hub import errors, hf_hub_download

    with _HUB.explained(repo, revision):
        try:
            return Path(hf_hub_download(repo, name, revision=revision, library_name="r2med"))
        except errors.LocalEntryNotFoundError:
            raise
        except errors.EntryNotFoundError:
            return None


def fetch_model(repo: str, commit: str) -> Path:
    """The folder with everything that running the model takes, downloaded unless it is on this machine already."""
    folder = _HUB.folder(repo, commit)
    if weights_in(folder) and (folder / "config.json").is_file():
        return folder
    return _fetch(repo, commit, [])


def fetch_adapter(repo: str, commit: str) -> Path:
    """The folder of a LoRA adapter."""
    folder = _HUB.folder(repo, commit)
    if (folder / "adapter_config.json").is_file() and any(folder.glob("adapter_model.*")):
        return folder
    return _fetch(repo, commit, ["adapter_*"])


def _fetch(repo: str, commit: str, patterns: Sequence[str]) -> Path:
    names = wanted(_HUB.names(repo, commit), patterns)
    if not names:
        raise R2medError(f"{repo} at {commit[:8]} has none of the files of a model")
    return _HUB.download(repo, commit, names).folder


def wanted(names: Sequence[str], patterns: Sequence[str] = ()) -> list[str]:
    """Of a repository's files those that are read: where safetensors lie, older formats beside them are left.

    >>> wanted(["config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx", "2_Dense/model.bin"])
    ['config.json', 'model.safetensors', '2_Dense/model.bin']
    """
    kept = [name for name in names if not any(fnmatch(name, unused) for unused in _UNUSED)]
    if patterns:
        kept = [name for name in kept if any(fnmatch(name, pattern) for pattern in patterns)]
    safe = {str(Path(name).parent) for name in kept if name.endswith(".safetensors")}
    return [
        name for name in kept if not (name.endswith((".bin", ".bin.index.json")) and str(Path(name).parent) in safe)
    ]


def weights_in(folder: Path) -> bool:
    """Whether a folder holds weights, all parts of them."""
    for name in _WEIGHTS:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return True
        if index.is_file():
            parts = set(orjson.loads(index.read_bytes()).get("weight_map", {}).values())
            return bool(parts) and all((folder / part).is_file() for part in parts)
    return False
