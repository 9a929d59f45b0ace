"""Pairs to scores: what is kept is taken from there, the rest goes through the model in batches and is kept at once.

Batches hold pairs of about equal length and at most so many tokens, padding included. When memory runs out they are
halved. A batch that fails otherwise is taken apart until the pair that the model cannot take stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from r2med.encode.loop import out_of_memory, release_memory
from r2med.errors import R2medError
from r2med.rerank.candidates import Candidates, Outcome, Unusable, checked
from r2med.rerank.inputs import Inputs, Pair, Row
from r2med.rerank.judges import Columns
from r2med.rerank.kept import Scored, ScoreStore, pair_digest, text_digest

if TYPE_CHECKING:
    from r2med.engine import Progress

_WINDOW = 1024  # pairs that are tokenized and sorted before the next are
_HOPELESS = 8  # pairs in a row that fail on their own, with none that ever worked, until the model counts as broken


class Wanted(NamedTuple):
    """A pair that is to be scored, and the names that people know it by."""

    digest: bytes
    pair: Pair
    query: str
    document: str


def wanted_pairs(shown: Sequence[Candidates]) -> list[list[Wanted]]:
    """Every candidate of every query as a pair."""
    documents: dict[str, bytes] = {}
    found = []
    for each in shown:
        query = text_digest(each.text)
        pairs = []
        for name, text in zip(each.documents, each.texts, strict=True):
            if name not in documents:
                documents[name] = text_digest(text)
            pairs.append(Wanted(pair_digest(query, documents[name]), Pair(each.text, text), each.query, name))
        found.append(pairs)
    return found


@dataclass
class Scores:
    """What is known of the pairs by their digests: scores, and why there is none."""

    known: dict[bytes, Scored] = field(default_factory=dict)
    problems: dict[bytes, str] = field(default_factory=dict)

    def add(self, others: Scores) -> None:
        """Take over what is known elsewhere."""
        self.known |= others.known
        self.problems |= others.problems

    def outcome(self, shown: Candidates, pairs: Sequence[Wanted]) -> Outcome:
        """The scores of a query's candidates, or the first reason why one of them has none."""
        for wanted in pairs:
            if wanted.digest in self.problems:
                return Unusable(f"{wanted.document}: {self.problems[wanted.digest]}")
        return checked(np.array([self.known[wanted.digest].score for wanted in pairs], dtype=np.float32), shown)


class Scoring:
    """Runs pairs through a model and keeps what comes out."""

    def __init__(self, inputs: Inputs, score: Callable[[Sequence[Row]], Columns], budget: int) -> None:
        self.inputs, self.score, self.budget = inputs, score, budget
        self._worked = False
        self._failed = 0

    def run(self, pairs: Sequence[Wanted], store: ScoreStore, bar: Progress) -> Scores:
        """Score all pairs; each batch is kept before the next begins."""
        found = Scores()
        for start in range(0, len(pairs), _WINDOW):
            window = pairs[start : start + _WINDOW]
            rows = self.inputs.rows([wanted.pair for wanted in window])
            for places, outcome in self._batches(rows):
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

    def _batches(self, rows: Sequence[Row]) -> Iterator[tuple[list[int], list[float] | str]]:
        """Batches of a window, the longest pairs first, each with its scores; or one pair and why it has none."""
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

    def _attempt(self, rows: Sequence[Row]) -> list[float] | _Failure:
        """The scores of a batch. An error is not handed on itself: it would hold on to the memory of the attempt."""
        try:
            found: list[float] = self.score(rows).tolist()
        except (MemoryError, RuntimeError, ValueError, IndexError) as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            return _Failure(line, out_of_memory(error))
        return found if len(found) == len(rows) else _Failure(f"{len(found)} scores for {len(rows)} pairs", False)

    def _blamed(self, failure: _Failure) -> str:
        """Why a pair has no score; an error when no pair ever had one."""
        self._failed += 1
        if not self._worked and self._failed >= _HOPELESS:
            raise R2medError(f"the model fails on every pair: {failure.reason}")
        return "memory runs out on this pair alone; lower max_length" if failure.full else failure.reason


class _Failure(NamedTuple):
    """An attempt that gave no scores."""

    reason: str
    full: bool
    """Whether memory ran out."""


def cut_facts(scored: Mapping[bytes, Scored], shown: Sequence[Sequence[Wanted]], limit: int) -> dict[str, object]:
    """How much of the pairs could not be read: what a result remembers."""
    every = [(wanted, scored[wanted.digest]) for pairs in shown for wanted in pairs if wanted.digest in scored]
    truncated = sum(each.tokens > limit for _, each in every)
    cut_queries = {wanted.query for wanted, each in every if each.query_lost}
    return {
        "max_length": limit,
        "truncated": truncated,
        "truncated_share": round(truncated / len(every), 6) if every else 0.0,
        "queries_cut": len(cut_queries),
    }
