"""From what a server said to a reply that can be used: the trace split off, tokens shared out, money counted."""

from __future__ import annotations

from dataclasses import replace

from r2med.llm.reasoning import split_trace
from r2med.llm.types import RawAnswer, Reply, Request, Usage


def to_reply(request: Request, answer: RawAnswer, *, cached: bool = False) -> Reply:
    """The reply to a request, from an answer that came just now or was kept."""
    trace = split_trace(
        answer.text, request.model.trace, field=answer.reasoning, finish=answer.finish, refusal=answer.refusal
    )
    return Reply(
        request=request,
        text=trace.answer,
        reasoning=trace.reasoning,
        raw=answer.text,
        finish=answer.finish,
        usage=_shared_out(answer.usage, trace.reasoning, trace.answer),
        seconds=answer.seconds,
        cost=request.model.cost(answer.usage),
        cached=cached,
        incomplete=trace.incomplete,
        logprobs=answer.logprobs,
    )


def usable_reply(request: Request, answer: RawAnswer) -> Reply | None:
    """Return the reply of a kept answer; None for one that is asked for again.

    This is the rule for every command that asks: an answer is asked for again if it is empty, refused, filtered or cut
    before it began, or if the command that got it could not read what it had asked for (`Client.reject`).
    """
    reply = to_reply(request, answer, cached=True)
    return None if answer.unread or reply.incomplete else reply


def _shared_out(usage: Usage, reasoning: str, answer: str) -> Usage:
    """Reasoning tokens as the server counts them, or its share of the text where the server does not say."""
    if usage.reasoning or not reasoning:
        return usage
    share = len(reasoning) / (len(reasoning) + len(answer))
    return replace(usage, reasoning=round(usage.completion * share))
