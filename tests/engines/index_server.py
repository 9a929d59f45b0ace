"""Local servers that take documents in the shapes of search engines, and refuse what those refuse.

Paths, bodies, codes and errors are those of the engines' public references.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

KEY = "sk-very-secret"
HEADERS = {
    "elasticsearch": ("Authorization", f"ApiKey {KEY}"),
    "opensearch": ("Authorization", f"Basic {KEY}"),
    "solr": ("Authorization", f"Basic {KEY}"),
    "vespa": ("Authorization", f"Bearer {KEY}"),
    "qdrant": ("api-key", KEY),
    "weaviate": ("Authorization", f"Bearer {KEY}"),
    "typesense": ("X-TYPESENSE-API-KEY", KEY),
    "meilisearch": ("Authorization", f"Bearer {KEY}"),
    "milvus": ("Authorization", f"Bearer {KEY}"),
}


class Refused(Exception):
    def __init__(self, status: int, what: Any) -> None:
        super().__init__(str(what))
        self.status, self.what = status, what


def need(fine: bool, what: Any, status: int = 400) -> None:
    if not fine:
        raise Refused(status, what)


def only(table: dict[str, Any], *names: str) -> None:
    strange = set(table) - set(names)
    need(not strange, {"error": f"unknown key {sorted(strange)}"})


class IndexServer:
    """One engine on a free port; `documents` has what it holds: our id to text and vector."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.indexes: dict[str, dict[str, Any]] = {}
        self.stored: dict[str, dict[str, tuple[str, str, list[float] | None]]] = {}
        self.requests = 0
        self.fail: Callable[[int], int] = lambda nth: 0
        """From how many requests there were to a status to fail with, or 0."""
        self.tasks: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = server.meet(self.command, self.path, self.headers, raw)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = handle_any

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def documents(self, index: str) -> dict[str, tuple[str, list[float] | None]]:
        return {name: (text, vector) for name, text, vector in self.stored.get(index, {}).values()}

    def meet(self, method: str, path: str, headers: Any, raw: bytes) -> tuple[int, Any]:
        with self._lock:
            self.requests += 1
            if status := self.fail(self.requests):
                return status, {"error": "not now"}
            name, value = HEADERS[self.engine]
            if headers.get(name) != value:
                return 401, {"error": f"bad key {headers.get(name)}"}
            parts = urlsplit(path)
            try:
                places = [unquote(part) for part in parts.path.strip("/").split("/")]
                return getattr(self, self.engine)(method, places, parse_qs(parts.query), raw, headers)
            except Refused as refused:
                return refused.status, refused.what

    def keep(self, index: str, key: str, name: str, text: str, vector: list[float] | None) -> None:
        need(isinstance(name, str) and isinstance(text, str), {"error": "id and text must be texts"})
        dimension = self.indexes[index].get("dimension", 0)
        need(len(vector or []) == dimension, {"error": f"vector of {len(vector or [])}, expected {dimension}"})
        self.stored.setdefault(index, {})[key] = (name, text, vector)

    def make(self, index: str, dimension: int) -> None:
        self.indexes[index] = {"dimension": dimension}
        self.stored[index] = {}

    def elasticsearch(self, method, places, query, raw, headers, vectors="dense_vector"):
        index = places[0]
        if method == "GET" and len(places) == 1:
            return (200, {index: {}}) if index in self.indexes else (404, {"error": {"type": "index_not_found"}})
        if method == "PUT":
            need(index not in self.indexes, {"error": {"type": "resource_already_exists_exception"}})
            need(index == index.lower(), {"error": {"reason": "must be lowercase"}})
            fields = json.loads(raw)["mappings"]["properties"]
            need(fields["text"]["type"] == "text", {"error": {"reason": "no such type"}})
            vector = fields.get("vector")
            need(vector is None or vector["type"] == vectors, {"error": {"reason": "No handler for type"}})
            size = vector and vector["dims" if vectors == "dense_vector" else "dimension"]
            if vector and vectors == "knn_vector":
                need(json.loads(raw)["settings"] == {"index": {"knn": True}}, {"error": {"reason": "index.knn"}})
                need(vector["method"]["space_type"] in ("cosinesimil", "innerproduct"), {"error": "space"})
            elif vector:
                need(vector["similarity"] in ("cosine", "max_inner_product"), {"error": "similarity"})
            self.make(index, size or 0)
            return 200, {"acknowledged": True}
        need(index in self.indexes, {"error": "no such index"}, 404)
        if places[1:] == ["_bulk"]:
            need(headers["Content-Type"] == "application/x-ndjson", {"error": "Content-Type"}, 406)
            need(raw.endswith(b"\n"), {"error": {"reason": "The bulk request must be terminated by a newline [\\n]"}})
            lines = [json.loads(line) for line in raw.splitlines()]
            items, errors = [], False
            for action, source in zip(lines[::2], lines[1::2], strict=True):
                name = action["index"]["_id"]
                item: dict[str, Any] = {"_id": name, "status": 201}
                try:
                    need(len(name.encode()) <= 512, "id is too long, must be no longer than 512 bytes")
                    only(source, "text", "vector")
                    self.keep(index, name, name, source["text"], source.get("vector"))
                except Refused as refused:
                    item, errors = {"_id": name, "status": 400, "error": {"reason": str(refused.what)}}, True
                items.append({"index": item})
            return 200, {"errors": errors, "items": items}
        if places[1:] == ["_refresh"]:
            self.indexes[index]["visible"] = len(self.stored[index])
            return 200, {}
        need(places[1:] == ["_count"], "no handler")
        return 200, {"count": self.indexes[index].get("visible", 0)}

    def opensearch(self, *given):
        return self.elasticsearch(*given, vectors="knn_vector")

    def solr(self, method, places, query, raw, headers):
        need(places[0] == "solr" and places[1] == "biology", {"error": {"msg": "no such core"}}, 404)
        index = places[1]
        if places[2:] == ["schema", "fields", "text"]:
            return (200, {"field": {}}) if index in self.indexes else (404, {"error": {"msg": "No such path"}})
        if places[2] == "schema":
            body = json.loads(raw)
            only(body, "add-field-type", "add-field")
            kinds = {"text_en"} | ({body["add-field-type"]["name"]} if "add-field-type" in body else set())
            need(all(field["type"] in kinds for field in body["add-field"]), {"error": {"msg": "Field type not found"}})
            need(index not in self.indexes, {"error": {"msg": "Field 'text' already exists."}})
            self.make(index, int(body.get("add-field-type", {}).get("vectorDimension", 0)))
            return 200, {"responseHeader": {"status": 0}}
        if places[2] == "update":
            body = json.loads(raw)
            if isinstance(body, dict):
                only(body, "commit")
                self.indexes[index]["visible"] = len(self.stored[index])
                return 200, {"responseHeader": {"status": 0}}
            for row in body:
                only(row, "id", "text", "vector")
                self.keep(index, row["id"], row["id"], row["text"], row.get("vector"))
            return 200, {"responseHeader": {"status": 0}}
        need(places[2] == "query" and json.loads(raw) == {"query": "*:*", "limit": 0}, {"error": {"msg": "query"}})
        return 200, {"response": {"numFound": self.indexes[index].get("visible", 0), "docs": []}}

    def vespa(self, method, places, query, raw, headers):
        body = json.loads(raw)
        if places == ["search"]:
            index = re.fullmatch(r"select \* from (\w+) where true", body["yql"])
            need(index is not None, {"root": {"errors": ["yql"]}})
            if index[1] not in self.indexes:
                return 400, {"root": {"errors": [{"message": f"unknown source {index[1]}"}]}}
            return 200, {"root": {"id": "toplevel", "fields": {"totalCount": len(self.stored[index[1]])}}}
        need(places[:2] == ["document", "v1"] and places[4] == "docid", {"message": "path"}, 404)
        index, key = places[3], places[5]
        only(body, "fields")
        only(body["fields"], "id", "text", "vector")
        text = body["fields"]["text"]
        need(not re.search("[\x00-\x08]", text), {"message": "illegal code point"})
        vector = body["fields"].get("vector")
        self.keep(index, key, body["fields"]["id"], text, vector and vector["values"])
        return 200, {"id": f"id:{index}:{index}::{key}"}

    def qdrant(self, method, places, query, raw, headers):
        need(places[0] == "collections", {"status": {"error": "Not found"}}, 404)
        index = places[1]
        if len(places) == 2 and method == "PUT":
            vectors = json.loads(raw)["vectors"]
            need(vectors["distance"] in ("Cosine", "Dot", "Euclid"), {"status": {"error": "distance"}})
            self.make(index, vectors["size"])
            return 200, {"result": True, "status": "ok"}
        need(index in self.indexes, {"status": {"error": f"Collection `{index}` doesn't exist!"}}, 404)
        if len(places) == 2:
            return 200, {"result": {"status": "green"}}
        if places[2:] == ["points", "count"]:
            return 200, {"result": {"count": len(self.stored[index])}, "status": "ok"}
        need(method == "PUT" and query == {"wait": ["true"]}, {"status": {"error": "method"}}, 405)
        for point in json.loads(raw)["points"]:
            only(point, "id", "vector", "payload")
            try:
                key = str(UUID(point["id"])) if isinstance(point["id"], str) else int(point["id"])
            except ValueError:
                wrong = f"value {point['id']} is not a valid point ID: an unsigned integer or a UUID"
                raise Refused(400, {"status": {"error": wrong}}) from None
            self.keep(index, str(key), point["payload"]["id"], point["payload"]["text"], point["vector"])
        return 200, {"result": {"operation_id": 1, "status": "completed"}, "status": "ok"}

    def weaviate(self, method, places, query, raw, headers):
        need(places[0] == "v1", {}, 404)
        if places[1] == "schema" and method == "GET":
            return (200, {"class": places[2]}) if places[2] in self.indexes else (404, {})
        body = json.loads(raw)
        if places[1] == "schema":
            need(body["class"][:1].isupper(), {"error": [{"message": "not a valid class name"}]}, 422)
            names = [each["name"] for each in body["properties"]]
            need("id" not in names, {"error": [{"message": "'id' is a reserved property name"}]}, 422)
            self.make(body["class"], -1)
            return 200, body
        if places[1] == "graphql":
            asked = re.fullmatch(r"\{ Aggregate \{ (\w+) \{ meta \{ count \} \} \} \}", body["query"])
            if asked is None or asked[1] not in self.indexes:
                return 200, {"errors": [{"message": "Cannot query field"}]}
            return 200, {"data": {"Aggregate": {asked[1]: [{"meta": {"count": len(self.stored[asked[1]])}}]}}}
        answers = []
        for each in body["objects"]:
            only(each, "class", "id", "properties", "vector")
            result: dict[str, Any] = {"status": "SUCCESS"}
            try:
                UUID(each["id"])
                self.indexes[each["class"]]["dimension"] = len(each.get("vector") or [])
                properties = each["properties"]
                self.keep(each["class"], each["id"], properties["doc_id"], properties["text"], each.get("vector"))
            except (ValueError, Refused) as error:
                result = {"status": "FAILED", "errors": {"error": [{"message": str(error)}]}}
            answers.append({**each, "result": result})
        return 200, answers

    def typesense(self, method, places, query, raw, headers):
        if places == ["collections"]:
            body = json.loads(raw)
            need(body["name"] not in self.indexes, {"message": "already exists"}, 409)
            fields = {field["name"]: field for field in body["fields"]}
            need(fields["text"]["type"] == "string", {"message": "type"})
            self.make(body["name"], fields.get("vector", {}).get("num_dim", 0))
            return 201, body
        index = places[1]
        need(index in self.indexes, {"message": "Not Found"}, 404)
        if len(places) == 2:
            return 200, {"name": index, "num_documents": len(self.stored[index])}
        need(places[2:] == ["documents", "import"] and query == {"action": ["upsert"]}, {"message": "Not Found"}, 404)
        lines = []
        for line in raw.splitlines():
            row = json.loads(line)
            try:
                only(row, "id", "text", "vector")
                self.keep(index, row["id"], row["id"], row["text"], row.get("vector"))
                lines.append({"success": True})
            except Refused as refused:
                lines.append({"success": False, "error": str(refused.what), "document": line.decode()})
        return 200, "\n".join(map(json.dumps, lines)).encode()

    def meilisearch(self, method, places, query, raw, headers):
        if places[0] == "tasks":
            task = self.tasks[int(places[1])]
            task["asked"] += 1
            status = "processing" if task["asked"] < 2 else "failed" if task["error"] else "succeeded"
            return 200, {"uid": int(places[1]), "status": status, "error": task["error"]}
        if places == ["indexes"]:
            body = json.loads(raw)
            only(body, "uid", "primaryKey")
            self.make(body["uid"], 0)
            return self.enqueued()
        index = places[1]
        need(index in self.indexes, {"message": "Index not found.", "code": "index_not_found"}, 404)
        if len(places) == 2:
            return 200, {"uid": index}
        if places[2] == "stats":
            return 200, {"numberOfDocuments": len(self.stored[index]), "isIndexing": False}
        body = json.loads(raw)
        if places[2] == "settings":
            need(method == "PATCH", {"message": "method"}, 405)
            only(body, "searchableAttributes", "embedders")
            self.indexes[index]["dimension"] = body.get("embedders", {}).get("vector", {}).get("dimensions", 0)
            return self.enqueued()
        need(places[2] == "documents" and query == {"primaryKey": ["key"]}, {"message": "path"}, 404)
        try:
            for row in body:
                only(row, "key", "id", "text", "_vectors")
                need(re.fullmatch(r"[A-Za-z0-9_-]{1,511}", row["key"]) is not None, f"Document identifier {row['key']}")
                self.keep(index, row["key"], row["id"], row["text"], row.get("_vectors", {}).get("vector"))
        except Refused as refused:
            return self.enqueued({"message": str(refused.what), "code": "invalid_document_id"})
        return self.enqueued()

    def enqueued(self, error: Any = None) -> tuple[int, Any]:
        self.tasks.append({"asked": 0, "error": error})
        return 202, {"taskUid": len(self.tasks) - 1, "status": "enqueued"}

    def milvus(self, method, places, query, raw, headers):
        need(places[:2] == ["v2", "vectordb"] and method == "POST", {}, 404)
        body, what = json.loads(raw), places[2:]
        index = body["collectionName"]
        if what == ["collections", "create"]:
            fields = {field["fieldName"]: field for field in body["schema"]["fields"]}
            need(fields["id"]["isPrimary"] and fields["id"]["dataType"] == "VarChar", {"code": 1100, "message": "id"})
            indexed = {each["fieldName"] for each in body["indexParams"]}
            vectors = {name for name, field in fields.items() if "Vector" in field["dataType"]}
            if indexed != vectors:
                return 200, {"code": 1100, "message": "index not found for a vector field"}
            self.make(index, int(fields.get("vector", {}).get("elementTypeParams", {}).get("dim", 0)))
            return 200, {"code": 0, "data": {}}
        if index not in self.indexes:
            return 200, {"code": 100, "message": f"can't find collection[collection={index}]"}
        if what == ["entities", "upsert"]:
            for row in body["data"]:
                if set(row) - {"id", "text", "vector"} or len(row["text"].encode()) > 65_535:
                    return 200, {"code": 1100, "message": "length of varchar field text exceeds max length"}
                self.keep(index, row["id"], row["id"], row["text"], row.get("vector"))
            return 200, {"code": 0, "data": {"upsertCount": len(body["data"])}}
        if what == ["entities", "query"]:
            need(body["consistencyLevel"] == "Strong", {"code": 1100})
            return 200, {"code": 0, "data": [{"count(*)": len(self.stored[index])}]}
        return 200, {"code": 0, "data": {}}
