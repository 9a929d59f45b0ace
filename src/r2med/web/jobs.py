"""Work that a page starts and does not wait for: one job after another, in a thread of the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import Queue

from r2med.errors import R2medError

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
_KEPT = 20
"""Jobs that are remembered."""
Key = tuple[str, ...]
Told = Callable[[int, int], None]
"""Takes how many steps are done, and of how many."""


@dataclass(frozen=True)
class Job:
    """One piece of work, and what became of it."""

    number: int
    key: Key
    """What it does, so that it is not done twice at a time."""
    title: str
    page: str
    """Where its outcome can be seen."""
    state: str = WAITING
    done: int = 0
    total: int = 0
    error: str = ""
    started: float = 0.0
    ended: float = 0.0

    @property
    def active(self) -> bool:
        """Whether it has not come to its end."""
        return self.state in (WAITING, RUNNING)


class Jobs:
    """The jobs of one server, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._queue: Queue[tuple[int, Callable[[Told], None]]] = Queue()
        self._thread: threading.Thread | None = None

    def submit(self, key: Key, title: str, page: str, work: Callable[[Told], None]) -> Job:
        """Have something done; what is under way already is not begun again."""
        with self._lock:
            known = next((job for job in self._jobs.values() if job.key == key and job.active), None)
            if known is not None:
                return known
            job = Job(max(self._jobs, default=0) + 1, key, title, page)
            self._jobs[job.number] = job
            for number in [each.number for each in self._jobs.values() if not each.active][:-_KEPT]:
                del self._jobs[number]
            if self._thread is None:
                # A daemon, so that Ctrl-C need not wait for a search of minutes.
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        self._queue.put((job.number, work))
        return job

    def all(self) -> Sequence[Job]:
        """Every job that is remembered."""
        with self._lock:
            return list(self._jobs.values())

    def newest(self, *key: str) -> Job | None:
        """The last job whose key begins so."""
        return next((job for job in reversed(self.all()) if job.key[: len(key)] == key), None)

    def get(self, number: int) -> Job | None:
        """A job by its number."""
        with self._lock:
            return self._jobs.get(number)

    def wait(self) -> None:
        """Return when nothing is left to do."""
        self._queue.join()

    def _work(self) -> None:
        while True:
            number, work = self._queue.get()
            self._change(number, state=RUNNING, started=time.time())
            try:
                work(partial(self._tell, number))
            except R2medError as error:
                self._change(number, state=FAILED, error=str(error), ended=time.time())
            except Exception as error:  # a job that dies must not take the others with it
                self._change(number, state=FAILED, error=f"{type(error).__name__}: {error}", ended=time.time())
            else:
                self._change(number, state=DONE, ended=time.time())
            finally:
                self._queue.task_done()

    def _tell(self, number: int, done: int, total: int) -> None:
        self._change(number, done=done, total=total)

    def _change(self, number: int, **facts: object) -> None:
        with self._lock:
            self._jobs[number] = replace(self._jobs[number], **facts)  # type: ignore[arg-type]
