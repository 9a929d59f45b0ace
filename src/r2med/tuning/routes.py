"""Routes between two systems, simulated from kept runs: nothing is asked and nothing is searched.

For every share of the queries a curve has the score if the strong system answers the share that a signal calls
hardest and the cheap one all others. The value of a signal is how far its curve lies above the straight line that a
random choice of queries follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import R2medError
from r2med.formatting import p_words
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.metrics import Measure
from r2med.measure.significance import ALPHA, Difference, difference, difference_interval, holm
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.loaded_runs import LoadedRun, load_runs
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.retrieve.routing import hardest, signal_of
from r2med.retrieve.signals import shared
from r2med.runs.ledger import Ledger, RecordedName
from r2med.store.cache import Cache
from r2med.tuning.frontier import COSTS, Bill, Priced, frontier, left_out, price

Floats = NDArray[np.float64]
SHARES = tuple(round(0.05 * step, 2) for step in range(21))  # the shares of the queries at which a curve is drawn
SIGNALS = ("score-gap", "top-score", "nqc", "wig", "clarity", "query-length")
"""The signals that a kept list and the text of the query tell."""
UNBILLED = Bill(None, None, None)  # bill of a system whose cost is not needed
_AGREES = 10  # how many of the best documents lists agree on


@dataclass(frozen=True, eq=False)
class RoutedTask:
    """Two systems on the queries of one task, and what signals say of each."""

    task: str
    queries: tuple[str, ...]
    cheap: Floats  # the measure of each query by the cheap system
    strong: Floats
    signals: Mapping[str, Floats]  # by their specs; a larger number is harder, whatever the signal's own scale

    def weights(self, signal: str, share: float) -> Floats:
        """Return 1 for the queries that are sent on at a share, 0 for all others."""
        sent = np.zeros(len(self.queries))
        sent[hardest(self.signals[signal], self.queries, share, "high")] = 1.0
        return sent

    def advantage(self, signal: str) -> Floats:
        """Return what the signal adds to a random choice by each query, on average over all shares."""
        sent = np.mean([self.weights(signal, share) for share in SHARES], axis=0)
        shares = np.mean([self.weights(signal, share).mean() for share in SHARES])
        added: Floats = (sent - shares) * (self.strong - self.cheap)
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
    difference: Figure
    """To the strong system alone, paired by query."""

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {**vars(self), "difference": figure_dict(self.difference, "mean")}


@dataclass(frozen=True)
class Curve:
    """A signal between two systems."""

    cheap: str
    strong: str
    signal: str
    points: tuple[CurvePoint, ...]
    advantage: Difference
    """Over a random choice of queries, on average over all shares; 0 for a signal that tells nothing."""
    corrected: float  # its p-value after Holm, over all signals of this pair
    bills: tuple[Bill, Bill]  # what a query costs with the cheap and with the strong system

    def at(self, within: float) -> CurvePoint:
        """Return the smallest share whose score is no further below the strong system's than this."""
        best = self.points[-1].score
        return next(point for point in self.points if point.score >= best - within)

    def spec(self, point: CurvePoint) -> str:
        """Return the system of a point."""
        return f"route({self.cheap}, {self.strong}, by={self.signal}, share={point.share:g})"

    def cost(self, point: CurvePoint, by: str) -> float | None:
        """Return the average cost of a query: the cheap system for all, the strong one for those sent on."""
        cheap, strong = (getattr(bill, by) for bill in self.bills)
        return None if cheap is None or strong is None else cheap + point.sent * strong

    def saving(self, point: CurvePoint, by: str) -> float | None:
        """Return the part of the strong system's cost that is saved; None if the cost is unknown or nothing."""
        cost, strong = self.cost(point, by), getattr(self.bills[1], by)
        return None if cost is None or not strong else 1 - cost / strong

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            **{name: getattr(self, name) for name in ("cheap", "strong", "signal")},
            "advantage": self.advantage.as_dict(),
            "p_holm": self.corrected,
            "points": [point.as_dict() for point in self.points],
            "bills": [asdict(bill) for bill in self.bills],
        }


