"""Sampling of candidates for review: at random, by disagreement of sources, near the cut, holes, or a mixture.

What was drawn at random stands for all that could have been drawn, so it alone may feed an estimate. What was chosen
because something is odd about it may not, and says so: every item keeps how it was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.errors import R2medError
from r2med.formatting import counted
from r2med.reviews.pool import DEPTH, Candidate, TaskPool
from r2med.reviews.rows import DISAGREEMENTS, HOLES, NEAR_CUT, RANDOM

MIXED = "mixed"
QUEUES = (RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, MIXED)
_APART = 0.5
"""What systems and labels say of a pair differs when it differs by this much of the scale."""


class PooledPair(NamedTuple):
    """A candidate and the pool that it is in."""

    pool: TaskPool
    candidate: Candidate


@dataclass(frozen=True)
class Draw:
    """Result of a draw."""

    pairs: Mapping[str, Sequence[PooledPair]]
    """By how they were drawn."""
    frames: Mapping[str, int]
    """How many pairs each way could draw from."""
    notes: tuple[str, ...] = ()


def draw(pools: Sequence[TaskPool], queue: str, count: int, seed: int) -> Draw:
    """Draw pairs from a queue; `mixed` draws half of them at random, the rest in equal parts from the other queues."""
    chance = random.Random(f"{seed}\tdraw")
    frames = {name: list(_FRAMES[name](pools)) for name in _FRAMES}
    wanted = _shares(queue, count, {name: len(frame) for name, frame in frames.items()}, pools)
    taken: set[int] = set()
    pairs: dict[str, Sequence[PooledPair]] = {}
    for name, number in wanted.items():
        open_pairs = [(worth, pair) for worth, pair in frames[name] if id(pair.candidate) not in taken]
        pairs[name] = _best(open_pairs, number, chance)
        taken |= {id(pair.candidate) for pair in pairs[name]}
    notes = [*_shortfall(queue, count, pairs), *_one_sided(queue, pools)]
    return Draw(pairs, {name: len(frames[name]) for name in wanted}, tuple(notes))


def _best(pairs: Sequence[tuple[float, PooledPair]], count: int, chance: random.Random) -> list[PooledPair]:
    """Return the pairs worth most, ties in random order; if all are worth the same, a random sample."""
    shuffled = list(pairs)
    chance.shuffle(shuffled)
    return [pair for _, pair in sorted(shuffled, key=lambda each: -each[0])[:count]]


def _shares(queue: str, count: int, sizes: Mapping[str, int], pools: Sequence[TaskPool]) -> dict[str, int]:
    if queue != MIXED:
        if not sizes[queue]:
            raise R2medError(_why_empty(queue, pools))
        return {queue: count}
    others = [name for name in (DISAGREEMENTS, NEAR_CUT, HOLES) if sizes[name]]
    if not others:
        raise R2medError(_why_empty(MIXED, pools))
    rest = count // 2
    parts = [rest // len(others) + (place < rest % len(others)) for place in range(len(others))]
    return {RANDOM: count - rest, **dict(zip(others, parts, strict=True))}


def _why_empty(queue: str, pools: Sequence[TaskPool]) -> str:
    if queue == RANDOM:
        return "there is no pair to draw: name a task with judgements, or runs"
    if any(pool.runs or pool.built for pool in pools):
        return f"no pair is one for --queue {queue}; try --queue {RANDOM}"
    return f"--queue {queue} needs runs or a build to look at: add systems to --from, such as bm25"


def _shortfall(queue: str, count: int, pairs: Mapping[str, Sequence[PooledPair]]) -> Iterator[str]:
    found = sum(map(len, pairs.values()))
    if found < count:
        parts = ", ".join(f"{len(several)} {name}" for name, several in pairs.items())
        yield f"only {counted(found, 'pair')} of {count} could be drawn" + (f" ({parts})" if queue == MIXED else "")


def _one_sided(queue: str, pools: Sequence[TaskPool]) -> Iterator[str]:
    frame = [each for pool in pools for each in pool.frame]
    if queue in (RANDOM, MIXED) and frame and all((each.label or 0) > 0 for each in frame):
        yield (
            "every pair that can be drawn at random is labelled relevant, which a reviewer soon notices;"
            " add systems to --from to draw from what they found, too"
        )


def _every(pools: Sequence[TaskPool]) -> Iterator[PooledPair]:
    return (PooledPair(pool, each) for pool in pools for each in pool.candidates)


def _random(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    return ((0.0, PooledPair(pool, each)) for pool in pools for each in pool.frame)


def _holes(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield finds of runs that are not judged, with how highly runs rank them."""
    for pair in _every(pools):
        each = pair.candidate
        verdict = each.facts.get("verdict", "")
        if each.label is None and (verdict == "unjudged" or (each.found and not verdict)):
            yield _vote(pair), pair


def _near_cut(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield pairs close to the cut: of the judges' scores in a build, of the lists of runs otherwise."""
    for pair in _every(pools):
        each = pair.candidate
        if each.margin is not None:
            if abs(each.margin) <= 1:
                yield -abs(each.margin), pair
        elif each.ranks:
            away = abs(sum(each.ranks.values()) / len(each.ranks) - DEPTH - 0.5)
            if away <= DEPTH / 2:
                yield -away / DEPTH, pair


def _disagreements(pools: Sequence[TaskPool]) -> Iterator[tuple[float, PooledPair]]:
    """Yield pairs that the judges of a build grade differently, or, otherwise, on which runs and labels disagree."""
    for pair in _every(pools):
        each = pair.candidate
        if each.spread is not None:
            if each.spread > 0:
                yield each.spread, pair
        elif pair.pool.runs:
            apart = abs(_vote(pair) - ((each.label or 0) > 0))
            if apart >= _APART:
                yield apart, pair


def _vote(pair: PooledPair) -> float:
    """Return how highly the runs rank a document, from 0 to 1: 1 if it is the first of all."""
    places = [max(0.0, 1 - (rank - 1) / DEPTH) for rank in pair.candidate.ranks.values()]
    return sum(places) / pair.pool.runs if pair.pool.runs else 0.0


_FRAMES: Mapping[str, Callable[[Sequence[TaskPool]], Iterator[tuple[float, PooledPair]]]] = {
    RANDOM: _random,
    DISAGREEMENTS: _disagreements,
    NEAR_CUT: _near_cut,
    HOLES: _holes,
}
