"""An executor that has work done elsewhere, and how stages' helpers find out."""

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
    """Runs what is small in this process, and spreads what comes in blocks."""

    def __init__(self, spread: Spread, console: Console | None = None, memory: int | None = None) -> None:
        super().__init__(console, memory)
        self.spread = spread

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Say what is being run, and let the clients of local models know where work can go."""
        with super().working(system, task), spreading(self):
            yield


_CURRENT: list[Spread] = []


@contextmanager
def spreading(executor: Executor) -> Iterator[None]:
    """Let what is far from an executor, and is asked for in the block, spread its work as the executor does."""
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
    """How work is spread now, for what is far from its executor; None where it is not."""
    return _CURRENT[-1] if _CURRENT else None


def spread_of(executor: Executor) -> Spread | None:
    """How an executor spreads blocks; None for one that does everything itself."""
    return executor.spread if isinstance(executor, DistributedExecutor) else None


def every_share(parts: Iterable[Callable[[], Value]]) -> list[Value]:
    """What each part gives; where some are left to other shards, this one's share of all is done before it is said.

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
    """Say of which part it was that something was left to other shards."""
    try:
        yield
    except Postponed as share:
        raise Postponed("\n".join(f"{name}: {line}" for line in str(share).splitlines())) from share
