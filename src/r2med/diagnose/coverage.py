"""What the judgements cover: how much of what systems return was judged, and what was probably missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from r2med.diagnose.near import near_duplicates
from r2med.diagnose.opened import TOP, Opened


@dataclass(frozen=True)
class Hole:
    """A document that systems return for a query and nobody judged."""

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
    """What the judgements of one task cover of some runs."""

    task: str
    judged: Mapping[str, float]
    """For each system, the mean share of its first 10 documents that are judged."""
    positives_only: bool
    """Whether only relevant documents are judged, so that judged and relevant are the same."""
    holes: Sequence[Hole]
    """The most frequent first."""
    twins: Sequence[Twin]
    """The most alike first."""

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return asdict(self)


def coverage(opened: Sequence[Opened]) -> Coverage:
    """What the judgements cover of the runs of several systems on one task."""
    first = opened[0]
    qrels = first.dataset.gold.qrels
    places = _places(opened)
    holes = [
        Hole(query, document, len(ranks), min(ranks))
        for query, found in places.items()
        for document, ranks in found.items()
        if document not in qrels[query]
    ]
    return Coverage(
        task=first.entry.task,
        judged={each.system: _judged(each) for each in opened},
        positives_only=all(grade > 0 for judged in qrels.values() for grade in judged.values()),
        holes=sorted(holes, key=lambda hole: (-hole.systems, hole.best, hole.query, hole.document)),
        twins=_twins(first, places),
    )


def _places(opened: Sequence[Opened]) -> dict[str, dict[str, list[int]]]:
    """For each query, the documents among anyone's first 10 and their places."""
    found: dict[str, dict[str, list[int]]] = {query: {} for query in opened[0].positives}
    for each in opened:
        for query, documents in found.items():
            for rank, document in enumerate(each.found(query, TOP), 1):
                documents.setdefault(document, []).append(rank)
    return found


def _judged(opened: Opened) -> float:
    """The mean share of judged documents; a query without a list has none, and counts as nothing judged."""
    shares = []
    for query in opened.positives:
        found = opened.found(query, TOP)
        shares.append(sum(document in opened.dataset.gold.qrels[query] for document in found) / max(1, len(found)))
    return float(np.mean(shares))


def _twins(opened: Opened, places: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Twin]:
    documents, qrels = opened.dataset.collection.documents, opened.dataset.gold.qrels
    owners: dict[str, list[str]] = {}
    for query, grades in opened.positives.items():
        for document in grades:
            owners.setdefault(document, []).append(query)
    found: dict[tuple[str, str], Twin] = {}
    for pair in near_duplicates({name: documents.text(name) for name in owners}, documents):
        for query in owners[pair.document]:
            grade = qrels[query].get(pair.other)
            known = found.get((query, pair.other))
            # Of several relevant documents that it resembles, the one it resembles most.
            if (grade is None or grade < 1) and (known is None or known.jaccard < pair.jaccard):
                ranks = places[query].get(pair.other)
                twin = Twin(query, pair.document, pair.other, pair.jaccard, grade, min(ranks) if ranks else None)
                found[query, pair.other] = twin
    return sorted(found.values(), key=lambda twin: (-twin.jaccard, twin.query, twin.document))
