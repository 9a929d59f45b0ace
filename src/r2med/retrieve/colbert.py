"""Late interaction as a retriever: MaxSim over the token vectors of all documents, mapped from disk.

It is exact, unless an index (`index=plaid`) chooses which documents are looked at; what that loses is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.data.run import Run, id_order
from r2med.encode.encoder import Role, Vectors
from r2med.encode.late_interaction import LateInteraction
from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.plaid import EXTRA, PlaidIndex, PlaidSettings, plaid_call
from r2med.encode.token_encoding import encode_tokens, tokens_to_encode
from r2med.encode.vector_search import VectorHits
from r2med.errors import SpecError, counted
from r2med.pipeline.joins import query_copies
from r2med.pipeline.registry import named
from r2med.pipeline.stage import Context, Requirements, Reranker, Retriever
from r2med.retrieve.dense import run_of_hits
from r2med.retrieve.query_text import search_texts
from r2med.retrieve.recall_lost import measured_loss
from r2med.retrieve.searchable_documents import searchable, with_text
from r2med.storage.cache import cache_key

if TYPE_CHECKING:
    from r2med.data.dataset import Collection

_RERANKER = "r2med.rerank.colbert_reranker:ColBERTReranker"


@dataclass(frozen=True)
class ColBERT(LateInteraction, Retriever):
    """Search by late interaction; after another retriever, rerank its lists by it.

    >>> str(ColBERT("colbertv2", store="int8"))
    'colbert(colbertv2, store=int8)'
    """

    drop_self: bool | None = None
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    join: str = ""
    """How generated texts join the query: replace, concat, "repeat(n)"; empty for the published way of words."""
    index: object = field(default="", kw_only=True)
    """plaid, perhaps with options, for approximate search; empty for reading all vectors."""
    rescore: int = field(default=0, kw_only=True)
    """How many candidates of an index for each place of the list are ranked exactly; 0 for two."""

    vectors = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join:
            query_copies(self.join)
        if self.rescore < 0:
            raise SpecError(f"{self.model}: rescore must not be negative")
        if self.rescore and not self.index:
            raise SpecError(f"{self.model}: rescore={self.rescore} needs index=plaid; without it, search is exact")
        if self.index:
            call = plaid_call(self.index)
            object.__setattr__(self, "index", call if call.args or call.options else call.name)
            self._plaid()

    def _plaid(self) -> PlaidSettings:
        return PlaidSettings.read(self.index, self.depth)

    def as_reranker(self) -> Reranker:
        """The same model at a place after the retriever."""
        kind = named(_RERANKER)
        known = {entry.name for entry in fields(kind)}
        given: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for entry in fields(self):
            if entry.name not in known and given.pop(entry.name) != entry.default:
                raise SpecError(f"{self}: {entry.name} is for searching; after a retriever, colbert reranks")
        found: Reranker = kind(**given)
        return found

    @property
    def requirements(self) -> Requirements:
        """What the model needs, or the index, which brings torch with it."""
        needed = super().requirements
        return replace(needed, extra=EXTRA) if self.index else needed

    def fingerprint(self) -> Mapping[str, object]:
        """What the vectors depend on, and the index."""
        found = dict(super().fingerprint())
        return found | ({"index": self._plaid().fingerprint()} if self.index else {})

    def describe(self) -> Mapping[str, object]:
        """Every setting that decides the figure."""
        index = {"index": str(self.index), "rescore": self.rescore} if self.index else {}
        return {**super().describe(), "drop_self": self.self_rule, "join": self.join or "as published", **index}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """How many texts are still to be encoded."""
        documents = tokens_to_encode(self.encoder, with_text(collection.documents), Role.DOCUMENT, self.store)
        return {
            "documents to encode": documents,
            "queries to encode": tokens_to_encode(self.encoder, self._queries(collection), Role.QUERY),
        }

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Each query's best documents."""
        encoder, collection = self.encoder, searchable(collection, context)
        self.compare_card(context)
        with context.timed("index"):
            documents = encode_tokens(encoder, collection.documents, Role.DOCUMENT, context, self.store)
            exact = MaxSimIndex(documents, context.engine.memory // 4, unit=self.card.normalize)
            plaid = self._plaid_index(exact, collection, context) if self.index else None
        queries = encode_tokens(encoder, self._queries(collection), Role.QUERY, context)
        context.notes.facts |= {
            "similarity": self.card.similarity,
            "index": str(self.index) or self.store,
            "index_bytes": (plaid or exact).nbytes,
        }
        ties = id_order(collection.documents.ids)
        copies = self.drop_copies(collection, context)
        depth = self.depth + bool(copies)
        vectors = [queries.of(place) for place in range(len(queries))]
        if plaid is None:
            hits = exact.search(vectors, depth, ties)
        else:
            hits = self._approximate(plaid, vectors, depth, ties, context)
        if self.card.similarity == "meanmaxsim":
            hits = VectorHits(hits.places, (hits.scores / queries.count[:, None]).astype(np.float32))
        run = run_of_hits(collection, hits)
        return run.without_self(copies).cut(self.depth) if copies else run

    def _plaid_index(self, exact: MaxSimIndex, collection: Collection, context: Context) -> PlaidIndex:
        """The index of the documents; it is kept."""
        settings = self._plaid()
        name = cache_key(
            documents=collection.documents.fingerprint,
            settings=sorted(self.encoder.settings(Role.DOCUMENT).items()),
            store=self.store,
            index=settings.index_key(),
        )
        folder = context.cache.sound_entry("ann", name, lambda folder: settings.write(exact.documents, folder))
        return settings.open(exact, folder, self.rescore)

    def _approximate(
        self, plaid: PlaidIndex, queries: list[Vectors], depth: int, ties: NDArray[np.int64], context: Context
    ) -> VectorHits:
        """What the index finds, and a note of what it did not."""
        hits, exactly = plaid.search(queries, depth, ties)
        if exactly:
            context.warn(
                f"plaid found fewer than {depth} documents for {exactly} of {counted(len(queries), 'query', 'queries')}"
                "; these were searched exactly; see n_ivf_probe"
            )
        with context.timed("check"):
            lost = measured_loss(
                hits.places,
                len(ties),
                hits.places.shape[1],
                lambda chosen, depth: plaid.exact.search([queries[at] for at in chosen.tolist()], depth, ties).places,
            )
        context.notes.facts |= {
            "plaid": plaid.settings.recorded(),
            "searched_exactly": exactly,
            "recall_lost": lost,
        }
        return hits

    def _queries(self, collection: Collection) -> Texts:
        return Texts(collection.queries.ids, search_texts(collection, self.join))
