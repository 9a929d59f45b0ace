"""A real HTTP server that speaks /v1/rerank and misbehaves on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Say:
    """How the server meets one attempt."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The whole body, in place of scores."""
    missing: int = 0
    """How many of the results are left out."""
    name: str = "results"
    score: str = "relevance_score"


def fit(query: str, document: str) -> float:
    """What the server thinks of a pair: the words they share, and the shorter the better."""
    return len(set(query.split()) & set(document.split())) + 1 / (1 + len(document))


class RerankServer:
    """Serves on a free port of this machine; `plan` says what happens to the n-th attempt."""

    def __init__(self, plan: Callable[[int, dict[str, Any]], Say] = lambda nth, body: Say()) -> None:
        self.plan = plan
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> RerankServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: RerankServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                nth = len(server.bodies)
                server.bodies.append(body)
                server.headers.append(dict(self.headers))
                server.paths.append(self.path)
            say = server.plan(nth, body)
            rows = [{"index": i, say.score: fit(body["query"], d)} for i, d in enumerate(body["documents"])]
            rows = sorted(rows, key=lambda row: -row[say.score])[: len(rows) - say.missing]
            answer = {say.name: rows, "usage": {"total_tokens": 7}}
            content = json.dumps(answer).encode() if say.body is None else say.body
            self.send_response(say.status)
            for name, value in {"Content-Length": str(len(content)), **say.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    return Handler
