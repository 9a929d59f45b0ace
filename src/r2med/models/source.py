"""Sources of models' files: a folder, an installed package or the hub, and the version that names their content."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import orjson

from r2med.errors import R2medError
from r2med.store.files import expanded, spelled
from r2med.store.hub import Hub

_HUB = Hub("model", R2medError)
_UNUSED = ("onnx/*", "openvino/*", "*.onnx", "*.gguf", "*.h5", "*.msgpack", "*.ot", "*.md", "*.png", "*.jpg", ".git*")
_LONGEST = 8192  # what is read of a text when nothing but a context window of many thousands is stated
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The files of a transformer's weights, the one that is preferred first; each may have an index of several parts."""


def needed_files(names: Sequence[str], pattern: str = "*") -> list[str]:
    """Select a repository's files that are read: older formats beside safetensors are left out.

    >>> needed_files(["config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx", "2_Dense/model.bin"])
    ['config.json', 'model.safetensors', '2_Dense/model.bin']
    """
    unused = {name for form in _UNUSED for name in fnmatch.filter(names, form)}
    read = [name for name in fnmatch.filter(names, pattern) if name not in unused]
    safe = {Path(name).parent for name in read if name.endswith(".safetensors")}
    return [name for name in read if not name.endswith((".bin", ".bin.index.json")) or Path(name).parent not in safe]


def _has_weights(folder: Path) -> bool:
    """Return whether a folder holds weights, with all their parts."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return True
        if (index := folder / f"{name}.index.json").is_file():
            parts = set(orjson.loads(index.read_bytes()).get("weight_map", {}).values())
            return bool(parts) and all((folder / part).is_file() for part in parts)
    return False


_WHOLE = 1 << 28  # bytes up to which a file is read to its end
_BLOCKS, _BLOCK = 256, 1 << 16


@dataclass(frozen=True)
class ModelSource:
    """A model's files: in a folder, in an installed package or on the hub."""

    name: str  # the repository, or the path of the folder
    revision: str = "main"
    place: Path | None = None  # the folder on this machine; None for the hub

    @cached_property
    def version(self) -> str:
        """Return the hub's commit, or a hash of the folder, which names the content. May ask the hub for a commit."""
        if self.place is not None:
            return content_hash(self.place)
        if (cached := _HUB.cached_commit(self.name, self.revision)) is not None:
            return cached
        # Asked first: a hub that cannot be reached is said at once, where a download would be tried for half a minute.
        newest = str(_HUB.info(self.name, self.revision).sha)
        for name in ("config.json", "adapter_config.json"):
            # Fetching a file under the branch's name makes the cache remember which commit that is.
            if file := self._download(self.revision, name):
                return file.parent.name
        return newest

    def local_content(self) -> dict[str, str]:
        """Return a local folder with the hash of its files; nothing for the hub or a package."""
        return {str(self.place.resolve()): self.version} if self.place and looks_like_path(self.name) else {}

    def folder(self) -> Path:
        """Return the folder with the files, downloading them if they are not on this machine."""
        if self.place is not None:
            return self.place
        folder = _HUB.folder(self.name, self.version)
        # A model that routes queries and documents has its weights in folders of modules.
        router = folder / "router_config.json"
        modules = orjson.loads(router.read_bytes()).get("types", {}) if router.is_file() else [""]
        parts = [folder / module for module in modules]
        complete = all((part / "config.json").is_file() for part in parts) and any(map(_has_weights, parts))
        return folder if complete else self._fetch("*")

    def adapter_folder(self) -> Path:
        """Return the folder of a LoRA adapter's files."""
        folder = self.place or _HUB.folder(self.name, self.version)
        complete = (folder / "adapter_config.json").is_file() and any(folder.glob("adapter_model.*"))
        if self.place is None and not complete:
            folder = self._fetch("adapter_*")
        if not (folder / "adapter_config.json").is_file():
            raise R2medError(f"{self.name}: not an adapter (no adapter_config.json)")
        return folder

    def small_file(self, name: str) -> Path | None:
        """Return a small file of the model by its name, or None if there is none."""
        if self.place is not None:
            return file if (file := self.place / name).is_file() else None
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.name, name, revision=self.version)
        if isinstance(cached, str):
            return Path(cached)
        # Anything else but None is the cache's word that the repository has no such file.
        return self._download(self.version, name) if cached is None else None

    def _download(self, revision: str, name: str) -> Path | None:
        from huggingface_hub import errors, hf_hub_download

        with _HUB.translate_errors(self.name, revision):
            try:
                return Path(hf_hub_download(self.name, name, revision=revision, library_name="r2med"))
            except errors.LocalEntryNotFoundError:
                raise
            except errors.EntryNotFoundError:
                return None

    def _fetch(self, pattern: str) -> Path:
        names = needed_files(_HUB.names(self.name, self.version), pattern)
        if not names:
            raise R2medError(f"{self.name} at {self.version[:8]} has none of the files of a model")
        return _HUB.download(self.name, self.version, names).folder

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the model; return None if it has none."""
        file = self.small_file(name)
        try:
            return orjson.loads(file.read_bytes()) if file else None
        except orjson.JSONDecodeError as error:
            raise R2medError(f"{file}: not JSON ({error})") from error

    def read_table(self, name: str) -> dict[str, Any]:
        """Read a JSON file of settings; empty if the model has none, or if it is not a table."""
        content = self.read_json(name)
        return content if isinstance(content, dict) else {}

    def max_length(self, subfolder: str = "") -> int:
        """Return the tokens a model reads: as sentence-transformers states, or else by tokenizer and positions."""
        under = f"{subfolder}/" if subfolder else ""
        stated = self.read_table(f"{under}sentence_bert_config.json").get("max_seq_length")
        if isinstance(stated, int):
            return stated
        tokenizer = self.read_table(f"{under}tokenizer_config.json").get("model_max_length")
        config = self.read_table(f"{under}config.json")
        positions = config.get("max_position_embeddings")
        if isinstance(positions, int) and "roberta" in str(config.get("model_type", "")):
            # The first two of RoBERTa's places are never used.
            positions -= 2
        limits = [limit for limit in (tokenizer, positions) if isinstance(limit, int | float)]
        return min([_LONGEST, *(int(limit) for limit in limits if 0 < limit < 1 << 30)])

    @property
    def label(self) -> str:
        """Return the model's name in the settings: the repository, or the folder's last part."""
        return self.place.resolve().name if self.place is not None and looks_like_path(self.name) else self.name


def locate(name: str, revision: str = "main", package: str = "") -> ModelSource:
    """Return the source of a repository or folder; an installed package that holds the model comes first."""
    module, _, inner = package.partition(":")
    if module and (spec := importlib.util.find_spec(module)) and spec.origin:
        return ModelSource(name, revision, Path(spec.origin).parent / inner)
    return ModelSource(name, revision, existing_folder(name) if looks_like_path(name) else None)


def looks_like_path(name: str) -> bool:
    """Return whether a name can only be a folder."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def is_folder(name: str) -> bool:
    """Return whether a name stands for a folder of this machine."""
    return looks_like_path(name) or Path(name).is_dir()


