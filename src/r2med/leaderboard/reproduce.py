"""Published rows run again: their systems, what these need, and whether the figures come out the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from r2med.data.published import TABLE, PublishedFigures, PublishedSystem, find_published
from r2med.encode.cards import cards
from r2med.errors import EXTRAS, R2medError, require_extra
from r2med.measure.bootstrap import task_intervals
from r2med.pipeline.stage import Requirements, Stage
from r2med.pipeline.system import System
from r2med.rerank.groupwise import Groupwise
from r2med.rerank.llm import ModelReranker
from r2med.runs.report import Report

if TYPE_CHECKING:
    from r2med.measure.figure import Figure

WITHIN_ROUNDING, WITHIN_INTERVAL, DIFFERENT = "within rounding", "within the interval", "different"
_AVERAGE = "average"
_HUB = "hf:"
_KIND_NOTES = {
    "reasoning": (
        "Where a trace of reasoning does not end, the authors searched with all of it;"
        " r2med counts the query as incomplete and searches with the question."
    ),
    "agent": "The authors published no code of their search agents: generating anew is r2med's reading of the papers.",
}


@dataclass(frozen=True)
class Reproduction:
    """A published system as r2med runs it."""

    system: str
    """The spec."""
    rows: tuple[PublishedSystem, ...]
    """Every published row that it is compared with."""

    @property
    def notes(self) -> list[str]:
        """Return what to know before the figures are compared."""
        found = [note for row in self.rows for note in (row.note, _KIND_NOTES.get(row.kind, ""))]
        told = [*found, *_card_notes(self.system), *_asking_notes(self.system)]
        every = list(dict.fromkeys(note for note in told if note))
        return [note for note in every if not any(note in other for other in every if other != note)]


def _card_notes(spec: str) -> list[str]:
    """Return the remarks of the encoders' cards on how the published figures were made otherwise."""
    names = [stage.spec.name for stage in System.parse(spec).walk()]
    told = {name: cards()[name].published for name in names if name in cards()}
    return [f"{name}, as published: {text}" for name, text in told.items() if text]


_OWN_WORDS = "{name}: r2med asks for the published form of an answer in its own words, not with the authors' prompt."
_FUSED = "groupwise: the published weight of the first stage's scores is not known; fuse={fuse:g} is r2med's choice."


def _asking_notes(spec: str) -> list[str]:
    """Return how a reranker that asks a language model may differ from the published one."""
    notes = []
    for stage in System.parse(spec).stages:
        if isinstance(stage, ModelReranker):
            notes.append(_OWN_WORDS.format(name=stage.name))
        if isinstance(stage, Groupwise) and stage.fuse:
            notes.append(_FUSED.format(fuse=stage.fuse))
    return notes


def reproductions(names: Sequence[str], *, generate: bool = False) -> list[Reproduction]:
    """Return what to run for published names or tables; rows of the same system are compared with one run.

    >>> [made] = reproductions(["hyde/gpt4/bm25"])
    >>> made.system, [row.source.name for row in made.rows]
    ('replay(hub, method=hyde, llm=gpt4) >> bm25', ['paper', 'page'])
    >>> reproductions(["hyde/gpt4/bm25"], generate=True)[0].system
    'hyde(gpt-4o) >> bm25'
    """
    systems: dict[str, list[PublishedSystem]] = {}
    for name in names:
        for row in find_published(name):
            spec = (row.generate if generate else "") or row.system
            if not spec and not name.casefold().startswith(TABLE):
                raise R2medError(f"{row.name} cannot be said in r2med's terms ({row.note or 'no card for its model'})")
            if generate and not row.generate and not name.casefold().startswith(TABLE):
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
    asked = [_requirements(stage) for stage in System.parse(spec).walk()]
    extras = [name for each in asked for name in each.extra.split(",") if name]
    found = {
        "extras": list(dict.fromkeys(extras)),
        "keys": list(dict.fromkeys(each.key for each in asked if each.key)),
        "hub": list(dict.fromkeys(repository for each in asked for repository in each.hub)),
        "gpu": any(each.gpu for each in asked),
    }
    return {name: value for name, value in found.items() if value}


def _requirements(stage: Stage) -> Requirements:
    """Return what a stage needs; for a model without a card this much is known without asking the hub for its files."""
    name = stage.spec.name
    return Requirements("torch", hub=(name.removeprefix(_HUB),)) if name.startswith(_HUB) else stage.requirements


def check_needs(spec: str) -> None:
    """Refuse what cannot run here before any data is read: a key that is not set, an extra that is not installed."""
    wanted = needs(spec)
    for key in wanted.get("keys", ()):
        if not os.environ.get(key):
            raise R2medError(f"{spec} needs an API key: set {key}, or see --dry-run for all that it needs")
    for extra in wanted.get("extras", ()):
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
    task: str
    """The task, or `average`."""
    published: float | None
    """None where nothing was published that could be compared."""
    measured: float
    low: float
    high: float
    """The 95% interval of what was measured."""
    verdict: str

    @property
    def difference(self) -> float | None:
        """Return measured less published."""
        return None if self.published is None else self.measured - self.published

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {**asdict(self), "difference": self.difference}


def compare(made: Reproduction, report: Report, measure: str) -> list[Compared]:
    """Compare every figure measured for a system with each source's; tasks of other groups have no counterpart."""
    return [found for row in made.rows for found in _against(made.system, row, report, measure)]


def _against(system: str, row: PublishedSystem, report: Report, measure: str) -> list[Compared]:
    figures = row.figures.get(measure, PublishedFigures({}))
    rows = []
    for group in report.groups:
        ranges = report.intervals(group, measure).get(system, {})
        comparable = figures if group == row.source.group else PublishedFigures({})
        measured = {
            task: result.metrics[measure] for task in report.tasks(group) if (result := report.result(system, task))
        }
        if len(measured) > 1:
            whole = report.average(system, group, measure)
            measured |= {"": whole} if whole is not None else {}
        for task, value in measured.items():
            stated = comparable.tasks.get(task) if task else _average(comparable, measured)
            interval = ranges.get(task) or _alone(report, system, task, measure)
            rows.append(_compared(system, row, task, (stated, value), interval))
    return rows


def _average(figures: PublishedFigures, measured: Mapping[str, float]) -> float | None:
    """Return the published average over the tasks that were measured; None unless all of them were published."""
    tasks = [task for task in measured if task]
    if any(task not in figures.tasks for task in tasks):
        return None
    if figures.average is not None and len(tasks) == len(figures.tasks):
        return figures.average
    return sum(figures.tasks[task] for task in tasks) / len(tasks)


def _alone(report: Report, system: str, task: str, measure: str) -> Figure:
    """Return the interval on one task of a system that lacks another."""
    result = report.result(system, task)
    if result is None:
        raise KeyError(f"{system} has no result on {task}")
    return task_intervals(result.scores[measure])[0]


def _compared(
    system: str, row: PublishedSystem, task: str, figures: tuple[float | None, float], interval: Figure
) -> Compared:
    published, measured = figures
    if published is None:
        said = f"not published by {row.source.name}"
    else:
        said = verdict(published, measured, row.source.rounding, interval)
    return Compared(system, row.name, row.source.name, task or _AVERAGE, published, measured, *interval.ends, said)
