"""A Ray cluster: actors that load a model once, blocks dealt out to them, and every failure met by dealing again.

A worker writes its result to the storage that all hosts share and reports only that it has done so. A worker, a node
or the driver may be killed at any moment: what was written is found again, and at most the block that a worker was
busy with is computed twice.
"""

from __future__ import annotations

import logging
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2med.config import EngineSettings
from r2med.engine.work_blocks import BlockStore, SpreadJob, WorkBlock, Worker
from r2med.errors import R2medError, debug, require_extra

OLDEST = (2, 50)
_PATIENCE = 1.0
"""Seconds until the driver looks up from waiting: for nodes that came, and workers that take too long."""
_DEADLY = 3
"""Workers that may die of a block before it counts as the block's fault."""
_SLOW = 3.0
"""How many times the usual seconds a block may take before an idle worker tries it too."""
_LISTENING = 5.0
"""Seconds until a host counts as not there."""
_STARTING = 120.0
"""Seconds until a cluster without any worker is given up."""


class RayWorker:
    """The actor: a job's worker on some host."""

    def __init__(self, worker: Worker, place: str) -> None:
        self._worker, self._store, self._ready = worker, BlockStore(place), False

    def do(self, key: str, payload: bytes) -> str:
        """Compute a block and keep its result; says what is wrong where that is the input's fault."""
        try:
            if not self._ready:
                self._worker.load()
                self._ready = True
            self._store.put(key, self._worker.run(payload))
        except R2medError as error:
            return str(error)
        return ""


@dataclass
class _Actor:
    """A worker as the driver sees it."""

    handle: Any
    block: WorkBlock | None = None
    since: float = 0.0


@dataclass
class _Deal:
    """One job being done: who works on what."""

    keeps: bool = False
    actors: list[_Actor] = field(default_factory=list)
    pending: dict[Any, _Actor] = field(default_factory=dict)
    """Calls under way."""
    again: list[WorkBlock] = field(default_factory=list)
    """Blocks whose worker died."""
    deaths: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    """Blocks that an idle worker tried too, once they are there."""
    seconds: list[float] = field(default_factory=list)
    looked: float = 0.0
    born: float = field(default_factory=time.monotonic)

    def idle(self) -> Iterator[_Actor]:
        """The workers without work."""
        return (actor for actor in self.actors if actor.block is None)

    def open(self) -> list[_Actor]:
        """The workers at blocks that are not there yet."""
        return [actor for actor in self.pending.values() if actor.block and actor.block.key not in self.done]

    def working_on(self, key: str) -> int:
        """How many workers are at a block."""
        return sum(actor.block is not None and actor.block.key == key for actor in self.actors)

    def straggler(self) -> WorkBlock | None:
        """The block that has taken longest, if that is out of all proportion and only one worker is at it."""
        busy = self.open()
        if not busy or len(self.seconds) < 2:
            return None
        oldest = min(busy, key=lambda actor: actor.since)
        late = time.monotonic() - oldest.since > _SLOW * statistics.median(self.seconds) + _PATIENCE
        return oldest.block if late and oldest.block and self.working_on(oldest.block.key) == 1 else None


