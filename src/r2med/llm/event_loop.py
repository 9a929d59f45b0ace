"""An event loop in a thread of its own, so that stages stay plain functions and Ctrl-C can be met with care."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from typing import Any, TypeVar

from r2med.errors import R2medError
from r2med.models.http import say_waiting

Value = TypeVar("Value")


class Interrupted(R2medError):
    """Ctrl-C while requests were under way."""


class Loop:
    """Starts when it is first needed. `halt` is told when to stop asking, `drain` waits for what is under way."""

    def __init__(
        self,
        halt: Callable[[R2medError], None],
        drain: Callable[[], Coroutine[Any, Any, None]],
        under_way: Callable[[], int],
        grace: float,
    ) -> None:
        self._halt = halt
        self._drain = drain
        self._under_way = under_way
        self._grace = grace
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine to its end and return its value in the calling thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("on the client's own loop, `await client.ask(...)`, and run blocking tools in a thread")
        try:
            loop = self._started()
        except OSError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._interrupt(loop, future)
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Run a plain function on the loop, or right here while it has not started."""
        if self._loop is None:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def close(self, shut: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `shut` on the loop and end the thread; nothing to do when it never started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        ending = asyncio.run_coroutine_threadsafe(_end(shut), loop)
        wait_for_futures([ending], timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        if not thread.is_alive():
            loop.close()

    def _interrupt(self, loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
        """Let what is under way finish, for a while; another Ctrl-C in this wait goes straight out."""
        loop.call_soon_threadsafe(self._halt, Interrupted("stopped by Ctrl-C; answers so far are kept"))
        say_waiting(self._under_way(), self._grace)
        try:
            drained = asyncio.run_coroutine_threadsafe(self._drain(), loop)
            wait_for_futures([drained, future], timeout=self._grace)
        finally:
            loop.call_soon_threadsafe(_cancel_all, loop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                _check_descriptors()
                self._loop = asyncio.new_event_loop()
                # A daemon: a second Ctrl-C must not wait for a server that hangs.
                self._thread = threading.Thread(target=self._loop.run_forever, name="r2med-llm", daemon=True)
                self._thread.start()
            return self._loop


def _check_descriptors() -> None:
    """Raise OSError if no event loop can be opened: one that fails half made prints a traceback when collected."""
    one, other = socket.socketpair()
    with one, other, one.dup():
        pass


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


async def _end(shut: Callable[[], Coroutine[Any, Any, None]]) -> None:
    this = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not this]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await shut()
