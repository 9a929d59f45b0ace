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
    place: ClassVar[str] = ""
    """The path of the index, with a place for its name."""
    count_path: ClassVar[str] = ""
    """Where the answer to `count` has the number."""
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

    @property
    def path(self) -> str:
        """Return the path of the index."""
        return self.place.format(quote(self.index, safe=""))

    def exists(self) -> Push:
        """Return the request whose answer shows if the index exists."""
        return Push("GET", self.path, accept=(404,))

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

    def counted(self, answer: EngineAnswer) -> int:
        """Return the number in the answer."""
        return int(follow(answer.content, self.count_path))

    def mapping(self) -> str:
        """Return the requests that create the index, for display."""
        lines = []
        for push in self.create():
            body = orjson.dumps(orjson.loads(push.content), option=orjson.OPT_INDENT_2).decode()
            lines.append(f"{push.method} /{push.path}\n{body}\n")
        return "".join(lines)

    def options(self) -> Mapping[str, str]:
        """Return the options of `http(...)` beyond url and index that a search of the pushed documents needs."""
        return {}

    def _fields(self, document: PushedDocument) -> dict[str, Any]:
        fields: dict[str, Any] = {"text": document.text}
        return fields if document.vector is None else fields | {"vector": document.vector}


def error_words(error: Any) -> str:
    """Return the message of an error, however it is wrapped."""
    if isinstance(error, Mapping):
        error = error.get("reason") or error.get("message") or error
    return " ".join(str(error).split())[:200]


class ElasticsearchIndex(IndexTarget):
    """Elasticsearch: `_bulk` with an English analyzer, `dense_vector` for vectors."""

    place = "{}"
    count_path = "count"
    names = r"[a-z0-9][a-z0-9._-]*"

    def _mappings(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"text": {"type": "text", "analyzer": "english"}}
        return {"mappings": {"properties": fields | ({"vector": self._vector()} if self.dimension else {})}}

    def _vector(self) -> dict[str, Any]:
        metric = "cosine" if self.similarity == "cosine" else "max_inner_product"
        return {"type": "dense_vector", "dims": self.dimension, "index": True, "similarity": metric}

    def create(self) -> list[Push]:
        """Return the request that creates the index with its mapping."""
        return [Push.of("PUT", self.index, self._mappings())]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return lines of actions and documents."""
        rows = [row for document in documents for row in ({"index": {"_id": document.id}}, self._fields(document))]
        return Push.lines(f"{self.path}/_bulk", rows)

    def refused(self, answer: EngineAnswer) -> str:
        """Return the first item with an error."""
        if not answer.content.get("errors"):
            return ""
        items = [item["index"] for item in answer.content["items"] if "error" in item["index"]]
        return f"{items[0]['_id']}: {error_words(items[0]['error'])}" if items else "errors without an item"

    def finish(self) -> list[Push]:
        """Return the request that makes the documents visible to the next search."""
        return [Push("POST", f"{self.path}/_refresh")]

    def count(self) -> Push:
        """Return the request that counts all documents."""
        return Push("GET", f"{self.path}/_count", accept=(404,))


class OpenSearchIndex(ElasticsearchIndex):
    """OpenSearch: as Elasticsearch, with `knn_vector`."""

    def _mappings(self) -> dict[str, Any]:
        return super()._mappings() | ({"settings": {"index": {"knn": True}}} if self.dimension else {})

    def _vector(self) -> dict[str, Any]:
        space = "cosinesimil" if self.similarity == "cosine" else "innerproduct"
        method = {"name": "hnsw", "engine": "lucene", "space_type": space}
        return {"type": "knn_vector", "dimension": self.dimension, "method": method}


class SolrIndex(IndexTarget):
    """Solr: a core or collection that exists already, fields by the Schema API, `update` with JSON."""

    place = "solr/{}"
    count_path = "response.numFound"
    names = r"[A-Za-z0-9_][A-Za-z0-9._-]*"

    def exists(self) -> Push:
        """Return the request for the field with the text."""
        return Push("GET", f"{self.path}/schema/fields/text", accept=(404,))

    def create(self) -> list[Push]:
        """Return the request that adds a field with the text, and one with the vector and its type."""
        fields: list[dict[str, Any]] = [{"name": "text", "type": "text_en", "indexed": True, "stored": True}]
        change: dict[str, Any] = {}
        if self.dimension:
            metric = "cosine" if self.similarity == "cosine" else "dot_product"
            change["add-field-type"] = {
                "name": "r2med_vector", "class": "solr.DenseVectorField",
                "vectorDimension": str(self.dimension), "similarityFunction": metric,
            }  # fmt: skip
            fields.append({"name": "vector", "type": "r2med_vector", "indexed": True, "stored": False})
        return [Push.of("POST", f"{self.path}/schema", change | {"add-field": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return a request with a list of documents."""
        rows = [{"id": document.id} | self._fields(document) for document in documents]
        return Push.of("POST", f"{self.path}/update", rows)

    def finish(self) -> list[Push]:
        """Return the request that commits."""
        return [Push.of("POST", f"{self.path}/update", {"commit": {}})]

    def count(self) -> Push:
        """Return a search for all documents that fetches none."""
        return Push.of("POST", f"{self.path}/query", {"query": "*:*", "limit": 0}, accept=(404,))


