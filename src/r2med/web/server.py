"""The server behind the pages: pages made in threads, the token, and a stop that ends all connections."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from r2med.store.cache import home
from r2med.web.live import LiveFeed

_REQUEST_TIMEOUT = 10.0  # seconds that a request may take to arrive: an idle connection holds a place that others need


class TimeoutProtocol(H11Protocol):
    """A connection that is closed when no whole request comes."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._late = self.loop.call_later(_REQUEST_TIMEOUT, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Wait on as long as what came is not a request yet."""
        super().data_received(data)
        if self._answering:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(_REQUEST_TIMEOUT, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self._answering and not self.transport.is_closing():
            self.transport.close()


class PageServer(uvicorn.Server):
    """A server that lets those go who listen to events, for whom it would wait otherwise."""

    def __init__(self, config: uvicorn.Config, feed: LiveFeed, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._feed, self._tell = feed, tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._tell()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self._feed.close()
        super().handle_exit(sig, frame)


def page_server(
    app: Starlette, host: str, port: int, proxy: str = "", tell: Callable[[], None] = lambda: None
) -> PageServer:
    """Return the server of an application, which calls `tell` once it listens.

    Only a proxy at the given address is believed when it says on whose behalf it asks.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=TimeoutProtocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=bool(proxy),
        forwarded_allow_ips=proxy,
    )
    return PageServer(config, app.state.feed, tell)


Made = TypeVar("Made")
_THREADS = 8  # so many pages are made at a time: more only take turns, and let fewer requests share one


class SharedPages(Generic[Made]):
    """Maker of pages in threads of its own, which shares equal requests.

    A request takes what is made for another if that had not been started when it came, so that no response is older
    than its request.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._waiting: dict[str, asyncio.Task[Made]] = {}
        self._threads = threads

    @cached_property
    def _limiter(self) -> CapacityLimiter:
        # Made on the loop that uses it.
        return CapacityLimiter(self._threads)

    async def get(self, address: str, make: Callable[[], Made]) -> Made:
        """Return what `make` gives, here or for a waiting request of the same address."""
        task = self._waiting.get(address)
        if task is None:

            def begin() -> Made:
                self._waiting.pop(address, None)
                return make()

            task = asyncio.ensure_future(to_thread.run_sync(begin, limiter=self._limiter))
            self._waiting[address] = task
            # The error is retrieved here, for there may be no waiting request left to raise it.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        # One who goes away takes nothing from the others.
        return await asyncio.shield(task)


_FORM = re.compile(r"[0-9a-f]{48}")


def token_path() -> Path:
    """Return the path of the token."""
    return home() / "serve-token"


def kept_token() -> str:
    """Return the token of this home, created if there is none; a temporary one if the home cannot be written.

    A token that others could have read is not a secret any more, and a new one takes its place.
    """
    path = token_path()
    with suppress(OSError):
        for _ in range(2):
            if token := _read(path):
                return token
            _make(path)
        return _read(path) or secrets.token_hex(24)
    return secrets.token_hex(24)


def _read(path: Path) -> str:
    """Read a token that only its owner could read; empty for anything else, which is removed."""
    try:
        facts = path.lstat()
        text = path.read_text("ascii", "replace").strip() if stat.S_ISREG(facts.st_mode) else ""
    except FileNotFoundError:
        return ""
    private = os.name == "nt" or (facts.st_mode & 0o077 == 0 and facts.st_uid == os.getuid())
    if private and _FORM.fullmatch(text):
        return text
    path.unlink()
    return ""


def _make(path: Path) -> None:
    """Write a token whole, and only where there is none: of two servers that start at once, both use the first."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(24) + "\n")
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
