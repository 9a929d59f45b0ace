"""Client of a server that takes and gives JSON: parallel requests from plain threads, with limits and retries."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from r2med.errors import R2medError, require_extra
from r2med.models.http import (
    HEALTH,
    Address,
    AttemptError,
    FailedAttempts,
    FatalServerError,
    Health,
    Pace,
    RequestLimits,
    ServerError,
    is_count,
    refused,
    say_waiting,
    with_attempts,
)
from r2med.usage import Usage

if TYPE_CHECKING:
    import httpx2

_HOPELESS = 3  # requests that come to nothing, with none answered, until the server counts as no good
Value = TypeVar("Value")


class RequestFailed(R2medError):
    """A request that failed; others may succeed."""


def stated_tokens(answer: Any) -> int | None:
    """Return the tokens that a reply says it was billed for, in the ways of OpenAI, Voyage, Jina and Cohere.

    >>> stated_tokens({"usage": {"total_tokens": 9}}), stated_tokens({"meta": {"billed_units": {"input_tokens": 7}}})
    (9, 7)
    """
    paths = (("usage", "total_tokens"), ("usage", "prompt_tokens"), ("meta", "billed_units", "input_tokens"))
    for path in paths:
        value = answer
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if is_count(value):
            return value
    return None


class Requester(ABC, Generic[Value]):
    """Sender of requests from several threads: the limits, retries and failures of one server."""

    made = ""  # the name of the results in messages; empty to not say that they are kept

    def __init__(self, name: str, limits: RequestLimits) -> None:
        self._name, self._limits = name, limits
        self._pace = Pace(limits.requests_per_minute)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.requests = 0  # how many were answered
        self.failed = FailedAttempts()

    @abstractmethod
    def _attempt(self, body: Mapping[str, Any]) -> Value:
        """Send a request once; raises `AttemptError` if it fails."""

    def _cancel(self) -> None:
        """End requests under way, if the server can be told to."""

    def ask_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[Value]:
        """Return the answer to every request, in order; the first final failure stops the others."""
        answers: dict[int, Value] = {}
        with closing(self.ask_each(bodies)) as coming:
            for place, answer in coming:
                if isinstance(answer, RequestFailed):
                    raise answer
                answers[place] = answer
        return [answers[place] for place in range(len(bodies))]

    def ask_each(self, bodies: Sequence[Mapping[str, Any]]) -> Generator[tuple[int, Value | RequestFailed], None, None]:
        """Yield each request's place with its answer, or its failure, as it comes; raise if no request can succeed."""
        self._stop.clear()
        with ThreadPoolExecutor(max_workers=min(self._limits.concurrency, len(bodies))) as pool:
            places = {pool.submit(self._ask, body): place for place, body in enumerate(bodies)}
            failed = 0
            try:
                for future in as_completed(places):
                    try:
                        yield places[future], future.result()
                    except RequestFailed as error:
                        failed += 1
                        if failed >= _HOPELESS and not self.requests:
                            raise R2medError(str(error)) from error
                        yield places[future], error
            except KeyboardInterrupt:
                say_waiting(sum(future.running() for future in places), self._limits.timeout)
                raise
            finally:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                if any(future.running() for future in places):
                    self._cancel()

    @property
    def _health(self) -> Health:
        return HEALTH[self._name]

    def _ask(self, body: Mapping[str, Any]) -> Value:
        """Send one request and retry until it is answered or fails for good."""
        for attempt in range(self._limits.retries + 1):
            self._health.check()
            self._sleep(self._pace.turn())
            try:
                return self._attempt(body)
            except AttemptError as error:
                with self._lock:
                    self.failed.count(error)
                wait = self._limits.wait(error, attempt, self._health, self._pace)
                if wait is None:
                    raise self._given_up(error, attempt + 1) from error
            self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _given_up(self, error: AttemptError, attempts: int) -> R2medError:
        """Return the error to raise after the last attempt; a server that never answered counts as dead."""
        line = with_attempts(error.reason, attempts) + (f"; {self.made} so far are kept" if self.made else "")
        fatal = isinstance(error, FatalServerError)
        if fatal or (error.retry and not self._health.answered):
            self._health.dead = line
        return R2medError(line) if fatal or refused(error, self._health) else RequestFailed(line)

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)) or self._stop.is_set():
            raise R2medError("stopped")


