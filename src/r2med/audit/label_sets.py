"""Label sets of a task: judgements of its documents from the task itself, from files, and by reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from r2med.data.dataset import Dataset, Qrels
from r2med.data.formats import REVIEWER_FIELDS
from r2med.data.labels import judged_qrels
from r2med.data.qrels import read_label_sets
from r2med.errors import DataError, R2medError
from r2med.formatting import shorten
from r2med.measure.agreement import Ratings
from r2med.store.files import expanded

OF_TASK = "task"
"""The word for the judgements that a task comes with."""


@dataclass(frozen=True)
class GivenGrades:
    """Grades as a review recorded them, on the scale of that review."""

    review: str
    scale: tuple[int, ...]
    grades: Qrels


@dataclass(frozen=True)
class LookedUpLabels:
    """Judgements supplied by the caller, and the grades that they were made of."""

    qrels: Qrels
    given: GivenGrades


@dataclass(frozen=True)
class LabelSet:
    """Judgements of one reviewer, model or file, of queries and documents that the task has."""

    name: str
    qrels: Qrels
    left_out: int = 0
    """Judgements of queries that the task does not have, or has no relevant document for."""
    given: GivenGrades | None = None
    """The grades behind the judgements, where they were given on another scale."""

    @property
    def judged(self) -> int:
        """Return the number of judged pairs of a query and a document."""
        return sum(map(len, self.qrels.values()))

    @property
    def relevant(self) -> int:
        """Return the number of pairs judged relevant."""
        return sum(grade > 0 for judged in self.qrels.values() for grade in judged.values())

    @property
    def highest(self) -> int:
        """Return the highest grade in the set."""
        return max(grade for judged in self.qrels.values() for grade in judged.values())

    def grade(self, query: str, document: str) -> int | None:
        """Return the grade of a pair; None if it is not judged."""
        return self.qrels.get(query, {}).get(document)


def read_sets(
    sources: Sequence[str], dataset: Dataset, known: Mapping[str, LookedUpLabels] | None = None
) -> tuple[LabelSet, ...]:
    """Read label sets by name: the word `task`, files of judgements, files with a column of reviewers.

    `known` has the judgements of names that somebody else has looked up.
    """
    raw = [each for source in sources for each in _raw_sets(source, dataset, known or {})]
    if len(raw) < 2:
        fields = ", ".join(REVIEWER_FIELDS[:3])
        raise R2medError(
            f"an audit compares two label sets at least: give --labels once more (the word {OF_TASK} means the task's"
            f" own labels), or a file with a column of reviewers ({fields})"
        )
    names = _told_apart([(source, reviewer) for source, reviewer, _ in raw])
    found = (_known(name, source, qrels, dataset) for name, (source, _, qrels) in zip(names, raw, strict=True))
    looked_up = ((known or {}).get(source) for source, _, _ in raw)
    return tuple(
        replace(each, given=labels.given) if labels else each for each, labels in zip(found, looked_up, strict=True)
    )


def _raw_sets(source: str, dataset: Dataset, known: Mapping[str, LookedUpLabels]) -> Iterator[tuple[str, str, Qrels]]:
    """Yield source, reviewer and judgements of each set behind a name."""
    if source in known:
        yield source, "", known[source].qrels
        return
    if source == OF_TASK:
        yield source, "", dataset.gold.qrels
        return
    built = judged_qrels(expanded(source))
    if built is not None:
        yield source, "", _inside(built, dataset)
        return
    for reviewer, qrels in read_label_sets(source).items():
        yield source, reviewer, qrels


def _inside(qrels: Qrels, dataset: Dataset) -> Qrels:
    """Return judgements without the passages that a build judged and left out of its corpus."""
    known = dataset.collection.documents.position
    found = {query: {d: grade for d, grade in judged.items() if d in known} for query, judged in qrels.items()}
    return {query: judged for query, judged in found.items() if judged}


def _told_apart(sets: Sequence[tuple[str, str]]) -> list[str]:
    """Return short names that differ: the reviewer or the file, with the whole path if that is needed."""
    short = [reviewer or (source if source == OF_TASK else Path(source).name) for source, reviewer in sets]
    counts = Counter(short)
    long = [f"{source}:{reviewer}" if reviewer else source for source, reviewer in sets]
    names = [one if counts[one] == 1 else other for one, other in zip(short, long, strict=True)]
    for name, count in Counter(names).items():
        if count > 1:
            raise R2medError(f"the label set {name} is given twice")
    return names


def _known(name: str, source: str, qrels: Qrels, dataset: Dataset) -> LabelSet:
    """Return the part of a set that is about this task; a document that the task does not have is an error."""
    queries, documents = dataset.gold.qrels, dataset.collection.documents.position
    mine = {query: judged for query, judged in qrels.items() if query in queries}
    if not mine:
        first = shorten(next(iter(qrels)))
        raise DataError(f"{source}: judges no query of {dataset.name}; its first is {first!r}")
    strange = [(query, document) for query, judged in mine.items() for document in judged if document not in documents]
    if strange:
        query, document = map(shorten, strange[0])
        more = f" (and {len(strange) - 1:,} more)" if len(strange) > 1 else ""
        raise DataError(
            f"{source}: judges the document {document!r} for query {query!r}, which {dataset.name} does not have{more}"
        )
    left_out = sum(len(judged) for query, judged in qrels.items() if query not in mine)
    return LabelSet(name, mine, left_out)


def fill(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Fill the pairs that a set does not judge and another does with grade 0."""
    pairs: dict[str, dict[str, int]] = {}
    for each in sets:
        for query, judged in each.qrels.items():
            pairs.setdefault(query, {}).update(dict.fromkeys(judged, 0))
    return tuple(
        LabelSet(each.name, {q: {**zeros, **each.qrels.get(q, {})} for q, zeros in pairs.items()}, each.left_out)
        for each in sets
    )


