"""The recipe of a nano set: its parameters, and the queries, documents, judgements and lists that it takes of a source.

No text comes twice: of relevant documents with the same text the first stays and takes over the others' judgements, so
no query loses one. Texts that differ in surrounding blanks only are the same.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task, candidate_configs, registry
from r2med.errors import DataError, R2medError, SpecError, suggest
from r2med.formatting import shorten
from r2med.measure.score import positive
from r2med.pipeline.registry import build_stage
from r2med.pipeline.stage import Context, Retriever, Stage
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
    hard_systems: tuple[str, ...] = (LEXICAL,)  # the systems whose best non-relevant documents `hard` takes
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

    def deepened(stage: Stage) -> Stage:
        options = tuple({**dict(stage.spec.options), "depth": depth}.items())
        return build_stage(replace(stage.spec, options=options)) if isinstance(stage, Retriever) else stage

    return System(tuple(map(deepened, system.stages)))


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
    name = "".join(word[0].upper() + word[1:] for word in re.findall(r"[^\W_]+", task.base)) or "Task"
    if task.group == "sample":
        return f"NanoSample{name}"
    published = registry().get(f"nano/{task.base}")
    return published.split if published is not None else f"Nano{name}"


@dataclass(frozen=True)
class Lists:
    """The lists of one kind, by query."""

    kind: str
    config: str
    documents: Mapping[str, Sequence[str]]
    safeguards: Mapping[str, str] = field(default_factory=dict)
    """Queries whose list ends in a relevant document that was put there, and that document."""


Searchers = Mapping[str, tuple[str, System]]  # the systems that make the lists and the configs of these, by kind


def find_searchers(dense: str) -> Searchers:
    """Return BM25, and the dense system if one is named; an error comes before anything is read."""
    searchers = {"bm25": (candidate_configs()["bm25"], with_depth(System.parse(LEXICAL), LIST_DEPTH))}
    if dense:
        system = System.parse(dense)
        searchers["dense"] = dense_config(system), with_depth(system, LIST_DEPTH)
    return searchers


def list_facts(searchers: Searchers) -> dict[str, dict[str, Any]]:
    """Return all parameters of the lists, for the manifest."""
    hybrid = {
        "config": candidate_configs()["hybrid"],
        "of": [config for config, _ in searchers.values()],
        "fusion": "reciprocal rank",
        "k": int(HYBRID_K),
        "depth": HYBRID_DEPTH,
        "safeguard": "a list without a relevant document gets one more, its best ranked or else its first",
    }
    searched = {
        kind: {"config": config, "system": system.spec, "depth": LIST_DEPTH, "key": system.key()}
        for kind, (config, system) in searchers.items()
    }
    return searched | {"hybrid": hybrid}


def make_lists(dataset: Dataset, searchers: Searchers, context: Context) -> list[Lists]:
    """Make all lists of a nano task."""
    runs = [system.run(dataset.collection, context) for _, system in searchers.values()]
    lists = [
        Lists(kind, config, {query: ranking.documents for query, ranking in run})
        for (kind, (config, _)), run in zip(searchers.items(), runs, strict=True)
    ]
    return [*lists, hybrid(runs, dataset)]


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


class NanoSelection(NamedTuple):
    """The content of a nano task."""

    dataset: Dataset
    counts: Mapping[str, int]


@dataclass
class _Picker:
    """Documents taken so far, by their places in the source."""

    documents: Texts
    places: list[int] = field(default_factory=list)
    by_text: dict[str, int] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)

    def take(self, place: int) -> int | None:
        """Take a document and return its place, or that of an earlier one with its text; None if it has no text."""
        text = self.documents.texts[place].strip()
        if not text:
            self.empty.add(place)
            return None
        kept = self.by_text.get(text)
        if kept is None:
            self.by_text[text] = place
            self.places.append(place)
        elif kept != place:
            self.repeated.add(place)
        return self.by_text[text]


def choose(source: Dataset, recipe: Recipe, context: Context) -> NanoSelection:
    """Choose the nano task of a source: its first queries, all documents relevant to them, and others by the policy."""
    collection = source.collection.select(source.collection.queries.ids[: recipe.queries])
    picker = _Picker(collection.documents)
    judged = _positives(collection, source.gold, picker)
    relevant = len(picker.places)
    if relevant > recipe.documents:
        raise DataError(f"{source.name}: {relevant:,} relevant documents do not fit into {recipe.documents:,}")
    filled: dict[str, int] = {}
    for label, order in _POLICIES[recipe.policy](collection, recipe, recipe.documents - relevant, context):
        before = len(picker.places)
        for place in order:
            if len(picker.places) >= recipe.documents:
                break
            picker.take(place)
        filled[label] = filled.get(label, 0) + len(picker.places) - before
        if len(picker.places) >= recipe.documents:
            break
    if len(picker.places) < recipe.documents:
        usable = f"{len(picker.places):,} documents with a text of their own"
        raise DataError(f"{source.name}: only {usable}, {recipe.documents:,} are asked for; ask for fewer")
    ids, texts = collection.documents.ids, collection.documents.texts
    documents = Texts([ids[place] for place in picker.places], [texts[place] for place in picker.places])
    qrels = {query: {ids[place]: 1 for place in places} for query, places in judged.items()}
    folded = sum(sum(grade > 0 for grade in source.gold.qrels[query].values()) for query in judged)
    return NanoSelection(
        Dataset(replace(collection, documents=documents, origin=None), Gold(qrels), revision=source.revision),
        {
            "source_queries": len(source.collection.queries),
            "source_documents": len(source.collection.documents),
            "queries": len(collection.queries),
            "documents": len(picker.places),
            "positives": sum(map(len, judged.values())),
            "relevant_documents": relevant,
            "positives_folded_or_empty": folded - sum(map(len, judged.values())),
            "skipped_repeated_texts": len(picker.repeated),
            "skipped_empty_texts": len(picker.empty),
            **{f"filled_by_{label.replace('-', '_')}": count for label, count in filled.items()},
        },
    )


def _positives(collection: Collection, gold: Gold, picker: _Picker) -> dict[str, list[int]]:
    """Take all relevant documents in the order of the source, and return their places by query."""
    position, relevant = collection.documents.position, positive(gold.qrels)
    places_of = {query: [position[name] for name in relevant.get(query, ())] for query in collection.queries.ids}
    kept = {place: picker.take(place) for place in sorted({*chain.from_iterable(places_of.values())})}
    judged: dict[str, list[int]] = {}
    for query, places in places_of.items():
        twins = {twin for place in places if (twin := kept[place]) is not None}
        if not twins:
            what = f"no relevant document of the query {shorten(query)!r} has a text"
            raise DataError(f"{collection.task.name}: {what}; mend the source or remove the query")
        judged[query] = sorted(twins)
    return judged


Order = tuple[str, Iterable[int]]  # places of documents, first come first taken, and what the order is called
_FIRST_DEPTH = 100


def _random(collection: Collection, recipe: Recipe, *_: object) -> Iterator[Order]:
    """Yield an order by a hash of seed and id: independent of the source's order, so larger sets hold smaller ones."""
    ids = collection.documents.ids
    draws = [hashlib.blake2b(f"{recipe.seed}\t{name}".encode(), digest_size=16).digest() for name in ids]
    yield "random", sorted(range(len(ids)), key=draws.__getitem__)


