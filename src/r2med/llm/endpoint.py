"""Everything between a request and one server: slots, pace, waits, retries, and knowing when to give up."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass

from r2med.llm.budget import Budget, Limits
from r2med.llm.http_server import Server
from r2med.llm.types import AttemptError, FatalServerError, Model, RawAnswer, Request, ServerError, Unreachable
from r2med.models.http import backoff

_PATIENCE = 600.0
"""The longest wait a server may ask for, in seconds."""
_HOPELESS = 10
"""Requests to a model in a row that came to nothing, after all their retries, until it counts as dead."""
_REFUSED, _REFUSED_WAIT = 2, 0.5
"""Retries where no server listens, and the first wait before one: there is no use in asking for minutes."""


@dataclass
class Health:
    """How one model at one address has fared while its client lives: once dead, it is not asked again."""

    answered: bool = False
    failures: int = 0
    """Requests in a row that came to nothing."""
    dead: str = ""
    """Why nothing more is asked; empty while it lives."""

    def check(self) -> None:
        """Raise when the model is known to be dead."""
        if self.dead:
            raise ServerError(self.dead)

    def give_up(self, reason: str) -> ServerError:
        """Ask no more, and say why."""
        self.dead = reason
        return ServerError(reason)


class Endpoint:
    """One server with the manners of a good client. Lives on one event loop."""

    def __init__(self, server: Server, model: Model, limits: Limits, purse: Budget, halt: asyncio.Event) -> None:
        self._server = server
        self._limits = limits
        self._purse = purse
        self._halt = halt
        self._slots = asyncio.Semaphore(min(limits.concurrency, model.parallel or limits.concurrency))
        self._next_start = 0.0
        self._quiet_until = 0.0
        self._health: defaultdict[str, Health] = defaultdict(Health)

    def health(self, model: Model) -> Health:
        """How a model of this server has fared; a neighbour's faults are not its own."""
        return self._health[model.id]

    def forget_outages(self) -> None:
        """Ask models again that counted as dead."""
        self._health.clear()

    async def ask(self, request: Request) -> RawAnswer:
        """The server's answer after as many attempts as it takes; `Trouble` when they are used up."""
        health = self.health(request.model)
        async with self._slots:
            for attempt in range(self._limits.retries + 1):
                health.check()
                await self._turn()
                try:
                    answer = await self._attempt(request)
                except AttemptError as trouble:
                    self._judge(trouble, attempt, health)
                    base = _REFUSED_WAIT if _refused(trouble, health) else self._limits.backoff
                    await self._wait(backoff(attempt + 1, min(base, self._limits.backoff), trouble.wait))
                else:
                    health.answered, health.failures = True, 0
                    return answer
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Let go of the server."""
        await self._server.close()

    async def _attempt(self, request: Request) -> RawAnswer:
        hold = await self._purse.hold(request)
        try:
            if self._halt.is_set():
                raise AttemptError("stopped", retry=False)
            answer = await self._server.answer(request)
        except AttemptError as trouble:
            self._purse.lose(hold, billed=trouble.billed)
            raise
        except BaseException:
            self._purse.lose(hold, billed=True)
            raise
        self._purse.pay(hold, answer.usage, request.model.cost(answer.usage))
        return answer

    def _judge(self, trouble: AttemptError, attempt: int, health: Health) -> None:
        """Return when another attempt may help; otherwise raise, for this request alone or for all of them."""
        if isinstance(trouble, FatalServerError):
            raise health.give_up(trouble.reason) from trouble
        if trouble.wait is not None:
            # What one request was told holds for all of them.
            self._quiet_until = max(self._quiet_until, time.monotonic() + min(trouble.wait, _PATIENCE))
        refused = _refused(trouble, health)
        patient = trouble.wait is None or trouble.wait <= _PATIENCE
        retries = min(self._limits.retries, _REFUSED) if refused else self._limits.retries
        if trouble.retry and patient and attempt < retries and not self._halt.is_set():
            return
        if trouble.retry or not health.answered:
            # A model that has answered others may well refuse this one for what it says; that counts against nobody.
            health.failures += 1
        if health.failures >= _HOPELESS or refused:
            gave_up = "" if refused else f" ({health.failures} requests in a row gave up; answers so far are kept)"
            raise health.give_up(trouble.reason + gave_up) from trouble
        raise AttemptError(_tried(trouble.reason, attempt + 1), retry=False) from trouble

    async def _turn(self) -> None:
        """Wait for the pace that is allowed, and for the end of a silence that the server asked for."""
        now = time.monotonic()
        start = max(now, self._quiet_until)
        if self._limits.requests_per_minute is not None:
            start = max(start, self._next_start)
            self._next_start = start + 60.0 / self._limits.requests_per_minute
        await self._wait(start - now)

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


def _refused(trouble: AttemptError, health: Health) -> bool:
    """Whether no server listens and none ever did; one that has answered may be starting anew."""
    return isinstance(trouble, Unreachable) and not health.answered


def _tried(reason: str, attempts: int) -> str:
    return reason if attempts == 1 else f"{reason} ({attempts} attempts)"
