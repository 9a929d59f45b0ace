"""Searchable documents, ranked lists from hits, and the share of exact lists that an approximate search loses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.encode.encoder import Role
from r2med.encode.vector_search import VectorHits
from r2med.errors import R2medError
from r2med.formatting import counted, shorten
from r2med.models.source import existing_folder, looks_like_path
from r2med.pipeline.joins import search_texts
from r2med.pipeline.stage import Context, Requirements, Retriever


def override() -> Any:
    """Declare a setting of the encoder: None leaves it to the model's card or files."""
    return field(default=None, kw_only=True, metadata={"encoder": True})


@dataclass(frozen=True)
class EncoderRetriever(Retriever):
    """Base of the retrievers that compare vectors of texts."""

    model: str
    depth: int = field(default=100, kw_only=True)  # how many documents are kept
    drop_self: bool | None = field(default=None, kw_only=True)
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""

    vectors = True

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the options of the encoder that override its card."""
        names = [entry.name for entry in fields(self) if entry.metadata.get("encoder")]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @abstractmethod
    def make_encoder(self, task: Task) -> Any:
        """Build the encoder for a task's prompts."""

    def encoder(self, task: Task | None = None) -> Any:
        """Return the encoder with this stage's settings, for a task's prompts or those without a task; not loaded."""
        if task not in self._encoders:
            self._encoders[task] = self.make_encoder(task or Task("", "", "custom"))
        return self._encoders[task]

    @cached_property
    def _encoders(self) -> dict[Task | None, Any]:
        return {}  # so that each reads its files once

    def check_files(self) -> None:
        """Refuse a folder that does not exist."""
        if looks_like_path(self.model):
            existing_folder(self.model)

    @property
    def requirements(self) -> Requirements:
        """Return the requirements of the encoder."""
        needs: Requirements = self.encoder().requirements
        return needs

    def fingerprint(self) -> Mapping[str, object]:
        """Return what the encoder's vectors depend on. A task's own words in a prompt come with the task."""
        encoder = self.encoder()
        return {role.value: [list(pair) for pair in sorted(encoder.settings(role).items())] for role in Role}

    def local_content(self) -> Mapping[str, str]:
        """Return the folder or class of the encoder, with a hash of it."""
        content: Mapping[str, str] = self.encoder().local_content()
        return content


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

    >>> lists = np.array([[1, 2, 3], [3, 4, 5]])
    >>> measured_loss(lists, 100, 2, lambda sample, depth: np.array([[2, 1, 0], [3, 5, 4]])[sample, :depth])
    0.25
    """
    # A list of most of a collection's documents shares most of them with any other list.
    depth = min(depth, max(_LEAST, documents // _SHARE))
    sample = np.unique(np.linspace(0, len(places) - 1, min(len(places), _CHECKED)).astype(np.intp))
    total = kept = 0
    for place, best in zip(sample, exact(sample, depth), strict=True):
        total += len(best)
        kept += len(np.intersect1d(places[place][:depth], best))
    return round(1 - kept / total, 6) if total else 0.0


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


def search_queries(collection: Collection, join: str) -> Texts:
    """Return the texts that are searched with, joined with those generated for the queries."""
    return Texts(list(collection.queries.ids), search_texts(collection, join))


def with_text(documents: Texts) -> Texts:
    """Return the documents that are not empty or blank."""
    empty = [place for place, text in enumerate(documents.texts) if not text or text.isspace()]
    return documents.without(empty) if empty else documents