def binary(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Map grades of 1 and more to 1, all others to 0."""
    return tuple(
        LabelSet(
            each.name,
            {
                query: {document: int(grade > 0) for document, grade in judged.items()}
                for query, judged in each.qrels.items()
            },
            each.left_out,
        )
        for each in sets
    )


def overlay(base: LabelSet, other: LabelSet) -> LabelSet:
    """Return a base set corrected by another: the other's judgements if it has any, else those of the base."""
    queries = [*base.qrels, *(query for query in other.qrels if query not in base.qrels)]
    merged = {query: {**base.qrels.get(query, {}), **other.qrels.get(query, {})} for query in queries}
    return LabelSet(other.name, merged, other.left_out)


def beyond(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Return the first set with 0 for pairs that only others judge, and of each other set only those pairs."""
    first = sets[0]
    others = [LabelSet(each.name, _unjudged(first, each), each.left_out) for each in sets[1:]]
    for each in others:
        if not each.qrels:
            raise R2medError(f"{each.name} judges no pair that {first.name} does not, so that there is no hole to fill")
    holes = [(query, document) for each in others for query, judged in each.qrels.items() for document in judged]
    zeros: dict[str, dict[str, int]] = {}
    for query, document in holes:
        zeros.setdefault(query, {})[document] = 0
    return (overlay(LabelSet(first.name, zeros), first), *others)


def _unjudged(first: LabelSet, other: LabelSet) -> dict[str, dict[str, int]]:
    left = {
        query: {document: grade for document, grade in judged.items() if first.grade(query, document) is None}
        for query, judged in other.qrels.items()
    }
    return {query: judged for query, judged in left.items() if judged}


def as_given(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...] | None:
    """Return the sets with the grades as given if all are of one review; None if not."""
    grades = [each.given for each in sets if each.given]
    if len(grades) < len(sets) or len({each.review for each in grades}) > 1:
        return None
    return tuple(
        replace(each, qrels={query: given.grades[query] for query in each.qrels})
        for each, given in zip(sets, grades, strict=True)
    )


@dataclass(frozen=True)
class SharedPairs:
    """Pairs of a query and a document that at least two sets have judged, with all their grades."""

    pairs: Sequence[tuple[str, str]]
    ratings: Ratings
    """An item a pair, a rater a set; questions are queries."""


def share_pairs(sets: Sequence[LabelSet], scale: Sequence[float] | None = None) -> SharedPairs:
    """Return the pairs that can be compared; without any, raise an error. The scale is the grades given if unknown."""
    seen = Counter((query, document) for each in sets for query, judged in each.qrels.items() for document in judged)
    pairs = [pair for pair, count in seen.items() if count > 1]
    if not pairs:
        names = " and ".join(each.name for each in sets)
        raise R2medError(
            f"{names} have no judged pair in common; where a set lists relevant documents only,"
            " --fill counts what it does not list as 0"
        )
    grades = [[each.grade(*pair) for each in sets] for pair in pairs]
    places = {query: place for place, query in enumerate(dict.fromkeys(query for query, _ in pairs))}
    table = np.array(grades, dtype=np.float64)
    return SharedPairs(pairs, Ratings.of(table, [places[query] for query, _ in pairs], scale))
