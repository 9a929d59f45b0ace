"""Writes to the file of answers, gathered on the event loop: what comes at about the same time is one transaction.

Most of what a small transaction costs is the same for a large one. With hundreds of answers a second, one for each
would take longer than everything else that a client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from r2med.llm.reply_cache import FileInUse, ReplyCache

Value = TypeVar("Value")
_PATIENCE = 0.02
"""Seconds for which a write that nobody waits for is put off."""


class _Waiting(NamedTuple):
    work: Callable[[], Any]
    outcome: asyncio.Future[Any]


class GroupedWrites:
    """Lives on one event loop; the file is not opened before the first write."""

    def __init__(self, answers: Callable[[], ReplyCache]) -> None:
        self._answers = answers
        self._waiting: list[_Waiting] = []
        self._due: asyncio.Handle | None = None
        self._urgent = self._writing = False
        self._thread = ThreadPoolExecutor(1, "r2med-answers")

    async def write(self, work: Callable[[], Value], *, urgent: bool = True) -> Value:
        """What some work on the file returns, once it is committed; an urgent one takes all with it that wait."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Value] = loop.create_future()
        self._waiting.append(_Waiting(work, outcome))
        self._schedule(loop, urgent)
        return await outcome

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown()

    def _schedule(self, loop: asyncio.AbstractEventLoop, urgent: bool) -> None:
        if self._writing or (self._due is not None and (self._urgent or not urgent)):
            return
        if self._due is not None:
            self._due.cancel()
        self._urgent = urgent
        self._due = loop.call_soon(self._flush) if urgent else loop.call_later(_PATIENCE, self._flush)

    def _flush(self) -> None:
        """Write at once; beside the loop while another process holds the file, and then in the order of coming."""
        self._due = None
        waiting, self._waiting = self._waiting, []
        works = [each.work for each in waiting]
        try:
            found = self._answers().write(works, wait=False)
        except FileInUse:
            self._writing = True
            loop = asyncio.get_running_loop()
            later = loop.run_in_executor(self._thread, self._answers().write, works)
            later.add_done_callback(lambda done: self._written(waiting, done))
        except Exception as error:  # whatever it is, those who wait for the write are to hear of it
            _fail(waiting, error)
        else:
            _settle(waiting, found)

    def _written(self, waiting: list[_Waiting], done: asyncio.Future[list[Any]]) -> None:
        self._writing = False
        error = done.exception()
        if error is not None:
            _fail(waiting, error)
        else:
            _settle(waiting, done.result())
        if self._waiting:
            self._schedule(asyncio.get_running_loop(), urgent=True)


def _settle(waiting: list[_Waiting], values: list[Any]) -> None:
    for each, value in zip(waiting, values, strict=True):
        if not each.outcome.done():
            each.outcome.set_result(value)


def _fail(waiting: list[_Waiting], error: BaseException) -> None:
    for each in waiting:
        if not each.outcome.done():
            each.outcome.set_exception(error)
