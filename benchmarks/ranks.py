"""Do intervals of ranks cover the true ranks?

Ten systems by a normal model: a query is equally hard for all of them (standard deviation 0.20), and each has its own
luck with it (0.15). Their true means are so many points apart, from the first to the last. Printed are the share of
true ranks that lie inside the interval, and the mean number of ranks in it: of r2med's, and of plain percentiles of
the resampled ranks. The first is promised to be at least 95%.
"""

from __future__ import annotations

import numpy as np

from r2med.measure.bootstrap import resampled_means
from r2med.measure.ranks import rank_intervals

ROUNDS, SYSTEMS = 200, 10


def percentiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Percentiles of the resampled ranks."""
    drawn = resampled_means(values)[:, :2000]
    ranks = 1 + (drawn[None] > drawn[:, None]).sum(axis=1)
    return (
        np.percentile(ranks, 2.5, axis=1, method="lower"),
        np.percentile(ranks, 97.5, axis=1, method="higher"),
    )


def main() -> None:
    """Print the table."""
    print("| queries | points between neighbours | covered | ranks held | percentiles: covered | ranks held |")
    print("|---:|---:|---:|---:|---:|---:|")
    generator, places = np.random.default_rng(20250514), np.arange(1, SYSTEMS + 1)
    for queries in (8, 30, 100, 800):
        for gap in (0.002, 0.01, 0.03):
            truth = -gap * np.arange(SYSTEMS)
            rows = []
            for _ in range(ROUNDS):
                values = generator.normal(0, 0.2, queries) + generator.normal(0, 0.15, (SYSTEMS, queries))
                values += truth[:, None]
                ranks = rank_intervals([values])
                for low, high in ((ranks.low, ranks.high), percentiles(values)):
                    rows.append((np.mean((low <= places) & (places <= high)), np.mean(high - low + 1)))
            ours, plain = np.mean(rows[::2], axis=0), np.mean(rows[1::2], axis=0)
            cells = f"{ours[0]:.1%} | {ours[1]:.1f} | {plain[0]:.1%} | {plain[1]:.1f}"
            print(f"| {queries} | {100 * gap:.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
