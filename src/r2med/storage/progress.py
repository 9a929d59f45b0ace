"""What is being worked on right now, by any process: a small file each, for whoever wants to look on.

A file is written a few times a second at the most, renamed into place so that it is whole, and gone when its work is
done. It is locked by its process, so that of a process which was killed is known, and removed by the next that looks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex

import orjson

from r2med.errors import R2medError
from r2med.storage.files import HeldFile, sweep
from r2med.storage.home import home

_EVERY = 0.4
"""Seconds between two writes."""
_STALE = 6 * 3600.0
"""Seconds without a sign after which nobody believes that work goes on."""


@dataclass(frozen=True)
class Work:
    """A system on a task, and how far its present step is."""

    process: int
    system: str
    task: str
    started: float
    updated: float
    step: str = ""
    done: float = 0.0
    total: float = 0.0
    job: int = 0
    """Which of the command's jobs this is, from 1; 0 where nobody said."""
    jobs: int = 0

    @property
    def share(self) -> float:
        """Of the present step, between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0


class ProgressFile:
    """Where this process says how far it is."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._written = 0.0
        self._held = HeldFile()
        self._name = ""
        self._jobs = (0, 0)

    def count(self, job: int, jobs: int) -> None:
        """Tell which of how many systems on tasks comes next."""
        self._jobs = (job, jobs)

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Tell others that a system is being run on a task, while the block runs."""
        before, now = self._work, time.time()
        job, jobs = self._jobs if before is None else (0, 0)
        self._work, self._written = Work(os.getpid(), system, task, now, now, job=job, jobs=jobs), 0.0
        if before is None:
            # In two containers one process id may be that of two processes.
            self._name = f"{os.getpid()}-{token_hex(4)}.json"
            _sweep()
        self._write()
        try:
            yield
        finally:
            self._work = before
            if before is None:
                self._held.remove()

    @property
    def current(self) -> Work | None:
        """What this process is working on."""
        return self._work

    def step(self, label: str, done: float, total: float) -> None:
        """Tell how far a step is; cheap enough for every item of a loop."""
        if self._work is None:
            return
        now = time.time()
        self._work = replace(self._work, step=label, done=done, total=total, updated=now)
        if now - self._written >= _EVERY:
            self._write()

    def _write(self) -> None:
        if self._work is None:
            return
        self._written = time.time()
        with suppress(OSError, R2medError):
            # A full disk must not stop the work that is only being told about.
            _folder().mkdir(parents=True, exist_ok=True)
            self._held.put(_folder() / self._name, orjson.dumps(asdict(self._work)))


account = ProgressFile()
"""The account of this process."""


def in_progress() -> list[Work]:
    """All work going on under this `R2MED_HOME`, the oldest first."""
    found = []
    _sweep()
    for path in sorted(_folder().glob("*.json")):
        try:
            work = Work(**orjson.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            # Gone since, or written by another version.
            continue
        if _alive(work.process) and time.time() - work.updated < _STALE:
            found.append(work)
    return sorted(found, key=lambda work: work.started)


def _sweep() -> None:
    """Remove what processes left behind that were killed."""
    with suppress(OSError, R2medError):
        for pattern in ("*.json", ".*.r2med-*", "*.draft"):
            sweep(_folder(), pattern)


def _folder() -> Path:
    return home() / "progress"


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
