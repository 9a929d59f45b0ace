"""The fingerprints that the data of folders has now, to tell runs on earlier data apart."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from r2med.data import layout
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import R2medError
from r2med.store.hashes import Stamp, stamp


def present_fingerprints(tasks: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each folder among some tasks; one that is gone or cannot be read has none."""
    fingerprints = {}
    for name in tasks:
        if not Path(name).is_absolute():
            continue
        try:
            [task] = resolve([name])
            folder = task.folder or Path(name)
            files = layout.choose(layout.listing(folder), task.split).files
            fingerprints[name] = _fingerprint(name, tuple(stamp(folder / file) for file in files))
        except (R2medError, OSError, ValueError):
            continue
    return fingerprints


@lru_cache(maxsize=64)
def _fingerprint(name: str, _stamps: tuple[Stamp, ...]) -> str:
    """Return the fingerprint of a folder's data, read again only after one of its files has changed."""
    return load(name).fingerprint
