"""Runs of words as hashes (13-grams, shingles), and the Jaccard similarity of texts by their sets of shingles.

Many texts and many pairs are processed at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import Places, changes, offsets_of, ragged, slices_up_to
from r2med.lexical.hashes import Hashes, Words

Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Return the distinct numbers in ascending order; `np.unique` hashes them first, which takes many times as long.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[changes(ordered)]


@dataclass(frozen=True)
class HashTable:
    """Hashes in ascending order, each with the number of the text it belongs to; a hash may have several."""

    keys: Hashes
    owners: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Hashes, owners: NDArray[np.integer[Any]]) -> HashTable:
        """Build a table of hashes in any order; the texts of one hash stay in the order given."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], owners[order].astype(np.int32, copy=False))

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Find which of the hashes are here, by place, and their texts; a hash of several texts is repeated.

        >>> table = HashTable.of(np.array([9, 4, 9], dtype=np.uint64), np.array([0, 1, 2]))
        >>> [found.tolist() for found in table.find(np.array([4, 5, 9], dtype=np.uint64))]
        [[0, 2, 2], [1, 0, 2]]
        """
        here, starts, counts = self.locate(hashes)
        return np.repeat(here, counts), self.texts(starts, counts)

    def locate(self, hashes: Hashes) -> tuple[Places, Places, Places]:
        """Find which of the hashes are here, by place, where the texts of each begin, and how many they are."""
        if not len(self.keys):
            none = np.empty(0, dtype=np.int64)
            return none, none, none
        first = np.searchsorted(self.keys, hashes)
        here = np.flatnonzero(self.keys[np.minimum(first, len(self.keys) - 1)] == hashes)
        first = first[here]
        return here, first, np.searchsorted(self.keys, hashes[here], side="right") - first

    def texts(self, starts: Places, counts: Places) -> Places:
        """Return the texts of hashes that were located."""
        return self.owners[ragged(starts, counts)].astype(np.int64)


_FACTORS = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3], dtype=np.uint64)
_JOIN = np.uint64(0x589965CC75374CC3)
_AT_ONCE = 1 << 21  # shingles processed at a time
_PAIR_BITS = np.uint64(22)


def ngram_hashes(words: Hashes, length: int) -> Hashes:
    """Hash the run of `length` words that starts at each word; runs may cross from one text into the next.

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
    """Mark the runs that lie within one text."""
    within = np.ones(max(0, len(words.hashes) - length + 1), dtype=bool)
    for back in range(1, length):
        places = words.offsets[1:][words.counts >= back] - back
        within[places[places < len(within)]] = False
    return within


def ngram_counts(words: Words, length: int) -> NDArray[np.int64]:
    """Count the runs of this length within each text."""
    return np.maximum(words.counts - (length - 1), 0)


def ngrams(words: Words, length: int, whole: bool = False) -> Words:
    """Return the runs within each text, in the place of its words; with `whole`, a shorter text is one run.

    >>> from r2med.lexical.hashes import hash_words
    >>> ngrams(hash_words(["a b c d", "b c", "x"]), 2).counts.tolist()
    [3, 1, 0]
    >>> ngrams(hash_words(["a b c d", "b c", "x", "!"]), 3, whole=True).counts.tolist()
    [2, 1, 1, 0]
    """
    hashes = ngram_hashes(words.hashes, length)[inside(words, length)]
    counts = ngram_counts(words, length)
    if whole:
        short = np.flatnonzero((counts == 0) & (words.counts > 0))
        hashes = np.insert(hashes, offsets_of(counts)[short], words.select(short).text_hashes())
        counts[short] = 1
    return Words(hashes, offsets_of(counts))


def without_repeats(shingles: Words) -> Words:
    """Return the distinct runs of each text, in ascending order.

    >>> from r2med.lexical.hashes import hash_words
    >>> without_repeats(ngrams(hash_words(["a b a b", "", "a b"]), 2)).counts.tolist()
    [2, 0, 1]
    """
    texts = np.repeat(np.arange(len(shingles)), shingles.counts)
    order = np.lexsort((shingles.hashes, texts))
    hashes, texts = shingles.hashes[order], texts[order]
    new = changes(hashes) | changes(texts)
    return Words(hashes[new], offsets_of(np.bincount(texts[new], minlength=len(shingles))))


def similarities(ours: Words, theirs: Words, pairs: tuple[Places, Places]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of the shingles of each pair, the first of `ours` and the second of `theirs`.

    >>> from r2med.lexical.hashes import hash_words
    >>> ours, theirs = (ngrams(hash_words([text]), 2) for text in ("gums bleed and teeth fall", "gums bleed and heal"))
    >>> similarities(ours, theirs, (np.array([0]), np.array([0]))).tolist()
    [0.4]
    """
    sizes = ours.counts[pairs[0]] + theirs.counts[pairs[1]]
    parts = [_some(ours, theirs, (pairs[0][part], pairs[1][part])) for part in slices_up_to(sizes, _AT_ONCE)]
    return np.concatenate([np.empty(0), *parts])


def _some(ours: Words, theirs: Words, pairs: tuple[Places, Places]) -> NDArray[np.float64]:
    one, other = _sets(ours, pairs[0]), _sets(theirs, pairs[1])
    both = np.sort(np.concatenate([one, other]))
    shared = _counts(both[1:][both[1:] == both[:-1]], len(pairs[0]))
    either = _counts(both, len(pairs[0])) - shared
    shares: NDArray[np.float64] = shared / np.maximum(either, 1)
    return shares


def _sets(shingles: Words, texts: Places) -> Hashes:
    """Return the distinct shingles of texts; the number of the pair in the upper bits, 42 bits of hash below."""
    words = shingles.select(texts)
    numbers = np.repeat(np.arange(len(texts), dtype=np.uint64), words.counts)
    return distinct(numbers << (np.uint64(64) - _PAIR_BITS) | words.hashes >> _PAIR_BITS)


def _counts(keys: Hashes, pairs: int) -> NDArray[np.int64]:
    return np.bincount((keys >> (np.uint64(64) - _PAIR_BITS)).astype(np.int64), minlength=pairs)
