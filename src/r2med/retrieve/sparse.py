"""Learned sparse retrieval: SPLADE and any other SparseEncoder, searched exactly in an inverted index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.encode.batching import encode_sparse, to_encode
from r2med.encode.cards import SPARSE_POOLINGS, are_sparse, cards, read_modules
from r2med.encode.encoder import Role
from r2med.encode.resolve import check_options, sparse_encoder_for, sparse_names
from r2med.encode.sparse import SparseTextEncoder
from r2med.encode.vectors import SparseStore, StoredSparse
from r2med.errors import SpecError, suggest
from r2med.formatting import counted
from r2med.lexical.builder import write_vector_index
from r2med.lexical.index import FORMAT, InvertedIndex
from r2med.lexical.scorers import ImpactScorer, pruned
from r2med.lexical.search import Weights
from r2med.lexical.vectors import SparseVectors
from r2med.models.source import folder_is, looks_like_path, spelled_folder
from r2med.pipeline.joins import query_copies
from r2med.pipeline.registry import bind, spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context
from r2med.retrieve.bm25 import hidden_places, named
from r2med.retrieve.documents import EncoderRetriever, measured_loss, override, search_queries, searchable, with_text
from r2med.settings import thread_count
from r2med.store.columns import text_hashes
from r2med.store.hashes import cache_key


@dataclass(frozen=True)
class MatchedTerm:
    """A term that a query and a document share, and its contribution to the score."""

    term: str
    share: float
    """The product of the two weights."""
    expanded: str
    """Where the model added it: `query`, `document`, `both`, or empty for a term that stands in both texts."""


@dataclass(frozen=True)
class Splade(EncoderRetriever):
    """A retriever that compares sparse vectors, a dimension for each term of the model's vocabulary.

    >>> str(Splade("splade-v3")), str(Splade("hf:org/name", document_terms=64))
    ('splade-v3', 'splade(hf:org/name, document_terms=64)')
    """

    model: str  # a card's name, `hf:ORG/NAME`, or a folder
    document_terms: int = field(default=0, kw_only=True)
    """How many terms of a document are searched, those of the largest weights; 0 for all."""
    query_terms: int = field(default=0, kw_only=True)
    """How many terms of a query are searched with, those of the largest weights; 0 for all."""
    join: str = field(default="", kw_only=True)
    """How generated texts join the query: replace, concat, "repeat(n)"; empty for the published way of word search."""
    pooling: str | None = override()
    max_length: int | None = override()
    max_query: int | None = override()
    max_document: int | None = override()
    query_prompt: str | None = override()
    document_prompt: str | None = override()
    similarity: str | None = override()
    dtype: str | None = override()
    revision: str | None = override()
    adapter: str | None = override()
    remote_code: bool | None = override()
    device: object = override()

    def __post_init__(self) -> None:
        if self.model not in cards():
            object.__setattr__(self, "model", spelled_folder(self.model))
        if self.depth < 1:
            raise SpecError(f"{self.model}: depth must be 1 or more, not {self.depth}")
        if min(self.document_terms, self.query_terms) < 0:
            raise SpecError(f"{self.model}: document_terms and query_terms must not be negative")
        if self.join:
            query_copies(self.join)
        check_options(self.model, self.settings)
        if self.pooling is not None and self.pooling not in SPARSE_POOLINGS:
            raise SpecError(f"{self.model}: pooling must be one of {', '.join(SPARSE_POOLINGS)}, not {self.pooling!r}")
        named = self.model.startswith("hf:") or looks_like_path(self.model) or Path(self.model).is_dir()
        if self.model not in sparse_names() and not named:
            hint = suggest(self.model, sparse_names()) or f"; it takes {', '.join(sparse_names())}"
            raise SpecError(f"splade: unknown model {self.model!r}{hint}, hf:ORG/NAME or ./FOLDER")

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language: a card by its own name."""
        whole = spec_of(self, "splade")
        return Call(self.model, (), whole.options) if self.model in cards() else whole

    def make_encoder(self, task: Task) -> SparseTextEncoder:
        """Build the encoder for a task's prompts."""
        return sparse_encoder_for(self.model, self.settings, task)

    def describe(self) -> Mapping[str, object]:
        """Return every setting, the encoder's included."""
        encoder = self.encoder()
        document = dict(encoder.settings(Role.DOCUMENT))
        return {
            **{name: value for name, value in document.items() if name not in ("role", "max_length", "prompt")},
            "queries": "weights of their own tokens, no model" if encoder.card.query_table else "read by the model",
            "max_length": f"{encoder.limit(Role.QUERY)} query, {encoder.limit(Role.DOCUMENT)} document",
            "similarity": encoder.similarity,
            "depth": self.depth,
            "drop_self": self.self_rule,
            "document_terms": self.document_terms or "all",
            "query_terms": self.query_terms or "all",
            "join": self.join or "as published for word search",
        }

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Count the texts that are still to be encoded."""
        encoder = self.encoder(collection.task)
        return {
            "documents to encode": to_encode(encoder, with_text(collection.documents), Role.DOCUMENT),
            "queries to encode": to_encode(encoder, search_queries(collection, self.join), Role.QUERY),
        }

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's best documents; those that share no term with it are left out."""
        encoder: SparseTextEncoder = self.encoder(collection.task)
        collection = searchable(collection, context)
        with context.timed("index"):
            documents = encode_sparse(encoder, collection.documents, Role.DOCUMENT, context)
            names = encoder.term_names(documents.shape[1])
            index = self._index(documents, names, collection.documents, encoder, context)
            scorer = ImpactScorer(pruned(index, self.document_terms) if self.document_terms else index)
        whole = _comparable(
            encode_sparse(encoder, search_queries(collection, self.join), Role.QUERY, context)[:], encoder
        )
        queries = whole.heaviest(self.query_terms)
        silent = int((queries.counts == 0).sum())
        if silent:
            context.warn(f"{counted(silent, 'query', 'queries')} of {len(queries)} have no term and find nothing")
        context.notes.facts |= {
            "vocabulary": len(scorer.index.terms),
            "document_terms": round(scorer.index.average_length, 3),
            "query_terms": round(float(queries.counts.mean()), 3) if len(queries) else 0.0,
            "index_bytes": sum(getattr(scorer.index, name).nbytes for name in ("offsets", "documents", "values")),
        }
        hidden = hidden_places(self, collection, context)
        results = list(scorer.best(_weights(queries, names, scorer.index), self.depth, hidden, thread_count()))
        if self.document_terms or self.query_terms:
            with context.timed("check"):
                weights = _weights(whole, names, index)

                def exact(sample: NDArray[np.intp], depth: int) -> Iterator[NDArray[np.intp]]:
                    rows = sample.tolist()
                    lists = ImpactScorer(index).best([weights[at] for at in rows], depth, [hidden[at] for at in rows])
                    return (best.places for best in lists)

                lost = measured_loss([best.places for best in results], len(index.lengths), self.depth, exact)
                context.notes.facts["recall_lost"] = lost
        return Run.from_ranked(dict(named(collection, results)))

    def _index(
        self, vectors: StoredSparse, names: list[str], documents: Texts, encoder: SparseTextEncoder, context: Context
    ) -> InvertedIndex:
        settings = sorted(encoder.settings(Role.DOCUMENT).items())
        key = cache_key(documents=documents.fingerprint, settings=settings, how=encoder.similarity, format=FORMAT)

        def build(folder: Path) -> None:
            with context.executor.progress("indexing", len(vectors)) as bar:
                blocks = (_comparable(block, encoder) for block in vectors.blocks())
                write_vector_index(blocks, names, documents.ids, folder, context.executor.memory, bar.advance)

        return InvertedIndex.mapped(context.cache.sound_entry("sparse", key, build))

    def matches(self, collection: Collection, query: str, documents: Sequence[str]) -> dict[str, list[MatchedTerm]]:
        """Return the terms that a query shares with some documents, the heaviest first, if their vectors are stored.

        No model is loaded: documents without stored vectors are left out.
        """
        encoder: SparseTextEncoder = self.encoder(collection.task)
        text = search_queries(collection, self.join).text(query)
        one = _stored_vectors(encoder, Texts([query], [text]), Role.QUERY)
        texts = Texts(list(documents), [collection.documents.text(name) for name in documents])
        many = _stored_vectors(encoder, texts, Role.DOCUMENT)
        if not one or not many:
            return {}
        asked = _comparable(one[query], encoder).heaviest(self.query_terms).terms(0)
        query_terms = encoder.own_terms(text, Role.QUERY)
        largest = max(int(vector.dimensions.max(initial=0)) for vector in (one[query], *many.values()))
        names = encoder.term_names(largest + 1)
        matches = {}
        for name, vector in many.items():
            weights = _comparable(vector, encoder).heaviest(self.document_terms).terms(0)
            document_terms = encoder.own_terms(texts.text(name), Role.DOCUMENT)
            shares = {term: asked[term] * weights[term] for term in asked.keys() & weights.keys()}
            matches[name] = [
                MatchedTerm(names[term], shares[term], _ADDED[term not in query_terms, term not in document_terms])
                for term in sorted(shares, key=lambda term: (-shares[term], names[term]))
            ]
        return matches


