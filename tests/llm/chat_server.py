"""A real HTTP server that speaks /v1/chat/completions and misbehaves on request.

As a script it serves until its standard input closes, so that a benchmark can run it in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Say:
    """How the server meets one attempt."""

    text: str | None = None
    """The answer; None for an echo of the last message."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    message: dict[str, Any] = field(default_factory=dict)
    """Further fields of the message."""
    choice: dict[str, Any] = field(default_factory=dict)
    """Further fields of the choice."""
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5})
    body: bytes | None = None
    """The whole body, in place of all of the above."""
    delay: float = 0.0
    trickle: float = 0.0
    """Seconds between the bytes of the body."""
    cut: str = ""
    """`length`: half of the announced bytes; `chunks`: a chunked body without its end; `silent`: no byte at all."""


Plan = Callable[[str, int], Say]
"""From the last message and how often it was asked before, to what happens."""


class ChatServer:
    """Serves on a free port of this machine, from a thread of its own, and remembers what it was asked."""

    def __init__(self, plan: Plan = lambda prompt, nth: Say(), latency: float = 0.0) -> None:
        self.plan = plan
        self.latency = latency
        self.asked: Counter[str] = Counter()
        """Attempts by last message."""
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.answered = 0
        self.busy = 0
        self.busiest = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def attempts(self) -> int:
        return sum(self.asked.values())

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length:")
                )
                body = json.loads(await reader.readexactly(length))
                self.heads.append(head)
                self.bodies.append(body)
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                try:
                    if not await self._respond(body, writer):
                        return
                finally:
                    self.busy -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _respond(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        prompt = body["messages"][-1]["content"]
        nth = self.asked[prompt]
        self.asked[prompt] += 1
        say = self.plan(prompt, nth)
        await asyncio.sleep(say.delay or self.latency)
        if say.cut == "silent":
            return False
        data = say.body if say.body is not None else self._json(say, prompt)
        lines = [f"HTTP/1.1 {say.status} X", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in say.headers.items()]
        if say.cut == "chunks":
            writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
            writer.write(f"{len(data):x}\r\n".encode() + data[: len(data) // 2])
            await writer.drain()
            return False
        writer.write("\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode())
        if say.cut == "length":
            writer.write(data[: len(data) // 2])
            await writer.drain()
            return False
        if say.trickle:
            for place in range(len(data)):
                writer.write(data[place : place + 1])
                await writer.drain()
                await asyncio.sleep(say.trickle)
        else:
            writer.write(data)
            await writer.drain()
        self.answered += say.status == 200
        return True

    def _json(self, say: Say, prompt: str) -> bytes:
        if say.status != 200:
            return json.dumps({"error": {"message": say.text or "no", "type": "test"}}).encode()
        text = f"answer to {prompt}" if say.text is None else say.text
        message = {"role": "assistant", "content": text, **say.message}
        choice = {"index": 0, "message": message, "finish_reason": "stop", **say.choice}
        return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": say.usage}).encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.2)
    arguments = parser.parse_args()
    with ChatServer(latency=arguments.latency) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
