"""Scores of pairs: read from the store, or computed by the model in batches and stored at once.

Batches hold pairs of about equal length and at most so many tokens, padding included. When memory runs out they are
halved. A batch that fails otherwise is split until the pair that the model cannot take is alone.

Scores are in the content-addressed store: a pair of texts under one setting is scored once. A batch is stored as soon
as it is scored, so a process that is killed loses only the batch it was working on. A setting is everything the scores
depend on besides the two texts; the texts are known by their hashes alone, so a query and a document that meet again in
another task cost nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from r2med.errors import R2medError
from r2med.formatting import first_line
from r2med.models.memory import out_of_memory, release_memory
from r2med.rerank.candidates import CandidateList, KeptOrder, Outcome, checked
from r2med.rerank.pair_inputs import Inputs, PairInput, TextPair
from r2med.rerank.pair_models import Columns
from r2med.store.arrays import ValueStore
from r2med.store.text_hashes import text_digest

if TYPE_CHECKING:
    from r2med.pipeline.executor.local import Progress

WINDOW = 1024
"""Pairs that are tokenized and sorted before the next are."""
_HOPELESS = 8  # pairs in a row that fail on their own, with none that ever worked, until the model counts as broken


class WantedPair(NamedTuple):
    """A pair that is to be scored, and the names of its query and document."""

    digest: bytes
    pair: TextPair
    query: str
    document: str


def wanted_pairs(shown: Sequence[CandidateList]) -> list[list[WantedPair]]:
    """Return every candidate of every query as a pair."""
    documents: dict[str, bytes] = {}
    found = []
    for each in shown:
        query = text_digest(each.text)
        pairs = []
        for name, text in zip(each.documents, each.texts, strict=True):
            if name not in documents:
                documents[name] = text_digest(text)
            pairs.append(WantedPair(pair_digest(query, documents[name]), TextPair(each.text, text), each.query, name))
        found.append(pairs)
    return found


@dataclass
class PairScores:
    """Scores of pairs by their digests, and the reasons why some have none."""

    known: dict[bytes, Scored] = field(default_factory=dict)
    problems: dict[bytes, str] = field(default_factory=dict)

    def add(self, others: PairScores) -> None:
        """Add the scores and problems of others."""
        self.known |= others.known
        self.problems |= others.problems

    def outcome(self, shown: CandidateList, pairs: Sequence[WantedPair]) -> Outcome:
        """Return the scores of a query's candidates, or the first reason why one of them has none."""
        for wanted in pairs:
            if wanted.digest in self.problems:
                return KeptOrder(f"{wanted.document}: {self.problems[wanted.digest]}")
        return checked(np.array([self.known[wanted.digest].score for wanted in pairs], dtype=np.float32), shown)


