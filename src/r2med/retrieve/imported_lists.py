"""Lists that another tool made: a run file, put into the ledger under a name by `r2med import`.

The name stands in a spec where a retriever stands: `rrf(NAME, bm25)`, `NAME >> reranker`. The lists come from the
ledger, and the key of a result holds the hash of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.errors import DataError, R2medError, SpecError, counted
from r2med.pipeline.registry import bind, model_names, spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Retriever, note_incomplete
from r2med.retrieve.answer_lists import AnswerChecker
from r2med.runs.ledger import Entry, Ledger
from r2med.storage.home import home

if TYPE_CHECKING:
    from r2med.data.dataset import Collection

_ALL = 1_000_000
_UNKNOWN = 0.1
"""The share of a file's ids that may be of documents that the task does not have."""


def find_imported(call: Call) -> ImportedLists | None:
    """The stage of a call whose name a run was imported under, or None."""
    plain = not set(call.name) & {":", "@", "/"} and call.name not in model_names()
    if not plain or not (home() / "ledger.sqlite").is_file():
        return None
    with Ledger() as ledger:
        known = any(entry.record.imported for entry in ledger.entries(system=call.name))
    return bind(ImportedLists, Call(call.name, (call.name, *call.args), call.options)) if known else None


@dataclass(frozen=True)
class ImportedLists(Retriever):
    """The lists of a run file. With a `source` they are read from that file, without one from the ledger."""

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
        """The stage in the spec language."""
        given = spec_of(self, self.name)
        return Call(self.name, (), tuple(option for option in given.options if option[0] != "source"))

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        depth = "as imported" if self.depth == _ALL else self.depth
        return {"imported": True, "depth": depth, "drop_self": self.self_rule}

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """The hash of the file that the lists are from."""
        return {"file": self._hash if self.source is not None else self._entry(collection)[1]["sha256"]}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Each query's list; a query that the file does not have is incomplete."""
        if any(collection.generations):
            context.warn(f"{self}: lists are imported, so what was generated for the queries plays no part in them")
        run = self._from_ledger(collection, context) if self.source is None else self._from_file(collection, context)
        return run.without_self(self.drop_copies(collection, context)).cut(self.depth)

    @cached_property
    def _hash(self) -> str:
        assert self.source is not None
        return _file_hash(self.source)

    def _from_file(self, collection: Collection, context: Context) -> Run:
        assert self.source is not None
        run, warnings = read_run(self.source)
        if _file_hash(self.source) != self._hash:
            raise DataError(f"{self.source}: was replaced while it was imported; import it again")
        wanted = collection.queries
        others = [query for query in run.queries if query not in wanted.position]
        if len(others) == len(run.queries):
            shown = f"{others[0]!r} in the file, {wanted.ids[0]!r} in the task"
            raise DataError(f"{self.source}: shares no query with {collection.task.name} ({shown})")
        for line in warnings:
            context.warn(f"{self.source.name}: {line}")
        if others:
            count = counted(len(others), "query", "queries")
            context.warn(f"{self.source.name}: {count} not of {collection.task.name} left out, the first {others[0]!r}")
        checker = AnswerChecker(str(self.source), collection, _UNKNOWN, hint="")
        for query, ranking in run:
            if query in wanted.position:
                checker.add(query, list(zip(ranking.documents, ranking.scores.tolist(), strict=True)))
        missing = {query: f"no list in {self.source.name}" for query in wanted.ids if query not in run}
        origin = {"file": self.source.name, "sha256": self._hash, "unsearched": list(missing)}
        context.notes.facts |= {**origin, **checker.record()}
        note_incomplete(self, missing, len(wanted), context, kept="have no list")
        return checker.run(context)

    def _from_ledger(self, collection: Collection, context: Context) -> Run:
        entry, facts = self._entry(collection)
        context.notes.facts |= facts
        note_incomplete(self, entry.incomplete, len(collection.queries), context, kept="have no list")
        with Ledger() as ledger:
            return ledger.run(entry).select(collection.queries.ids)

    def _entry(self, collection: Collection) -> tuple[Entry, Mapping[str, object]]:
        """The run of this name on the same documents and queries, and what was noted of its file."""
        task = collection.task.name
        with Ledger() as ledger:
            entries = [entry for entry in ledger.entries(system=self.name) if entry.record.imported]
        there = [entry for entry in entries if entry.task == task]
        again = f"r2med import FILE --task {task} --as {self.name}"
        if not there:
            known = ", ".join(dict.fromkeys(entry.task for entry in entries))
            raise R2medError(
                f"{self.name} was not imported for {task}{f', only for {known}' if known else ''}; {again}"
            )
        data = (collection.documents.fingerprint, collection.queries.fingerprint)
        for entry in there:
            if (entry.record.data.documents, entry.record.data.queries) == data:
                return entry, entry.record.notes[self.name]
        raise DataError(f"{self.name} was imported for other documents or queries than {task} has now; {again}")


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
