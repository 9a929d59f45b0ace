"""Requests to a search engine that takes documents: an index with the right fields, batches, and a count.

The requests of each engine are in `targets.toml`. Every document carries the task's own id; if an engine needs ids of
another kind, these are derived from the task's, so that sending a document twice replaces it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import orjson

from r2med.engines.request import NoSuchPath, fill, follow
from r2med.errors import R2medError
from r2med.store.typed import Typed, convert

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class PushedDocument(NamedTuple):
    """One document to be sent."""

    id: str
    text: str
    vector: list[float] | None


class EngineAnswer(NamedTuple):
    """Status of an answer, and the JSON in its body (a list if it has several lines)."""

    status: int
    content: Any


class Push(Typed, frozen=True):
    """One request, its content, and the error statuses that it accepts."""

    path: str
    method: str = "POST"
    content: bytes = b""
    type: str = "application/json"
    accept: tuple[int, ...] = ()
    """Status codes that are an answer too, such as 404 to the question whether something is there."""


class PushTemplate(Push, frozen=True):
    """A request with placeholders."""

    body: Any = None


class TargetTable(Typed, frozen=True, kw_only=True):
    """Requests that fill an engine, with placeholders."""

    probe: PushTemplate  # its answer shows if the index exists
    create: tuple[PushTemplate, ...] = ()
    add: PushTemplate
    document: Any = None  # what stands for each document in `{items}`; the parts of a list are lines of their own
    visible: PushTemplate | None = None  # what makes added documents visible to the next search
    count: PushTemplate
    count_path: str
    errors: str = ""  # where an answer tells of an error in spite of its status
    schema: tuple[Any, ...] = ()  # what the user must deploy where no request can create an index
    metrics: tuple[str, str] = ("", "")  # the engine's names of the cosine and the inner product
    names: str = r"[A-Za-z0-9][A-Za-z0-9_-]*"  # which names an index may have
    joint: str = "-"  # what stands between the words of a name
    capital: bool = False  # whether the words of a name begin with a capital
    needs_vectors: bool = False
    longest: int = 0  # the most bytes of a text that the engine holds; 0 for no such limit
    one_by_one: bool = False
    text_options: Mapping[str, str] = {}
    """Options of `http(...)` beyond url and index that a search of the pushed texts needs; then, of their vectors."""
    vector_options: Mapping[str, str] = {}

    def default_name(self, task: str) -> str:
        """Return an index name made of the task's."""
        words = re.findall("[a-z0-9]+", task.rstrip("/").split("/")[-1].lower()) or ["documents"]
        return self.joint.join(map(str.capitalize, words) if self.capital else words)


TARGETS: Mapping[str, TargetTable] = convert(
    tomllib.loads((files("r2med.engines") / "targets.toml").read_text("utf-8")), dict[str, TargetTable], "targets.toml"
)


