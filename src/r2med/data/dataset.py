"""The parts of a benchmark task: a `Collection` that every stage may read, and the `Gold` that only `measure` may.

The two are separate types so that judgements cannot leak into retrieval by accident: a stage is handed a
`Collection`, and nothing reachable from a `Collection` leads to relevance judgements or gold answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from r2med.data.stored_texts import StoredIds, StoredTexts, encode

if TYPE_CHECKING:
    from pathlib import Path

    from r2med.data.tasks import Task

_HASH_BLOCK = 64  # texts hashed at a time: few calls, and pieces that still fit the processor's cache


def text_fingerprint(*columns: Sequence[str]) -> str:
    """Hash the content of columns of texts: equal content gives an equal hash, whatever file it came from.

    >>> text_fingerprint(["a", "bc"]) == text_fingerprint(["ab", "c"])
    False
    """
    digest = hashlib.sha256()
    for column in columns:
        digest.update(b"%d\n" % len(column))
        for start in range(0, len(column), _HASH_BLOCK):
            block = slice(start, start + _HASH_BLOCK)
            pieces = column.encoded(block) if isinstance(column, StoredTexts) else list(map(encode, column[block]))
            digest.update(",".join(map(str, map(len, pieces))).encode() + b"\n" + b"".join(pieces))
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Texts:
    """Columns of ids and texts, aligned: the documents or the queries of a task.

    >>> documents = Texts(["d1", "d2"], ["one", "two"])
    >>> len(documents), documents.position["d2"], documents.text("d1")
    (2, 1, 'one')
    """

    ids: Sequence[str]
    texts: Sequence[str]
    known: str = field(default="", compare=False, repr=False)  # their fingerprint, if it is known beforehand

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise ValueError(f"{len(self.ids)} ids for {len(self.texts)} texts")

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.ids, self.texts, strict=True)

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Return the position of each id."""
        if isinstance(self.ids, StoredIds):
            return self.ids.positions
        return {identifier: place for place, identifier in enumerate(self.ids)}

    @cached_property
    def fingerprint(self) -> str:
        """Return the content hash of both columns."""
        return self.known or text_fingerprint(self.ids, self.texts)

    def text(self, identifier: str) -> str:
        """Return the text under an id."""
        return self.texts[self.position[identifier]]

    def without(self, places: Sequence[int]) -> Texts:
        """Return all but the rows at these places.

        >>> list(Texts(["d1", "d2"], ["one", "two"]).without([0]))
        [('d2', 'two')]
        """
        left_out = set(places)

        def rest(column: Sequence[str]) -> Sequence[str]:
            if isinstance(column, StoredTexts):
                return column.without(places)
            return [text for place, text in enumerate(column) if place not in left_out]

        return Texts(rest(self.ids), rest(self.texts))


@dataclass(frozen=True)
class Generation:
    """Text that a model wrote for a query, and its origin. The retriever decides how to search with it."""

    text: str
    """The text to search with: the passage or final answer, never the reasoning."""
    method: str
    """The stage that requested it: hyde, query2doc, lamer, answer, search-o1, search-r1, replay, ..."""
    model: str = ""
    """The model that wrote it."""
    reasoning: str = ""
    """Its reasoning trace, kept for inspection."""
    join: str = ""
    """The way to join it with the query; empty for the retriever's protocol for `method`."""
    incomplete: str = ""
    """The reason why nothing usable was written (unclosed trace, refusal, failed request); else empty."""


@dataclass(frozen=True, repr=False)
class Collection:
    """Documents and queries of a task, with what expanders have added: all that a stage receives."""

    task: Task
    documents: Texts
    queries: Texts
    generations: tuple[tuple[Generation, ...], ...] = ()  # a tuple per query; empty if nothing was generated
    origin: Path | None = None  # the folder the data was read from, where published generations may lie beside it
    copies: frozenset[str] | None = None
    """The ids under which a query and a document of the task are the same text or case; None if none are declared,
    so that every id of both kinds counts as one."""

    def __repr__(self) -> str:
        return f"Collection({self.task.name!r}, {len(self.queries)} queries, {len(self.documents)} documents)"

    def expanded(self, generations: Sequence[Sequence[Generation]]) -> Collection:
        """Return the same collection with one more generation list per query, after those already there."""
        if len(generations) != len(self.queries):
            raise ValueError(f"{len(generations)} generation lists for {len(self.queries)} queries")
        before = self.generations or ((),) * len(self.queries)
        merged = tuple((*old, *new) for old, new in zip(before, generations, strict=True))
        return replace(self, generations=merged)

    def select(self, query_ids: Sequence[str]) -> Collection:
        """Return the same documents with only these queries, in this order."""
        places = [self.queries.position[identifier] for identifier in query_ids]
        queries = Texts([self.queries.ids[i] for i in places], [self.queries.texts[i] for i in places])
        return replace(
            self, queries=queries, generations=tuple(self.generations[i] for i in places) if self.generations else ()
        )

    @cached_property
    def shared_ids(self) -> frozenset[str]:
        """Return the ids of queries that are copies of documents, which a system may leave out of the query's list."""
        position = self.documents.position
        shared = frozenset(query for query in self.queries.ids if query in position)
        return shared if self.copies is None else shared & self.copies

    @cached_property
    def fingerprint(self) -> str:
        """Return the content hash of documents and queries (generations are a stage's output, not part of the data)."""
        return text_fingerprint([self.documents.fingerprint, self.queries.fingerprint])

    @cached_property
    def state(self) -> str:
        """Return the content hash with the generations: what a retriever's output depends on."""
        written = [f"{g.method}\t{g.join}\t{g.incomplete}\t{g.text}" for row in self.generations for g in row]
        counts = [str(len(row)) for row in self.generations]
        return text_fingerprint([self.fingerprint], counts, written)


