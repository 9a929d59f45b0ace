"""Does the interval of capture-recapture cover the truth, and what does dependence between searchers do to it?

    python benchmarks/capture.py [--simulations 1000]

A population of known size is searched by members with stated chances. Independent: each item is found by each member
with the member's own chance. Dependent: some items are easy for everybody and some hard, which is what questions of
different difficulty do to a committee. Printed: how often the 95% interval holds the true size, the mean estimate and
Chao's lower bound over the true size, and the share of the population that was found.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from r2med.measure.population import estimate_population

CASES: Sequence[tuple[int, tuple[float, ...]]] = (
    (60, (0.6, 0.5)),
    (300, (0.6, 0.5)),
    (300, (0.3, 0.2)),
    (2000, (0.6, 0.5)),
    (60, (0.6, 0.5, 0.4)),
    (300, (0.6, 0.5, 0.4)),
    (300, (0.3, 0.2, 0.2)),
    (2000, (0.6, 0.5, 0.4)),
    (300, (0.5, 0.4, 0.4, 0.3, 0.2)),
)
SPREADS = (0.0, 1.0, 2.0)
"""How much items differ in how hard they are: the standard deviation of their log-odds; 0 for not at all."""


def draw(size: int, chances: Sequence[float], spread: float, chance: np.random.Generator) -> np.ndarray:
    """Who finds what of one population."""
    odds = np.log(np.array(chances) / (1 - np.array(chances)))
    hard = spread * chance.standard_normal(size)[:, None]
    return chance.random((size, len(chances))) < 1 / (1 + np.exp(-(odds + hard)))


def coverage(size: int, chances: Sequence[float], spread: float, simulations: int) -> tuple[float, float, float, float]:
    """How often the interval holds the size; the mean estimate, lower bound and share found, over the size."""
    chance = np.random.default_rng([20250514, size, len(chances), round(10 * spread)])
    held, totals, bounds, seen = 0, [], [], []
    for _ in range(simulations):
        found = estimate_population(draw(size, chances, spread, chance))
        held += found.low is not None and found.low <= size and (found.high is None or size <= found.high)
        totals.append(np.nan if found.total is None else found.total / size)
        bounds.append(np.nan if found.lower_bound is None else found.lower_bound / size)
        seen.append(found.seen / size)
    known = [np.nanmean(column) if np.isfinite(column).any() else np.nan for column in (totals, bounds, seen)]
    return held / simulations, *map(float, known)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations
    print("| size | chances of the members | spread | interval covers | estimate / truth | Chao / truth | found |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for spread in SPREADS:
        for size, chances in CASES:
            held, total, bound, seen = coverage(size, chances, spread, simulations)
            chao = "-" if np.isnan(bound) else f"{bound:.2f}"
            print(
                f"| {size:,} | {', '.join(map(str, chances))} | {spread:g} | {100 * held:.1f}% | {total:.2f} | {chao}"
                f" | {100 * seen:.0f}% |"
            )


if __name__ == "__main__":
    main()
