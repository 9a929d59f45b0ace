"""Memory that is quick to come by: kept when it is free again, and in large pages where the system has them."""

from __future__ import annotations

import numpy as np

_KEPT = 24_000_000
"""Bytes of memory that stay at hand."""


def keep_memory_at_hand() -> None:
    """Have what follows take memory from pages that stay, of 2 MB and not of 4 KB where that can be asked for.

    To come by pages, and have them cleared, was a fifth of the time that ten thousand passages took. Nothing is taken
    by this; elsewhere than with Linux and glibc it has no effect.
    """
    # glibc gives large blocks back to the system until one has been freed; from then on blocks up to that size come
    # from its heap. numpy asks for large pages where it has an array of 4 MB or more, which holds for later use too.
    for _ in range(2):
        np.empty(_KEPT, dtype=np.uint8)
