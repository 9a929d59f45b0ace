"""Search of one system with one question: the best documents of a task, with their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from r2med.data.dataset import Dataset
from r2med.errors import R2medError
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache

_BEGINNING = 70  # characters of a text in a printed list


@dataclass(frozen=True)
class Hit:
    """Document of a ranked list."""

    rank: int
    document: str
    """The id of the document."""
    score: float
    text: str

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        beginning = text if len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…"
        return f"{self.rank:3}  {self.score:8.3f}  {self.document}  {beginning}"


@dataclass(frozen=True, repr=False)
class Hits(Sequence[Hit]):
    """Hits of a search, best first: a sequence of `Hit`, which prints as a list."""

    system: str
    query: str
    hits: tuple[Hit, ...]

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def __repr__(self) -> str:
        best = f", the first {self.hits[0].document!r}" if self.hits else ""
        return f"Hits({self.system!r}, {len(self.hits)} documents{best})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits)) or "nothing was found"


def find_documents(system: System, dataset: Dataset, query: str, k: int) -> Hits:
    """Return the `k` best documents for a query."""
    if not query.strip():
        raise R2medError("the query is empty")
    if not isinstance(k, int) or k < 1:
        raise R2medError(f"k must be a whole number from 1 on, not {k!r}")
    system.check()
    ranking = system.search(dataset.collection, query, Context(Cache.default(), quiet()))
    documents = dataset.collection.documents
    rows = zip(ranking.documents[:k], ranking.scores[:k].tolist(), strict=True)
    hits = tuple(Hit(rank, name, score, documents.text(name)) for rank, (name, score) in enumerate(rows, 1))
    return Hits(system.spec, query, hits)
