"""The parameters of a nano set, and the names of what is made by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.data.tasks import Task, candidate_configs, registry
from r2med.errors import R2medError, SpecError, suggest
from r2med.measure.score import positive
from r2med.pipeline.registry import build_stage
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Retriever
from r2med.pipeline.system import System
from r2med.retrieve.fusion import RRF

POLICIES = ("source-order", "hard", "random")
LIST_DEPTH = 500
HYBRID_DEPTH = 100
HYBRID_K = 100.0
LEXICAL = "bm25"
_RESERVED = ("corpus", "query", "queries", "qrels", "bm25", "reranking_hybrid")


@dataclass(frozen=True)
class Recipe:
    """Parameters of a nano set; the defaults are those of NanoR2MED, except for its dense model.

    >>> Recipe(documents=1000).as_dict()
    {'documents': 1000, 'queries': 200, 'policy': 'source-order', 'drop_unjudged': False}
    """

    documents: int = 10_000
    queries: int = 200
    policy: str = "source-order"
    seed: int = 0
    dense: str = ""
    hard_systems: tuple[str, ...] = (LEXICAL,)
    """The systems whose best non-relevant documents `hard` takes."""
    drop_unjudged: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise R2medError(f"unknown policy {self.policy!r}{suggest(self.policy, POLICIES)}")
        if self.documents < 1 or self.queries < 1:
            raise R2medError(f"a nano set of {self.documents} documents and {self.queries} queries is none")
        if self.policy == "hard" and not self.hard_systems:
            raise R2medError("the policy hard needs at least one system")

    def as_dict(self) -> dict[str, Any]:
        """Return all parameters in effect, for the manifest."""
        stated: dict[str, Any] = {"documents": self.documents, "queries": self.queries, "policy": self.policy}
        if self.policy == "random":
            stated["seed"] = self.seed
        if self.policy == "hard":
            stated["hard_systems"] = [System.parse(text).spec for text in self.hard_systems]
        return stated | {"drop_unjudged": self.drop_unjudged}


def with_depth(system: System, depth: int) -> System:
    """Return the same system with lists of another depth.

    >>> str(with_depth(System.parse("rrf(bm25, bm25-classic)"), 500))
    'rrf(bm25, bm25-classic, depth=500)'
    """
    stages = list(system.stages)
    for place, stage in enumerate(stages):
        if isinstance(stage, Retriever):
            call = stage.spec
            options = tuple({**dict(call.options), "depth": depth}.items())
            stages[place] = build_stage(Call(call.name, call.args, options))
    return System(tuple(stages))


def dense_config(system: System) -> str:
    """Return the config of a dense system's lists: its spec in the characters that configs may have.

    >>> dense_config(System.parse("bm25-classic(k1=1.2)"))
    'bm25_classic_k1_1_2'
    """
    name = re.sub(r"[^a-z0-9]+", "_", system.spec.lower()).strip("_")
    if name in _RESERVED:
        raise SpecError(f"{system} cannot be the dense system: the nano set has a part called {name} already")
    return name or candidate_configs()["dense"]


def split_name(task: Task) -> str:
    """Return the name of a task's split in a nano set: the published one if there is one.

    >>> from r2med.data.tasks import task
    >>> split_name(task("MedQA-Diag")), split_name(task("sample/Biology"))
    ('NanoR2MEDMedQADiag', 'NanoSampleBiology')
    """
    published = registry().get(f"nano/{task.base}")
    words = re.findall(r"[^\W_]+", task.base)
    name = "".join(word[0].upper() + word[1:] for word in words) or "Task"
    if task.group == "sample":
        return f"NanoSample{name}"
    return published.split if published is not None else f"Nano{name}"


@dataclass(frozen=True)
class Lists:
    """The lists of one kind, by query."""

    kind: str
    config: str
    documents: Mapping[str, Sequence[str]]
    safeguards: Mapping[str, str] = field(default_factory=dict)
    """Queries whose list ends in a relevant document that was put there, and that document."""


Searchers = Mapping[str, tuple[str, System]]
"""The systems that make the lists and the configs of these, by kind."""


def find_searchers(dense: str) -> Searchers:
    """Return BM25, and the dense system if one is named; an error comes before anything is read."""
    searchers = {"bm25": (candidate_configs()["bm25"], with_depth(System.parse(LEXICAL), LIST_DEPTH))}
    if dense:
        system = System.parse(dense)
        searchers["dense"] = dense_config(system), with_depth(system, LIST_DEPTH)
    return searchers


def list_facts(searchers: Searchers) -> dict[str, dict[str, Any]]:
    """Return all parameters of the lists, for the manifest."""
    facts: dict[str, dict[str, Any]] = {
        kind: {"config": config, "system": system.spec, "depth": LIST_DEPTH, "key": system.key()}
        for kind, (config, system) in searchers.items()
    }
    facts["hybrid"] = {
        "config": candidate_configs()["hybrid"],
        "of": [config for config, _ in searchers.values()],
        "fusion": "reciprocal rank",
        "k": int(HYBRID_K),
        "depth": HYBRID_DEPTH,
        "safeguard": "a list without a relevant document gets one more, its best ranked or else its first",
    }
    return facts


def make_lists(dataset: Dataset, searchers: Searchers, context: Context) -> list[Lists]:
    """Make all lists of a nano task."""
    runs = {kind: system.run(dataset.collection, context) for kind, (_, system) in searchers.items()}
    documents = {kind: {query: ranking.documents for query, ranking in run} for kind, run in runs.items()}
    lists = [Lists(kind, searchers[kind][0], documents[kind]) for kind in runs]
    return [*lists, hybrid(list(runs.values()), dataset)]


def hybrid(runs: Sequence[Run], dataset: Dataset) -> Lists:
    """Fuse the runs, 100 documents per list; a list without a relevant one gets one more at its end."""
    fused = RRF(*[LEXICAL] * len(runs), k=HYBRID_K, depth=LIST_DEPTH * len(runs)).merge(runs)
    lists: dict[str, list[str]] = {}
    safeguards: dict[str, str] = {}
    judged = positive(dataset.gold.qrels)
    for query, ranking in fused:
        relevant = judged[query]
        lists[query] = list(ranking.documents[:HYBRID_DEPTH])
        if not any(document in relevant for document in lists[query]):
            below = (document for document in ranking.documents[HYBRID_DEPTH:] if document in relevant)
            safeguards[query] = next(below, next(iter(relevant)))
            lists[query].append(safeguards[query])
    return Lists("hybrid", candidate_configs()["hybrid"], lists, safeguards)
