"""How a figure moves with truncation: one system measured at several limits on the tokens that its models read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from r2med.data.tasks import Task
from r2med.errors import R2medError, SpecError
from r2med.formatting import p_words, percent, percent_range
from r2med.measure.metrics import DEFAULT, Measure
from r2med.measure.significance import ALPHA, Difference, describe_detectable, difference, holm
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.registry import build_system
from r2med.pipeline.system import System
from r2med.runs.ledger import Entry
from r2med.runs.record import RunRecord
from r2med.runs.report import Failure

LIMITS = ("max_length", "document_length")  # the options by which stages say how many tokens are read


@dataclass(frozen=True)
class LengthFigure:
    """A system at one limit."""

    max_length: int
    system: str  # the spec with this limit
    score: float  # the mean over tasks
    tasks: Mapping[str, float]
    documents_cut: float | None
    """The share of documents (of pairs, for a reranker alone) that are longer; None where no model said."""
    queries_cut: float | None
    difference: Difference | None = None
    """This limit less the longest one, paired by query; None for the longest itself."""
    by_task: Mapping[str, Difference] | None = None
    holm: float | None = None  # the p-value of the difference, corrected for the number of limits (Holm)

    @property
    def differs(self) -> bool:
        """Return whether a difference from the longest limit is shown, at the 5% level after Holm."""
        return self.holm is not None and self.holm < ALPHA

    def as_dict(self) -> dict[str, Any]:
        """Return the figure for JSON."""
        return {
            "max_length": self.max_length,
            "system": self.system,
            "score": self.score,
            "tasks": dict(self.tasks),
            "documents_cut": self.documents_cut,
            "queries_cut": self.queries_cut,
            "difference": None if self.difference is None else self.difference.as_dict() | {"holm": self.holm},
            "differences": {task: change.as_dict() for task, change in (self.by_task or {}).items()},
        }


@dataclass(frozen=True)
class Sensitivity:
    """A system at several limits, the shortest first; each is compared with the longest."""

    system: str
    measure: str
    figures: Sequence[LengthFigure]
    failures: Sequence[Failure] = ()  # limits at which the system could not be measured on some task, and why

    @property
    def longest(self) -> LengthFigure:
        """Return the figure that all others are compared with."""
        return self.figures[-1]

    @property
    def sentences(self) -> list[str]:
        """Return what may be concluded, a sentence each."""
        return [_sentence(figure, self.longest) for figure in self.figures if figure.difference is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return the study for JSON."""
        return {
            "system": self.system,
            "measure": self.measure,
            "longest": self.longest.max_length,
            "lengths": [figure.as_dict() for figure in self.figures],
            "sentences": self.sentences,
            "failures": [failure.as_dict() for failure in self.failures],
        }


def _sentence(figure: LengthFigure, longest: LengthFigure) -> str:
    change = figure.difference
    if change is None or figure.holm is None:
        return ""
    limits = f"{figure.max_length:,} tokens instead of {longest.max_length:,}"
    p = p_words(figure.holm, at_floor=change.at_floor)
    if figure.differs:
        return f"{limits}: {percent(change.mean, sign='+')} points ({percent_range(change, sign='+')}, {p})."
    if change.wins == change.losses == 0:
        return f"{limits}: no query changes."
    return f"{limits}: no difference is shown ({p}){describe_detectable(change)}."


def at_length(system: System, limit: int) -> System:
    """Return a system whose models read at most so many tokens, those inside other stages too.

    >>> str(at_length(build_system("rrf(bm25, wordllama)"), 64))
    'rrf(bm25, wordllama(max_length=64))'
    """
    names = [name for name in LIMITS if any(hasattr(stage, name) for stage in system.walk())]
    if not names:
        raise R2medError(f"{system}: no stage has a limit on tokens; encoders and cross-encoders do")
    for name in names:
        system = system.with_option(name, limit)
    return system


def measure_sensitivity(
    spec: str, lengths: Sequence[int], tasks: Sequence[Task], measure: Measure, options: Options | None = None
) -> Sensitivity:
    """Measure a system at every limit, and compare each with the longest, paired by query.

    What the ledger has is taken from there. A limit at which the system fails on a task is left out and said.
    """
    limits = sorted(set(lengths))
    if len(limits) < 2 or limits[0] < 1:
        raise SpecError("at least two different lengths of 1 token or more are needed, such as 512,2048")
    groups = {task.group for task in tasks}
    if len(groups) > 1:
        raise R2medError(f"tasks of one group have an average in common, these are of {', '.join(sorted(groups))}")
    system = build_system(spec)
    systems = {limit: at_length(system, limit) for limit in limits}
    options = options or Options(measures=tuple(dict.fromkeys([measure, *DEFAULT])))
    report = evaluate(list(systems.values()), list(tasks), options).whole()
    results = {limit: [run for run in report.results if run.system == one.spec] for limit, one in systems.items()}
    complete = {limit: several for limit, several in results.items() if len(several) == len(tasks)}
    if len(complete) < 2:
        reason = report.failures[0].message if report.failures else "nothing could be measured"
        raise R2medError(f"{spec}: fewer than two of these lengths could be measured on all tasks: {reason}")
    return Sensitivity(system.spec, str(measure), _figures(complete, str(measure)), report.failures)


def _figures(complete: Mapping[int, Sequence[Entry]], measure: str) -> list[LengthFigure]:
    longest = list(complete)[-1]
    pairs = {
        limit: {
            result.task: result.scores[measure] - other.scores[measure]
            for result, other in zip(several, complete[longest], strict=True)
        }
        for limit, several in complete.items()
        if limit != longest
    }
    overall = {limit: difference(list(values.values())) for limit, values in pairs.items()}
    corrected = dict(zip(overall, holm([change.randomisation for change in overall.values()]), strict=True))
    return [
        LengthFigure(
            max_length=limit,
            system=several[0].system,
            score=float(np.mean([result.metrics[measure] for result in several])),
            tasks={result.task: result.metrics[measure] for result in several},
            documents_cut=_cut(several, "documents"),
            queries_cut=_cut(several, "queries"),
            difference=overall.get(limit),
            by_task={task: difference([values]) for task, values in pairs[limit].items()} if limit in pairs else None,
            holm=corrected.get(limit),
        )
        for limit, several in complete.items()
    ]


def _cut(runs: Sequence[Entry], what: str) -> float | None:
    """Average over tasks the share of texts that were cut; None unless every run recorded it."""
    shares = [share_cut(run.record, what) for run in runs]
    stated = [share for share in shares if share is not None]
    return float(np.mean(stated)) if len(stated) == len(shares) else None


def share_cut(record: RunRecord, what: str) -> float | None:
    """Return the share of a run's documents or queries that a model cut; the largest of several models.

    >>> facts = {"max_tokens": 512, "truncated_share": 0.25}
    >>> share_cut(RunRecord(notes={"rrf": {"minilm": {"documents": facts}}}), "documents")
    0.25
    """
    return max(_shares(record.notes, what), default=None)


def _shares(notes: Any, what: str) -> Iterator[float]:
    if not isinstance(notes, Mapping):
        return
    facts: Any = notes.get(what)
    # A model that has not told its limit has not told how much it cuts either.
    if isinstance(facts, Mapping) and facts.get("max_tokens") and "truncated_share" in facts:
        yield float(facts["truncated_share"])
    if what == "documents" and isinstance(notes.get("truncated_share"), float):
        yield notes["truncated_share"]
    for name, value in notes.items():
        if name not in ("documents", "queries", "passages"):
            yield from _shares(value, what)
