"""Agreement of raters: equal to other packages on random tables with gaps, and honest where it is not defined."""

from __future__ import annotations

import math
import warnings

import krippendorff
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from irrCAC.raw import CAC
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from r2med.errors import R2medError
from r2med.measure import bootstrap
from r2med.measure.agreement import (
    COEFFICIENTS,
    MOST_GRADES,
    Ratings,
    agreement_weights,
    coefficients,
    cohen_kappa,
    gwet_ac,
    krippendorff_alpha,
    raw_agreement,
)


@st.composite
def tables(draw: st.DrawFn, raters: tuple[int, int] = (2, 4), gaps: bool = True) -> np.ndarray:
    """Grades of random items by random raters, with gaps; every grade of the scale occurs."""
    items, columns, grades = draw(st.integers(4, 30)), draw(st.integers(*raters)), draw(st.integers(2, 5))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    truth = generator.integers(0, grades, size=(items, 1))
    slips = generator.random((items, columns)) < draw(st.floats(0, 1))
    table = np.where(slips, generator.integers(0, grades, size=(items, columns)), truth).astype(np.float64)
    if gaps:
        table[generator.random(table.shape) < draw(st.floats(0, 0.5))] = np.nan
    # Items that hold the scale together, and a pair that disagrees: without one nothing is to be corrected for.
    whole = np.repeat(np.arange(grades, dtype=np.float64)[:, None], columns, axis=1)
    whole[0, 1] = grades - 1
    return np.concatenate([table, whole])


def value(function, ratings: Ratings, *more: str) -> float:
    """A coefficient without its interval."""
    return float(function(ratings.sums().total(), *more)[0])


def other(table: np.ndarray, weights: str, method: str) -> float:
    """A coefficient by irrCAC, which is told the scale: its own search for it stumbles over gaps."""
    scale = np.unique(table[~np.isnan(table)]).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(CAC(pandas.DataFrame(table), weights, categories=scale, digits=15), method)()
    return float(found["est"]["coefficient_value" if method != "pa" else "pa"])


close = {"rel": 1e-9, "abs": 1e-9}


@settings(max_examples=60)
@given(tables(raters=(2, 2), gaps=False))
def test_kappa_and_the_confusion_matrix_are_those_of_scikit_learn(table: np.ndarray):
    ratings = Ratings.of(table)
    one, two = table.astype(int).T
    assert value(cohen_kappa, ratings) == pytest.approx(cohen_kappa_score(one, two), **close)
    assert value(cohen_kappa, ratings, "linear") == pytest.approx(
        cohen_kappa_score(one, two, weights="linear"), **close
    )
    squared = cohen_kappa_score(one, two, weights="quadratic")
    assert value(cohen_kappa, ratings, "quadratic") == pytest.approx(squared, **close)
    assert ratings.confusion().tolist() == confusion_matrix(one, two).tolist()


@settings(max_examples=40)
@given(tables(raters=(3, 4)))
def test_the_kappa_of_several_raters_is_the_mean_over_their_pairs(table: np.ndarray):
    kappas = []
    for one, two in Ratings.of(table).pairs:
        both = table[~np.isnan(table[:, [one, two]]).any(axis=1)]
        kappas.append(cohen_kappa_score(both[:, one].astype(int), both[:, two].astype(int)))
    known = [kappa for kappa in kappas if not math.isnan(kappa)]
    assert value(cohen_kappa, Ratings.of(table)) == pytest.approx(np.mean(known), **close)


@settings(max_examples=80)
@given(tables(), st.sampled_from(["nominal", "ordinal", "interval"]))
def test_alpha_is_that_of_krippendorff(table: np.ndarray, level: str):
    expected = krippendorff.alpha(reliability_data=table.T, level_of_measurement=level)
    assert value(krippendorff_alpha, Ratings.of(table), level) == pytest.approx(expected, **close)


@settings(max_examples=60)
@given(tables(), st.sampled_from(["identity", "linear", "quadratic"]))
def test_gwets_coefficients_are_those_of_irrcac(table: np.ndarray, weights: str):
    ratings = Ratings.of(table)
    assert value(gwet_ac, ratings, weights) == pytest.approx(other(table, weights, "gwet"), **close)
    # irrCAC's alpha is another implementation of the same.
    if weights == "identity":
        assert value(krippendorff_alpha, ratings, "nominal") == pytest.approx(
            other(table, weights, "krippendorff"), **close
        )


