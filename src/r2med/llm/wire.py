"""A request as the body of an HTTP call, and the body of a response as an answer, for every dialect of the protocol."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

import orjson

from r2med.llm.types import Answer, Message, Request, Token, Trouble, Usage

_CHARACTERS_PER_TOKEN = 4


def clean(text: str) -> str:
    """The text without halves of surrogate pairs, which no file and no server takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def guess_tokens(text: str) -> int:
    """About how many tokens a text has: four characters each, where no tokenizer is at hand.

    >>> guess_tokens("scurvy")
    2
    """
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def prompt_text(messages: tuple[Message, ...]) -> str:
    """All that the model reads, as one text."""
    return "\n".join(message.content for message in messages)


def body(request: Request) -> dict[str, Any]:
    """What is sent, and what is kept beside the answer so that its key can be explained."""
    sampling = request.sampling
    fields: dict[str, Any] = {
        "model": request.model.id,
        "messages": [{"role": role, "content": clean(content)} for role, content in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
        request.model.token_field: sampling.max_tokens,
        "stop": list(request.stop) or None,
    }
    if request.logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.logprobs}
    if request.continuing:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return {name: value for name, value in fields.items() if value is not None} | dict(request.model.extra)


def read_answer(content: bytes, request: Request) -> Answer:
    """The answer in the body of a successful response; `Trouble` for anything that is not one."""
    data = _json(content)
    if data.get("error"):
        raise Trouble(f"the server answered with an error: {error_text(data)}")
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise Trouble("the server answered without a choice", billed=True)
    message = choice["message"]
    given = message.get("content")
    if not isinstance(given, str | list | None):
        raise Trouble("the server answered with a content that is no text", billed=True)
    text = _without_prefix(_text(given), request)
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    return Answer(
        text=text,
        reasoning=reasoning,
        finish=str(choice.get("finish_reason") or "stop"),
        usage=_usage(data.get("usage"), request, text, reasoning),
        refusal=_text(message.get("refusal")),
        logprobs=_tokens(choice.get("logprobs")) if request.logprobs else (),
    )


def error_text(data: Any) -> str:
    """The message inside an error body, however the server wraps it, on one line."""
    error = data.get("error", data) if isinstance(data, dict) else data
    found = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    line = " ".join(str(found or error).split())
    return line if len(line) <= 200 else line[:200] + "..."


def _json(content: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            # The slower reader lets halves of surrogate pairs pass, which an answer cut inside an emoji may hold.
            data = json.loads(content)
        except ValueError as error:
            raise Trouble("the server answered with something that is not JSON", billed=True) from error
    if not isinstance(data, dict):
        raise Trouble("the server answered with JSON that is not a reply", billed=True)
    return data


def _text(content: Any) -> str:
    """Text as a string, or as the list of parts that some servers send."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return clean("".join(part for part in parts if isinstance(part, str)))
    return clean(content) if isinstance(content, str) else ""


def _without_prefix(text: str, request: Request) -> str:
    """Only what the model added: some servers repeat the message that it was to go on with."""
    if request.continuing:
        begun = clean(request.messages[-1].content)
        for prefix in (begun, begun.strip()):
            if prefix and text.startswith(prefix):
                return text[len(prefix) :]
    return text


def _usage(data: Any, request: Request, text: str, reasoning: str) -> Usage:
    counts = data if isinstance(data, dict) else {}
    details = counts.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    return Usage(
        prompt=prompt if is_count(prompt) else guess_tokens(prompt_text(request.messages)),
        completion=completion if is_count(completion) else guess_tokens(text) + guess_tokens(reasoning),
        reasoning=thought if is_count(thought) else 0,
    )


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a server's number of tokens can be believed: whole, not negative, and not a truth value.

    >>> [is_count(value) for value in (7, 0, -7, True, 7.0, "7")]
    [True, True, False, False, False, False]
    """
    return type(value) is int and value >= 0


def _tokens(data: Any) -> tuple[Token, ...]:
    entries = data.get("content") if isinstance(data, dict) else None
    try:
        return tuple(_token(entry) for entry in entries or ())
    except (KeyError, TypeError, ValueError) as error:
        raise Trouble("the server answered with log probabilities that cannot be read", billed=True) from error


def _token(entry: dict[str, Any]) -> Token:
    top = tuple((clean(other["token"]), float(other["logprob"])) for other in entry.get("top_logprobs") or ())
    return Token(clean(entry["token"]), float(entry["logprob"]), top)
