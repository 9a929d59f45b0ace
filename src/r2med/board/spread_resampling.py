"""Intervals and tests of large boards, computed by others: some systems a block, every one with the same draws.

What is drawn depends on the task alone, and sums are exact, so a system's figures do not depend on who else is in its
block, nor on how many work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from r2med.engine.kept_results import results_in_order
from r2med.engine.spreading import current_spread
from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock, block_key, packed_columns, unpacked_columns
from r2med.measure.bootstrap import RESAMPLES, SEED, Interval, board_intervals
from r2med.measure.significance import PERMUTATIONS, randomisation_tests

Floats = NDArray[np.float64]

_SYSTEMS = 256
"""Systems of a block: a second or so of work."""
_LEAST = 4
"""A board of fewer blocks is computed here: to start workers would take longer."""


def large_board_intervals(board: Mapping[str, Floats]) -> tuple[dict[str, list[Interval]], list[Interval]]:
    """`board_intervals`, by whatever the engine of this moment spreads work over where the board is large."""
    systems = len(next(iter(board.values())))
    spread = _spread(systems)
    if spread is None:
        return board_intervals(board)
    payloads = [packed_columns(*(table[span] for table in board.values())) for span in _spans(systems)]
    found = np.concatenate(list(_computed(IntervalWorker(), payloads, spread)), axis=1)
    *by_task, average = ([Interval(*row) for row in rows] for rows in found.tolist())
    return dict(zip(board, by_task, strict=True)), average


def large_board_tests(several: Sequence[Sequence[Floats]]) -> list[float]:
    """`randomisation_tests`, likewise."""
    spread = _spread(len(several))
    if spread is None:
        return randomisation_tests(several)
    sizes = np.array([len(values) for values in several[0]])
    rows = np.stack([np.concatenate(list(tasks)) for tasks in several])
    payloads = [packed_columns(sizes, rows[span]) for span in _spans(len(several))]
    found: list[float] = np.concatenate(list(_computed(SignificanceWorker(), payloads, spread))).tolist()
    return found


def _spread(systems: int) -> Spread | None:
    return current_spread() if systems >= _LEAST * _SYSTEMS else None


def _spans(systems: int) -> Iterator[slice]:
    return (slice(start, start + _SYSTEMS) for start in range(0, systems, _SYSTEMS))


def _computed(
    worker: IntervalWorker | SignificanceWorker, payloads: Sequence[bytes], spread: Spread
) -> Iterator[Floats]:
    settings = str((worker.name, SEED, RESAMPLES, PERMUTATIONS)).encode()
    blocks = [WorkBlock(block_key(settings, payload), payload) for payload in payloads]
    job = SpreadJob(worker.name, worker, keeps=True)
    for _, result in results_in_order(spread, job, blocks, lambda _: None, stays=True):
        yield unpacked_columns(result)[0]


@dataclass(frozen=True)
class IntervalWorker:
    """Computes the intervals of some systems of a board, wherever it was sent to."""

    name: ClassVar = "intervals"

    def load(self) -> None:
        """There is no model."""

    def run(self, payload: bytes) -> bytes:
        """Tasks, and last their average, x systems x mean and ends."""
        by_task, average = board_intervals(dict(enumerate(unpacked_columns(payload))))
        return packed_columns(np.array([*by_task.values(), average]))


@dataclass(frozen=True)
class SignificanceWorker:
    """Tests some systems of a board, wherever it was sent to."""

    name: ClassVar = "tests"

    def load(self) -> None:
        """There is no model."""

    def run(self, payload: bytes) -> bytes:
        """The p-value of each system."""
        sizes, rows = unpacked_columns(payload)
        ends = np.cumsum(sizes)[:-1]
        return packed_columns(np.array(randomisation_tests([np.split(row, ends) for row in rows])))
