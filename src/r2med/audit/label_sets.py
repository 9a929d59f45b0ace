"""Label sets of a task: judgements of its documents from the task itself, from files, and by reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

OF_TASK = "task"  # the word for the judgements that a task comes with
COPIES = "duplicates"  # the word for unjudged documents with the text of a relevant one, judged as it is


@dataclass(frozen=True)
class ReviewedLabels:
    """Judgements made from a review, and the grades behind them, on the scale of that review."""

    qrels: Qrels
    review: str
    scale: tuple[int, ...]
    grades: Qrels


@dataclass(frozen=True)
class LabelSet:
    """Judgements of one reviewer, model or file, of queries and documents that the task has."""

    name: str
    qrels: Qrels
    left_out: int = 0  # judgements of queries that the task does not have, or has no relevant document for
    given: ReviewedLabels | None = None  # the review that the judgements are from, if they are as it gave them

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

    def with_qrels(self, qrels: Qrels) -> LabelSet:
        """Return the set with other judgements, which are not those that were given."""
        return LabelSet(self.name, qrels, self.left_out)

    def grade(self, query: str, document: str) -> int | None:
        """Return the grade of a pair; None if it is not judged."""
        return self.qrels.get(query, {}).get(document)


def read_sets(
    sources: Sequence[str], dataset: Dataset, reviewed: Mapping[str, ReviewedLabels], copies: Qrels
) -> tuple[LabelSet, ...]:
    """Read label sets by name: `task`, `duplicates`, files of judgements or of reviewers, names of reviewed labels."""
    computed = {OF_TASK: dataset.gold.qrels, COPIES: copies}
    raw = [(source, *named) for source in sources for named in _raw_sets(source, dataset, reviewed, computed).items()]
    if len(raw) < 2:
        fields = ", ".join(REVIEWER_FIELDS[:3])
        raise R2medError(
            f"an audit compares two label sets at least: give --labels once more (the word {OF_TASK} means the task's"
            f" own labels), or a file with a column of reviewers ({fields})"
        )
    # The reviewer or the file, with the whole path if that is needed.
    short = [reviewer or (source if source in computed else Path(source).name) for source, reviewer, _ in raw]
    long = [f"{source}:{reviewer}" if reviewer else source for source, reviewer, _ in raw]
    names = [one if short.count(one) == 1 else other for one, other in zip(short, long, strict=True)]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise R2medError(f"the label set {name} is given twice")
    return tuple(
        _check_set(name, source, qrels, dataset, reviewed.get(source))
        for name, (source, _, qrels) in zip(names, raw, strict=True)
    )


def _raw_sets(
    source: str, dataset: Dataset, reviewed: Mapping[str, ReviewedLabels], computed: Mapping[str, Qrels]
) -> Mapping[str, Qrels]:
    if source in reviewed:
        return {"": reviewed[source].qrels}
    if source == COPIES and not computed[source]:
        raise R2medError(f"{COPIES}: no relevant document of {dataset.name} is repeated by one without a judgement")
    if source in computed:
        return {"": computed[source]}
    built = judged_qrels(expanded(source))
    if built is None:
        return read_label_sets(source)
    # Without the passages that a build judged and left out of its corpus.
    corpus = dataset.collection.documents.position
    kept = {query: {d: grade for d, grade in judged.items() if d in corpus} for query, judged in built.items()}
    return {"": {query: judged for query, judged in kept.items() if judged}}


def _check_set(name: str, source: str, qrels: Qrels, dataset: Dataset, given: ReviewedLabels | None) -> LabelSet:
    """Return the part of a set that is about this task; a document that the task does not have is an error."""
    queries, documents = dataset.gold.qrels, dataset.collection.documents.position
    about_task = {query: judged for query, judged in qrels.items() if query in queries}
    if not about_task:
        first = shorten(next(iter(qrels)))
        raise DataError(f"{source}: judges no query of {dataset.name}; its first is {first!r}")
    unknown = [(query, d) for query, judged in about_task.items() for d in judged if d not in documents]
    if unknown:
        query, document = map(shorten, unknown[0])
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        lacks = f"which {dataset.name} does not have{more}"
        raise DataError(f"{source}: judges the document {document!r} for query {query!r}, {lacks}")
    left_out = sum(len(judged) for query, judged in qrels.items() if query not in about_task)
    return LabelSet(name, about_task, left_out, given)


def _zeros(sets: Sequence[LabelSet]) -> LabelSet:
    """Return a set with grade 0 for every pair that one of some sets judges."""
    zeros: dict[str, dict[str, int]] = {}
    for labels in sets:
        for query, judged in labels.qrels.items():
            zeros.setdefault(query, {}).update(dict.fromkeys(judged, 0))
    return LabelSet(sets[0].name, zeros)


def fill(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Fill the pairs that a set does not judge and another does with grade 0."""
    zeros = _zeros(sets)
    return tuple(overlay(zeros, labels) for labels in sets)


