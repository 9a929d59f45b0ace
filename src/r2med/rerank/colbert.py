"""Late interaction as a reranker: each candidate is encoded once, whichever queries found it, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.encode.batching import encode_tokens
from r2med.encode.encoder import Role
from r2med.encode.late_interaction import LateInteraction
from r2med.encode.maxsim import rescore_tokens, single_threads
from r2med.pipeline.stage import Context, Reranker
from r2med.rerank.candidates import Outcome, candidates, checked, reranked


@dataclass(frozen=True)
class ColBERTReranker(LateInteraction, Reranker):
    """Reranker by late interaction."""

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the most documents that this may encode; which are stored already is known only with the lists."""
        most = len(collection.queries) * min(self.depth, len(collection.documents))
        return {"documents to encode at most": min(most, len(collection.documents))}

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Score the first documents of every list by the best match of each token of the query."""
        self.compare_card(context)
        lists = candidates(collection, run, self.depth)
        texts = {name: text for row in lists for name, text in zip(row.documents, row.texts, strict=True)}
        names = [name for name, text in texts.items() if text and not text.isspace()]
        if not names:
            return run
        if len(names) < len(texts):
            context.warn(f"{self}: {len(texts) - len(names)} documents without text have no vectors and come last")
        documents = Texts(names, [texts[name] for name in names])
        queries = Texts([row.query for row in lists], [row.text for row in lists])
        with context.timed("index"):
            vectors = encode_tokens(self.encoder, documents, Role.DOCUMENT, context, self.store)
        query_vectors = encode_tokens(self.encoder, queries, Role.QUERY, context)
        context.notes.facts |= {"similarity": self.card.similarity, "index": self.store, "index_bytes": vectors.nbytes}
        places = {name: place for place, name in enumerate(names)}

        def outcome(at: int) -> Outcome:
            query, rows = query_vectors.of(at), np.array([places.get(name, -1) for name in lists[at].documents])
            if rows.max() < 0:
                return "no candidate has any text"
            similarities = rescore_tokens(query, vectors, rows[rows >= 0])
            if self.card.similarity == "meanmaxsim":
                similarities = (similarities / len(query)).astype(np.float32)
            # Those without text come last.
            scores = np.full(len(rows), similarities.min() - 1, dtype=np.float32)
            scores[rows >= 0] = similarities
            return checked(scores, lists[at])

        with single_threads() as pool:
            outcomes = list(pool.map(outcome, range(len(lists))))
        return reranked(self, run, lists, outcomes, context)
