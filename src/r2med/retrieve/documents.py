"""Searchable documents, ranked lists from hits, and the share of exact lists that an approximate search loses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.data.run import Run
from r2med.encode.vector_search import VectorHits
from r2med.errors import R2medError
from r2med.formatting import counted, shorten

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.pipeline.stage import Context


def run_of_hits(collection: Collection, hits: VectorHits) -> Run:
    """Convert hits to ranked lists; they are already in the order of the ranking rule."""
    ids = collection.documents.ids
    rows, width = hits.places.shape
    documents = [ids[place] for place in hits.places.ravel().tolist()]
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    return Run(list(collection.queries.ids), offsets, documents, hits.scores.ravel())


_CHECKED: Final = 200  # for how many queries, at the most, lists are compared with the exact ones
_LEAST: Final = 10
_SHARE: Final = 10
_Places = NDArray[np.intp]
_ExactLists = Callable[[_Places, int], Iterable[_Places]]
"""Makes the exact lists of the queries at some places, down to some depth."""


def measured_loss(places: Sequence[_Places] | _Places, documents: int, depth: int, exact: _ExactLists) -> float:
    """Return the share of the exact lists that was missed, among queries sampled evenly.

    >>> found = np.array([[1, 2, 3], [3, 4, 5]])
    >>> measured_loss(found, 100, 2, lambda chosen, depth: np.array([[2, 1, 0], [3, 5, 4]])[chosen, :depth])
    0.25
    """
    depth = _compared_depth(depth, documents)
    sample = np.unique(np.linspace(0, len(places) - 1, min(len(places), _CHECKED)).astype(np.intp))
    return round(recall_lost([places[place][:depth] for place in sample], exact(sample, depth)), 6)


def _compared_depth(depth: int, documents: int) -> int:
    """Return the depth of the comparison: at most a tenth of the documents, unless these are few.

    A list of most of a collection's documents shares most of them with any other list.

    >>> _compared_depth(100, 1_000_000), _compared_depth(100, 300), _compared_depth(100, 20)
    (100, 30, 10)
    """
    return min(depth, max(_LEAST, documents // _SHARE))


def recall_lost(places: Iterable[_Places], exact: Iterable[_Places]) -> float:
    """Return the share of exact lists that is missing from the given lists.

    >>> recall_lost(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [3, 5]]))
    0.25
    """
    total = kept = 0
    for one, other in zip(places, exact, strict=True):
        total += len(other)
        kept += len(np.intersect1d(one, other))
    return 1 - kept / total if total else 0.0


def searchable(collection: Collection, context: Context) -> Collection:
    """Remove the documents without text, which have no vector, from the collection, and warn about their number."""
    documents = with_text(collection.documents)
    empty = len(collection.documents) - len(documents)
    if not empty:
        return collection
    if not len(documents):
        raise R2medError(f"{collection.task.name}: no document has any text")
    first = next(name for name in collection.documents.ids if name not in documents.position)
    context.warn(f"{counted(empty, 'document')} without text cannot be found by vectors, the first {shorten(first)!r}")
    return replace(collection, documents=documents)


def with_text(documents: Texts) -> Texts:
    """Return the documents that are not empty or blank."""
    empty = [place for place, text in enumerate(documents.texts) if not text or text.isspace()]
    return documents.without(empty) if empty else documents
