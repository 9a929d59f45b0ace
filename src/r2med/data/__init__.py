"""Tasks and their data: `load` gives a `Dataset` by a task's name or from a folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r2med.data.loader import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    # Whoever wants the name of a task does not want the readers of all layouts.
    if name == "load":
        return import_module("r2med.data.loader").load
    raise AttributeError(f"module 'r2med.data' has no attribute {name!r}")
