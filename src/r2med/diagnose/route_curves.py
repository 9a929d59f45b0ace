"""What routing between two systems would give, from runs that are kept: nothing is asked and nothing is searched.

For every share of the queries a curve has the score when the dear system answers the share that a signal calls hardest
and the cheap one all others. What a signal is worth is how far its curve lies above the straight line that a random
choice of queries follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.diagnose.frontier import Bill
from r2med.diagnose.loaded_runs import LoadedRun, load_runs
from r2med.measure.bootstrap import Interval
from r2med.measure.metrics import Measure
from r2med.measure.significance import Difference, difference, difference_interval, holm
from r2med.pipeline.engine import quiet
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.retrieve.query_signals import shared
from r2med.retrieve.routing import hardest, signal_of
from r2med.runs.ledger import Ledger
from r2med.storage.cache import Cache

Floats = NDArray[np.float64]

SHARES = tuple(round(0.05 * step, 2) for step in range(21))
"""The shares of the queries at which a curve is drawn."""
SIGNALS = ("score-gap", "top-score", "nqc", "wig", "clarity", "query-length")
"""The signals that a kept list and the text of the query tell."""
UNBILLED = Bill(None, None, None)
"""Where nobody looks at what a system costs."""
_AGREES = 10
"""How many of the best documents lists agree on."""


@dataclass(frozen=True, eq=False)
class RoutedTask:
    """Two systems on the queries of one task, and what signals say of each."""

    task: str
    queries: tuple[str, ...]
    cheap: Floats
    """The measure of each query by the cheap system."""
    dear: Floats
    signals: Mapping[str, Floats]
    """By their specs; a larger number is harder, whatever the signal's own scale."""

    def weights(self, signal: str, share: float) -> Floats:
        """1 for the queries that are sent on at a share, 0 for all others."""
        sent = np.zeros(len(self.queries))
        sent[hardest(self.signals[signal], self.queries, share, "high")] = 1.0
        return sent

    def routed(self, signal: str, share: float) -> Floats:
        """The measure of each query when the hardest share of them goes to the dear system."""
        return np.where(self.weights(signal, share) > 0, self.dear, self.cheap)

    def random(self, signal: str, share: float) -> float:
        """Return the mean when as many queries as the signal sends on at a share are chosen at random."""
        sent = self.weights(signal, share).mean()
        return float(self.cheap.mean() + sent * (self.dear - self.cheap).mean())

    def advantage(self, signal: str) -> Floats:
        """What the signal adds to a random choice by each query, on average over all shares."""
        sent = np.mean([self.weights(signal, share) for share in SHARES], axis=0)
        shares = np.mean([self.weights(signal, share).mean() for share in SHARES])
        added: Floats = (sent - shares) * (self.dear - self.cheap)
        return added


@dataclass(frozen=True)
class CurvePoint:
    """A route at one share."""

    share: float
    """The share that a route's spec states; of few queries only some shares can be sent on."""
    sent: float
    """The share of all queries that is really sent on."""
    score: float
    random: float
    """The score when as many queries are chosen at random."""
    difference: Interval
    """To the dear system alone, paired by query."""

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {**vars(self), "difference": self.difference._asdict()}


