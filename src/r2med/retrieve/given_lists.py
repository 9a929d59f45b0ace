"""Lists that were not searched by r2med: answers of external engines, imported run files and stored candidates.

An answer is a list of (document id, score) or of ids, best first. Ids alone are scored by their rank, counted from the
end of the list.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from r2med.data.candidates import candidate_files, candidates
from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.data.tasks import candidate_configs
from r2med.errors import DataError, R2medError, SpecError, suggest
from r2med.formatting import counted, shorten
from r2med.pipeline.registry import NamedStage, bind, model_names, spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Retriever, note_incomplete
from r2med.runs.ledger import Entry, Ledger
from r2med.store.cache import home
from r2med.store.hashes import cache_key, confirm_unchanged, file_digest

Answer = tuple[list[str], list[float]]


class AnswerChecker:
    """Collector of the answers for a collection's queries; a query without one has an empty list."""

    def __init__(
        self, name: str, collection: Collection, unknown: float, hint: str = ", unless unknown=... allows it"
    ) -> None:
        self._name, self._collection, self._share, self._hint = name, collection, unknown, hint
        self._lists: dict[str, Answer] = {query: ([], []) for query in collection.queries.ids}
        self._answers = 0
        self.returned = 0  # how many ids came back, known or not
        self._unknown: list[tuple[str, str]] = []

    def add(self, query: str, answer: Any) -> bool:
        """Add one query's answer; an invalid one is an error.

        Returns whether it has a document and only known ones, so that `run` cannot refuse it.
        """
        documents, scores = self._read(query, answer)
        if len(set(documents)) < len(documents):
            twice = next(name for place, name in enumerate(documents) if name in documents[:place])
            raise R2medError(f"{self._name}: query {query}: document {shorten(twice)!r} is in its list more than once")
        position = self._collection.documents.position
        self._answers += 1
        self.returned += len(documents)
        self._unknown += [(query, document) for document in documents if document not in position]
        kept = [place for place, document in enumerate(documents) if document in position]
        self._lists[query] = ([documents[place] for place in kept], [scores[place] for place in kept])
        return 0 < len(documents) == len(kept)

    def _read(self, query: str, answer: Any) -> Answer:
        if isinstance(answer, str | bytes) or not hasattr(answer, "__iter__"):
            raise self._wrong(query, f"{type(answer).__name__} in place of a list")
        items = list(answer.items()) if isinstance(answer, Mapping) else list(answer)
        pairs = [isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2 for item in items]
        if not any(pairs):
            return [self._id(query, item) for item in items], [float(place) for place in range(len(items), 0, -1)]
        if not all(pairs):
            raise self._wrong(query, f"{shorten(repr(items[pairs.index(False)]))} among pairs of an id and a score")
        documents = [self._id(query, document) for document, _ in items]
        return documents, [self._score(query, *pair) for pair in zip(documents, (s for _, s in items), strict=True)]

    def _id(self, query: str, value: Any) -> str:
        if isinstance(value, str | int | np.integer) and not isinstance(value, bool):
            return str(value)
        raise self._wrong(query, f"{shorten(repr(value))}, which is not a document id")

    def _score(self, query: str, document: str, value: Any) -> float:
        try:
            score = math.nan if isinstance(value, str | bytes | bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score):
            fault = f"the score of {shorten(document)!r} is {shorten(repr(value))}, not a number"
            raise R2medError(f"{self._name}: query {query}: {fault}")
        return score

    def _wrong(self, query: str, fault: str) -> R2medError:
        return R2medError(f"{self._name}: query {query}: {fault}; a list holds (id, score) pairs, or ids")

    def record(self) -> dict[str, Any]:
        """Return the number of returned ids and of those that are unknown to the task."""
        return {"returned": self.returned, "unknown_ids": len(self._unknown)}

    def run(self, context: Context) -> Run:
        """Return the lists as a run; warn about unknown ids, and refuse them if there are too many."""
        if self._unknown:
            query, document = self._unknown[0]
            share = len(self._unknown) / self.returned
            task = self._collection.task.name
            counts = f"{len(self._unknown):,} of {counted(self.returned, 'id')} ({share:.1%})"
            first = f"the first {shorten(document)!r} for query {query}"
            line = f"{self._name}: {counts} are not documents of {task}, {first}"
            if share == 1:
                raise R2medError(f"{line}; are they the ids of another collection?")
            if share > self._share:
                raise R2medError(f"{line}; more than {self._share:.0%} is refused{self._hint}")
            context.warn(f"{line}; they are left out")
        if self._answers and not self.returned:
            asked = counted(self._answers, "query", "queries")
            context.warn(f"{self._name}: found nothing for any of {asked}; is the right index or field searched?")
        return Run.from_lists(self._lists)


_ALL = 1_000_000
_UNKNOWN = 0.1  # the share of a file's ids that may be of documents that the task does not have


def find_imported(call: Call) -> ImportedLists | None:
    """Return the stage of a call whose name is that of an imported run, or None."""
    plain = not set(call.name) & {":", "@", "/"} and call.name not in model_names()
    if not plain or not (home() / "ledger.sqlite").is_file():
        return None
    with Ledger() as ledger:
        is_imported = any(entry.record.imported for entry in ledger.entries(system=call.name))
    return bind(ImportedLists, Call(call.name, (call.name, *call.args), call.options)) if is_imported else None


