"""The one HTTP client and its one policy: limits, retries and waits, masked keys, and errors of one line.

A temporary failure (429, 5xx, a lost or slow connection) is retried after a wait that grows, has some jitter, and is
never shorter than the server asked for. A key is read from the environment and is not part of any message.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self, TypeGuard, TypeVar
from urllib.parse import urlsplit

import orjson

from r2med.errors import R2medError, SpecError
from r2med.formatting import counted
from r2med.pipeline.executor.local import at_command_start
from r2med.settings import RequestSettings, request_settings, server_sets

if TYPE_CHECKING:
    import httpx2

Client = TypeVar("Client")
_CONNECT = 10.0  # seconds to reach a server, if its answer may take longer
_PORTS = {"http": 80, "https": 443}


def check_url(name: str, url: str, key_env: str, form: str = "NAME@http://host:port/v1") -> str:
    """Return a server's base URL in its usual form; raise a `SpecError` if it is not a URL or holds a secret.

    >>> check_url("m", "HTTP://Host:80/v1/", "KEY")
    'http://host/v1'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError(f"the address of {name} is not a URL ({error}); write {form}") from error
    if parts.username or parts.password:
        raise SpecError(f"the address of {name} holds a user or password; set {key_env} in the environment instead")
    if parts.query or parts.fragment:
        raise SpecError(
            f"the address of {name} has something after ? or #, which would be stored with every result;"
            f" leave it out, and set {key_env} in the environment if it is a key"
        )
    if not parts.hostname or parts.scheme not in _PORTS or not url.isprintable() or " " in url:
        raise SpecError(f"the address of {name} is not a URL: {url!r}; write {form}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def server_name(url: str) -> str:
    """Return the name under which answers, vectors and scores of a server are stored: its set, or its address."""
    for name, patterns in server_sets().items():
        if any(fnmatchcase(url, pattern.rstrip("/")) for pattern in patterns):
            return name
    return url


class ServerError(R2medError):
    """A server that cannot be used at all: wrong key, unknown model, or not running."""


@dataclass
class Health:
    """State of one model at one address: once dead, it is not asked again."""

    answered: bool = False
    failures: int = 0  # requests in a row that came to nothing
    dead: str = ""  # why nothing more is asked; empty while it lives

    def check(self) -> None:
        """Raise if the model is known to be dead."""
        if self.dead:
            raise ServerError(self.dead)

    def give_up(self, reason: str) -> ServerError:
        """Mark the model as dead and return the error to raise."""
        self.dead = reason
        return ServerError(reason)


HEALTH: defaultdict[str, Health] = defaultdict(Health)
"""The state of embedding and rerank servers in this process since the command began."""
at_command_start(HEALTH.clear)
PATIENCE = 600.0
"""The longest wait a server may ask for, in seconds."""
_LONGEST = 60.0  # the longest wait without a request of the server, in seconds
_REPORTED = 5.0  # the shortest wait that is reported, in seconds
_REFUSED, _REFUSED_WAIT = 2, 0.5  # retries if no server listens, and the first wait before one
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_AGAIN = {408, 409, 425, 429}
_SETUP = {402, 405}


class AttemptError(Exception):
    """A failed attempt at a request. Never leaves a client: it becomes a retry or a failure."""

    def __init__(self, reason: str, *, retry: bool = True, wait: float | None = None, billed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason  # one line for a user, without keys
        self.retry, self.wait = retry, wait  # whether asking again may help, and after how many seconds
        # Whether the server may have done (and charged) the work although nothing usable arrived.
        self.billed = billed


class FatalServerError(AttemptError):
    """An error that every other request to this server and model would meet too."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retry=False)


class TimedOut(AttemptError):
    """An attempt that was given up because it took too long; the server may bill it nevertheless."""

    def __init__(self, reason: str, *, retry: bool = True) -> None:
        super().__init__(reason, retry=retry, billed=True)


@dataclass
class FailedAttempts:
    """Number of attempts that failed, including those that a retry made up for."""

    errors: int = 0
    timeouts: int = 0

    def count(self, error: BaseException) -> None:
        """Count a failed attempt by the error that it raised."""
        late = isinstance(error, TimedOut | TimeoutError)
        self.timeouts, self.errors = self.timeouts + late, self.errors + (not late)


class Unreachable(AttemptError):
    """An attempt that failed because no server listens at the address."""

    def __init__(self, url: str) -> None:
        super().__init__(f"no server is listening at {url}; is the server running?")


@dataclass(frozen=True)
class RequestLimits:
    """Limits on the load of a server. They do not change an answer, so they are not part of a key."""

    concurrency: int = 8  # requests under way at a time, for each server
    timeout: float = 120.0  # of a request, in seconds
    retries: int = 6  # how often a request is asked again after the first failure
    backoff: float = 1.0  # the first wait before a retry, in seconds
    requests_per_minute: float | None = None

    def __post_init__(self) -> None:
        RequestSettings(self.timeout, self.retries, self.requests_per_minute, self.concurrency).check()

    @classmethod
    def configured(cls, **more: Any) -> Self:
        """Build the limits from the user's files and the command."""
        return cls(**more, **request_settings().given())

    def wait(self, error: AttemptError, attempt: int, health: Health, pace: Pace) -> float | None:
        """Return the seconds until a request may be retried after attempt number `attempt` (the first is 0); None if
        it may not. A wait that the server asks for pauses all requests, and a long one is reported.
        """
        patience = min(PATIENCE, self.timeout)
        if error.wait is not None and error.wait > patience:
            error.reason += f"; it asks to wait {error.wait:.4g} s, more than the timeout of {patience:g} s"
            return None
        if error.wait is not None and pace.leave_alone(error.wait) and error.wait >= _REPORTED:
            sys.stderr.write(f"waiting {error.wait:.0f} s, as the server asks for ({error.reason})\n")
            sys.stderr.flush()
        retries, first_wait = self.retries, self.backoff
        if refused(error, health):
            retries, first_wait = min(_REFUSED, retries), min(_REFUSED_WAIT, first_wait)
        return backoff(attempt + 1, first_wait, error.wait) if error.retry and attempt < retries else None


def refused(error: AttemptError, health: Health) -> bool:
    """Return whether no server listens and none ever did; one that has answered may be restarting."""
    return isinstance(error, Unreachable) and not health.answered


class Pace:
    """Rate limit of a server: start times by the allowed rate, and no request while the server asks for a pause."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._gap = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._lock = threading.Lock()
        self._quiet_until = self._next_start = 0.0

    def leave_alone(self, seconds: float) -> bool:
        """Pause all requests for so many seconds. Returns whether no pause was under way yet."""
        with self._lock:
            now = time.monotonic()
            asked_before, self._quiet_until = self._quiet_until, max(self._quiet_until, now + seconds)
        return asked_before <= now

    def turn(self) -> float:
        """Reserve the next start of a request and return the seconds until then."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._quiet_until, self._next_start)
            self._next_start = start + self._gap if self._gap else 0.0
            return start - now


def backoff(attempt: int, base: float, least: float | None = None) -> float:
    """Return the wait before attempt number `attempt` (the first retry is 1): doubling, with jitter."""
    grown = min(_LONGEST, base * 2.0 ** min(attempt - 1, 30))
    return grown * random.uniform(0.5, 1.0) if least is None else least + random.uniform(0.0, min(1.0, grown))


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a server asks to wait: `Retry-After` in seconds or as a date, or in milliseconds.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after-ms": "300"}), retry_after({})
    (2.5, 0.3, None)
    >>> retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=45.0)
    15.0
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            wait = float(value) * scale
        except ValueError:
            wait = -1.0
            with suppress(ValueError):
                wait = max(0.0, parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now))
        if 0 <= wait < float("inf"):
            return wait
    return None


