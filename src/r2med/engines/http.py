"""Search engines behind HTTP: `http(elasticsearch, url=..., index=...)`, or `http(engine.toml)` for any other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import orjson
from msgspec.structs import replace

from r2med.engines.remote import KeptReply, Outcome, RemoteEngine
from r2med.engines.request import EngineRequest, NoSuchPath, ReplyPaths, UnusableHit, fill, message_of, read_request
from r2med.errors import SpecError
from r2med.models.http import AttemptError, FailedAttempts, FatalServerError, RequestLimits, check_url, server_name
from r2med.models.server import JsonServer, RequestFailed, Value
from r2med.pipeline.stage import Requirements
from r2med.settings import prices
from r2med.store.files import expanded, spelled
from r2med.store.hashes import cache_key, file_digest
from r2med.usage import Usage

if TYPE_CHECKING:
    import httpx2

    from r2med.data.dataset import Collection
    from r2med.pipeline.stage import Context

_LARGEST = 50_000_000  # bytes from which on a reply is refused: lists of ids and scores take far less
Found = tuple[list[Any], float]
"""For each query of a request its hits, or in a text why it has none; and the seconds that the request took."""


class EngineConnection(JsonServer[Value]):
    """A connection whose keys are in the headers of the engine's description."""

    retry_unreadable = False
    bearer = False

    def __init__(self, request: EngineRequest, url: str) -> None:
        super().__init__(request.name, url, ", ".join(request.keys()), RequestLimits.configured(), needs_key=False)
        self._without_keys = request.without_keys
        self._client.headers.update(request.sent_headers())

    def _refusal(self, response: httpx2.Response, text: str) -> AttemptError:
        text = self._without_keys(text)
        if response.status_code == 404:
            place, message = response.request.url.copy_with(query=None), " ".join(text.split())[:200]
            return FatalServerError(f"{place} is not there (404): check url and index; {message}")
        return super()._refusal(response, text)


