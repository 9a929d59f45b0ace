"""The files that settings are read from: the user's, and that of the current folder, which wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.storage.home import home

PROJECT_FILE = "r2med.toml"
USER_FILE = "config.toml"
_TABLES = ("aliases", "servers", "requests", "limits", "engine", "data", "prices")


def read_toml(path: Path, known: tuple[str, ...]) -> dict[str, Any]:
    """A TOML file whose top-level keys must be among the known ones."""
    import tomllib  # most have no such file

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise R2medError(f"{path}: cannot be read: {reason}") from error
    for key in found:
        if key not in known:
            raise R2medError(f"{path}: unknown key {key!r}{suggest(key, known)}")
    return found


def tables(name: str) -> Iterator[tuple[Path, Any]]:
    """A table of the user's file, then the same of the current folder's, which wins."""
    for path in (home() / USER_FILE, Path(PROJECT_FILE)):
        if path.is_file():
            found = read_toml(path, _TABLES)
            if name in found:
                yield path, found[name]


def names_under(path: Path, found: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """A list of names that a file has under a key."""
    value = found.get(key, list(default))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise R2medError(f'{path}: {key} must be a list such as ["sample"]')
    return tuple(value)