def _hard(collection: Collection, recipe: Recipe, missing: int, context: Context) -> Iterator[Order]:
    """Yield the systems' best documents by rank, deeper and deeper; documents never listed follow in source order."""
    systems = [System.parse(text) for text in recipe.hard_systems]
    everything = len(collection.documents)
    depth = min(everything, max(_FIRST_DEPTH, 4 * math.ceil(missing / max(1, len(collection.queries)))))
    while missing:
        runs = [with_depth(system, depth).run(collection, context) for system in systems]
        yield "hard", [collection.documents.position[document] for document in by_rank(runs)]
        longest = max((len(ranking.documents) for run in runs for _, ranking in run), default=0)
        if depth >= everything or longest < depth:
            break
        depth = min(everything, 4 * depth)
    yield "source-order", range(everything)


def by_rank(runs: Sequence[Run]) -> list[str]:
    """Merge the documents of several runs, each once: all first ranks, by query and system, then all second.

    >>> from r2med.data.run import Run
    >>> one = Run.from_lists({"q1": (["a", "b"], [2, 1]), "q2": (["c"], [1])})
    >>> by_rank([one, Run.from_lists({"q1": (["b", "d"], [2, 1]), "q2": (["e"], [1])})])
    ['a', 'b', 'c', 'e', 'd']
    """
    lists = [run[query].documents for query in runs[0].queries for run in runs]
    ordered = (document for places in zip_longest(*lists) for document in places if document is not None)
    return list(dict.fromkeys(ordered))


_POLICIES: Mapping[str, Callable[[Collection, Recipe, int, Context], Iterator[Order]]] = {
    "source-order": lambda collection, *_: iter([("source-order", range(len(collection.documents)))]),
    "hard": _hard,
    "random": _random,
}
