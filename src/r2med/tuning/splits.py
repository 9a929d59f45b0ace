"""Splits of queries into those to choose by and those to measure on, without leakage between them.

Queries that share a relevant document are on the same side of every split, so that what was learnt of one cannot help
with the other; a caller may ask for queries to be split one by one instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Qrels
from r2med.errors import R2medError
from r2med.measure.bootstrap import SEED
from r2med.pipeline.system import System
from r2med.retrieve.routing import Route, hardest

Places = NDArray[np.intp]  # which queries of a task
LARGE_GROUP = 0.25  # the share of a task's queries from which one group of them is too large for even splits
FEW_GROUPS = 10  # below so many groups of linked queries the splits of a task have little to choose from
_DRAWS = 20  # how many times as many halves are drawn as are asked for, to find different ones
_WAY_OUT = "--split-queries splits them one by one"


class QuerySplit(NamedTuple):
    """The places of the queries to choose by, and of those to measure on."""

    chosen_by: Places
    measured_on: Places


def linked(queries: Sequence[str], qrels: Qrels) -> list[list[int]]:
    """Group the places of queries that share relevant documents, directly or through others.

    >>> linked(["a", "b", "c"], {"a": {"d": 1}, "b": {"e": 1}, "c": {"d": 1, "f": 0}})
    [[0, 2], [1]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes: dict[str, int] = {}  # of documents, after those of the queries
    links = [
        (place, nodes.setdefault(document, len(queries) + len(nodes)))
        for place, query in enumerate(queries)
        for document, grade in qrels.get(query, {}).items()
        if grade > 0
    ]
    size = len(queries) + len(nodes)
    ends = np.array(links, dtype=np.int32).reshape(-1, 2).T
    _, labels = connected_components(coo_array((np.ones(len(links)), ends), shape=(size, size)), directed=False)
    groups: dict[int, list[int]] = {}
    for place, label in enumerate(labels[: len(queries)].tolist()):
        groups.setdefault(label, []).append(place)
    return list(groups.values())


def folds(groups: Sequence[Sequence[int]], count: int, seed: int = SEED) -> list[QuerySplit]:
    """Split so that every query is measured on once and chosen by all other times; as evenly as the groups allow."""
    if len(groups) < count:
        raise R2medError(
            f"{count} folds need {count} groups of queries that share no relevant document, and there are"
            f" {len(groups)}; {_WAY_OUT}"
        )
    parts: list[list[int]] = [[] for _ in range(count)]
    order = np.random.default_rng(seed).permutation(len(groups))
    # The large ones first, which keeps the parts even.
    for group in sorted((groups[place] for place in order), key=len, reverse=True):
        min(parts, key=len).extend(group)
    places = np.sort(np.array([place for group in groups for place in group], dtype=np.intp))
    measured = [np.array(sorted(part), dtype=np.intp) for part in parts]
    return [QuerySplit(np.setdiff1d(places, part), part) for part in measured]


def draw_half(groups: Sequence[Sequence[int]], seed: int) -> QuerySplit:
    """Return one random half: chosen by one side, measured on the other; which is which is drawn as well."""
    if len(groups) < 2:
        raise R2medError(f"all queries share relevant documents with one another: they cannot be halved; {_WAY_OUT}")
    return folds(groups, 2, seed)[np.random.default_rng([seed, 1]).integers(2)]


def distinct_halves(tasks: Sequence[Sequence[Sequence[int]]], count: int, seed: int = SEED) -> list[list[QuerySplit]]:
    """Return up to so many different halves of all tasks together; fewer where the groups allow no more."""
    different: dict[tuple[bytes, ...], list[QuerySplit]] = {}
    for number in range(_DRAWS * count):
        split = [draw_half(groups, seed + number) for groups in tasks]
        different.setdefault(tuple(half.measured_on.tobytes() for half in split), split)
        if len(different) == count:
            break
    return list(different.values())


def split_words(how: str, count: int, tasks: Sequence[Sequence[Sequence[int]]], *, apart: bool) -> str:
    """Describe how the queries were split; `apart` if linked queries were split too."""
    queries = sum(len(group) for groups in tasks for group in groups)
    bound = sum(len(group) for groups in tasks for group in groups if len(group) > 1)
    if not bound:
        rule = "no two queries share a relevant document"
    elif apart:
        rule = f"{bound} of {queries} queries share relevant documents, and may be on both sides"
    else:
        number = sum(map(len, tasks))
        rule = f"{bound} of {queries} queries share relevant documents and stay together ({number} groups)"
    return f"{count} {how} within each task; {rule}"


def split_warnings(tasks: Mapping[str, Sequence[Sequence[int]]]) -> list[str]:
    """Warn of tasks on which linked queries leave little to split: one large group, or few groups."""
    warnings = []
    for task, groups in tasks.items():
        queries, largest = sum(map(len, groups)), max(map(len, groups))
        if largest == 1 or (largest <= LARGE_GROUP * queries and len(groups) >= FEW_GROUPS):
            continue
        warnings.append(
            f"{task}: {queries} queries are {len(groups)} groups that share no relevant document, the largest of"
            f" {largest} ({largest / queries:.0%}), so that splits are uneven or alike; {_WAY_OUT}."
        )
    return warnings


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FixedCandidate:
    """A system as it is."""

    system: System
    values: Sequence[Floats]

    def label(self, places: Sequence[Places]) -> str:
        """Return the spec."""
        return self.system.spec

    def scores(self, places: Sequence[Places]) -> list[Floats]:
        """Return the same whatever it is fitted to."""
        return list(self.values)


@dataclass(frozen=True)
class RouteParts:
    """The two systems of a route on one task, and how hard its queries seem; a larger number is harder."""

    names: Sequence[str]
    cheap: Floats
    strong: Floats
    hardness: Floats

    def threshold(self, share: float, chosen: Places) -> float:
        """Return how hard a query must be to be sent on, so that this share of the queries to choose by is."""
        values = self.hardness[chosen]
        sent = hardest(values, [self.names[place] for place in chosen], share, "high")
        hardness = values[sent][~np.isnan(values[sent])]
        return float(hardness.min()) if len(hardness) else np.inf

    def sent(self, share: float, chosen: Places) -> NDArray[np.bool_]:
        """Return which of all queries are sent on; those without a signal are hard."""
        beyond: NDArray[np.bool_] = self.hardness >= self.threshold(share, chosen)
        return beyond | (np.isnan(self.hardness) & (share > 0))

    def random(self, share: float) -> Floats:
        """Return what each query is expected to score when it is sent on with this probability."""
        return (1 - share) * self.cheap + share * self.strong


@dataclass(frozen=True)
class RouteCandidate:
    """A route that sends a share of the queries to choose by, and of others those beyond the threshold that this is."""

    route: Route
    share: float
    parts: Sequence[RouteParts]

    def label(self, places: Sequence[Places]) -> str:
        """Return the spec with the threshold; tasks have one each if there are several."""
        route = f"route({self.route.cheap}, {self.route.strong}, by={self.route.by}"
        edges = [part.threshold(self.share, queries) for part, queries in zip(self.parts, places, strict=True)]
        if len(edges) > 1 or not np.isfinite(edges[0]):
            return f"{route}, share={self.share:g})"
        return f"{route}, threshold={edges[0] if self.route.hard_end == 'high' else -edges[0]!r})"

    def scores(self, places: Sequence[Places]) -> list[Floats]:
        """Return each query's score by the system that the threshold gives it to."""
        return [
            np.where(part.sent(self.share, queries), part.strong, part.cheap)
            for part, queries in zip(self.parts, places, strict=True)
        ]


TuneCandidate = FixedCandidate | RouteCandidate
