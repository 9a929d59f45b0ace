"""Published rows run again: their systems, what these need, and whether the figures come out the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from r2med.data.published import TABLE, PublishedFigures, PublishedSystem, find_published
from r2med.data.tasks import AVERAGE
from r2med.encode.cards import cards
from r2med.errors import EXTRAS, R2medError, require_extra
from r2med.measure.bootstrap import task_intervals
from r2med.measure.figure import Figure
from r2med.pipeline.stage import Requirements
from r2med.pipeline.system import System
from r2med.rerank.groupwise import Groupwise
from r2med.rerank.llm import ModelReranker
from r2med.runs.report import Report

WITHIN_ROUNDING, WITHIN_INTERVAL, DIFFERENT = "within rounding", "within the interval", "different"
_HUB = "hf:"
_KIND_NOTES = {
    "reasoning": (
        "Where a trace of reasoning does not end, the authors searched with all of it;"
        " r2med counts the query as incomplete and searches with the question."
    ),
    "agent": "The authors published no code of their search agents: generating anew is r2med's reading of the papers.",
}
_OWN_WORDS = "{name}: r2med asks for the published form of an answer in its own words, not with the authors' prompt."
_FUSED = "groupwise: the published weight of the first stage's scores is not known; fuse={fuse:g} is r2med's choice."


@dataclass(frozen=True)
class Reproduction:
    """A published system as r2med runs it."""

    system: str  # the spec
    rows: tuple[PublishedSystem, ...]  # every published row that it is compared with

    @property
    def notes(self) -> list[str]:
        """Return what to know before the figures are compared."""
        notes = [note for row in self.rows for note in (row.note, _KIND_NOTES.get(row.kind, ""))]
        system = System.parse(self.system)
        for stage in system.walk():
            card = cards().get(stage.spec.name)
            notes += [f"{card.name}, as published: {card.published}"] if card and card.published else []
        for stage in system.stages:
            notes += [_OWN_WORDS.format(name=stage.name)] if isinstance(stage, ModelReranker) else []
            notes += [_FUSED.format(fuse=stage.fuse)] if isinstance(stage, Groupwise) and stage.fuse else []
        every = list(dict.fromkeys(note for note in notes if note))
        return [note for note in every if not any(note in other for other in every if other != note)]


def reproductions(names: Sequence[str], *, generate: bool = False) -> list[Reproduction]:
    """Return what to run for published names or tables; rows of the same system are compared with one run.

    >>> [system] = reproductions(["hyde/gpt4/bm25"])
    >>> system.system, [row.source.name for row in system.rows]
    ('replay(hub, method=hyde, llm=gpt4) >> bm25', ['paper', 'page'])
    >>> reproductions(["hyde/gpt4/bm25"], generate=True)[0].system
    'hyde(gpt-4o) >> bm25'
    """
    systems: dict[str, list[PublishedSystem]] = {}
    for name in names:
        for row in find_published(name):
            spec = (row.generate if generate else "") or row.system
            alone = not name.casefold().startswith(TABLE)
            if alone and not spec:
                raise R2medError(f"{row.name} cannot be said in r2med's terms ({row.note or 'no card for its model'})")
            if alone and generate and not row.generate:
                raise R2medError(f"{row.name} has no published texts to generate anew; run it without --generate")
            if spec and row not in systems.setdefault(spec, []):
                systems[spec].append(row)
    return [Reproduction(spec, tuple(rows)) for spec, rows in systems.items()]


def needs(spec: str) -> dict[str, Any]:
    """Return what a system needs to run: extras, keys, repositories of the hub, a GPU.

    >>> needs("replay(hub, method=hyde, llm=gpt4) >> bm25")
    {'hub': ['R2MED/<task>']}
    >>> needs("nv")["gpu"]
    True
    """
    stages = [(stage.spec.name, stage) for stage in System.parse(spec).walk()]
    # This much is known of a model without a card without asking the hub for its files.
    required = [
        Requirements("torch", hub=(name.removeprefix(_HUB),)) if name.startswith(_HUB) else stage.requirements
        for name, stage in stages
    ]
    needed = {
        "extras": list(dict.fromkeys(name for one in required for name in one.extra.split(",") if name)),
        "keys": list(dict.fromkeys(one.key for one in required if one.key)),
        "hub": list(dict.fromkeys(repository for one in required for repository in one.hub)),
        "gpu": any(one.gpu for one in required),
    }
    return {name: value for name, value in needed.items() if value}


def check_needs(spec: str) -> None:
    """Refuse what cannot run here before any data is read: a key that is not set, an extra that is not installed."""
    needed = needs(spec)
    for key in needed.get("keys", ()):
        if not os.environ.get(key):
            raise R2medError(f"{spec} needs an API key: set {key}, or see --dry-run for all that it needs")
    for extra in needed.get("extras", ()):
        require_extra(extra, *EXTRAS.get(extra, ()))


def verdict(published: float, measured: float, rounding: float, interval: Figure | None) -> str:
    """Compare a measured figure with the published one.

    >>> verdict(0.1271, 0.12706, 0.00005, None), verdict(0.2, 0.3, 0.00005, None)
    ('within rounding', 'different')
    """
    if abs(measured - published) <= rounding * (1 + 1e-9) + 1e-12:
        return WITHIN_ROUNDING
    if interval is not None and interval.ends[0] <= published <= interval.ends[1]:
        return WITHIN_INTERVAL
    return DIFFERENT


@dataclass(frozen=True)
class Compared:
    """One figure: as it was published, and as it was measured here."""

    system: str
    name: str
    source: str
    task: str  # the task, or `average`
    published: float | None  # None where nothing was published that could be compared
    measured: float
    low: float
    high: float  # the 95% interval of what was measured
    verdict: str

    @property
    def difference(self) -> float | None:
        """Return measured less published."""
        return None if self.published is None else self.measured - self.published


def compare(reproduction: Reproduction, report: Report, measure: str) -> Iterator[Compared]:
    """Compare every figure measured for a system with each source's; tasks of other groups have no counterpart."""
    system = reproduction.system
    for row, group in product(reproduction.rows, report.groups):
        ranges, source = report.intervals(group, measure).get(system, {}), row.source
        stated = (row.figures.get(measure) if group == source.group else None) or PublishedFigures({})
        results = {task: result for task in report.tasks(group) if (result := report.result(system, task))}
        measured = {task: result.metrics[measure] for task, result in results.items()}
        published = {task: stated.tasks.get(task) for task in measured}
        if len(measured) > 1 and (whole := report.average(system, group, measure)) is not None:
            measured[AVERAGE], published[AVERAGE] = whole, _average(stated, list(results))
        for task, value in measured.items():
            # A system that lacks a task has intervals on the others alone.
            interval = ranges.get(task) or task_intervals(results[task].scores[measure])[0]
            figure = published[task]
            outcome = f"not published by {source.name}"
            if figure is not None:
                outcome = verdict(figure, value, source.rounding, interval)
            yield Compared(system, row.name, source.name, task or "average", figure, value, *interval.ends, outcome)


def _average(figures: PublishedFigures, tasks: Sequence[str]) -> float | None:
    """Return the published average over the tasks that were measured; None unless all of them were published."""
    if any(task not in figures.tasks for task in tasks):
        return None
    if figures.average is not None and len(tasks) == len(figures.tasks):
        return figures.average
    return sum(figures.tasks[task] for task in tasks) / len(tasks)
