"""Correlations equal scipy's, and say None where there is nothing to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.measure.bootstrap import percentile_ends, weights
from r2med.measure.correlation import correlate, pearson, ranks, spearman

columns = st.integers(2, 12).flatmap(
    lambda size: st.tuples(*[st.lists(st.integers(-5, 5), min_size=size, max_size=size)] * 2)
)


@given(columns)
def test_coefficients_and_ranks_are_scipys(columns: tuple[list[int], list[int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = columns
    assert ranks(one).tolist() == stats.rankdata(one).tolist()
    found = correlate(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert (found.pearson, found.spearman) == (None, None)
    else:
        assert found.pearson.value == pytest.approx(stats.pearsonr(one, other).statistic)
        assert found.spearman.value == pytest.approx(stats.spearmanr(one, other).statistic)


def test_intervals_hold_the_coefficient_and_agree_with_scipys_bootstrap() -> None:
    stats = pytest.importorskip("scipy.stats")
    chance = np.random.default_rng(7)
    one = chance.normal(size=80)
    other = one + chance.normal(size=80)
    found = correlate(one, other)
    assert found.pearson.value == pytest.approx(stats.pearsonr(one, other).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(one, other).statistic)
    drawn = stats.bootstrap(
        (one, other),
        lambda x, y: stats.pearsonr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        random_state=np.random.default_rng(1),
    ).confidence_interval
    assert found.pearson.ends == pytest.approx((drawn.low, drawn.high), abs=0.03)
    for figure in (found.pearson, found.spearman):
        assert figure.low < figure.value < figure.high
    assert correlate(one, other) == found


@pytest.mark.parametrize(("points", "kinds"), [(5, 2), (9, 3), (40, 1000)])
def test_intervals_are_those_of_the_shared_resamples(points: int, kinds: int) -> None:
    chance = np.random.default_rng(points)
    one, other = chance.integers(0, kinds, (2, points)) / 7
    counts = np.rint(np.concatenate(list(weights(points))) * points).astype(int)
    drawn = [np.repeat(np.arange(points), row) for row in counts]
    found = correlate(one, other)
    for plain, figure in ((pearson, found.pearson), (spearman, found.spearman)):
        values = np.array([plain(one[places], other[places]) for places in drawn])
        assert figure.ends == pytest.approx(percentile_ends(values, [points]))


@pytest.mark.parametrize(
    ("one", "other"), [([], []), ([1], [2]), ([1, 1, 1, 1], [1, 2, 3, 4]), ([0.1] * 5, [0.1, 0.2, 0.3, 0.4, 0.5])]
)
def test_without_variation_there_is_no_coefficient(one: list[float], other: list[float]) -> None:
    found = correlate(one, other)
    assert found.points == len(one)
    assert (found.pearson, found.spearman) == (None, None)


def test_three_points_have_no_interval_and_columns_must_be_aligned() -> None:
    assert correlate([1, 2, 3], [1, 2, 4]).pearson.low is None
    with pytest.raises(ValueError, match="3 values against 2"):
        correlate([1, 2, 3], [1, 2])
