"""An engine that has work done elsewhere, and how stages' helpers find out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.pipeline.engine import Engine

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.engine.work_blocks import Spread


class SpreadingEngine(Engine):
    """Runs what is small in this process, and spreads what comes in blocks."""

    def __init__(self, spread: Spread, console: Console | None = None, memory: int | None = None) -> None:
        super().__init__(console, memory)
        self.spread = spread


def spread_of(engine: Engine) -> Spread | None:
    """How an engine spreads blocks; None for one that does everything itself."""
    return engine.spread if isinstance(engine, SpreadingEngine) else None