@dataclass(frozen=True)
class Curve:
    """A signal between two systems."""

    cheap: str
    dear: str
    signal: str
    points: tuple[CurvePoint, ...]
    advantage: Difference
    """Over a random choice of queries, on average over all shares; 0 for a signal that tells nothing."""
    corrected: float
    """Its p-value after Holm, over all signals of this pair."""
    bills: tuple[Bill, Bill]
    """What a query costs with the cheap and with the dear system."""

    def at(self, within: float) -> CurvePoint:
        """The smallest share whose score is no further below the dear system's than this."""
        best = self.points[-1].score
        return next(point for point in self.points if point.score >= best - within)

    def spec(self, point: CurvePoint) -> str:
        """The system of a point."""
        return f"route({self.cheap}, {self.dear}, by={self.signal}, share={point.share:g})"

    def cost(self, point: CurvePoint, by: str) -> float | None:
        """What a query costs on average: the cheap system always, the dear one for the queries that are sent on."""
        cheap, dear = (getattr(bill, by) for bill in self.bills)
        return None if cheap is None or dear is None else cheap + point.sent * dear

    def saving(self, point: CurvePoint, by: str) -> float | None:
        """The part of the dear system's cost that is saved; None where the cost is unknown or nothing."""
        cost, dear = self.cost(point, by), getattr(self.bills[1], by)
        return None if cost is None or not dear else 1 - cost / dear

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {
            "cheap": self.cheap,
            "dear": self.dear,
            "signal": self.signal,
            "advantage": self.advantage.as_dict(),
            "p_holm": self.corrected,
            "points": [point.as_dict() for point in self.points],
            "bills": [asdict(bill) for bill in self.bills],
        }


@dataclass(frozen=True, eq=False)
class RoutePair:
    """Two systems on all their tasks."""

    cheap: str
    dear: str
    tasks: tuple[RoutedTask, ...]
    bills: tuple[Bill, Bill]

    @cached_property
    def curves(self) -> list[Curve]:
        """One for every signal, the most telling first."""
        signals = list(self.tasks[0].signals)
        advantages = [difference([task.advantage(signal) for task in self.tasks]) for signal in signals]
        corrected = holm([each.randomisation for each in advantages])
        found = [
            Curve(self.cheap, self.dear, signal, self._points(signal), advantage, p, self.bills)
            for signal, advantage, p in zip(signals, advantages, corrected, strict=True)
        ]
        return sorted(found, key=lambda curve: -curve.advantage.mean)

    def _points(self, signal: str) -> tuple[CurvePoint, ...]:
        points = []
        for share in SHARES:
            routed = [task.routed(signal, share) for task in self.tasks]
            score = float(np.mean([values.mean() for values in routed]))
            random = float(np.mean([task.random(signal, share) for task in self.tasks]))
            sent = float(np.concatenate([task.weights(signal, share) for task in self.tasks]).mean())
            gaps = [values - task.dear for values, task in zip(routed, self.tasks, strict=True)]
            points.append(CurvePoint(share, sent, score, random, difference_interval(gaps)))
        return tuple(points)


def read_pair(
    ledger: Ledger,
    names: Sequence[str],
    tasks: Sequence[str],
    measure: Measure,
    bills: tuple[Bill, Bill] = (UNBILLED, UNBILLED),
) -> RoutePair:
    """The cheap and the dear system of two names, with every signal that kept lists tell.

    Further names are systems that the cheap one may agree with or not.
    """
    loaded = list(load_runs(ledger, names, tasks, measure))
    cheap, dear = (run.system for run in loaded[0][:2])
    return RoutePair(cheap, dear, tuple(_task(*runs) for runs in loaded), bills)


def _task(cheap: LoadedRun, dear: LoadedRun, *others: LoadedRun) -> RoutedTask:
    queries = tuple(cheap.values)
    by_agreement = {f"agreement({other.system})": _disagreement(cheap, other) for other in others}
    return RoutedTask(
        cheap.dataset.name,
        queries,
        np.array([cheap.values[query] for query in queries]),
        np.array([dear.values[query] for query in queries]),
        {name: _hardness(name, cheap) for name in SIGNALS} | by_agreement,
    )


def _hardness(name: str, cheap: LoadedRun) -> Floats:
    """How hard queries are by a signal of the cheap system's lists."""
    signal = signal_of(build_system(name), "frontier")
    queries = list(cheap.values)
    collection = cheap.dataset.collection.select(queries)
    values = signal.values(collection, cheap.run.select(queries), Context(Cache.default(), quiet()))
    return values if signal.harder == "high" else -values


def _disagreement(one: LoadedRun, other: LoadedRun) -> Floats:
    """How hard queries are by how little two kept lists have in common."""
    return np.array([-shared(one.run[query], other.run[query], _AGREES) for query in one.values])
