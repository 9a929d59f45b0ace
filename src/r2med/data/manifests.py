"""Files beside a task's data that describe it: the manifest `nano.json` of a nano set, and `translation.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from r2med.errors import DataError

MANIFEST = "nano.json"
FORMAT = 1
_COUNTS = ("queries", "documents", "qrels")


class NanoSet(NamedTuple):
    """Manifest of a nano set.

    >>> NanoSet({"format": 1, "splits": {"NanoMine": {"task": {"noun": "letter"}}}}).facts("NanoMine", ["noun"])
    {'noun': 'letter'}
    """

    content: Mapping[str, Any]

    def name(self, split: str) -> str:
        """Return the split's own name; the only one there is, whatever it is asked for by."""
        names = list(self.content["splits"])
        return names[0] if len(names) == 1 else split

    def split(self, split: str) -> Mapping[str, Any]:
        """Return the entry of a split."""
        return dict(self.content["splits"].get(self.name(split), {}))

    def facts(self, split: str, names: Sequence[str]) -> dict[str, Any]:
        """Return the task's facts of a split: its base, what it states under these names, and the expected counts."""
        stated = self.split(split).get("task", {})
        texts = {name: stated[name] for name in ("base", *names) if isinstance(stated.get(name), str)}
        return texts | {name: stated[name] for name in _COUNTS if isinstance(stated.get(name), int)}

    @property
    def configs(self) -> Mapping[str, str]:
        """Return the candidate lists that were written: their kinds, and their configs."""
        return {kind: str(entry["config"]) for kind, entry in self.content.get("candidates", {}).items()}

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Return the parameters with which it was built."""
        return dict(self.content.get("recipe", {}))

    def safeguards(self, split: str) -> Mapping[str, str]:
        """Return, by query, the relevant document appended to its hybrid list because that had none."""
        return dict(self.split(split).get("safeguards", {}))


def read_manifest(folder: Path) -> NanoSet | None:
    """Read the manifest of a folder; return None if it is not a built nano set."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        content = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"{file}: cannot be read: {error}; build the nano set again") from error
    if not isinstance(content, dict) or not isinstance(content.get("splits"), dict):
        raise DataError(f"{file}: is not the manifest of a nano set; move it away or build the set again")
    if content.get("format") != FORMAT:
        numbers = f"format {content.get('format')}, this version has {FORMAT}"
        raise DataError(f"{file}: made by another version of r2med ({numbers}); build the nano set again")
    return NanoSet(content)


TRANSLATION = "translation.json"


def read_translation(folder: Path) -> dict[str, str]:
    """Return the language of a folder's questions and the task that they are translated from; empty if not stated."""
    file = folder / TRANSLATION
    if not file.is_file():
        return {}
    try:
        stated = orjson.loads(file.read_bytes())
        return {"language": str(stated["language"]), "translates": str(stated["source"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
