"""Requests to a search engine that takes documents: an index with the right fields, batches, and a count.

Requests are written from the engines' public documentation. Every document carries the task's own id; if an engine
needs ids of another kind, these are derived from the task's, so that sending a document twice replaces it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import orjson

from r2med.engines.request import follow
from r2med.errors import R2medError

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class PushedDocument(NamedTuple):
    """One document to be sent."""

    id: str
    text: str
    vector: list[float] | None


@dataclass(frozen=True)
class Push:
    """One request, its content, and the error statuses that it accepts; `{index}` stands for the index's name."""

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
    def lines(cls, path: str, rows: Iterable[Any], type: str = "application/x-ndjson") -> Push:
        """Build a request with a line of JSON per row, each ended."""
        return cls("POST", path, b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows), type)


class EngineAnswer(NamedTuple):
    """Status of an answer, and the JSON in its body (a list if it has several lines)."""

    status: int
    content: Any


def _uuid(document: PushedDocument) -> str:
    return str(uuid5(NAMESPACE_URL, f"r2med:{document.id}"))


@dataclass(frozen=True)
class IndexTarget(ABC):
    """One engine's requests for an index of a name."""

    index: str
    dimension: int = 0
    """Of the vectors; 0 for an index without."""
    similarity: str = "cosine"
    probe: ClassVar[Push]
    """Its answer shows if the index exists."""
    counting: ClassVar[Push]
    visible: ClassVar[Sequence[Push]] = ()
    """What makes added documents visible to the next search."""
    count_path: ClassVar[str] = ""
    """Where the answer to `counting` has the number."""
    metrics: ClassVar[tuple[str, str]]
    """The engine's names of the cosine and the inner product."""
    names: ClassVar[str] = r"[A-Za-z0-9][A-Za-z0-9_-]*"
    """Which names an index may have."""
    joint: ClassVar[str] = "-"
    """What stands between the words of a name."""
    needs_vectors: ClassVar[bool] = False
    longest: ClassVar[int] = 0
    """The most bytes of a text that the engine holds; 0 for no such limit."""
    one_by_one: ClassVar[bool] = False

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return an index name made of the task's."""
        words = re.sub(r"[^a-z0-9]+", cls.joint, task.rstrip("/").split("/")[-1].lower())
        return words.strip(cls.joint) or "documents"

    def __post_init__(self) -> None:
        if not re.fullmatch(self.names, self.index):
            raise R2medError(f"{self.index!r} cannot be the name of an index here; it must be of the form {self.names}")

    @property
    def metric(self) -> str:
        """Return the engine's name of the similarity."""
        return self.metrics[self.similarity != "cosine"]

    def exists(self) -> Push:
        """Return the request whose answer shows if the index exists."""
        return self._named(self.probe)

    def count(self) -> Push:
        """Return the request that counts the documents."""
        return self._named(self.counting)

    def _named(self, push: Push) -> Push:
        return replace(push, content=push.content.replace(b"{index}", self.index.encode()))

    def addressed(self, push: Push) -> Push:
        """Return a request with the name of the index in its path."""
        return replace(push, path=push.path.replace("{index}", quote(self.index, safe="")))

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

    def counted(self, answer: EngineAnswer) -> int:
        """Return the number in the answer."""
        return int(follow(answer.content, self.count_path))

    def mapping(self) -> str:
        """Return the requests that create the index, for display."""
        lines = []
        for push in map(self.addressed, self.create()):
            body = orjson.dumps(orjson.loads(push.content), option=orjson.OPT_INDENT_2).decode()
            lines.append(f"{push.method} /{push.path}\n{body}\n")
        return "".join(lines)

    def options(self) -> Mapping[str, str]:
        """Return the options of `http(...)` beyond url and index that a search of the pushed documents needs."""
        return {}


def _fields(document: PushedDocument) -> dict[str, Any]:
    return {"text": document.text} | ({} if document.vector is None else {"vector": document.vector})


def _rows(documents: Sequence[PushedDocument]) -> list[dict[str, Any]]:
    return [{"id": document.id} | _fields(document) for document in documents]


def _error_words(error: Any) -> str:
    """Return the message of an error, however it is wrapped."""
    if isinstance(error, Mapping):
        error = error.get("reason") or error.get("message") or error
    return " ".join(str(error).split())[:200]


