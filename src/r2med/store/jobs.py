"""Running and ended work of all processes under one `R2MED_HOME`: a row each in `jobs.sqlite`, for the progress page.

The row of work that was stopped or killed, or took a while, stays for a day. Readers recognise work of a killed
process: it is gone or, if it cannot be seen from here, has had no heartbeat for a while.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.store.cache import home
from r2med.store.processes import is_gone, is_here, process_mark
from r2med.store.sqlite import Database, Format
from r2med.usage import Usage

_FILE = "jobs.sqlite"
WAITING, RUNNING, DONE, KEPT, FAILED, POSTPONED = "waiting", "running", "done", "kept", "failed", "postponed"
"""States of a system on a task; `kept` was in the ledger already."""
FINISHED, STOPPED, BROKEN, KILLED = "finished", "stopped", "failed", "ended unexpectedly"
"""Outcomes of work; `KILLED` is that of a process which is gone without having ended its work."""
_EVERY = 0.4  # seconds between two writes
_BEAT, _DEAD = 5.0, 30.0  # seconds between two heartbeats, and without one until an unseen process counts as dead
_LONG = 1.0  # seconds after which work that was not stopped is worth remembering
_REMEMBERED, _MOST = 24 * 3600.0, 20  # seconds for which ended work is shown, and how much of it
_WARNINGS = 20  # warnings that a row holds, the last ones
_ESTIMABLE = 0.1  # the share of a plan that has to be done before the rest is estimated
_CREATE = "CREATE TABLE jobs (name TEXT PRIMARY KEY, beat REAL NOT NULL, work BLOB NOT NULL)"
_FORMAT = Format("table of jobs", 1, _CREATE, cache=True)


class PlannedCell(msgspec.Struct, frozen=True):
    """System on a task, of a command that runs several."""

    system: str
    task: str
    state: str = WAITING
    score: float | None = None  # the headline measure, once it is known
    run: str = ""  # its id
    seconds: float = 0.0
    note: str = ""  # the reason why it failed


class Work(msgspec.Struct, frozen=True):
    """Work of a process: a command, its plan of systems and tasks, its present step and its costs."""

    process: int
    system: str
    task: str
    started: float  # start of the system on the task, or of the command if it has none
    updated: float
    step: str = ""
    done: float = 0.0
    total: float = 0.0
    name: str = ""  # the key of its row
    mark: str = ""  # the mark of the process, which tells it from a later one with the same id
    command: str = ""  # the command line, if it was typed
    page: str = ""  # the address of the outcome, for work that a page started
    began: float = 0.0  # of the command
    step_began: float = 0.0
    cells: tuple[PlannedCell, ...] = ()  # every system on every task, task by task
    spent: Usage | None = None  # on language models so far
    max_cost: float | None = None
    max_tokens: int | None = None
    warnings: tuple[str, ...] = ()
    ended: float = 0.0
    outcome: str = ""  # `FINISHED`, `STOPPED`, `BROKEN` or `KILLED` once it has ended
    error: str = ""

    @property
    def share(self) -> float:
        """Return the share of the present step that is done, between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def spent_share(self) -> float | None:
        """Return the share of the spending limits that is used, between 0 and 1; None if there is no limit."""
        if self.spent is None:
            return None
        limits = ((self.spent.cost, self.max_cost), (self.spent.tokens, self.max_tokens))
        shares = [spent / most for spent, most in limits if most and spent is not None]
        return min(1.0, max(shares)) if shares else None

    @property
    def systems(self) -> list[str]:
        """Return the systems of a command that runs several, or one on several tasks."""
        return list(dict.fromkeys(cell.system for cell in self.cells))

    @property
    def tasks(self) -> list[str]:
        """Return the tasks of such a command."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def finished(self) -> int:
        """Count the cells that need no more work."""
        return sum(cell.state not in (WAITING, RUNNING) for cell in self.cells)

    @property
    def summary(self) -> str:
        """Return in a few words how it ended.

        >>> cells = (PlannedCell("a", "t", DONE), PlannedCell("b", "t", FAILED))
        >>> Work(1, "", "", 0.0, 0.0, cells=cells, outcome=FINISHED).summary
        '1 of 2 failed'
        """
        failed = sum(cell.state == FAILED for cell in self.cells)
        return f"{failed} of {len(self.cells)} failed" if failed and self.outcome == FINISHED else self.outcome

    def left(self, now: float) -> float | None:
        """Estimate the seconds that are left; return None if there is no basis for an estimate yet.

        >>> cells = (PlannedCell("a", "t", DONE, seconds=10.0), PlannedCell("b", "t", RUNNING), PlannedCell("c", "t"))
        >>> Work(1, "b", "t", started=100.0, updated=104.0, cells=cells).left(104.0)
        16.0
        """
        step = None
        if self.done and self.total and self.step_began:
            step = (now - self.step_began) * (self.total - self.done) / self.done
        states = [cell.state for cell in self.cells]
        seconds = [cell.seconds for cell in self.cells if cell.state == DONE]
        if not seconds or len(seconds) < _ESTIMABLE * (len(states) - states.count(KEPT)):
            return step if len(self.cells) <= 1 else None
        mean = sum(seconds) / len(seconds)
        present = max(mean - (now - self.started), step or 0.0, 0.0) if RUNNING in states else 0.0
        return mean * states.count(WAITING) + present

    @property
    def stoppable(self) -> bool:
        """Return whether its process is another one of this machine."""
        named = self.mark.rpartition(" ")[0].endswith(f" {self.process}")
        return named and is_here(self.mark) and self.process != os.getpid() and not self.ended

    def stop(self) -> bool:
        """Interrupt its process as Ctrl-C does: finished work is kept; return whether there was a process to signal."""
        if not self.stoppable or is_gone(self.mark):
            return False
        with suppress(OSError):
            # Commands take SIGTERM for Ctrl-C, also in the background; a session of Python takes SIGINT for it.
            os.kill(self.process, signal.SIGTERM if self.command else signal.SIGINT)
            return True
        return False

    def end(self, moment: float, outcome: str, error: str = "") -> Work:
        """Return this work as it ended."""
        cells = tuple(replace(cell, state=STOPPED) if cell.state == RUNNING else cell for cell in self.cells)
        return replace(self, cells=cells, ended=moment, outcome=outcome, error=error)


class Reporter:
    """Writer of the row of this process: there is none before the first step of its work, and one until its end."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._work: Work | None = None
        self._command: dict[str, Any] = {}
        self._depth = 0
        self._database: Database | None = None
        self._written, self._changed = 0.0, False
        self._ended: threading.Event | None = None  # set when the row is complete; None without a row

    @contextmanager
    def command(self, typed: str, page: str = "") -> Iterator[None]:
        """Publish the running command, from the first step of the block on."""
        before = self._command
        self._command = {"command": typed, "page": page, "began": time.time()}
        try:
            with self._reporting():
                yield
        finally:
            self._command = before

    @contextmanager
    def plan(self, systems: Sequence[str], tasks: Sequence[str]) -> Iterator[None]:
        """Publish the planned systems and tasks; inside another plan the outer one stays."""
        with self._reporting():
            work = self._present()
            if not work.cells:
                cells = tuple(PlannedCell(system, task) for task in tasks for system in systems)
                self._work = replace(work, cells=cells)
            yield

    @contextmanager
    def cell(self, system: str, task: str) -> Iterator[None]:
        """Publish that a system is being run on a task, while the block runs."""
        with self._reporting():
            before, now = self._present(), time.time()
            self._work = replace(before, system=system, task=task, started=now, step="", done=0.0, total=0.0)
            self.finish_cell(system, task, RUNNING)
            self._put()
            try:
                yield
            finally:
                with self._lock:
                    names = ("system", "task", "started", "step", "done", "total", "step_began")
                    self._work = replace(self._present(), **{name: getattr(before, name) for name in names})

    def finish_cell(self, system: str, task: str, state: str, **facts: Any) -> None:
        """Publish the state of a system on a task of the plan."""
        with self._lock:
            if self._work is None:
                return
            cells = tuple(
                replace(cell, state=state, **facts) if (cell.system, cell.task) == (system, task) else cell
                for cell in self._work.cells
            )
            # Of what the ledger has there may be thousands at a time.
            self._change(at_once=state != KEPT, cells=cells)

    def step(self, label: str, done: float, total: float) -> None:
        """Publish the progress of a step; cheap enough for every item of a loop."""
        with self._lock:
            if self._depth:
                work = self._present()
                began = work.step_began if work.step == label and done else time.time()
                self._change(step=label, done=done, total=total, step_began=began)

    def spend(self, spent: Usage, max_cost: float | None, max_tokens: int | None) -> None:
        """Publish the costs so far, and their limits."""
        with self._lock:
            if self._depth and self._work is not None:
                self._change(spent=spent, max_cost=max_cost, max_tokens=max_tokens)

    def warn(self, sentence: str) -> None:
        """Publish a warning before the work is done."""
        with self._lock:
            if self._work is not None and sentence not in self._work.warnings:
                self._change(at_once=True, warnings=(*self._work.warnings, sentence)[-_WARNINGS:])

    @property
    def current(self) -> Work | None:
        """Return what this process is working on."""
        return self._work if self._work is not None and self._work.system else None

    def _present(self) -> Work:
        if self._work is None:
            now, process = time.time(), os.getpid()
            # In two containers one process id may be that of two processes.
            facts = {"name": f"{process}-{os.urandom(4).hex()}", "mark": process_mark(), "began": now, **self._command}
            self._work = Work(process, "", "", now, now, **facts)
        return self._work

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Keep the row open until the outermost of such blocks is left."""
        self._depth += 1
        outcome, error = FINISHED, ""
        try:
            yield
        except BaseException as broken:
            kind = type(broken).__name__  # errors of click are unknown on this floor
            if isinstance(broken, KeyboardInterrupt) or kind == "Abort":
                outcome = STOPPED
            elif not isinstance(broken, SystemExit) and kind != "Exit":
                outcome, error = BROKEN, one_line(broken)
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._close(outcome, error)

    def _change(self, *, at_once: bool = False, **facts: Any) -> None:
        """Change facts of the work and write it, at the latest with the next beat; not without a row or a command."""
        self._work = replace(self._present(), updated=time.time(), **facts)
        if self._ended is None and not self._command:
            return
        self._changed = True
        if at_once or time.time() - self._written >= _EVERY:
            self._put()

    def _put(self) -> None:
        with self._lock:
            if self._work is None:
                return
            if self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._beat, args=(self._ended,), daemon=True).start()
            self._changed, self._written = False, time.time()
            self._store(self._work)

    def _beat(self, ended: threading.Event) -> None:
        """Write changes that came too soon after the last write, and show that the process is alive."""
        while not ended.wait(_EVERY):
            with self._lock:
                if not ended.is_set() and (self._changed or time.time() - self._written >= _BEAT):
                    self._put()

    def _close(self, outcome: str, error: str) -> None:
        """Complete the row, or remove that of short work; a user who stopped work looks for it, however short."""
        with self._lock:
            work, self._work = self._work, None
            ended, self._ended = self._ended, None
            if work is None or ended is None:
                return
            ended.set()
            if outcome == STOPPED or time.time() - work.began >= _LONG:
                self._store(work.end(time.time(), outcome, error))
            else:
                self._store(work, "DELETE FROM jobs WHERE name = ?")
            if self._database is not None:
                self._database.close()
                self._database = None

    def _store(self, work: Work, statement: str = "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)") -> None:
        """Change the row; a full disk must not stop the work that is only being reported."""
        with suppress(OSError, R2medError, UnicodeEncodeError):
            now = time.time()
            if self._database is None:
                self._database = Database(home() / _FILE, _FORMAT, timeout=1.0, shared=True)
                # Work that ended long ago is forgotten, and all but the last of what ended since.
                old = [(work.name,) for work in _latest_first(_decode_rows(self._database))[_MOST:]]
                with self._database.transaction() as connection:
                    connection.execute("DELETE FROM jobs WHERE beat < ?", (now - _REMEMBERED,))
                    connection.executemany("DELETE FROM jobs WHERE name = ?", old)
            with self._database.transaction() as connection:
                connection.execute(statement, (work.name, now, msgspec.json.encode(work))[: statement.count("?")])


reporter = Reporter()  # the reporter of this process


def running_work() -> list[Work]:
    """Return all running work under this `R2MED_HOME`, the oldest first."""
    return sorted((work for work in _read() if not work.ended), key=lambda work: work.started)


def ended_work() -> list[Work]:
    """Return the work that ended within a day, the last first."""
    since = time.time() - _REMEMBERED
    return _latest_first(work for work in _read() if work.ended > since)


def _latest_first(works: Iterable[Work]) -> list[Work]:
    return sorted((work for work in works if work.ended), key=lambda work: -work.ended)


def _read() -> list[Work]:
    with suppress(R2medError):
        if (path := home() / _FILE).is_file():
            with closing(Database(path, _FORMAT, timeout=1.0)) as database:
                return _decode_rows(database)
    return []


def _decode_rows(database: Database) -> list[Work]:
    """Decode all rows; work of dead processes ended with their last heartbeat."""
    works = []
    for content, beat in database.rows("SELECT work, beat FROM jobs"):
        with suppress(msgspec.MsgspecError):
            work = msgspec.json.decode(content, type=Work)
            silent = not is_here(work.mark) and time.time() - beat > _DEAD
            dead = not work.ended and (silent or is_gone(work.mark))
            works.append(work.end(beat, KILLED) if dead else work)
    return works