class Scoring:
    """Scoring of pairs by a model in batches, which stores the results."""

    def __init__(self, inputs: Inputs, score: Callable[[Sequence[PairInput]], Columns], budget: int) -> None:
        self.inputs, self.score, self.budget = inputs, score, budget
        self._worked = False
        self._failed = 0

    def run(self, pairs: Sequence[WantedPair], store: ScoreStore, bar: Progress) -> PairScores:
        """Score all pairs; each batch is stored before the next begins."""
        found = PairScores()
        for start in range(0, len(pairs), WINDOW):
            window = pairs[start : start + WINDOW]
            rows = self.inputs.rows([wanted.pair for wanted in window])
            for places, outcome in self.batches(rows):
                batch = [window[place] for place in places]
                if isinstance(outcome, str):
                    found.problems[batch[0].digest] = outcome
                else:
                    scored = {
                        wanted.digest: Scored(value, rows[place].tokens, rows[place].query_lost)
                        for wanted, place, value in zip(batch, places, outcome, strict=True)
                    }
                    # What is no number is not kept: the next run may fare better, with another precision or device.
                    good = {digest: each for digest, each in scored.items() if np.isfinite(each.score)}
                    store.keep(list(good), list(good.values()))
                    found.known |= scored
                bar.advance(len(batch))
        return found

    def batches(self, rows: Sequence[PairInput]) -> Iterator[tuple[list[int], list[float] | str]]:
        """Yield batches of a window, the longest pairs first, with their scores; or one pair and its problem."""
        rest = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
        apart: list[list[int]] = []
        while rest or apart:
            if apart:
                batch = apart.pop()
            else:
                # The first pair of a batch is its longest, and the others are padded to it.
                size = max(1, self.budget // max(1, len(rows[rest[0]].ids)))
                batch, rest = rest[:size], rest[size:]
            outcome = self._attempt([rows[place] for place in batch])
            if not isinstance(outcome, _Failure):
                self._worked = True
                yield batch, outcome
            elif len(batch) == 1:
                yield batch, self._blamed(outcome)
            else:
                middle = len(batch) // 2
                apart += [batch[middle:], batch[:middle]]
                if outcome.full:
                    release_memory()
                    self.budget = max(1, len(rows[batch[0]].ids) * middle)

    def _attempt(self, rows: Sequence[PairInput]) -> list[float] | _Failure:
        """Score a batch. An error itself is not returned: it would keep the memory of the attempt alive."""
        try:
            found: list[float] = self.score(rows).tolist()
        except (MemoryError, RuntimeError, ValueError, IndexError) as error:
            return _Failure(first_line(error)[:200], out_of_memory(error))
        return found if len(found) == len(rows) else _Failure(f"{len(found)} scores for {len(rows)} pairs", False)

    def _blamed(self, failure: _Failure) -> str:
        """Return the reason why a pair has no score; raise if no pair ever had one."""
        self._failed += 1
        if not self._worked and self._failed >= _HOPELESS:
            raise R2medError(f"the model fails on every pair: {failure.reason}")
        return "memory runs out on this pair alone; lower max_length" if failure.full else failure.reason


class _Failure(NamedTuple):
    """A failed attempt at scoring."""

    reason: str
    full: bool
    """Whether memory ran out."""


def cut_facts(scored: Mapping[bytes, Scored], shown: Sequence[Sequence[WantedPair]], limit: int) -> dict[str, object]:
    """Count the pairs that could not be read in full, for a result."""
    every = [(wanted, scored[wanted.digest]) for pairs in shown for wanted in pairs if wanted.digest in scored]
    truncated = sum(each.tokens > limit for _, each in every)
    cut_queries = {wanted.query for wanted, each in every if each.query_lost}
    return {
        "max_length": limit,
        "truncated": truncated,
        "truncated_share": round(truncated / len(every), 6) if every else 0.0,
        "queries_cut": len(cut_queries),
    }


_SCORED = struct.Struct("<dII")


class Scored(NamedTuple):
    """Stored score of a pair."""

    score: float
    tokens: int = 0
    """Its length in the model's tokens before anything was cut; 0 if it is not counted."""
    query_lost: int = 0
    """How many tokens of the query could not be read."""


def pair_digest(query: bytes, document: bytes) -> bytes:
    """Hash a pair by the hashes of its texts.

    >>> one, two = text_digest("why?"), text_digest("because")
    >>> len(pair_digest(one, two)), pair_digest(one, two) == pair_digest(two, one)
    (16, False)
    """
    return hashlib.blake2b(query + document, digest_size=16).digest()


class ScoreStore:
    """The stored scores of one setting. Several processes may write at once."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._values = ValueStore("scores", settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._values.__exit__(kind, error, trace)

    def find(self, pairs: Iterable[bytes]) -> dict[bytes, Scored]:
        """Return the stored scores of these pairs."""
        return {pair: Scored(*_SCORED.unpack(value)) for pair, value in self._values.read(pairs).items()}

    def keep(self, pairs: Sequence[bytes], scored: Sequence[Scored]) -> None:
        """Store a batch for good; if that fails, warn and go on."""
        self._values.write(dict(zip(pairs, (_SCORED.pack(*each) for each in scored), strict=True)))

    def __len__(self) -> int:
        return len(self._values)
