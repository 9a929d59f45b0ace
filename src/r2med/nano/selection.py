"""Selection of the queries, documents and judgements of a source for its nano set.

No text comes twice: of relevant documents with the same text the first stays and takes over the others' judgements, so
no query loses one. Texts that differ in surrounding blanks only are the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.run import Run
from r2med.errors import DataError
from r2med.formatting import shorten
from r2med.nano.recipe import Recipe, with_depth
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System


@dataclass(frozen=True)
class NanoSelection:
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
    position = collection.documents.position
    relevant = {
        query: sorted(position[document] for document, grade in gold.qrels[query].items() if grade > 0)
        for query in collection.queries.ids
    }
    kept = {place: picker.take(place) for place in sorted({place for places in relevant.values() for place in places})}
    judged: dict[str, list[int]] = {}
    for query, places in relevant.items():
        twins = {twin for place in places if (twin := kept[place]) is not None}
        if not twins:
            what = f"no relevant document of the query {shorten(query)!r} has a text"
            raise DataError(f"{collection.task.name}: {what}; mend the source or remove the query")
        judged[query] = sorted(twins)
    return judged


Order = tuple[str, Iterable[int]]
"""Places of documents, first come first taken, and what the order is called."""
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


def by_rank(runs: Iterable[Run]) -> list[str]:
    """Merge the documents of several runs, each once: all first ranks, by query and system, then all second.

    >>> from r2med.data.run import Run
    >>> one = Run.from_lists({"q1": (["a", "b"], [2, 1]), "q2": (["c"], [1])})
    >>> by_rank([one, Run.from_lists({"q1": (["b", "d"], [2, 1]), "q2": (["e"], [1])})])
    ['a', 'b', 'c', 'e', 'd']
    """
    every = list(runs)
    lists = [run[query].documents for query in every[0].queries for run in every]
    ordered = (document for places in zip_longest(*lists) for document in places if document is not None)
    return list(dict.fromkeys(ordered))


_POLICIES: Mapping[str, Callable[[Collection, Recipe, int, Context], Iterator[Order]]] = {
    "source-order": lambda collection, *_: iter([("source-order", range(len(collection.documents)))]),
    "hard": _hard,
    "random": _random,
}
