"""Where a model's files are: a folder, an installed package, or the hub; and the version that names their content."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from r2med.encode import hub
from r2med.errors import R2medError, expanded

_WHOLE = 1 << 28  # bytes up to which a file is read to its end
_BLOCKS, _BLOCK = 256, 1 << 16


@dataclass(frozen=True)
class Source:
    """A model's files, wherever they are."""

    name: str
    """The repository, or the path of the folder."""
    revision: str = "main"
    place: Path | None = None
    """The folder on this machine; None for the hub."""

    @cached_property
    def version(self) -> str:
        """What names the content: the hub's commit, or a hash of the folder. May ask the hub for a branch's commit."""
        return hub.commit_of(self.name, self.revision) if self.place is None else content_hash(self.place)

    def folder(self) -> Path:
        """The folder with the files; they are downloaded when they are not here yet."""
        return hub.fetch_model(self.name, self.version) if self.place is None else self.place

    def adapter_folder(self) -> Path:
        """The folder of a LoRA adapter's files."""
        folder = hub.fetch_adapter(self.name, self.version) if self.place is None else self.place
        if not (folder / "adapter_config.json").is_file():
            raise R2medError(f"{self.name}: not an adapter (no adapter_config.json)")
        return folder

    def small_file(self, name: str) -> Path | None:
        """A small file of the model by its name, or None when there is none."""
        if self.place is None:
            return hub.small_file(self.name, self.version, name)
        return self.place / name if (self.place / name).is_file() else None

    @property
    def label(self) -> str:
        """What the settings call the model: the repository, or the folder's own name."""
        return self.place.resolve().name if self.place is not None and looks_like_path(self.name) else self.name


def locate(name: str, revision: str = "main", package: str = "") -> Source:
    """The source of a repository or folder; an installed package that holds the model comes first."""
    module, _, inner = package.partition(":")
    if module and (spec := importlib.util.find_spec(module)) and spec.origin:
        return Source(name, revision, Path(spec.origin).parent / inner)
    if looks_like_path(name):
        return Source(name, revision, existing_folder(name))
    return Source(name, revision)


def looks_like_path(name: str) -> bool:
    """Whether a name can only be a folder.

    >>> looks_like_path("./models/mine"), looks_like_path("BAAI/bge-m3")
    (True, False)
    """
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def as_path(name: str) -> str:
    """A name that a user gave, written so that it can only be a folder where one of that name is here.

    >>> as_path("BAAI/bge-m3"), as_path("./models/mine")
    ('BAAI/bge-m3', './models/mine')
    """
    return f"./{name}" if not looks_like_path(name) and Path(name).is_dir() else name


def existing_folder(name: str) -> Path:
    """The folder of a path, which must be there."""
    folder = expanded(name)
    if folder.is_dir():
        return folder
    raise R2medError(
        f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}; a model is a folder of files"
    )


def content_hash(folder: Path) -> str:
    """A hash of a folder's files. Of very large ones blocks from all over are read, which tells two trainings apart."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _hidden(path, folder))
    stats = [file.stat() for file in files]
    return _hash(folder, tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in zip(files, stats, strict=True)))


@lru_cache(maxsize=64)
def _hash(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """The hash; read once a process while sizes and dates stay."""
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


def _hidden(file: Path, folder: Path) -> bool:
    parts = file.relative_to(folder).parts
    return any(part.startswith((".", "__pycache__")) for part in parts) or file.suffix.lower() in (".md", ".pyc")
