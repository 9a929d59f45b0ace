"""Sampling of candidates for review: at random, by disagreement of sources, near the cut, holes, or a mixture.

What was drawn at random stands for all that could have been drawn, so it alone may feed an estimate. What was chosen
because something is odd about it may not, and says so: every item keeps how it was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from r2med.errors import R2medError
from r2med.formatting import counted
from r2med.reviews.pool import DEPTH, Candidate, TaskPool
from r2med.reviews.rows import DISAGREEMENTS, HOLES, NEAR_CUT, RANDOM

MIXED = "mixed"
QUEUES = (RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, MIXED)
_APART = 0.5
"""Runs and labels disagree on a pair from this difference on, of a scale from 0 to 1."""


class PooledPair(NamedTuple):
    """A candidate and the pool that it is in."""

    pool: TaskPool
    candidate: Candidate


class Stratum(NamedTuple):
    """Pairs that were drawn in one way, and how many it could draw from."""

    pairs: Sequence[PooledPair]
    frame: int


def draw(pools: Sequence[TaskPool], queue: str, count: int, seed: int) -> tuple[dict[str, Stratum], list[str]]:
    """Draw pairs from a queue, and return them by how they were drawn, with notes.

    `mixed` draws half of them at random, the rest in equal parts from the other queues.
    """
    chance = random.Random(f"{seed}\tdraw")
    frames = {name: list(frame(pools)) for name, frame in _FRAMES.items()}
    drawn: set[int] = set()
    sample: dict[str, Stratum] = {}
    for name, number in _shares(queue, count, frames, pools).items():
        ranked = [(worth, pair) for worth, pair in frames[name] if id(pair.candidate) not in drawn]
        # The pairs worth most, ties in random order: a random sample if all are worth the same.
        chance.shuffle(ranked)
        best = [pair for _, pair in sorted(ranked, key=lambda item: -item[0])[:number]]
        sample[name] = Stratum(best, len(frames[name]))
        drawn |= {id(pair.candidate) for pair in best}
    return sample, [*_shortfall(queue, count, sample), *_one_sided(queue, pools)]


def _shares(
    queue: str, count: int, frames: Mapping[str, Sequence[object]], pools: Sequence[TaskPool]
) -> dict[str, int]:
    """Return how many pairs each way draws; an error if none can draw any."""
    if queue != MIXED and frames[queue]:
        return {queue: count}
    others = [name for name in (DISAGREEMENTS, NEAR_CUT, HOLES) if frames[name]] if queue == MIXED else []
    if others:
        rest = count // 2
        parts = [rest // len(others) + (place < rest % len(others)) for place in range(len(others))]
        return {RANDOM: count - rest, **dict(zip(others, parts, strict=True))}
    if queue == RANDOM:
        raise R2medError("there is no pair to draw: name a task with judgements, or runs")
    if any(pool.runs or pool.built for pool in pools):
        raise R2medError(f"no pair is one for --queue {queue}; try --queue {RANDOM}")
    raise R2medError(f"--queue {queue} needs runs or a build to look at: add systems to --from, such as bm25")


def _shortfall(queue: str, count: int, sample: Mapping[str, Stratum]) -> Iterator[str]:
    total = sum(len(stratum.pairs) for stratum in sample.values())
    if total < count:
        parts = ", ".join(f"{len(stratum.pairs)} {name}" for name, stratum in sample.items())
        yield f"only {counted(total, 'pair')} of {count} could be drawn" + (f" ({parts})" if queue == MIXED else "")


def _one_sided(queue: str, pools: Sequence[TaskPool]) -> Iterator[str]:
    frame = [pair for pool in pools for pair in pool.frame]
    if queue in (RANDOM, MIXED) and frame and all((pair.label or 0) > 0 for pair in frame):
        yield (
            "every pair that can be drawn at random is labelled relevant, which a reviewer soon notices;"
            " add systems to --from to draw from what they found, too"
        )


def _every(pools: Sequence[TaskPool]) -> Iterator[PooledPair]:
    return (PooledPair(pool, candidate) for pool in pools for candidate in pool.candidates)


def _random(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    return ((0.0, PooledPair(pool, candidate)) for pool in pools for candidate in pool.frame)


def _holes(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield finds of runs that are not judged, with how highly runs rank them."""
    for pair in _every(pools):
        verdict = pair.candidate.facts.get("verdict", "")
        unjudged = verdict == "unjudged" or (pair.candidate.found and not verdict)
        if pair.candidate.label is None and unjudged:
            yield _vote(pair), pair


def _near_cut(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield pairs close to the cut: of the judges' scores in a build, of the lists of runs otherwise."""
    for pair in _every(pools):
        margin, ranks = pair.candidate.margin, pair.candidate.ranks
        if margin is not None:
            if abs(margin) <= 1:
                yield -abs(margin), pair
        elif ranks:
            distance = abs(sum(ranks.values()) / len(ranks) - DEPTH - 0.5)
            if distance <= DEPTH / 2:
                yield -distance / DEPTH, pair


def _disagreements(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield pairs that the judges of a build grade differently, or, otherwise, on which runs and labels disagree."""
    for pair in _every(pools):
        spread = pair.candidate.spread
        if spread is not None:
            if spread > 0:
                yield spread, pair
        elif pair.pool.runs:
            distance = abs(_vote(pair) - ((pair.candidate.label or 0) > 0))
            if distance >= _APART:
                yield distance, pair


def _vote(pair: PooledPair) -> float:
    """Return how highly the runs rank a document, from 0 to 1: 1 if it is the first of all."""
    votes = [max(0.0, 1 - (rank - 1) / DEPTH) for rank in pair.candidate.ranks.values()]
    return sum(votes) / pair.pool.runs if pair.pool.runs else 0.0


_FRAMES: Mapping[str, Callable[[Sequence[TaskPool]], Iterator[tuple[float, PooledPair]]]] = {
    RANDOM: _random,
    DISAGREEMENTS: _disagreements,
    NEAR_CUT: _near_cut,
    HOLES: _holes,
}
