"""How hard to work and how much to spend, and the purse that is never opened further than that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from r2med.config import RequestSettings, request_settings
from r2med.errors import R2medError
from r2med.llm.types import LimitReached, Request, Usage
from r2med.llm.wire import prompt_text

_TURN = 16
"""Tokens that a chat template adds around a message, generously."""
_BYTES_PER_TOKEN = 3
"""For the most a prompt may cost: English has four to five bytes a token, Chinese about three."""


@dataclass(frozen=True)
class Limits:
    """What a client may do. None of it changes an answer, so none of it is part of a request's key."""

    concurrency: int = 16
    """Requests under way at a time, for each server."""
    requests_per_minute: float | None = None
    timeout: float = 600.0
    """Seconds until a request counts as lost."""
    retries: int = 6
    """How often a request is asked again after the first failure."""
    max_cost: float | None = None
    """US dollars to spend at the most while the client lives."""
    max_tokens: int | None = None
    """Tokens, read and written, to use at the most while the client lives."""
    backoff: float = 1.0
    """The first wait before a retry, in seconds."""
    grace: float = 120.0
    """How long requests under way may still take after the first Ctrl-C."""
    lease: float = 10.0
    """How long another process that asks the same is waited for after its last sign of life, in seconds."""

    def __post_init__(self) -> None:
        problem = RequestSettings(self.timeout, self.retries, self.requests_per_minute, self.concurrency).problem()
        if not problem and self.max_cost is not None and not self.max_cost >= 0:
            problem = f"max cost must not be negative, not {self.max_cost:g}"
        if not problem and self.max_tokens is not None and self.max_tokens < 0:
            problem = f"max tokens must not be negative, not {self.max_tokens}"
        if problem:
            raise R2medError(problem)

    @classmethod
    def configured(cls, max_cost: float | None = None, max_tokens: int | None = None) -> Limits:
        """As the user's files and the command have it."""
        return cls(max_cost=max_cost, max_tokens=max_tokens, **request_settings().given())


@dataclass(frozen=True)
class Hold:
    """What a request under way may cost at the most."""

    tokens: int
    cost: float


class Purse:
    """What was spent, what is held back for requests under way, and whether one more fits in."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holds: list[Hold] = []
        self._changed = asyncio.Event()
        self.requests = 0
        """Answers paid for."""
        self.tokens = 0
        self.cost: float | None = 0.0
        """US dollars; None once an answer without a known price was paid for."""
        self.lost = Hold(0, 0.0)
        """The most that requests without a usable answer may have cost on top."""

    async def hold(self, request: Request) -> Hold:
        """Put aside the most that a request may cost; waits for others to settle, and refuses what can never fit."""
        hold = self._most(request)
        while not self._fits(hold):
            if not self._holds:
                raise LimitReached(self._full(hold))
            self._changed.clear()
            await self._changed.wait()
        self._holds.append(hold)
        return hold

    def pay(self, hold: Hold, usage: Usage, cost: float | None) -> None:
        """A request was answered: count what it took instead of what was put aside."""
        self.requests += 1
        self.tokens += usage.prompt + usage.completion
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self._release(hold)

    def lose(self, hold: Hold, *, billed: bool) -> None:
        """A request came to nothing; where the server may bill it all the same, its most stays put aside for good."""
        if billed:
            self.lost = Hold(self.lost.tokens + hold.tokens, self.lost.cost + hold.cost)
        self._release(hold)

    def _release(self, hold: Hold) -> None:
        self._holds.remove(hold)
        self._changed.set()

    def _most(self, request: Request) -> Hold:
        if self._limits.max_cost is None and self._limits.max_tokens is None:
            return Hold(0, 0.0)
        written = request.sampling.max_tokens
        if written is None:
            raise R2medError(f"a spending limit needs a limit on each answer: set max_tokens for {request.model.name}")
        read = len(prompt_text(request.messages).encode("utf-8", "replace")) // _BYTES_PER_TOKEN
        read += _TURN * (1 + len(request.messages))
        cost = request.model.cost(Usage(read, written))
        if cost is None and self._limits.max_cost is not None:
            raise R2medError(
                f"no price is known for {request.model.name}, so a limit on cost cannot be kept;"
                " limit tokens instead, or give the price in llms.toml"
            )
        return Hold(read + written, cost or 0.0)

    def _fits(self, hold: Hold) -> bool:
        tokens = self.tokens + self.lost.tokens + sum(held.tokens for held in self._holds) + hold.tokens
        cost = (self.cost or 0.0) + self.lost.cost + sum(held.cost for held in self._holds) + hold.cost
        most_tokens, most_cost = self._limits.max_tokens, self._limits.max_cost
        return (most_tokens is None or tokens <= most_tokens) and (most_cost is None or cost <= most_cost)

    def _full(self, hold: Hold) -> str:
        if self._limits.max_cost is not None:
            limit, spent = f"${self._limits.max_cost:.2f}", f"${self.cost or 0.0:.4f}"
            next_one = f"${hold.cost:.4f}"
        else:
            limit, spent = f"{self._limits.max_tokens} tokens", f"{self.tokens} tokens"
            next_one = f"{hold.tokens} tokens"
        lost = f" (and up to ${self.lost.cost:.4f} or {self.lost.tokens} tokens lost)" if self.lost.tokens else ""
        return (
            f"stopped before the limit of {limit}: {spent} spent{lost} on {self.requests} answers, which are kept;"
            f" the next request may take {next_one}, of which most is the longest answer it may get: give the stage a"
            " smaller max_tokens=, or raise the limit, and run the same command to go on"
        )
