"""Scheduler state of one job on a cluster: the block of each worker, lost blocks, and blocks that take too long.

It knows neither a library nor a network: the driver of the workers reports events with their times.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from r2med.errors import R2medError
from r2med.pipeline.executor.blocks import WorkBlock

POLL_SECONDS = 1.0
"""Seconds between two checks for new nodes and for workers that take too long."""
_MAX_DEATHS = 3
"""Workers that may die of a block, or while they load, until it is an error."""
_SLOW_FACTOR = 3.0
"""Factor of the median seconds that a block may take before an idle worker tries it too."""
_MEDIAN_OF = 64
"""Number of last blocks whose seconds enter the median."""


@dataclass(eq=False)
class WorkerState:
    """Worker as the driver sees it; it gets blocks once it has loaded its model."""

    handle: Any
    ready: bool = False
    block: WorkBlock | None = None
    since: float = 0.0


@dataclass
class JobState:
    """Blocks that are assigned to free workers, each until its result has arrived."""

    source: Iterator[WorkBlock]
    keeps: bool = False
    """Whether results stay in the storage of blocks."""
    workers: list[WorkerState] = field(default_factory=list)
    calls: dict[Any, WorkerState] = field(default_factory=dict)
    """Calls to workers that are not answered yet."""
    waiting: deque[WorkBlock] = field(default_factory=deque)
    """The next blocks without a result."""
    looked: float = float("-inf")
    """Time at which the cluster was last asked for room."""
    _lost: list[WorkBlock] = field(default_factory=list)
    _deaths: dict[str, int] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _twice: set[str] = field(default_factory=set)
    _most: int = 0
    """Largest number of workers at the same time."""
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_MEDIAN_OF))

    def next_block(self) -> WorkBlock | None:
        """Return a block that was lost, or else the next of the job."""
        while self._lost:
            block = self._lost.pop()
            if block.key not in self._done:
                return block
        return next(self.source, None)

    def take(self, now: float) -> WorkBlock | None:
        """Return the next block for an idle worker: one that waits, or one that another worker is slow at.

        A slow one is that waited for longest, if much longer than usual; each try may take longer.
        """
        if self.waiting:
            return self.waiting.popleft()
        if not self._seconds:
            return None
        usual = _SLOW_FACTOR * statistics.median(self._seconds) + POLL_SECONDS
        tries = {block.key: self._at(block.key) for block in self._open()}
        begun = [(max(worker.since for worker in at), at) for at in tries.values()]
        late = [(since, at[0].block) for since, at in begun if now - since > usual * len(at)]
        return min(late, key=itemgetter(0))[1] if late else None

    def begin(self, worker: WorkerState, block: WorkBlock, call: Any, now: float) -> None:
        """Record that a worker was asked for a block."""
        if self._at(block.key):
            self._twice.add(block.key)
        worker.block, worker.since = block, now
        self.calls[call] = worker

    def answered(self, call: Any) -> tuple[WorkerState, WorkBlock | None]:
        """Return the worker of a call and its block; None for a worker that has loaded."""
        worker = self.calls.pop(call)
        block, worker.block = worker.block, None
        return worker, block

    def finished(self, worker: WorkerState, block: WorkBlock, now: float) -> bool:
        """Record that a worker has done a block; return whether it is the first to do so."""
        self._seconds.append(now - worker.since)
        return self.keep(block)

    def keep(self, block: WorkBlock) -> bool:
        """Record that the result of a block exists; return whether it is new."""
        news = block.key not in self._done
        self._done.add(block.key)
        return news

    def replace_dead(self, worker: WorkerState, block: WorkBlock | None, why: str) -> None:
        """Reassign a dead worker's block; raise an error if workers die of it repeatedly."""
        most = self._most = max(self._most, len(self.workers))
        self.workers.remove(worker)
        self.looked = float("-inf")
        if block is not None and block.key in self._done:
            return
        key = block.key if block else ""
        self._deaths[key] = self._deaths.get(key, 0) + 1
        # All workers of a node die with it.
        if self._deaths[key] >= (_MAX_DEATHS if block else _MAX_DEATHS + most):
            raise R2medError(f"{self._deaths[key]} workers died {'of the same block' if block else 'loading'}: {why}")
        if block is not None:
            self._lost.append(block)

    def loaded(self, worker: WorkerState) -> None:
        """Record that a worker is ready: the cause of deaths while loading has passed."""
        worker.ready = True
        self._deaths.pop("", None)

    def dismiss_beyond(self, room: int) -> list[WorkerState]:
        """Return workers that wait for a place in vain, the latest first, and remove them."""
        starting = [worker for worker in reversed(self.workers) if not worker.ready]
        surplus = starting[: max(0, len(self.workers) - room)]
        self.workers = [worker for worker in self.workers if worker not in surplus]
        self.calls = {call: worker for call, worker in self.calls.items() if worker not in surplus}
        return surplus

    def free(self) -> list[WorkerState]:
        """Return the workers without a block, including those that still load."""
        return [worker for worker in self.workers if worker.block is None]

    def idle(self) -> list[WorkerState]:
        """Return the workers that are ready and without a block."""
        return [worker for worker in self.free() if worker.ready]

    def at_work(self) -> bool:
        """Return whether a result is still to come."""
        return bool(self._open())

    def left_over(self) -> set[str]:
        """Return blocks whose result may arrive again and is not kept: they are done, and several workers had them."""
        return set() if self.keeps else self._twice & self._done

    def _at(self, key: str) -> list[WorkerState]:
        return [worker for worker in self.workers if worker.block is not None and worker.block.key == key]

    def _open(self) -> list[WorkBlock]:
        blocks = (worker.block for worker in self.workers)
        return [block for block in blocks if block is not None and block.key not in self._done]