@dataclass(frozen=True)
class IndexTarget:
    """One engine's requests for an index of a name."""

    engine: str
    index: str
    dimension: int = 0  # of the vectors; 0 for an index without
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        names = self.table.names
        if not re.fullmatch(names, self.index):
            raise R2medError(f"{self.index!r} cannot be the name of an index here; it must be of the form {names}")

    @property
    def table(self) -> TargetTable:
        """Return the requests of the engine."""
        return TARGETS[self.engine]

    @cached_property
    def _values(self) -> dict[str, Any]:
        metric = self.table.metrics[self.similarity != "cosine"]
        sizes = {"dimension": self.dimension, "dimension_json": str(self.dimension)}
        return {"index": self.index, "metric": metric, **sizes}

    def filled(self, push: PushTemplate, **values: Any) -> Push:
        """Return a request without placeholders."""
        values = self._values | values
        texts = {name: quote(value, safe="") for name, value in values.items() if isinstance(value, str)}
        body = fill(_without_mark(push.body, bool(self.dimension)), values)
        if push.type == "application/json":
            content = b"" if push.body is None else orjson.dumps(body)
        else:
            content = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in body)
        return Push(fill(push.path, texts), push.method, content, push.type, push.accept)

    def there(self, answer: EngineAnswer) -> bool:
        """Return whether the answer shows that the index exists."""
        return answer.status == 200 and not self._error(answer)

    def create(self) -> list[Push]:
        """Return the requests that create the index, with all its fields."""
        if self.table.schema:
            engine = self.engine.capitalize()
            raise R2medError(f"{engine} has no schema {self.index!r}: deploy one with the fields that --dry-run shows")
        return list(map(self.filled, self.table.create))

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return the request that adds documents, or replaces those with the same ids."""
        rows = [
            document._asdict() | {"uuid": str(uuid5(NAMESPACE_URL, f"r2med:{document.id}"))} for document in documents
        ]
        if self.table.one_by_one:
            (row,) = rows
            return self.filled(self.table.add, **row | {"text": _CONTROL.sub(" ", row["text"])})
        template = _without_mark(self.table.document, bool(self.dimension))
        items = [fill(template, self._values | row) for row in rows]
        if isinstance(template, list):
            items = [part for parts in items for part in parts]
        return self.filled(self.table.add, items=items)

    def counted(self, answer: EngineAnswer) -> int:
        """Return the number in the answer."""
        error = self._error(answer)
        try:
            if not error:
                return int(follow(answer.content, fill(self.table.count_path, self._values)))
        except NoSuchPath as missing:
            error = f"the answer {missing}"
        raise R2medError(f"{self.engine.capitalize()} cannot count {self.index}: {error}")

    def _error(self, answer: EngineAnswer) -> str:
        """Return the error that an answer tells of, whatever its status; empty if there is none."""
        try:
            error = follow(answer.content, self.table.errors) if self.table.errors else None
        except NoSuchPath:
            return ""
        return _error_words(error[0] if isinstance(error, list) else answer.content) if error else ""

    def refused(self, answer: EngineAnswer) -> str:
        """Return the engine's reason for refusing a document; empty if it took all of them."""
        return _REFUSALS[self.engine](answer.content) if self.engine in _REFUSALS else self._error(answer)

    def waits(self, answer: EngineAnswer) -> Push | None:
        """Return the request that shows if the work of an answer is done; None if it is."""
        if self.engine != "meilisearch":
            return None
        if "taskUid" in answer.content:
            return Push(f"tasks/{answer.content['taskUid']}", "GET")
        waiting = answer.content.get("status") in ("enqueued", "processing")
        return Push(f"tasks/{answer.content['uid']}", "GET") if waiting else None

    def mapping(self) -> str:
        """Return the requests that create the index, or else the schema to deploy, for display."""
        if self.table.schema:
            parts = _without_mark(list(self.table.schema), bool(self.dimension))
            return str(fill("".join(part if isinstance(part, str) else part["lines"] for part in parts), self._values))
        lines = []
        for push in self.create():
            body = orjson.dumps(orjson.loads(push.content), option=orjson.OPT_INDENT_2).decode()
            lines.append(f"{push.method} /{push.path}\n{body}\n")
        return "".join(lines)

    def options(self) -> Mapping[str, str]:
        """Return the options of `http(...)` beyond url and index that a search of the pushed documents needs."""
        return self.table.vector_options if self.dimension else self.table.text_options


def _without_mark(template: Any, vectors: bool) -> Any:
    """Return a template without its marks, and unless there are vectors without the parts that are for vectors only."""

    def stays(part: Any) -> bool:
        return vectors or not (part == "{vector}" or (isinstance(part, dict) and part.get("only") == "vectors"))

    if isinstance(template, list):
        return [_without_mark(part, vectors) for part in template if stays(part)]
    if not isinstance(template, dict):
        return template
    return {name: _without_mark(part, vectors) for name, part in template.items() if name != "only" and stays(part)}


def _error_words(error: Any) -> str:
    """Return the message of an error, however it is wrapped."""
    if isinstance(error, Mapping):
        error = error.get("reason") or error.get("message") or error
    return " ".join(str(error).split())[:200]


def _refused_item(answer: Any) -> str:
    """Return the first error of a `_bulk` request."""
    if not answer.get("errors"):
        return ""
    items = [item["index"] for item in answer["items"] if "error" in item["index"]]
    return f"{items[0]['_id']}: {_error_words(items[0]['error'])}" if items else "errors without an item"


def _refused_line(answer: Any) -> str:
    """Return the error of the first line that failed; the status of the whole reply is 200 nevertheless."""
    lines = answer if isinstance(answer, list) else [answer]
    return next((_error_words(line.get("error", line)) for line in lines if not line.get("success", True)), "")


def _failed_task(answer: Any) -> str:
    return "" if answer.get("status") == "succeeded" else _error_words(answer.get("error") or "failed")


def _refused_object(answer: Any) -> str:
    """Return the error of the first object that failed; the status of the whole reply is 200 nevertheless."""
    for item in answer if isinstance(answer, list) else ():
        if errors := ((item.get("result") or {}).get("errors") or {}).get("error"):
            return f"{item.get('properties', {}).get('doc_id', '?')}: {_error_words(errors[0])}"
    return ""


_REFUSALS: Mapping[str, Callable[[Any], str]] = {
    "elasticsearch": _refused_item,
    "opensearch": _refused_item,
    "typesense": _refused_line,
    "meilisearch": _failed_task,
    "weaviate": _refused_object,
}
