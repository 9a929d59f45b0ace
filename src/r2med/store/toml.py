"""Settings in tables of a TOML file, read into dataclasses, with errors that name the line of what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from r2med.errors import DataError, suggest
from r2med.store.files import expanded


class WrongSetting(Exception):
    """Invalid setting: its key and the reason."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key, self.why = key, why


def require(holds: bool, key: str, why: str) -> None:
    """Raise `WrongSetting` unless a condition holds."""
    if not holds:
        raise WrongSetting(key, why)


def read_text(file: Path, advice: str = "") -> str:
    """Return the text of a file that a user names; an error says what to do if it is missing."""
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file{f'; {advice}' if advice else ''}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{file}: cannot be read: {reason}") from error


def read_tables(file: Path, text: str, readers: Mapping[str, Callable[[Mapping[str, Any]], Any]]) -> dict[str, Any]:
    """Read the tables of a file, each by the reader of its name."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not readable as TOML: {error}") from error
    made: dict[str, Any] = {}
    for name, table in tables.items():
        if name not in readers:
            raise DataError(f"{file}:{line_of(text, name)}: unknown table [{name}]{suggest(name, readers)}")
        if not isinstance(table, dict):
            raise DataError(f"{file}:{line_of(text, '', name)}: {name} must be a table: write [{name}]")
        try:
            made[name] = readers[name](table)
        except WrongSetting as wrong:
            raise DataError(f"{file}:{line_of(text, name, wrong.key)}: [{name}] {wrong.key} {wrong.why}") from wrong
    return made


def section_kinds(kind: type) -> dict[str, type]:
    """Return the fields of a dataclass that are dataclasses of settings themselves, each a table of a file."""
    kinds = {name: hint for name, hint in get_type_hints(kind).items() if isinstance(hint, type)}
    return {name: each for name, each in kinds.items() if hasattr(each, "__dataclass_fields__")}


def section_readers(kind: type) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return a reader for each table that a dataclass has."""
    return {name: partial(read_section, each) for name, each in section_kinds(kind).items()}


def read_section(kind: type, table: Mapping[str, Any]) -> Any:
    """Build a dataclass of settings from its table."""
    hints = get_type_hints(kind)
    known = [setting.name for setting in fields(kind)]
    for key in table:
        require(key in known, key, f"is not a setting{suggest(key, known)}")
    return kind(**{key: _value(key, value, str(hints[key])) for key, value in table.items()})


def _value(key: str, value: Any, kind: str) -> Any:
    """Convert a setting to the type that it must have."""
    if kind.startswith("tuple"):
        inner, what = (int, "whole numbers") if "int" in kind else (str, "texts")
        right = isinstance(value, list) and all(type(item) is inner for item in value)
        require(right, key, f"must be a list of {what}, not {value!r}")
        return tuple(value)
    if "Path" in kind:
        require(isinstance(value, str) and bool(value), key, f"must be a path, not {value!r}")
        return expanded(value)
    if kind == "<class 'float'>":
        require(type(value) in (int, float), key, f"must be a number, not {value!r}")
        return float(value)
    wanted: dict[str, tuple[type, str]] = {
        "<class 'int'>": (int, "a whole number"),
        "<class 'bool'>": (bool, "true or false"),
    }
    exact, what = wanted.get(kind, (str, "a text"))
    require(type(value) is exact, key, f"must be {what}, not {value!r}")
    return value


def line_of(text: str, table: str, key: str = "") -> int:
    """Return the line of a key in a table, or of the table if the key is not written.

    >>> line_of("[a]\\nx = 1\\n[b]\\nx = 2", "b", "x"), line_of("[a]\\n[b]", "b", "y")
    (4, 2)
    """
    current, head = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[([\w.-]+)\]", line):
            current = heading[1]
            head = number if current == table else head
        elif current == table and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return head
