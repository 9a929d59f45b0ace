"""What two sets of scores of the same systems have in common: their order, and how far one lies from the other.

Both sides are compared over the queries that both have, so that a shift is due to the documents alone. Intervals come
from drawing these queries with replacement, the same draws for every system and for both sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from r2med.measure.bootstrap import SEED
from r2med.measure.correlation import Floats, flipped, interval, kendall, spearman

Interval = tuple[float, float] | None
_ROUNDS = 2000


@dataclass(frozen=True)
class PairedScores:
    """Per-query scores of the same systems on a nano task and on its source: a row a system, a column a query.

    Columns are the queries of either; where a set lacks a query its value is not a number.
    """

    task: str
    systems: Sequence[str]
    nano: Floats
    full: Floats

    @property
    def shared(self) -> tuple[Floats, Floats]:
        """The scores on both sides of the queries that both have."""
        there = ~(np.isnan(self.nano[0]) | np.isnan(self.full[0]))
        return self.nano[:, there], self.full[:, there]

    def means(self) -> tuple[Floats, Floats, Floats]:
        """Each system's mean on the nano task and on its source over the shared queries, and over all of the source."""
        nano, full = self.shared
        return nano.mean(axis=1), full.mean(axis=1), np.nanmean(self.full, axis=1)

    def draws(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """The first two means for drawn queries: a row a system, a column a draw."""
        nano, full = self.shared
        size = nano.shape[1]
        weights = generator.multinomial(size, np.full(size, 1 / size), size=_ROUNDS) / size
        return nano @ weights.T, full @ weights.T


@dataclass(frozen=True)
class Shift:
    """One system: its score on the nano set, on the source, and the difference."""

    system: str
    nano: float
    full: float
    """Over the queries that the nano set has too."""
    full_all: float
    """Over all queries of the source."""
    shift: float
    interval: Interval


@dataclass(frozen=True)
class Flip:
    """Two systems whose order the nano set turns round."""

    first: str
    second: str
    nano: float
    """By how much the first leads on the nano set."""
    nano_interval: Interval
    full: float
    """By how much it leads on the source."""
    full_interval: Interval

    @property
    def clear(self) -> bool:
        """Whether both differences are beyond what the choice of queries explains."""
        return all(found is not None and found[0] * found[1] > 0 for found in (self.nano_interval, self.full_interval))

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {**asdict(self), "clear": self.clear}


@dataclass(frozen=True)
class Agreement:
    """One task, or the average over tasks."""

    task: str
    measure: str
    queries: int
    """Those that both have, over which they are compared."""
    queries_nano: int
    queries_full: int
    shifts: Sequence[Shift]
    shift: float
    """The mean shift of all systems."""
    shift_interval: Interval
    spearman: float | None
    spearman_interval: Interval
    kendall: float | None
    kendall_interval: Interval
    pairs: int
    flips: Sequence[Flip]

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {**asdict(self), "flips": [flip.as_dict() for flip in self.flips]}


def agreement(scores: Sequence[PairedScores], name: str, measure: str) -> Agreement:
    """The agreement over some tasks: means over a task's queries, then over the tasks.

    >>> nano = np.array([[0.9, 0.8], [0.5, 0.6]])
    >>> found = agreement([PairedScores("t", ["a", "b"], nano, nano / 2)], "t", "nDCG@10")
    >>> found.kendall, round(found.shift, 2), found.flips
    (1.0, 0.35, [])
    """
    generator = np.random.default_rng(SEED)
    systems = scores[0].systems
    nano, full, whole = (np.mean(side, axis=0) for side in zip(*(each.means() for each in scores), strict=True))
    drawn = [each.draws(generator) for each in scores]
    many_nano, many_full = (np.mean(side, axis=0) for side in zip(*drawn, strict=True))
    shifts = [
        Shift(
            system,
            float(nano[row]),
            float(full[row]),
            float(whole[row]),
            float(nano[row] - full[row]),
            interval(many_nano[row] - many_full[row]),
        )
        for row, system in enumerate(systems)
    ]
    return Agreement(
        task=name,
        measure=measure,
        queries=sum(each.shared[0].shape[1] for each in scores),
        queries_nano=sum(int((~np.isnan(each.nano[0])).sum()) for each in scores),
        queries_full=sum(int((~np.isnan(each.full[0])).sum()) for each in scores),
        shifts=shifts,
        shift=float((nano - full).mean()),
        shift_interval=interval((many_nano - many_full).mean(axis=0)),
        spearman=_number(spearman(nano, full)),
        spearman_interval=interval(spearman(many_nano, many_full)),
        kendall=_number(kendall(nano, full)),
        kendall_interval=interval(kendall(many_nano, many_full)),
        pairs=len(systems) * (len(systems) - 1) // 2,
        flips=_flips(systems, {"nano": (nano, many_nano), "full": (full, many_full)}),
    )


def _number(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def _flips(systems: Sequence[str], sides: Mapping[str, tuple[Floats, Floats]]) -> list[Flip]:
    """The pairs that stand one way round on the nano set and the other way on the source."""
    found = []
    for first, second in flipped(sides["nano"][0], sides["full"][0]):
        lead = {
            name: (float(means[first] - means[second]), interval(drawn[first] - drawn[second]))
            for name, (means, drawn) in sides.items()
        }
        found.append(Flip(systems[first], systems[second], *lead["nano"], *lead["full"]))
    return found
