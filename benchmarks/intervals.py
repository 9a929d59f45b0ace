"""Do the intervals cover the truth, and do the tests keep their promise when there is nothing to find?

Synthetic systems with known means, shaped like nDCG@10 on the eight tasks (many zeros, values in 0..1, as many
queries as the real tasks): the share of 95% intervals that contain the true mean, and the share of comparisons of two
equally good systems that come out with p < 0.05. Both should be near 95% and 5%.
"""

from __future__ import annotations

import time

import numpy as np

from r2med.measure.bootstrap import average_intervals, board_intervals
from r2med.measure.paired import difference

SIZES = (103, 77, 88, 97, 118, 150, 114, 129)
ROUNDS = 400
ZEROS = 0.45
"""The share of queries on which a system finds nothing."""


def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of a system: zero for many queries, a beta distribution for the others."""
    return np.where(generator.random(shape) < ZEROS, 0.0, generator.beta(1.2, 1.8, size=shape))


def main() -> None:
    generator = np.random.default_rng(11)
    truth = (1 - ZEROS) * 1.2 / 3.0
    by_task = np.zeros(len(SIZES))
    average = 0
    for _ in range(ROUNDS):
        tasks, means = board_intervals({str(n): draw(generator, (1, n)) for n in SIZES})
        by_task += [found[0].low <= truth <= found[0].high for found in tasks.values()]
        average += means[0].low <= truth <= means[0].high
    print(f"coverage of 95% intervals, {ROUNDS} rounds: tasks {100 * by_task.mean() / ROUNDS:.1f}%, ", end="")
    print(f"average {100 * average / ROUNDS:.1f}%")

    wrong = {"randomisation": 0, "t-test": 0}
    for place in range(ROUNDS):
        differences = []
        for size in SIZES:
            shared = draw(generator, (size,))
            own = [np.where(generator.random(size) < 0.6, shared, draw(generator, (size,))) for _ in range(2)]
            differences.append(own[1] - own[0])
        found = difference(differences, permutations=2_000, seed=place)
        wrong["randomisation"] += found.randomisation < 0.05
        wrong["t-test"] += found.t_test < 0.05
    for name, count in wrong.items():
        print(f"false positives of the {name} at 5%, {ROUNDS} rounds: {100 * count / ROUNDS:.1f}%")

    board = {str(size): draw(generator, (100, size)) for size in SIZES}
    started = time.perf_counter()
    board_intervals(board)
    print(f"intervals of 100 systems x 8 tasks, 10,000 resamples: {time.perf_counter() - started:.2f} s")
    assert len(average_intervals(list(board.values()))) == 100


if __name__ == "__main__":
    main()
