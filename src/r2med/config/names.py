"""Names that users give: aliases of stages and systems, sets of equal servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from r2med.config.settings_files import names_under, tables
from r2med.errors import R2medError


def aliases() -> Mapping[str, str]:
    """Every alias by name; those of the current folder win over those of the user."""
    found: dict[str, str] = {}
    for path, table in tables("aliases"):
        found |= _texts(path, "aliases", table)
    return found


def local_copies() -> Mapping[str, Path]:
    """Return the folders that hold a copy of a named task, or of all tasks of a group; paths start at the file."""
    folders: dict[str, Path] = {}
    for path, table in tables("data"):
        texts = _texts(path, "data", table, 'Biology = "FOLDER"')
        folders |= {name: path.parent / Path(text).expanduser() for name, text in texts.items()}
    return folders


def server_sets() -> Mapping[str, tuple[str, ...]]:
    """The names of sets of equal servers, each with the addresses (or patterns of addresses) in it."""
    found: dict[str, tuple[str, ...]] = {}
    for path, table in tables("servers"):
        if not isinstance(table, dict):
            raise R2medError(f'{path}: [servers] must hold lines such as farm = ["http://gpu1:8000/v1"]')
        found |= {name: names_under(path, table, name, ()) for name in table}
    return found


def _texts(path: Path, key: str, value: object, example: str = 'name = "bm25"') -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise R2medError(f"{path}: [{key}] must hold lines such as {example}")
    return value
