"""Requests to a search engine that takes documents: an index with the right fields, batches, and a count.

Requests are written from the engines' public documentation. Every document carries the task's own id; if an engine
needs ids of another kind, these are derived from the task's, so that sending a document twice replaces it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import orjson

from r2med.errors import R2medError


class PushedDocument(NamedTuple):
    """One document to be sent."""

    id: str
    text: str
    vector: list[float] | None


@dataclass(frozen=True)
class Push:
    """One request, its content, and the error statuses that it accepts."""

    method: str
    path: str
    content: bytes = b""
    type: str = "application/json"
    accept: tuple[int, ...] = ()
    """Status codes that are an answer too, such as 404 to the question whether something is there."""

    @classmethod
    def of(cls, method: str, path: str, body: Any, accept: tuple[int, ...] = ()) -> Push:
        """Build a request with a JSON body."""
        return cls(method, path, orjson.dumps(body), accept=accept)

    @classmethod
    def lines(cls, path: str, rows: Sequence[Any]) -> Push:
        """Build a request with a line of JSON per row, each ended."""
        return cls("POST", path, b"".join(orjson.dumps(row) + b"\n" for row in rows), "application/x-ndjson")


class EngineAnswer(NamedTuple):
    """Status of an answer, and the JSON in its body (a list if it has several lines)."""

    status: int
    content: Any


def derived_uuid(identifier: str) -> str:
    """Return a UUID that stands for a document's id, always the same."""
    return str(uuid5(NAMESPACE_URL, f"r2med:{identifier}"))


@dataclass(frozen=True)
class IndexTarget(ABC):
    """One engine's requests for an index of a name."""

    index: str
    dimension: int = 0
    """Of the vectors; 0 for an index without."""
    similarity: str = "cosine"
    names: ClassVar[str] = r"[A-Za-z0-9][A-Za-z0-9_-]*"
    """Which names an index may have."""
    needs_vectors: ClassVar[bool] = False
    longest: ClassVar[int] = 0
    """The most bytes of a text that the engine holds; 0 for no such limit."""
    one_by_one: ClassVar[bool] = False

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return an index name made of the task's."""
        return re.sub(r"[^a-z0-9]+", "-", task.rstrip("/").split("/")[-1].lower()).strip("-") or "documents"

    def __post_init__(self) -> None:
        if not re.fullmatch(self.names, self.index):
            raise R2medError(f"{self.index!r} cannot be the name of an index here; it must be of the form {self.names}")

    @abstractmethod
    def exists(self) -> Push:
        """Return the request whose answer shows if the index exists."""

    def there(self, answer: EngineAnswer) -> bool:
        """Return whether the answer shows that the index exists."""
        return answer.status == 200

    @abstractmethod
    def create(self) -> list[Push]:
        """Return the requests that create the index, with all its fields."""

    @abstractmethod
    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return the request that adds documents, or replaces those with the same ids."""

    def refused(self, answer: EngineAnswer) -> str:
        """Return the engine's reason for refusing a document; empty if it took all of them."""
        return ""

    def waits(self, answer: EngineAnswer) -> Push | None:
        """Return the request that shows if the work of an answer is done; None if it is."""
        return None

    def finish(self) -> list[Push]:
        """Return the requests that make added documents visible."""
        return []

    @abstractmethod
    def count(self) -> Push:
        """Return the request that counts the documents."""

    @abstractmethod
    def counted(self, answer: EngineAnswer) -> int:
        """Return the number in the answer."""

    def options(self) -> Mapping[str, str]:
        """Return the options of `http(...)` beyond url and index that a search of the pushed documents needs."""
        return {}

    def _fields(self, document: PushedDocument) -> dict[str, Any]:
        found: dict[str, Any] = {"text": document.text}
        return found if document.vector is None else found | {"vector": document.vector}


def error_words(error: Any) -> str:
    """Return the message of an error, however it is wrapped."""
    if isinstance(error, Mapping):
        error = error.get("reason") or error.get("message") or error
    return " ".join(str(error).split())[:200]
