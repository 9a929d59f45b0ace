"""Coverage of the judgements: how much of what systems return was judged, and what was probably missed.

Probably missed are near-duplicates of relevant documents, found exactly but for collisions of 64-bit hashes: texts of
which the sets of runs of five words (shingles) have a Jaccard similarity of 0.8 or more. A text that near to one with n
shingles lacks at most n - ceil(0.8 n) of them, so it holds at least one of any n - ceil(0.8 n) + 1: of each text the
rarest so many are looked up, and every text that shares one is compared in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from r2med.lexical.arrays import Places, by_size, ragged, row_slices_up_to
from r2med.lexical.hashes import Words, hash_words
from r2med.lexical.shingles import HashTable, distinct, ngrams, similarities, without_repeats
from r2med.pipeline.loaded_runs import TOP, LoadedRun


@dataclass(frozen=True)
class Hole:
    """A document that systems return for a query and that was not judged."""

    query: str
    document: str
    systems: int
    """How many of the runs have it among their first 10."""
    best: int
    """Its best place in any of them."""


@dataclass(frozen=True)
class Twin:
    """A document nearly the same as a relevant one, and not judged relevant: a likely false negative."""

    query: str
    positive: str
    document: str
    jaccard: float
    judged: int | None
    """Its grade, where it was judged at all."""
    best: int | None
    """Its best place among the first 10 of any run."""


@dataclass(frozen=True)
class Coverage:
    """Share of some runs on one task that its judgements cover."""

    task: str
    judged: Mapping[str, float]
    """For each system, the mean share of its first 10 documents that are judged."""
    positives_only: bool
    """Whether only relevant documents are judged, so that judged and relevant are the same."""
    holes: Sequence[Hole]
    """The most frequent first."""
    twins: Sequence[Twin]
    """The most alike first."""


def coverage(opened: Sequence[LoadedRun]) -> Coverage:
    """Measure what the judgements cover of the runs of several systems on one task."""
    first = opened[0]
    qrels = first.dataset.gold.qrels
    places: dict[str, dict[str, list[int]]] = {query: {} for query in first.positives}
    judged = {}
    for run in opened:
        shares = []
        for query, ranks in places.items():
            top = run.found(query, TOP)
            for rank, document in enumerate(top, 1):
                ranks.setdefault(document, []).append(rank)
            # A query without a list has none, and counts as nothing judged.
            shares.append(sum(document in qrels[query] for document in top) / max(1, len(top)))
        judged[run.system] = float(np.mean(shares))
    holes = [
        Hole(query, document, len(ranks), min(ranks))
        for query, documents in places.items()
        for document, ranks in documents.items()
        if document not in qrels[query]
    ]
    return Coverage(
        task=first.entry.task,
        judged=judged,
        positives_only=all(grade > 0 for grades in qrels.values() for grade in grades.values()),
        holes=sorted(holes, key=lambda hole: (-hole.systems, hole.best, hole.query, hole.document)),
        twins=_twins(first, places),
    )


def _twins(opened: LoadedRun, places: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Twin]:
    documents, qrels = opened.dataset.collection.documents, opened.dataset.gold.qrels
    owners: dict[str, list[str]] = {}
    for query, grades in opened.positives.items():
        for document in grades:
            owners.setdefault(document, []).append(query)
    twins: dict[tuple[str, str], Twin] = {}
    for pair in near_duplicates({name: documents.text(name) for name in owners}, documents):
        for query in owners[pair.document]:
            grade = qrels[query].get(pair.other)
            nearest = twins.get((query, pair.other))
            # Of several relevant documents that it resembles, the one it resembles most.
            if (grade is None or grade < 1) and (nearest is None or nearest.jaccard < pair.jaccard):
                ranks = places[query].get(pair.other)
                best = min(ranks) if ranks else None
                twins[query, pair.other] = Twin(query, pair.document, pair.other, pair.jaccard, grade, best)
    return sorted(twins.values(), key=lambda twin: (-twin.jaccard, twin.query, twin.document))


THRESHOLD = 0.8
WORDS = 5
_CHARACTERS_AT_ONCE = 1 << 20
_CANDIDATES_AT_ONCE = 1 << 20


class NearPair(NamedTuple):
    """Two documents that are nearly the same."""

    document: str
    other: str
    jaccard: float


def near_duplicates(
    texts: Mapping[str, str], documents: Iterable[tuple[str, str]], threshold: float = THRESHOLD
) -> Iterator[NearPair]:
    """Yield every pair of one of the texts and another document that are nearly the same.

    >>> text = "a deficiency of vitamin C makes gums bleed and wounds heal badly in sailors"
    >>> list(near_duplicates({"d1": text}, [("d1", text), ("d2", text.upper()), ("d3", "vitamin C")]))
    [NearPair(document='d1', other='d2', jaccard=1.0)]
    """
    names, ours = list(texts), _shingles(texts.values())
    telling = _telling(ours, threshold)
    for block in by_size(documents, lambda document: len(document[1]), _CHARACTERS_AT_ONCE):
        theirs = _shingles(text for _, text in block)
        for rows, others in _candidates(telling, theirs, len(ours)):
            alike = similarities(ours, theirs, (rows, others))
            for place in np.flatnonzero(alike >= threshold).tolist():
                name, other = names[rows[place]], block[others[place]][0]
                if name != other:
                    yield NearPair(name, other, float(alike[place]))


def _shingles(texts: Iterable[str]) -> Words:
    """Hash the runs of five words of texts, in lower case without punctuation; a shorter text is one run."""
    return ngrams(hash_words(list(texts), str.casefold, marks="_"), WORDS, whole=True)


def _telling(own: Words, threshold: float) -> HashTable:
    """Return for each text the shingles of which a near-duplicate must have one, those that few texts have first."""
    sets = without_repeats(own)
    owners = np.repeat(np.arange(len(sets)), sets.counts)
    _, places, counts = np.unique(sets.hashes, return_inverse=True, return_counts=True)
    rarest = np.lexsort((counts[places], owners))
    # A hair less than the product, which may come out above a whole number that it should equal.
    needed = sets.counts - np.ceil(threshold * sets.counts - 1e-9).astype(np.int64) + 1
    first = rarest[ragged(sets.offsets[:-1], np.minimum(needed, sets.counts))]
    return HashTable.of(sets.hashes[first], owners[first])


def _candidates(telling: HashTable, theirs: Words, own: int) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs of one of our texts and one of theirs that has a telling shingle of it, each once, in parts."""
    here, starts, sizes = telling.locate(theirs.hashes)
    others = theirs.owners(here)
    for part in row_slices_up_to(others, sizes, _CANDIDATES_AT_ONCE):
        pairs = distinct(np.repeat(others[part], sizes[part]) * own + telling.texts(starts[part], sizes[part]))
        yield pairs % own, pairs // own
