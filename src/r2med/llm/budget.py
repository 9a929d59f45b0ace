"""Spending of a client: limits, the budget that is never exceeded, the bill of replies, and estimates of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from r2med.errors import R2medError
from r2med.llm.reasoning import usable_reply
from r2med.llm.reply_cache import ReplyCache, TypicalUsage
from r2med.llm.server import guess_tokens, prompt_text
from r2med.llm.types import Failed, LimitReached, Model, Reply, Request
from r2med.models.http import RequestLimits
from r2med.store.jobs import reporter
from r2med.usage import Usage, add_fields

_TURN = 16  # tokens that a chat template adds around a message, generously
_BYTES_PER_TOKEN = 3  # for the most a prompt may cost: English has four to five bytes per token, Chinese about three


@dataclass(frozen=True)
class Limits(RequestLimits):
    """Limits on what a client may do. They do not change an answer, so they are not part of a request's key."""

    concurrency: int = 16
    timeout: float = 600.0
    max_cost: float | None = None  # US dollars to spend at the most while the client lives
    max_tokens: int | None = None  # tokens, read and written, to use at the most while the client lives
    grace: float = 120.0  # how long requests under way may still take after the first Ctrl-C
    lease: float = 10.0  # seconds for which another process that asks the same is waited for after a sign of life

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_cost is not None and not self.max_cost >= 0:
            raise R2medError(f"max cost must not be negative, not {self.max_cost:g}")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise R2medError(f"max tokens must not be negative, not {self.max_tokens}")


class Budget:
    """Money and tokens spent, and those reserved for requests under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holds: list[Usage] = []
        self._changed = asyncio.Event()
        self.spent = Usage()  # on answers that were paid for
        self.lost = Usage()  # the most that requests without a usable answer may have cost on top

    async def hold(self, request: Request) -> Usage:
        """Reserve the most that a request may cost; waits for others to settle, and refuses what can never fit."""
        hold = self._most(request)
        most_tokens, most_cost = self._limits.max_tokens, self._limits.max_cost
        while True:
            parts = (self.spent, self.lost, *self._holds, hold)
            tokens, cost = sum(part.tokens for part in parts), sum(part.cost or 0.0 for part in parts)
            if (most_tokens is None or tokens <= most_tokens) and (most_cost is None or cost <= most_cost):
                self._holds.append(hold)
                return hold
            if not self._holds:
                raise LimitReached(self._full(hold))
            self._changed.clear()
            await self._changed.wait()

    def pay(self, hold: Usage, spent: Usage) -> None:
        """Count the usage of an answered request in place of its reservation."""
        self.spent += spent
        self._release(hold)
        reporter.spend(self.spent, self._limits.max_cost, self._limits.max_tokens)

    def lose(self, hold: Usage, *, billed: bool) -> None:
        """Release the reservation of a failed request; if the server may bill it, its amount counts as lost."""
        if billed:
            self.lost += hold
        self._release(hold)

    def _release(self, hold: Usage) -> None:
        self._holds.remove(hold)
        self._changed.set()

    def _most(self, request: Request) -> Usage:
        if self._limits.max_cost is None and self._limits.max_tokens is None:
            return Usage()
        written = request.sampling.max_tokens
        if written is None:
            raise R2medError(f"a spending limit needs a limit on each answer: set max_tokens for {request.model.name}")
        read = len(prompt_text(request.messages).encode("utf-8", "replace")) // _BYTES_PER_TOKEN
        read += _TURN * (1 + len(request.messages))
        cost = request.model.cost(read, written)
        if cost is None and self._limits.max_cost is not None:
            raise R2medError(
                f"no price is known for {request.model.name}, so a limit on cost cannot be kept;"
                " limit tokens instead, or give the price in llms.toml"
            )
        return Usage(prompt_tokens=read, completion_tokens=written, cost=cost or 0.0)

    def _full(self, hold: Usage) -> str:
        limits, (spent, most) = self._limits, (f"{part.tokens} tokens" for part in (self.spent, hold))
        limit = f"{limits.max_tokens} tokens"
        if limits.max_cost is not None:
            limit, spent, most = (f"${limits.max_cost:.2f}", f"${self.spent.cost or 0.0:.4f}", f"${hold.cost:.4f}")
        lost = f" (and up to ${self.lost.cost:.4f} or {self.lost.tokens} tokens lost)" if self.lost.tokens else ""
        return (
            f"stopped before the limit of {limit}: {spent} spent{lost} on {self.spent.requests} answers, which are"
            f" kept; the next request may take {most}, of which most is the longest answer it may get: give the"
            " stage a smaller max_tokens=, or raise the limit, and run the same command to go on"
        )


def account(replies: Iterable[Reply | Failed]) -> Usage:
    """Add up the usage of replies and failures."""
    return sum((reply.usage for reply in replies), Usage())


@dataclass(frozen=True)
class Estimate:
    """Cost of requests before they are sent: exact in requests, estimated in tokens and money."""

    requests: int
    cached: int
    """How many are already answered and would cost nothing."""
    prompt_tokens: int
    """Of the requests still to be asked."""
    completion_tokens: int
    """Guessed from this model's kept answers to requests of the same kind, or else a default."""
    cost: float | None
    """US dollars for the requests still to be asked; None when a price is unknown."""
    cost_limit: float | None
    """The same if every answer were as long as it may be; None when a price or a length limit is unknown."""
    known: int = 0
    """How many kept answers the length is guessed from; 0 if a part of it is a default."""

    def __mul__(self, factor: float) -> Estimate:
        scaled = {name: value * factor for name, value in vars(self).items() if value is not None and name != "known"}
        return replace(self, **{name: value if "cost" in name else round(value) for name, value in scaled.items()})

    def __add__(self, other: Estimate) -> Estimate:
        """Add two estimates; what is unknown in one is unknown in the sum, and so is an assumed length."""
        total = Estimate(**add_fields(self, other))
        return replace(total, known=0) if self.is_default or other.is_default else total

    @property
    def is_default(self) -> bool:
        """Return whether the length of an answer is assumed, because no answer of the same kind is stored."""
        return self.requests > self.cached and not self.known

    @property
    def basis(self) -> str:
        """Describe the basis of the estimated length of answers."""
        if self.requests == self.cached:
            return ""
        mean = f"{self.completion_tokens / (self.requests - self.cached):,.0f} tokens an answer"
        return f"{mean}, the mean of {self.known:,} such" if self.known else f"{mean}, a default: none such is kept"


