"""Texts to the vectors of their tokens: read from the store, or encoded in batches and stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.encode.batching import (
    SHOWN,
    WINDOW,
    EncodingJob,
    PlannedBatch,
    TextBatches,
    check_share,
    refuse_empty,
    text_costs,
)
from r2med.encode.distributed import SpreadEncoder, TokenWorker
from r2med.encode.encoder import Role, Vectors
from r2med.encode.tokens import TokenEncoder
from r2med.encode.vectors import TokenStore, TokenVectors
from r2med.errors import R2medError
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.distributed import spread_of
from r2med.pipeline.stage import Context
from r2med.store.arrays import ShardWriter
from r2med.store.text_hashes import TextHashes, first_of_each, lacking, text_hashes


def encode_tokens(
    encoder: TokenEncoder, texts: Texts, role: Role, context: Context, precision: str = "float32"
) -> TokenVectors:
    """Return the token vectors of every text, in order. A text that was encoded before is not encoded again."""
    job = EncodingJob(texts, role, precision=precision)
    refuse_empty(job)
    store = TokenStore(encoder.settings(role), precision)
    hashes = text_hashes(texts.texts)
    found = store.find(hashes)
    missing = first_of_each(hashes, lacking(found))
    if len(missing):
        with store.writer() as writer:
            _encode(_Batches(encoder, job, store, writer), hashes, missing, context)
        store.refresh()
        found = store.find(hashes)
        check_share(job, store, hashes, found, context)
    for sentence in store.damage:
        context.warn(f"{sentence}; what was needed of them has been encoded anew")
    if len(missing) and len(lost := lacking(found)):
        name = texts.ids[int(lost[0])]
        raise R2medError(f"the vectors of {name} cannot be read back from {store.folder}: is the disk failing?")
    vectors = store.vectors(found)
    if role is Role.QUERY and len(missing) < len(first_of_each(hashes)):
        context.reuse("vectors of queries")
    facts = context.notes.facts[job.name] = _facts(encoder, job, vectors, len(missing))
    if role is Role.QUERY and facts["truncated"]:
        cut, limit = facts["truncated"], facts["max_tokens"]
        context.warn(f"{cut} of {len(vectors)} queries are longer than {limit} tokens and were cut; see query_length")
    return vectors


def tokens_to_encode(encoder: TokenEncoder, texts: Texts, role: Role, precision: str = "float32") -> int:
    """Count the distinct texts that the store lacks, for a plan."""
    hashes = text_hashes(texts.texts)
    found = TokenStore(encoder.settings(role), precision).find(hashes)
    return len(first_of_each(hashes, lacking(found)))


def _facts(encoder: TokenEncoder, job: EncodingJob, vectors: TokenVectors, encoded: int) -> dict[str, Any]:
    """Return the facts of a result: all settings that decide which vectors there are, and the number of texts cut."""
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


def _encode(work: _Batches, hashes: TextHashes, missing: NDArray[np.intp], context: Context) -> None:
    """Encode and store the texts at the places `missing`, in this process or by the executor's workers."""
    spread = spread_of(context.executor)
    if spread is None or (spread.only_large and work.job.role is Role.QUERY):
        work.run(hashes, missing, context)
        return
    # The plan is made of all texts, so that every command of a batch has the same, whatever is there already.
    SpreadEncoder(work, spread, WINDOW).run(hashes, first_of_each(hashes), missing, context)


class _Batches(TextBatches[TokenEncoder]):
    """Texts in batches of about equal cost, the longest first; out of memory halves what a batch may hold."""

    def __init__(self, encoder: TokenEncoder, job: EncodingJob, store: TokenStore, writer: ShardWriter) -> None:
        super().__init__(encoder, job, store)
        self.writer = writer

    def worker(self) -> TokenWorker:
        """Return the worker that encodes in another process."""
        return TokenWorker(self.encoder, self.job.role)

    def keep(self, hashes: TextHashes, rows: NDArray[np.intp], batch: PlannedBatch, vectors: Iterator[Vectors]) -> None:
        """Store a batch that a worker encoded: a matrix for each text."""
        spans = self._checked([next(vectors) for _ in batch.places], batch.places)
        self.writer.append(hashes, batch.tokens, spans)

    def run(self, hashes: TextHashes, missing: NDArray[np.intp], context: Context) -> None:
        """Encode and store the texts at the places `missing`, batch by batch, in this process."""
        with context.timed("load"):
            self.encoder.load()
        with context.executor.progress(self.label, len(missing), unit="texts") as bar:
            for start in range(0, len(missing), WINDOW):
                for places, tokens, spans in self._encoded(missing[start : start + WINDOW]):
                    self.writer.append(hashes[places], tokens, spans)
                    bar.advance(len(places))

    def _encoded(self, places: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64], list[Vectors]]]:
        """Yield the batches of a window, each with its texts' lengths and vectors."""
        texts = self.texts(places)
        tokens, cost = text_costs(self.encoder, texts, self.job.role)
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
        """Encode and check a batch; return None if memory ran out and a smaller batch may fit."""
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
        return self._checked(spans, places)

    def _checked(self, spans: list[Vectors], places: NDArray[np.intp]) -> list[Vectors]:
        """Check the vectors and return them; an invalid one is an error that names the text."""
        for place, span in zip(places.tolist(), spans, strict=True):
            if not len(span) or not np.isfinite(span).all():
                what = "vectors with NaN or infinite numbers" if len(span) else "no vector at all"
                raise R2medError(
                    f"{self.encoder.card.id} gave {self.job.texts.ids[place]} of the {self.job.name} {what}"
                )
        return spans
