"""Targets of vector databases: Qdrant, Weaviate, Milvus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from r2med.engines.targets import EngineAnswer, IndexTarget, Push, PushedDocument, derived_uuid, error_words
from r2med.errors import R2medError


class QdrantIndex(IndexTarget):
    """Qdrant: points with a UUID; the task's id is in the payload."""

    names = r"[^/?*<>|\\:\"\x00-\x1f ]{1,255}"
    needs_vectors = True

    def exists(self) -> Push:
        """Return the request for the collection itself."""
        return Push("GET", f"collections/{self._name}", accept=(404,))

    @property
    def _name(self) -> str:
        return quote(self.index, safe="")

    def create(self) -> list[Push]:
        """Return the request that creates a collection of vectors."""
        distance = "Cosine" if self.similarity == "cosine" else "Dot"
        vectors = {"size": self.dimension, "distance": distance}
        return [Push.of("PUT", f"collections/{self._name}", {"vectors": vectors})]

    def add(self, documents: Sequence[PushedDocument]) -> Push:
        """Return a request with points that is answered once they are stored."""
        points = [
            {"id": derived_uuid(each.id), "vector": each.vector, "payload": {"id": each.id, "text": each.text}}
            for each in documents
        ]
        return Push.of("PUT", f"collections/{self._name}/points?wait=true", {"points": points})

    def count(self) -> Push:
        """Return the request that counts all points exactly."""
        return Push.of("POST", f"collections/{self._name}/points/count", {"exact": True}, accept=(404,))

    def counted(self, answer: EngineAnswer) -> int:
        """Return the field `result.count`."""
        return int(answer.content["result"]["count"])


class WeaviateIndex(IndexTarget):
    """Weaviate: objects with a UUID; the task's id is a property, for `id` belongs to Weaviate."""

    names = r"[A-Z][A-Za-z0-9_]*"

    @classmethod
    def default_name(cls, task: str) -> str:
        """Return a name with a capital, as a class needs it."""
        return "".join(part.capitalize() for part in super().default_name(task).split("-"))

    def exists(self) -> Push:
        """Return the request for the class itself."""
        return Push("GET", f"v1/schema/{self.index}", accept=(404,))

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
        for each in documents:
            made: dict[str, Any] = {"class": self.index, "id": derived_uuid(each.id)}
            made["properties"] = {"doc_id": each.id, "text": each.text}
            objects.append(made | ({"vector": each.vector} if each.vector is not None else {}))
        return Push.of("POST", "v1/batch/objects", {"objects": objects})

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error of the first object that failed; the status of the whole reply is 200 nevertheless."""
        for each in answer.content if isinstance(answer.content, list) else ():
            errors = ((each.get("result") or {}).get("errors") or {}).get("error")
            if errors:
                return f"{each.get('properties', {}).get('doc_id', '?')}: {error_words(errors[0])}"
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
        rows = [{"id": each.id} | self._fields(each) for each in documents]
        return Push.of("POST", "v2/vectordb/entities/upsert", {"collectionName": self.index, "data": rows})

    def refused(self, answer: EngineAnswer) -> str:
        """Return the error if the code is not 0; the status of the reply is 200 nevertheless."""
        return error_words(answer.content) if answer.content.get("code") else ""

    def count(self) -> Push:
        """Return the query that counts all rows, including those just written."""
        body = {"collectionName": self.index, "filter": "", "outputFields": ["count(*)"], "consistencyLevel": "Strong"}
        return Push.of("POST", "v2/vectordb/entities/query", body)

    def counted(self, answer: EngineAnswer) -> int:
        """Return the count in the only row."""
        return int(answer.content["data"][0]["count(*)"])

    def options(self) -> Mapping[str, str]:
        """Return the field to search: without vectors, text is searched in the sparse vectors made of it."""
        return {} if self.dimension else {"field": "sparse"}
