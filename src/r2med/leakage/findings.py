"""Findings: pairs as they come, and at the end the share of each task that is affected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.index import KINDS, METHODS, IndexedTask, Settings
from r2med.leakage.match import LeakHits
from r2med.lexical.arrays import Places
from r2med.lexical.shingles import distinct

_DOCUMENT = KINDS.index("document")
_NOT_FOUND = len(METHODS)


class LeakedPair(NamedTuple):
    """A row of training data that holds a text of a task."""

    file: str
    line: int
    task: str
    kind: str
    id: str
    method: str
    score: float
    """1 for `exact` and `normalised`, the Jaccard similarity for `near`, the share of the text's runs of 13 words
    that the row has for `ngram`."""


@dataclass(frozen=True)
class Share:
    """Number of affected texts of a kind."""

    total: int
    affected: int
    methods: Mapping[str, int]
    """How many of them under each method, the surest that found them."""
    too_short: int
    """How many were not compared."""

    @property
    def share(self) -> float:
        """Return the affected part."""
        return self.affected / self.total if self.total else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {**asdict(self), "share": self.share}


@dataclass(frozen=True)
class TaskShares:
    """Shares of a task that are affected; `documents` are all documents, the positives among them."""

    task: str
    queries: Share
    positives: Share
    documents: Share


@dataclass(frozen=True)
class LeakedRows:
    """Number of rows of a training file, and those that hold queries or positives, or any text of a task."""

    rows: int
    judged: Places
    any: Places


@dataclass(frozen=True)
class LeakageReport:
    """Findings of training data in some tasks."""

    settings: Settings
    files: Mapping[Path, LeakedRows]
    tasks: Sequence[TaskShares]
    pairs: int
    strongest: Sequence[LeakedPair]
    """The first few pairs: queries before positives before documents, surer methods first."""

    def leaks(self, documents: bool = False) -> bool:
        """Return whether a query or a positive was found; or, if `documents` count as well, anything."""
        return any(len(rows.any if documents else rows.judged) for rows in self.files.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        names = ("queries", "positives", "documents")
        return {
            "rows": sum(rows.rows for rows in self.files.values()),
            "affected_rows": sum(len(rows.judged) for rows in self.files.values()),
            "affected_rows_with_documents": sum(len(rows.any) for rows in self.files.values()),
            "tasks": [{"task": task.task} | {n: getattr(task, n).as_dict() for n in names} for task in self.tasks],
            "pairs": self.pairs,
            "strongest": [pair._asdict() for pair in self.strongest],
            "files": {str(path): rows.rows for path, rows in self.files.items()},
            "settings": asdict(self.settings),
        }


def _merged(parts: Sequence[Places]) -> Places:
    return distinct(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


@dataclass
class Tally:
    """Counter of what blocks hold, in bounded memory: a number for each text of a task, and for each affected row."""

    subjects: Sequence[IndexedTask]
    limit: int  # how many pairs to keep for showing
    pairs: int = 0
    files: dict[Path, LeakedRows] = field(default_factory=dict)
    _kept: list[tuple[int, int, float, LeakedPair]] = field(default_factory=list)
    _rows: int = 0
    _judged: list[Places] = field(default_factory=list)
    """Rows of the file, each once, with queries or positives; of the blocks before one column per block."""
    _any: list[Places] = field(default_factory=list)
    _blocks: int = 0

    def __post_init__(self) -> None:
        self._best = [np.full(len(subject.ids), _NOT_FOUND, dtype=np.int8) for subject in self.subjects]

    def add(self, path: Path, place: int, hits: LeakHits) -> None:
        """Take in pairs of a file and of the task at this place."""
        kinds = self.subjects[place].kinds[hits.texts]
        np.minimum.at(self._best[place], hits.texts, hits.methods)
        self._any.append(distinct(hits.rows))
        self._judged.append(distinct(hits.rows[kinds != _DOCUMENT]))
        self.pairs += len(hits)
        order = np.lexsort((-hits.scores, hits.methods, kinds))[: self.limit]
        first = hits.take(order)
        pairs = pairs_of(path, self.subjects[place], first)
        ranks = zip(kinds[order].tolist(), first.methods.tolist(), (-first.scores).tolist(), pairs, strict=True)
        # The strongest of old and new ones; among equals, those that came first.
        self._kept = sorted([*self._kept, *ranks], key=lambda ranked: ranked[:3])[: self.limit]

    def end_block(self, rows: int) -> None:
        """Close a block of so many rows."""
        self._rows += rows
        for column in (self._judged, self._any):
            column[self._blocks :] = [_merged(column[self._blocks :])]
        self._blocks += 1

    def end_file(self, path: Path) -> None:
        """Close a file."""
        self.files[path] = LeakedRows(self._rows, _merged(self._judged), _merged(self._any))
        self._rows, self._blocks, self._judged, self._any = 0, 0, [], []

    def report(self, settings: Settings) -> LeakageReport:
        """Build the report of all findings."""

        def share(subject: IndexedTask, best: NDArray[np.int8], *kinds: str) -> Share:
            methods_of = best[np.isin(subject.kinds, [KINDS.index(kind) for kind in kinds])]
            counts = np.bincount(methods_of, minlength=_NOT_FOUND + 1).tolist()
            methods = {method: counts[place] for place, method in enumerate(METHODS) if counts[place]}
            short = sum(subject.too_short[kind] for kind in kinds)
            return Share(len(methods_of), sum(counts[:_NOT_FOUND]), methods, short)

        parts = (("query",), ("positive",), ("positive", "document"))
        tasks = [
            TaskShares(subject.name, *(share(subject, best, *kinds) for kinds in parts))
            for subject, best in zip(self.subjects, self._best, strict=True)
        ]
        return LeakageReport(settings, self.files, tasks, self.pairs, [pair for *_, pair in self._kept])


def pairs_of(path: Path, subject: IndexedTask, hits: LeakHits) -> Iterator[LeakedPair]:
    """Yield pairs with names in the place of numbers."""
    columns = (hits.rows.tolist(), hits.texts.tolist(), hits.methods.tolist(), hits.scores.tolist())
    for row, text, method, score in zip(*columns, strict=True):
        kind = KINDS[subject.kinds[text]]
        yield LeakedPair(str(path), row, subject.name, kind, subject.ids[text], METHODS[method], score)
