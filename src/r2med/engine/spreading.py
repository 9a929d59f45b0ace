"""An engine that has work done elsewhere, and how stages' helpers find out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from r2med.pipeline.engine import Engine

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.engine.work_blocks import Spread


class SpreadingEngine(Engine):
    """Runs what is small in this process, and spreads what comes in blocks."""

    @contextmanager
    def working(self, system: str, task: str) -> Iterator[None]:
        """Say what is being run, and let the clients of local models know where work can go."""
        with super().working(system, task):
            _CURRENT.append(self.spread)
            try:
                yield
            finally:
                _CURRENT.pop()

    def __init__(self, spread: Spread, console: Console | None = None, memory: int | None = None) -> None:
        super().__init__(console, memory)
        self.spread = spread


_CURRENT: list[Spread] = []


def current_spread() -> Spread | None:
    """How the system that is being run spreads its blocks, for what is far from its engine; None where it does not."""
    return _CURRENT[-1] if _CURRENT else None


def spread_of(engine: Engine) -> Spread | None:
    """How an engine spreads blocks; None for one that does everything itself."""
    return engine.spread if isinstance(engine, SpreadingEngine) else None
