"""Which queries, documents and judgements of a source go into its nano set.

All relevant documents of the chosen queries come first, in the order of the source, then others as the policy has it.
No text comes twice: of relevant documents with the same text the first stays and takes over the others' judgements,
so no query loses one. Texts that differ in surrounding blanks only are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from r2med.build.fill import Wanted, fill_orders
from r2med.data.model import Collection, Dataset, Gold, Texts
from r2med.data.rows import shorten
from r2med.errors import DataError

if TYPE_CHECKING:
    from r2med.build.recipe import Recipe
    from r2med.stage import Context


@dataclass(frozen=True)
class Chosen:
    """The content of a nano task."""

    dataset: Dataset
    """Documents, queries and judgements, every grade 1."""
    counts: Mapping[str, int]
    """How the content came about."""


@dataclass
class _Picker:
    """Documents taken so far, by their places in the source."""

    documents: Texts
    places: list[int] = field(default_factory=list)
    by_text: dict[str, int] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    """Places that were passed over because their text is there already."""
    empty: set[int] = field(default_factory=set)
    _taken: set[int] = field(default_factory=set)

    def take(self, place: int) -> int | None:
        """Take a document and return its place, or that of the one with its text; None when it has no text."""
        text = self.documents.texts[place].strip()
        if not text:
            self.empty.add(place)
            return None
        kept = self.by_text.setdefault(text, place)
        if kept != place:
            self.repeated.add(place)
        elif place not in self._taken:
            self.places.append(place)
            self._taken.add(place)
        return kept

    def fill(self, order: Iterable[int], size: int) -> None:
        """Take documents in this order until there are so many."""
        for place in order:
            if len(self.places) >= size:
                return
            self.take(place)


def choose(source: Dataset, recipe: Recipe, context: Context) -> Chosen:
    """The nano task of a source: its first queries, all that is relevant to them, and others by the policy."""
    collection = source.collection.select(source.collection.queries.ids[: recipe.queries])
    picker = _Picker(collection.documents)
    judged = _positives(collection, source.gold, picker)
    relevant = len(picker.places)
    if relevant > recipe.documents:
        raise DataError(f"{source.name}: {relevant:,} relevant documents do not fit into {recipe.documents:,}")
    filled: dict[str, int] = {}
    for label, order in fill_orders(Wanted(collection, recipe, recipe.documents - relevant), context):
        before = len(picker.places)
        picker.fill(order, recipe.documents)
        filled[label] = filled.get(label, 0) + len(picker.places) - before
        if len(picker.places) >= recipe.documents:
            break
    if len(picker.places) < recipe.documents:
        usable = f"{len(picker.places):,} documents with a text of their own"
        raise DataError(f"{source.name}: only {usable}, {recipe.documents:,} are asked for; ask for fewer")
    chosen = _dataset(source, collection, picker, judged)
    folded = sum(sum(grade > 0 for grade in source.gold.qrels[query].values()) for query in judged)
    return Chosen(
        chosen,
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
    """The places of each query's relevant documents, all of which are taken, in the order of the source."""
    position = collection.documents.position
    relevant = {
        query: sorted(position[document] for document, grade in gold.qrels[query].items() if grade > 0)
        for query in collection.queries.ids
    }
    kept = {place: picker.take(place) for place in sorted({place for places in relevant.values() for place in places})}
    judged: dict[str, list[int]] = {}
    for query, places in relevant.items():
        found = {twin for place in places if (twin := kept[place]) is not None}
        if not found:
            raise DataError(
                f"{collection.task.name}: no relevant document of the query {shorten(query)!r} has a text;"
                " mend the source or remove the query"
            )
        judged[query] = sorted(found)
    return judged


def _dataset(source: Dataset, collection: Collection, picker: _Picker, judged: Mapping[str, list[int]]) -> Dataset:
    ids, texts = collection.documents.ids, collection.documents.texts
    documents = Texts([ids[place] for place in picker.places], [texts[place] for place in picker.places])
    qrels = {query: {ids[place]: 1 for place in places} for query, places in judged.items()}
    return Dataset(replace(collection, documents=documents, origin=None), Gold(qrels), revision=source.revision)
