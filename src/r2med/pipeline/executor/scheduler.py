"""The book of one job on a cluster: which worker is at which block, what is lost, and what takes too long.

It knows neither a library nor a network: whoever runs the workers tells it what happened, and when.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from r2med.errors import R2medError
from r2med.pipeline.executor.blocks import WorkBlock

PATIENCE = 1.0
"""Seconds until a driver looks up from waiting: for nodes that came, and workers that take too long."""
_DEADLY = 3
"""Workers that may die of a block, or while they load, before it is no accident."""
_SLOW = 3.0
"""How many times the usual seconds a block may take before an idle worker tries it too."""
_REMEMBERED = 64
"""Blocks whose seconds say what is usual."""


@dataclass(eq=False)
class DealtWorker:
    """A worker as the driver sees it; it gets blocks once it has loaded what it needs."""

    handle: Any
    ready: bool = False
    block: WorkBlock | None = None
    since: float = 0.0


@dataclass
class Deal:
    """Blocks that are dealt out as workers become free, each until its result is there."""

    source: Iterator[WorkBlock]
    keeps: bool = False
    """Whether results stay in the storage of blocks."""
    workers: list[DealtWorker] = field(default_factory=list)
    calls: dict[Any, DealtWorker] = field(default_factory=dict)
    """What the workers were asked and have not answered."""
    waiting: deque[WorkBlock] = field(default_factory=deque)
    """The next blocks of which no result is there."""
    looked: float = float("-inf")
    """When the cluster was last asked for room."""
    _lost: list[WorkBlock] = field(default_factory=list)
    _deaths: dict[str, int] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _twice: set[str] = field(default_factory=set)
    _most: int = 0
    """Workers that there were at the same time."""
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def next_block(self) -> WorkBlock | None:
        """A block that was lost, or else the next of the job."""
        while self._lost:
            block = self._lost.pop()
            if block.key not in self._done:
                return block
        return next(self.source, None)

    def take(self, now: float) -> WorkBlock | None:
        """What an idle worker should do now: a block that waits, or one that another is slow at."""
        return self.waiting.popleft() if self.waiting else self._straggler(now)

    def begin(self, worker: DealtWorker, block: WorkBlock, call: Any, now: float) -> None:
        """A worker was asked for a block."""
        if self._at(block.key):
            self._twice.add(block.key)
        worker.block, worker.since = block, now
        self.calls[call] = worker

    def answered(self, call: Any) -> tuple[DealtWorker, WorkBlock | None]:
        """Whose answer this is, and about which block; None for one that has loaded."""
        worker = self.calls.pop(call)
        block, worker.block = worker.block, None
        return worker, block

    def finished(self, worker: DealtWorker, block: WorkBlock, now: float) -> bool:
        """A worker has done a block; whether it is the first to."""
        self._seconds.append(now - worker.since)
        return self.keep(block)

    def keep(self, block: WorkBlock) -> bool:
        """The result of a block is there; whether that is news."""
        news = block.key not in self._done
        self._done.add(block.key)
        return news

    def bury(self, worker: DealtWorker, block: WorkBlock | None, why: str) -> None:
        """Have a dead worker's block done by another; it is no accident if that happens again and again."""
        most = self._most = max(self._most, len(self.workers))
        self.workers.remove(worker)
        self.looked = float("-inf")
        if block is not None and block.key in self._done:
            return
        key = block.key if block else ""
        self._deaths[key] = self._deaths.get(key, 0) + 1
        # A node that goes takes all its workers with it.
        if self._deaths[key] >= (_DEADLY if block else _DEADLY + most):
            raise R2medError(f"{self._deaths[key]} workers died {'of the same block' if block else 'loading'}: {why}")
        if block is not None:
            self._lost.append(block)

    def loaded(self, worker: DealtWorker) -> None:
        """A worker is ready, so that whatever killed others while they loaded has passed."""
        worker.ready = True
        self._deaths.pop("", None)

    def dismiss_beyond(self, room: int) -> list[DealtWorker]:
        """Workers that have no place any more and wait for one in vain, the latest first; they are let go."""
        starting = [worker for worker in reversed(self.workers) if not worker.ready]
        surplus = starting[: max(0, len(self.workers) - room)]
        self.workers = [worker for worker in self.workers if worker not in surplus]
        self.calls = {call: worker for call, worker in self.calls.items() if worker not in surplus}
        return surplus

    def free(self) -> list[DealtWorker]:
        """The workers without a block, those that still load among them."""
        return [worker for worker in self.workers if worker.block is None]

    def idle(self) -> list[DealtWorker]:
        """The workers that could do something."""
        return [worker for worker in self.free() if worker.ready]

    def at_work(self) -> bool:
        """Whether a result is still to come."""
        return bool(self._open())

    def left_over(self) -> set[str]:
        """Blocks whose result may come once more and is not kept: they are done, and several were asked for them."""
        return set() if self.keeps else self._twice & self._done

    def _at(self, key: str) -> list[DealtWorker]:
        return [worker for worker in self.workers if worker.block is not None and worker.block.key == key]

    def _open(self) -> list[WorkBlock]:
        blocks = (worker.block for worker in self.workers)
        return [block for block in blocks if block is not None and block.key not in self._done]

    def _straggler(self, now: float) -> WorkBlock | None:
        """The block that has been waited for longest, if that is out of all proportion; each try may take longer."""
        if not self._seconds:
            return None
        usual = _SLOW * statistics.median(self._seconds) + PATIENCE
        tries = {block.key: self._at(block.key) for block in self._open()}
        late = [
            (max(worker.since for worker in at), at[0].block)
            for at in tries.values()
            if now - max(worker.since for worker in at) > usual * len(at)
        ]
        return min(late, key=lambda each: each[0])[1] if late else None