@dataclass(frozen=True, eq=False)
class RoutePair:
    """Two systems on all their tasks."""

    cheap: str
    strong: str
    tasks: tuple[RoutedTask, ...]
    bills: tuple[Bill, Bill]

    @cached_property
    def curves(self) -> list[Curve]:
        """Return one curve for every signal, the best first."""
        signals = list(self.tasks[0].signals)
        advantages = [difference([task.advantage(signal) for task in self.tasks]) for signal in signals]
        corrected = holm([advantage.randomisation for advantage in advantages])
        curves = [
            Curve(self.cheap, self.strong, signal, self._points(signal), advantage, p, self.bills)
            for signal, advantage, p in zip(signals, advantages, corrected, strict=True)
        ]
        return sorted(curves, key=lambda curve: -curve.advantage.mean)

    def _points(self, signal: str) -> tuple[CurvePoint, ...]:
        points = []
        for share in SHARES:
            rows = [(task, task.weights(signal, share)) for task in self.tasks]
            sent = float(np.concatenate([weights for _, weights in rows]).mean())
            routed = [np.where(weights > 0, task.strong, task.cheap) for task, weights in rows]
            score = float(np.mean([values.mean() for values in routed]))
            chance = [task.cheap.mean() + weights.mean() * (task.strong - task.cheap).mean() for task, weights in rows]
            gaps = [values - task.strong for values, task in zip(routed, self.tasks, strict=True)]
            points.append(CurvePoint(share, sent, score, float(np.mean(chance)), difference_interval(gaps)))
        return tuple(points)


def read_pair(
    ledger: Ledger,
    names: Sequence[str],
    tasks: Sequence[str],
    measure: Measure,
    bills: tuple[Bill, Bill] = (UNBILLED, UNBILLED),
) -> RoutePair:
    """Read the cheap and the strong system of two names, with every signal that kept lists give.

    Further names are systems that the cheap one may agree with or not.
    """
    loaded = list(load_runs(ledger, names, tasks, measure))
    cheap, strong = (run.system for run in loaded[0][:2])
    return RoutePair(cheap, strong, tuple(_task(*runs) for runs in loaded), bills)


def _task(cheap: LoadedRun, strong: LoadedRun, *others: LoadedRun) -> RoutedTask:
    queries = list(cheap.values)
    collection, run = cheap.dataset.collection.select(queries), cheap.run.select(queries)
    hardness: dict[str, Floats] = {}
    for name in SIGNALS:
        signal = signal_of(build_system(name), "frontier")
        values = signal.values(collection, run, Context(Cache.default(), quiet()))
        hardness[name] = values if signal.harder == "high" else -values
    for other in others:
        agreed = [shared(cheap.run[query], other.run[query], _AGREES) for query in queries]
        hardness[f"agreement({other.system})"] = -np.array(agreed)
    cheap_values, strong_values = (np.array([run.values[query] for query in queries]) for run in (cheap, strong))
    return RoutedTask(cheap.dataset.name, tuple(queries), cheap_values, strong_values, hardness)


PAIRED = 4  # between how many of the systems routes are looked for when none is named: the frontier's, the best first
_UNITS = {"money": "dollars", "tokens": "tokens", "seconds": "seconds"}


