"""What it cost: requests, tokens, money and seconds, of replies that came and of requests that would be made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from r2med.llm.answers import Answers
from r2med.llm.replies import to_reply
from r2med.llm.types import Failed, Reply, Request, Usage
from r2med.llm.wire import guess_tokens, prompt_text


@dataclass(frozen=True)
class Account:
    """The bill of some replies, kept answers included: what it costs to make them, whoever paid and when."""

    requests: int = 0
    cached: int = 0
    """Of these, how many came from the kept answers and cost nothing this time."""
    failed: int = 0
    incomplete: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    """US dollars; None as soon as one price is unknown."""
    paid: float | None = 0.0
    """The part of `cost` that was spent this time."""
    seconds: float = 0.0
    """The sum over requests, not the time on the clock."""

    def record(self) -> dict[str, int | float | None]:
        """The account as facts for a result."""
        return asdict(self)


def account(replies: Iterable[Reply | Failed]) -> Account:
    """Add up replies and failures.

    >>> account([]).requests
    0
    """
    replies = list(replies)
    came = [reply for reply in replies if isinstance(reply, Reply)]
    fresh = [reply for reply in came if not reply.cached]
    return Account(
        requests=len(replies),
        cached=len(came) - len(fresh),
        failed=len(replies) - len(came),
        incomplete=sum(bool(reply.incomplete) for reply in came),
        prompt_tokens=sum(reply.usage.prompt for reply in came),
        completion_tokens=sum(reply.usage.completion for reply in came),
        reasoning_tokens=sum(reply.usage.reasoning for reply in came),
        cost=_money(came),
        paid=_money(fresh),
        seconds=sum(reply.seconds for reply in came),
    )


def _money(replies: Iterable[Reply]) -> float | None:
    total = 0.0
    for reply in replies:
        if reply.cost is None:
            return None
        total += reply.cost
    return total


@dataclass(frozen=True)
class Estimate:
    """What asking would take: exact in requests, a guess in tokens and money."""

    requests: int
    cached: int
    """How many are already answered and would cost nothing."""
    prompt_tokens: int
    """Of the requests still to be asked."""
    completion_tokens: int
    """Guessed from this model's kept answers, or from its kind when there are none."""
    cost: float | None
    """US dollars for the requests still to be asked; None when a price is unknown."""
    cost_limit: float | None
    """The same if every answer were as long as it may be; None when a price or a length limit is unknown."""


_ANSWER, _REASONED_ANSWER = 400, 2500
"""Tokens of a typical answer, plain and with reasoning, for a model that has not answered yet."""


def estimate(requests: Sequence[Request], answers: Answers) -> Estimate:
    """What asking these requests would take, given the answers that are kept."""
    distinct = {request.key(): request for request in requests}
    kept = answers.find(distinct)
    rest = [
        request
        for key, request in distinct.items()
        # An answer of no use is asked for again.
        if key not in kept or to_reply(request, kept[key]).incomplete
    ]
    lengths = {model: answers.typical_length(model) for model in {request.model.id for request in rest}}
    prompt = [guess_tokens(prompt_text(request.messages)) for request in rest]
    written = [_length(request, lengths[request.model.id]) for request in rest]
    most = [request.sampling.max_tokens for request in rest]
    return Estimate(
        requests=len(requests),
        cached=len(requests) - len(rest),
        prompt_tokens=sum(prompt),
        completion_tokens=sum(written),
        cost=_price(rest, prompt, written),
        cost_limit=_price(rest, prompt, most),
    )


def _length(request: Request, typical: float | None) -> int:
    if typical is None:
        typical = _REASONED_ANSWER if request.model.reasoning else _ANSWER
    return min(round(typical), request.sampling.max_tokens or round(typical))


def _price(requests: Sequence[Request], prompt: Sequence[int], written: Sequence[int | None]) -> float | None:
    total = 0.0
    for request, read, wrote in zip(requests, prompt, written, strict=True):
        cost = request.model.cost(Usage(read, wrote)) if wrote is not None else None
        if cost is None:
            return None
        total += cost
    return total
