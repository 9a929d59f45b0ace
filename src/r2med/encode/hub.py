"""Models from the hub: the files that are needed, at one commit, and without any request once they are here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from glob import escape
from pathlib import Path

import orjson

from r2med.errors import R2medError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNUSED = ("onnx/*", "openvino/*", "*.onnx", "*.gguf", "*.h5", "*.msgpack", "*.ot", "*.md", "*.png", "*.jpg", ".git*")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def commit_of(repo: str, revision: str) -> str:
    """The commit behind a revision: what the cache on this machine has under that name, or else what the hub says."""
    if _COMMIT.fullmatch(revision):
        return revision
    reference = _cache(repo) / "refs" / revision
    if reference.is_file():
        return reference.read_text("utf-8").strip()
    for name in ("config.json", "adapter_config.json"):
        # Fetching a file under the branch's name makes the cache remember which commit that is.
        file = _file(repo, revision, name)
        if file is not None:
            return file.parent.name
    from huggingface_hub import HfApi

    with explained(repo, revision):
        return str(HfApi(library_name="r2med").model_info(repo, revision=revision).sha)


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

    with explained(repo, revision):
        try:
            return Path(hf_hub_download(repo, name, revision=revision, library_name="r2med"))
        except errors.LocalEntryNotFoundError:
            raise
        except errors.EntryNotFoundError:
            return None


def fetch_model(repo: str, commit: str) -> Path:
    """The folder with everything that running the model takes, downloaded unless it is on this machine already."""
    folder = _cache(repo) / "snapshots" / commit
    if weights_in(folder) and (folder / "config.json").is_file():
        return folder
    return _fetch(repo, commit, [])


def fetch_adapter(repo: str, commit: str) -> Path:
    """The folder of a LoRA adapter."""
    folder = _cache(repo) / "snapshots" / commit
    if (folder / "adapter_config.json").is_file() and any(folder.glob("adapter_model.*")):
        return folder
    return _fetch(repo, commit, ["adapter_*"])


def _fetch(repo: str, commit: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    with explained(repo, commit):
        info = HfApi(library_name="r2med").model_info(repo, revision=commit)
        names = wanted([sibling.rfilename for sibling in info.siblings or ()], patterns)
        if not names:
            raise R2medError(f"{repo} at {commit[:8]} has none of the files of a model")
        folder = snapshot_download(
            repo, revision=commit, allow_patterns=[escape(name) for name in names], library_name="r2med"
        )
    return Path(folder)


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


def _cache(repo: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"


@contextmanager
def explained(repo: str, revision: str) -> Iterator[None]:
    """Turn what can go wrong on the way to the hub into one line that says what to do."""
    from huggingface_hub import constants, errors

    # Which HTTP library lies underneath differs between versions; its base error is the first base of the hub's own.
    transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    at = constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError as error:
        advice = "accept its terms there, then run `hf auth login` or set HF_TOKEN"
        raise R2medError(f"{repo} is gated at {at}/{repo}: {advice}") from error
    except errors.RevisionNotFoundError as error:
        raise R2medError(f"{repo} has no revision {revision} at {at}") from error
    except errors.RepositoryNotFoundError as error:
        raise R2medError(f"{repo} does not exist at {at}, or is private: check the name and HF_TOKEN") from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        if constants.HF_HUB_OFFLINE:
            raise R2medError(f"{repo} is not on this machine and HF_HUB_OFFLINE is set; unset it once") from error
        raise R2medError(f"cannot fetch {repo} from {at}; check the connection and run the same again") from error
    except errors.HfHubHTTPError as error:
        raise R2medError(f"{at} answered {error.response.status_code} for {repo}; try again later") from error
    except (transport, ConnectionError, TimeoutError) as error:
        raise R2medError(f"cannot fetch {repo} from {at}; check the connection and run the same again") from error
    except OSError as error:
        reason = error.strerror or "not reachable"
        raise R2medError(f"cannot fetch {repo} from {at}: {reason}; see HF_HOME and the connection") from error
