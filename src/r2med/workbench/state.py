"""State of the query workbench, as its address holds it: lists, measure, and the queries with their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from r2med.diagnosis.causes import Cause
from r2med.pipeline.loaded_runs import HEADLINE
from r2med.render.html import address
from r2med.web.addresses import UnknownName

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from r2med.workbench.rows import BenchRow

SIDES = 6  # as many lists fit side by side
DEEP = 100  # as far as lists are shown when one asks for more
LETTERS = "ABCDEF"  # what the lists are called, from the first on
ORDERS: Mapping[str, str] = {
    "given": "as in the data",
    "lowest": "lowest A first",
    "highest": "highest A first",
    "gained": "most gained by B",
    "lost": "most lost by B",
}
WINNERS: Mapping[str, str] = {"b": "B", "a": "A", "even": "neither"}
MIDDLE_TABS: Mapping[str, str] = {"relevant": "Relevant", "written": "Written", "answers": "Answers"}
"""What the middle shows below the question."""
_TABS = ("queries", "question", *MIDDLE_TABS, *map(str, range(1, SIDES + 1)))
_NAMES = {"text": "q", "before": "from", "after": "to", "order": "sort", "hidden": "hide", "systems": ""}
"""Fields that have another name in the address."""
_CHOICES = {"order": "order", "won": "winner", "tab": "tab", "before": "cause", "after": "cause"}
"""Fields that can have a few values only, and what these are."""


@dataclass(frozen=True)
class BenchState:
    """Choices that can be made in the workbench."""

    group: str = ""
    task: str = ""
    query: str = ""
    over: str = ""  # `all` where the list of queries is over all tasks that the systems share; else it is over the task
    systems: tuple[str, ...] = ()  # whose lists are shown, A first: specs, or ids of runs
    measure: str = ""
    text: str = ""
    before: str = ""
    after: str = ""  # only queries with a relevant document of which this became in A, and that in B
    won: str = ""
    at: str = ""  # only queries at one place of the scatter of scores
    order: str = ""
    tab: str = ""
    depth: str = ""
    page: str = ""
    gold: str = ""
    hidden: str = ""  # the numbers of lists that are not shown, with commas

    @classmethod
    def read(cls, asked: QueryParams) -> tuple[BenchState, dict[str, UnknownName]]:
        """Read an address; return the state, and errors for unknown values by field, which are left out."""
        named = (asked.get("a", ""), asked.get("b", ""), *asked.getlist("also"))
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {name: asked.get(_NAMES.get(name, name), "") for name in names}
        values["systems"] = tuple(dict.fromkeys(name for name in named if name))[:SIDES]
        causes = [cause.value for cause in Cause]
        choices = {"order": ORDERS, "won": WINNERS, "tab": _TABS, "before": causes, "after": causes}
        wrong = {}
        for name, what in _CHOICES.items():
            if values[name] and values[name] not in choices[name]:
                wrong[name] = UnknownName(what, values[name], list(choices[name]))
                values[name] = ""
        return cls(**values), wrong

    @property
    def sort(self) -> str:
        """Return the order of the list of queries."""
        return self.order or "given"

    @property
    def deep(self) -> bool:
        """Return whether lists are shown at their full depth."""
        return self.depth == str(DEEP)

    @property
    def filtered(self) -> bool:
        """Return whether only some queries are listed."""
        return any((self.text, self.before, self.after, self.won, self.at))

    def values(self) -> dict[str, object]:
        """Return the values by their names in the address; defaults are left out."""
        named = {_NAMES.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        first, second, *also = (*self.systems, "", "")
        named |= {"a": first, "b": second, "also": [name for name in also if name]}
        named["measure"] = "" if self.measure == str(HEADLINE) else self.measure
        return {name: value for name, value in named.items() if name and value}

    def link(self, **changes: Any) -> str:
        """Return the address of the same with changes, on that page of the list where the query is."""
        return replace(self, **{"page": "", **changes}).address()

    def address(self) -> str:
        """Return the address of just this."""
        return address("/query", **self.values())

    def row_linker(self) -> Callable[[BenchRow], str]:
        """Return a function from another query to its address in the same workbench; the rest of it is built once."""
        rest = address("", **replace(self, task="", query="", page="").values()).removeprefix("?")
        return lambda row: address("/query", task=row.task, query=row.query) + (f"&{rest}" if rest else "")

    def fields_but(self, *names: str) -> list[tuple[str, str]]:
        """Return what a form has to send along so that only the named values change."""
        kept = {name: value for name, value in self.values().items() if name not in (*names, "page")}
        pairs = [(name, value) for name, value in kept.items() if isinstance(value, str)]
        return [*pairs, *(("also", name) for name in self.systems[2:] if name and "also" in kept)]
