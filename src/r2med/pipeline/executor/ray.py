"""The executor of a Ray cluster: actors that load a model once, blocks assigned to them, and failed blocks retried.

A worker writes its result to the storage that all hosts share and reports only that it has done so. A worker, a node
or the driver may be killed at any moment: written results are found again, and at most the block that a worker was
busy with is computed twice.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import r2med
from r2med.errors import R2medError, debug, require_extra
from r2med.pipeline.executor.blocks import BlockStore, SpreadJob, WorkBlock, Worker
from r2med.pipeline.executor.scheduler import POLL_SECONDS, JobState, WorkerState
from r2med.settings import ExecutorSettings

OLDEST = (2, 50)
_LISTENING = 5.0
"""Seconds until a host counts as unreachable."""
_STARTING = 120.0
"""Timeout in seconds for a cluster without room for any worker."""
_PASSED = ("R2MED_", "HF_", "MKL_CBWR")
"""Prefixes of the environment variables that the driver passes to a worker."""
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")
"""Parts of the names of those that are sent to it directly, so that the cluster does not show them."""


class RayWorker:
    """Ray actor: a place on a host in which jobs' workers work one after another."""

    def __init__(self, place: str, version: str, secrets: Mapping[str, str]) -> None:
        os.environ.update(secrets)
        self._store, self._version = BlockStore(place), version
        self._worker: Worker | None = None

    def load(self, worker: Worker) -> str:
        """Load the worker of a job; a model of the last job is still loaded. Return what is wrong, or an empty text."""
        if r2med.__version__ != self._version:
            host = socket.gethostname()
            return f"{host} has r2med {r2med.__version__}, this is {self._version}: install the same on all hosts"
        try:
            worker.load()
        except R2medError as error:
            return str(error)
        self._worker = worker
        return ""

    def do(self, key: str, payload: bytes) -> str:
        """Compute a block and store its result; return what is wrong with the input, or an empty text."""
        assert self._worker is not None
        try:
            self._store.put(key, self._worker.run(payload))
        except R2medError as error:
            return str(error)
        return ""