def check_key(variable: str, key: str) -> str:
    """Return a key if it can be sent in a header; the error message does not show it."""
    if not (key.isascii() and key.isprintable()):
        raise ServerError(f"{variable} holds characters that no header can hold; is it a key, without line breaks?")
    return key


@dataclass(frozen=True)
class Address:
    """A model of a server, with its URL and the variable of its key."""

    name: str  # the model's name for users
    id: str  # the name the server knows it by
    url: str  # the server's base URL
    path: str  # what is asked for, after the base URL
    key_env: str  # the environment variable with the key; empty when none is needed
    needs_key: bool = False  # whether the server is known to refuse requests without a key
    key_codes: tuple[int, ...] = (401,)  # with which codes the server refuses a key

    def key(self) -> str:
        """Read the key from the environment; return an empty text if there is none and none is needed."""
        key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        if self.needs_key and not key:
            raise ServerError(f"{self.name} needs a key: set {self.key_env} in the environment")
        return check_key(self.key_env, key)

    def open(self, kind: Callable[..., Client], headers: Mapping[str, str], timeout: float) -> Client:
        """Open an `httpx2.Client` or `AsyncClient`, without a proxy before this machine."""
        import httpx2

        parts = urlsplit(self.url)
        try:
            (parts.hostname or "").encode("idna")
        except UnicodeError as error:
            raise FatalServerError(f"{self.url} is not the address of a server: {error}") from error
        try:
            return kind(
                headers=headers,
                timeout=httpx2.Timeout(timeout, connect=min(_CONNECT, timeout)),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
                trust_env=parts.hostname not in _LOOPBACK,
                verify=httpx2.create_ssl_context() if parts.scheme == "https" else False,
            )
        except (ImportError, ValueError) as error:
            raise FatalServerError(f"the proxy of the environment cannot be used: {error}") from error

    @contextmanager
    def errors(self, timeout: float) -> Iterator[None]:
        """Turn errors of the HTTP library into failed attempts."""
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise FatalServerError(f"{self.url} shows a certificate that this machine does not trust") from error
            raise Unreachable(self.url) from error
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise TimedOut(f"no answer from {self.url} within {timeout:g} s") from error
        except httpx2.InvalidURL as error:
            raise FatalServerError(f"{self.url} is not the address of a server: {error}") from error
        except (httpx2.HTTPError, OSError) as error:
            raise AttemptError(f"the connection to {self.url} broke", billed=True) from error

    def refusal(self, response: httpx2.Response, text: str, key: str) -> AttemptError:
        """Return the error for a response that is not an answer; its text may repeat the key."""
        code, headers = response.status_code, response.headers
        content: Any = mask(text, key)
        with suppress(orjson.JSONDecodeError):
            content = orjson.loads(content)
        message = mask(error_text(content), key)
        if 300 <= code < 400:
            target = headers.get("location", "")[:200] or "another address"
            return FatalServerError(f"{self.url} redirects to {target}; name the address that answers itself")
        if code in self.key_codes:
            # What the server says here may quote a part of the key.
            names = self.key_env.split(", ") if self.key_env else []
            unset = [name for name in names if not os.environ.get(name, "").strip()]
            advice = f"{' and '.join(unset)} not set" if unset else f"check {self.key_env or 'its key'}"
            return FatalServerError(f"{self.url} refused the key of {self.name} ({code}): {advice}")
        if code == 404:
            return FatalServerError(f"{self.url} does not know the model {self.id}, or has no /{self.path}: {message}")
        if code in _SETUP or "insufficient_quota" in text:
            return FatalServerError(f"{self.url} takes no requests to {self.name} ({code}): {message}")
        again = code in _AGAIN or code >= 500
        return AttemptError(f"{code} from {self.url}: {message}", retry=again, wait=retry_after(headers))


def mask(text: str, key: str) -> str:
    """Replace a key in a text from outside."""
    return text.replace(key, "***") if key else text


def error_text(data: Any) -> str:
    """Return the message inside an error body, in whatever form the server wraps it, on one line."""
    error = data.get("error", data) if isinstance(data, dict) else data
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    try:
        line = " ".join(str(message or error).split())
    except RecursionError:
        line = "a reply that is nested too deeply to be read"
    return line if len(line) <= 200 else line[:200] + "..."


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a server's number of tokens is plausible: whole, not negative, and not a truth value.

    >>> [is_count(value) for value in (7, 0, -7, True, 7.0, "7")]
    [True, True, False, False, False, False]
    """
    return type(value) is int and value >= 0


def with_attempts(reason: str, attempts: int) -> str:
    """Return a reason with the number of attempts, if there was more than one."""
    return reason if attempts == 1 else f"{reason} ({attempts} attempts)"


def say_waiting(requests: int, seconds: float) -> None:
    """Report at once which requests a first Ctrl-C waits for."""
    if requests:
        under_way = f"{counted(requests, 'request')} under way may still take {seconds:g} s"
        sys.stderr.write(f"stopping: {under_way}; Ctrl-C again stops at once\n")
        sys.stderr.flush()
