"""Do the intervals cover the truth, and do the tests keep their promise when there is nothing to find?

Synthetic systems with known means, shaped like nDCG@10 on the eight tasks (many zeros, values in 0..1): the share of
95% intervals that contain the true mean or difference, for 9, 30 and 100 queries, of r2med's and of other kinds; and
the share of comparisons of two equally good systems that come out with p < 0.05, with as many queries as the real
tasks. They should be near 95% and 5%.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from r2med.measure.bootstrap import average_intervals, board_intervals, resampled_means, task_intervals
from r2med.measure.significance import difference, difference_interval

SIZES = (103, 77, 88, 97, 118, 150, 114, 129)
ROUNDS = 400
ZEROS = 0.45
"""The share of queries on which a system finds nothing."""
TRUTH = (1 - ZEROS) * 1.2 / 3.0

Ends = tuple[np.ndarray, np.ndarray]


def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of a system: zero for many queries, a beta distribution for the others."""
    return np.where(generator.random(shape) < ZEROS, 0.0, generator.beta(1.2, 1.8, size=shape))


def draw_differences(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences of two equally good systems that do the same on most queries."""
    shared = draw(generator, shape)
    one, other = (np.where(generator.random(shape) < 0.6, shared, draw(generator, shape)) for _ in range(2))
    return other - one


def percentile(values: np.ndarray) -> Ends:
    low, high = np.percentile(resampled_means(values), [2.5, 97.5], axis=1)
    return low, high


def bca(values: np.ndarray) -> Ends:
    """Percentiles corrected for bias and skewness."""
    drawn, means = resampled_means(values), values.mean(axis=1, keepdims=True)
    bias = ndtri(np.clip(((drawn < means).mean(axis=1) + (drawn <= means).mean(axis=1)) / 2, 1e-9, 1 - 1e-9))
    centred = values - means
    spread = np.maximum((centred**2).sum(axis=1), 1e-12)
    skew = (centred**3).sum(axis=1) / (6 * spread**1.5)
    ends = [ndtr(bias + (bias + z) / (1 - skew * (bias + z))) for z in ndtri([0.025, 0.975])]
    low, high = (np.array([np.quantile(row, q) for row, q in zip(drawn, end, strict=True)]) for end in ends)
    return low, high


def studentised(values: np.ndarray) -> Ends:
    """Resampled means over their own resampled standard errors."""
    drawn, means, spread = resampled_means(values), values.mean(axis=1), values.std(axis=1)
    own = np.sqrt(np.maximum(resampled_means(values**2) - drawn**2, 1e-30))
    low, high = np.quantile((drawn - means[:, None]) / own, [0.025, 0.975], axis=1)
    return means - high * spread, means - low * spread


def student(values: np.ndarray) -> Ends:
    """The t distribution's."""
    count, means = values.shape[1], values.mean(axis=1)
    half = stdtrit(count - 1, 0.975) * values.std(axis=1, ddof=1) / np.sqrt(count)
    return means - half, means + half


def expanded(values: np.ndarray) -> Ends:
    """Of means, as r2med has them."""
    found = task_intervals(values)
    return np.array([each.low for each in found]), np.array([each.high for each in found])


def inverted(values: np.ndarray) -> Ends:
    """Of differences, as r2med has them: what the randomisation test does not reject."""
    found = [difference_interval([row]) for row in values]
    return np.array([each.low for each in found]), np.array([each.high for each in found])


KINDS: dict[str, Callable[[np.ndarray], Ends]] = {
    "percentile": percentile,
    "BCa": bca,
    "studentised": studentised,
    "t": student,
    "expanded": expanded,
    "inverted test": inverted,
}


def print_coverage(generator: np.random.Generator) -> None:
    """How often each kind of interval holds the truth, and how wide it is at the median."""
    for what, make, truth in (("means", draw, TRUTH), ("differences", draw_differences, 0.0)):
        print(f"coverage of 95% intervals of {what}, {ROUNDS} rounds (median width)")
        for queries in (9, 30, 100):
            values = make(generator, (ROUNDS, queries))
            cells = []
            for name, kind in KINDS.items():
                if what == "means" and name == "inverted test":
                    continue
                low, high = kind(values)
                held = 100 * ((low <= truth) & (truth <= high)).mean()
                cells.append(f"{name} {held:.1f}% ({np.median(high - low):.3f})")
            print(f"  {queries:3} queries: {', '.join(cells)}")


def main() -> None:
    generator = np.random.default_rng(11)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    task_intervals(draw(generator, (3, 10_000)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"intervals of 3 systems on 10,000 queries: {time.perf_counter() - started:.2f} s, peak memory +{grown:.0f} MB"
    )
    print_coverage(generator)
    by_task = np.zeros(len(SIZES))
    average = 0
    for _ in range(ROUNDS):
        tasks, means = board_intervals({str(n): draw(generator, (1, n)) for n in SIZES})
        by_task += [found[0].low <= TRUTH <= found[0].high for found in tasks.values()]
        average += means[0].low <= TRUTH <= means[0].high
    print(f"coverage of 95% intervals, {ROUNDS} rounds: tasks {100 * by_task.mean() / ROUNDS:.1f}%, ", end="")
    print(f"average {100 * average / ROUNDS:.1f}%")

    wrong = {"randomisation": 0, "t-test": 0}
    for place in range(ROUNDS):
        found = difference([draw_differences(generator, (size,)) for size in SIZES], permutations=2_000, seed=place)
        wrong["randomisation"] += found.randomisation < 0.05
        wrong["t-test"] += found.t_test < 0.05
    for name, count in wrong.items():
        print(f"false positives of the {name} at 5%, {ROUNDS} rounds: {100 * count / ROUNDS:.1f}%")

    board = {str(size): draw(generator, (200, size)) for size in SIZES}
    started = time.perf_counter()
    board_intervals(board)
    print(f"intervals of 200 systems x 8 tasks, 10,000 resamples: {time.perf_counter() - started:.2f} s")
    assert len(average_intervals(list(board.values()))) == 200


if __name__ == "__main__":
    main()
