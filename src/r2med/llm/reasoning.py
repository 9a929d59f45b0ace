"""Splitting a model's reasoning from its answer: one table of formats, chosen by the model's card or detected.

Only the answer is ever searched with. A trace that never closes has no answer, which is reported: the safe mistake is
to call an answer incomplete, never to search with the reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from r2med.llm.types import RawAnswer, Reply, Request
from r2med.usage import Usage


@dataclass(frozen=True)
class TraceFormat:
    """Marks of one way to write down reasoning before an answer."""

    opening: str = ""
    closing: str = ""
    answer_opening: str = ""
    answer_closing: str = ""
    always: bool = False  # whether the answer must be marked: without the marks, all of the text is reasoning


FORMATS: Mapping[str, TraceFormat] = {
    # Nothing to split: instruct models, and hosted models that keep their reasoning to themselves.
    "none": TraceFormat(),
    # R1, QwQ: the chat template opens the trace, so the text may only hold the closing tag.
    "think": TraceFormat("<think>", "</think>", always=True),
    # Qwen3 and others that open the trace themselves, or leave it out.
    "think-tags": TraceFormat("<think>", "</think>"),
    "huatuo": TraceFormat("## Thinking", "## Final Response", always=True),
    "sky": TraceFormat(
        "<|begin_of_thought|>", "<|end_of_thought|>", "<|begin_of_solution|>", "<|end_of_solution|>", always=True
    ),
    # Search-R1: everything before the answer is reasoning, in tags or not.
    "answer": TraceFormat("", "", "<answer>", "</answer>", always=True),
    # By what is there; see `detect`.
    "auto": TraceFormat(),
}
"""Every format by the name that a card uses."""
UNCLOSED = "the reasoning never ended"
CUT = "cut by the token limit inside the reasoning"
EMPTY = "empty answer"
REFUSED = "the model refused"
# Only a short answer that opens like this is taken for a refusal: a passage may well quote one.
_REFUSAL = re.compile(
    r"(?:i['’]?m|i am) (?:very |really )?sorry,? (?:but )?(?:i|as an ai)\b.{0,40}?"
    r"(?:can(?:not|['’]t| not)|unable|not able)"
    r"|(?:sorry,? (?:but )?)?i (?:can(?:not|['’]t| not)|am unable to|am not able to|won['’]t) "
    r"(?:assist|help|provide|answer|comply|fulfil|fulfill|generate|create|write|engage|discuss)"
    r"|as an ai(?: language model)?,? i (?:can(?:not|['’]t| not)|am unable|am not able)",
    re.IGNORECASE | re.DOTALL,
)
_REFUSAL_LENGTH = 400


class Trace(NamedTuple):
    """A text in two parts, or the reason why the second is missing."""

    answer: str
    reasoning: str
    incomplete: str = ""


def detect(text: str) -> str:
    """Detect the format of a text, `none` if it has no marks.

    >>> detect("Let me see.</think>Scurvy."), detect("Scurvy.")
    ('think', 'none')
    """
    start = text.lstrip()
    if FORMATS["sky"].opening in text:
        return "sky"
    if "</think>" in text or start.startswith("<think>"):
        return "think"
    if start.startswith("## Thinking"):
        return "huatuo"
    if text.rstrip().endswith("</answer>") and "<answer>" in text:
        return "answer"
    return "none"


def split_trace(text: str, format: str = "auto", *, field: str = "", finish: str = "stop", refusal: str = "") -> Trace:
    """Split a reply into the final answer and the reasoning.

    `field` is the server's separate reasoning field, `finish` its finish reason, `refusal` its refusal field.

    >>> split_trace("<think>Bleeding gums ...</think>Scurvy.")
    Trace(answer='Scurvy.', reasoning='Bleeding gums ...', incomplete='')
    >>> split_trace("Bleeding gums ...", "think").incomplete
    'the reasoning never ended'
    """
    name = detect(text) if format == "auto" else format
    rule = FORMATS[name]
    marks = (rule.opening, rule.closing, rule.answer_opening, rule.answer_closing)
    if field and not any(mark and mark in text for mark in marks):
        # The server has split already; a trace that is not in the text cannot be missing from it.
        rule = FORMATS["none"]
    reasoning, answer = _parts(text, rule)
    reasoning = "\n\n".join(part for part in (field.strip(), reasoning) if part)
    if refusal or finish == "content_filter":
        return Trace("", reasoning, REFUSED)
    if answer is None or (not answer and finish == "length" and reasoning):
        return Trace("", reasoning, CUT if finish == "length" else UNCLOSED)
    if not answer:
        return Trace("", reasoning, EMPTY)
    if len(answer) <= _REFUSAL_LENGTH and _REFUSAL.match(answer):
        return Trace("", reasoning, REFUSED)
    return Trace(answer, reasoning)


def _parts(text: str, rule: TraceFormat) -> tuple[str, str | None]:
    """Split a text into reasoning and answer; the answer is None if the reasoning has not ended."""
    if not rule.closing and not rule.answer_opening:
        return "", text.strip()
    # The last mark counts: whatever comes before it was still thinking, even if it quoted the mark.
    before, mark, after = text.rpartition(rule.answer_opening or rule.closing)
    if not mark and rule.answer_opening and rule.closing:
        before, mark, after = text.rpartition(rule.closing)
    if not mark:
        unmarked = not rule.always and not (rule.opening and rule.opening in text)
        return ("", text.strip()) if unmarked else (_bare(text, rule), None)
    if rule.opening and rule.opening in after:
        return _bare(text, rule), None
    if rule.answer_closing:
        after = after.partition(rule.answer_closing)[0]
    return _bare(before, rule), after.strip()


def _bare(reasoning: str, rule: TraceFormat) -> str:
    reasoning = reasoning.strip()
    if rule.opening:
        reasoning = reasoning.removeprefix(rule.opening)
    if rule.closing and rule.answer_opening:
        reasoning = reasoning.strip().removesuffix(rule.closing)
    return reasoning.strip()


def to_reply(request: Request, answer: RawAnswer, *, cached: bool = False) -> Reply:
    """Build the reply to a request from an answer, new or stored; its reasoning tokens are shared out by length
    if the server does not state them.
    """
    trace = split_trace(
        answer.text, request.model.trace, field=answer.reasoning, finish=answer.finish, refusal=answer.refusal
    )
    tokens, price = answer.usage, request.model.cost(answer.usage.prompt_tokens, answer.usage.completion_tokens)
    reasoning_tokens = tokens.reasoning_tokens
    if trace.reasoning and not reasoning_tokens:
        reasoning_tokens = round(
            tokens.completion_tokens * len(trace.reasoning) / (len(trace.reasoning) + len(trace.answer))
        )
    usage = Usage(
        requests=1,
        cached=int(cached),
        incomplete=int(bool(trace.incomplete)),
        prompt_tokens=tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
        reasoning_tokens=reasoning_tokens,
        cost=price,
        paid=0.0 if cached else price,
        seconds=answer.seconds,
    )
    return Reply(
        request, trace.answer, trace.reasoning, answer.text, answer.finish, usage, trace.incomplete, answer.logprobs
    )


def usable_reply(request: Request, answer: RawAnswer) -> Reply | None:
    """Return the reply of a kept answer; None for one that is asked for again.

    This is the rule for every command that asks: an answer is asked for again if it is empty, refused, filtered or cut
    before it began, or if the command that got it could not read what it had asked for (`Client.reject`).
    """
    reply = to_reply(request, answer, cached=True)
    return None if answer.unread or reply.incomplete else reply
