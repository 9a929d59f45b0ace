"""A real HTTP server that answers JSON with JSON and misbehaves on request; what it says is the business of its kinds.

class Echo(JsonServer):
    def answer(self, say, body):
        return {"said": body}

with Echo(lambda nth, body: Say(503) if nth == 0 else Say()) as server:
    requests go to server.url, and server.bodies has what came
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Say:
    """How the server meets one attempt."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The whole body, in place of an answer."""
    delay: float = 0.0
    trickle: float = 0.0
    """Seconds between the bytes of the body."""
    cut: str = ""
    """`length`: half of the announced bytes; `chunks`: a chunked body without its end; `silent`: no byte at all."""


class JsonServer(ABC):
    """Serves on a free port of this machine, from a thread of its own, and remembers what it was asked."""

    def __init__(self, plan: Callable[..., Say], latency: float = 0.0) -> None:
        self.plan = plan
        """From how many attempts there were before, and the body, to what happens."""
        self.latency = latency
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        """Their names in the usual capitals, however they were sent."""
        self.paths: list[str] = []
        self.times: list[float] = []
        self.answered = 0
        self.busy = self.busiest = 0
        self.url = ""
        self.tls: ssl.SSLContext | None = None
        """With which certificate it serves, where it does."""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @abstractmethod
    def answer(self, say: Any, body: dict[str, Any]) -> object:
        """What is sent when the plan has no body of its own."""

    def meet(self, body: dict[str, Any]) -> Say:
        """What happens to the attempt that came last."""
        return self.plan(len(self.bodies) - 1, body)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512, ssl=self.tls)
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        open_ones = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection shall end with it."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.title(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["Content-Length"])))
        self.bodies.append(body)
        self.headers.append(headers)
        self.paths.append(first.split()[1])
        self.times.append(time.monotonic())
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            return await self._respond(self.meet(body), body, writer)
        finally:
            self.busy -= 1

    async def _respond(self, say: Say, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(say.delay or self.latency)
        if say.cut == "silent":
            return False
        data = say.body if say.body is not None else json.dumps(self.answer(say, body)).encode()
        lines = [f"HTTP/1.1 {say.status} X", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in say.headers.items()]
        if say.cut == "chunks":
            writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
            writer.write(f"{len(data):x}\r\n".encode())
        else:
            writer.write("\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode())
        if say.cut:
            writer.write(data[: len(data) // 2])
            await writer.drain()
            return False
        # Before the last byte is out: whoever has it may look at once.
        self.answered += say.status == 200
        if say.trickle:
            for place in range(len(data)):
                writer.write(data[place : place + 1])
                await writer.drain()
                await asyncio.sleep(say.trickle)
        else:
            writer.write(data)
            await writer.drain()
        return True
