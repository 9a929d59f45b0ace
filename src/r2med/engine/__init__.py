"""Where the work runs. Everything slow goes through `Engine.map`, so that no stage knows where that is."""

from r2med.engine.local import Engine, Progress, quiet

__all__ = ["Engine", "Progress", "quiet"]
