"""The connection between requests and one server: slots, rate limit, waits, retries, and giving up.

`Loop` is the event loop on which a client asks, with the handling of Ctrl-C.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from typing import Any, TypeVar

from r2med.errors import R2medError
from r2med.llm.budget import Budget, Limits
from r2med.llm.scripted import ScriptedServer
from r2med.llm.server import HttpServer
from r2med.llm.types import Model, RawAnswer, Request
from r2med.models.http import AttemptError, FatalServerError, Health, Pace, refused, say_waiting, with_attempts
from r2med.usage import Usage

Value = TypeVar("Value")
Server = HttpServer | ScriptedServer
_HOPELESS = 10  # requests to a model in a row that came to nothing, after all their retries, until it counts as dead


class Endpoint:
    """Connection to one server, with slots, rate limit, waits and retries. Lives on one event loop."""

    def __init__(self, server: Server, model: Model, limits: Limits, budget: Budget, halt: asyncio.Event) -> None:
        self._server, self._limits, self._budget, self._halt = server, limits, budget, halt
        self._slots = asyncio.Semaphore(min(limits.concurrency, model.parallel or limits.concurrency))
        self.under_way = 0  # requests that have a slot
        self._pace = Pace(limits.requests_per_minute)
        self._health: defaultdict[str, Health] = defaultdict(Health)

    def health(self, model: Model) -> Health:
        """Return the health of a model of this server; failures of other models do not count."""
        return self._health[model.id]

    def forget_outages(self) -> None:
        """Reset models that count as dead."""
        self._health.clear()

    async def ask(self, request: Request, keep: Callable[[RawAnswer], Awaitable[Value]]) -> Value:
        """Return what `keep` makes of the server's answer; raise `AttemptError` if all attempts fail. A slot is
        released once the answer is stored, so that a kill loses no more answers than slots.
        """
        health = self.health(request.model)
        async with self._slots:
            self.under_way += 1
            try:
                for attempt in range(self._limits.retries + 1):
                    health.check()
                    await self._wait(self._pace.turn())
                    try:
                        answer = await self._attempt(request)
                    except AttemptError as trouble:
                        await self._wait(self._wait_or_raise(trouble, attempt, health))
                    else:
                        health.answered, health.failures = True, 0
                        return await keep(answer)
            finally:
                self.under_way -= 1
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close the server."""
        await self._server.close()

    async def _attempt(self, request: Request) -> RawAnswer:
        hold = await self._budget.hold(request)
        try:
            if self._halt.is_set():
                raise AttemptError("stopped", retry=False)
            answer = await self._server.answer(request)
        except AttemptError as trouble:
            self._budget.lose(hold, billed=trouble.billed)
            raise
        except BaseException:
            self._budget.lose(hold, billed=True)
            raise
        read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
        cost = request.model.cost(read, written)
        self._budget.pay(hold, Usage(requests=1, prompt_tokens=read, completion_tokens=written, cost=cost))
        return answer

    def _wait_or_raise(self, trouble: AttemptError, attempt: int, health: Health) -> float:
        """Return the seconds until another attempt; if none may help, raise, for this request or for all of them."""
        if isinstance(trouble, FatalServerError):
            raise health.give_up(trouble.reason) from trouble
        wait = self._limits.wait(trouble, attempt, health, self._pace)
        if wait is not None and not self._halt.is_set():
            return wait
        if trouble.retry or not health.answered:
            # A model that has answered others may well refuse this one for what it says; that does not count.
            health.failures += 1
        if refused(trouble, health):
            raise health.give_up(trouble.reason) from trouble
        if health.failures >= _HOPELESS:
            gave_up = f"({health.failures} requests in a row gave up; answers so far are kept)"
            raise health.give_up(f"{trouble.reason} {gave_up}") from trouble
        raise AttemptError(with_attempts(trouble.reason, attempt + 1), retry=False) from trouble

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless everything stops."""
        if not self._halt.is_set():
            if seconds <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), seconds)
        if self._halt.is_set():
            raise AttemptError("stopped", retry=False)


class Loop:
    """Event loop in a thread, started when needed. `halt` stops new requests, `flights` are those under way."""

    def __init__(
        self,
        halt: Callable[[R2medError], None],
        flights: Mapping[str, asyncio.Task[Any]],
        under_way: Callable[[], int],
        grace: float,
    ) -> None:
        self._halt, self._flights, self._under_way, self._grace = halt, flights, under_way, grace
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine to its end and return its value in the calling thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("on the client's own loop, `await client.ask(...)`, and run blocking tools in a thread")
        with self._lock:
            if self._loop is None:
                try:
                    # OSError if no loop can be opened: a half-made one prints a traceback when it is collected.
                    one, other = socket.socketpair()
                    with one, other, one.dup():
                        pass
                except OSError:
                    work.close()
                    raise
                self._loop = asyncio.new_event_loop()
                # A daemon: a second Ctrl-C must not wait for a server that hangs.
                self._thread = threading.Thread(target=self._loop.run_forever, name="r2med-llm", daemon=True)
                self._thread.start()
            loop = self._loop
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(self._halt, R2medError("stopped by Ctrl-C; answers so far are kept"))
            say_waiting(self._under_way(), self._grace)

            async def drain() -> None:
                await asyncio.gather(*self._flights.values(), return_exceptions=True)

            try:
                drained: Future[Any] = asyncio.run_coroutine_threadsafe(drain(), loop)
                wait_for_futures((drained, future), timeout=self._grace)
            finally:
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Run a plain function on the loop, or directly if the loop has not started."""
        if self._loop is None:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def close(self, shut: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `shut` on the loop and end the thread; does nothing if it never started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await shut()

        wait_for_futures([asyncio.run_coroutine_threadsafe(end(), loop)], timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        if not thread.is_alive():
            loop.close()
