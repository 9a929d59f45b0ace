"""What work, and a system on a task, can be."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from r2med.store.process_mark import is_gone, is_here

WAITING, RUNNING, DONE, KEPT, FAILED, POSTPONED = "waiting", "running", "done", "kept", "failed", "postponed"
"""What a system on a task can be; `kept` was in the ledger already."""
FINISHED, STOPPED, BROKEN, KILLED = "finished", "stopped", "failed", "ended unexpectedly"
"""How work can end; `KILLED` is that of a process which is gone without having ended its work."""
_TELLING = 0.1
"""The share of a plan that tells how long the rest may take."""


@dataclass(frozen=True)
class PlannedCell:
    """One system on one task of a command that runs several."""

    system: str
    task: str
    state: str = WAITING
    score: float | None = None
    """By the headline, once it is known."""
    run: str = ""
    """The id of the run."""
    seconds: float = 0.0
    note: str = ""
    """Why it failed."""


@dataclass(frozen=True)
class MoneySpent:
    """What asking language models has cost a command so far."""

    requests: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """None once a price is unknown."""
    max_dollars: float | None = None
    max_tokens: int | None = None

    @property
    def share(self) -> float | None:
        """Of what may be spent, between 0 and 1; None where there is no limit."""
        shares = [
            spent / most
            for spent, most in ((self.dollars, self.max_dollars), (self.tokens, self.max_tokens))
            if most and spent is not None
        ]
        return min(1.0, max(shares)) if shares else None


@dataclass(frozen=True)
class Work:
    """What a process works on, and how far its present step is."""

    process: int
    system: str
    task: str
    started: float
    """Of the system on the task, or of the command where it has none."""
    updated: float
    step: str = ""
    done: float = 0.0
    total: float = 0.0
    job: int = 0
    """Which of the command's jobs this is, from 1; 0 where nobody said."""
    jobs: int = 0
    name: str = ""
    """Of the file, which nobody else has."""
    mark: str = ""
    """Of the process, by which a later one of the same number is told from it."""
    command: str = ""
    """What somebody typed, where it was typed."""
    page: str = ""
    """Where the outcome can be seen, for what a page asked for."""
    began: float = 0.0
    """When the command did."""
    step_began: float = 0.0
    cells: tuple[PlannedCell, ...] = ()
    """Every system on every task, task by task."""
    spent: MoneySpent | None = None
    warnings: tuple[str, ...] = ()
    ended: float = 0.0
    outcome: str = ""
    """One of `FINISHED`, `STOPPED`, `BROKEN` and `KILLED` when it has ended."""
    error: str = ""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Work as its file has it."""
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
        """Of the present step, between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def systems(self) -> list[str]:
        """The systems of a command that runs several, or one on several tasks."""
        return list(dict.fromkeys(cell.system for cell in self.cells))

    @property
    def tasks(self) -> list[str]:
        """The tasks of such a command."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def finished(self) -> int:
        """How many of its cells need no more work."""
        return sum(cell.state not in (WAITING, RUNNING) for cell in self.cells)

    @property
    def summary(self) -> str:
        """Say in a few words how it ended.

        >>> cells = (PlannedCell("a", "t", DONE), PlannedCell("b", "t", FAILED))
        >>> Work(1, "", "", 0.0, 0.0, cells=cells, outcome=FINISHED).summary
        '1 of 2 failed'
        """
        failed = sum(cell.state == FAILED for cell in self.cells)
        return f"{failed} of {len(self.cells)} failed" if failed and self.outcome == FINISHED else self.outcome

    def left(self, now: float) -> float | None:
        """About how many seconds are left; None as long as nothing tells.

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
        """Whether its process is another one of this machine."""
        named = self.mark.rpartition(" ")[0].endswith(f" {self.process}")
        return named and is_here(self.mark) and self.process != os.getpid() and not self.ended

    def stop(self) -> bool:
        """Have its process stop, as Ctrl-C does: what is finished is kept; whether there was one to be told."""
        if not self.stoppable or is_gone(self.mark):
            return False
        with suppress(OSError):
            # Commands take SIGTERM for Ctrl-C, also in the background; a session of Python takes SIGINT for it.
            os.kill(self.process, signal.SIGTERM if self.command else signal.SIGINT)
            return True
        return False