@dataclass(frozen=True)
class Saving:
    """Prices of systems, and the routes between pairs of them."""

    measure: str
    by: str  # what costs are counted in: money, tokens or seconds
    within: float  # how much of the score may be given up
    systems: tuple[Priced, ...]  # the best first
    pairs: tuple[RoutePair, ...]

    @property
    def worth(self) -> list[Priced]:
        """Return the systems that no other beats at the same cost or less, cheapest first."""
        return frontier(self.systems, self.by)

    @property
    def sentences(self) -> list[str]:
        """Return the conclusions in words."""
        lines, points = [], f"{100 * self.within:g} points"
        best = max((system for system in self.systems if not system.oracle), key=lambda system: system.score)
        near = next((system for system in self.worth if system.score >= best.score - self.within), None)
        if near is not None:
            if near.system == best.system:
                lines.append(f"{near.system} is the best, and nothing cheaper is within {points} of it.")
            else:
                gap = f"{100 * (best.score - near.score):.2f} below {best.system}"
                lines.append(f"{near.system} is the cheapest within {points} of the best: {gap}.")
        lines += [sentence for pair in self.pairs for sentence in self.pair_sentences(pair)]
        if self.pairs:
            lines.append("Shares and signals were chosen on these very queries: `r2med tune` measures them on others.")
        if missing := left_out(self.systems, self.by):
            lines.append(missing)
        return lines

    def pair_sentences(self, pair: RoutePair) -> list[str]:
        """Describe what routing between two systems would give."""
        best = pair.curves[0]
        telling = [curve for curve in pair.curves if curve.corrected < ALPHA and curve.advantage.mean > 0]
        if not telling:
            gain = f"{100 * best.advantage.mean:.2f} points on average; {p_words(best.corrected)} after Holm"
            return [
                f"{pair.cheap} to {pair.strong}: no signal is shown to beat a random choice of queries"
                f" (the best, {best.signal}, by {gain})."
            ]
        curve = telling[0]
        point = curve.at(self.within)
        mean, low, high = point.difference.percents
        if mean > 0:
            change = f"{mean:.2f} points more (interval {low:+.2f} to {high:+.2f})"
        else:
            ends = f"{abs(high) if not high else -high:.2f} to {abs(low):.2f}"
            change = f"{abs(mean):.2f} points less (interval {ends})"
        return [
            f"{self.fewer(curve, point)} for {change}: {curve.spec(point)}.",
            f"{curve.signal} beats a random choice of queries by {100 * curve.advantage.mean:.2f} points on average"
            f" over all shares ({p_words(curve.corrected, at_floor=curve.advantage.at_floor)} after Holm over"
            f" {len(pair.curves)} signals).",
        ]

    def fewer(self, curve: Curve, point: CurvePoint) -> str:
        """Describe what a route saves of the strong system's cost; if unknown, the share of queries it is spared."""
        saved = curve.saving(point, self.by)
        if saved is None:
            return f"{1 - point.sent:.0%} fewer queries to {curve.strong}"
        return f"{saved:.0%} fewer {_UNITS[self.by]}" if saved >= 0 else f"{-saved:.0%} more {_UNITS[self.by]}"

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        worth = {system.system for system in self.worth}
        return {
            **{name: getattr(self, name) for name in ("measure", "by", "within")},
            "systems": [{**system.as_dict(), "frontier": system.system in worth} for system in self.systems],
            "routes": [curve.as_dict() for pair in self.pairs for curve in pair.curves],
            "sentences": self.sentences,
        }


def savings(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[str], measure: Measure, by: str, within: float
) -> Saving:
    """Price the systems and look at the routes between them, from kept runs alone."""
    if by not in COSTS:
        raise R2medError(f"costs are counted by {', '.join(COSTS)}, not {by!r}")
    systems = price(ledger, names, tasks, str(measure))
    real = [system for system in systems if not system.oracle]
    if not real:
        raise R2medError("all of these are oracles, which are not systems")
    if not names:  # the frontier and the best
        plain = [system for system in real if not system.routes]
        best = sorted(frontier(plain, by), key=lambda system: -system.score)
        real = list({system.system: system for system in (*best, *plain)}.values())[:PAIRED]

    def order(system: Priced) -> tuple[bool, float, float]:
        """Put the cheapest first; those of unknown cost last, and of equals the worse first."""
        cost = system.cost(by)
        return cost is None, cost or 0.0, system.score

    pairs = []
    for cheap, strong in combinations(sorted(real, key=order), 2):
        if strong.score > cheap.score:
            others = [system for system in real if system.system not in (cheap.system, strong.system)]
            # Their opinion is free of requests.
            free = [system.system for system in others if system.bill.tokens == 0 and cheap.bill.tokens is not None]
            compared = [RecordedName(name) for name in (cheap.system, strong.system, *free)]
            pairs.append(read_pair(ledger, compared, tasks, measure, (cheap.bill, strong.bill)))
    return Saving(str(measure), by, within, tuple(systems), tuple(pairs))
