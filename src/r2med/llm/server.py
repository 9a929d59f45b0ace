"""One attempt at a request over HTTP, on the official `openai` library; every way it can go wrong is a `Trouble`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from r2med.errors import require_extra
from r2med.llm.retry import retry_after
from r2med.llm.types import Answer, Model, Request, Trouble, Unreachable, Unusable
from r2med.llm.wire import body, error_text, read_answer

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_WAIT_LONGER = {408, 409, 425, 429}
_SETUP = {402, 405}
_CONNECT = 10.0
"""Seconds to reach a server; how long it may take to answer is the client's limit."""
_LARGEST = 16 << 20
"""Bytes of a response: ten times what the longest answer with all its log probabilities takes."""
_LANE = 4
"""Connections in one pool: whenever a request starts or ends, a pool looks at each of its idle connections."""


class Server(Protocol):
    """Whatever answers requests."""

    async def answer(self, request: Request) -> Answer:
        """One attempt; raises `Trouble` when it fails."""

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
        self._url = model.url
        self._key_env = model.key_env
        self._timeout = timeout
        self._key = os.environ.get(model.key_env, "").strip() if model.key_env else ""
        if model.needs_key and not self._key:
            raise Unusable(f"{model.name} needs a key: set {model.key_env} in the environment")
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

        # A proxy of the environment cannot reach a server on this machine.
        direct = urlsplit(self._url).hostname in _LOOPBACK
        return openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key or "none",
            timeout=_httpx().Timeout(None, connect=_CONNECT),
            max_retries=0,
            # An answer that is sent packed could be of any size; a redirect could take the key elsewhere.
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=not direct, follow_redirects=False, event_hooks={"response": [_bound]}
            ),
        )

    async def answer(self, request: Request) -> Answer:
        """One attempt."""
        started = time.perf_counter()
        content = await self._post(request)
        try:
            found = read_answer(content, request)
        except Trouble as trouble:
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
            raise Trouble(f"no answer within {self._timeout:g} s", billed=True) from error
        except openai.APIConnectionError as error:
            raise self._connection_trouble(error) from error
        except openai.APIStatusError as error:
            raise self._status_trouble(error, request.model) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Trouble("the connection broke", billed=True) from error
        except httpx.InvalidURL as error:
            raise Unusable(f"{self._url} is no address of a server: {error}") from error
        finally:
            lane.busy -= 1
        return bytes(response.content)

    def _connection_trouble(self, error: APIConnectionError) -> Trouble:
        if isinstance(error.__cause__, Trouble):
            return error.__cause__
        if type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout"):
            return Unreachable(f"no server is listening at {self._url}; is the server running?")
        return Trouble("the connection broke", billed=True)

    def _status_trouble(self, error: APIStatusError, model: Model) -> Trouble:
        code = error.status_code
        if 300 <= code < 400:
            return Unusable(redirected(self._url, error.response.headers.get("location", "")))
        said = self._safe(error_text(error.body if error.body is not None else error.response.text))
        if code == 401:
            return Unusable(f"{self._url} refused the key of {model.name}: check {self._key_env or 'its key'}")
        if code == 404:
            return Unusable(f"{self._url} does not know the model {model.id}, or is no chat server: {said}")
        if code in _SETUP or "insufficient_quota" in (error.code, error.type):
            return Unusable(f"{self._url} takes no requests to {model.name} ({code}): {said}")
        again = code in _WAIT_LONGER or code >= 500
        return Trouble(f"{code} from {self._url}: {said}", retry=again, wait=retry_after(error.response.headers))

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def redirected(url: str, target: str) -> str:
    """What to say about a server that sends its visitors elsewhere: keys and questions do not follow."""
    return f"{url} redirects to {target[:200] or 'another address'}; name the address that answers itself"


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
                    raise Trouble(f"the server sent more than {most >> 20 or 1} MB", retry=False, billed=True)
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