def binary(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Map grades of 1 and more to 1, all others to 0."""
    return tuple(
        labels.with_qrels({q: {d: int(grade > 0) for d, grade in judged.items()} for q, judged in labels.qrels.items()})
        for labels in sets
    )


def overlay(base: LabelSet, other: LabelSet) -> LabelSet:
    """Return a base set corrected by another: the other's judgements if it has any, else those of the base."""
    queries = dict.fromkeys([*base.qrels, *other.qrels])
    return other.with_qrels({query: {**base.qrels.get(query, {}), **other.qrels.get(query, {})} for query in queries})


def beyond(sets: Sequence[LabelSet]) -> tuple[LabelSet, ...]:
    """Return the first set with 0 for pairs that only others judge, and of each other set only those pairs."""
    first, *others = sets
    holes = []
    for other in others:
        left = {
            query: {document: grade for document, grade in judged.items() if first.grade(query, document) is None}
            for query, judged in other.qrels.items()
        }
        holes.append(other.with_qrels({query: judged for query, judged in left.items() if judged}))
        if not holes[-1].qrels:
            why = "so that there is no hole to fill"
            raise R2medError(f"{other.name} judges no pair that {first.name} does not, {why}")
    return (overlay(_zeros(holes), first), *holes)


def as_given(sets: Sequence[LabelSet]) -> tuple[Sequence[LabelSet], ReviewedLabels | None]:
    """Return the sets with the grades as given, and their review, if all are of one; else the sets and None."""
    reviews = [labels.given for labels in sets if labels.given]
    if len(reviews) < len(sets) or len({given.review for given in reviews}) > 1:
        return sets, None
    pairs = zip(sets, reviews, strict=True)
    return [labels.with_qrels({q: given.grades[q] for q in labels.qrels}) for labels, given in pairs], reviews[0]


def share_pairs(
    sets: Sequence[LabelSet], scale: Sequence[float] | None = None
) -> tuple[list[tuple[str, str]], Ratings]:
    """Return the pairs that at least two sets have judged, with their grades: an item a pair, a rater a set.

    Without any, raise an error. The scale is the grades given if unknown.
    """
    counts = Counter((q, document) for labels in sets for q, judged in labels.qrels.items() for document in judged)
    pairs = [pair for pair, count in counts.items() if count > 1]
    if not pairs:
        names = " and ".join(labels.name for labels in sets)
        raise R2medError(
            f"{names} have no judged pair in common; where a set lists relevant documents only,"
            " --fill counts what it does not list as 0"
        )
    table = np.array([[labels.grade(*pair) for labels in sets] for pair in pairs], dtype=np.float64)
    places = {query: place for place, query in enumerate(dict.fromkeys(query for query, _ in pairs))}
    return pairs, Ratings.of(table, [places[query] for query, _ in pairs], scale)