class VespaIndex(IndexTarget):
    """Vespa: an application whose schema is deployed already; one request a document."""

    names = r"[A-Za-z_][A-Za-z0-9_]*"
    one_by_one = True

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return a name of letters, digits and underscores."""
        return super().default_name(task).replace("-", "_")

    def exists(self) -> Push:
        """Return a search that matches everything, which fails if the schema is unknown."""
        return self.count()

    def there(self, answer: EngineAnswer) -> bool:
        """Return whether the search has no errors."""
        return answer.status == 200 and not answer.content["root"].get("errors")

    def create(self) -> list[Push]:
        """Raise an error: an application package cannot be deployed over HTTP."""
        raise R2medError(f"Vespa has no schema {self.index!r}: deploy one with the fields that --dry-run shows")

    def mapping(self) -> str:
        """Return the schema that an application needs."""
        metric = "angular" if self.similarity == "cosine" else "dotproduct"
        vector = (
            f"        field vector type tensor<float>(x[{self.dimension}]) {{\n"
            "            indexing: attribute | index\n"
            f"            attribute {{ distance-metric: {metric} }}\n"
            "        }\n"
        )
        inputs = f"        inputs {{ query(q) tensor<float>(x[{self.dimension}]) }}\n"
        phase = "        first-phase { expression: closeness(field, vector) }\n"
        closeness = f"    rank-profile vector {{\n{inputs}{phase}    }}\n"
        return (
            f"schema {self.index} {{\n    document {self.index} {{\n"
            "        field id type string { indexing: summary | attribute }\n"
            "        field text type string { indexing: index | summary\n            index: enable-bm25 }\n"
            f"{vector if self.dimension else ''}    }}\n"
            "    rank-profile bm25 { first-phase { expression: bm25(text) } }\n"
            f"{closeness if self.dimension else ''}}}\n"
        )

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return the request for one document."""
        (document,) = documents
        fields: dict[str, Any] = {"id": document.id, "text": _CONTROL.sub(" ", document.text)}
        fields |= {"vector": {"values": document.vector}} if document.vector is not None else {}
        path = f"document/v1/{self.index}/{self.index}/docid/{quote(document.id, safe='')}"
        return Push.of("POST", path, {"fields": fields})

    def count(self) -> Push:
        """Return a search for all documents of the schema that fetches none."""
        query = {"yql": f"select * from {self.index} where true", "hits": 0}
        return Push.of("POST", "search/", query, accept=(400, 404))

    def counted(self, answer: EngineAnswer) -> int:
        """Return the number of matches."""
        root = answer.content["root"]
        return int(root.get("fields", {}).get("totalCount", 0))

    def options(self) -> Mapping[str, str]:
        """Return the rank profile of the schema that `--dry-run` shows."""
        return {"ranking": "vector" if self.dimension else "bm25"}


