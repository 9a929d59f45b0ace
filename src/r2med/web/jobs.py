"""Jobs that a page starts and does not wait for: one after another, each in a process of its own.

A process can be stopped at any moment, gives its memory back, and reports its progress as every command does
(`r2med.store.jobs`). Nothing that it finished is lost: the same job, started again, goes on from there.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.cards import model_names
from r2med.web.addresses import whole_number

WAITING, RUNNING, STOPPING, DONE, FAILED, STOPPED = "waiting", "running", "stopping", "done", "failed", "stopped"
_KEPT = 20  # jobs that are remembered
Key = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One piece of work, and what became of it."""

    number: int
    key: Key  # what it does, so that it is not done twice at a time
    title: str
    page: str  # where its outcome can be seen
    command: tuple[str, ...]  # the words behind `python -m`
    state: str = WAITING
    process: int = 0
    error: str = ""
    started: float = 0.0
    ended: float = 0.0

    @property
    def active(self) -> bool:
        """Return whether it has not ended."""
        return self.state in (WAITING, RUNNING, STOPPING)


class Jobs:
    """The jobs of one server, oldest first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: dict[int, Job] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, key: Key, title: str, page: str, command: Sequence[str]) -> Job:
        """Submit a command; one that is under way already is not started again."""
        with self._changed:
            for job in self._jobs.values():
                if job.key == key and job.active:
                    return job
            job = Job(max(self._jobs, default=0) + 1, key, title, page, tuple(command))
            self._jobs[job.number] = job
            for number in [old.number for old in self._jobs.values() if not old.active][:-_KEPT]:
                del self._jobs[number]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job

    def all(self) -> Sequence[Job]:
        """Return every job that is remembered."""
        with self._changed:
            return list(self._jobs.values())

    def newest(self, *key: str) -> Job | None:
        """Return the last job whose key begins so."""
        return next((job for job in reversed(self.all()) if job.key[: len(key)] == key), None)

    def cancel(self, number: int) -> bool:
        """Stop a job as Ctrl-C does, or at once if called again; return whether there was one to stop."""
        with self._changed:
            job = self._jobs.get(number)
            if job is None or not job.active:
                return False
            if job.state == WAITING:
                self._change(number, state=STOPPED, ended=time.time())
            else:
                _signal(self._processes[number], signal.SIGKILL if job.state == STOPPING else signal.SIGTERM)
                self._change(number, state=STOPPING)
            return True

    def close(self) -> None:
        """Begin nothing more, and stop what is under way."""
        with self._changed:
            self._closed = True
            for job in list(self._jobs.values()):
                if job.state == WAITING:
                    self._change(job.number, state=STOPPED, ended=time.time())
            for process in self._processes.values():
                _signal(process, signal.SIGTERM)
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                job = None if self._closed else self._next()
                if job is None:
                    return
                # A process of its own group, so that Ctrl-C at the server's terminal does not reach it.
                process = self._processes[job.number] = subprocess.Popen(
                    [sys.executable, "-m", *job.command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env={**os.environ, "R2MED_PROGRESS": "0"},
                    start_new_session=True,
                )
                self._change(job.number, state=RUNNING, process=process.pid, started=time.time())
            with process:
                lines = deque((line.strip() for line in process.stderr or () if line.strip()), maxlen=1)
            error = lines[0].removeprefix("r2med: ") if lines else "it ended without a word"
            code = process.returncode
            with self._changed:
                del self._processes[job.number]
                stopping = self._jobs[job.number].state == STOPPING or code in (130, -signal.SIGTERM)
                state = DONE if code == 0 else STOPPED if stopping or self._closed else FAILED
                self._change(job.number, state=state, error=error if state == FAILED else "", ended=time.time())

    def _next(self) -> Job | None:
        return next((job for job in self._jobs.values() if job.state == WAITING), None)

    def _change(self, number: int, **facts: Any) -> None:
        self._jobs[number] = replace(self._jobs[number], **facts)
        self._changed.notify_all()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    # Commands take SIGTERM for Ctrl-C; SIGINT itself is ignored by what a server in the background starts.
    with suppress(OSError):
        process.send_signal(number)


_LEAST = 0.5  # US dollars that are offered as a limit at least: one long reply must fit in


@dataclass(frozen=True)
class JudgingOffer:
    """A model that may judge, and what that would take; nothing has been asked yet."""

    llm: str = ""
    name: str = ""  # what it is called among the reviewers; empty for the model's own name
    estimate: Estimate | None = None  # None where no model was named yet, or none that can be asked
    problem: str = ""

    @classmethod
    def of(cls, estimate: Callable[[], Estimate | None], llm: str, name: str = "") -> JudgingOffer:
        """Return an offer with its estimated cost, or the reason why the model cannot be asked."""
        try:
            return cls(llm, name, estimate()) if llm else cls()
        except R2medError as error:
            return cls(llm, name, problem=str(error))

    @property
    def known(self) -> Sequence[str]:
        """Return models to choose from."""
        return model_names()

    @property
    def limit(self) -> float | None:
        """Return the US dollars to offer as a limit; None if no price is known, so that no limit could be kept.

        >>> JudgingOffer(estimate=Estimate(10, 0, 5000, 4000, 0.4, 2.0)).limit
        0.8
        """
        cost = self.estimate.cost if self.estimate else None
        return None if cost is None else math.ceil(100 * max(_LEAST, 2 * cost)) / 100


def judging_limits(form: Mapping[str, str]) -> list[str]:
    """Return the spending limits of a form as options of a command."""
    dollars, tokens = form.get("max_cost", "").strip(), form.get("max_tokens", "").strip()
    if dollars:
        limit = math.nan
        with suppress(ValueError):
            limit = float(dollars)
        if not (math.isfinite(limit) and limit >= 0):
            raise R2medError(f"{dollars!r} is not a limit: write dollars as in 2.50")
        return [f"--max-cost={limit:.6f}"]
    if tokens and not whole_number(tokens):
        raise R2medError(f"{tokens!r} is not a limit: write a number of tokens")
    return [f"--max-tokens={tokens}"] if tokens else []
