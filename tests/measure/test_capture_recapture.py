"""Capture-recapture: against formulas and brute force, and its interval against populations whose size is known."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from r2med.measure.population import estimate_population, share

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import capture

TABLES = st.integers(2, 4).flatmap(
    lambda members: st.lists(st.lists(st.booleans(), min_size=members, max_size=members), max_size=40)
)


def likelihood(table: np.ndarray, size: int) -> float:
    """Of a size under independence, from the counts of every capture history: the multinomial one, written out."""
    seen = len(table)
    chances = table.sum(axis=0) / size
    found = math.lgamma(size + 1) - math.lgamma(size - seen + 1)
    histories, counts = np.unique(table, axis=0, return_counts=True)
    for history, count in [*zip(histories, counts, strict=True), (np.zeros(table.shape[1], dtype=bool), size - seen)]:
        if count:
            chance = np.prod(np.where(history, chances, 1 - chances))
            found += count * (math.log(chance) if chance > 0 else -math.inf)
    return found


@given(TABLES)
def test_the_estimate_is_the_likeliest_size_and_the_interval_holds_what_is_nearly_as_likely(rows):
    table = np.array([row for row in rows if any(row)], dtype=bool).reshape(-1, len(rows[0]) if rows else 2)
    found = estimate_population(rows)
    assert found.seen == len(table)
    used = table[:, table.any(axis=0)]
    if used.shape[1] < 2:
        assert (found.total, found.low, found.high) == (None, None, None)
        return
    assert found.seen <= found.low
    sizes = range(found.seen, found.seen + 400)
    values = [likelihood(used, size) for size in sizes]
    best = max(values)
    if used.sum() == found.seen:
        assert found.high is None  # nobody found what another did: it may be any number
        return
    inside = [size for size, value in zip(sizes, values, strict=True) if 2 * (best - value) <= 3.8414]
    if inside[-1] < sizes[-1]:
        assert (found.low, found.high) == (inside[0], inside[-1])
    if used.shape[1] == 2:
        one, other = used.sum(axis=0)
        assert found.total == pytest.approx((one + 1) * (other + 1) / (used.all(axis=1).sum() + 1) - 1)
    elif found.total < sizes[-1]:
        assert likelihood(used, int(found.total)) == pytest.approx(best, abs=1e-6)


def test_the_interval_covers_the_truth_of_independent_members_and_not_that_of_dependent_ones():
    for size, chances in ((300, (0.6, 0.5)), (300, (0.6, 0.5, 0.4))):
        held, total, _, _ = capture.coverage(size, chances, 0.0, 300)
        assert 0.91 <= held <= 0.985  # three standard errors of 300 draws around 95%
        assert total == pytest.approx(1.0, abs=0.02)
    held, total, bound, seen = capture.coverage(300, (0.6, 0.5, 0.4), 2.0, 100)
    assert held < 0.1
    assert seen < total < bound < 0.9  # a lower bound all of them, and Chao's the best


@given(st.integers(0, 60), st.integers(1, 60))
def test_shares_have_the_interval_of_wilson(part, whole):
    if part > whole:
        part, whole = whole, part
    found = share(part, whole)
    known = binomtest(part, whole).proportion_ci(method="wilson")
    assert found.figure.ends == pytest.approx((known.low, known.high), abs=1e-9)
    assert share(0, 0) is None
