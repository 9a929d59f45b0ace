"""Fusion: the lists of several systems, or of several views of one query, merged into one.

Each method follows its definition for a document that a list lacks: it contributes nothing. Scores equal those of
ranx on the same runs, but for min-max of equal scores, which is 1 here and 0 there; ties are broken by the one rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Ranking, Run
from r2med.errors import SpecError, suggest
from r2med.pipeline.executor.local import every_share
from r2med.pipeline.registry import NamedStage, build_system
from r2med.pipeline.stage import Context, Retriever, Stage
from r2med.pipeline.system import System

Part = System | Stage | str  # a system to fuse, in any form
_LARGEST = 1e6  # the largest weight, and the largest k: beyond, sums of scores lose the differences between them
Contribution = Callable[[Ranking], NDArray[np.float64]]  # what each document of a list adds to its fused score


def _min_max(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


NORMS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "min-max": _min_max,  # a single document, or all of equal scores, become 1
    "z-score": lambda scores: (scores - float(scores.mean())) / max(float(scores.std()), 1e-9),
    "none": lambda scores: scores,
}
"""How scores of different systems are made comparable, by the name a spec uses."""


def fuse(runs: Sequence[Run], contributions: Sequence[Contribution], depth: int, *, mnz: bool = False) -> Run:
    """Sum each list's contributions by document; with `mnz`, times the number of lists that have the document."""
    lists: dict[str, tuple[list[str], list[float]]] = {}
    for query in runs[0].queries:
        total: dict[str, float] = {}
        votes: Counter[str] = Counter()
        for run, contribution in zip(runs, contributions, strict=True):
            ranking = run[query]
            if len(ranking.documents):
                for document, value in zip(ranking.documents, contribution(ranking).tolist(), strict=True):
                    total[document] = total.get(document, 0.0) + value
                votes.update(ranking.documents)
        if mnz:
            total = {document: value * votes[document] for document, value in total.items()}
        lists[query] = (list(total), list(total.values()))
    return Run.from_lists(lists).cut(depth)


