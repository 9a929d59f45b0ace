"""Progress of running work of any process: a small file each, for observers such as the progress page.

A file is written a few times per second at most, renamed into place so that it is whole, and removed when its work is
done. It is locked by its process, so that the file of a killed process is recognised, and removed by the next observer.
What became of work that was stopped or killed, or took a while, is kept beside these files for some time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.store.cache import home
from r2med.store.files import HeldFile, make_private, remove_abandoned, sweep, write_file
from r2med.store.jobs import BROKEN, FINISHED, KEPT, KILLED, RUNNING, STOPPED
from r2med.store.process_mark import process_mark

if TYPE_CHECKING:
    from r2med.store.jobs import MoneySpent, Work

_EVERY = 0.4
"""Seconds between two writes."""
_STALE = 6 * 3600.0
"""Seconds without a heartbeat until work counts as dead."""
_LONG = 1.0
"""Seconds after which work that was not stopped is worth remembering."""
_REMEMBERED, _MOST = 24 * 3600.0, 20
"""Seconds for which finished work is shown, and how much of it."""
_WARNINGS = 20
"""Warnings that a file holds, the last ones."""


class ProgressFile:
    """Progress file of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._work: Work | None = None
        self._depth = 0
        self._written = 0.0
        self._held = HeldFile()
        self._open = False
        self._about: dict[str, Any] = {}
        self._late: threading.Timer | None = None

    @contextmanager
    def command(self, typed: str, page: str = "") -> Iterator[None]:
        """Publish the running command, from the first step of the block on."""
        before = self._about
        self._about = {"command": typed, "page": page, "began": time.time()}
        try:
            with self._lasting():
                yield
        finally:
            self._about = before

    @contextmanager
    def plan(self, systems: Sequence[str], tasks: Sequence[str]) -> Iterator[None]:
        """Publish the planned systems and tasks; inside another plan the outer one stays."""
        from r2med.store.jobs import PlannedCell

        with self._lasting():
            work = self._present()
            if work.cells:
                yield
                return
            self._work = replace(work, cells=tuple(PlannedCell(system, task) for task in tasks for system in systems))
            yield

    def finish(self, system: str, task: str, state: str, **facts: Any) -> None:
        """Publish the outcome of a system on a task of the plan."""
        with self._lock:
            work = self._work
            if work is None:
                return
            cells = tuple(
                replace(cell, state=state, **facts) if (cell.system, cell.task) == (system, task) else cell
                for cell in work.cells
            )
            self._work = replace(work, cells=cells, updated=time.time())
            # Of what the ledger has there may be thousands at a time.
            self._touch(at_once=state != KEPT)

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Publish that a system is being run on a task, while the block runs."""
        with self._lasting():
            before, now = self._present(), time.time()
            inner = bool(before.system)
            place = next((n for n, cell in enumerate(before.cells, 1) if (cell.system, cell.task) == (system, task)), 0)
            job, jobs = (0, 0) if inner else (place, len(before.cells))
            work = replace(before, system=system, task=task, started=now, updated=now, step="", done=0.0, total=0.0)
            self._work = replace(work, job=job, jobs=jobs)
            if place:
                self.finish(system, task, RUNNING)
            self._put()
            try:
                yield
            finally:
                with self._lock:
                    now_at = self._work or work
                    names = ("system", "task", "started", "step", "done", "total", "job", "jobs", "step_began")
                    self._work = replace(now_at, **{name: getattr(before, name) for name in names})

    @property
    def current(self) -> Work | None:
        """Return what this process is working on."""
        return self._work if self._work is not None and self._work.system else None

    def step(self, label: str, done: float, total: float) -> None:
        """Publish the progress of a step; cheap enough for every item of a loop."""
        with self._lock:
            if self._depth == 0:
                return
            work, now = self._present(), time.time()
            began = work.step_began if work.step == label and done else now
            self._work = replace(work, step=label, done=done, total=total, updated=now, step_began=began)
            self._touch()

    def spend(self, spent: MoneySpent) -> None:
        """Publish the costs so far."""
        with self._lock:
            if self._depth and self._work is not None:
                self._work = replace(self._work, spent=spent, updated=time.time())
                self._touch()

    def warn(self, sentence: str) -> None:
        """Publish a warning before the work is done."""
        with self._lock:
            if self._work is not None and sentence not in self._work.warnings:
                self._work = replace(self._work, warnings=(*self._work.warnings, sentence)[-_WARNINGS:])
                self._touch(at_once=True)

    def _present(self) -> Work:
        if self._work is None:
            from r2med.store.jobs import Work  # not needed without a progress file

            now = time.time()
            facts = {"began": now, **self._about}
            # In two containers one process id may be that of two processes.
            name = f"{os.getpid()}-{os.urandom(4).hex()}"
            self._work = Work(os.getpid(), "", "", now, now, name=name, mark=process_mark(), **facts)
        return self._work

    @contextmanager
    def _lasting(self) -> Iterator[None]:
        """Keep the file until the outermost of such blocks is left."""
        self._depth += 1
        outcome, error = FINISHED, ""
        try:
            yield
        except BaseException as broken:
            outcome, error = _outcome(broken)
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._close(outcome, error)

    def _close(self, outcome: str, error: str) -> None:
        with self._lock:
            work, self._work = self._work, None
            opened, self._open = self._open, False
            self._held.remove()
        if work is None or not opened:
            return
        # A user who stopped work looks for it, however short it was.
        if outcome == STOPPED or time.time() - work.began >= _LONG:
            _remember(replace(work, ended=time.time(), outcome=outcome, error=error))

    def _touch(self, *, at_once: bool = False) -> None:
        """Write what has changed, unless it was just written; nothing without an open file or a command."""
        if not (self._open or self._about):
            return
        wait = self._written + _EVERY - time.time()
        if at_once or wait <= 0:
            self._put()
        elif self._late is None:
            # The last change for a while is written, too.
            self._late = threading.Timer(wait, self._put_late)
            self._late.daemon = True
            self._late.start()

    def _put_late(self) -> None:
        """Write what came too soon after the last write, unless the work has ended."""
        with self._lock:
            self._late = None
            if self._open:
                self._write()

    def _put(self) -> None:
        """Write the file, whenever it was last written."""
        with self._lock:
            if not self._open:
                _sweep()
                self._open = True
            self._write()

    def _write(self) -> None:
        if self._work is None:
            return
        self._written = time.time()
        with suppress(OSError, R2medError):
            # A full disk must not stop the work that is only being reported.
            make_private(_folder())
            self._held.put(_folder() / f"{self._work.name}.json", _encoded(self._work))


account = ProgressFile()
"""The account of this process."""


def _outcome(error: BaseException) -> tuple[str, str]:
    """Return the outcome of work left by an error; a command may also end with an exit code, or by Ctrl-C."""
    name = type(error).__name__  # those of click too, which this floor does not know
    if isinstance(error, KeyboardInterrupt) or name == "Abort":
        return STOPPED, ""
    return (FINISHED, "") if isinstance(error, SystemExit) or name == "Exit" else (BROKEN, one_line(error))


def _remember(work: Work) -> None:
    """Store the outcome of ended work, and remove the oldest."""
    cells = tuple(replace(cell, state=STOPPED) if cell.state == RUNNING else cell for cell in work.cells)
    with suppress(OSError, R2medError):
        place = _folder() / "finished"
        write_file(place / f"{work.name}.json", _encoded(replace(work, cells=cells)), parents=True)
        kept = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-_MOST]:
            path.unlink(missing_ok=True)


def in_progress() -> list[Work]:
    """Return all running work under this `R2MED_HOME`, the oldest first."""
    _sweep()
    found = [work for path in sorted(_folder().glob("*.json")) if (work := _read(path)) is not None]
    now = time.time()
    alive = [work for work in found if _alive(work.process) and now - work.updated < _STALE]
    return sorted(alive, key=lambda work: work.started)


def ended_work() -> list[Work]:
    """Return the work that ended within a day, the last first."""
    found = [work for path in (_folder() / "finished").glob("*.json") if (work := _read(path)) is not None]
    now = time.time()
    return sorted((work for work in found if now - work.ended < _REMEMBERED), key=lambda work: -work.ended)


def anybody_works() -> bool:
    """Return whether there is any work."""
    return bool(in_progress())


def state_of_files() -> tuple[tuple[str, int], ...]:
    """Return the names and dates of the files, which differ whenever work was published, begun or ended."""
    found = []
    for place in (_folder(), _folder() / "finished"):
        with suppress(OSError), os.scandir(place) as files:
            for each in files:
                with suppress(OSError):
                    found.append((each.name, each.stat().st_mtime_ns))
    return tuple(sorted(found))


def _encoded(work: Work) -> bytes:
    import orjson  # which `r2med --help` must not load

    return orjson.dumps(asdict(work))


def _read(path: Path) -> Work | None:
    import orjson

    from r2med.store.jobs import Work

    try:
        return Work.from_json(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, AttributeError):
        # Gone since, or written by another version.
        return None


def _sweep() -> None:
    """Remove the files of processes that were killed, and store how far their work was."""
    with suppress(OSError, R2medError):
        for path in _folder().glob("*.json"):
            work = _read(path)
            if remove_abandoned(path) and work is not None:
                _remember(replace(work, ended=work.updated, outcome=KILLED))
        for pattern in (".*.r2med-*", "*.draft"):
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
