"""The candidate lists that a nano set carries, as a first stage: `candidates(hybrid) >> some-reranker`.

Lists are stored in order and without scores. A document's score is how many places it stands above the end of its
list, so the last of a list of 500 has 1.0 and the first 500.0: a rank in other clothes, good for sorting and for
reciprocal rank fusion, and not to be read as a similarity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.data.nano_candidates import candidate_files, candidates
from r2med.data.tasks import candidate_configs
from r2med.errors import SpecError, suggest
from r2med.pipeline.registry import spec_of
from r2med.pipeline.stage import Context, Retriever
from r2med.storage.cache import cache_key
from r2med.storage.file_digests import confirm_unchanged, file_digest

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.run import Run
    from r2med.pipeline.spec import Call


@dataclass(frozen=True)
class StoredLists(Retriever):
    """Stored lists instead of a search.

    >>> str(StoredLists("hybrid")), str(StoredLists("bm25", depth=100))
    ('candidates(hybrid)', 'candidates(bm25, depth=100)')
    """

    lists: str
    """`bm25`, `dense` or `hybrid`."""
    depth: int = 500
    """How many documents of a list are kept. With 100, a hybrid list is without its safeguard at rank 101."""

    searches = False

    def __post_init__(self) -> None:
        if self.lists not in candidate_configs():
            raise SpecError(f"candidates: unknown lists {self.lists!r}{suggest(self.lists, candidate_configs())}")
        if self.depth < 1:
            raise SpecError(f"candidates: depth must be 1 or more, not {self.depth}")

    @property
    def spec(self) -> Call:
        """The stage in the spec language."""
        return spec_of(self, "candidates")

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        return {"lists": self.lists, "depth": self.depth, "scores": "places above the list's end"}

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """What the output depends on that the data brings along: the lists' content, or the commit they come from."""
        if collection.task.hub and collection.origin is not None:
            return {"commit": collection.origin.name}
        digests = [file_digest(file) for file in candidate_files(collection, self.lists)]
        return {"lists": digests[0] if len(digests) == 1 else cache_key(files=digests)[:32]}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Each query's stored list."""
        if any(collection.generations):
            context.warn(f"{self}: lists are stored, so what was generated for the queries plays no part in them")
        run = candidates(collection, self.lists)
        if not collection.task.hub:
            for file in candidate_files(collection, self.lists):
                confirm_unchanged(file)
        context.notes.facts |= {"lists": self.lists, **self.inputs(collection)}
        return run.cut(self.depth)
