"""Shares of the variance of scores by factor and interaction, and means of levels from a mixed model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import LEVEL, Floats, t_quantile

REST = "higher interactions and rest"


@dataclass(frozen=True)
class Effect:
    """A factor, or an interaction of two, in a balanced table of scores."""

    effect: str
    """One factor, or two with an x between them."""
    freedom: int
    """Degrees of freedom."""
    share: float
    """The share of the whole variance (eta squared)."""


def variance_shares(scores: Floats, factors: Sequence[str]) -> list[Effect]:
    """Return eta squared of each factor and each pair of factors, the largest first, and what is left at the end.

    The table has one score per cell, and an axis per factor.

    >>> table = np.array([[0.1, 0.2], [0.3, 0.4]])
    >>> [(effect.effect, round(effect.share, 2)) for effect in variance_shares(table, ("task", "system"))]
    [('task', 0.8), ('system', 0.2), ('higher interactions and rest', 0.0)]
    """
    axes = range(scores.ndim)
    centred = scores - scores.mean()
    total = float((centred**2).sum())
    main = {axis: centred.mean(axis=tuple(set(axes) - {axis}), keepdims=True) for axis in axes}
    effects: list[tuple[tuple[int, ...], Floats]] = [((axis,), values) for axis, values in main.items()]
    for one, other in combinations(axes, 2) if scores.ndim > 2 else ():
        pair = centred.mean(axis=tuple(set(axes) - {one, other}), keepdims=True)
        effects.append(((one, other), pair - main[one] - main[other]))
    parts = [
        Effect(
            " x ".join(factors[axis] for axis in places),
            math.prod(scores.shape[axis] - 1 for axis in places),
            float((values**2).mean()) * scores.size / total if total else 0.0,
        )
        for places, values in effects
    ]
    freedom, share = scores.size - 1 - sum(e.freedom for e in parts), max(0.0, 1 - sum(e.share for e in parts))
    return [*sorted(parts, key=lambda effect: -effect.share), Effect(REST, freedom, share if total else 0.0)]


@dataclass(frozen=True)
class LevelMean:
    """Mean of a level of a factor, the other factors and the tasks held equal."""

    factor: str
    level: str
    systems: int
    """How many systems have it."""
    mean: float
    """The mean of the level with each level of the other factors in the balanced block."""
    difference: float
    """The distance from the mean of the block."""
    low: float
    high: float
    """The 95% interval of the difference."""


def level_means(
    scores: Floats, levels: Mapping[str, Sequence[str]], block: Mapping[str, Sequence[str]]
) -> list[LevelMean]:
    """Estimate means of levels from a table of systems x tasks, by a mixed model fitted by REML.

    `levels` are the level of each system by factor, `block` the levels that means are over. Factors are fixed; tasks
    are random, and so is what each task adds to each level. A level that occurs with a single level of another factor
    has no mean.
    """
    systems, tasks = scores.shape
    columns = [(name, level) for name in levels for level in dict.fromkeys(levels[name])]
    design = np.array([[1.0] + [levels[name][row] == level for name, level in columns] for row in range(systems)])
    left, sizes, right = np.linalg.svd(design, full_matrices=False)
    rank = int((sizes > 1e-8 * sizes[0]).sum())
    basis, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
    # One covariance for all tasks: a task's own level, and what it adds to each level of each factor.
    pairs = [np.ones((systems, systems))]
    pairs += [np.equal.outer(np.array(levels[name]), np.array(levels[name])).astype(float) for name in levels]
    coefficients, covariance = _fit(scores, basis, pairs)

    def weights(factor: str = "", level: str = "") -> Floats:
        within = {name: (level,) if name == factor else block[name] for name in levels}
        return np.array([1.0] + [(one in within[name]) / len(within[name]) for name, one in columns])

    def project(vector: Floats) -> Floats:
        coordinates: Floats = right @ vector / sizes
        return coordinates

    centre, means = project(weights()), []
    spread = t_quantile((1 + LEVEL) / 2, tasks - 1)
    for name, level in columns:
        vector = weights(name, level)
        if np.abs(right.T @ (right @ vector) - vector).max() > 1e-8:
            continue
        place = project(vector)
        difference = float((place - centre) @ coefficients)
        error = spread * math.sqrt(max(0.0, float((place - centre) @ covariance @ (place - centre))))
        count, mean = sum(one == level for one in levels[name]), float(place @ coefficients)
        means.append(LevelMean(name, level, count, mean, difference, difference - error, difference + error))
    return means


def _fit(scores: Floats, basis: Floats, pairs: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the coefficients of the fixed part and their covariance, at the maximum of the restricted likelihood."""
    from scipy.optimize import minimize

    systems, tasks = scores.shape
    freedom = scores.size - basis.shape[1]

    def solve(roots: NDArray[np.float64]) -> tuple[float, Floats, Floats]:
        ratios = np.square(roots)
        factor = np.linalg.cholesky(np.eye(systems) + sum(r * pair for r, pair in zip(ratios, pairs, strict=True)))
        fixed, observed = np.linalg.solve(factor, basis), np.linalg.solve(factor, scores)
        inner = tasks * fixed.T @ fixed
        coefficients = np.linalg.solve(inner, fixed.T @ observed.sum(axis=1))
        rest = observed - (fixed @ coefficients)[:, None]
        variance = max(float((rest**2).sum()) / freedom, 1e-15)
        log_factor = 2 * tasks * float(np.log(np.diag(factor)).sum())
        deviance = log_factor + float(np.linalg.slogdet(inner)[1]) + freedom * math.log(variance)
        return deviance, coefficients, variance * np.linalg.inv(inner)

    best = minimize(lambda roots: solve(roots)[0], np.full(len(pairs), 0.7), method="L-BFGS-B")
    return solve(best.x)[1:]
