"""Scores of a run against judgements, query by query, and tertiles of per-query values.

Averages are over every query that has at least one relevant document in the judgements: one that is missing from the
run scores 0 (trec_eval's `-c`). A query without one is not averaged; trec_eval would average it as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from r2med.data.run import Run
from r2med.errors import DataError, R2medError
from r2med.formatting import counted
from r2med.measure.metrics import DEFAULT, AspectGains, Floats, Gains, Measure

if TYPE_CHECKING:
    from r2med.data.dataset import Aspect, Aspects, Qrels


@dataclass(frozen=True, eq=False)
class QueryScores:
    """Per-query values of measures, as columns aligned with `queries`."""

    queries: tuple[str, ...]  # every query with a relevant document, in the order of the judgements
    columns: Mapping[Measure, Floats]  # one value per query, by measure

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Return the measures, in the order they were asked for."""
        return tuple(self.columns)

    def values(self, measure: Measure) -> Floats:
        """Return one value per query, aligned with `queries`."""
        return self.columns[measure]

    def mean(self, measure: Measure) -> float:
        """Return the mean over all queries."""
        return float(self.columns[measure].mean())

    def as_dict(self) -> dict[str, float]:
        """Return the means by the measures' names, as results and JSON have them."""
        return {str(measure): self.mean(measure) for measure in self.columns}

    def per_query(self) -> dict[str, dict[str, float]]:
        """Return each measure's value by query id."""
        rows = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        names = [str(measure) for measure in self.columns]
        return {query: dict(zip(names, row, strict=True)) for query, row in zip(self.queries, rows, strict=True)}


def score(run: Run, qrels: Qrels, measures: Iterable[Measure] = DEFAULT, aspects: Aspects | None = None) -> QueryScores:
    """Measure a run; measures of aspects need those of every query with a relevant document.

    >>> run = Run.from_lists({"q1": (["d1", "d2"], [0.4, 0.9]), "q2": (["d1"], [1.0])})
    >>> scores = score(run, {"q1": {"d1": 1}, "q2": {"d1": 2, "d7": 1}, "q3": {"d3": 1}}, [Measure("MRR", 10)])
    >>> scores.queries, scores.values(Measure("MRR", 10)).tolist(), scores.as_dict()
    (('q1', 'q2', 'q3'), [0.5, 1.0, 0.0], {'MRR@10': 0.5})
    """
    distinct = tuple(dict.fromkeys(measures))
    if not distinct:
        raise R2medError("no measure to score by")
    if not (positives := positive(qrels)):
        raise R2medError("no query has a relevant document in the judgements, so there is nothing to average")
    check_aspects(distinct, positives, aspects or {})
    cutoffs = [measure.cutoff for measure in distinct]
    depth = None if None in cutoffs else max(cutoff for cutoff in cutoffs if cutoff)
    places: list[tuple[int, int, int]] = []
    longest = 0
    for row, (query, grades) in enumerate(positives.items()):
        if query in run:
            documents = run[query].documents[:depth]
            longest = max(longest, len(documents))
            places += [(row, rank, grades[d]) for rank, d in enumerate(documents) if d in grades]
    gained = np.zeros((len(positives), longest))
    if places:
        rows, ranks, values = zip(*places, strict=True)
        gained[list(rows), list(ranks)] = values
    relevant: NDArray[np.int64] = np.array([len(grades) for grades in positives.values()], dtype=np.int64)
    ideal = np.zeros((len(positives), int(relevant.max())))
    for row, grades in enumerate(positives.values()):
        ideal[row, : len(grades)] = sorted(grades.values(), reverse=True)
    rows_of_aspects: Sequence[AspectGains] = ()
    if aspects and any(measure.of_aspects for measure in distinct):
        tops = (run[query].documents[:depth] if query in run else () for query in positives)
        rows_of_aspects = [_aspect_gains(aspects[query], top) for query, top in zip(positives, tops, strict=True)]
    gains = Gains(gained, ideal, relevant, rows_of_aspects)
    return QueryScores(tuple(positives), {measure: measure.values(gains) for measure in distinct})


def check_aspects(measures: Iterable[Measure], queries: Collection[str], aspects: Aspects) -> None:
    """Refuse measures of aspects where a query has none."""
    lacking = [query for query in queries if query not in aspects]
    for measure in measures:
        if measure.of_aspects and lacking:
            which = f"{counted(len(lacking), 'query has', 'queries have')} none, the first {lacking[0]!r}"
            which = which if aspects else "these have none"
            raise DataError(f"{measure} needs judgements with a column aspect, and {which}; choose another measure")


def _aspect_gains(aspects: Mapping[str, Aspect], documents: Sequence[str]) -> AspectGains:
    covered = [aspect.documents for aspect in aspects.values()]
    pool = sorted(frozenset().union(*covered), reverse=True)  # of equal ones ndeval takes the last id first
    ranked, ideal = (
        np.array([[document in of_aspect for of_aspect in covered] for document in rows], dtype=bool)
        for rows in (documents, pool)
    )
    weights = np.array([aspect.weight for aspect in aspects.values()])
    return AspectGains(ranked.reshape(len(documents), len(covered)), ideal, weights)


def positive(qrels: Qrels) -> dict[str, dict[str, int]]:
    """Return the relevant documents of each query that has any, with their grades.

    >>> positive({"q1": {"d1": 2, "d2": 0, "d3": -1}, "q2": {"d1": 0}})
    {'q1': {'d1': 2}}
    """
    kept = {query: {document: g for document, g in judged.items() if g > 0} for query, judged in qrels.items()}
    return {query: judged for query, judged in kept.items() if judged}


Tertile = tuple[int, str]  # number and label of a tertile


def tertiles(values: Sequence[float], unit: str) -> Callable[[float], Tertile]:
    """Return a function that maps a value to its tertile and its label.

    >>> name = tertiles([1, 2, 3, 4, 5, 6], "{:.0f} words")
    >>> name(1), name(3), name(9)
    ((0, 'up to 2 words'), (1, 'over 2 words, up to 4 words'), (2, 'over 4 words'))
    """
    low, high = np.quantile(values, [1 / 3, 2 / 3], method="inverted_cdf").tolist()

    def name(value: float) -> Tertile:
        if value <= low:
            return 0, f"up to {unit.format(low)}"
        if value <= high:
            return 1, f"over {unit.format(low)}, up to {unit.format(high)}"
        return 2, f"over {unit.format(high)}"

    return name
