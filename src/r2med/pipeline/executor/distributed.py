"""The executor that distributes work, and how stages' helpers find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from r2med.errors import Postponed
from r2med.pipeline.executor.local import Executor

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.pipeline.executor.blocks import Spread

Value = TypeVar("Value")


class DistributedExecutor(Executor):
    """Executor that runs small work in this process, and distributes work that comes in blocks."""

    def __init__(self, spread: Spread, console: Console | None = None, memory: int | None = None) -> None:
        super().__init__(console, memory)
        self.spread = spread

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Report what is being run, and let the clients of local models distribute work in the block."""
        with super().working(system, task), spreading(self):
            yield


_CURRENT: list[Spread] = []


@contextmanager
def spreading(executor: Executor) -> Iterator[None]:
    """Let code without access to an executor distribute its work as the executor does, within the block."""
    spread = spread_of(executor)
    if spread is None:
        yield
        return
    _CURRENT.append(spread)
    try:
        yield
    finally:
        _CURRENT.pop()


def current_spread() -> Spread | None:
    """Return how work is distributed now, for code without access to the executor; None if it is not."""
    return _CURRENT[-1] if _CURRENT else None


def spread_of(executor: Executor) -> Spread | None:
    """Return how an executor distributes blocks; None if it runs everything in this process."""
    return executor.spread if isinstance(executor, DistributedExecutor) else None


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
