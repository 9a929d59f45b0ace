"""A local server in the shape of a search engine, which refuses what that engine refuses.

Requests and replies are those of the engines' public references. Behind every shape is r2med's own search, so that
figures can be compared with it to the last digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import r2med
from jsonserver import JsonServer, Say
from r2med.data.dataset import Texts
from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache

Hits = list[tuple[str, float]]
KEY = "sk-very-secret"
HEADERS = {
    "elasticsearch": ("Authorization", f"ApiKey {KEY}"),
    "opensearch": ("Authorization", f"Basic {KEY}"),
    "solr": ("Authorization", f"Basic {KEY}"),
    "vespa": ("Authorization", f"Bearer {KEY}"),
    "qdrant": ("Api-Key", KEY),
    "weaviate": ("Authorization", f"Bearer {KEY}"),
    "typesense": ("X-Typesense-Api-Key", KEY),
    "meilisearch": ("Authorization", f"Bearer {KEY}"),
    "milvus": ("Authorization", f"Bearer {KEY}"),
}
PATHS = {
    "elasticsearch": "/docs/_search",
    "opensearch": "/docs/_search",
    "solr": "/solr/docs/query",
    "vespa": "/search/",
    "qdrant": "/collections/docs/points/query",
    "weaviate": "/v1/graphql",
    "typesense": "/multi_search",
    "meilisearch": "/indexes/docs/search",
    "milvus": "/v2/vectordb/entities/search",
}


class Refused(Exception):
    """What the engine would answer with 400."""


def need(fine: bool, what: str) -> None:
    if not fine:
        raise Refused(what)


def only(table: dict[str, Any], *names: str) -> None:
    """Engines refuse keys that they do not know."""
    strange = set(table) - set(names)
    need(not strange, f"unknown key [{', '.join(sorted(strange))}]")


class Backend:
    """r2med's own BM25 and vectors over the documents of a task."""

    def __init__(self, name: str) -> None:
        self.collection = r2med.load(name).collection
        encoder = encoder_for("wordllama", {}, task(name))
        documents = encoder.encode(list(self.collection.documents.texts), Role.DOCUMENT).astype(np.float64)
        self.vectors = documents / np.linalg.norm(documents, axis=1, keepdims=True)

    def words(self, query: str, k: int) -> Hits:
        need(isinstance(query, str) and isinstance(k, int) and k > 0, "query must be a text and the limit a number")
        asked = replace(self.collection, queries=Texts(["q"], [query]), generations=())
        ranking = r2med.BM25(depth=k).retrieve(asked, Context(Cache.default(), quiet()))["q"]
        return list(zip(ranking.documents, ranking.scores.tolist(), strict=True))

    def near(self, vector: Any, k: int) -> Hits:
        numbers = isinstance(vector, list) and all(isinstance(value, float) for value in vector)
        need(numbers and isinstance(k, int) and k > 0, "the vector must be a list of numbers")
        need(len(vector) == self.vectors.shape[1], f"the vector has {len(vector)} dimensions")
        wanted = np.array(vector)
        scores = self.vectors @ (wanted / np.linalg.norm(wanted))
        best = np.argsort(-scores)[:k]
        return [(self.collection.documents.ids[place], float(scores[place])) for place in best]