@dataclass(frozen=True)
class ImportedLists(Retriever):
    """Lists of a run file. With a `source` they are read from that file, without one from the ledger."""

    name: str
    depth: int = field(default=_ALL, kw_only=True)
    """How many documents of a list are kept; all of them unless it is said."""
    drop_self: bool | None = field(default=None, kw_only=True)
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    source: Path | None = field(default=None, kw_only=True, compare=False, repr=False)

    searches = False

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise SpecError(f"{self.name}: depth must be 1 or more, not {self.depth}")

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        return Call(self.name, (), tuple(pair for pair in spec_of(self, self.name).options if pair[0] != "source"))

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        depth = "as imported" if self.depth == _ALL else self.depth
        return {"imported": True, "depth": depth, "drop_self": self.self_rule}

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """Return the hash of the file that the lists are from."""
        return {"file": self._hash or self._entry(collection)[1]["sha256"]}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's list; a query that is missing in the file is incomplete."""
        if any(collection.generations):
            context.warn(f"{self}: lists are imported, so what was generated for the queries plays no part in them")
        if self.source is not None:
            run = self._from_file(self.source, collection, context)
        else:
            entry, facts = self._entry(collection)
            context.notes.facts |= facts
            note_incomplete(self, entry.incomplete, len(collection.queries), context, kept="have no list")
            with Ledger() as ledger:
                run = ledger.run(entry).select(collection.queries.ids)
        return run.without_self(self.drop_copies(collection, context)).cut(self.depth)

    @cached_property
    def _hash(self) -> str:
        return "" if self.source is None else _file_hash(self.source)

    def _from_file(self, source: Path, collection: Collection, context: Context) -> Run:
        run, warnings = read_run(source)
        if _file_hash(source) != self._hash:
            raise DataError(f"{source}: was replaced while it was imported; import it again")
        queries = collection.queries
        others = [query for query in run.queries if query not in queries.position]
        if len(others) == len(run.queries):
            example = f"{others[0]!r} in the file, {queries.ids[0]!r} in the task"
            raise DataError(f"{source}: shares no query with {collection.task.name} ({example})")
        for line in warnings:
            context.warn(f"{source.name}: {line}")
        if others:
            count = counted(len(others), "query", "queries")
            context.warn(f"{source.name}: {count} not of {collection.task.name} left out, the first {others[0]!r}")
        checker = AnswerChecker(str(source), collection, _UNKNOWN, hint="")
        for query, ranking in run:
            if query in queries.position:
                checker.add(query, list(zip(ranking.documents, ranking.scores.tolist(), strict=True)))
        missing = {query: f"no list in {source.name}" for query in queries.ids if query not in run}
        origin = {"file": source.name, "sha256": self._hash, "unsearched": list(missing)}
        context.notes.facts |= origin | checker.record()
        note_incomplete(self, missing, len(queries), context, kept="have no list")
        return checker.run(context)

    def _entry(self, collection: Collection) -> tuple[Entry, Mapping[str, object]]:
        task = collection.task.name
        with Ledger() as ledger:
            entries = [entry for entry in ledger.entries(system=self.name) if entry.record.imported]
        again = f"r2med eval FILE --tasks {task} --keep {self.name}"
        data = (collection.documents.fingerprint, collection.queries.fingerprint)
        for entry in entries:
            if entry.task == task and (entry.record.data.documents, entry.record.data.queries) == data:
                return entry, entry.record.notes[self.name]
        if all(entry.task != task for entry in entries):
            tasks = ", ".join(dict.fromkeys(entry.task for entry in entries))
            only = f", only for {tasks}" if tasks else ""
            raise R2medError(f"{self.name} was not imported for {task}{only}; {again}")
        raise DataError(f"{self.name} was imported for other documents or queries than {task} has now; {again}")


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


@dataclass(frozen=True)
class StoredLists(NamedStage, Retriever):
    """Stored lists in place of a search.

    >>> str(StoredLists("hybrid")), str(StoredLists("bm25", depth=100))
    ('candidates(hybrid)', 'candidates(bm25, depth=100)')
    """

    lists: str  # `bm25`, `dense` or `hybrid`
    depth: int = 500
    """How many documents of a list are kept. With 100, a hybrid list is without its safeguard at rank 101."""

    name = "candidates"
    searches = False

    def __post_init__(self) -> None:
        if self.lists not in candidate_configs():
            raise SpecError(f"candidates: unknown lists {self.lists!r}{suggest(self.lists, candidate_configs())}")
        if self.depth < 1:
            raise SpecError(f"candidates: depth must be 1 or more, not {self.depth}")

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {"lists": self.lists, "depth": self.depth, "scores": "places above the list's end"}

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """Return the version of the stored lists: a hash of their content, or the commit they come from."""
        if collection.task.hub and collection.origin is not None:
            return {"commit": collection.origin.name}
        digests = [file_digest(file) for file in candidate_files(collection, self.lists)]
        return {"lists": digests[0] if len(digests) == 1 else cache_key(files=digests)[:32]}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's stored list."""
        if any(collection.generations):
            context.warn(f"{self}: lists are stored, so what was generated for the queries plays no part in them")
        run = candidates(collection, self.lists)
        if not collection.task.hub:
            for file in candidate_files(collection, self.lists):
                confirm_unchanged(file)
        context.notes.facts |= {"lists": self.lists, **self.inputs(collection)}
        return run.cut(self.depth)
