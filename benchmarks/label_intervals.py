"""Do intervals for the rate of relevant labels hold the truth, and what do a model's labels save?

Items of which a known share is relevant; a model labels all of them, with errors of both kinds, and a human labels a
random few without error. Printed is the share of 95% intervals that hold the true share, from the human labels alone,
from the model's labels alone, and prediction-powered, with their median widths. They should be near 95%; those of the
model alone are not, since it is wrong more often one way than the other.
"""

from __future__ import annotations

import numpy as np

from r2med.measure.population import prediction_powered_mean

ROUNDS = 2_000
ITEMS = 5_000
SENSITIVITY = 0.9
"""The share of relevant items that the model finds."""
FALSE_POSITIVES = 0.05
"""The share of the others that it takes for relevant."""


def widths_and_hits(generator: np.random.Generator, rate: float, humans: int) -> dict[str, np.ndarray]:
    """For each kind of interval, rows of (holds the truth, width)."""
    found: dict[str, list[tuple[float, float]]] = {"human": [], "model": [], "prediction-powered": []}
    for _ in range(ROUNDS):
        truth = generator.random(ITEMS) < rate
        model = np.where(truth, generator.random(ITEMS) < SENSITIVITY, generator.random(ITEMS) < FALSE_POSITIVES)
        seen, rest = slice(0, humans), slice(humans, None)
        wholly = prediction_powered_mean(model[seen], model[seen], model[rest], trust=1.0)
        intervals = {
            "human": prediction_powered_mean(truth[seen], model[seen], model[rest], trust=0.0),
            "model": wholly,
            "prediction-powered": prediction_powered_mean(truth[seen], model[seen], model[rest]),
        }
        for name, ends in intervals.items():
            found[name].append((ends.low <= rate <= ends.high, ends.high - ends.low))
    return {name: np.array(rows) for name, rows in found.items()}


def main() -> None:
    generator = np.random.default_rng(11)
    print(f"coverage of 95% intervals of a rate, {ROUNDS:,} rounds, {ITEMS:,} items (median width)")
    for rate in (0.5, 0.2, 0.05):
        for humans in (50, 100, 300):
            rows = widths_and_hits(generator, rate, humans)
            cells = [f"{name} {100 * row[:, 0].mean():.1f}% ({np.median(row[:, 1]):.3f})" for name, row in rows.items()]
            print(f"  rate {rate:.2f}, {humans:3} human labels: {', '.join(cells)}")


if __name__ == "__main__":
    main()
