"""Prediction-powered intervals: equal to ppi-python, and no narrower than they may be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

from r2med.errors import R2medError
from r2med.measure.population import prediction_powered_mean


@settings(max_examples=60)
@given(
    st.integers(2, 60),
    st.integers(2, 200),
    st.floats(0, 1),
    st.sampled_from([None, 0.0, 0.4, 1.0]),
    st.integers(0, 9999),
)
def test_intervals_are_those_of_ppi_python(humans: int, others: int, noise: float, trust: float | None, seed: int):
    generator = np.random.default_rng(seed)
    truth = (generator.random(humans + others) < 0.4).astype(np.float64)
    model = np.where(generator.random(len(truth)) < noise, generator.random(len(truth)), truth)
    human, beside, further = truth[:humans], model[:humans], model[humans:]
    found = prediction_powered_mean(human, beside, further, trust)
    if np.ptp(model) == 0 and trust is None:
        trust = 0.0  # predictions that are all the same say nothing, and ppi-python divides 0 by 0
    low, high = ppi_mean_ci(human, beside, further, alpha=0.05, lam=trust)
    assert found.value == pytest.approx(
        float(np.squeeze(ppi_mean_pointestimate(human, beside, further, lam=trust))), abs=1e-9
    )
    assert (found.low, found.high) == pytest.approx((float(np.squeeze(low)), float(np.squeeze(high))), abs=1e-9)


def test_good_predictions_narrow_the_interval_and_useless_ones_leave_it():
    generator = np.random.default_rng(1)
    truth = (generator.random(2000) < 0.3).astype(np.float64)
    good, useless = np.where(generator.random(2000) < 0.05, 1 - truth, truth), np.zeros(2000)
    alone = prediction_powered_mean(truth[:100], useless[:100], useless[100:])
    helped = prediction_powered_mean(truth[:100], good[:100], good[100:])
    assert alone.value == pytest.approx(truth[:100].mean())
    assert helped.high - helped.low < 0.7 * (alone.high - alone.low)


@pytest.mark.parametrize(
    ("human", "predicted", "further", "message"),
    [
        ([1, 0], [1], [1], "2 human labels for 1 predictions"),
        ([1], [1], [0, 1], "needs two human labels"),
        ([1, 0], [1, 0], [], "one further prediction"),
    ],
)
def test_too_few_labels_are_refused(human, predicted, further, message):
    with pytest.raises(R2medError, match=message):
        prediction_powered_mean(human, predicted, further)
