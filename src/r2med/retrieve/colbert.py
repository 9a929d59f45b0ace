"""Late interaction as a retriever: exact MaxSim over the token vectors of all documents, mapped from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.encode.batching import encode_tokens, to_encode
from r2med.encode.encoder import Role
from r2med.encode.late_cards import source_is_late
from r2med.encode.late_interaction import LateInteraction
from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.vector_search import VectorHits
from r2med.errors import SpecError
from r2med.lexical.ranking import id_order
from r2med.models.source import folder_is
from r2med.pipeline.joins import query_copies
from r2med.pipeline.registry import bind, named
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Reranker, Retriever
from r2med.retrieve.documents import run_of_hits, search_queries, searchable, with_text

_RERANKER = "r2med.rerank.colbert:ColBERTReranker"


@dataclass(frozen=True)
class ColBERT(LateInteraction, Retriever):
    """Search by late interaction; after another retriever, reranking of its lists.

    >>> str(ColBERT("colbertv2", store="int8"))
    'colbert(colbertv2, store=int8)'
    """

    drop_self: bool | None = None
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    join: str = ""
    """How generated texts join the query: replace, concat, "repeat(n)"; empty for the published way of words."""

    vectors = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join:
            query_copies(self.join)

    def as_reranker(self) -> Reranker:
        """Build the reranker of the same model, for a place after the retriever."""
        kind = named(_RERANKER)
        names = {entry.name for entry in fields(kind)}
        given: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for entry in fields(self):
            if entry.name not in names and given.pop(entry.name) != entry.default:
                raise SpecError(f"{self}: {entry.name} is for searching; after a retriever, colbert reranks")
        reranker: Reranker = kind(**given)
        return reranker

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the results."""
        return {**super().describe(), "drop_self": self.self_rule, "join": self.join or "as published"}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Count the texts that are still to be encoded."""
        documents = to_encode(self.encoder, with_text(collection.documents), Role.DOCUMENT, self.store)
        return {
            "documents to encode": documents,
            "queries to encode": to_encode(self.encoder, search_queries(collection, self.join), Role.QUERY),
        }

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's best documents."""
        encoder, collection = self.encoder, searchable(collection, context)
        self.compare_card(context)
        with context.timed("index"):
            documents = encode_tokens(encoder, collection.documents, Role.DOCUMENT, context, self.store)
            exact = MaxSimIndex(documents, context.executor.memory // 4, unit=self.card.normalize)
        queries = encode_tokens(encoder, search_queries(collection, self.join), Role.QUERY, context)
        context.notes.facts |= {
            "similarity": self.card.similarity,
            "index": self.store,
            "index_bytes": documents.nbytes,
        }
        ties = id_order(collection.documents.ids)
        copies = self.drop_copies(collection, context)
        depth = self.depth + bool(copies)
        vectors = [queries.of(place) for place in range(len(queries))]
        hits = exact.search(vectors, depth, ties)
        if self.card.similarity == "meanmaxsim":
            hits = VectorHits(hits.places, (hits.scores / queries.count[:, None]).astype(np.float32))
        run = run_of_hits(collection, hits)
        return run.without_self(copies).cut(self.depth) if copies else run


def find_late(call: Call) -> Retriever | None:
    """Return the stage of a call whose name is the folder of a late-interaction model, or None."""
    if not folder_is(call.name, source_is_late):
        return None
    kind: type[Retriever] = named("r2med.retrieve.colbert:ColBERT")
    return bind(kind, Call("colbert", (call.name, *call.args), call.options))
