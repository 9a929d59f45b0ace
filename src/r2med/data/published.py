"""Published figures of the benchmark, from one file that comes with the package.

`published.tsv`, which `scripts/make_published.py` writes, holds three tables with an empty line between them: the
sources; the systems; and the figures, a line per system and measure, a column per task, as shares of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from r2med.errors import R2medError, suggest

FILE = "published.tsv"
KINDS = ("base", "gar", "reasoning", "agent", "reranker", "fusion", "oracle")
"""Kinds of systems: a retriever alone; with texts of a model, of one that reasons, of one that searches; and so on."""
TABLE = "table:"
_BENCHMARK = ("paper", "page")  # the sources of the benchmark's own authors


@dataclass(frozen=True)
class PublishedSource:
    """Source of published figures."""

    name: str
    group: str  # group of the tasks: full or nano
    digits: int  # digits after the point, of a figure as a share of 1
    title: str
    where: str

    @property
    def rounding(self) -> float:
        """Return the largest rounding error of a figure."""
        return 0.5 * 10.0**-self.digits


@dataclass(frozen=True)
class PublishedFigures:
    """Figures of one system by one measure."""

    tasks: Mapping[str, float]  # figure by task; a task that was not published is missing
    average: float | None = None  # the average that was published beside them; None if there was none


@dataclass(frozen=True)
class PublishedSystem:
    """Row of a published table.

    >>> system = find_published("base/bge")[0]
    >>> system.system, round(100 * system.figures["nDCG@10"].tasks["Biology"], 2)
    ('bge', 12.71)
    """

    source: PublishedSource
    name: str
    """The name used here: `base/bge`, `hyde/gpt4/bm25`, `reranker/rankllama`, or the name of a model. Rows of
    several sources with one name are one system."""
    kind: str
    retriever: str  # the retriever; of a reranker its first stage
    llm: str
    reranker: str
    system: str  # the spec of the system, which replays texts as published; empty if it cannot be expressed
    generate: str  # the spec that queries the language model again; empty if there is no language model in it
    size: str
    max_query: int | None  # tokens of a query that the retriever read; None if not published
    max_document: int | None
    note: str
    figures: Mapping[str, PublishedFigures] = field(default_factory=dict, repr=False)  # figures by measure


@cache
def sources() -> Mapping[str, PublishedSource]:
    """Return every source by its name.

    >>> list(sources())
    ['paper', 'page', 'mteb', 'reasonembed', 'insertrank', 'grouprank', 'reasonrank', 'nano']
    """
    return {
        row["source"]: PublishedSource(row["source"], row["group"], int(row["digits"]), row["title"], row["where"])
        for row in _tables()[0]
    }


@cache
def published() -> tuple[PublishedSystem, ...]:
    """Return every published system, in the order of the file.

    >>> len([system for system in published() if system.source.name == "paper"])
    71
    """
    figures: dict[tuple[str, str], dict[str, PublishedFigures]] = {}
    for row in _tables()[2]:
        group = sources()[row["source"]].group
        prefix = "" if group == "full" else f"{group}/"
        tasks = {f"{prefix}{task}": float(row[task]) for task in list(row)[4:] if row[task]}
        average = float(row["average"]) if row["average"] else None
        figures.setdefault((row["source"], row["name"]), {})[row["measure"]] = PublishedFigures(tasks, average)
    systems = []
    for row in _tables()[1]:
        facts: dict[str, Any] = {name: text for name, text in row.items() if name != "source"}
        facts |= {name: int(row[name]) if row[name] else None for name in ("max_query", "max_document")}
        key = row["source"], row["name"]
        systems.append(PublishedSystem(source=sources()[row["source"]], figures=figures[key], **facts))
    return tuple(systems)


def find_published(name: str) -> list[PublishedSystem]:
    """Return the published rows of a name, in all sources that have it.

    `table:base` stands for the benchmark's own rows of a kind, `table:mteb` for all rows of a source.

    >>> [row.source.name for row in find_published("base/medcpt")]
    ['paper', 'page']
    >>> len({row.name for row in find_published("table:base")})
    15
    """
    if name.casefold().startswith(TABLE):
        table = name.casefold().removeprefix(TABLE)
        benchmark = [system for system in published() if system.source.name in _BENCHMARK]
        systems = [system for system in published() if system.source.name == table]
        systems = systems or [system for system in benchmark if system.kind == table]
        if not systems:
            names = {system.kind for system in benchmark} | set(sources())
            raise R2medError(f"no published table {table!r}{suggest(table, names)}")
        return systems
    systems = [system for system in published() if system.name.casefold() == name.casefold()]
    if not systems:
        near = suggest(name, {system.name for system in published()})
        raise R2medError(f"nothing was published under the name {name!r}{near}; r2med board --published lists all")
    return systems


@cache
def _tables() -> Sequence[Sequence[Mapping[str, str]]]:
    text = resources.files("r2med.data").joinpath(FILE).read_text(encoding="utf-8")
    blocks = [[line.split("\t") for line in block.split("\n")] for block in text.rstrip("\n").split("\n\n")]
    return [[dict(zip(block[0], cells, strict=True)) for cells in block[1:]] for block in blocks]
