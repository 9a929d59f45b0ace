"""The executor: a loop with a progress bar, or a line per minute without a terminal; and how work is distributed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from r2med.errors import Postponed, R2medError
from r2med.settings import memory_limit
from r2med.store.jobs import reporter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

    from r2med.pipeline.executor.blocks import Spread

PACE = "R2MED_PROGRESS"
"""The variable with the seconds between two lines of progress without a terminal, 60 by default; 0 for none."""
Item = TypeVar("Item")
Value = TypeVar("Value")
_STARTS: list[Callable[[], None]] = []


def at_command_start(do: Callable[[], None]) -> Callable[[], None]:
    """Register a function to run whenever a command begins, such as giving every server another chance."""
    _STARTS.append(do)
    return do


def begin_command() -> None:
    """Run the functions registered for the beginning of a command."""
    for do in _STARTS:
        do()


class Progress(Protocol):
    """Progress bar."""

    def advance(self, amount: float = 1) -> None:
        """Advance by an amount."""


class _Steps:
    """Steps of some work: shown in a bar if there is one, and published to other processes."""

    def __init__(self, label: str, total: int, show: Callable[[float], None] | None) -> None:
        self._label, self._total, self._done, self._show = label, total, 0.0, show
        reporter.step(label, 0, total)

    def __str__(self) -> str:
        return _progress(self._label, self._done, self._total)

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        if self._show is not None:
            self._show(amount)
        reporter.step(self._label, self._done, self._total)


class Executor:
    """Executor that runs work in this process, or distributes what comes in blocks; silent without a console."""

    def __init__(
        self, console: Console | None = None, memory: int | None = None, *, spread: Spread | None = None
    ) -> None:
        self.console = console
        self.spread = spread
        """How work that comes in blocks is distributed; None if all of it runs in this process."""
        self._memory = memory
        self._telling = False

    @property
    def memory(self) -> int:
        """Return the bytes that building an index or a search may use beyond what it searches in."""
        return self._memory or memory_limit()

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Report a system on a task, to observers and in lines of progress, while the block runs."""

        def describe() -> str:
            work = reporter.current
            if work is None:
                return "working"
            step = f": {_progress(work.step, work.done, work.total)}" if work.step else ""
            return f"{work.task}, {work.system}{step}"

        with reporter.cell(system, task), self._lines(describe), spreading(self):
            yield

    @contextmanager
    def _lines(self, describe: Callable[[], str]) -> Iterator[None]:
        """Print lines of progress if no bar can be shown; inside other work that work prints them."""
        try:
            pace = max(0.0, float(os.environ.get(PACE, 60.0)))
        except ValueError as error:
            raise R2medError(f"{PACE}={os.environ[PACE]}: not a number of seconds") from error
        if self.console is None or self.console.is_terminal or self._telling or not pace:
            yield
            return
        console, ended, started = self.console, threading.Event(), time.monotonic()

        def tell() -> None:
            while not ended.wait(pace):
                console.print(f"{describe()}, {time.monotonic() - started:,.0f} s")

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        self._telling = True
        try:
            yield
        finally:
            self._telling = False
            ended.set()
            thread.join()

    @contextmanager
    def progress(self, label: str, total: int, unit: str = "") -> Iterator[Progress]:
        """Show a bar for `total` steps while the block runs; with a unit, its speed too."""
        if self.console is None or not self.console.is_terminal:
            steps = _Steps(label, total, None)
            with self._lines(steps.__str__):
                yield steps
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = [TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()]
        speed = [_speed_column(unit)] if unit else []
        with Bars(*columns, *speed, TimeRemainingColumn(), console=self.console, transient=True) as bars:
            work = reporter.current
            task = bars.add_task(f"{work.task}: {label}" if work else label, total=total)
            yield _Steps(label, total, lambda amount: bars.advance(task, amount))

    def map(self, label: str, function: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
        """Apply `function` to every item, in order, with a bar."""
        values = []
        with self.progress(label, len(items)) as bar:
            for item in items:
                values.append(function(item))
                bar.advance()
        return values


def _progress(label: str, done: float, total: float) -> str:
    return f"{label} {done:,.0f} of {total:,.0f}" if total else label


def _speed_column(unit: str) -> ProgressColumn:
    """Build a column with the units done per second."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class _Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.{0 if speed >= 10 else 1}f} {unit}/s")

    return _Speed()


def quiet() -> Executor:
    """Return an executor that shows nothing, for libraries and tests."""
    return Executor(None)


_CURRENT: list[Spread | None] = [None]


@contextmanager
def spreading(executor: Executor) -> Iterator[None]:
    """Let code without access to an executor distribute its work as the executor does, within the block."""
    _CURRENT.append(executor.spread or _CURRENT[-1])
    try:
        yield
    finally:
        _CURRENT.pop()


def current_spread() -> Spread | None:
    """Return how work is distributed now, for code without access to the executor; None if it is not."""
    return _CURRENT[-1]


def every_share(parts: Iterable[Callable[[], Value]]) -> list[Value]:
    """Run all parts and return their values; if some are left to other shards, raise that only after all have run.

    >>> every_share([lambda: 1, lambda: 2])
    [1, 2]
    """
    values, postponed = [], []
    for part in parts:
        try:
            values.append(part())
        except Postponed as share:
            postponed.append(share)
    if postponed:
        raise Postponed("\n".join(dict.fromkeys(map(str, postponed))))
    return values


@contextmanager
def postponed_as(name: str) -> Iterator[None]:
    """Label with its part what was left to other shards."""
    try:
        yield
    except Postponed as share:
        raise Postponed("\n".join(f"{name}: {line}" for line in str(share).splitlines())) from share
