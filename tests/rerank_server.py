"""A server that speaks /v1/rerank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonserver


@dataclass(frozen=True)
class Say(jsonserver.Say):
    """How the server meets one attempt."""

    missing: int = 0
    """How many of the results are left out."""
    name: str = "results"
    score: str = "relevance_score"


def fit(query: str, document: str) -> float:
    """What the server thinks of a pair: the words they share, and the shorter the better."""
    return len(set(query.split()) & set(document.split())) + 1 / (1 + len(document))


class RerankServer(jsonserver.JsonServer):
    """`plan` says what happens to the n-th attempt."""

    def __init__(self, plan: Callable[[int, dict[str, Any]], Say] = lambda nth, body: Say()) -> None:
        super().__init__(plan)

    def answer(self, say: Say, body: dict[str, Any]) -> object:
        rows = [{"index": i, say.score: fit(body["query"], d)} for i, d in enumerate(body["documents"])]
        rows = sorted(rows, key=lambda row: -row[say.score])[: len(rows) - say.missing]
        return {say.name: rows, "usage": {"total_tokens": 7}}
