"""One attempt at a request over HTTP, on the official `openai` library; every way it can go wrong is an `AttemptError`.

A request as the body of an HTTP call, and the body of a response as an answer, for every dialect of the protocol.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from r2med.errors import require_extra
from r2med.llm.types import Message, Model, RawAnswer, Request, Token, Usage
from r2med.models.http import Address, AttemptError, FatalServerError, Unreachable, error_text, is_count

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI


_CONNECT = 10.0
"""Seconds to reach a server; how long it may take to answer is the client's limit."""
_LARGEST = 16 << 20
"""Bytes of a response: ten times what the longest answer with all its log probabilities takes."""
_LANE = 4
"""Connections in one pool: whenever a request starts or ends, a pool looks at each of its idle connections."""


class Server(Protocol):
    """Whatever answers requests."""

    async def answer(self, request: Request) -> RawAnswer:
        """One attempt; raises `AttemptError` when it fails."""

    async def close(self) -> None:
        """Let go of connections and processes."""


@dataclass
class _Lane:
    """A pool of connections and how many requests it has under way."""

    client: AsyncOpenAI
    busy: int = 0


class HttpServer:
    """A server that speaks the chat protocol. The key is read from the environment and never leaves this object."""

    def __init__(self, model: Model, timeout: float) -> None:
        require_extra("llm", "openai")
        self._address = _address(model)
        self._url, self._timeout = model.url, timeout
        self._key = self._address.key()
        self._lanes: list[_Lane] = []

    def _free_lane(self) -> _Lane:
        """The first pool with room, so that few requests keep to few connections; a new one when all are full."""
        for lane in self._lanes:
            if lane.busy < _LANE:
                return lane
        self._lanes.append(_Lane(self._connect()))
        return self._lanes[-1]

    def _connect(self) -> AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key or "none",
            timeout=_httpx().Timeout(None, connect=_CONNECT),
            max_retries=0,
            # An answer that is sent packed could be of any size; a redirect could take the key elsewhere.
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=self._address.trust_env, follow_redirects=False, event_hooks={"response": [_bound]}
            ),
        )

    async def answer(self, request: Request) -> RawAnswer:
        """One attempt."""
        started = time.perf_counter()
        content = await self._post(request)
        try:
            found = read_answer(content, request)
        except AttemptError as trouble:
            trouble.reason = self._safe(trouble.reason)
            raise
        return replace(found, seconds=time.perf_counter() - started)

    async def close(self) -> None:
        """Let go of the connections."""
        for lane in self._lanes:
            await lane.client.close()

    async def _post(self, request: Request) -> bytes:
        import openai

        httpx = _httpx()
        lane = self._free_lane()
        lane.busy += 1
        try:
            # The library's own timeout would be for each read; a server that trickles would never meet it.
            async with asyncio.timeout(self._timeout):
                # Not `chat.completions.create`: walking through its types takes longer than all the rest of a request.
                response = await lane.client.post("/chat/completions", cast_to=httpx.Response, body=body(request))
        except TimeoutError as error:
            raise AttemptError(f"no answer within {self._timeout:g} s", billed=True) from error
        except openai.APIConnectionError as error:
            raise self._connection_trouble(error) from error
        except openai.APIStatusError as error:
            raise self._status_trouble(error, request.model) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise AttemptError("the connection broke", billed=True) from error
        except httpx.InvalidURL as error:
            raise FatalServerError(f"{self._url} is no address of a server: {error}") from error
        finally:
            lane.busy -= 1
        return bytes(response.content)

    def _connection_trouble(self, error: APIConnectionError) -> AttemptError:
        if isinstance(error.__cause__, AttemptError):
            return error.__cause__
        if type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout"):
            return Unreachable(self._url)
        return AttemptError("the connection broke", billed=True)

    def _status_trouble(self, error: APIStatusError, model: Model) -> AttemptError:
        said = self._safe(error_text(error.body if error.body is not None else error.response.text))
        quota = "insufficient_quota" in (error.code, error.type)
        return _address(model).refusal(error.status_code, error.response.headers, said, fatal=quota)

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _address(model: Model) -> Address:
    # With 403, some servers refuse a single prompt for what it says.
    return Address(model.name, model.id, model.url, "chat/completions", model.key_env, model.needs_key)


async def _bound(response: Any) -> None:
    """Let the body of a response be read up to a size that no answer has."""
    response.stream = _bounded_stream(response.stream, _LARGEST // 64 if _is_packed(response) else _LARGEST)


def _is_packed(response: Any) -> bool:
    return bool(response.headers.get("content-encoding", "identity") != "identity")


def _bounded_stream(stream: Any, most: int) -> Any:
    class Bounded(_httpx().AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in stream:
                size += len(piece)
                if size > most:
                    raise AttemptError(f"the server sent more than {most >> 20 or 1} MB", retry=False, billed=True)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@cache
def _httpx() -> ModuleType:
    """The HTTP library under `openai`, whose errors it does not always wrap; which one depends on its version."""
    import openai

    modules = (base.__module__.partition(".")[0] for base in openai.DefaultAsyncHttpxClient.__mro__)
    return import_module(next(name for name in modules if name.startswith("httpx")))


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


def read_answer(content: bytes, request: Request) -> RawAnswer:
    """The answer in the body of a successful response; `AttemptError` for anything that is not one."""
    data = _json(content)
    if data.get("error"):
        raise AttemptError(f"the server answered with an error: {error_text(data)}")
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise AttemptError("the server answered without a choice", billed=True)
    message = choice["message"]
    given = message.get("content")
    if not isinstance(given, str | list | None):
        raise AttemptError("the server answered with a content that is no text", billed=True)
    text = _without_prefix(_text(given), request)
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
        except ValueError as error:
            raise AttemptError("the server answered with something that is not JSON", billed=True) from error
    if not isinstance(data, dict):
        raise AttemptError("the server answered with JSON that is not a reply", billed=True)
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


def _tokens(data: Any) -> tuple[Token, ...]:
    entries = data.get("content") if isinstance(data, dict) else None
    try:
        return tuple(_token(entry) for entry in entries or ())
    except (KeyError, TypeError, ValueError) as error:
        raise AttemptError("the server answered with log probabilities that cannot be read", billed=True) from error


def _token(entry: dict[str, Any]) -> Token:
    top = tuple((clean(other["token"]), float(other["logprob"])) for other in entry.get("top_logprobs") or ())
    return Token(clean(entry["token"]), float(entry["logprob"]), top)
