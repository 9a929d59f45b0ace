"""Asking a server for vectors over HTTP, politely and in parallel.

A refusal for now (429, 5xx, a lost or slow connection) is asked again after a wait that grows, has some chance in it,
and is never shorter than the server wished. The key is read from the environment and is in no message, record or
setting.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import orjson

from r2med.config import request_settings
from r2med.encode.encoder import Vectors
from r2med.errors import R2medError, require_extra
from r2med.llm.event_loop import say_waiting
from r2med.llm.http_server import error_text, is_count, redirected
from r2med.llm.types import AttemptError, FatalServerError, Unreachable
from r2med.models.http import backoff, retry_after
from r2med.models.servers import OUTAGES

if TYPE_CHECKING:
    import httpx

_PATIENCE = 600.0  # the longest wait a server may ask for, in seconds
_LARGEST = 128 << 20
"""Bytes of a response: more than a request's vectors take with any model."""
_REFUSED, _REFUSED_WAIT = 2, 0.5
"""Retries where no server listens, and the first wait before one, in seconds."""
_AGAIN = {408, 409, 425, 429}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class ApiLimits:
    """How hard to work. None of it changes a vector."""

    concurrency: int = 8
    """Requests under way at a time."""
    timeout: float = 120.0
    """Seconds until a request counts as lost."""
    retries: int = 6
    backoff: float = 1.0
    """The first wait before a retry, in seconds."""
    requests_per_minute: float | None = None

    @classmethod
    def configured(cls) -> ApiLimits:
        """As the user's files and the command have it."""
        return cls(**request_settings().given())


class RequestFailed(R2medError):
    """One request that came to nothing; others may fare better."""


