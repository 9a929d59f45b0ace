"""A page that several ask for at once is made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

Made = TypeVar("Made")
_THREADS = 8
"""So many pages are made at a time: more only take turns, and let fewer requests share one."""


class SharedPages(Generic[Made]):
    """Makes pages in threads of their own.

    A request takes what is made for another if that had not been begun when it came, so that nobody is shown anything
    older than his own request.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._waiting: dict[str, asyncio.Task[Made]] = {}
        self._threads = threads

    @cached_property
    def _limiter(self) -> CapacityLimiter:
        # Made on the loop that uses it.
        return CapacityLimiter(self._threads)

    async def get(self, address: str, make: Callable[[], Made]) -> Made:
        """What `make` gives, here or for whoever asked for the same address and waits still."""
        task = self._waiting.get(address)
        if task is None:
            task = asyncio.ensure_future(to_thread.run_sync(self._begun, address, make, limiter=self._limiter))
            self._waiting[address] = task
            task.add_done_callback(_heard)
        # One who goes away takes nothing from the others.
        return await asyncio.shield(task)

    def _begun(self, address: str, make: Callable[[], Made]) -> Made:
        self._waiting.pop(address, None)
        return make()


def _heard(task: asyncio.Task[Made]) -> None:
    """Whoever waited has the error; nobody may be left."""
    if not task.cancelled():
        task.exception()
