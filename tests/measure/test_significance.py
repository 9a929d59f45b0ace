"""Paired tests against scipy, and against what must hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.measure.significance import ALPHA, EXACT, Flips, difference, holm, randomisation_tests

figures = st.floats(-1, 1).map(lambda value: round(value, 2))


@given(st.lists(st.floats(-1, 1).map(lambda value: round(value, 4)), min_size=3, max_size=60))
def test_the_t_test_is_scipys(found: list[float]) -> None:
    from scipy import stats

    sample = np.array(found)
    ours = difference([sample], permutations=10).t_test
    if np.ptp(sample) > 1e-9:
        assert ours == pytest.approx(stats.ttest_1samp(sample, 0).pvalue, abs=1e-12)
    elif not sample.any():
        assert ours == 1.0


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.15])
def test_the_randomisation_test_agrees_with_scipys(shift: float) -> None:
    from scipy import stats

    sample = np.random.default_rng(8).normal(shift, 0.4, size=60)
    theirs = stats.permutation_test(
        (sample,), np.mean, permutation_type="samples", n_resamples=10_000, rng=2, vectorized=True
    )
    assert Flips.of([sample]).probability == pytest.approx(theirs.pvalue, abs=0.02)


@given(st.lists(figures, min_size=1, max_size=10))
def test_few_queries_are_tested_exactly(found: list[float]) -> None:
    """All ways to flip signs, counted by hand; sums of hundredths are compared as whole numbers."""
    from itertools import product

    whole = [round(100 * value) for value in found]
    sums = [abs(sum(sign * value for sign, value in zip(signs, whole, strict=True)))
            for signs in product((1, -1), repeat=len(whole))]  # fmt: skip
    expected = sum(each >= abs(sum(whole)) for each in sums) / len(sums)
    assert Flips.of([np.array(found)]).probability == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.lists(figures, min_size=1, max_size=25), min_size=1, max_size=3))
def test_the_interval_leaves_out_nothing_exactly_when_p_is_small(tasks: list[list[float]]) -> None:
    found = difference([np.array(task) for task in tasks], permutations=400)
    assert (found.low > 0 or found.high < 0) == (found.randomisation < ALPHA)
    assert -1 <= found.low <= found.mean <= found.high <= 1


def test_shifted_data_are_rejected_just_beyond_the_interval() -> None:
    sample = np.random.default_rng(1).normal(0.1, 0.3, size=12)
    found = difference([sample])
    for end, outwards in ((found.low, -1), (found.high, 1)):
        assert Flips.of([sample - end - outwards * 1e-6]).probability < ALPHA
        assert Flips.of([sample - end + outwards * 1e-6]).probability >= ALPHA


def exact_probability(whole: list[int]) -> float:
    """The share of all sign flips with a sum as far from 0, from the distribution of the sum, term by term."""
    most = sum(map(abs, whole))
    counts = [0] * (2 * most + 1)
    counts[most] = 1
    for value in whole:
        moved = [0] * len(counts)
        for place, count in enumerate(counts):
            if count:
                moved[place + value] += count
                moved[place - value] += count
        counts = moved
    far = abs(sum(whole))
    return sum(count for place, count in enumerate(counts) if abs(place - most) >= far) / 2 ** len(whole)


@pytest.mark.parametrize("shift", [0, 4, 9, 12])
def test_the_digits_of_a_p_value_are_those_of_all_flips(shift: int) -> None:
    """2 to the 60 flips are counted exactly; 10,000 random ones would be off by 0.0014 at p = 0.02."""
    whole = [int(value) + shift for value in np.random.default_rng(5).integers(-40, 41, size=60)]
    exact = exact_probability(whole)
    sample = np.array(whole) / 100
    error = np.sqrt(exact * (1 - exact) / 100_000)
    for found in (Flips.of([sample]).probability, difference([sample]).randomisation):
        assert found == pytest.approx(exact, abs=4 * error + 1e-5)
    if 0.0005 < exact < 0.2:
        assert randomisation_tests([[sample], [-sample]]) == pytest.approx([exact, exact], abs=4 * error + 1e-5)


@pytest.mark.parametrize("values", [[0.0] * 20, [0.2] * 3, [0.5]])
def test_equal_differences_have_no_detectable_size(values: list[float]) -> None:
    assert difference([np.array(values)]).detectable is None


def test_five_queries_can_show_nothing() -> None:
    found = difference([np.array([0.5, 0.4, 0.3, 0.5, 0.4])])
    assert found.randomisation == 2 / 2**5
    assert (found.low, found.high) == (-1, 1)
    assert not found.at_floor, "it is exact"


def test_the_floor_of_random_flips_is_known() -> None:
    found = difference([np.random.default_rng(1).normal(1.0, 0.1, size=EXACT + 20)])
    assert found.randomisation == 1 / 100_001
    assert found.at_floor
    assert not difference([np.random.default_rng(1).normal(0.0, 0.1, size=40)]).at_floor


def test_several_tasks_add_their_variances() -> None:
    generator = np.random.default_rng(9)
    tasks = [generator.normal(0.1, 0.3, size=n) for n in (40, 60, 80)]
    found = difference(tasks)
    error = np.sqrt(sum(task.var(ddof=1) / len(task) for task in tasks)) / 3
    assert found.mean == pytest.approx(np.mean([task.mean() for task in tasks]))
    assert found.detectable == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)
    assert found.low < found.mean < found.high
    assert found.queries == 180
    assert found.wins + found.ties + found.losses == 180


def test_turning_the_systems_round_turns_the_signs() -> None:
    sample = np.random.default_rng(4).normal(0.1, 0.3, size=50)
    one, other = difference([sample]), difference([-sample])
    assert one.mean == -other.mean
    assert one.effect == -other.effect
    assert (one.wins, one.losses) == (other.losses, other.wins)
    assert one.t_test == other.t_test
    assert one.randomisation == pytest.approx(other.randomisation, abs=1e-12)


def test_equal_systems_show_nothing() -> None:
    found = difference([np.zeros(30)])
    assert (found.mean, found.low, found.high, found.randomisation, found.t_test) == (0, 0, 0, 1, 1)
    assert (found.wins, found.ties, found.losses) == (0, 30, 0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_only_raises_and_keeps_the_order(found: list[float]) -> None:
    corrected = holm(found)
    for before, after in zip(found, corrected, strict=True):
        assert before - 1e-12 <= after <= 1
    order = np.argsort(found, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= -1e-12).all()
    assert min(corrected) == pytest.approx(min(1.0, min(found) * len(found)))


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    systems=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_many_comparisons_at_once_have_the_p_values_of_each(lengths, systems, seed):
    generator = np.random.default_rng(seed)
    several = [[np.round(generator.normal(size=length), 1) for length in lengths] for _ in range(systems)]
    alone = [Flips.of(tasks).probability for tasks in several]
    for one, together in zip(alone, randomisation_tests(several), strict=True):
        if sum(lengths) <= EXACT or 0.001 < one < 0.19:
            assert together == one
        # What is clear at the first look is left at that.
        assert together == pytest.approx(one, abs=0.025)


@pytest.mark.parametrize(("lead", "spread", "tasks"), [(0.1, 0.1, 1), (0.05, 0.15, 1), (0.02, 0.1, 4)])
def test_the_planned_queries_have_the_promised_power(lead: float, spread: float, tasks: int) -> None:
    """By simulation: a test of as many queries as were planned shows the planted difference in 80% of the rounds."""
    generator = np.random.default_rng(11)
    # A pilot with exactly the planted spread, so that only the plan is tested and not its luck.
    pilot = generator.normal(0, 1, (tasks, 40))
    pilot = spread * (pilot - pilot.mean(axis=1, keepdims=True)) / pilot.std(axis=1, ddof=1, keepdims=True)
    queries = difference(list(pilot)).queries_for(lead)
    assert queries is not None
    per_task = -(-queries // tasks)
    rounds = [list(generator.normal(lead, spread, (tasks, per_task))) for _ in range(600)]
    # With 2,000 flips a p-value near 0.05 is known to 0.005.
    shown = np.mean([difference(values, 2_000).randomisation < 0.05 for values in rounds])
    assert shown == pytest.approx(0.8, abs=0.05)


def test_a_plan_undoes_what_is_detectable_and_knows_its_limits() -> None:
    values = np.random.default_rng(12).normal(0.05, 0.2, 300)
    change = difference([values])
    assert change.detectable is not None
    assert change.queries_for(change.detectable) in range(300, 304)
    assert change.queries_for(10.0) == 6
    assert difference([np.full(30, 0.1)]).queries_for(0.02) is None