class EngineServer(JsonServer):
    """One engine on a free port."""

    def __init__(
        self, engine: str, backend: Backend, plan: Callable[[int, Any], Say] = lambda nth, body: Say()
    ) -> None:
        super().__init__(plan)
        self.engine, self.backend = engine, backend

    @property
    def address(self) -> str:
        return self.url.removesuffix("/v1")

    def meet(self, body: Any) -> Say:
        planned = super().meet(body)
        if planned != Say():
            return planned
        name, value = HEADERS[self.engine]
        if self.headers[-1].get(name) != value:
            return Say(401, body=json.dumps({"error": f"bad key {self.headers[-1].get(name)}"}).encode())
        if self.paths[-1] != PATHS[self.engine]:
            return Say(404, body=json.dumps({"error": "no such index [other]"}).encode())
        try:
            reply = getattr(self, self.engine)(body)
        except Refused as refused:
            return Say(400, body=json.dumps({"error": {"message": str(refused)}}).encode())
        return Say(body=json.dumps(reply).encode())

    def answer(self, say: Any, body: Any) -> object:
        raise AssertionError("every reply is made in meet")

    def elasticsearch(self, body: dict[str, Any], knn_inside: bool = False) -> object:
        only(body, "size", "_source", "query", "knn")
        need(body["size"] <= 10_000, "Result window is too large")
        if "knn" in body:
            knn = body["knn"]
            only(knn, "field", "query_vector", "k", "num_candidates")
            need(knn["k"] <= knn["num_candidates"] <= 10_000, "[num_candidates] cannot be less than [k]")
            hits = self.backend.near(knn["query_vector"], knn["k"])
        elif knn_inside and "knn" in body["query"]:
            knn = body["query"]["knn"]["vector"]
            only(knn, "vector", "k")
            hits = self.backend.near(knn["vector"], knn["k"])
        else:
            hits = self.backend.words(body["query"]["match"]["text"]["query"], body["size"])
        found = [{"_index": "docs", "_id": name, "_score": score} for name, score in hits]
        return {"took": 1, "timed_out": False, "_shards": {"total": 1, "failed": 0}, "hits": {"hits": found}}

    def opensearch(self, body: dict[str, Any]) -> object:
        only(body, "size", "_source", "query")
        return self.elasticsearch(body, knn_inside=True)

    def solr(self, body: dict[str, Any]) -> object:
        only(body, "query", "limit", "fields", "params", "filter", "offset", "sort")
        need(body["fields"] == ["id", "score"], "fields")
        if "knn" in body["query"]:
            knn = body["query"]["knn"]
            only(knn, "f", "topK", "query")
            hits = self.backend.near(json.loads(knn["query"]), knn["topK"])
        else:
            need(body["query"]["edismax"]["qf"] == "text", "undefined field")
            hits = self.backend.words(body["query"]["edismax"]["query"], body["limit"])
        docs = [{"id": name, "score": score} for name, score in hits]
        return {"responseHeader": {"status": 0}, "response": {"numFound": len(docs), "docs": docs}}

    def vespa(self, body: dict[str, Any]) -> object:
        only(body, "yql", "text", "hits", "ranking", "input.query(q)")
        need(body["hits"] <= 400, "maxHits")
        if "input.query(q)" in body:
            pattern = r"select \* from docs where \{targetHits: \d+\}nearestNeighbor\(vector, q\)"
            need(re.fullmatch(pattern, body["yql"]) is not None, "yql")
            hits = self.backend.near(body["input.query(q)"], body["hits"])
        else:
            need("userInput(@text)" in body["yql"] and "defaultIndex: 'text'" in body["yql"], "yql")
            hits = self.backend.words(body["text"], body["hits"])
        children = [{"id": f"id:x:docs::{i}", "relevance": s, "fields": {"id": i}} for i, s in hits]
        return {"root": {"id": "toplevel", **({"children": children} if children else {})}}

    def qdrant(self, body: dict[str, Any]) -> object:
        only(body, "query", "limit", "with_payload", "using", "filter", "params", "score_threshold", "offset")
        hits = self.backend.near(body["query"], body["limit"])
        points = [{"id": n, "version": 1, "score": s, "payload": {"id": i}} for n, (i, s) in enumerate(hits)]
        return {"result": {"points": points}, "status": "ok", "time": 0.001}

    def weaviate(self, body: dict[str, Any]) -> object:
        only(body, "query", "variables", "operationName")
        words = re.fullmatch(
            r'\{ Get \{ Docs\(bm25: \{query: (".*"), properties: \["text"\]\}, limit: (\d+)\)'
            r" \{ doc_id _additional \{ score \} \} \} \}", body["query"], re.DOTALL,
        )  # fmt: skip
        near = re.fullmatch(
            r"\{ Get \{ Docs\(nearVector: \{vector: (\[.*\])\}, limit: (\d+)\)"
            r" \{ doc_id _additional \{ distance \} \} \} \}", body["query"],
        )  # fmt: skip
        if words:
            hits = self.backend.words(json.loads(words[1]), int(words[2]))
            rows = [{"doc_id": name, "_additional": {"score": str(score)}} for name, score in hits]
        elif near:
            hits = self.backend.near(json.loads(near[1]), int(near[2]))
            rows = [{"doc_id": name, "_additional": {"distance": 1 - score}} for name, score in hits]
        else:
            return {"data": None, "errors": [{"message": "Syntax Error GraphQL"}]}
        return {"data": {"Get": {"Docs": rows}}}

    def typesense(self, body: dict[str, Any]) -> object:
        only(body, "searches")
        return {"results": [self.typesense_search(search) for search in body["searches"]]}

    def typesense_search(self, search: dict[str, Any]) -> object:
        if search["collection"] != "docs":
            return {"code": 404, "error": "Not found."}
        if search["per_page"] > 250:
            return {"code": 422, "error": "Only upto 250 hits can be fetched per page."}
        if "vector_query" in search:
            near = re.fullmatch(r"vector:\((\[.*\]), k:(\d+)\)", search["vector_query"])
            assert near is not None
            hits = self.backend.near(json.loads(near[1]), int(near[2]))
            return {"hits": [{"document": {"id": i}, "vector_distance": 1 - s} for i, s in hits]}
        need(search["query_by"] == "text", "no such field")
        hits = self.backend.words(search["q"], search["per_page"])
        # Scores of Typesense are so long that their last digits get lost in a floating-point number.
        found = [{"document": {"id": i}, "text_match": 578730123365711993 - n} for n, (i, _) in enumerate(hits)]
        return {"found": len(hits), "hits": found}

    def meilisearch(self, body: dict[str, Any]) -> object:
        only(body, "q", "limit", "attributesToRetrieve", "showRankingScore", "vector", "hybrid")
        if "vector" in body:
            need(body["hybrid"] == {"embedder": "vector", "semanticRatio": 1.0}, "hybrid")
            hits = self.backend.near(body["vector"], body["limit"])
        else:
            hits = self.backend.words(body["q"], body["limit"])
        return {"hits": [{"id": name, "_rankingScore": score} for name, score in hits], "processingTimeMs": 1}

    def milvus(self, body: dict[str, Any]) -> object:
        only(body, "collectionName", "data", "annsField", "limit", "outputFields")
        if body["collectionName"] != "docs":
            return {"code": 100, "message": "can't find collection[database=default][collection=other]"}
        (one,) = body["data"]
        search = self.backend.near if isinstance(one, list) else self.backend.words
        need(body["annsField"] == ("vector" if isinstance(one, list) else "text"), "annsField")
        hits = search(one, body["limit"])
        return {"code": 0, "cost": 0, "data": [{"distance": score, "id": name} for name, score in hits]}
