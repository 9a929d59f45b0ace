"""Agreement: the coefficients against scipy, shifts and flips against hand-made scores, and real sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sources import folder

from r2med.errors import R2medError
from r2med.measure.bootstrap import percentile_ends
from r2med.measure.correlation import flipped_pairs, kendall, kendall_columns, spearman
from r2med.nano.agreement import PairedScores, agree, agreement
from r2med.nano.builder import build
from r2med.nano.recipe import Recipe
from r2med.pipeline.evaluate import evaluate

COLUMNS = st.integers(2, 9).flatmap(
    lambda size: st.tuples(*[st.lists(st.integers(0, 6).map(lambda n: n / 7), min_size=size, max_size=size)] * 2)
)


@settings(max_examples=200, deadline=None)
@given(COLUMNS)
def test_coefficients_are_those_of_scipy(columns):
    one, other = columns
    assume(len(set(one)) > 1 and len(set(other)) > 1)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert kendall(one, other) == pytest.approx(stats.kendalltau(one, other).statistic)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 1000))
def test_many_columns_at_once_are_the_same_as_one_by_one(size, seed):
    one, other = np.random.default_rng(seed).integers(0, 5, (2, size, 7)) / 5
    for compute in (spearman, kendall):
        single = [compute(a, b) for a, b in zip(one.T, other.T, strict=True)]
        np.testing.assert_array_equal(compute(one, other), single)


def test_coefficients_of_a_constant_column():
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert np.isnan(kendall([1, 2, 3], [2, 2, 2]))
    found = agreement([scores([[1, 0], [0, 1]], [[1, 0], [0, 0]])], "t", "m")
    assert (found.spearman, found.kendall) == (None, None)


def test_rounding_makes_no_order():
    noisy = [0.1 + 0.2, 0.3, 0.5]
    assert noisy[0] > noisy[1]
    assert flipped_pairs(noisy, [1, 2, 3]) == []
    assert kendall(noisy, [1, 1, 2]) == pytest.approx(1.0)


@pytest.mark.parametrize("pairs", [1, 100, 1 << 20])
def test_taus_of_many_columns_do_not_depend_on_the_block(pairs, monkeypatch):
    monkeypatch.setattr("r2med.measure.correlation._PAIRS_AT_ONCE", pairs)
    one, other = np.random.default_rng(4).random((2, 5, 37))
    assert kendall_columns(one, other).tolist() == [kendall(a, b).item() for a, b in zip(one.T, other.T, strict=True)]


def test_intervals_at_their_edges():
    assert percentile_ends(np.array([]), [9]) is None
    assert percentile_ends(np.array([np.nan, np.nan, 1.0]), [9]) is None
    assert percentile_ends(np.array([np.nan, 2.0, 2.0]), [9]) == (2.0, 2.0)
    assert percentile_ends(np.arange(101.0), []) == pytest.approx((2.5, 97.5)), "without queries, plain percentiles"


def scores(nano, full, systems="abc"):
    return PairedScores("t", list(systems[: len(nano)]), np.array(nano, dtype=float), np.array(full, dtype=float))


def test_shifts_flips_and_their_intervals():
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.01, 400)
    nano = [0.8 + noise, 0.6 + noise, 0.5 + generator.normal(0, 0.01, 400)]
    full = [0.3 + noise, 0.4 + noise, 0.2 + generator.normal(0, 0.01, 400)]
    found = agreement([scores(nano, full)], "t", "nDCG@10")
    assert [round(each.shift, 2) for each in found.shifts] == [0.5, 0.2, 0.3]
    assert found.shift == pytest.approx(np.mean([each.shift for each in found.shifts]))
    # The same noise on both sides is no uncertainty of the shift.
    assert found.shifts[0].interval == pytest.approx((0.5, 0.5))
    low, high = found.shifts[2].interval
    assert low < found.shifts[2].shift < high
    assert high - low < 0.01
    (flip,) = found.flips
    assert (flip.first, flip.second, flip.clear) == ("a", "b", True)
    assert (round(flip.nano, 2), round(flip.full, 2)) == (0.2, -0.1)
    assert (found.pairs, found.kendall, found.spearman) == (3, pytest.approx(1 / 3), pytest.approx(0.5))
    assert found.kendall_interval == pytest.approx((1 / 3, 1 / 3))


def test_a_flip_within_chance_says_so():
    generator = np.random.default_rng(1)
    base = generator.random((2, 60))
    nano = base - base.mean(axis=1, keepdims=True) + [[0.501], [0.500]]
    full = nano[::-1]
    (flip,) = agreement([scores(nano, full)], "t", "nDCG@10").flips
    assert not flip.clear
    assert flip.nano_interval[0] < 0 < flip.nano_interval[1]


def test_a_tie_is_no_flip():
    assert agreement([scores([[0.5, 0.5], [0.4, 0.6]], [[1, 0], [0, 0]])], "t", "m").flips == []


def test_a_bootstrap_interval_is_as_wide_as_theory_has_it():
    generator = np.random.default_rng(2)
    nano = generator.normal(0.6, 0.2, (2, 500))
    full = generator.normal(0.4, 0.2, (2, 500))
    low, high = agreement([scores(nano, full)], "t", "m").shifts[0].interval
    expected = 2 * 1.96 * np.std(nano[0] - full[0]) / np.sqrt(500)
    assert high - low == pytest.approx(expected, rel=0.1)


def test_queries_that_only_the_source_has():
    nano = [[0.8, 0.9, np.nan, np.nan], [0.7, 0.6, np.nan, np.nan]]
    full = [[0.4, 0.5, 0.1, 0.2], [0.3, 0.2, 0.0, 0.1]]
    found = agreement([scores(nano, full)], "t", "m")
    assert (found.queries, found.queries_nano, found.queries_full) == (2, 2, 4)
    assert found.shifts[0].nano == pytest.approx(0.85)
    assert found.shifts[0].full == pytest.approx(0.45), "over the two queries of both, the other two play no part"
    assert found.shifts[0].full_all == pytest.approx(0.30)
    assert found.shifts[0].shift == pytest.approx(0.40)
    assert found.shifts[0].interval == pytest.approx((0.4, 0.4)), "each query shifts by as much"


def test_tasks_weigh_the_same_whatever_their_size():
    large = scores([[0.5] * 90, [0.4] * 90], [[0.2] * 90, [0.1] * 90])
    small = scores([[0.9] * 10, [0.1] * 10], [[0.6] * 10, [0.1] * 10])
    found = agreement([large, small], "average", "m")
    assert found.shifts[0].nano == pytest.approx(0.7)
    assert found.shifts[1].full == pytest.approx(0.1)


SYSTEMS = ["bm25", "bm25-classic(k1=0, b=0)", "bm25(k1=1.2, b=0.75)"]


def test_agreement_of_a_set_with_its_source(tmp_path):
    source = folder(tmp_path / "mine", documents=120)
    build(source, tmp_path / "out", Recipe(documents=30, queries=4))
    found = agree(tmp_path / "out", source, SYSTEMS)
    (task,) = found.tasks
    assert (task.task, task.queries_nano, task.queries_full, found.average) == ("mine", 4, 6, None)
    for each, spec in zip(task.shifts, SYSTEMS, strict=True):
        nano, full = (evaluate(spec, path).results[0] for path in (tmp_path / "out", source))
        assert nano.cached
        assert full.cached
        assert (each.nano, each.full) == (nano.metrics["nDCG@10"], full.metrics["nDCG@10"])
    again = agree(tmp_path / "out", source, SYSTEMS)
    assert again == found


def test_several_tasks_are_paired_by_the_name_of_their_source(tmp_path):
    sources = [folder(tmp_path / "all" / "b", documents=90), folder(tmp_path / "all" / "a", queries=4)]
    build(sources, tmp_path / "out", Recipe(documents=30))
    found = agree(tmp_path / "out", tmp_path / "all", SYSTEMS)
    assert sorted(task.task for task in found.tasks) == ["a", "b"]
    means = [np.mean([task.shifts[0].nano for task in found.tasks])]
    assert [found.average.shifts[0].nano] == pytest.approx(means)
    with pytest.raises(R2medError, match=r"no source for .*NanoA among"):
        agree(tmp_path / "out", sources[0], SYSTEMS)


def test_the_ledger_may_know_the_same_data_by_another_name(tmp_path, monkeypatch):
    source = folder(tmp_path / "mine", documents=60)
    build(source, tmp_path / "out", Recipe(documents=30))
    evaluate(SYSTEMS, [source, tmp_path / "out"])
    monkeypatch.chdir(tmp_path)
    assert len(agree("./out", "./mine", SYSTEMS).tasks) == 1


def test_what_cannot_be_compared(tmp_path):
    source = folder(tmp_path / "mine")
    build(source, tmp_path / "out", Recipe(documents=30))
    with pytest.raises(R2medError, match="hold the same data"):
        agree(source, source, SYSTEMS)
    with pytest.raises(R2medError, match="have no query in common"):
        agree(tmp_path / "out", "sample/Biology", SYSTEMS)
    with pytest.raises(R2medError, match=r"two systems at least, 1 could be run \(give more"):
        agree(tmp_path / "out", source, ["bm25"])
    with pytest.raises(R2medError, match=r"1 could be run \(candidates\(bm25\) on .*no candidates"):
        agree(tmp_path / "out", source, ["bm25", "candidates(bm25)"])


def test_a_system_that_fails_on_one_side_is_left_out_and_named(tmp_path):
    source = folder(tmp_path / "mine")
    build(source, tmp_path / "out", Recipe(documents=30))
    found = agree(tmp_path / "out", source, [*SYSTEMS, "candidates(bm25)"])
    assert [each.system for each in found.tasks[0].shifts] == SYSTEMS
    assert [failure.system for failure in found.failures] == ["candidates(bm25)"]