class TypesenseIndex(IndexTarget):
    """Typesense: lines of documents, and a line of reply for each."""

    place = "collections/{}"
    count_path = "num_documents"

    def create(self) -> list[Push]:
        """Return the request that creates a collection with its fields; `id` needs none."""
        fields: list[dict[str, Any]] = [{"name": "text", "type": "string"}]
        if self.dimension:
            metric = "cosine" if self.similarity == "cosine" else "ip"
            fields.append({"name": "vector", "type": "float[]", "num_dim": self.dimension, "vec_dist": metric})
        return [Push.of("POST", "collections", {"name": self.index, "fields": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return lines of documents."""
        rows = [{"id": document.id} | self._fields(document) for document in documents]
        push = Push.lines(f"{self.path}/documents/import?action=upsert", rows)
        return Push(push.method, push.path, push.content, "text/plain")

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first line that failed; the status of the whole reply is 200 nevertheless."""
        lines = answer.content if isinstance(answer.content, list) else [answer.content]
        return next((error_words(line.get("error", line)) for line in lines if not line.get("success", True)), "")

    def count(self) -> Push:
        """Return the request for the collection, whose answer contains the count."""
        return self.exists()


class MeilisearchIndex(IndexTarget):
    """Meilisearch: tasks that are waited for; ids of letters, digits, hyphens and underscores, so ours is beside."""

    place = "indexes/{}"
    count_path = "numberOfDocuments"

    def create(self) -> list[Push]:
        """Return the requests that create the index, then its searchable fields."""
        settings: dict[str, Any] = {"searchableAttributes": ["text"]}
        if self.dimension:
            settings["embedders"] = {"vector": {"source": "userProvided", "dimensions": self.dimension}}
        return [
            Push.of("POST", "indexes", {"uid": self.index, "primaryKey": "key"}),
            Push.of("PATCH", f"{self.path}/settings", settings),
        ]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return documents with a key made of the task's id."""
        rows = []
        for document in documents:
            row: dict[str, Any] = {"key": derived_uuid(document.id), "id": document.id, "text": document.text}
            rows.append(row | ({"_vectors": {"vector": document.vector}} if document.vector is not None else {}))
        return Push.of("POST", f"{self.path}/documents?primaryKey=key", rows)

    def waits(self, answer: EngineAnswer) -> Push | None:
        """Return the request for the task until it has ended."""
        if "taskUid" in answer.content:
            return Push("GET", f"tasks/{answer.content['taskUid']}")
        waiting = answer.content.get("status") in ("enqueued", "processing")
        return Push("GET", f"tasks/{answer.content['uid']}") if waiting else None

    def refused(self, answer: EngineAnswer) -> str:
        """Return the reason why a task failed."""
        return (
            "" if answer.content.get("status") == "succeeded" else error_words(answer.content.get("error") or "failed")
        )

    def count(self) -> Push:
        """Return the request for the statistics of the index."""
        return Push("GET", f"{self.path}/stats", accept=(404,))


class QdrantIndex(IndexTarget):
    """Qdrant: points with a UUID; the task's id is in the payload."""

    place = "collections/{}"
    count_path = "result.count"
    names = r"[^/?*<>|\\:\"\x00-\x1f ]{1,255}"
    needs_vectors = True

    def create(self) -> list[Push]:
        """Return the request that creates a collection of vectors."""
        distance = "Cosine" if self.similarity == "cosine" else "Dot"
        vectors = {"size": self.dimension, "distance": distance}
        return [Push.of("PUT", self.path, {"vectors": vectors})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return a request with points that is answered once they are stored."""
        points = [
            {
                "id": derived_uuid(document.id),
                "vector": document.vector,
                "payload": {"id": document.id, "text": document.text},
            }
            for document in documents
        ]
        return Push.of("PUT", f"{self.path}/points?wait=true", {"points": points})

    def count(self) -> Push:
        """Return the request that counts all points exactly."""
        return Push.of("POST", f"{self.path}/points/count", {"exact": True}, accept=(404,))


class WeaviateIndex(IndexTarget):
    """Weaviate: objects with a UUID; the task's id is a property, for `id` belongs to Weaviate."""

    place = "v1/schema/{}"
    names = r"[A-Z][A-Za-z0-9_]*"

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return a name with a capital, as a class needs it."""
        return "".join(part.capitalize() for part in super().default_name(task).split("-"))

    def create(self) -> list[Push]:
        """Return the request that creates a class whose vectors come from outside."""
        distance = "cosine" if self.similarity == "cosine" else "dot"
        exact = {"tokenization": "field", "indexSearchable": False}
        properties = [{"name": "doc_id", "dataType": ["text"], **exact}, {"name": "text", "dataType": ["text"]}]
        made = {"class": self.index, "vectorizer": "none", "properties": properties}
        return [Push.of("POST", "v1/schema", made | {"vectorIndexConfig": {"distance": distance}})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return objects with their properties."""
        objects = []
        for document in documents:
            row: dict[str, Any] = {"class": self.index, "id": derived_uuid(document.id)}
            row["properties"] = {"doc_id": document.id, "text": document.text}
            objects.append(row | ({"vector": document.vector} if document.vector is not None else {}))
        return Push.of("POST", "v1/batch/objects", {"objects": objects})

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first object that failed; the status of the whole reply is 200 nevertheless."""
        for item in answer.content if isinstance(answer.content, list) else ():
            errors = ((item.get("result") or {}).get("errors") or {}).get("error")
            if errors:
                return f"{item.get('properties', {}).get('doc_id', '?')}: {error_words(errors[0])}"
        return ""

    def count(self) -> Push:
        """Return the query that counts all objects of the class."""
        query = f"{{ Aggregate {{ {self.index} {{ meta {{ count }} }} }} }}"
        return Push.of("POST", "v1/graphql", {"query": query})

    def counted(self, answer: EngineAnswer) -> int:
        """Return the count; an unknown class is an error inside the reply."""
        if answer.content.get("errors"):
            raise R2medError(f"Weaviate cannot count {self.index}: {error_words(answer.content['errors'][0])}")
        return int(answer.content["data"]["Aggregate"][self.index][0]["meta"]["count"])

    def options(self) -> Mapping[str, str]:
        """Return the name of the field with the task's id."""
        return {"id_field": "doc_id"}


class MilvusIndex(IndexTarget):
    """Milvus: a collection with a text of limited length, its BM25 function and, if wanted, a vector."""

    count_path = "data.0.count(*)"
    names = r"[A-Za-z_][A-Za-z0-9_]{0,254}"
    longest = 65_535

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return a name of letters, digits and underscores."""
        return super().default_name(task).replace("-", "_")

    def exists(self) -> Push:
        """Return the request for the description of the collection."""
        return Push.of("POST", "v2/vectordb/collections/describe", {"collectionName": self.index})

    def there(self, answer: EngineAnswer) -> bool:
        """Return whether the code is 0, as it is for a collection that exists."""
        return not answer.content.get("code")

    def create(self) -> list[Push]:
        """Return the request that creates the collection with its functions and indexes."""
        text = {"max_length": str(self.longest), "enable_analyzer": True}
        fields: list[dict[str, Any]] = [
            {"fieldName": "id", "dataType": "VarChar", "isPrimary": True, "elementTypeParams": {"max_length": "512"}},
            {"fieldName": "text", "dataType": "VarChar", "elementTypeParams": text},
            {"fieldName": "sparse", "dataType": "SparseFloatVector"},
        ]
        indexes = [
            {"fieldName": "sparse", "indexName": "sparse", "metricType": "BM25", "indexType": "SPARSE_INVERTED_INDEX"}
        ]
        if self.dimension:
            metric = "COSINE" if self.similarity == "cosine" else "IP"
            size = {"dim": str(self.dimension)}
            fields.append({"fieldName": "vector", "dataType": "FloatVector", "elementTypeParams": size})
            made = {"fieldName": "vector", "indexName": "vector", "metricType": metric, "indexType": "AUTOINDEX"}
            indexes.append(made)
        bm25 = {"name": "bm25", "type": "BM25", "inputFieldNames": ["text"], "outputFieldNames": ["sparse"]}
        schema = {"autoId": False, "enableDynamicField": False, "fields": fields, "functions": [bm25 | {"params": {}}]}
        body = {"collectionName": self.index, "schema": schema, "indexParams": indexes}
        return [Push.of("POST", "v2/vectordb/collections/create", body)]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return rows, which replace those with the same ids."""
        rows = [{"id": document.id} | self._fields(document) for document in documents]
        return Push.of("POST", "v2/vectordb/entities/upsert", {"collectionName": self.index, "data": rows})

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error if the code is not 0; the status of the reply is 200 nevertheless."""
        return error_words(answer.content) if answer.content.get("code") else ""

    def count(self) -> Push:
        """Return the query that counts all rows, including those just written."""
        body = {"collectionName": self.index, "filter": "", "outputFields": ["count(*)"], "consistencyLevel": "Strong"}
        return Push.of("POST", "v2/vectordb/entities/query", body)

    def options(self) -> Mapping[str, str]:
        """Return the field to search: without vectors, text is searched in the sparse vectors made of it."""
        return {} if self.dimension else {"field": "sparse"}


TARGETS: Mapping[str, type[IndexTarget]] = {
    "elasticsearch": ElasticsearchIndex,
    "opensearch": OpenSearchIndex,
    "solr": SolrIndex,
    "vespa": VespaIndex,
    "qdrant": QdrantIndex,
    "weaviate": WeaviateIndex,
    "typesense": TypesenseIndex,
    "meilisearch": MeilisearchIndex,
    "milvus": MilvusIndex,
}
