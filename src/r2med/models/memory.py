"""Devices that models run on, out-of-memory errors, and a cache of loaded models."""

from __future__ import annotations

import atexit
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from r2med.errors import R2medError, require_extra

ROUNDING = "MKL_CBWR"
"""The variable by which MKL, with which torch multiplies, is told how to round."""


def find_devices(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the devices behind a name: `auto` is every GPU, or else the processor; a list names several."""
    require_extra("torch", "torch")
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    numbered, mps = tuple(f"cuda:{place}" for place in range(gpus)), ("mps",) * torch.backends.mps.is_available()
    if names == "auto":
        return numbered or mps or ("cpu",)
    names = (names,) if isinstance(names, str) else tuple(names)
    there = {"cpu", *mps, *numbered, *(["cuda"] if gpus else [])}
    for name in names:
        if name not in there:
            raise R2medError(f"device {name!r} is not here; this machine has {', '.join(sorted(there))}")
    if not names:
        raise R2medError("an empty list of devices")
    return names


def tokens_of(device: str) -> int:
    """Return the tokens of a batch to begin with: larger ones do not fit a processor's caches and are slower there."""
    return 4096 if device == "cpu" else 16_384


def fix_rounding() -> None:
    """Make MKL round the same with any number of threads; it reads the variable when it first multiplies."""
    os.environ.setdefault(ROUNDING, "AUTO,STRICT")


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out; torch is recognised by name, for it may not be installed."""
    return (
        isinstance(error, MemoryError)
        or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
        or "out of memory" in str(error).lower()
        or "can't allocate memory" in str(error).lower()
    )


def release_memory() -> None:
    """Release the memory that a failed batch left on the device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


Loaded = TypeVar("Loaded")


class ModelCache:
    """Loaded models, which have a method `close`, by what they were built from; the oldest make room for the next."""

    def __init__(self, limit: int = 20 << 30) -> None:
        self.limit = limit  # the bytes of weights that may be in memory at a time; a larger model may be there alone
        self._loaded: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def take(self, key: object, size: int, load: Callable[[], Loaded]) -> Loaded:
        """Return the model of a key, loading it if needed; older models are closed so that it fits."""
        if key not in self._loaded:
            while self._loaded and sum(other for _, other in self._loaded.values()) + size > self.limit:
                self._loaded.popitem(last=False)[1][0].close()
            self._loaded[key] = load(), size
        self._loaded.move_to_end(key)
        model: Loaded = self._loaded[key][0]
        return model

    def clear(self) -> None:
        """Close and remove every model."""
        while self._loaded:
            self._loaded.popitem()[1][0].close()


MODEL_CACHE = ModelCache()
"""The models of this process."""
atexit.register(MODEL_CACHE.clear)
