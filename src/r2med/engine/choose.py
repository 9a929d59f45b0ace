"""From what a user writes to an engine: `local`, `shard:3/16`, `ray`, `ray://host:10001`, `ray:host:6379`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.config.engine_settings import engine_settings
from r2med.engine.shards import Shards
from r2med.engine.spreading import SpreadingEngine
from r2med.errors import R2medError, suggest
from r2med.pipeline.engine import Engine

if TYPE_CHECKING:
    from rich.console import Console

_KINDS = ("local", "shard:3/16", "shard:merge/16", "ray", "ray:host:6379", "ray://host:10001")


def choose_engine(text: str = "", console: Console | None = None, memory: int | None = None) -> Engine:
    """The engine of a text, or of `[engine]` in the user's files where it is empty.

    >>> type(choose_engine("local")).__name__, choose_engine("shard:2/4").spread.number
    ('Engine', 2)
    """
    settings = engine_settings()
    chosen = text or settings.use
    if chosen == "local":
        return Engine(console, memory)
    kind, _, rest = chosen.partition(":")
    if kind == "shard":
        return SpreadingEngine(Shards.parse(rest), console, memory)
    if kind == "ray" and (not rest) == (chosen == "ray"):
        from r2med.engine.ray_cluster import RayCluster  # an extra

        return SpreadingEngine(RayCluster(chosen if rest.startswith("//") else rest, settings), console, memory)
    raise R2medError(f"unknown engine {chosen!r}{suggest(chosen, _KINDS)}")