class RayCluster:
    """Cluster that assigns blocks to its actors, which stay for the next job."""

    only_large = False
    merges = True

    def __init__(self, address: str, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._ray = _connected(address)
        self.store = BlockStore(settings.blocks)
        """Storage of the workers' results."""
        self._resting: list[Any] = []
        """Actors without a job; Ray ends them when there are no more references to them."""

    def run(self, job: SpreadJob, blocks: Iterable[WorkBlock]) -> Iterator[tuple[WorkBlock, bytes]]:
        """Yield each block with its result, as it arrives."""
        state, born = JobState(iter(blocks), job.keeps), time.monotonic()
        worker = self._ray.put(job.worker)
        try:
            while True:
                yield from self._stored(state)
                if not state.waiting and not state.at_work():
                    return
                yield from self._grow(state, worker, born)
                for actor in state.idle():
                    yield from self._stored(state)
                    block = state.take(time.monotonic())
                    if block is None:
                        break
                    call = actor.handle.do.remote(block.key, block.payload)
                    state.begin(actor, block, call, time.monotonic())
                yield from self._collected(state)
        finally:
            # Idle actors stay for the next job, slow duplicates are killed.
            for actor in state.workers:
                if actor.ready and actor.block is None:
                    self._resting.append(actor.handle)
                else:
                    self._ray.kill(actor.handle)
            for key in state.left_over():
                self.store.remove(key)

    def unfinished(self, job: str, missing: int, total: int) -> R2medError:
        """Return an error of the storage, since a cluster computes all blocks."""
        return R2medError(f"{job}: {missing:,} of {total:,} cannot be read back; is the disk failing?")

    def _stored(self, state: JobState, ahead: int = 1) -> Iterator[tuple[WorkBlock, bytes]]:
        """Yield results that an earlier driver or a lost worker computed; stop when this many blocks wait."""
        while len(state.waiting) < ahead and (block := state.next_block()) is not None:
            content = self.store.get(block.key)
            if content is None:
                state.waiting.append(block)
            elif state.keep(block):
                yield from self._handed_over(state, block, content)

    def _handed_over(self, state: JobState, block: WorkBlock, content: bytes) -> Iterator[tuple[WorkBlock, bytes]]:
        """Yield a result; remove its file once it has been consumed, unless the job keeps it."""
        yield block, content
        if not state.keeps:
            self.store.remove(block.key)

    def _collected(self, state: JobState) -> Iterator[tuple[WorkBlock, bytes]]:
        """Yield the results that have arrived by now; wait a moment if there are none."""
        if not state.calls:
            time.sleep(POLL_SECONDS / 10)
            return
        ready, _ = self._ray.wait(list(state.calls), num_returns=1, timeout=POLL_SECONDS)
        for call in ready:
            actor, block = state.answered(call)
            try:
                problem = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as error:
                raise R2medError(f"a worker failed: {_last_line(error)}") from error
            except self._ray.exceptions.RayError as error:
                debug(error)
                # An actor that is only unreachable would keep its place.
                self._ray.kill(actor.handle)
                state.replace_dead(actor, block, _last_line(error))
                continue
            if problem:
                raise R2medError(problem)
            if block is None:
                state.loaded(actor)
            elif state.finished(actor, block, time.monotonic()):
                content = self.store.get(block.key)
                if content is None:
                    raise R2medError(
                        f"a block was computed but is not in {self.store.place}: set blocks in [executor] of r2med.toml"
                        " to storage that all hosts share"
                    )
                yield from self._handed_over(state, block, content)

    def _grow(self, state: JobState, worker: Any, born: float) -> Iterator[tuple[WorkBlock, bytes]]:
        """Start as many actors as there is room for by now, since nodes come and go, but at most as many as blocks."""
        now = time.monotonic()
        if now - state.looked < POLL_SECONDS:
            return
        state.looked = now
        gpus = self._ray.cluster_resources().get("GPU", 0)
        kind, amount = ("GPU", 1) if gpus else ("CPU", self._settings.threads)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        room = sum(int(node["Resources"].get(kind, 0) // amount) for node in nodes)
        target = min(room, self._settings.workers) if self._settings.workers else room
        for actor in state.dismiss_beyond(target):
            self._ray.kill(actor.handle)
        while len(state.workers) < target:
            yield from self._stored(state, len(state.free()) + 1)
            if len(state.waiting) <= len(state.free()):
                break
            handle = self._resting.pop() if self._resting else self._start(kind, amount)
            actor = WorkerState(handle)
            state.workers.append(actor)
            state.calls[handle.load.remote(worker)] = actor
        if not state.workers and now - born > _STARTING:
            raise R2medError(f"the Ray cluster has no room for a worker ({amount} {kind} each); see `ray status`")

    def _start(self, kind: str, amount: int) -> Any:
        environment, secrets = _environment(self._settings.threads)
        actor = self._ray.remote(RayWorker).options(
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
            max_restarts=0,
            **({"num_gpus": 1} if kind == "GPU" else {"num_cpus": amount}),
        )
        return actor.remote(self.store.place, r2med.__version__, secrets)


def _environment(threads: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a worker (settings, threads, paths of the user's modules), and secrets."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    secrets = {name: value for name, value in passed.items() if any(word in name for word in _SECRET)}
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "R2MED_THREADS"), str(threads))
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *(path for path in sys.path if path and not path.endswith(".zip")), str(Path.cwd())]
    plain = {name: value for name, value in passed.items() if name not in secrets}
    return plain | numbers | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}, secrets


def _connected(address: str) -> Any:
    """Connect to the cluster at an address, of RAY_ADDRESS, or started now; return the library."""
    require_extra("ray", "ray")
    # Ray also reports errors as exceptions; its own lines would precede that of a command.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
    import ray

    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise R2medError(f"Ray {ray.__version__} is too old, {oldest} is needed: pip install 'r2med[ray]'")
    module: Any = getattr(ray._private, "worker", None)
    if hasattr(module, "print_to_stdstream"):
        module.print_to_stdstream = _print_when_debugging
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS", "")
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), timeout=_LISTENING).close()
        except (OSError, OverflowError) as error:
            raise R2medError(f"no Ray cluster is listening at {where}; start one with `ray start --head`") from error
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except Exception as error:  # Ray raises plain exceptions too, if a cluster does not start in time
        debug(error)
        if "InvalidAuthToken" in f"{error}{error.__cause__}{error.__context__}":
            raise R2medError(
                f"the Ray cluster at {where} asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to what is"
                " in ~/.ray/auth_token of its head"
            ) from error
        place = f"the Ray cluster at {where}" if where else "a Ray cluster on this machine"
        raise R2medError(f"{place} cannot be used: {_last_line(error)}") from error
    return ray


def _print_when_debugging(message: Mapping[str, Any], **_: object) -> None:
    debug(R2medError(" ".join(map(str, message.get("lines", ())))))


def _last_line(error: BaseException) -> str:
    """Return the line of an error that says what is wrong; a traceback of another process may precede it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    versions = next((line for line in lines if "Version mismatch" in line), "")
    return (versions or (lines[-1] if lines else type(error).__name__))[:300]
