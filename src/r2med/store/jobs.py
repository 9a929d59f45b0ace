"""States of running and ended work: a command, its plan of systems and tasks, its present step and its costs."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from r2med.store.process_mark import is_gone, is_here

WAITING, RUNNING, DONE, KEPT, FAILED, POSTPONED = "waiting", "running", "done", "kept", "failed", "postponed"
"""States of a system on a task; `kept` was in the ledger already."""
FINISHED, STOPPED, BROKEN, KILLED = "finished", "stopped", "failed", "ended unexpectedly"
"""Outcomes of work; `KILLED` is that of a process which is gone without having ended its work."""
_TELLING = 0.1
"""The share of a plan that tells how long the rest may take."""


@dataclass(frozen=True)
class PlannedCell:
    """System on a task, of a command that runs several."""

    system: str
    task: str
    state: str = WAITING
    score: float | None = None
    """The headline measure, once it is known."""
    run: str = ""
    """The id of the run."""
    seconds: float = 0.0
    note: str = ""
    """The reason why it failed."""


@dataclass(frozen=True)
class MoneySpent:
    """Costs of language models of a command so far."""

    requests: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """None once a price is unknown."""
    max_dollars: float | None = None
    max_tokens: int | None = None

    @property
    def share(self) -> float | None:
        """Return the share of the limit that is spent, between 0 and 1; None if there is no limit."""
        shares = [
            spent / most
            for spent, most in ((self.dollars, self.max_dollars), (self.tokens, self.max_tokens))
            if most and spent is not None
        ]
        return min(1.0, max(shares)) if shares else None


@dataclass(frozen=True)
class Work:
    """Work of a process, and the progress of its present step."""

    process: int
    system: str
    task: str
    started: float
    """Start of the system on the task, or of the command if it has none."""
    updated: float
    step: str = ""
    done: float = 0.0
    total: float = 0.0
    job: int = 0
    """The number of this job among the command's, from 1; 0 if unknown."""
    jobs: int = 0
    name: str = ""
    """The name of its file, which is unique."""
    mark: str = ""
    """The mark of the process, which tells it from a later one with the same id."""
    command: str = ""
    """The command line, if it was typed."""
    page: str = ""
    """The address of the outcome, for work that a page started."""
    began: float = 0.0
    """Start of the command."""
    step_began: float = 0.0
    cells: tuple[PlannedCell, ...] = ()
    """Every system on every task, task by task."""
    spent: MoneySpent | None = None
    warnings: tuple[str, ...] = ()
    ended: float = 0.0
    outcome: str = ""
    """`FINISHED`, `STOPPED`, `BROKEN` or `KILLED` once it has ended."""
    error: str = ""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build work from the content of its file."""
        cells, spent = content.pop("cells", ()), content.pop("spent", None)
        told = tuple(content.pop("warnings", ()))
        return cls(
            **content,
            cells=tuple(PlannedCell(**cell) for cell in cells),
            spent=None if spent is None else MoneySpent(**spent),
            warnings=told,
        )

    @property
    def share(self) -> float:
        """Return the share of the present step that is done, between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

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
        step = self._left_of_step(now)
        if not self.cells:
            return step
        made = [cell.seconds for cell in self.cells if cell.state == DONE]
        planned = sum(cell.state != KEPT for cell in self.cells)
        if not made or len(made) < _TELLING * planned:
            return step if len(self.cells) == 1 else None
        waiting = sum(cell.state == WAITING for cell in self.cells)
        running = any(cell.state == RUNNING for cell in self.cells)
        mean = sum(made) / len(made)
        return mean * waiting + (max(mean - (now - self.started), step or 0.0, 0.0) if running else 0.0)

    def _left_of_step(self, now: float) -> float | None:
        if not self.done or not self.total or not self.step_began:
            return None
        return (now - self.step_began) * (self.total - self.done) / self.done

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
