"""Chat servers over HTTP: a request as the body of a call, and the body of a response as an answer.

An attempt that fails raises an `AttemptError`, whatever the reason. All dialects of the protocol are read.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from r2med.errors import require_extra
from r2med.formatting import replace_surrogates
from r2med.llm.types import Message, Model, RawAnswer, Request, Token
from r2med.models.http import Address, AttemptError, error_text, is_count, mask
from r2med.usage import Usage

if TYPE_CHECKING:
    import httpx2

_LARGEST = 16 << 20  # bytes of a response: ten times what the longest answer with all its log probabilities takes
_ACCOUNT_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
"""Environment variables of the account that is billed, as OpenAI's own library names them."""


class HttpServer:
    """A server that speaks the chat protocol. The key is read from the environment and never leaves this object."""

    def __init__(self, model: Model, timeout: float) -> None:
        require_extra("llm", "httpx2")
        self._address, self._timeout = _address(model), timeout
        self._key = self._address.key()
        self._idle: list[httpx2.AsyncClient] = []
        """One client per connection: a pool of connections looks at all of them for each request."""

    @cached_property
    def _url(self) -> httpx2.URL:
        """Return the address as a URL, which the library would read again for each request."""
        import httpx2

        return httpx2.URL(f"{self._address.url}/chat/completions")

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        # An answer that is sent packed could be of any size.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers["Authorization"] = f"Bearer {self._key or 'none'}"
        if self._address.key_env == "OPENAI_API_KEY":
            headers |= {name: os.environ[env] for env, name in _ACCOUNT_HEADERS.items() if os.environ.get(env)}
        return self._address.open(httpx2.AsyncClient, headers, self._timeout)

    async def answer(self, request: Request) -> RawAnswer:
        """Send a request once; raises `AttemptError` if it fails."""
        started = time.perf_counter()
        sent = orjson.dumps(body(request))
        received = bytearray()
        client = self._idle.pop() if self._idle else self._open()
        try:
            # The library's own timeout is for each read; a server that trickles would never meet it.
            with self._address.errors(self._timeout):
                async with asyncio.timeout(self._timeout), client.stream("POST", self._url, content=sent) as response:
                    async for piece in response.aiter_raw():
                        received += piece
                        if len(received) > _LARGEST:
                            reason = f"the server sent more than {_LARGEST >> 20} MB"
                            raise AttemptError(reason, retry=False, billed=True)
        finally:
            self._idle.append(client)
        try:
            if response.status_code != 200:
                raise _address(request.model).refusal(response, received.decode("utf-8", "replace"), self._key)
            answer = read_answer(bytes(received), request)
        except AttemptError as error:
            error.reason = mask(error.reason, self._key)
            raise
        return replace(answer, seconds=time.perf_counter() - started)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._idle:
            await client.aclose()


def _address(model: Model) -> Address:
    # With 403, some servers refuse a single prompt for what it says.
    return Address(model.name, model.id, model.url, "chat/completions", model.key_env, model.needs_key)


_CHARACTERS_PER_TOKEN = 4


def guess_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer: four characters each.

    >>> guess_tokens("scurvy")
    2
    """
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def prompt_text(messages: tuple[Message, ...]) -> str:
    """Join all that the model reads into one text."""
    return "\n".join(message.content for message in messages)


def body(request: Request) -> dict[str, Any]:
    """Build the body of a request, which is also stored beside the answer so that its key can be explained."""
    sampling, messages = request.sampling, request.messages
    if not request.model.system and messages[0].role == "system":
        (_, system), (role, opening), *rest = messages
        messages = (Message(role, f"{system}\n\n{opening}"), *rest)
    fields: dict[str, Any] = {
        "model": request.model.id,
        "messages": [{"role": role, "content": replace_surrogates(content)} for role, content in messages],
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


def read_answer(received: bytes, request: Request) -> RawAnswer:
    """Read the answer in the body of a successful response; raise `AttemptError` for anything else."""
    data = _json(received)
    if data.get("error"):
        raise AttemptError(f"the server answered with an error: {error_text(data)}")
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise AttemptError("the server answered without a choice", billed=True)
    message = choice["message"]
    content = message.get("content")
    if not isinstance(content, str | list | None):
        raise AttemptError("the server answered with content that is not text", billed=True)
    text = _text(content)
    if request.continuing:
        # Some servers repeat the message that the model was to continue.
        begun = replace_surrogates(request.messages[-1].content)
        text = text.removeprefix(begun) if text.startswith(begun) else text.removeprefix(begun.strip())
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    return RawAnswer(
        text=text,
        reasoning=reasoning,
        finish=str(choice.get("finish_reason") or "stop"),
        usage=_usage(data.get("usage"), request, text, reasoning),
        refusal=_text(message.get("refusal")),
        logprobs=_tokens(choice.get("logprobs")) if request.logprobs else (),
    )


def _json(content: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            # The slower reader lets halves of surrogate pairs pass, which an answer cut inside an emoji may hold.
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise AttemptError("the server answered with something that is not JSON", billed=True) from error
    if not isinstance(data, dict):
        raise AttemptError("the server answered with JSON that is not a reply", billed=True)
    return data


def _text(content: Any) -> str:
    """Return a text given as a string, or as the list of parts that some servers send."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return replace_surrogates("".join(part for part in parts if isinstance(part, str)))
    return replace_surrogates(content) if isinstance(content, str) else ""


def _usage(data: Any, request: Request, text: str, reasoning: str) -> Usage:
    counts = data if isinstance(data, dict) else {}
    details = counts.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    return Usage(
        prompt_tokens=prompt if is_count(prompt) else guess_tokens(prompt_text(request.messages)),
        completion_tokens=completion if is_count(completion) else guess_tokens(text) + guess_tokens(reasoning),
        reasoning_tokens=thought if is_count(thought) else 0,
    )


def _tokens(data: Any) -> tuple[Token, ...]:
    entries = data.get("content") if isinstance(data, dict) else None
    try:
        return tuple(
            Token(
                replace_surrogates(entry["token"]),
                float(entry["logprob"]),
                tuple(
                    (replace_surrogates(one["token"]), float(one["logprob"])) for one in entry.get("top_logprobs") or ()
                ),
            )
            for entry in entries or ()
        )
    except (KeyError, TypeError, ValueError) as error:
        raise AttemptError("the server answered with log probabilities that cannot be read", billed=True) from error
