"""Hashes of all runs of so many words: 13-grams, shingles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.words import Hashes, Words, offsets_of

_FACTORS = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3], dtype=np.uint64)
_JOIN = np.uint64(0x589965CC75374CC3)


def run_hashes(words: Hashes, length: int) -> Hashes:
    """The hash of the run of `length` words that starts at each word; runs may cross from one text into the next.

    Runs of 2, 4 and 8 words are made by joining runs of half the length, and those that make up `length` are joined:
    five steps instead of twelve for 13 words.
    """
    if len(words) < length:
        return np.empty(0, dtype=np.uint64)
    size = len(words) - length + 1
    power, span, done = words, 1, 0
    total = np.zeros(size, dtype=np.uint64)
    while True:
        if length & span:
            total *= _JOIN
            total += power[done : done + size]
            done += span
        if 2 * span > length:
            return total
        power = power[:-span] * _FACTORS[span.bit_length() % len(_FACTORS)] + power[span:]
        span *= 2


def inside(words: Words, length: int) -> NDArray[np.bool_]:
    """Which of these runs lie within one text."""
    within = np.ones(max(0, len(words.hashes) - length + 1), dtype=bool)
    for back in range(1, length):
        places = words.offsets[1:][words.counts >= back] - back
        within[places[places < len(within)]] = False
    return within


def run_counts(words: Words, length: int) -> NDArray[np.int64]:
    """How many runs of this length lie within each text."""
    return np.maximum(words.counts - (length - 1), 0)


def runs(words: Words, length: int) -> Words:
    """The runs within each text, in the place of its words.

    >>> from r2med.leakage.words import hash_words
    >>> runs(hash_words(["a b c d", "b c", "x"]), 2).counts.tolist()
    [3, 1, 0]
    """
    hashes = run_hashes(words.hashes, length)[inside(words, length)]
    return Words(hashes, offsets_of(run_counts(words, length)))
