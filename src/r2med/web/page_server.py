"""The server behind the pages: it lets listeners go when it stops, and waits for nobody who has nothing to ask."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from r2med.web.live_feed import LiveFeed

_PATIENCE = 10.0
"""Seconds that a request may take to arrive: whoever asks for nothing holds a place that others need."""


class PatientProtocol(H11Protocol):
    """A connection that is closed when no whole request comes."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on as long as what came is no request yet."""
        super().data_received(data)
        if self._answering:
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._late = self.loop.call_later(_PATIENCE, self._give_up)

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
        self._feed = feed
        self._tell = tell

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
        http=PatientProtocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=bool(proxy),
        forwarded_allow_ips=proxy,
    )
    return PageServer(config, app.state.feed, tell)
