"""The candidate lists of a nano task: lexical, dense, and both fused with a safeguard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from r2med.build.nano_recipe import HYBRID_DEPTH, HYBRID_K, LEXICAL, LIST_DEPTH, dense_config, with_depth
from r2med.data.tasks import candidate_configs
from r2med.measure.score import positive
from r2med.pipeline.system import System
from r2med.retrieve.fusion import RRF

if TYPE_CHECKING:
    from r2med.data.dataset import Dataset
    from r2med.data.run import Run
    from r2med.pipeline.stage import Context


@dataclass(frozen=True)
class Lists:
    """The lists of one kind, by query."""

    kind: str
    config: str
    documents: Mapping[str, Sequence[str]]
    safeguards: Mapping[str, str] = field(default_factory=dict)
    """Queries whose list ends in a relevant document that was put there, and that document."""


@dataclass(frozen=True)
class Searchers:
    """The systems that make the lists, checked before anything is read."""

    lexical: System
    dense: System | None
    config: str = ""
    """The config of the dense lists."""

    @classmethod
    def of(cls, dense: str) -> Searchers:
        """BM25, and the dense system that was asked for."""
        lexical = with_depth(System.parse(LEXICAL), LIST_DEPTH)
        if not dense:
            return cls(lexical, None)
        system = System.parse(dense)
        return cls(lexical, with_depth(system, LIST_DEPTH), dense_config(system))

    def as_dict(self) -> dict[str, Any]:
        """Every parameter of the lists, for the manifest."""
        configs = candidate_configs()
        found = {"bm25": {"config": configs["bm25"], **_described(self.lexical)}}
        if self.dense is not None:
            found["dense"] = {"config": self.config, **_described(self.dense)}
        found["hybrid"] = {
            "config": configs["hybrid"],
            "of": [each["config"] for each in found.values()],
            "fusion": "reciprocal rank",
            "k": int(HYBRID_K),
            "depth": HYBRID_DEPTH,
            "safeguard": "a list without a relevant document gets one more, its best ranked or else its first",
        }
        return found


def _described(system: System) -> dict[str, Any]:
    return {"system": system.spec, "depth": LIST_DEPTH, "key": system.key()}


def make_lists(dataset: Dataset, searchers: Searchers, context: Context) -> list[Lists]:
    """All lists of a nano task."""
    configs = candidate_configs()
    lexical = searchers.lexical.run(dataset.collection, context)
    made, runs = [Lists("bm25", configs["bm25"], _documents(lexical))], [lexical]
    if searchers.dense is not None:
        runs.append(searchers.dense.run(dataset.collection, context))
        made.append(Lists("dense", searchers.config, _documents(runs[-1])))
    return [*made, hybrid(runs, dataset)]


def hybrid(runs: Sequence[Run], dataset: Dataset) -> Lists:
    """The runs fused, 100 documents a list; a list without a relevant one gets one more, after its end."""
    fused = RRF(*[LEXICAL] * len(runs), k=HYBRID_K, depth=LIST_DEPTH * len(runs)).merge(runs)
    lists: dict[str, list[str]] = {}
    safeguards: dict[str, str] = {}
    judged = positive(dataset.gold.qrels)
    for query, ranking in fused:
        relevant = judged[query]
        found = list(ranking.documents[:HYBRID_DEPTH])
        if not any(document in relevant for document in found):
            below = (document for document in ranking.documents[HYBRID_DEPTH:] if document in relevant)
            safeguards[query] = next(below, next(iter(relevant)))
            found.append(safeguards[query])
        lists[query] = found
    return Lists("hybrid", candidate_configs()["hybrid"], lists, safeguards)


def _documents(run: Run) -> dict[str, Sequence[str]]:
    return {query: ranking.documents for query, ranking in run}
