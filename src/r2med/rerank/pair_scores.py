"""Scores of pairs: read from the store, or computed by the model in batches, here or by workers, and stored at once.

Batches hold pairs of about equal length and at most so many tokens, padding included. When memory runs out they are
halved. A batch that fails otherwise is split until the pair that the model cannot take is alone. Texts are identified
by their hashes, so a query and a document that meet again in another task cost nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from r2med.errors import R2medError
from r2med.formatting import first_line, replace_surrogates
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, block_key, grouped
from r2med.rerank.candidates import CandidateList, Outcome, checked
from r2med.rerank.pair_inputs import Inputs, PairInput, TextPair
from r2med.rerank.pair_models import Columns
from r2med.store.arrays import ValueStore
from r2med.store.columns import text_digest
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    from r2med.data.tasks import Task
    from r2med.pipeline.executor.local import Progress
    from r2med.rerank.cross_encoder import CrossEncoder

WINDOW = 1024  # pairs that are tokenized and sorted before the next are
_HOPELESS = 8  # pairs in a row that fail on their own, with none that ever worked, until the model counts as broken
_BLOCK_TOKENS = 32_768  # tokens of a worker's block, padding included
_UNLIMITED = 1 << 62  # a budget that leaves every batch as it came
_SCORED = struct.Struct("<dII")


class Scored(NamedTuple):
    """Stored score of a pair."""

    score: float
    tokens: int = 0  # its length in the model's tokens before anything was cut; 0 if it is not counted
    query_lost: int = 0  # how many tokens of the query could not be read


class WantedPair(NamedTuple):
    """A pair that is to be scored, and the names of its query and document."""

    digest: bytes
    pair: TextPair
    query: str
    document: str


def wanted_pairs(lists: Sequence[CandidateList]) -> list[list[WantedPair]]:
    """Return every candidate of every query as a pair."""
    texts = {name: text for row in lists for name, text in zip(row.documents, row.texts, strict=True)}
    digests = {name: text_digest(text) for name, text in texts.items()}

    def pairs(row: CandidateList) -> list[WantedPair]:
        query = text_digest(row.text)
        named = zip(row.documents, row.texts, strict=True)
        return [WantedPair(pair_digest(query, digests[n]), TextPair(row.text, t), row.query, n) for n, t in named]

    return list(map(pairs, lists))


@dataclass
class PairScores:
    """Scores of pairs by their digests, and the reasons why some have none."""

    known: dict[bytes, Scored] = field(default_factory=dict)
    problems: dict[bytes, str] = field(default_factory=dict)

    def add(self, others: PairScores) -> None:
        """Add the scores and problems of others."""
        self.known |= others.known
        self.problems |= others.problems

    def keep(self, batch: PairBatch, outcomes: Iterable[float | str], store: ScoreStore) -> None:
        """Add and store the scores of a batch, or the reasons why its pairs have none."""
        rows = list(zip(batch.pairs, batch.rows, outcomes, strict=True))
        self.problems |= {pair.digest: outcome for pair, _, outcome in rows if isinstance(outcome, str)}
        scored = {p.digest: Scored(o, row.tokens, row.query_lost) for p, row, o in rows if not isinstance(o, str)}
        # What is not a number is not stored: the next run may fare better, with another precision or device.
        store.keep({digest: score for digest, score in scored.items() if np.isfinite(score.score)})
        self.known |= scored

    def outcome(self, candidates: CandidateList, pairs: Sequence[WantedPair]) -> Outcome:
        """Return the scores of a query's candidates, or the first reason why one of them has none."""
        for pair in pairs:
            if pair.digest in self.problems:
                return f"{pair.document}: {self.problems[pair.digest]}"
        return checked(np.array([self.known[pair.digest].score for pair in pairs], dtype=np.float32), candidates)

    def cut_facts(self, pairs: Sequence[Sequence[WantedPair]], limit: int) -> dict[str, object]:
        """Count the pairs that could not be read in full, for a result."""
        scores = [(pair.query, self.known[pair.digest]) for row in pairs for pair in row if pair.digest in self.known]
        truncated = sum(score.tokens > limit for _, score in scores)
        share = round(truncated / len(scores), 6) if scores else 0.0
        queries_cut = len({query for query, score in scores if score.query_lost})
        return {"max_length": limit, "truncated": truncated, "truncated_share": share, "queries_cut": queries_cut}


class PairBatch(NamedTuple):
    """Pairs that are scored together, the longest first."""

    pairs: list[WantedPair]
    rows: list[PairInput]

    @classmethod
    def at(cls, places: Sequence[int], pairs: Sequence[WantedPair], rows: Sequence[PairInput]) -> PairBatch:
        """Build the batch of the pairs at some places."""
        return cls([pairs[place] for place in places], [rows[place] for place in places])

    @property
    def cost(self) -> int:
        """Return its tokens, padding included."""
        return len(self.rows[0].ids) * len(self.rows)