@given(tables())
def test_raw_agreement_counts_equal_pairs_item_by_item(table: np.ndarray):
    shares = []
    for row in table:
        known = row[~np.isnan(row)]
        equal = [known[a] == known[b] for a in range(len(known)) for b in range(a)]
        shares += [np.mean(equal)] if equal else []
    assert value(raw_agreement, Ratings.of(table)) == pytest.approx(np.mean(shares), **close)


@settings(max_examples=10)
@given(tables(), st.integers(0, 1000))
def test_a_resample_is_the_coefficient_of_the_questions_drawn(table: np.ndarray, seed: int):
    questions = np.random.default_rng(seed).integers(0, 6, size=len(table))
    ratings = Ratings.of(table, questions)
    count = int(ratings.questions.max()) + 1
    block = next(ratings.sums().resampled())
    drawn = (next(bootstrap.weights(count))[0] * count).round().astype(int)
    items = np.concatenate([np.flatnonzero(ratings.questions == q) for q, n in enumerate(drawn) for _ in range(n)])
    again = ratings.select(items)
    for name, coefficient in COEFFICIENTS.items():
        expected = float(coefficient(again.sums().total())[0])
        assert float(coefficient(block)[0]) == pytest.approx(expected, nan_ok=True, **close), name


def test_rare_positives_make_kappa_low_and_leave_ac1_high():
    table = np.zeros((1000, 2))
    table[:5] = [1, 0]
    table[5:10] = [0, 1]
    found = coefficients(Ratings.of(table))
    assert found["raw"].value == pytest.approx(0.99)
    assert abs(found["kappa"].value) < 0.02
    assert abs(found["alpha-ordinal"].value) < 0.02
    assert found["ac1"].value > 0.98
    assert found["ac1"].low <= found["ac1"].value <= found["ac1"].high


def test_where_there_is_nothing_to_correct_for_there_is_no_coefficient():
    found = coefficients(Ratings.of(np.ones((8, 2))))
    assert found["raw"].value == 1.0
    assert [name for name, each in found.items() if each is None] == [name for name in COEFFICIENTS if name != "raw"]


def test_without_an_item_that_two_have_judged_nothing_is_said():
    found = coefficients(Ratings.of([[1, np.nan], [np.nan, 0]]))
    assert set(found.values()) == {None}


def test_one_question_has_no_interval_and_the_same_draws_come_every_time():
    table = [[0, 0], [1, 1], [1, 0], [2, 2]]
    alone = coefficients(Ratings.of(table, questions=[7, 7, 7, 7]))["raw"]
    assert (alone.value, alone.low, alone.high) == (0.75, None, None)
    assert coefficients(Ratings.of(table)) == coefficients(Ratings.of(table))


def test_resampling_many_grades_keeps_memory_bounded():
    generator = np.random.default_rng(3)
    ratings = Ratings.of(generator.integers(0, MOST_GRADES, size=(200, 2)), generator.integers(0, 9, size=200))
    largest = max(block.tables.size + block.coincidences.size for block in ratings.sums().resampled())
    assert largest <= 1 << 20


def test_the_interval_of_the_rate_holds_the_planted_one():
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(60):
        truth = generator.integers(0, 2, size=400).astype(np.float64)
        wrong = generator.random(400) < 0.1
        found = coefficients(
            Ratings.of(np.stack([truth, np.where(wrong, 1 - truth, truth)], 1), np.arange(400) // 8), ["raw"]
        )
        held += found["raw"].low <= 0.9 <= found["raw"].high
    assert held >= 53  # of 60; 57 are expected


@pytest.mark.parametrize(
    ("table", "scale", "message"),
    [
        ([[1.0]], None, "two raters"),
        (np.arange(80).reshape(40, 2), None, "80 different grades are not a scale"),
        ([[0, 3]], [0, 1, 2], "the grade 3 is not on the scale"),
    ],
)
def test_what_is_no_table_of_grades_is_refused(table, scale, message):
    with pytest.raises(R2medError, match=message):
        Ratings.of(table, scale=scale)


def test_weights_go_by_the_distance_of_grades():
    assert agreement_weights([0, 1, 3], "linear")[0].tolist() == [1.0, 1 - 1 / 3, 0.0]
    assert agreement_weights([2], "quadratic").tolist() == [[1.0]]
