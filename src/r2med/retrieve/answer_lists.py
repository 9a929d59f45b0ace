"""What an engine that is not r2med's returns, checked and made a run.

An answer is a list of (document id, score) or of ids, best first. Ids alone are scored by how many places they stand
above the end of their list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.data.rows import shorten
from r2med.data.run import Run
from r2med.errors import R2medError, counted

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.pipeline.stage import Context

Answer = tuple[list[str], list[float]]


class AnswerChecker:
    """Collects the answers for a collection's queries; a query without one has an empty list."""

    def __init__(
        self, name: str, collection: Collection, unknown: float, hint: str = ", unless unknown=... allows it"
    ) -> None:
        self._name, self._collection, self._share, self._hint = name, collection, unknown, hint
        self._lists: dict[str, Answer] = {query: ([], []) for query in collection.queries.ids}
        self._answers = self._returned = 0
        self._unknown: list[tuple[str, str]] = []

    def add(self, query: str, answer: Any) -> bool:
        """Take one query's answer; what cannot be an answer is an error.

        Returns whether it holds a document and none that the task does not have, so that `run` cannot refuse it.
        """
        documents, scores = self._pairs(query, answer)
        if len(set(documents)) < len(documents):
            twice = next(each for place, each in enumerate(documents) if each in documents[:place])
            raise R2medError(f"{self._name}: query {query}: document {shorten(twice)!r} is in its list more than once")
        known = self._collection.documents.position
        self._answers += 1
        self._returned += len(documents)
        self._unknown += [(query, document) for document in documents if document not in known]
        kept = [place for place, document in enumerate(documents) if document in known]
        self._lists[query] = ([documents[place] for place in kept], [scores[place] for place in kept])
        return 0 < len(documents) == len(kept)

    def _pairs(self, query: str, answer: Any) -> Answer:
        if isinstance(answer, str | bytes) or not hasattr(answer, "__iter__"):
            raise self._wrong(query, f"{type(answer).__name__} in place of a list")
        items = list(answer.items()) if isinstance(answer, Mapping) else list(answer)
        if not any(_is_pair(item) for item in items):
            return [self._id(query, item) for item in items], [float(len(items) - place) for place in range(len(items))]
        pairs = [item if _is_pair(item) else self._lone(query, item) for item in items]
        documents = [self._id(query, document) for document, _ in pairs]
        return documents, [self._score(query, *pair) for pair in zip(documents, (s for _, s in pairs), strict=True)]

    def _lone(self, query: str, item: Any) -> Any:
        raise self._wrong(query, f"{shorten(repr(item))} among pairs of an id and a score")

    def _id(self, query: str, value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return str(value)
        raise self._wrong(query, f"{shorten(repr(value))}, which is no document id")

    def _score(self, query: str, document: str, value: Any) -> float:
        try:
            score = math.nan if isinstance(value, str | bytes | bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score):
            found = f"the score of {shorten(document)!r} is {shorten(repr(value))}, not a number"
            raise R2medError(f"{self._name}: query {query}: {found}")
        return score

    def _wrong(self, query: str, found: str) -> R2medError:
        return R2medError(f"{self._name}: query {query}: {found}; a list holds (id, score) pairs, or ids")

    @property
    def returned(self) -> int:
        """How many ids came back, known or not."""
        return self._returned

    def record(self) -> dict[str, Any]:
        """How many ids the task does not have."""
        return {"returned": self._returned, "unknown_ids": len(self._unknown)}

    def run(self, context: Context) -> Run:
        """The lists as a run; unknown ids are said, and refused where they are too many."""
        if self._unknown:
            self._say_unknown(context)
        if self._answers and not self._returned:
            asked = counted(self._answers, "query", "queries")
            context.warn(f"{self._name}: found nothing for any of {asked}; is the right index or field searched?")
        return Run.from_lists(self._lists)

    def _say_unknown(self, context: Context) -> None:
        query, document = self._unknown[0]
        share = len(self._unknown) / self._returned
        task = self._collection.task.name
        counts = f"{len(self._unknown):,} of {counted(self._returned, 'id')} ({share:.1%})"
        first = f"the first {shorten(document)!r} for query {query}"
        line = f"{self._name}: {counts} are not documents of {task}, {first}"
        if share == 1:
            raise R2medError(f"{line}; are they the ids of another collection?")
        if share > self._share:
            raise R2medError(f"{line}; more than {self._share:.0%} is refused{self._hint}")
        context.warn(f"{line}; they are left out")


def _is_pair(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2