def longest_first(rows: Sequence[PairInput], budget: Callable[[], int]) -> Iterator[list[int]]:
    """Yield the places of rows in batches of at most so many tokens, padding included; the budget may change."""
    rest = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
    while rest:
        # The first pair of a batch is its longest, and the others are padded to it.
        size = max(1, budget() // max(1, len(rows[rest[0]].ids)))
        yield rest[:size]
        rest = rest[size:]


class Scoring:
    """Scoring of pairs by a model in batches, which stores the results."""

    def __init__(self, inputs: Inputs, score: Callable[[Sequence[PairInput]], Columns], budget: int) -> None:
        self.inputs, self.score, self.budget = inputs, score, budget
        self._worked = False
        self._failed = 0

    def run(self, pairs: Sequence[WantedPair], store: ScoreStore, bar: Progress) -> PairScores:
        """Score all pairs; each batch is stored before the next begins."""
        scores = PairScores()
        for start in range(0, len(pairs), WINDOW):
            window = pairs[start : start + WINDOW]
            rows = self.inputs.rows([pair.pair for pair in window])
            for places, outcomes in self.batches(rows):
                scores.keep(PairBatch.at(places, window, rows), outcomes, store)
                bar.advance(len(places))
        return scores

    def batches(self, rows: Sequence[PairInput]) -> Iterator[tuple[list[int], Sequence[float | str]]]:
        """Yield batches of a window, the longest pairs first, with their scores; or one pair and its problem."""
        for batch in longest_first(rows, lambda: self.budget):
            parts = [batch]
            while parts:
                places = parts.pop()
                # The error itself is not held: it would keep the memory of the attempt alive.
                full = False
                try:
                    scores: list[float] = self.score([rows[place] for place in places]).tolist()
                    problem = f"{len(scores)} scores for {len(places)} pairs"
                except (MemoryError, RuntimeError, ValueError, IndexError) as error:
                    scores, problem, full = [], first_line(error)[:200], out_of_memory(error)
                if len(scores) == len(places):
                    self._worked = True
                    yield places, scores
                elif len(places) == 1:
                    self._failed += 1
                    if not self._worked and self._failed >= _HOPELESS:
                        raise R2medError(f"the model fails on every pair: {problem}")
                    yield places, ["memory runs out on this pair alone; lower max_length" if full else problem]
                else:
                    middle = len(places) // 2
                    parts += [places[middle:], places[:middle]]
                    if full:
                        release_memory()
                        self.budget = max(1, len(rows[places[0]].ids) * middle)


@dataclass(frozen=True)
class PairWorker:
    """Worker that scores blocks of pairs in another process."""

    model: CrossEncoder
    task: Task

    @cached_property
    def _scoring(self) -> Scoring:
        scoring = self.model.scoring(self.task)
        scoring.budget = _UNLIMITED
        return scoring

    def load(self) -> None:
        """Load the model."""
        self._scoring  # noqa: B018 - this loads it

    def run(self, payload: bytes) -> bytes:
        """Return the score of each pair of a block, or the reason why it has none; null for what JSON cannot say."""
        answers = []
        for batch in orjson.loads(payload):
            values: list[float | str | None] = [None] * len(batch)
            rows = self._scoring.inputs.rows([TextPair(*pair) for pair in batch])
            for places, outcomes in self._scoring.batches(rows):
                for place, outcome in zip(places, outcomes, strict=True):
                    values[place] = outcome if isinstance(outcome, str) or np.isfinite(outcome) else None
            answers.append(values)
        return orjson.dumps(answers)


@dataclass(frozen=True)
class SpreadScoring:
    """Scoring by workers, which stores the results."""

    inputs: Inputs
    worker: PairWorker
    budget: int
    spread: Spread

    def run(
        self, pairs: Sequence[WantedPair], known: Collection[bytes], store: ScoreStore, bar: Progress
    ) -> PairScores:
        """Score the unknown pairs; the plan is made of all pairs, so that every command has the same."""
        scores = PairScores()
        job = SpreadJob(f"score pairs ({self.worker.model.card.id})", self.worker)
        for block, result in self.spread.run(job, self._blocks(pairs, known)):
            for batch, values in zip(block.about, orjson.loads(result), strict=True):
                scores.keep(batch, (float("nan") if value is None else value for value in values), store)
                bar.advance(sum(pair.digest not in known for pair in batch.pairs))
        return scores

    def _blocks(self, pairs: Sequence[WantedPair], known: Collection[bytes]) -> Iterator[WorkBlock]:
        settings = cache_key(settings=sorted(self.worker.model.settings(self.worker.task).items())).encode()
        for start in range(0, len(pairs), WINDOW):
            window = pairs[start : start + WINDOW]
            if all(pair.digest in known for pair in window):
                continue
            rows = self.inputs.rows([pair.pair for pair in window])
            planned = (PairBatch.at(places, window, rows) for places in longest_first(rows, lambda: self.budget))
            for batches in grouped(planned, _BLOCK_TOKENS):
                if any(pair.digest not in known for batch in batches for pair in batch.pairs):
                    key = block_key(settings, *(b"".join(pair.digest for pair in batch.pairs) for batch in batches))
                    texts = [[list(map(replace_surrogates, pair.pair)) for pair in batch.pairs] for batch in batches]
                    yield WorkBlock(key, orjson.dumps(texts), batches)


def pair_digest(query: bytes, document: bytes) -> bytes:
    """Hash a pair by the hashes of its texts.

    >>> one, two = text_digest("why?"), text_digest("because")
    >>> len(pair_digest(one, two)), pair_digest(one, two) == pair_digest(two, one)
    (16, False)
    """
    return hashlib.blake2b(query + document, digest_size=16).digest()


class ScoreStore(ValueStore):
    """The stored scores of one setting. Several processes may write at once."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__("scores", settings)

    def scored(self, pairs: Iterable[bytes]) -> dict[bytes, Scored]:
        """Return the stored scores of these pairs."""
        return {pair: Scored(*_SCORED.unpack(value)) for pair, value in self.read(pairs).items()}

    def keep(self, scored: Mapping[bytes, Scored]) -> None:
        """Store a batch for good; if that fails, warn and go on."""
        self.write({pair: _SCORED.pack(*score) for pair, score in scored.items()})