def folder_is(name: str, of_kind: Callable[[ModelSource], bool]) -> bool:
    """Return whether a name is the path of a folder whose files are of a kind; False if it cannot be read."""
    try:
        path = as_path(name)
        return looks_like_path(path) and of_kind(locate(path))
    except R2medError:
        return False


def as_path(name: str) -> str:
    """Return a user's name for a model, written as a path if a folder of that name exists."""
    return f"./{name}" if not looks_like_path(name) and Path(name).is_dir() else name


def spelled_folder(name: str) -> str:
    """Return the name of a model, in one spelling if it is a folder.

    >>> spelled_folder("models//../mine/"), spelled_folder("./mine"), spelled_folder("BAAI/bge-m3")
    ('./mine', './mine', 'BAAI/bge-m3')
    """
    path = as_path(name)
    if name.startswith("hf:") or not looks_like_path(path):
        return name
    plain = spelled(path)
    return plain if plain.startswith((".", "/", "~")) or "\\" in plain else f"./{plain}"


def existing_folder(name: str) -> Path:
    """Return the folder of a path; raise if there is none."""
    folder = expanded(name)
    if folder.is_dir():
        return folder
    problem = "not a folder" if folder.exists() else "no such folder"
    raise R2medError(f"{folder}: {problem}; a model is a folder of files")


def content_hash(folder: Path) -> str:
    """Hash a folder's files. Very large ones are read in blocks from all over, which tells two trainings apart."""

    stats = []
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "__pycache__")) for part in file.relative_to(folder).parts)
        if file.is_file() and not hidden and file.suffix.lower() not in (".md", ".pyc"):
            stats.append((file, file.stat().st_size, file.stat().st_mtime_ns))
    return _hash(folder, tuple(stats))


@lru_cache(maxsize=64)
def _hash(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """Hash the files' content, once per process while sizes and dates stay the same."""
    digest = hashlib.blake2b(digest_size=16)
    for file, size, _ in files:
        digest.update(f"{file.relative_to(folder).as_posix()}\n{size}\n".encode())
        with file.open("rb") as stream:
            if size <= _WHOLE:
                while block := stream.read(1 << 20):
                    digest.update(block)
            else:
                for place in range(_BLOCKS):
                    stream.seek((size - _BLOCK) * place // (_BLOCKS - 1))
                    digest.update(stream.read(_BLOCK))
    return digest.hexdigest()