@dataclass(frozen=True, init=False)
class Fusion(NamedStage, Retriever):
    """Fusion of several systems into one list. The depth of each list is its own system's."""

    systems: tuple[System, ...] = field(metadata={"rest": True})
    weights: tuple[float, ...] = ()
    depth: int = 100

    votes: ClassVar[bool] = False  # whether sums are multiplied by the number of lists that have the document

    def _assign(self, systems: Sequence[Part], **options: object) -> None:
        object.__setattr__(self, "systems", tuple(build_system(system) for system in systems))
        for option, value in options.items():
            object.__setattr__(self, option, value)
        self._check()

    def _check(self) -> None:
        if not self.systems:
            raise SpecError(f"{self.name} needs at least one system, as in {self.name}(bm25, bm25-classic)")
        if self.weights and len(self.weights) != len(self.systems):
            raise SpecError(f"{self.name} has {len(self.systems)} systems and {len(self.weights)} weights")
        if self.weights and not (any(self.weights) and all(abs(weight) <= _LARGEST for weight in self.weights)):
            raise SpecError(f"{self.name}: weights must be numbers up to {_LARGEST:g}, and one of them not 0")
        if self.depth < 1:
            raise SpecError(f"{self.name}: depth must be at least 1, not {self.depth}")
        for system in self.systems:
            system.check()

    def describe(self) -> Mapping[str, object]:
        """Return the depth of each list and of the result."""
        lists = {system.spec: system.retriever.depth for system in self.systems}
        return {"depth": self.depth, "lists": lists, "weights": list(self._weights)}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Run every system on the collection and merge."""
        return self.merge(every_share(partial(system.run, collection, context) for system in self.systems))

    def merge(self, runs: Sequence[Run]) -> Run:
        """Merge several runs into one."""
        return fuse(runs, list(map(self.contribution, self._weights)), self.depth, mnz=self.votes)

    @abstractmethod
    def contribution(self, weight: float) -> Contribution:
        """Return what each document of a list of this weight adds to its fused score."""

    @property
    def _weights(self) -> tuple[float, ...]:
        return self.weights or (1.0,) * len(self.systems)


@dataclass(frozen=True, init=False)
class RRF(Fusion):
    """Reciprocal rank fusion: each list adds weight / (k + rank).

    >>> str(RRF("bm25", "wordllama", k=10))
    'rrf(bm25, wordllama, k=10)'
    """

    name = "rrf"

    k: float = 60.0

    def __init__(self, *systems: Part, weights: Sequence[float] = (), k: float = 60.0, depth: int = 100) -> None:
        self._assign(systems, weights=tuple(weights), k=k, depth=depth)

    def _check(self) -> None:
        super()._check()
        if self.k < 0:
            raise SpecError(f"rrf: k must not be negative, got {self.k}")
        if not self.k <= _LARGEST:
            raise SpecError(f"rrf: k must be at most {_LARGEST:g}, got {self.k}; beyond, all ranks count the same")

    def contribution(self, weight: float) -> Contribution:
        """Return the weighted reciprocal ranks."""
        return lambda ranking: weight / (self.k + 1.0 + np.arange(len(ranking.documents), dtype=np.float64))


@dataclass(frozen=True, init=False)
class WeightedSum(Fusion):
    """A weighted sum of scores made comparable within each list.

    >>> str(WeightedSum("bm25", "wordllama", weights=(1, 3)))
    'wsum(bm25, wordllama, weights=[1, 3])'
    """

    name = "wsum"

    norm: str = "min-max"

    def __init__(self, *systems: Part, weights: Sequence[float] = (), norm: str = "min-max", depth: int = 100) -> None:
        self._assign(systems, weights=tuple(weights), norm=norm, depth=depth)

    def _check(self) -> None:
        super()._check()
        if self.norm not in NORMS:
            raise SpecError(f"{self.name}: unknown norm {self.norm!r}{suggest(self.norm, NORMS)}")

    def fingerprint(self) -> Mapping[str, object]:
        """Return the value that min-max gives to equal scores, which was 0 before."""
        return {"equal scores": 1} if self.norm == "min-max" else {}

    def contribution(self, weight: float) -> Contribution:
        """Return the weighted normalised scores."""
        norm = NORMS[self.norm]
        return lambda ranking: weight * norm(np.asarray(ranking.scores, dtype=np.float64))


@dataclass(frozen=True, init=False)
class CombMNZ(WeightedSum):
    """The weighted sum times the number of lists that have the document.

    >>> str(CombMNZ("bm25", "wordllama"))
    'combmnz(bm25, wordllama)'
    """

    name = "combmnz"
    votes = True


@dataclass(frozen=True)
class Views(NamedStage, Retriever):
    """Search of one system with a query's own text and with each of its generations, merged by reciprocal rank.

    >>> str(Views("bm25", depth=50))
    'views(bm25, depth=50)'
    """

    system: System
    k: float = 60.0
    depth: int = 100

    name = "views"

    def __post_init__(self) -> None:
        object.__setattr__(self, "system", build_system(self.system))
        self.system.check()
        if self.depth < 1 or not 0 <= self.k <= _LARGEST:
            limits = f"depth must be at least 1 and k lie between 0 and {_LARGEST:g}"
            raise SpecError(f"views: {limits}, got {self.depth} and {self.k}")

    def describe(self) -> Mapping[str, object]:
        """Return the depth of each view's list and of the result."""
        return {"depth": self.depth, "each": self.system.retriever.depth, "k": self.k}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Search with each view and merge."""
        views = [replace(collection, generations=())]
        for place in range(max(map(len, collection.generations), default=0)):
            # A missing generation repeats the query.
            texts = [
                row[place].text if len(row) > place and not row[place].incomplete else text
                for row, text in zip(collection.generations, collection.queries.texts, strict=True)
            ]
            views.append(replace(collection, generations=(), queries=Texts(collection.queries.ids, texts)))
        runs = [self.system.run(view, context) for view in views]
        return RRF(*[self.system] * len(runs), k=self.k, depth=self.depth).merge(runs)
