"""The content-addressed cache: a folder per entry, named by a hash of everything its content depends on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import R2medError
from r2med.store.files import draft_folder, make_private, reason, sweep, unwritable
from r2med.store.hashes import KEY, is_unchanged, write_checksums


def home() -> Path:
    """Return the folder of the ledger and the caches; create it if it is missing."""
    setting = os.environ.get("R2MED_HOME")
    place = f"R2MED_HOME={setting}" if setting else "the folder for results"
    try:
        folder = Path(setting).expanduser() if setting else None
        if folder is None:
            from platformdirs import user_data_path

            folder = user_data_path("r2med", appauthor=False)
            place = f"{folder}, where results are kept,"
        # What is kept may be about patients: a folder that is made here is its owner's alone.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        next(folder.iterdir(), None)  # a folder that cannot be listed raises only now
    except (OSError, RuntimeError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise R2medError(f"{place} cannot be used ({why}); set R2MED_HOME to a folder that can be written") from error
    return folder


@dataclass(frozen=True)
class Cache:
    """Folders `ROOT/KIND/KEY`, each complete or absent: an entry is built in a draft and renamed into place."""

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """Return the cache in `R2MED_HOME`."""
        return cls(home() / "cache")

    def entry(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """Return the folder of an entry, which `build` fills first if it is missing. Safe for concurrent processes."""
        target = self.root / kind / key
        if self.has(kind, key):
            return target
        try:
            make_private(target.parent)
            sweep(self.root, "*/.*")
            if target.is_dir():
                self.drop(kind, key)  # the entry of another key
            with draft_folder(target.parent, key[:8]) as draft:
                build(draft)
                (draft / KEY).write_text(f"{kind}/{key}")
                draft.rename(target)
        except OSError as error:
            # Another process may have finished the same entry first; its folder is as good as ours.
            if not target.is_dir():
                raise unwritable(self.root, error) from error
        return target

    def sound_entry(self, kind: str, key: str, build: Callable[[Path], object]) -> Path:
        """Return the folder of an entry whose files are bit for bit what was built; rebuild a damaged one."""

        def sealed(folder: Path) -> None:
            build(folder)
            write_checksums(folder)

        if self.has(kind, key) and not is_unchanged(self.root / kind / key):
            self.drop(kind, key)
        return self.entry(kind, key, sealed)

    def has(self, kind: str, key: str) -> bool:
        """Return whether an entry exists and its stored key is this one."""
        try:
            return (self.root / kind / key / KEY).read_bytes() == f"{kind}/{key}".encode()
        except OSError:
            return False

    def drop(self, kind: str, key: str) -> None:
        """Remove an entry, for one that is damaged."""
        shutil.rmtree(self.root / kind / key, ignore_errors=True)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return for each kind, and for unfinished entries, the number of entries and of bytes."""
        sizes: dict[str, tuple[int, int]] = {}
        for folder in sorted(self.root.glob("*/*")):
            kind = "unfinished" if folder.name.startswith(".") else folder.parent.name
            entries, used = sizes.get(kind, (0, 0))
            for file in folder.rglob("*"):
                with suppress(FileNotFoundError):  # files may vanish meanwhile
                    used += file.stat().st_size if file.is_file() else 0
            sizes[kind] = (entries + 1, used)
        return sizes