_ANSWER, _REASONED_ANSWER = 400, 2500  # tokens of a typical answer if none is stored: plain, and with reasoning


def estimate(requests: Sequence[Request], answers: ReplyCache) -> Estimate:
    """Estimate the cost of these requests, given the answers that are stored; one of no use is asked for again."""
    distinct = {request.key(): request for request in requests}
    stored = answers.find(distinct)
    usable = {key for key, answer in stored.items() if usable_reply(distinct[key], answer) is not None}
    rest = [request for key, request in distinct.items() if key not in usable]
    kinds = {(request.model.id, request.model.server, request.kind): request for request in rest}
    lengths = {place: answers.typical(request.model, request.kind) for place, request in kinds.items()}
    prompt = [guess_tokens(prompt_text(request.messages)) for request in rest]
    written = [_length(request, lengths[request.model.id, request.model.server, request.kind]) for request in rest]
    counts = [usual.answers for usual in lengths.values()]
    return Estimate(
        requests=len(requests),
        cached=len(requests) - len(rest),
        prompt_tokens=sum(prompt),
        completion_tokens=sum(written),
        cost=_price(rest, prompt, written),
        cost_limit=_price(rest, prompt, [request.sampling.max_tokens for request in rest]),
        known=sum(counts) if all(counts) else 0,
    )


def _length(request: Request, usual: TypicalUsage) -> int:
    typical = usual.completion
    if not usual.answers:
        typical = _REASONED_ANSWER if request.model.reasoning else _ANSWER
    return min(round(typical), request.sampling.max_tokens or round(typical))


@dataclass(frozen=True)
class FollowUp:
    """Requests that follow others, as many as the model decides: later turns, texts that it reads in between."""

    model: Model
    after: str  # the kind of the requests that they follow
    kind: str
    most: int
    prompt: int  # tokens that one reads if none of its kind is stored


def estimate_follow_up(follow: FollowUp, first: int, answers: ReplyCache) -> Estimate:
    """Estimate what follows so many first requests: as in stored conversations, or else as many as are allowed."""
    before, usual = answers.typical(follow.model, follow.after), answers.typical(follow.model, follow.kind)
    ratio = usual.answers / before.answers if usual.answers and before.answers else float(follow.most)
    request = Request(follow.model, (), follow.model.sampling, kind=follow.kind)
    read, written = round(usual.prompt) or follow.prompt, _length(request, usual)
    requests, longest = round(first * min(ratio, follow.most)), follow.model.sampling.max_tokens
    cost = follow.model.cost(read, written)
    limit = None if longest is None else follow.model.cost(max(read, follow.prompt), longest)
    return Estimate(
        requests, 0, requests * read, requests * written, None if cost is None else requests * cost,
        None if limit is None else first * follow.most * limit, usual.answers,
    )  # fmt: skip


def _price(requests: Sequence[Request], prompt: Sequence[int], written: Sequence[int | None]) -> float | None:
    costs = [
        None if wrote is None else request.model.cost(read, wrote)
        for request, read, wrote in zip(requests, prompt, written, strict=True)
    ]
    return None if None in costs else sum(cost for cost in costs if cost is not None) + 0.0
