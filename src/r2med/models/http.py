"""When to ask again: what the server wished for, or a growing wait with some chance in it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_LONGEST = 60.0


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """How many seconds a server asks to be left alone: `Retry-After` in seconds or as a date, or in milliseconds.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after-ms": "300"}), retry_after({})
    (2.5, 0.3, None)
    >>> retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=45.0)
    15.0
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            wait = float(value) * scale
        except ValueError:
            wait = _until(value, time.time() if now is None else now)
        if 0 <= wait < float("inf"):
            return wait
    return None


def backoff(attempt: int, base: float, wished: float | None = None) -> float:
    """The wait before attempt number `attempt` (the first retry is 1): doubling, with chance, never less than wished.

    The chance keeps many requests that failed together from coming back together.
    """
    grown = min(_LONGEST, base * 2.0 ** min(attempt - 1, 30))
    if wished is None:
        return grown * random.uniform(0.5, 1.0)
    return wished + random.uniform(0.0, min(1.0, grown))


def _until(date: str, now: float) -> float:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except ValueError:
        return -1.0