class EngineServer(EngineConnection[Found]):
    """The connection that queries are sent over."""

    made = "lists"
    largest = _LARGEST

    def __init__(self, request: EngineRequest, url: str, paths: ReplyPaths, chunk: re.Pattern[str] | None) -> None:
        self.path, self.method, self._paths, self._chunk = request.path, request.method, paths, chunk
        super().__init__(request, url)

    def sent(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a request: the body, or for GET the query string."""
        return super().sent(body) if self.method == "POST" else {"params": dict(body)}

    def _attempt(self, body: Mapping[str, Any]) -> Found:
        started = time.perf_counter()
        hits, _ = super()._attempt(body)
        return hits, time.perf_counter() - started

    def read(self, answer: Any, body: Mapping[str, Any]) -> Found:
        """Read the hits of every query of a request."""
        try:
            replies = self._paths.split(answer)
            return [self._problem(reply) or self._paths.read_hits(reply, self._chunk) for reply in replies], 0.0
        except NoSuchPath as error:
            if message := self._problem(answer):
                raise AttemptError(f"{self.url} could not search: {message}", retry=False) from error
            message = self._without_keys(message_of(answer))
            why = f"{error}; {message}" if message else f"{error}"
            raise FatalServerError(f"the reply of {self.url}/{self.path} {why}; see its [reply] table") from error
        except UnusableHit as error:
            raise AttemptError(f"the reply of {self.url}/{self.path} {error}", retry=False) from error

    def _problem(self, reply: Any) -> str:
        return self._without_keys(self._paths.find_error(reply))


@dataclass(frozen=True)
class HttpEngine(RemoteEngine):
    """An engine of a preset, or of a file that describes its requests.

    >>> str(HttpEngine("solr", url="http://localhost:8983", index="medline", depth=50))
    'http(solr, url=http://localhost:8983, index=medline, depth=50)'
    """

    engine: str  # the name of a preset, or the path of a TOML file
    _: KW_ONLY
    url: str = ""  # where it listens; a file may say so itself
    index: str = ""  # the index, core, collection or class that is searched
    field: str = "text"  # the field with the text
    vector_field: str = "vector"
    id_field: str = "id"  # the field with the task's document id, where it is not the engine's own id
    ranking: str = "default"  # Vespa's rank profile
    encoder: str = ""  # the encoder of the query's vector; empty for a search by text
    chunk: str = ""
    """A regular expression whose first group is the document's id in the id of a chunk; the best chunk counts."""
    fetch: int = 0  # how many hits are asked for, where hits are chunks; 0 for as many as `depth`
    batch: int = 0  # queries in a request, for engines that take several; 0 for the engine's own
    depth: int = 100
    join: str = ""
    drop_self: bool | None = None
    unknown: float = 0.1
    """The share of returned ids that may be of documents that the task does not have; those are left out."""
    version: str = ""  # of what is behind the address: change it when the index changes

    name = "http"

    def __post_init__(self) -> None:
        if self.engine.endswith(".toml"):
            object.__setattr__(self, "engine", spelled(self.engine))
        self._check_settings()
        if self.batch < 0:
            raise SpecError("http: batch must not be negative")
        request = self.request
        self._address  # noqa: B018 - a wrong address is an error before anything runs
        if "{index}" in f"{request.path} {request.body} {request.item}" and not self.index:
            raise SpecError(f"{self.spec}: say what is searched, index=...")
        if request.largest and self._hits > request.largest:
            raise SpecError(f"http: {self.engine} gives at most {request.largest} hits, not {self._hits}")
        if self.batch > 1 and request.item is None:
            raise SpecError(f"http: {self.engine} takes one query at a time; leave batch out")

    @cached_property
    def request(self) -> EngineRequest:
        """Return the description of the engine's requests."""
        return read_request(self.engine, vector=bool(self.encoder))

    @property
    def _address(self) -> str:
        """Return the address in its usual form."""
        url, form = self.url or self.request.url, "url=http://host:port"
        if not url:
            raise SpecError(f"http: {self.engine} needs an address, {form}")
        return check_url(self.engine, url, ", ".join(self.request.keys()) or "a variable", form)

    @property
    def requirements(self) -> Requirements:
        """Return the requirement of the HTTP library."""
        return Requirements(extra="api")

    def fingerprint(self) -> Mapping[str, object]:
        """Return the whole request except for its keys, the server's name, and the settings of the vectors."""
        request = self.request
        content = (request.method, request.path, request.body, request.item, dict(request.headers), request.reply)
        settings = {"request": cache_key(content=content), "url": server_name(self._address)}
        return settings | self._encoder_settings()

    def local_content(self) -> Mapping[str, str]:
        """Return the file that describes the engine, and the content of the encoder."""
        file = expanded(self.engine) if self.engine.endswith(".toml") else None
        described = {} if file is None else {str(file.resolve()): file_digest(file)}
        return {**described, **self._encoder_content()}

    def describe(self) -> Mapping[str, object]:
        """Return what a plan shows; headers are never shown."""
        request = self.request
        return {
            "address": f"{request.method} {self._address}/{self._path}",
            "versions": request.versions or "not said",
            "index": self.index,
            "encoder": self.encoder or "none",
            "depth": self.depth,
            "hits asked for": self._hits,
            "queries in a request": self._batch,
            "join": self.join or "as published",
            "backend": "api",
        }

    @property
    def _name(self) -> str:
        return f"http({self.engine})"

    @property
    def _path(self) -> str:
        return str(fill(self.request.path, {"index": quote(self.index, safe="")}))

    @property
    def _batch(self) -> int:
        return self.batch or self.request.batch

    def _asked(
        self, left: Sequence[str], rows: Mapping[str, Mapping[str, Any]], failed: FailedAttempts
    ) -> Iterator[Outcome]:
        paths, names = self.request.reply, {"index": self.index, "id_field": self.id_field}
        reply = replace(paths, **{name: fill(getattr(paths, name), names) for name in ("hits", "id", "score")})
        server = EngineServer(replace(self.request, path=self._path), self._address, reply, self._pattern)
        server.failed = failed
        groups = [left[start : start + self._batch] for start in range(0, len(left), self._batch)]
        with closing(server.ask_each([self._body([rows[query] for query in group]) for group in groups])) as coming:
            for place, answer in coming:
                group = groups[place]
                if isinstance(answer, RequestFailed):
                    yield from ((query, str(answer)) for query in group)
                    continue
                replies, seconds = answer
                if len(replies) != len(group):
                    replies = [f"{len(replies)} lists came for {len(group)} queries"] * len(group)
                failed.errors += sum(isinstance(hits, str) for hits in replies)
                for query, hits in zip(group, replies, strict=True):
                    yield query, hits if isinstance(hits, str) else KeptReply(hits, seconds)

    @property
    def billed(self) -> bool:
        """Return True, since a server searches."""
        return True

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the numbers of queries and requests, and the cost of these if they have a price."""
        requests = -(-len(collection.queries) // self._batch)
        price = self._request_price
        cost = {} if price is None else {"dollars": requests * price / 1e3}
        return {**super().forecast(collection, context), "requests": requests, **cost}

    def _book(self, answered: int, asked: int, context: Context) -> None:
        """Count requests, including those of stored replies."""
        size, price = self._batch, self._request_price
        requests, kept = -(-answered // size), max(0, -(-(answered - asked) // size))
        cost = None if price is None else requests * price / 1e3
        paid = None if price is None else (requests - kept) * price / 1e3
        context.book(Usage(requests=requests, cached=kept, cost=cost, paid=paid))

    @property
    def _request_price(self) -> float | None:
        """Return the price of a thousand requests, by the user's files."""
        return prices().of_requests((self.request.name, urlsplit(self._address).netloc))

    def _body(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        options = {name: getattr(self, name) for name in ("index", "field", "vector_field", "id_field", "ranking")}
        filled = []
        for row in rows:
            written = {f"{name}_json": orjson.dumps(row[name]).decode() for name in ("query", "vector") if name in row}
            filled.append({**options, **row, **written})
        if self.request.item is None:
            return fill(self.request.body, filled[0])
        items = [fill(self.request.item, row) for row in filled]
        return fill(self.request.body, {**filled[0], "items": items})
