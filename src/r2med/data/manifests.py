"""Files beside a task's data that describe it: the manifest `nano.json` of a nano set, and `translation.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from r2med.store.typed import read_json

MANIFEST = "nano.json"
FORMAT = 1
TRANSLATION = "translation.json"
_COUNTS = ("queries", "documents", "qrels")


class NanoSplit(msgspec.Struct, frozen=True):
    """Entry of a split in the manifest of a nano set."""

    task: Mapping[str, str | int] = {}
    safeguards: Mapping[str, str] = {}  # by query, the relevant document appended to its hybrid list, which had none


class NanoSet(msgspec.Struct, frozen=True, tag_field="format", tag=FORMAT):
    """Manifest of a nano set.

    >>> NanoSet({"NanoMine": NanoSplit({"noun": "letter"})}).facts("NanoMine", ["noun"])
    {'noun': 'letter'}
    """

    splits: Mapping[str, NanoSplit]
    candidates: Mapping[str, Mapping[str, Any]] = {}
    recipe: Mapping[str, Any] = {}  # the parameters with which it was built

    def name(self, split: str) -> str:
        """Return the split's own name; the only one there is, whatever it is asked for by."""
        return next(iter(self.splits)) if len(self.splits) == 1 else split

    def split(self, split: str) -> NanoSplit:
        """Return the entry of a split."""
        return self.splits.get(self.name(split), NanoSplit())

    def facts(self, split: str, names: Sequence[str]) -> dict[str, Any]:
        """Return the task's facts of a split: its base, what it states under these names, and the expected counts."""
        stated = self.split(split).task
        return {name: stated[name] for name in ("base", *names, *_COUNTS) if name in stated}

    @property
    def configs(self) -> Mapping[str, str]:
        """Return the candidate lists that were written: their kinds, and their configs."""
        return {kind: str(entry["config"]) for kind, entry in self.candidates.items()}


class Translation(msgspec.Struct, frozen=True):
    """Language of a folder's questions, and the task that they are translated from."""

    language: str
    source: str


def read_manifest(folder: Path) -> NanoSet | None:
    """Read the manifest of a folder; return None if it is not a built nano set."""
    file = folder / MANIFEST
    return read_json(file, NanoSet) if file.is_file() else None


def read_translation(folder: Path) -> dict[str, str]:
    """Return the language of a folder's questions and the task that they are translated from; empty if not stated."""
    file = folder / TRANSLATION
    if not file.is_file():
        return {}
    stated = read_json(file, Translation)
    return {"language": stated.language, "translates": stated.source}
