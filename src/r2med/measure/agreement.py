"""Agreement of raters: raw agreement, kappas, Krippendorff's alpha and Gwet's AC, with a bootstrap over questions.

Every coefficient is a function of sums over items, so that all resamples of the questions, each of which gives one row
of sums, are computed at once. A coefficient uses the items that two raters at least have judged; if it is not defined
(disagreement is impossible with a single grade) it is not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.errors import R2medError
from r2med.measure.bootstrap import figure_of, weights
from r2med.measure.figure import Figure

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
MOST_GRADES = 32  # grades of a scale at most; with more it is a score, and its table too large to read and to resample
_NUMBERS = 1 << 20  # numbers in memory at a time while questions are resampled


@dataclass(frozen=True, eq=False)
class Ratings:
    """Grades of items by raters, and the question that each item belongs to.

    >>> ratings = Ratings.of([[0, 0], [1, 1], [1, 0], [0, float("nan")]], questions=[0, 0, 1, 1])
    >>> ratings.scale.tolist(), ratings.confusion().tolist()
    ([0.0, 1.0], [[1, 0], [1, 1]])
    """

    grades: Floats  # a row per item, a column per rater; not a number where there is no grade
    questions: Places  # the question of each item, counted from 0
    scale: Floats  # every grade that can be given, ascending

    @classmethod
    def of(cls, grades: ArrayLike, questions: ArrayLike | None = None, scale: Sequence[float] | None = None) -> Ratings:
        """Build a table of grades; by default every item is its own question, and the scale holds the grades given."""
        table = np.asarray(grades, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] < 2:
            raise R2medError("agreement needs the grades of two raters at least")
        places = np.arange(len(table)) if questions is None else np.asarray(questions)
        given = np.unique(table[~np.isnan(table)])
        steps = given if scale is None else np.asarray(scale, dtype=np.float64)
        if len(steps) > MOST_GRADES:
            advice = f"agreement takes {MOST_GRADES} at the most"
            raise R2medError(f"{len(steps)} different grades are not a scale; {advice}")
        if not np.isin(given, steps).all():
            raise R2medError(f"the grade {given[~np.isin(given, steps)][0]:g} is not on the scale")
        return cls(table, np.unique(places, return_inverse=True)[1].astype(np.intp), steps)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair of raters."""
        return list(combinations(range(self.grades.shape[1]), 2))

    @property
    def shared(self) -> int:
        """Count the items that at least two raters have judged."""
        return int((self._given.sum(axis=1) > 1).sum())

    def select(self, items: NDArray[np.bool_] | Places) -> Ratings:
        """Return some of the items, on the same scale."""
        return Ratings.of(self.grades[items], self.questions[items], self.scale.tolist())

    def confusion(self, pair: tuple[int, int] = (0, 1)) -> NDArray[np.int64]:
        """Count how often one rater gave the grade of the row and the other that of the column."""
        return np.asarray(self._cells(pair, np.ones(len(self.grades))).sum(axis=0), dtype=np.int64)

    @cached_property
    def _given(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.grades)

    @cached_property
    def _steps(self) -> Places:
        """Return each grade's place on the scale; meaningless where there is no grade."""
        return np.searchsorted(self.scale, np.nan_to_num(self.grades)).clip(max=max(0, len(self.scale) - 1))

    def _cells(self, pair: tuple[int, int], worth: Floats) -> Floats:
        """Return the table of two raters for each question, every item counted by its weight."""
        both = self._given[:, pair].all(axis=1)
        one, other = self._steps[:, pair].T
        size, count = len(self.scale), int(self.questions.max(initial=-1)) + 1
        places = (self.questions * size + one) * size + other
        cells = np.bincount(places[both], worth[both], minlength=count * size * size)
        return cells.astype(np.float64).reshape(count, size, size)

    def sums(self) -> Sums:
        """Return the sums from which the coefficients are computed, a row per question."""
        judged = self._given.sum(axis=1)
        tables = np.stack([self._cells(pair, np.ones(len(judged))) for pair in self.pairs], axis=1)

        def both_ways(worth: Floats) -> Floats:
            table = np.sum([self._cells(pair, worth) for pair in self.pairs], axis=0)
            return np.asarray(table + table.swapaxes(-1, -2))

        places = (self.questions[:, None] * len(self.scale) + self._steps)[self._given]
        worth = np.broadcast_to((1 / np.maximum(1, judged))[:, None], self.grades.shape)[self._given]
        marginals = np.bincount(places, worth, minlength=len(tables) * len(self.scale))
        return Sums(
            self.scale,
            tables,
            coincidences=both_ways(1 / np.maximum(1, judged - 1)),
            agreements=both_ways(1 / np.maximum(1, judged * (judged - 1))),
            marginals=marginals.astype(np.float64).reshape(len(tables), len(self.scale)),
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums from which all coefficients are computed; the first axis of each table is that of questions or resamples."""

    scale: Floats
    tables: Floats  # counts of the pairs of grades, for each pair of raters
    coincidences: Floats  # Krippendorff's: pairs of grades within items, an item counted by its number of grades
    agreements: Floats  # Gwet's: pairs of grades within items, every item counted once
    marginals: Floats  # the shares of the grades within items, every item counted once

    def total(self) -> Sums:
        """Return the sums of all questions, as one row."""
        return self._weighted(np.ones((1, len(self.marginals))))

    def resampled(self) -> Iterator[Sums]:
        """Yield the sums of resampled questions, a block of resamples at a time."""
        count = len(self.marginals)
        at_once = max(1, _NUMBERS // sum(part[0].size for part in self._parts))
        for block in weights(count):
            for start in range(0, len(block), at_once):
                yield self._weighted(block[start : start + at_once] * count)

    @property
    def _parts(self) -> tuple[Floats, ...]:
        return self.tables, self.coincidences, self.agreements, self.marginals

    def _weighted(self, rows: Floats) -> Sums:
        return Sums(self.scale, *(np.tensordot(rows, part, axes=1) for part in self._parts))


def agreement_weights(scale: ArrayLike, kind: str) -> Floats:
    """Return the agreement of two grades, from 0 to 1: `identity`, `linear` or `quadratic` in their distance.

    >>> agreement_weights([0, 1, 2], "quadratic").tolist()
    [[1.0, 0.75, 0.0], [0.75, 1.0, 0.75], [0.0, 0.75, 1.0]]
    """
    steps = np.asarray(scale, dtype=np.float64)
    gaps = np.abs(steps[:, None] - steps)
    if kind == "identity":
        return np.asarray(gaps == 0, dtype=np.float64)
    widest = gaps.max(initial=0.0) or 1.0
    return np.asarray(1 - (gaps / widest) ** {"linear": 1, "quadratic": 2}[kind])


def raw_agreement(sums: Sums) -> Floats:
    """Return the share of pairs of grades that are equal, the mean over items."""
    return _ratio(np.trace(sums.agreements, axis1=-2, axis2=-1), sums.agreements.sum(axis=(-1, -2)))


def cohen_kappa(sums: Sums, kind: str = "identity") -> Floats:
    """Return Cohen's kappa over the items that both judged; for more raters the mean over their pairs (Light's)."""
    apart = 1 - agreement_weights(sums.scale, kind)
    rows, columns = sums.tables.sum(axis=-1), sums.tables.sum(axis=-2)
    observed = (sums.tables * apart).sum(axis=(-1, -2)) * rows.sum(axis=-1)
    expected = np.einsum("...k,kl,...l->...", rows, apart, columns)
    kappas = 1 - _ratio(observed, expected)
    defined = ~np.isnan(kappas)
    return _ratio(np.where(defined, kappas, 0.0).sum(axis=-1), defined.sum(axis=-1))


def krippendorff_alpha(sums: Sums, level: str = "ordinal") -> Floats:
    """Return Krippendorff's alpha for `nominal`, `ordinal` or `interval` grades."""
    scale, totals = sums.scale, sums.coincidences.sum(axis=-1)
    if level == "ordinal":
        middles = np.cumsum(totals, axis=-1) - totals / 2
        distances = (middles[..., :, None] - middles[..., None, :]) ** 2
    elif level == "interval":
        distances = (scale[:, None] - scale) ** 2
    else:
        distances = (scale[:, None] != scale).astype(np.float64)
    observed = (sums.coincidences * distances).sum(axis=(-1, -2)) * (totals.sum(axis=-1) - 1)
    expected = (totals[..., :, None] * totals[..., None, :] * distances).sum(axis=(-1, -2))
    return np.asarray(1 - _ratio(observed, expected))


