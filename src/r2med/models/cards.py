"""Cards: models as data. Each kind has a bundled `cards.toml` and a file of the user's, read and checked the same way.

A card is a table `[model.NAME]` whose keys are the fields of a frozen dataclass; with `like = "OTHER"` it takes over
the fields of a card before it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from r2med.errors import SpecError, suggest
from r2med.models.templates import Template
from r2med.store.cache import home
from r2med.store.typed import convert, read_text, toml_values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = TypeVar("Kind", bound="DataclassInstance")
_COMMITS = {"id": "revision", "query_id": "query_revision", "adapter": "adapter_revision"}


@dataclass(frozen=True)
class CardRegistry(Generic[Kind]):
    """Cards of one kind, by name."""

    kind: type[Kind]  # a frozen dataclass; its field `name` is the table's
    package: str  # where the bundled `cards.toml` lies
    own: str  # the user's file in R2MED_HOME; it may have the tables that the bundled one has
    table: str = "model"
    what: str = "model"  # what a card describes, for the message about an unknown name
    ways: str = ""  # the end of that message
    prompts: Any = dict[str, str]  # the type of the prompts of a card in a file, by field

    def cards(self) -> Mapping[str, Kind]:
        """Return every card by name: the bundled ones in their order, then the user's, which win over bundled ones."""
        bundled, file = self._bundled, home() / self.own
        return {**bundled, **self._make(self._read(file), str(file), bundled)} if file.is_file() else bundled

    def find(self, name: str) -> Kind:
        """Return the card of a name."""
        cards = self.cards()
        if name not in cards:
            raise SpecError(f"unknown {self.what} {name!r}{suggest(name, cards)}{self.ways}")
        return cards[name]

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        """Return all tables of the bundled file, cards and others."""
        return tomllib.loads(resources.files(self.package).joinpath("cards.toml").read_text(encoding="utf-8"))

    @cached_property
    def _bundled(self) -> Mapping[str, Kind]:
        return self._make(self.tables[self.table], "cards.toml", {})

    def _read(self, file: Path) -> Mapping[str, Any]:
        tables = toml_values(read_text(file, error=SpecError), str(file), SpecError)
        form = f"a card is a table [{self.table}.NAME]"
        for name in tables:
            if name not in self.tables:
                raise SpecError(f"{file}: unknown table {name!r}{suggest(name, self.tables)} ({form})")
        entries: Mapping[str, Any] = tables.get(self.table, {})
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise SpecError(f"{file}: {self.table} is not a table of cards; {form}")
        return entries

    def _make(self, entries: Mapping[str, Any], where: str, known: Mapping[str, Kind]) -> dict[str, Kind]:
        defaults = {entry.name: entry.default for entry in fields(self.kind) if entry.name != "name"}
        cards: dict[str, Kind] = {}
        for name, entry in entries.items():
            place, values, before, base = f"{where}: {name}", dict(entry), {**known, **cards}, {}
            if (like := values.pop("like", None)) is not None:
                if not isinstance(like, str) or like not in before:
                    hint = suggest(str(like), before)
                    raise SpecError(f"{place} is like {like!r}, which is not a card before it{hint}")
                # A commit belongs to its repository.
                fresh = {commit: "main" for repository, commit in _COMMITS.items() if repository in values}
                base = vars(before[like]) | {commit: value for commit, value in fresh.items() if commit in defaults}
            for key, value in values.items():
                if key not in defaults:
                    raise SpecError(f"{place} has an unknown field {key!r}{suggest(key, [*defaults, 'like'])}")
                if isinstance(defaults[key], Template):
                    values[key] = Template.of(convert({key: value}, self.prompts, place, SpecError)[key])
            cards[name] = convert({**base, **values, "name": name}, self.kind, place, SpecError)
        return cards