class _Elasticsearch(IndexTarget):
    """`_bulk` with an English analyzer, `dense_vector` for vectors."""

    probe = Push("GET", "{index}", accept=(404,))
    counting = Push("GET", "{index}/_count", accept=(404,))
    visible = (Push("POST", "{index}/_refresh"),)
    count_path = "count"
    metrics = ("cosine", "max_inner_product")
    names = r"[a-z0-9][a-z0-9._-]*"
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of an index with vectors."""

    def _vector(self) -> dict[str, Any]:
        return {"type": "dense_vector", "dims": self.dimension, "index": True, "similarity": self.metric}

    def create(self) -> list[Push]:
        fields: dict[str, Any] = {"text": {"type": "text", "analyzer": "english"}}
        vector = {"vector": self._vector()} if self.dimension else {}
        settings = self.settings if self.dimension else {}
        return [Push.of("PUT", "{index}", {"mappings": {"properties": fields | vector}, **settings})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        rows = [row for document in documents for row in ({"index": {"_id": document.id}}, _fields(document))]
        return Push.lines("{index}/_bulk", rows)

    def refused(self, answer: EngineAnswer) -> str:
        if not answer.content.get("errors"):
            return ""
        items = [item["index"] for item in answer.content["items"] if "error" in item["index"]]
        return f"{items[0]['_id']}: {_error_words(items[0]['error'])}" if items else "errors without an item"


class _OpenSearch(_Elasticsearch):
    """As Elasticsearch, with `knn_vector`."""

    metrics = ("cosinesimil", "innerproduct")
    settings = {"settings": {"index": {"knn": True}}}  # noqa: RUF012 - a class variable of the base

    def _vector(self) -> dict[str, Any]:
        method = {"name": "hnsw", "engine": "lucene", "space_type": self.metric}
        return {"type": "knn_vector", "dimension": self.dimension, "method": method}


class _Solr(IndexTarget):
    """A core or collection that exists already, fields by the Schema API, `update` with JSON."""

    probe = Push("GET", "solr/{index}/schema/fields/text", accept=(404,))
    counting = Push.of("POST", "solr/{index}/query", {"query": "*:*", "limit": 0}, accept=(404,))
    visible = (Push.of("POST", "solr/{index}/update", {"commit": {}}),)
    count_path = "response.numFound"
    metrics = ("cosine", "dot_product")
    names = r"[A-Za-z0-9_][A-Za-z0-9._-]*"

    def create(self) -> list[Push]:
        fields: list[dict[str, Any]] = [{"name": "text", "type": "text_en", "indexed": True, "stored": True}]
        change: dict[str, Any] = {}
        if self.dimension:
            change["add-field-type"] = {
                "name": "r2med_vector", "class": "solr.DenseVectorField",
                "vectorDimension": str(self.dimension), "similarityFunction": self.metric,
            }  # fmt: skip
            fields.append({"name": "vector", "type": "r2med_vector", "indexed": True, "stored": False})
        return [Push.of("POST", "solr/{index}/schema", change | {"add-field": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        return Push.of("POST", "solr/{index}/update", _rows(documents))


class _Vespa(IndexTarget):
    """An application whose schema is deployed already; one request a document."""

    # A search that matches everything, which fails if the schema is unknown.
    probe = counting = Push.of(
        "POST", "search/", {"yql": "select * from {index} where true", "hits": 0}, accept=(400, 404)
    )
    metrics = ("angular", "dotproduct")
    names = r"[A-Za-z_][A-Za-z0-9_]*"
    joint = "_"
    one_by_one = True

    def there(self, answer: EngineAnswer) -> bool:
        return answer.status == 200 and not answer.content["root"].get("errors")

    def create(self) -> list[Push]:
        # An application package cannot be deployed over HTTP.
        raise R2medError(f"Vespa has no schema {self.index!r}: deploy one with the fields that --dry-run shows")

    def mapping(self) -> str:
        """Return the schema that an application needs."""
        field = (
            f"        field vector type tensor<float>(x[{self.dimension}]) {{\n"
            "            indexing: attribute | index\n"
            f"            attribute {{ distance-metric: {self.metric} }}\n"
            "        }\n"
        )
        profile = (
            "    rank-profile vector {\n"
            f"        inputs {{ query(q) tensor<float>(x[{self.dimension}]) }}\n"
            "        first-phase { expression: closeness(field, vector) }\n"
            "    }\n"
        )
        return (
            f"schema {self.index} {{\n    document {self.index} {{\n"
            "        field id type string { indexing: summary | attribute }\n"
            "        field text type string { indexing: index | summary\n            index: enable-bm25 }\n"
            f"{field if self.dimension else ''}    }}\n"
            "    rank-profile bm25 { first-phase { expression: bm25(text) } }\n"
            f"{profile if self.dimension else ''}}}\n"
        )

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        (document,) = documents
        fields: dict[str, Any] = {"id": document.id, "text": _CONTROL.sub(" ", document.text)}
        fields |= {"vector": {"values": document.vector}} if document.vector is not None else {}
        path = f"document/v1/{self.index}/{self.index}/docid/{quote(document.id, safe='')}"
        return Push.of("POST", path, {"fields": fields})

    def counted(self, answer: EngineAnswer) -> int:
        return int(answer.content["root"].get("fields", {}).get("totalCount", 0))

    def options(self) -> Mapping[str, str]:
        """Return the rank profile of the schema that `--dry-run` shows."""
        return {"ranking": "vector" if self.dimension else "bm25"}


class _Typesense(IndexTarget):
    """Lines of documents, and a line of reply for each."""

    probe = counting = Push("GET", "collections/{index}", accept=(404,))
    count_path = "num_documents"
    metrics = ("cosine", "ip")

    def create(self) -> list[Push]:
        # The field `id` needs no description.
        fields: list[dict[str, Any]] = [{"name": "text", "type": "string"}]
        if self.dimension:
            fields.append({"name": "vector", "type": "float[]", "num_dim": self.dimension, "vec_dist": self.metric})
        return [Push.of("POST", "collections", {"name": self.index, "fields": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        return Push.lines("collections/{index}/documents/import?action=upsert", _rows(documents), "text/plain")

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first line that failed; the status of the whole reply is 200 nevertheless."""
        lines = answer.content if isinstance(answer.content, list) else [answer.content]
        return next((_error_words(line.get("error", line)) for line in lines if not line.get("success", True)), "")