def gwet_ac(sums: Sums, kind: str = "identity") -> Floats:
    """Return Gwet's AC1, or with weights AC2: chance agreement is that of the items on which a guess is made."""
    grades = len(sums.scale)
    if grades < 2:
        return np.full(len(sums.marginals), np.nan)
    alike = agreement_weights(sums.scale, kind)
    observed = _ratio((sums.agreements * alike).sum(axis=(-1, -2)), sums.agreements.sum(axis=(-1, -2)))
    shares = _ratio(sums.marginals, sums.marginals.sum(axis=-1, keepdims=True))
    chance = alike.sum() * (shares * (1 - shares)).sum(axis=-1) / (grades * (grades - 1))
    return _ratio(observed - chance, 1 - chance)


def _ratio(part: Floats, whole: ArrayLike) -> Floats:
    size = np.asarray(whole, dtype=np.float64)
    return np.asarray(part / np.where(size != 0, size, np.nan))


COEFFICIENTS: Mapping[str, Callable[[Sums], Floats]] = {  # the weights of the weighted ones are quadratic
    "raw": raw_agreement,
    "kappa": cohen_kappa,
    "weighted-kappa": lambda sums: cohen_kappa(sums, "quadratic"),
    "alpha-nominal": lambda sums: krippendorff_alpha(sums, "nominal"),
    "alpha-ordinal": krippendorff_alpha,
    "alpha-interval": lambda sums: krippendorff_alpha(sums, "interval"),
    "ac1": gwet_ac,
    "ac2": lambda sums: gwet_ac(sums, "quadratic"),
}


def coefficients(ratings: Ratings, names: Sequence[str] = tuple(COEFFICIENTS)) -> dict[str, Figure | None]:
    """Compute coefficients of a table of ratings, with intervals by drawing its questions with replacement.

    One that is not defined is None; of a single question there is no interval.

    >>> figures = coefficients(Ratings.of([[0, 0], [1, 1], [2, 1], [0, 0]]), ["raw", "kappa"])
    >>> figures["raw"].value, round(figures["kappa"].value, 3)
    (0.75, 0.6)
    """
    sums = ratings.sums()
    questions = len(sums.marginals)
    if not questions:
        return dict.fromkeys(names)
    drawn: dict[str, list[Floats]] = {name: [np.empty(0)] for name in names}
    for block in sums.resampled() if questions > 1 else ():
        for name in names:
            drawn[name].append(COEFFICIENTS[name](block))
    total = sums.total()
    return {name: figure_of(COEFFICIENTS[name](total)[0], np.concatenate(drawn[name]), [questions]) for name in names}
