"""A server that speaks /v1/embeddings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonserver

DIMENSION = 6


@dataclass(frozen=True)
class Say(jsonserver.Say):
    """How the server meets one attempt."""

    shuffled: bool = False
    """The vectors in reverse, each with its index."""


def vector(text: str) -> list[float]:
    """What the server thinks of a text."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 255 - 0.5 for byte in digest[:DIMENSION]]


class EmbeddingServer(jsonserver.JsonServer):
    """`plan` says what happens to the n-th attempt."""

    def __init__(self, plan: Callable[[int, dict[str, Any]], Say] = lambda nth, body: Say()) -> None:
        super().__init__(plan)

    def answer(self, say: Say, body: dict[str, Any]) -> object:
        rows = [{"index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])]
        return {"data": rows[::-1] if say.shuffled else rows, "usage": {"total_tokens": 10 * len(rows)}}

    @property
    def texts(self) -> list[str]:
        """Every text that arrived, in whatever order."""
        return [text for body in self.bodies for text in body["input"]]
