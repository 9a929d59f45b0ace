"""The table of all runs of 13 words of some texts.

Hashes of all runs of so many words: 13-grams, shingles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.lookup import HashTable, Places, by_size
from r2med.leakage.settings import COMMON, GRAM
from r2med.leakage.word_hashes import Hashes, Words, offsets_of

_WORDS_AT_ONCE = 1_000_000
_TOP = np.uint64(60)


def gram_table(words: Words, texts: Places) -> HashTable:
    """Every run of 13 words of these texts, once a text, without those that more than `COMMON` of them have."""
    total = int(ngram_counts(words, GRAM)[texts].sum())
    keys, owners = np.empty(total, dtype=np.uint64), np.empty(total, dtype=np.int32)
    done = 0
    for some in text_portions(words, texts):
        made = ngrams(words.select(some), GRAM)
        part = slice(done, done + len(made.hashes))
        keys[part], owners[part] = made.hashes, np.repeat(some, made.counts)
        done = part.stop
    # Sorted a sixteenth at a time: a sort of the whole would need three times the memory.
    sixteenths = (np.flatnonzero(keys >> _TOP == top) for top in range(16))
    parts = [_rare(keys[here], owners[here]) for here in sixteenths]
    return HashTable(np.concatenate([part.keys for part in parts]), np.concatenate([part.owners for part in parts]))


def _rare(keys: Hashes, owners: NDArray[np.int32]) -> HashTable:
    """A table of runs, each once a text, without those of too many texts."""
    found = HashTable.of(keys, owners)
    # The sort keeps the order of texts, so a run that a text repeats stands beside itself.
    new = np.ones(len(found), dtype=bool)
    new[1:] = (found.keys[1:] != found.keys[:-1]) | (found.owners[1:] != found.owners[:-1])
    keys, owners = found.keys[new], found.owners[new]
    edges = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
    held = np.diff(edges, append=len(keys))
    rare = np.repeat(held <= COMMON, held)
    return HashTable(keys[rare], owners[rare])


def text_portions(words: Words, texts: Places) -> Iterator[Places]:
    """Successive texts, about a million words at a time."""
    for portion in by_size(texts.tolist(), words.counts.__getitem__, _WORDS_AT_ONCE):
        yield np.array(portion, dtype=np.int64)


_FACTORS = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3], dtype=np.uint64)
_JOIN = np.uint64(0x589965CC75374CC3)


def ngram_hashes(words: Hashes, length: int) -> Hashes:
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


def ngram_counts(words: Words, length: int) -> NDArray[np.int64]:
    """How many runs of this length lie within each text."""
    return np.maximum(words.counts - (length - 1), 0)


def ngrams(words: Words, length: int) -> Words:
    """The runs within each text, in the place of its words.

    >>> from r2med.leakage.word_hashes import hash_words
    >>> ngrams(hash_words(["a b c d", "b c", "x"]), 2).counts.tolist()
    [3, 1, 0]
    """
    hashes = ngram_hashes(words.hashes, length)[inside(words, length)]
    return Words(hashes, offsets_of(ngram_counts(words, length)))
