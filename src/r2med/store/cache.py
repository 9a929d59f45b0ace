"""The content-addressed cache: a folder an entry, under a hash of everything its content depends on."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from r2med.store.home import home


def cache_key(**parts: object) -> str:
    """A hash of named values; any change of a name or a value gives another key.

    >>> cache_key(k1=0.9, b=0.4) == cache_key(b=0.4, k1=0.9) != cache_key(k1=0.9, b=0.5)
    True
    """
    text = "\n".join(f"{name}={parts[name]!r}" for name in sorted(parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Cache:
    """Folders `ROOT/KIND/KEY`, each complete or absent: an entry is built aside and renamed into place."""

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """The cache in `R2MED_HOME`."""
        return cls(home() / "cache")

    def entry(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of an entry; `build` fills it first when it is not there. Safe for several processes at once."""
        target = self.root / kind / key
        if self.has(kind, key):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{key[:8]}-", dir=target.parent))
        try:
            build(draft)
            draft.rename(target)
        except OSError:
            # Another process may have finished the same entry first; its folder is as good as ours.
            if not target.is_dir():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return target

    def has(self, kind: str, key: str) -> bool:
        """Whether an entry is there."""
        return (self.root / kind / key).is_dir()

    def drop(self, kind: str, key: str) -> None:
        """Forget an entry, for one that turned out damaged."""
        shutil.rmtree(self.root / kind / key, ignore_errors=True)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """For each kind: how many entries, and how many bytes they take."""
        found: dict[str, tuple[int, int]] = {}
        for kind in sorted(path for path in self.root.glob("*") if path.is_dir()):
            entries = [path for path in kind.iterdir() if not path.name.startswith(".")]
            used = sum(file.stat().st_size for entry in entries for file in entry.rglob("*") if file.is_file())
            found[kind.name] = (len(entries), used)
        return found