class _Meilisearch(IndexTarget):
    """Tasks that are waited for; ids of letters, digits, hyphens and underscores, so ours is beside."""

    probe = Push("GET", "indexes/{index}", accept=(404,))
    counting = Push("GET", "indexes/{index}/stats", accept=(404,))
    count_path = "numberOfDocuments"

    def create(self) -> list[Push]:
        settings: dict[str, Any] = {"searchableAttributes": ["text"]}
        if self.dimension:
            settings["embedders"] = {"vector": {"source": "userProvided", "dimensions": self.dimension}}
        return [
            Push.of("POST", "indexes", {"uid": self.index, "primaryKey": "key"}),
            Push.of("PATCH", "indexes/{index}/settings", settings),
        ]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        rows = []
        for document in documents:
            row: dict[str, Any] = {"key": _uuid(document), "id": document.id, "text": document.text}
            rows.append(row | ({"_vectors": {"vector": document.vector}} if document.vector is not None else {}))
        return Push.of("POST", "indexes/{index}/documents?primaryKey=key", rows)

    def waits(self, answer: EngineAnswer) -> Push | None:
        if "taskUid" in answer.content:
            return Push("GET", f"tasks/{answer.content['taskUid']}")
        waiting = answer.content.get("status") in ("enqueued", "processing")
        return Push("GET", f"tasks/{answer.content['uid']}") if waiting else None

    def refused(self, answer: EngineAnswer) -> str:
        succeeded = answer.content.get("status") == "succeeded"
        return "" if succeeded else _error_words(answer.content.get("error") or "failed")


