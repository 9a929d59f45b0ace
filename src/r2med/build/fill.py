"""What comes after the relevant documents of a nano set: the policies, each an order of the source's documents."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from r2med.build.recipe import with_depth
from r2med.system import System

if TYPE_CHECKING:
    from r2med.build.recipe import Recipe
    from r2med.data.model import Collection
    from r2med.ranking import Run
    from r2med.stage import Context

Order = tuple[str, Iterable[int]]
"""Places of documents, first come first taken, and what the order is called."""
_FIRST_DEPTH = 100


@dataclass(frozen=True)
class Wanted:
    """What is to be filled: the source with the chosen queries, and how many documents are missing."""

    collection: Collection
    recipe: Recipe
    missing: int


def fill_orders(wanted: Wanted, context: Context) -> Iterator[Order]:
    """The orders to fill by, one after another until there are enough documents."""
    return _POLICIES[wanted.recipe.policy](wanted, context)


def _source_order(wanted: Wanted, _: Context) -> Iterator[Order]:
    yield "source-order", range(len(wanted.collection.documents))


def _random(wanted: Wanted, _: Context) -> Iterator[Order]:
    """By a hash of seed and id: the same whatever the source's order, and a larger set holds the smaller one."""
    ids = wanted.collection.documents.ids

    def draw(place: int) -> bytes:
        return hashlib.blake2b(f"{wanted.recipe.seed}\t{ids[place]}".encode(), digest_size=16).digest()

    yield "random", sorted(range(len(ids)), key=draw)


def _hard(wanted: Wanted, context: Context) -> Iterator[Order]:
    """The systems' best documents by rank, deeper and deeper; what they never list follows in source order.

    All relevant documents are taken before, so whatever is new here is not relevant.
    """
    collection = wanted.collection
    systems = [System.parse(text) for text in wanted.recipe.hard_systems]
    everything = len(collection.documents)
    depth = min(everything, max(_FIRST_DEPTH, 4 * math.ceil(wanted.missing / max(1, len(collection.queries)))))
    while wanted.missing:
        runs = [with_depth(system, depth).run(collection, context) for system in systems]
        yield "hard", [collection.documents.position[document] for document in by_rank(runs)]
        longest = max((len(ranking.documents) for run in runs for _, ranking in run), default=0)
        if depth >= everything or longest < depth:
            break
        depth = min(everything, 4 * depth)
    yield from _source_order(wanted, context)


def by_rank(runs: Iterable[Run]) -> list[str]:
    """The documents of several runs, each once: all first places, query by query and system by system, then all second.

    >>> from r2med.ranking import Run
    >>> one = Run.from_lists({"q1": (["a", "b"], [2, 1]), "q2": (["c"], [1])})
    >>> by_rank([one, Run.from_lists({"q1": (["b", "d"], [2, 1]), "q2": (["e"], [1])})])
    ['a', 'b', 'c', 'e', 'd']
    """
    every = list(runs)
    lists = [run[query].documents for query in every[0].queries for run in every]
    ordered = (document for places in zip_longest(*lists) for document in places if document is not None)
    return list(dict.fromkeys(ordered))


_POLICIES: Mapping[str, Callable[[Wanted, Context], Iterator[Order]]] = {
    "source-order": _source_order,
    "hard": _hard,
    "random": _random,
}
