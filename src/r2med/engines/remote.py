"""The base of remote search engines, behind HTTP or in a database: stored replies, checks and the record."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.errors import R2medError, SpecError
from r2med.models.http import FailedAttempts
from r2med.models.source import spelled_folder
from r2med.pipeline.joins import query_copies
from r2med.pipeline.registry import NamedStage, build_system
from r2med.pipeline.stage import Context, Retriever, note_incomplete
from r2med.retrieve.dense import Dense
from r2med.retrieve.documents import search_queries
from r2med.retrieve.given_lists import AnswerChecker
from r2med.store.arrays import ValueStore
from r2med.store.files import expanded
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.run import Run


def latency(seconds: Sequence[float]) -> dict[str, Any]:
    """Return percentiles of the latency of single calls, in seconds.

    >>> latency([0.1] * 98 + [0.2, 0.9])["latency"]["p50"]
    0.1
    """
    if not seconds:
        return {}
    values = np.percentile(np.array(seconds), (50, 95, 99)).round(6).tolist()
    return {"latency": dict(zip(("p50", "p95", "p99"), values, strict=True))}


class KeptReply(NamedTuple):
    """Hits of one query, and how long the request took that brought them."""

    hits: Sequence[Any]
    seconds: float


Outcome = tuple[str, KeptReply | str]  # a query with its reply, or with why there is none


class RemoteEngine(NamedStage, Retriever):
    """A retriever that queries a remote index, query by query; replies are stored by request."""

    encoder: str
    chunk: str
    fetch: int
    join: str
    unknown: float

    @property
    @abstractmethod
    def _name(self) -> str:
        """Return the name of the engine in messages."""

    @abstractmethod
    def _asked(
        self, left: Sequence[str], rows: Mapping[str, Mapping[str, Any]], failed: FailedAttempts
    ) -> Iterator[Outcome]:
        """Yield each query that is left, at least one, with its reply or the reason why there is none.

        Failed attempts are counted in `failed`.
        """

    @property
    def _batch(self) -> int:
        """Return how many queries a request holds; the time of a request with one is that query's latency."""
        return 1

    def _check_settings(self) -> None:
        if expanded(self.encoder).is_dir() and self.encoder:
            object.__setattr__(self, "encoder", spelled_folder(self.encoder))
        if min(self.depth, 1 + self.fetch) < 1 or not 0 <= self.unknown <= 1:
            raise SpecError(f"{self._name}: depth must be 1 or more, fetch not negative, unknown a share of 0 to 1")
        if self.join:
            query_copies(self.join)
        self._pattern  # noqa: B018 - a wrong expression is an error before anything runs
        if self.encoder:
            self._dense  # noqa: B018 - and so is an unknown encoder

    @property
    def _hits(self) -> int:
        return self.fetch or self.depth + bool(self.drop_self)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        try:
            pattern = re.compile(self.chunk) if self.chunk else None
        except re.error as error:
            raise SpecError(f"{self._name}: chunk={self.chunk!r} is not a regular expression ({error})") from error
        if pattern is not None and not pattern.groups:
            raise SpecError(f'{self._name}: chunk={self.chunk!r} has no group for the document, as in "(.*)#[0-9]+"')
        return pattern

    @cached_property
    def _dense(self) -> Dense:
        stage = build_system(self.encoder).stages[-1]
        if not isinstance(stage, Dense):
            raise SpecError(f"{self._name}: {self.encoder} is not an encoder")
        return stage

    def _encoder_settings(self) -> dict[str, object]:
        """Return the settings that the queries' vectors depend on, for a fingerprint."""
        if not self.encoder:
            return {}
        return {"encoder": {"settings": sorted(self._dense.encoder().settings(Role.QUERY).items())}}

    def _encoder_content(self) -> Mapping[str, str]:
        """Return the folder or class of the queries' encoder, with a hash of it."""
        return self._dense.local_content() if self.encoder else {}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the number of queries to ask."""
        return {"queries to ask": len(collection.queries)}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Ask the engine for every query that it has not answered before."""
        queries = self._queries(collection, context)
        replies: dict[str, KeptReply] = {}
        failed: dict[str, str] = {}
        attempts, base = FailedAttempts(), self.key()
        keys = {query: bytes.fromhex(cache_key(stage=base, values=values)) for query, values in queries.items()}
        checker = AnswerChecker(self._name, collection, self.unknown)
        # Lists that the task may refuse once all are there; they are stored afterwards.
        doubtful: dict[str, KeptReply] = {}
        with ValueStore("replies", {}) as store:
            kept = {} if context.fresh else store.read(keys.values())
            for query, key in keys.items():
                with suppress(R2medError):  # what was refused before is asked for again
                    if key in kept:
                        reply = KeptReply(*orjson.loads(kept[key]))
                        doubtful |= {} if checker.add(query, reply.hits) else {query: reply}
                        replies[query] = reply
            if replies:
                context.reuse("replies")
            left = [query for query in queries if query not in replies]
            with context.executor.progress(self._name, len(left)) as bar:
                for query, outcome in self._asked(left, queries, attempts) if left else ():
                    bar.advance()
                    if isinstance(outcome, str):
                        failed[query] = outcome
                    else:
                        replies[query] = outcome
                        if checker.add(query, outcome.hits):
                            store.write({keys[query]: orjson.dumps([*outcome])})
                        else:
                            doubtful[query] = outcome
            context.notes.facts |= vars(attempts)
            self._book(len(replies), len(left), context)
            if failed and not replies:
                raise R2medError(f"{self._name} could search for none of the queries: {next(iter(failed.values()))}")
            try:
                run = checker.run(context)
            except R2medError as error:
                store.write({keys[query]: b"" for query in doubtful})
                words = "refused lists are not kept: the same command asks for them again"
                raise R2medError(f"{error}; {words}") from error
            accepted = checker.returned > 0
            store.write({keys[q]: orjson.dumps([*reply]) if accepted else b"" for q, reply in doubtful.items()})
        if not checker.returned:
            nothing = "the engine found nothing for any query; the same command asks again"
            context.notes.incomplete |= dict.fromkeys(replies, nothing)
        note_incomplete(self, failed, len(queries), context, kept="could not be searched")
        times = latency([reply.seconds for reply in replies.values()] if self._batch == 1 else [])
        context.notes.facts |= {"unsearched": list(failed), **times, **checker.record()}
        return run.without_self(self.drop_copies(collection, context)).cut(self.depth)

    def _book(self, answered: int, asked: int, context: Context) -> None:
        """Record requests that may cost something."""

    def _queries(self, collection: Collection, context: Context) -> dict[str, dict[str, Any]]:
        """Return the values of the placeholders for each query."""
        asked = search_queries(collection, self.join)
        shared = {"k": self._hits, "candidates": min(10_000, max(100, 2 * self._hits))}
        rows = {query: {**shared, "query": text} for query, text in asked}
        if self.encoder:
            vectors = encode_all(self._dense.encoder(collection.task), asked, Role.QUERY, context)
            for row, vector in zip(rows.values(), vectors[:], strict=True):
                row["vector"] = vector.tolist()
        return rows