Qrels = Mapping[str, Mapping[str, int]]
"""Judgements: query id to document id to grade; a grade of 1 or more is relevant."""


class Aspect(NamedTuple):
    """Aspect of a query: the relevant documents that cover it, and its weight among the aspects of the query."""

    documents: frozenset[str]
    weight: float = 1.0


Aspects = Mapping[str, Mapping[str, Aspect]]
"""Aspects by query id and name. One that no document covers cannot be retrieved, and is not among them."""


@dataclass(frozen=True, repr=False)
class Gold:
    """Data that a system must never see: judgements, and if the task has them, gold answers and reasoning paths."""

    qrels: Qrels
    answers: Mapping[str, str] = field(default_factory=dict)
    reasoning: Mapping[str, str] = field(default_factory=dict)
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)  # further wordings of the gold answer
    aspects: Aspects = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Gold({len(self.qrels)} queries judged, {len(self.answers)} answers)"

    def rows(self, query: str) -> Iterator[dict[str, object]]:
        """Yield the judgements of a query as rows of a file: one for each aspect that a document covers."""
        aspects = self.aspects.get(query, {})
        for document, grade in self.qrels[query].items():
            row = {"q_id": query, "p_id": document, "score": grade}
            covered = [name for name, aspect in aspects.items() if document in aspect.documents and grade > 0]
            yield from ({**row, "aspect": name, "weight": aspects[name].weight} for name in covered)
            if not covered:
                yield row | ({"aspect": None, "weight": None} if self.aspects else {})

    @cached_property
    def fingerprint(self) -> str:
        """Return the content hash of the judgements and answers, independent of their order."""
        rows = sorted(f"{q}\t{d}\t{grade}" for q, judged in self.qrels.items() for d, grade in judged.items())
        answers = [f"{q}\t{text}" for q, text in sorted(self.answers.items())]
        synonyms = [f"{q}\t{text}" for q, texts in sorted(self.synonyms.items()) for text in texts]
        aspects = [
            f"{query}\t{name}\t{float(weight)!r}\t{document}"
            for query, named in sorted(self.aspects.items())
            for name, (documents, weight) in sorted(named.items())
            for document in sorted(documents)
        ]
        # Data without synonyms and aspects keeps the fingerprint that it had before there were any.
        return text_fingerprint(
            rows, answers, *([synonyms] if synonyms or aspects else []), *([aspects] if aspects else [])
        )


@dataclass(frozen=True, repr=False)
class Dataset:
    """Data of a task: its `Collection` and its `Gold`, with the reader's warnings.

    >>> import r2med
    >>> dataset = r2med.load("sample/Biology")
    >>> dataset.collection.queries.ids[0], len(dataset.gold.qrels)
    ('bio-q01', 9)
    """

    collection: Collection
    gold: Gold
    warnings: tuple[str, ...] = ()  # sentences about what was folded or fixed while reading, with counts
    revision: str = ""  # the hub revision that was read; empty for local files

    @property
    def task(self) -> Task:
        """Return the task that this data belongs to."""
        return self.collection.task

    @property
    def name(self) -> str:
        """Return the task's name, as in `r2med run --tasks NAME`."""
        return self.task.name

    @cached_property
    def fingerprint(self) -> str:
        """Return the content hash of everything that a result depends on."""
        return text_fingerprint([self.collection.fingerprint, self.gold.fingerprint])

    def __repr__(self) -> str:
        queries, documents = len(self.collection.queries), len(self.collection.documents)
        return f"Dataset({self.name!r}, {queries:,} queries, {documents:,} documents)"
