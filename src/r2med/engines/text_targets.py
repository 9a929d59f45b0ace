"""Targets of text search engines: Elasticsearch, OpenSearch, Solr, Vespa, Typesense, Meilisearch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from r2med.engines.targets import EngineAnswer, IndexTarget, Push, PushedDocument, derived_uuid, error_words
from r2med.errors import R2medError

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class ElasticsearchIndex(IndexTarget):
    """Elasticsearch: `_bulk` with an English analyzer, `dense_vector` for vectors."""

    names = r"[a-z0-9][a-z0-9._-]*"

    def exists(self) -> Push:
        """Return the request for the index itself."""
        return Push("GET", self.index, accept=(404,))

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
        rows = [row for each in documents for row in ({"index": {"_id": each.id}}, self._fields(each))]
        return Push.lines(f"{self.index}/_bulk", rows)

    def refused(self, answer: EngineAnswer) -> str:
        """Return the first item with an error."""
        if not answer.content.get("errors"):
            return ""
        items = [item["index"] for item in answer.content["items"] if "error" in item["index"]]
        return f"{items[0]['_id']}: {error_words(items[0]['error'])}" if items else "errors without an item"

    def finish(self) -> list[Push]:
        """Return the request that makes the documents visible to the next search."""
        return [Push("POST", f"{self.index}/_refresh")]

    def count(self) -> Push:
        """Return the request that counts all documents."""
        return Push("GET", f"{self.index}/_count", accept=(404,))

    def counted(self, answer: EngineAnswer) -> int:
        """Return the field `count`."""
        return int(answer.content["count"])


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

    names = r"[A-Za-z0-9_][A-Za-z0-9._-]*"

    def exists(self) -> Push:
        """Return the request for the field with the text."""
        return Push("GET", f"solr/{self.index}/schema/fields/text", accept=(404,))

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
        return [Push.of("POST", f"solr/{self.index}/schema", change | {"add-field": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return a request with a list of documents."""
        rows = [{"id": each.id} | self._fields(each) for each in documents]
        return Push.of("POST", f"solr/{self.index}/update", rows)

    def finish(self) -> list[Push]:
        """Return the request that commits."""
        return [Push.of("POST", f"solr/{self.index}/update", {"commit": {}})]

    def count(self) -> Push:
        """Return a search for all documents that fetches none."""
        return Push.of("POST", f"solr/{self.index}/query", {"query": "*:*", "limit": 0}, accept=(404,))

    def counted(self, answer: EngineAnswer) -> int:
        """Return the number found."""
        return int(answer.content["response"]["numFound"])


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

    def schema(self) -> str:
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
        (each,) = documents
        fields: dict[str, Any] = {"id": each.id, "text": _CONTROL.sub(" ", each.text)}
        fields |= {"vector": {"values": each.vector}} if each.vector is not None else {}
        path = f"document/v1/{self.index}/{self.index}/docid/{quote(each.id, safe='')}"
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

    def exists(self) -> Push:
        """Return the request for the collection itself."""
        return Push("GET", f"collections/{self.index}", accept=(404,))

    def create(self) -> list[Push]:
        """Return the request that creates a collection with its fields; `id` needs none."""
        fields: list[dict[str, Any]] = [{"name": "text", "type": "string"}]
        if self.dimension:
            metric = "cosine" if self.similarity == "cosine" else "ip"
            fields.append({"name": "vector", "type": "float[]", "num_dim": self.dimension, "vec_dist": metric})
        return [Push.of("POST", "collections", {"name": self.index, "fields": fields})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return lines of documents."""
        rows = [{"id": each.id} | self._fields(each) for each in documents]
        push = Push.lines(f"collections/{self.index}/documents/import?action=upsert", rows)
        return Push(push.method, push.path, push.content, "text/plain")

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first line that failed; the status of the whole reply is 200 nevertheless."""
        lines = answer.content if isinstance(answer.content, list) else [answer.content]
        return next((error_words(line.get("error", line)) for line in lines if not line.get("success", True)), "")

    def count(self) -> Push:
        """Return the request for the collection, whose answer contains the count."""
        return self.exists()

    def counted(self, answer: EngineAnswer) -> int:
        """Return the field `num_documents`."""
        return int(answer.content["num_documents"])


class MeilisearchIndex(IndexTarget):
    """Meilisearch: tasks that are waited for; ids of letters, digits, hyphens and underscores, so ours is beside."""

    def exists(self) -> Push:
        """Return the request for the index itself."""
        return Push("GET", f"indexes/{self.index}", accept=(404,))

    def create(self) -> list[Push]:
        """Return the requests that create the index, then its searchable fields."""
        settings: dict[str, Any] = {"searchableAttributes": ["text"]}
        if self.dimension:
            settings["embedders"] = {"vector": {"source": "userProvided", "dimensions": self.dimension}}
        return [
            Push.of("POST", "indexes", {"uid": self.index, "primaryKey": "key"}),
            Push.of("PATCH", f"indexes/{self.index}/settings", settings),
        ]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return documents with a key made of the task's id."""
        rows = []
        for each in documents:
            row: dict[str, Any] = {"key": derived_uuid(each.id), "id": each.id, "text": each.text}
            rows.append(row | ({"_vectors": {"vector": each.vector}} if each.vector is not None else {}))
        return Push.of("POST", f"indexes/{self.index}/documents?primaryKey=key", rows)

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
        return Push("GET", f"indexes/{self.index}/stats", accept=(404,))

    def counted(self, answer: EngineAnswer) -> int:
        """Return the field `numberOfDocuments`."""
        return int(answer.content["numberOfDocuments"])
