"""Shares of variance and means of levels: equal to those of statsmodels."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest

from r2med.measure.factors import REST, level_means, variance_shares

pandas = pytest.importorskip("pandas")
statsmodels = pytest.importorskip("statsmodels.formula.api")
NAMES = ("retriever", "llm", "task")


def test_shares_are_those_of_an_analysis_of_variance() -> None:
    from statsmodels.stats.anova import anova_lm

    shape = (3, 4, 5)
    scores = np.random.default_rng(1).normal(size=shape) + 2 * np.arange(5) + np.arange(3)[:, None, None]
    places = np.array(list(product(*map(range, shape)))).T
    table = {name: row.astype(str) for name, row in zip(NAMES, places, strict=True)} | {"score": scores.ravel()}
    fitted = statsmodels.ols("score ~ (C(retriever) + C(llm) + C(task)) ** 2", pandas.DataFrame(table)).fit()
    expected = anova_lm(fitted)
    total = expected["sum_sq"].sum()
    shares = variance_shares(scores, NAMES)
    assert len(shares) == 7
    for effect in shares:
        name = ":".join(f"C({part})" for part in effect.effect.split(" x "))
        row = expected.loc["Residual" if effect.effect == REST else name]
        assert effect.share == pytest.approx(row["sum_sq"] / total, abs=1e-9)
        assert effect.freedom == row["df"]
    ordered = [effect.share for effect in shares[:-1]]
    assert ordered == sorted(ordered, reverse=True)


def test_means_are_those_of_a_mixed_model_for_unbalanced_systems_too() -> None:
    generator, tasks = np.random.default_rng(7), 8
    # Not every combination, and some twice as often as others.
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("b", "z"), ("c", "x"), ("c", "z"), ("c", "z"), ("a", "x")]
    levels = {"retriever": [pair[0] for pair in pairs], "llm": [pair[1] for pair in pairs]}
    effect = {"a": 0.0, "b": 0.1, "c": -0.1, "x": 0.0, "y": 0.2, "z": 0.05}
    level, own = generator.normal(0, 0.3, tasks), {name: generator.normal(0, 0.1, tasks) for name in effect}
    scores = np.array([0.4 + effect[r] + effect[m] + level + own[r] + own[m] for r, m in pairs])
    scores += generator.normal(0, 0.05, scores.shape)
    block = {"retriever": ["b", "c"], "llm": ["x", "z"]}
    means = {(mean.factor, mean.level): mean for mean in level_means(scores, levels, block)}

    table = {name: np.repeat(levels[name], tasks) for name in levels}
    table |= {"task": np.tile(np.arange(tasks), len(pairs)), "score": scores.ravel()}
    frame = pandas.DataFrame(table)
    parts = {name: f"0 + C({name})" for name in levels}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = statsmodels.mixedlm(
            "score ~ C(retriever) + C(llm)", frame, groups="task", re_formula="1", vc_formula=parts
        )
        fitted = model.fit(reml=True, method=["lbfgs", "cg"], maxiter=500)
    names = list(fitted.fe_params.index)

    def weights(factor: str = "", level: str = "") -> np.ndarray:
        within = {name: [level] if name == factor else block[name] for name in levels}
        vector = np.zeros(len(names))
        vector[0] = 1
        for name, chosen in within.items():
            for one in chosen:
                if f"C({name})[T.{one}]" in names:
                    vector[names.index(f"C({name})[T.{one}]")] = 1 / len(chosen)
        return vector

    covariance = fitted.cov_params().loc[names, names].to_numpy()
    for (factor, level_name), mean in means.items():
        vector = weights(factor, level_name)
        assert mean.mean == pytest.approx(vector @ fitted.fe_params, abs=1e-4)
        change = vector - weights()
        assert mean.difference == pytest.approx(change @ fitted.fe_params, abs=1e-4)
        error = np.sqrt(change @ covariance @ change)
        assert (mean.high - mean.low) / 2 / 2.364624 == pytest.approx(error, rel=0.01)  # t with 7 degrees of freedom
    assert set(means) == {("retriever", name) for name in "abc"} | {("llm", name) for name in "xyz"}


def test_a_level_that_occurs_with_one_of_another_factor_only_has_no_mean() -> None:
    scores = np.random.default_rng(3).random((5, 4))
    levels = {"llm": ["x", "y", "x", "y", "z"], "method": ["hyde", "hyde", "lamer", "lamer", "search"]}
    means = level_means(scores, levels, {"llm": ["x", "y"], "method": ["hyde", "lamer"]})
    assert {mean.level for mean in means} == {"x", "y", "hyde", "lamer"}
