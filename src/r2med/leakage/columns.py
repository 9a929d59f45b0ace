"""Columns of numbers that are kept in the cache and read from their files as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.store.cache import Cache

Columns = Mapping[str, NDArray[Any]]


def kept(cache: Cache, kind: str, key: str, names: tuple[str, ...], make: Callable[[], Columns]) -> Columns:
    """The columns of an entry, made now if it is not there, and again if it is damaged."""

    def build(folder: Path) -> None:
        for name, column in make().items():
            np.save(folder / f"{name}.npy", column, allow_pickle=False)

    folder = cache.sound_entry(kind, key, build)
    # Views, because slicing a `memmap` itself goes through slow Python code.
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in names}
