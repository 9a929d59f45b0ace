"""Scoring of pairs by workers: batches grouped into blocks, and the storing of their scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, block_key, carried, grouped
from r2med.rerank.pair_inputs import Inputs, PairInput, TextPair
from r2med.rerank.pair_scores import WINDOW, PairScores, Scored, ScoreStore, Scoring, WantedPair
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    from r2med.data.tasks import Task
    from r2med.pipeline.executor.local import Progress
    from r2med.rerank.cross_encoder import LoadedCrossEncoder

_BLOCK_TOKENS = 32_768
"""Tokens of a block, padding included."""
_WHOLE = 1 << 62
"""A budget that leaves every batch as it came."""


class PairBatch(NamedTuple):
    """Pairs that are scored together, the longest first."""

    pairs: list[WantedPair]
    rows: list[PairInput]

    @property
    def cost(self) -> int:
        """Return its tokens, padding included."""
        return len(self.rows[0].ids) * len(self.rows)


@dataclass(frozen=True)
class PairWorker:
    """Worker that scores blocks of pairs."""

    model: LoadedCrossEncoder
    task: Task

    @cached_property
    def _scoring(self) -> Scoring:
        scoring = self.model.scoring(self.task)
        scoring.budget = _WHOLE
        return scoring

    def load(self) -> None:
        """Load the model."""
        self._scoring  # noqa: B018 - this loads it

    def run(self, payload: bytes) -> bytes:
        """Return the score of each pair of a block, or the reason why it has none."""
        return orjson.dumps([self._batch([TextPair(*pair) for pair in batch]) for batch in orjson.loads(payload)])

    def _batch(self, pairs: Sequence[TextPair]) -> list[Any]:
        found: list[Any] = [None] * len(pairs)
        for places, outcome in self._scoring.batches(self._scoring.inputs.rows(list(pairs))):
            for number, place in enumerate(places):
                found[place] = outcome if isinstance(outcome, str) else _number(outcome[number])
        return found


def _number(score: float) -> float | None:
    """Return a score for JSON, which has no NaN or infinity: None for those."""
    return float(score) if np.isfinite(score) else None


class SpreadScoring:
    """Scoring by workers, which stores the results."""

    def __init__(self, inputs: Inputs, worker: PairWorker, budget: int, spread: Spread) -> None:
        self._inputs, self._worker, self._budget, self._spread = inputs, worker, budget, spread

    def run(
        self, pairs: Sequence[WantedPair], known: Collection[bytes], store: ScoreStore, bar: Progress
    ) -> PairScores:
        """Score the unknown pairs; the plan is made of all pairs, so that every command has the same."""
        found = PairScores()
        job = SpreadJob(f"score pairs ({self._worker.model.card.id})", self._worker)
        for block, result in self._spread.run(job, self._blocks(pairs, known)):
            batches: list[PairBatch] = block.about
            for batch, values in zip(batches, orjson.loads(result), strict=True):
                self._keep(batch, values, store, found)
                bar.advance(sum(wanted.digest not in known for wanted in batch.pairs))
        return found

    def _keep(self, batch: PairBatch, values: Sequence[Any], store: ScoreStore, found: PairScores) -> None:
        scored: dict[bytes, Scored] = {}
        for wanted, row, value in zip(batch.pairs, batch.rows, values, strict=True):
            if isinstance(value, str):
                found.problems[wanted.digest] = value
            else:
                score = float("nan") if value is None else value
                scored[wanted.digest] = Scored(score, row.tokens, row.query_lost)
        good = {digest: each for digest, each in scored.items() if np.isfinite(each.score)}
        store.keep(list(good), list(good.values()))
        found.known |= scored

    def _blocks(self, pairs: Sequence[WantedPair], known: Collection[bytes]) -> Iterator[WorkBlock]:
        for start in range(0, len(pairs), WINDOW):
            window = pairs[start : start + WINDOW]
            if all(wanted.digest in known for wanted in window):
                continue
            for batches in grouped(self._planned(window), _BLOCK_TOKENS):
                if any(wanted.digest not in known for batch in batches for wanted in batch.pairs):
                    yield self._block(batches)

    def _planned(self, window: Sequence[WantedPair]) -> Iterator[PairBatch]:
        """Yield the batches of a window as `Scoring` makes them."""
        rows = self._inputs.rows([wanted.pair for wanted in window])
        rest = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
        while rest:
            size = max(1, self._budget // max(1, len(rows[rest[0]].ids)))
            batch, rest = rest[:size], rest[size:]
            yield PairBatch([window[place] for place in batch], [rows[place] for place in batch])

    def _block(self, batches: list[PairBatch]) -> WorkBlock:
        settings: Mapping[str, object] = self._worker.model.settings(self._worker.task)
        digests = (b"".join(wanted.digest for wanted in batch.pairs) for batch in batches)
        key = block_key(cache_key(settings=sorted(settings.items())).encode(), *digests)
        texts = [[[carried(text) for text in wanted.pair] for wanted in batch.pairs] for batch in batches]
        return WorkBlock(key, orjson.dumps(texts), batches)