class Link:
    """The connection to one server, for several threads."""

    path = "embeddings"
    """What is asked for, after the server's base URL."""
    made = "vectors"
    """What comes back, as people call it."""

    def __init__(self, model: str, url: str, key_env: str, limits: ApiLimits, *, needs_key: bool) -> None:
        require_extra("api", "httpx")
        import httpx

        self._model, self._url, self._key_env, self._limits = model, url, key_env, limits
        self._key = os.environ.get(key_env, "").strip()
        if needs_key and not self._key:
            raise R2medError(f"{model} needs a key: set {key_env} in the environment")
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # A proxy of the environment cannot reach a server on this machine.
        direct = urlsplit(url).hostname in _LOOPBACK
        self._client = httpx.Client(headers=headers, timeout=limits.timeout, trust_env=not direct)
        self._server = f"{model}@{url}/{self.path}"
        self._lock = threading.Lock()
        self._quiet_until = self._next_start = 0.0
        self._stop = threading.Event()
        self.requests = 0
        """How many were answered."""
        self.tokens = 0
        """How many tokens the server counted in them."""

    def ask_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[Vectors]:
        """The vectors of every request, in order; the first that fails for good stops the others."""
        self._stop.clear()
        with ThreadPoolExecutor(max_workers=min(self._limits.concurrency, len(bodies))) as pool:
            futures = [pool.submit(self._ask, body) for body in bodies]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = next((error for future in futures if future.done() and (error := future.exception())), None)
                if failed is not None:
                    raise failed
                return [future.result() for future in futures]
            except KeyboardInterrupt:
                self._say_waiting(futures)
                raise
            finally:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _say_waiting(self, futures: Iterable[Future[Any]]) -> None:
        say_waiting(sum(future.running() for future in futures), self._limits.timeout)

    def _ask(self, body: Mapping[str, Any]) -> Vectors:
        """One request, until it is answered or hopeless."""
        for attempt in range(self._limits.retries + 1):
            if self._server in OUTAGES.dead:
                raise R2medError(OUTAGES.dead[self._server])
            self._sleep(self._turn())
            try:
                return self._attempt(body)
            except AttemptError as trouble:
                wait = trouble.wait
                # A server that has answered may be starting anew; one that never did is not waited for.
                refused = isinstance(trouble, Unreachable) and self._server not in OUTAGES.answered
                if not self._may_retry(trouble, attempt, refused):
                    raise self._given_up(trouble, attempt) from trouble
            if wait is not None:
                # What one request was told holds for all of them.
                with self._lock:
                    self._quiet_until = max(self._quiet_until, time.monotonic() + wait)
            base = min(_REFUSED_WAIT, self._limits.backoff) if refused else self._limits.backoff
            self._sleep(backoff(attempt + 1, base, wait))
        raise AssertionError("the last attempt returns or raises")

    def _may_retry(self, trouble: AttemptError, attempt: int, refused: bool) -> bool:
        retries = min(_REFUSED, self._limits.retries) if refused else self._limits.retries
        return trouble.retry and attempt < retries and (trouble.wait or 0.0) <= _PATIENCE

    def _given_up(self, trouble: AttemptError, attempt: int) -> R2medError:
        """What is raised when no attempt is left; a server that never answered is not asked again in this command."""
        tries = f" ({attempt + 1} attempts)" if attempt else ""
        line = f"{trouble.reason}{tries}; {self.made} so far are kept"
        silent = self._server not in OUTAGES.answered
        if isinstance(trouble, FatalServerError) or (silent and trouble.retry):
            OUTAGES.dead[self._server] = line
        for_all = isinstance(trouble, FatalServerError) or (silent and isinstance(trouble, Unreachable))
        return R2medError(line) if for_all else RequestFailed(line)

    def _turn(self) -> float:
        """How long to wait until the next request may start."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._quiet_until)
            if self._limits.requests_per_minute is not None:
                start = max(start, self._next_start)
                self._next_start = start + 60.0 / self._limits.requests_per_minute
            return start - now

    def _count(self, tokens: Any) -> None:
        """Note a request that was answered, and the tokens that the server counted in it."""
        OUTAGES.answered.add(self._server)
        with self._lock:
            self.requests += 1
            self.tokens += tokens if is_count(tokens) else 0

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)) or self._stop.is_set():
            raise R2medError("stopped")

    def _attempt(self, body: Mapping[str, Any]) -> Vectors:
        import httpx

        slow = f"no answer from {self._url} within {self._limits.timeout:g} s"
        late = time.monotonic() + self._limits.timeout
        received = bytearray()
        try:
            with self._client.stream("POST", f"{self._url}/{self.path}", content=orjson.dumps(body)) as response:
                for piece in response.iter_bytes():
                    received += piece
                    # The library's own timeout is for each read; a server that trickles would never meet it.
                    if time.monotonic() > late:
                        raise AttemptError(slow)
                    if len(received) > _LARGEST:
                        raise AttemptError(f"{self._url} sent more than {_LARGEST >> 20} MB", retry=False)
        except httpx.TimeoutException as error:
            raise AttemptError(slow) from error
        except httpx.ConnectError as error:
            raise Unreachable(f"no server is listening at {self._url}; is the server running?") from error
        except httpx.HTTPError as error:
            raise AttemptError(f"the connection to {self._url} broke") from error
        except httpx.InvalidURL as error:
            raise FatalServerError(f"{self._url} is no address of a server: {error}") from error
        if response.status_code != 200:
            raise self._refusal(response, received.decode("utf-8", "replace"))
        return self._read(bytes(received), body)

    def _refusal(self, response: httpx.Response, text: str) -> AttemptError:
        code, url = response.status_code, self._url
        if 300 <= code < 400:
            return FatalServerError(redirected(url, response.headers.get("location", "")))
        if code in (401, 403):
            # What the server says here may quote a part of the key.
            return FatalServerError(f"{url} refused the key of {self._model} ({code}): check {self._key_env}")
        said = error_text(_body(text.replace(self._key, "***") if self._key else text))
        if code == 404:
            return FatalServerError(f"{url} does not know the model {self._model}, or has no /{self.path}: {said}")
        again = (code in _AGAIN or code >= 500) and "insufficient_quota" not in text
        return AttemptError(f"{code} from {url}: {said}", retry=again, wait=retry_after(response.headers))

    def _read(self, content: bytes, body: Mapping[str, Any]) -> Vectors:
        """The vectors of an answer, in the order of the texts; an answer that makes no sense is asked for again."""
        try:
            answer = orjson.loads(content)
            rows = sorted(answer["data"], key=lambda row: row["index"])
            places = [row["index"] for row in rows]
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
            used = (answer.get("usage") or {}).get("total_tokens")
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise AttemptError(f"{self._url} sent an answer that cannot be read") from error
        count = len(body["input"])
        if places != list(range(count)) or vectors.ndim != 2:
            raise AttemptError(f"{self._url} sent {len(places)} vectors for {count} texts")
        self._count(used)
        return vectors


def _body(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
