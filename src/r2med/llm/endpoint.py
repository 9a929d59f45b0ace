"""Everything between a request and one server: slots, pace, waits, retries, and knowing when to give up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from r2med.llm.budget import Budget, Limits
from r2med.llm.http_server import Server
from r2med.llm.types import Model, RawAnswer, Request
from r2med.models.http import AttemptError, FatalServerError, Pace, heed_wait, refused, with_attempts
from r2med.models.servers import Health

Value = TypeVar("Value")
_HOPELESS = 10
"""Requests to a model in a row that came to nothing, after all their retries, until it counts as dead."""


class Endpoint:
    """One server with the manners of a good client. Lives on one event loop."""

    def __init__(self, server: Server, model: Model, limits: Limits, budget: Budget, halt: asyncio.Event) -> None:
        self._server = server
        self._limits = limits
        self._budget = budget
        self._halt = halt
        self._slots = asyncio.Semaphore(min(limits.concurrency, model.parallel or limits.concurrency))
        self.under_way = 0
        """Requests that have a slot."""
        self._pace = Pace(limits.requests_per_minute)
        self._health: defaultdict[str, Health] = defaultdict(Health)

    def health(self, model: Model) -> Health:
        """How a model of this server has fared; a neighbour's faults are not its own."""
        return self._health[model.id]

    def forget_outages(self) -> None:
        """Ask models again that counted as dead."""
        self._health.clear()

    async def ask(self, request: Request, keep: Callable[[RawAnswer], Awaitable[Value]]) -> Value:
        """What `keep` makes of the server's answer, after as many attempts as it takes; `AttemptError` when they are
        used up. A slot is free again once the answer is kept, so that a kill loses no more answers than slots."""
        health = self.health(request.model)
        async with self._slot():
            for attempt in range(self._limits.retries + 1):
                health.check()
                await self._wait(self._pace.turn())
                try:
                    answer = await self._attempt(request)
                except AttemptError as trouble:
                    self._judge(trouble, attempt, health)
                    await self._wait(self._limits.wait(trouble, attempt, health))
                else:
                    health.answered, health.failures = True, 0
                    return await keep(answer)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        async with self._slots:
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1

    async def close(self) -> None:
        """Let go of the server."""
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
        self._budget.pay(hold, answer.usage, request.model.cost(answer.usage))
        return answer

    def _judge(self, trouble: AttemptError, attempt: int, health: Health) -> None:
        """Return when another attempt may help; otherwise raise, for this request alone or for all of them."""
        if isinstance(trouble, FatalServerError):
            raise health.give_up(trouble.reason) from trouble
        heed_wait(trouble, self._limits, self._pace)
        if self._limits.may_retry(trouble, attempt, health) and not self._halt.is_set():
            return
        if trouble.retry or not health.answered:
            # A model that has answered others may well refuse this one for what it says; that counts against nobody.
            health.failures += 1
        if refused(trouble, health):
            raise health.give_up(trouble.reason) from trouble
        if health.failures >= _HOPELESS:
            gave_up = f"({health.failures} requests in a row gave up; answers so far are kept)"
            raise health.give_up(f"{trouble.reason} {gave_up}") from trouble
        raise AttemptError(with_attempts(trouble.reason, attempt + 1), retry=False) from trouble

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless everything stops."""
        if self._halt.is_set():
            raise AttemptError("stopped", retry=False)
        if seconds <= 0:
            return
        try:
            await asyncio.wait_for(self._halt.wait(), seconds)
        except TimeoutError:
            return
        raise AttemptError("stopped", retry=False)
