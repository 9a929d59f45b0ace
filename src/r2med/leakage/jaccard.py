"""The similarity of texts by their sets of shingles, many pairs at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.portions import stretches
from r2med.leakage.tables import Places, distinct
from r2med.leakage.words import Hashes, Words

_AT_ONCE = 1 << 21
"""How many shingles are worked on at a time."""
_PAIR_BITS = np.uint64(22)


def similarities(ours: Words, theirs: Words, pairs: tuple[Places, Places]) -> NDArray[np.float64]:
    """The Jaccard similarity of the shingles of each pair, the first of ours and the second of theirs.

    >>> from r2med.leakage.runs import runs
    >>> from r2med.leakage.words import hash_words
    >>> ours, theirs = (runs(hash_words([text]), 2) for text in ("gums bleed and teeth fall", "gums bleed and heal"))
    >>> similarities(ours, theirs, (np.array([0]), np.array([0]))).tolist()
    [0.4]
    """
    sizes = ours.counts[pairs[0]] + theirs.counts[pairs[1]]
    parts = [_some(ours, theirs, (pairs[0][part], pairs[1][part])) for part in stretches(sizes, _AT_ONCE)]
    return np.concatenate([np.empty(0), *parts])


def _some(ours: Words, theirs: Words, pairs: tuple[Places, Places]) -> NDArray[np.float64]:
    one, other = _sets(ours, pairs[0]), _sets(theirs, pairs[1])
    both = np.sort(np.concatenate([one, other]))
    shared = _counts(both[1:][both[1:] == both[:-1]], len(pairs[0]))
    either = _counts(both, len(pairs[0])) - shared
    found: NDArray[np.float64] = shared / np.maximum(either, 1)
    return found


def _sets(shingles: Words, texts: Places) -> Hashes:
    """The distinct shingles of texts; the number of the pair in the upper bits, 42 bits of hash below."""
    chosen = shingles.select(texts)
    numbers = np.repeat(np.arange(len(texts), dtype=np.uint64), chosen.counts)
    return distinct(numbers << (np.uint64(64) - _PAIR_BITS) | chosen.hashes >> _PAIR_BITS)


def _counts(keys: Hashes, pairs: int) -> NDArray[np.int64]:
    return np.bincount((keys >> (np.uint64(64) - _PAIR_BITS)).astype(np.int64), minlength=pairs)
