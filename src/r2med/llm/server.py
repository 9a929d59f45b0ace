"""Chat servers over HTTP: a request as the body of a call, and the body of a response as an answer.

An attempt that fails raises an `AttemptError`, whatever the reason. All dialects of the protocol are read.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from r2med.errors import require_extra
from r2med.llm.types import Message, Model, RawAnswer, Request, Token
from r2med.models.http import Address, AttemptError, FatalServerError, Unreachable, error_text, is_count
from r2med.usage import Usage

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

_CONNECT = 10.0
"""Seconds to reach a server; how long it may take to answer is the client's limit."""
_LARGEST = 16 << 20
"""Bytes of a response: ten times what the longest answer with all its log probabilities takes."""
_ACCOUNT_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
"""Environment variables of the account that is billed, as OpenAI's own library names them."""


class Server(Protocol):
    """A server that answers requests."""

    async def answer(self, request: Request) -> RawAnswer:
        """Send a request once; raises `AttemptError` if it fails."""

    async def close(self) -> None:
        """Close connections and processes."""


class HttpServer:
    """A server that speaks the chat protocol. The key is read from the environment and never leaves this object."""

    def __init__(self, model: Model, timeout: float) -> None:
        require_extra("llm", "aiohttp", "truststore")
        self._address = _address(model)
        self._url, self._timeout = model.url, timeout
        self._key = self._address.key()

    @cached_property
    def _session(self) -> ClientSession:
        """Open the session, with as many connections as requests under way, on the loop that uses it."""
        aiohttp = _aiohttp()
        secure = urlsplit(self._url).scheme == "https"
        session: ClientSession = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_trusted() if secure else True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
            headers=self._headers(),
            # Not `trust_env`, which would put a login of ~/.netrc in the place of the key.
            proxy=_proxy(self._url) if self._address.trust_env else None,
        )
        return session

    def _headers(self) -> dict[str, str]:
        # An answer that is sent packed could be of any size.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers["Authorization"] = f"Bearer {self._key or 'none'}"
        if self._address.key_env == "OPENAI_API_KEY":
            headers |= {name: os.environ[env] for env, name in _ACCOUNT_HEADERS.items() if os.environ.get(env)}
        return headers

    async def answer(self, request: Request) -> RawAnswer:
        """Send a request once."""
        started = time.perf_counter()
        content = await self._post(request)
        try:
            found = read_answer(content, request)
        except AttemptError as trouble:
            trouble.reason = self._safe(trouble.reason)
            raise
        return replace(found, seconds=time.perf_counter() - started)

    async def close(self) -> None:
        """Close the connections."""
        if "_session" in vars(self):
            await self._session.close()

    async def _post(self, request: Request) -> bytes:
        aiohttp = _aiohttp()
        sent = json.dumps(body(request), ensure_ascii=False).encode()
        url = f"{self._url}/chat/completions"
        try:
            # The library's own timeouts are for each read; a server that trickles would never meet them.
            async with asyncio.timeout(self._timeout):
                # A redirect could take the key elsewhere.
                async with self._session.post(url, data=sent, allow_redirects=False) as response:
                    content = await _bounded(response)
        except aiohttp.ClientConnectorCertificateError as error:
            raise FatalServerError(f"{self._url} shows a certificate that this machine does not trust") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(self._url) from error
        except TimeoutError as error:
            raise AttemptError(f"no answer within {self._timeout:g} s", billed=True) from error
        except (aiohttp.InvalidURL, UnicodeError) as error:  # UnicodeError: a part of the name is too long
            raise FatalServerError(f"{self._url} is not the address of a server: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptError("the connection broke", billed=True) from error
        if response.status != 200:
            raise self._refusal(response, content, request.model)
        return content

    def _refusal(self, response: ClientResponse, content: bytes, model: Model) -> AttemptError:
        """Return the error for a response that is not an answer."""
        text = content.decode("utf-8", "replace")
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = text
        detail = said.get("error", said) if isinstance(said, dict) else {}
        quota = isinstance(detail, dict) and "insufficient_quota" in (detail.get("code"), detail.get("type"))
        safe = self._safe(error_text(said))
        return _address(model).refusal(response.status, response.headers, safe, fatal=quota)

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _aiohttp() -> ModuleType:
    """Import the HTTP library, which is an extra."""
    import aiohttp

    return aiohttp


def _trusted() -> ssl.SSLContext:
    """Return the certificate authorities that this machine trusts, a hospital's own included."""
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy(url: str) -> str | None:
    """Return the proxy of the environment for an address."""
    parts, known = urlsplit(url), getproxies()
    proxy = None if proxy_bypass(parts.hostname or "") else known.get(parts.scheme) or known.get("all")
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy and not proxy.startswith(("http://", "https://")):
        raise FatalServerError(f"the proxy of the environment is a {urlsplit(proxy).scheme} one; an http one is needed")
    return proxy


async def _bounded(response: ClientResponse) -> bytes:
    """Read the body of a response, up to a size that no answer has."""
    received = bytearray()
    async for piece in response.content.iter_any():
        received += piece
        if len(received) > _LARGEST:
            raise AttemptError(f"the server sent more than {_LARGEST >> 20} MB", retry=False, billed=True)
    return bytes(received)


def _address(model: Model) -> Address:
    # With 403, some servers refuse a single prompt for what it says.
    return Address(model.name, model.id, model.url, "chat/completions", model.key_env, model.needs_key)


_CHARACTERS_PER_TOKEN = 4


def clean(text: str) -> str:
    """Replace halves of surrogate pairs, which no file and no server accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
        "messages": [{"role": role, "content": clean(content)} for role, content in messages],
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
    """Read the answer in the body of a successful response; raise `AttemptError` for anything else."""
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
        raise AttemptError("the server answered with content that is not text", billed=True)
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
        except (ValueError, RecursionError) as error:
            raise AttemptError("the server answered with something that is not JSON", billed=True) from error
    if not isinstance(data, dict):
        raise AttemptError("the server answered with JSON that is not a reply", billed=True)
    return data


def _text(content: Any) -> str:
    """Return a text given as a string, or as the list of parts that some servers send."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return clean("".join(part for part in parts if isinstance(part, str)))
    return clean(content) if isinstance(content, str) else ""


def _without_prefix(text: str, request: Request) -> str:
    """Remove the message that the model was to continue, which some servers repeat."""
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
        prompt_tokens=prompt if is_count(prompt) else guess_tokens(prompt_text(request.messages)),
        completion_tokens=completion if is_count(completion) else guess_tokens(text) + guess_tokens(reasoning),
        reasoning_tokens=thought if is_count(thought) else 0,
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
