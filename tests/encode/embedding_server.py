"""A real HTTP server that speaks /v1/embeddings and misbehaves on request."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSION = 6


@dataclass(frozen=True)
class Say:
    """How the server meets one attempt."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The whole body, in place of vectors."""
    delay: float = 0.0
    trickle: float = 0.0
    """Seconds between the bytes of the body."""
    cut: bool = False
    """Hang up in the middle of the body."""
    shuffled: bool = False
    """The vectors in reverse, each with its index."""


def vector(text: str) -> list[float]:
    """What the server thinks of a text."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 255 - 0.5 for byte in digest[:DIMENSION]]


class EmbeddingServer:
    """Serves on a free port of this machine; `plan` says what happens to the n-th attempt."""

    def __init__(self, plan: Callable[[int, dict[str, Any]], Say] = lambda nth, body: Say()) -> None:
        self.plan = plan
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.busy = self.busiest = 0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> EmbeddingServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def texts(self) -> list[str]:
        """Every text that arrived, in whatever order."""
        return [text for body in self.bodies for text in body["input"]]


def _handler(server: EmbeddingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                nth = len(server.bodies)
                server.bodies.append(body)
                server.headers.append(dict(self.headers))
                server.times.append(time.monotonic())
                server.busy += 1
                server.busiest = max(server.busiest, server.busy)
            say = server.plan(nth, body)
            time.sleep(say.delay)
            with server.lock:
                server.busy -= 1
            self._answer(say, body["input"])

        def _answer(self, say: Say, texts: list[str]) -> None:
            rows = [{"index": place, "embedding": vector(text)} for place, text in enumerate(texts)]
            answer = {"data": rows[::-1] if say.shuffled else rows, "usage": {"total_tokens": 10 * len(texts)}}
            content = json.dumps(answer).encode() if say.body is None else say.body
            self.send_response(say.status)
            for name, value in {"Content-Length": str(len(content)), **say.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                if say.cut:
                    self.wfile.write(content[: len(content) // 2])
                    self.close_connection = True
                    return
                if say.trickle:
                    for byte in content:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(say.trickle)
                    return
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    return Handler
