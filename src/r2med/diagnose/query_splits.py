"""Which queries are chosen by and which are measured on: splits that nothing leaks through.

Queries that share a relevant document are on the same side of every split, so that what was learnt of one cannot help
with the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Qrels
from r2med.errors import R2medError
from r2med.measure.bootstrap import SEED

Places = NDArray[np.intp]
"""Which queries of a task."""


class QuerySplit(NamedTuple):
    """The places of the queries to choose by, and of those to measure on."""

    chosen_by: Places
    measured_on: Places


def linked(queries: Sequence[str], qrels: Qrels) -> list[list[int]]:
    """The places of queries in groups that share relevant documents, directly or through others.

    >>> linked(["a", "b", "c"], {"a": {"d": 1}, "b": {"e": 1}, "c": {"d": 1, "f": 0}})
    [[0, 2], [1]]
    """
    leader = list(range(len(queries)))

    def first(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    owner: dict[str, int] = {}
    for place, query in enumerate(queries):
        for document, grade in qrels.get(query, {}).items():
            if grade > 0:
                one, other = sorted((first(owner.setdefault(document, place)), first(place)))
                leader[other] = one
    groups: dict[int, list[int]] = {}
    for place in range(len(queries)):
        groups.setdefault(first(place), []).append(place)
    return list(groups.values())


def folds(groups: Sequence[Sequence[int]], count: int, seed: int = SEED) -> list[QuerySplit]:
    """Every query is measured on once and chosen by all other times; folds are as even as the groups allow."""
    if len(groups) < count:
        raise R2medError(
            f"{count} folds need {count} groups of queries that share no relevant document, and there are {len(groups)}"
        )
    parts: list[list[int]] = [[] for _ in range(count)]
    for group in _shuffled(groups, seed):
        min(parts, key=len).extend(group)
    return [_split(part, groups) for part in parts]


def halves(groups: Sequence[Sequence[int]], count: int, seed: int = SEED) -> list[QuerySplit]:
    """So many random halves: chosen by one, measured on the other."""
    if len(groups) < 2:
        raise R2medError("all queries share relevant documents with one another: they cannot be halved")
    return [folds(groups, 2, seed + number)[0] for number in range(count)]


def _shuffled(groups: Sequence[Sequence[int]], seed: int) -> list[Sequence[int]]:
    """In random order, but the large ones first, which keeps the parts even."""
    order = np.random.default_rng(seed).permutation(len(groups))
    return sorted((groups[place] for place in order), key=len, reverse=True)


def _split(part: Sequence[int], groups: Sequence[Sequence[int]]) -> QuerySplit:
    inside = set(part)
    others = [place for group in groups for place in group if place not in inside]
    return QuerySplit(np.array(sorted(others), dtype=np.intp), np.array(sorted(part), dtype=np.intp))


def split_words(how: str, count: int, tasks: Mapping[str, Sequence[Sequence[int]]]) -> str:
    """How the queries were split, for the result."""
    queries = sum(len(group) for groups in tasks.values() for group in groups)
    bound = sum(len(group) for groups in tasks.values() for group in groups if len(group) > 1)
    rule = f"{bound} of {queries} queries share relevant documents and stay together" if bound else (
        "no two queries share a relevant document"
    )  # fmt: skip
    return f"{count} {how} within each task; {rule}"
