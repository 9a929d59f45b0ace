"""Stages, encoders and verbs of other distributions, found by their entry points.

    [project.entry-points."r2med.stages"]  # or r2med.encoders, r2med.verbs
    shuffle = "my_package.shuffle:Shuffle"

A name of r2med itself is never looked up here.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from r2med.errors import R2medError, blame

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind")


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of equal names the first on the path."""
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(f"[{group}]" in file.read_text("utf-8", "replace") for file in files):
        return {}
    from importlib.metadata import entry_points  # takes as long as all the rest of `--help`

    return {point.name: point for point in reversed(entry_points(group=group))}


def load_plugin(group: str, name: str, kind: type[Kind]) -> Kind | None:
    """Import what an entry point names; None if there is none of the name."""
    point = plugins(group).get(name)
    if point is None:
        return None
    where = f"{name} of the package {point.dist.name}" if point.dist else name
    try:
        target = point.load()
    except Exception as error:  # whatever the code of others may raise is one line
        raise R2medError(f"{where} ({point.value}) cannot be imported: {blame(error)}") from error
    if not isinstance(target, kind):
        raise R2medError(f"{where} ({point.value}) is not a {kind.__name__}")
    return target
