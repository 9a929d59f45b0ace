"""Intervals of ranks: against planted means, a closed form, and what resampling alone would say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from r2med.measure.ranks import rank_intervals


def test_the_true_rank_is_covered_where_systems_are_close() -> None:
    """Ten systems whose true means are a point apart or less, by a normal model whose truth is planted."""
    generator = np.random.default_rng(1)
    covered, rounds = [], 40
    for gap in (0.002, 0.02):
        truth = -gap * np.arange(10)
        for _ in range(rounds):
            queries = generator.normal(0, 0.2, 60)
            ranks = rank_intervals([truth[:, None] + queries + generator.normal(0, 0.15, (10, 60))])
            covered += [(ranks.low <= np.arange(1, 11)) & (np.arange(1, 11) <= ranks.high)]
    assert np.mean(covered) >= 0.95
    # Not by holding every rank: those of the wider gaps are told apart.
    assert np.mean(ranks.high - ranks.low) < 6


def test_the_probability_of_being_above_is_the_normal_one() -> None:
    generator = np.random.default_rng(2)
    scores = [generator.normal(0.4, 0.2, (3, count)) for count in (80, 150)]
    above = rank_intervals(scores).above
    for one, other in ((0, 1), (0, 2), (1, 2)):
        changes = [values[one] - values[other] for values in scores]
        error = np.sqrt(sum(change.var() / len(change) for change in changes)) / 2
        expected = norm.cdf(np.mean([change.mean() for change in changes]) / error)
        assert above[one, other] == pytest.approx(expected, abs=0.02)
        assert above[one, other] + above[other, one] == pytest.approx(1)


def test_equal_systems_share_all_ranks_and_a_constant_lead_is_certain() -> None:
    scores = np.random.default_rng(3).random((1, 40))
    ranks = rank_intervals([np.concatenate([scores + 0.1, scores, scores])])
    assert ranks.low.tolist() == [1, 2, 2]
    assert ranks.high.tolist() == [1, 3, 3]
    assert ranks.above[1].tolist() == [0.0, 0.5, 0.5]
    assert ranks.above[0].tolist() == [0.5, 1.0, 1.0]