class JsonServer(Requester[Value]):
    """The connection to one server, for several threads."""

    path: str  # what is asked for, after the server's base URL
    method = "POST"
    largest = 128_000_000  # bytes from which on a response is refused: more than vectors take with any model
    bearer = True  # whether the key goes as the usual `Authorization` header
    retry_unreadable = True  # whether an answer that cannot be read is asked for again

    def __init__(self, model: str, url: str, key_env: str, limits: RequestLimits, *, needs_key: bool) -> None:
        require_extra("api", "httpx2")
        import httpx2

        self._address = Address(model, model, url, self.path, key_env, needs_key, key_codes=(401, 403))
        super().__init__(f"{model}@{url}/{self.path}", limits)
        self.url, self._key = url, self._address.key()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key and self.bearer else {}
        try:
            self._client = self._address.open(httpx2.Client, headers, limits.timeout)
        except AttemptError as error:
            raise ServerError(error.reason) from error
        self.tokens = 0  # how many the server counted in its answers
        self.uncounted = 0  # in how many of them it counted none
        self._billed = (0, 0, 0)

    @abstractmethod
    def read(self, answer: Any, body: Mapping[str, Any]) -> Value:
        """Parse the answer to a request; raise `AttemptError` if it does not fit, `ValueError` if it is unreadable."""

    def bill(self, per_token: float | None, per_request: float | None = None) -> Usage:
        """Return the bill since the last call, at US dollars per million tokens and per thousand requests."""
        counters = (self.requests, self.tokens, self.uncounted)
        requests, tokens, uncounted = (now - then for now, then in zip(counters, self._billed, strict=True))
        self._billed = counters
        cost = 0.0 if per_token == 0 or per_request == 0 else None
        if per_request is not None:
            cost = requests * per_request / 1e3
        elif per_token is not None and not uncounted:
            cost = tokens * per_token / 1e6
        return Usage(requests=requests, prompt_tokens=tokens, cost=cost, paid=cost, counted=not uncounted)

    def _attempt(self, body: Mapping[str, Any]) -> Value:
        response, content = self._post(body)
        if response.status_code != 200:
            raise self._refusal(response, content.decode("utf-8", "replace"))
        try:
            answer = orjson.loads(content)
            value = self.read(answer, body)
            tokens = stated_tokens(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            no_json = " as JSON" if isinstance(error, orjson.JSONDecodeError) else ""
            line = f"{self.url} sent an answer that cannot be read{no_json}"
            raise AttemptError(line, retry=self.retry_unreadable) from error
        self._count(tokens)
        return value

    def sent(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with which the client sends a request's body."""
        return {"content": orjson.dumps(body)}

    def place(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """Return the method and the path of a request."""
        return self.method, self.path

    def _post(self, body: Mapping[str, Any]) -> tuple[httpx2.Response, bytes]:
        """Send a request; return the response, which is read to its end, and its content."""
        late = time.monotonic() + self._limits.timeout
        received = bytearray()
        method, path = self.place(body)
        sending = self._client.stream(method, f"{self.url}/{path}", **self.sent(body))
        with self._address.errors(self._limits.timeout), sending as response:
            for piece in response.iter_bytes():
                received += piece
                # The library's own timeout is for each read; a server that trickles would never meet it.
                if time.monotonic() > late:
                    raise TimeoutError
                if len(received) >= self.largest:
                    raise AttemptError(f"{self.url} sent {self.largest // 1_000_000} MB or more", retry=False)
        return response, bytes(received)

    def _refusal(self, response: httpx2.Response, text: str) -> AttemptError:
        return self._address.refusal(response, text, self._key)

    def _count(self, tokens: int | None) -> None:
        """Count a request that was answered, and the tokens that the server counted in it."""
        self._health.answered = True
        with self._lock:
            self.requests += 1
            self.tokens += tokens or 0
            self.uncounted += tokens is None