class RayCluster:
    """Deals blocks out to the actors of a cluster."""

    only_large = False
    merges = True

    def __init__(self, address: str, settings: EngineSettings) -> None:
        self._settings = settings
        self._ray = _connected(address)
        self._blocks = BlockStore(settings.blocks)
        self.shares_home = not settings.blocks

    @property
    def store(self) -> BlockStore:
        """Where workers leave their results."""
        return self._blocks

    def run(self, job: SpreadJob, blocks: Iterable[WorkBlock]) -> Iterator[tuple[WorkBlock, bytes]]:
        """Each block with its result, as it comes."""
        deal, source = _Deal(job.keeps), iter(blocks)
        worker = self._ray.put(job.worker)
        waiting: WorkBlock | None = None
        try:
            while True:
                self._grow(deal, worker)
                for actor in deal.idle():
                    waiting = waiting or self._next(deal, source)
                    # What an earlier driver had computed is only read.
                    while waiting is not None and (found := self.store.get(waiting.key)) is not None:
                        yield self._taken(deal, waiting, found)
                        waiting = self._next(deal, source)
                    chosen, waiting = waiting or deal.straggler(), None
                    if chosen is None:
                        break
                    self._send(deal, actor, chosen)
                if not deal.open() and waiting is None:
                    waiting = self._next(deal, source)
                    if waiting is None:
                        return
                yield from self._collected(deal)
        finally:
            for actor in deal.actors:
                self._ray.kill(actor.handle)

    def unfinished(self, job: str, missing: int, total: int) -> R2medError:
        """A cluster does everything, so that this is an error of the storage."""
        return R2medError(f"{job}: {missing:,} of {total:,} cannot be read back; is the disk failing?")

    def _next(self, deal: _Deal, source: Iterator[WorkBlock]) -> WorkBlock | None:
        while deal.again:
            block = deal.again.pop()
            if block.key not in deal.done:
                return block
        return next(source, None)

    def _send(self, deal: _Deal, actor: _Actor, block: WorkBlock) -> None:
        actor.block, actor.since = block, time.monotonic()
        deal.pending[actor.handle.do.remote(block.key, block.payload)] = actor

    def _taken(self, deal: _Deal, block: WorkBlock, content: bytes) -> tuple[WorkBlock, bytes]:
        """A result on its way to where it belongs, after which its file is not needed, unless the job says so."""
        if not deal.keeps:
            self.store.remove(block.key)
        return block, content

    def _collected(self, deal: _Deal) -> Iterator[tuple[WorkBlock, bytes]]:
        """What has come by now; waits a moment where nothing has."""
        if not deal.pending:
            time.sleep(_PATIENCE / 10)
            return
        ready, _ = self._ray.wait(list(deal.pending), num_returns=1, timeout=_PATIENCE)
        for call in ready:
            actor = deal.pending.pop(call)
            block, actor.block = actor.block, None
            assert block is not None
            try:
                said = self._ray.get(call)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
                debug(error)
                self._bury(deal, actor, block)
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise R2medError(f"a worker failed: {_last_line(error)}") from error
            if said:
                raise R2medError(said)
            deal.seconds.append(time.monotonic() - actor.since)
            if block.key in deal.done:
                continue
            deal.done.add(block.key)
            yield self._taken(deal, block, self._read(block))

    def _read(self, block: WorkBlock) -> bytes:
        content = self.store.get(block.key)
        if content is None:
            raise R2medError(
                f"a block was computed but is not in {self.store.place}: set blocks in [engine] of r2med.toml to"
                " storage that all hosts share"
            )
        return content

    def _bury(self, deal: _Deal, actor: _Actor, block: WorkBlock) -> None:
        """Have a dead worker's block done by another."""
        deal.actors.remove(actor)
        deal.looked = 0.0
        if block.key in deal.done:
            return
        deal.deaths[block.key] = deal.deaths.get(block.key, 0) + 1
        if deal.deaths[block.key] >= _DEADLY:
            raise R2medError(f"{_DEADLY} workers died of the same block: is there enough memory for the model?")
        deal.again.append(block)

    def _grow(self, deal: _Deal, worker: Any) -> None:
        """Start workers for what the cluster has by now: nodes come and go."""
        now = time.monotonic()
        if now - deal.looked < _PATIENCE:
            return
        deal.looked = now
        kind, each = self._device()
        room = self._room(kind, each)
        wanted = min(room, self._settings.workers) if self._settings.workers else room
        for _ in range(wanted - len(deal.actors)):
            deal.actors.append(_Actor(self._start(worker, kind, each)))
        if not deal.actors and now - deal.born > _STARTING:
            raise R2medError(f"the Ray cluster has no room for a worker ({each} {kind} each); see `ray status`")

    def _device(self) -> tuple[str, int]:
        """What a worker takes for itself: a GPU where there are any, otherwise some processors."""
        gpus = self._ray.cluster_resources().get("GPU", 0)
        return ("GPU", 1) if gpus else ("CPU", self._settings.threads)

    def _room(self, kind: str, each: int) -> int:
        """How many workers the living nodes have room for."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        return sum(int(node["Resources"].get(kind, 0) // each) for node in nodes)

    def _start(self, worker: Any, kind: str, each: int) -> Any:
        options = {"num_gpus": 1} if kind == "GPU" else {"num_cpus": each}
        actor = self._ray.remote(RayWorker)
        environment = {"env_vars": _environment(self._settings.threads)}
        placed = actor.options(scheduling_strategy="SPREAD", runtime_env=environment, max_restarts=0, **options)
        return placed.remote(worker, self.store.place)


def _environment(threads: int) -> dict[str, str]:
    """The variables of a worker: this package and the user's modules, where things are kept, and how many threads."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *(path for path in sys.path if path and not path.endswith(".zip")), str(Path.cwd())]
    kept = {name: value for name, value in os.environ.items() if name.startswith(("R2MED_", "HF_"))}
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "R2MED_THREADS"), str(threads))
    return kept | numbers | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _connected(address: str) -> Any:
    """The library, connected to the cluster at an address, to that of RAY_ADDRESS, or to one that is started now."""
    require_extra("ray", "ray")
    import ray

    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise R2medError(f"Ray {ray.__version__} is too old, {wanted} is needed: pip install 'r2med[ray]'")
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS", "")
    _check_listening(where)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except Exception as error:  # Ray raises plain exceptions too, where a cluster does not start in time
        debug(error)
        place = f"the Ray cluster at {where}" if where else "a Ray cluster on this machine"
        raise R2medError(f"{place} cannot be used: {_last_line(error)}") from error
    return ray


def _check_listening(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_LISTENING).close()
    except (OSError, OverflowError) as error:
        raise R2medError(f"no Ray cluster is listening at {address}; start one with `ray start --head`") from error


def _last_line(error: BaseException) -> str:
    """The line of an error that says what is wrong; a traceback of another process stands before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    versions = next((line for line in lines if "Version mismatch" in line), "")
    return (versions or (lines[-1] if lines else type(error).__name__))[:300]
