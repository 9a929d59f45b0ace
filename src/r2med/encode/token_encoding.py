"""From texts to the vectors of their tokens: what the store has is taken from there, the rest is encoded and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.encode.batching import SHOWN, WINDOW, EncodingJob, first_of_each, refuse_empty
from r2med.encode.encoder import Role, Vectors
from r2med.encode.token_encoder import TokenEncoder
from r2med.encode.token_store import TokenStore, TokenVectors
from r2med.encode.vector_store import text_hashes
from r2med.errors import R2medError
from r2med.models.devices import out_of_memory, release_memory
from r2med.pipeline.stage import Context


def encode_tokens(
    encoder: TokenEncoder, texts: Texts, role: Role, context: Context, precision: str = "float32"
) -> TokenVectors:
    """The token vectors of every text, in order. A text that was encoded before, in any task, is not encoded again."""
    job = EncodingJob(texts, role, precision=precision)
    refuse_empty(job)
    store = TokenStore(encoder.settings(role), precision)
    hashes = text_hashes(texts.texts)
    found = store.find(hashes)
    missing = first_of_each(hashes, np.flatnonzero(found < 0))
    if len(missing):
        _encode(encoder, job, store, hashes, missing, context)
        store.refresh()
        found = store.find(hashes)
    for sentence in store.damage:
        context.warn(f"{sentence}; what was needed of them has been encoded anew")
    if (found < 0).any():
        lost = texts.ids[int((found < 0).argmax())]
        raise R2medError(f"the vectors of {lost} cannot be read back from {store.folder}: is the disk failing?")
    vectors = store.spans(found)
    if role is Role.QUERY and len(missing) < len(np.unique(hashes, axis=0)):
        context.reuse("vectors of queries")
    facts = context.notes.facts[job.name] = _facts(encoder, job, vectors, len(missing))
    if role is Role.QUERY and facts["truncated"]:
        cut, limit = facts["truncated"], facts["max_tokens"]
        context.warn(f"{cut} of {len(vectors)} queries are longer than {limit} tokens and were cut; see query_length")
    return vectors


def tokens_to_encode(encoder: TokenEncoder, texts: Texts, role: Role, precision: str = "float32") -> int:
    """How many of these texts, each counted once, the store lacks; for a plan."""
    hashes = text_hashes(texts.texts)
    missing = np.flatnonzero(TokenStore(encoder.settings(role), precision).find(hashes) < 0)
    return len(first_of_each(hashes, missing))


def _facts(encoder: TokenEncoder, job: EncodingJob, vectors: TokenVectors, encoded: int) -> dict[str, Any]:
    """What a result remembers: all that decides which vectors there are, and how many texts were cut."""
    limit = encoder.limit(job.role)
    cut = int((vectors.tokens > limit).sum()) if limit else 0
    kept = ("prefix", "expansion", "attend", "dtype", "skiplist")
    settings = {name: value for name, value in encoder.settings(job.role).items() if name in kept}
    return {
        "texts": len(vectors),
        "encoded": encoded,
        "vectors": int(vectors.count.sum()),
        "dimension": vectors.dimension,
        "max_tokens": limit or None,
        "truncated": cut,
        "truncated_share": round(cut / len(vectors), 6) if len(vectors) else 0.0,
        "first": encoder.prompted(job.texts.texts[0], job.role)[:SHOWN] if len(vectors) else "",
        **settings,
    }


def _encode(
    encoder: TokenEncoder,
    job: EncodingJob,
    store: TokenStore,
    hashes: NDArray[np.uint64],
    missing: NDArray[np.intp],
    context: Context,
) -> None:
    """Encode and keep the texts at the places `missing`, batch by batch."""
    with context.timed("load"):
        encoder.load()
    work, label = _Batches(encoder, job), f"encode {job.name} ({store.name})"
    with context.engine.progress(label, len(missing), unit="texts") as bar, store.writer() as writer:
        for start in range(0, len(missing), WINDOW):
            for places, tokens, spans in work.of(missing[start : start + WINDOW]):
                writer.append_spans(hashes[places], tokens, spans)
                bar.advance(len(places))


class _Batches:
    """Texts in batches of about equal cost, the longest first; out of memory halves what a batch may hold."""

    def __init__(self, encoder: TokenEncoder, job: EncodingJob) -> None:
        self.encoder, self.job, self.budget = encoder, job, encoder.batch_tokens

    def of(self, places: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64], list[Vectors]]]:
        """Batches of a window, each with its texts' lengths and vectors."""
        texts = [self.job.texts.texts[place] for place in places.tolist()]
        tokens = self.encoder.lengths(texts, self.job.role)
        limit = self.encoder.limit(self.job.role)
        cost = np.maximum(np.minimum(tokens, limit) if limit else tokens, 1)
        order, done = np.argsort(-cost, kind="stable"), 0
        while done < len(order):
            # The first text of a batch is its longest, and the others are padded to it.
            longest = int(cost[order[done]])
            batch = order[done : done + max(1, self.budget // longest)]
            spans = self._attempt([texts[place] for place in batch.tolist()], places[batch])
            if spans is None:
                self.budget = max(1, longest * len(batch) // 2)
                continue
            yield places[batch], tokens[batch], spans
            done += len(batch)

    def _attempt(self, texts: list[str], places: NDArray[np.intp]) -> list[Vectors] | None:
        """The vectors of a batch, checked; None when memory ran out and a smaller batch may fit."""
        try:
            spans = self.encoder.encode(texts, self.job.role)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            if len(places) == 1:
                name = self.job.texts.ids[int(places[0])]
                raise R2medError(f"memory runs out on {name} alone; lower document_length") from error
            spans = None
        if spans is None:
            release_memory()
            return None
        for place, span in zip(places.tolist(), spans, strict=True):
            if not len(span) or not np.isfinite(span).all():
                what = "vectors with NaN or infinite numbers" if len(span) else "no vector at all"
                raise R2medError(
                    f"{self.encoder.card.id} gave {self.job.texts.ids[place]} of the {self.job.name} {what}"
                )
        return spans