class _Qdrant(IndexTarget):
    """Points with a UUID; the task's id is in the payload."""

    probe = Push("GET", "collections/{index}", accept=(404,))
    counting = Push.of("POST", "collections/{index}/points/count", {"exact": True}, accept=(404,))
    count_path = "result.count"
    metrics = ("Cosine", "Dot")
    names = r"[^/?*<>|\\:\"\x00-\x1f ]{1,255}"
    needs_vectors = True

    def create(self) -> list[Push]:
        vectors = {"size": self.dimension, "distance": self.metric}
        return [Push.of("PUT", "collections/{index}", {"vectors": vectors})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        points = [
            {"id": _uuid(document), "vector": document.vector, "payload": {"id": document.id, "text": document.text}}
            for document in documents
        ]
        return Push.of("PUT", "collections/{index}/points?wait=true", {"points": points})


class _Weaviate(IndexTarget):
    """Objects with a UUID; the task's id is a property, for `id` belongs to Weaviate."""

    probe = Push("GET", "v1/schema/{index}", accept=(404,))
    counting = Push.of("POST", "v1/graphql", {"query": "{ Aggregate { {index} { meta { count } } } }"})
    metrics = ("cosine", "dot")
    names = r"[A-Z][A-Za-z0-9_]*"

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return a name with a capital, as a class needs it."""
        return "".join(part.capitalize() for part in super().default_name(task).split("-"))

    def create(self) -> list[Push]:
        properties = [
            {"name": "doc_id", "dataType": ["text"], "tokenization": "field", "indexSearchable": False},
            {"name": "text", "dataType": ["text"]},
        ]
        body = {"class": self.index, "vectorizer": "none", "properties": properties}
        return [Push.of("POST", "v1/schema", body | {"vectorIndexConfig": {"distance": self.metric}})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        objects = []
        for document in documents:
            row: dict[str, Any] = {"class": self.index, "id": _uuid(document)}
            row["properties"] = {"doc_id": document.id, "text": document.text}
            objects.append(row | ({"vector": document.vector} if document.vector is not None else {}))
        return Push.of("POST", "v1/batch/objects", {"objects": objects})

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first object that failed; the status of the whole reply is 200 nevertheless."""
        for item in answer.content if isinstance(answer.content, list) else ():
            errors = ((item.get("result") or {}).get("errors") or {}).get("error")
            if errors:
                return f"{item.get('properties', {}).get('doc_id', '?')}: {_error_words(errors[0])}"
        return ""

    def counted(self, answer: EngineAnswer) -> int:
        """Return the count; an unknown class is an error inside the reply."""
        if answer.content.get("errors"):
            raise R2medError(f"Weaviate cannot count {self.index}: {_error_words(answer.content['errors'][0])}")
        return int(answer.content["data"]["Aggregate"][self.index][0]["meta"]["count"])

    def options(self) -> Mapping[str, str]:
        return {"id_field": "doc_id"}


class _Milvus(IndexTarget):
    """A collection with a text of limited length, its BM25 function and, if wanted, a vector."""

    probe = Push.of("POST", "v2/vectordb/collections/describe", {"collectionName": "{index}"})
    counting = Push.of(
        "POST", "v2/vectordb/entities/query",
        {"collectionName": "{index}", "filter": "", "outputFields": ["count(*)"], "consistencyLevel": "Strong"},
    )  # fmt: skip
    count_path = "data.0.count(*)"
    metrics = ("COSINE", "IP")
    names = r"[A-Za-z_][A-Za-z0-9_]{0,254}"
    joint = "_"
    longest = 65_535

    def there(self, answer: EngineAnswer) -> bool:
        return not answer.content.get("code")

    def create(self) -> list[Push]:
        text = {"max_length": str(self.longest), "enable_analyzer": True}
        fields: list[dict[str, Any]] = [
            {"fieldName": "id", "dataType": "VarChar", "isPrimary": True, "elementTypeParams": {"max_length": "512"}},
            {"fieldName": "text", "dataType": "VarChar", "elementTypeParams": text},
            {"fieldName": "sparse", "dataType": "SparseFloatVector"},
        ]
        metrics = [("sparse", "BM25", "SPARSE_INVERTED_INDEX")]
        if self.dimension:
            size = {"dim": str(self.dimension)}
            fields.append({"fieldName": "vector", "dataType": "FloatVector", "elementTypeParams": size})
            metrics.append(("vector", self.metric, "AUTOINDEX"))
        indexes = [
            {"fieldName": name, "indexName": name, "metricType": metric, "indexType": kind}
            for name, metric, kind in metrics
        ]
        bm25 = {"name": "bm25", "type": "BM25", "inputFieldNames": ["text"], "outputFieldNames": ["sparse"]}
        schema = {"autoId": False, "enableDynamicField": False, "fields": fields, "functions": [bm25 | {"params": {}}]}
        body = {"collectionName": self.index, "schema": schema, "indexParams": indexes}
        return [Push.of("POST", "v2/vectordb/collections/create", body)]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        body = {"collectionName": self.index, "data": _rows(documents)}
        return Push.of("POST", "v2/vectordb/entities/upsert", body)

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error if the code is not 0; the status of the reply is 200 nevertheless."""
        return _error_words(answer.content) if answer.content.get("code") else ""

    def options(self) -> Mapping[str, str]:
        """Return the field to search: without vectors, text is searched in the sparse vectors made of it."""
        return {} if self.dimension else {"field": "sparse"}


TARGETS: Mapping[str, type[IndexTarget]] = {
    "elasticsearch": _Elasticsearch,
    "opensearch": _OpenSearch,
    "solr": _Solr,
    "vespa": _Vespa,
    "qdrant": _Qdrant,
    "weaviate": _Weaviate,
    "typesense": _Typesense,
    "meilisearch": _Meilisearch,
    "milvus": _Milvus,
}
