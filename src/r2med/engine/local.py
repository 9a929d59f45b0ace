"""The engine of one process: a loop with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from r2med.store.progress import account

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

Item = TypeVar("Item")
Value = TypeVar("Value")


class Progress(Protocol):
    """A bar that can be moved on."""

    def advance(self, amount: float = 1) -> None:
        """Move on by so much."""


class _Silent:
    def advance(self, amount: float = 1) -> None:
        """Show nothing."""


class _Told:
    """A bar whose state other processes can see too."""

    def __init__(self, bar: Progress, label: str, total: int) -> None:
        self._bar, self._label, self._total, self._done = bar, label, total, 0.0
        account.step(label, 0, total)

    def advance(self, amount: float = 1) -> None:
        """Move on by so much."""
        self._done += amount
        self._bar.advance(amount)
        account.step(self._label, self._done, self._total)


class Engine:
    """Runs work in this process, with a bar on the given console or in silence."""

    def __init__(self, console: Console | None = None, memory: int = 1 << 29) -> None:
        self.console = console
        self.memory = memory
        """Bytes that a search may use beyond what it searches in."""

    @contextmanager
    def progress(self, label: str, total: int, unit: str = "") -> Iterator[Progress]:
        """A bar for `total` steps, shown while the block runs and gone afterwards; with a unit, its speed too."""
        with self._bar(label, total, unit) as bar:
            yield _Told(bar, label, total)

    @contextmanager
    def _bar(self, label: str, total: int, unit: str) -> Iterator[Progress]:
        if self.console is None or not self.console.is_terminal:
            yield _Silent()
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [_speed_column(unit), TimeRemainingColumn()] if unit else [TimeRemainingColumn()]
        with Bars(*columns, console=self.console, transient=True) as bars:
            task = bars.add_task(label, total=total)

            class _Bar:
                def advance(self, amount: float = 1) -> None:
                    bars.advance(task, amount)

            yield _Bar()

    def map(self, label: str, function: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
        """`function` of every item, in order, with a bar."""
        with self.progress(label, len(items)) as bar:
            values = []
            for item in items:
                values.append(function(item))
                bar.advance()
        return values


def _speed_column(unit: str) -> ProgressColumn:
    """A column with how many of the unit are done a second."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class _Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.{0 if speed >= 10 else 1}f} {unit}/s")

    return _Speed()


def quiet() -> Engine:
    """An engine that shows nothing, for libraries and tests."""
    return Engine(None)
