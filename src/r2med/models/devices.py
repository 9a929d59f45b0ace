"""The devices that models run on: which there are, and what to do when one is full."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from r2med.errors import R2medError, require_extra

ROUNDING = "MKL_CBWR"
"""The variable by which MKL, with which torch multiplies, is told how to round."""


def find_devices(wanted: str | Sequence[str]) -> tuple[str, ...]:
    """The devices behind a name: `auto` is every GPU there is, or else the processor; a list names several."""
    require_extra("torch", "torch")
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        if gpus:
            return tuple(f"cuda:{place}" for place in range(gpus))
        return ("mps",) if torch.backends.mps.is_available() else ("cpu",)
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    there = {"cpu", *(["mps"] if torch.backends.mps.is_available() else [])}
    there |= {f"cuda:{place}" for place in range(gpus)} | ({"cuda"} if gpus else set())
    for name in names:
        if name not in there:
            raise R2medError(f"device {name!r} is not here; this machine has {', '.join(sorted(there))}")
    if not names:
        raise R2medError("an empty list of devices")
    return names


def fix_rounding() -> None:
    """Have MKL round the same with any number of threads, so that a score does not depend on the host's processors.

    MKL reads the variable when it first multiplies: it must be set before that, and a caller who had torch compute
    something before has MKL's own default. Whatever the user has set stays.
    """
    os.environ.setdefault(ROUNDING, "AUTO,STRICT")


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on whatever device; torch is recognised by name, for it may not be installed."""
    return (
        isinstance(error, MemoryError)
        or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
        or "out of memory" in str(error).lower()
        or "can't allocate memory" in str(error).lower()
    )


def release_memory() -> None:
    """Give back what a failed batch left on the device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
