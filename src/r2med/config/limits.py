"""What work may take of the machine: memory and threads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r2med.config.settings_files import tables
from r2med.errors import R2medError

MEMORY = 2 << 30
"""Bytes of memory that large work may take unless told otherwise."""
_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_size(text: str) -> int | None:
    """A number of bytes as people write it; None when it is not one.

    >>> parse_size("1.5 GB"), parse_size("512mb"), parse_size("much")
    (1610612736, 536870912, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B|)", text.strip().upper())
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None


_memory_given: list[int] = []


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """Let this limit win over that of the files while the block runs; None leaves it to them."""
    _memory_given.extend([limit] if limit else [])
    try:
        yield
    finally:
        if limit:
            _memory_given.pop()


def thread_count() -> int:
    """How many threads work may use here: a worker among others says so by a variable."""
    given = os.environ.get("R2MED_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else os.cpu_count() or 1


def memory_limit() -> int:
    """The bytes of memory that large work may take: what the command says, or `[limits]` of the files, or 2 GB."""
    if _memory_given:
        return _memory_given[-1]
    limit = MEMORY
    for path, table in tables("limits"):
        limit = _limit(path, table) or limit
    return limit


def _limit(path: Path, table: Any) -> int | None:
    if not isinstance(table, dict) or set(table) - {"memory"}:
        raise R2medError(f'{path}: [limits] must hold a line such as memory = "2GB" and nothing else')
    if "memory" not in table:
        return None
    size = parse_size(table["memory"]) if isinstance(table["memory"], str) else None
    if size is None:
        raise R2medError(f'{path}: memory is {table["memory"]!r}, not a size such as "500MB" or "2GB"')
    return size