_ADDED = {(False, False): "", (True, False): "query", (False, True): "document", (True, True): "both"}


def _comparable(vectors: SparseVectors, encoder: SparseTextEncoder) -> SparseVectors:
    """Prepare vectors so that their dot product is the similarity."""
    return vectors.unit() if encoder.similarity == "cosine" else vectors


def _weights(queries: SparseVectors, names: Sequence[str], index: InvertedIndex) -> list[Weights]:
    used = {number: index.number(names[number]) for number in np.unique(queries.dimensions).tolist()}
    return [
        {used[term]: weight for term, weight in queries.terms(place).items() if used[term] >= 0}
        for place in range(len(queries))
    ]


def _stored_vectors(encoder: SparseTextEncoder, texts: Texts, role: Role) -> dict[str, SparseVectors]:
    store = SparseStore(encoder.settings(role))
    places = store.find(text_hashes(texts.texts))
    rows = {name: places[place : place + 1] for place, name in enumerate(texts.ids) if places[place] >= 0}
    return {name: store.vectors(row)[:] for name, row in rows.items()}


def find_sparse(call: Call) -> Splade | None:
    """Return the stage of a call whose name is a learned sparse encoder's card or folder, or None."""
    if call.name in cards():
        sparse = cards()[call.name].sparse
    else:
        sparse = folder_is(call.name, lambda source: are_sparse(read_modules(source)))
    return bind(Splade, Call(call.name, (call.name, *call.args), call.options)) if sparse else None
