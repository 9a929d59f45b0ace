"""Cards: models as data. Each kind has a bundled `cards.toml` and a file of the user's, read and checked the same way.

A card is a table `[model.NAME]` whose keys are the fields of a frozen dataclass; with `like = "OTHER"` it takes over
the fields of a card before it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_type_hints

from r2med.errors import SpecError, suggest
from r2med.store.cache import home

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = TypeVar("Kind", bound="DataclassInstance")
_COMMITS = {"id": "revision", "query_id": "query_revision", "adapter": "adapter_revision"}


class Reader(NamedTuple):
    """Conversion of a value of a file to a field of a card."""

    wanted: str  # what it must be, in the words of the message when it is not
    fits: Callable[[Any], bool]
    make: Callable[[Any], Any] = lambda value: value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(of, value))


def is_text(value: Any) -> bool:
    """Return whether a value of a file is a text."""
    return isinstance(value, str)


_READERS: Mapping[Any, Reader] = {
    str: Reader("a text", is_text),
    str | None: Reader("a text", is_text),
    bool: Reader("true or false", lambda value: isinstance(value, bool)),
    int: Reader("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: Reader("a number", _is_number),
    float | None: Reader("a number", _is_number),
    tuple[str, ...]: Reader("a list of texts", lambda value: _is_list(value, is_text), tuple),
    tuple[float, ...]: Reader("a list of numbers", lambda value: _is_list(value, _is_number), tuple),
    Mapping[str, Any]: Reader("a table", lambda value: isinstance(value, dict)),
}


@dataclass(frozen=True)
class CardRegistry(Generic[Kind]):
    """Cards of one kind, by name."""

    kind: type[Kind]  # a frozen dataclass; its field `name` is the table's
    package: str  # where the bundled `cards.toml` lies
    own: str  # the user's file in R2MED_HOME; it may have the tables that the bundled one has
    table: str = "model"
    what: str = "model"  # what a card describes, for the message about an unknown name
    readers: Mapping[Any, Reader] = field(default_factory=dict)  # for fields of further types

    def cards(self) -> Mapping[str, Kind]:
        """Return every card by name: the bundled ones in their order, then the user's, which win over bundled ones."""
        bundled, file = self._bundled, home() / self.own
        return {**bundled, **self._make(self._read(file), str(file), bundled)} if file.is_file() else bundled

    def find(self, name: str, ways: str = "") -> Kind:
        """Return the card of a name; `ways` ends the message if there is none."""
        cards = self.cards()
        if name not in cards:
            raise SpecError(f"unknown {self.what} {name!r}{suggest(name, cards)}{ways}")
        return cards[name]

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        """Return all tables of the bundled file, cards and others."""
        return tomllib.loads(resources.files(self.package).joinpath("cards.toml").read_text(encoding="utf-8"))

    @cached_property
    def _bundled(self) -> Mapping[str, Kind]:
        return self._make(self.tables[self.table], "cards.toml", {})

    @cached_property
    def _fields(self) -> Mapping[str, Reader]:
        hints, readers = get_type_hints(self.kind), {**_READERS, **self.readers}
        return {entry.name: readers[hints[entry.name]] for entry in fields(self.kind) if entry.name != "name"}

    def _read(self, file: Path) -> Mapping[str, Any]:
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise SpecError(f"{file}: cannot be read: {error}") from error
        form = f"a card is a table [{self.table}.NAME]"
        for name in tables:
            if name not in self.tables:
                raise SpecError(f"{file}: unknown table {name!r}{suggest(name, self.tables)} ({form})")
        entries: Mapping[str, Any] = tables.get(self.table, {})
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise SpecError(f"{file}: {self.table} is not a table of cards; {form}")
        return entries

    def _make(self, entries: Mapping[str, Any], where: str, known: Mapping[str, Kind]) -> dict[str, Kind]:
        optional = {
            entry.name for entry in fields(self.kind) if (entry.default, entry.default_factory) != (MISSING,) * 2
        }
        cards: dict[str, Kind] = {}
        for name, entry in entries.items():
            values = {key: self._value(f"{where}: {name}", key, value) for key, value in entry.items() if key != "like"}
            before, like = {**known, **cards}, entry.get("like")
            if like is None:
                if lacking := [key for key in self._fields if key not in optional and key not in values]:
                    raise SpecError(f"{where}: {name} has no {lacking[0]}")
                cards[name] = self.kind(name=name, **values)  # type: ignore[call-arg]  # of any card
            elif isinstance(like, str) and like in before:
                # A commit belongs to its repository.
                fresh = {commit: "main" for repository, commit in _COMMITS.items() if repository in values}
                fresh = {commit: value for commit, value in fresh.items() if commit in self._fields}
                cards[name] = replace(before[like], **{"name": name, **fresh, **values})
            else:
                hint = suggest(str(like), before)
                raise SpecError(f"{where}: {name} is like {like!r}, which is not a card before it{hint}")
        return cards

    def _value(self, where: str, key: str, value: Any) -> Any:
        if key not in self._fields:
            raise SpecError(f"{where} has an unknown field {key!r}{suggest(key, [*self._fields, 'like'])}")
        reader = self._fields[key]
        if not reader.fits(value):
            raise SpecError(f"{where}: {key} must be {reader.wanted}, not {value!r}")
        return reader.make(value)
