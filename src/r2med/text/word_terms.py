"""The terms of many distinct pieces of text at once: most are one word of letters and digits, stemmed by columns."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.text.analyzer import STOP_WORDS, analyze_pieces
from r2med.text.packed_words import PackedWords, WordList
from r2med.text.porter_columns import stem_columns
from r2med.text.ragged import ragged

_DIGITS: Final = b"0123456789"
_NOT_PLAIN: Final = bytes(byte > 0 and byte not in b"abcdefghijklmnopqrstuvwxyz" + _DIGITS for byte in range(256))
_NOT_NUMERIC: Final = bytes(byte > 0 and byte not in b".," + _DIGITS for byte in range(256))
_POINT: Final = bytes(byte in b".," for byte in range(256))
_STOP_WORDS: Final = np.sort(PackedWords.of([word.encode() for word in STOP_WORDS]).low)
"""All of them have at most eight letters."""


class WordTerms(NamedTuple):
    """The terms of some pieces."""

    counts: NDArray[np.int64]
    """How many terms each piece has."""
    terms: WordList
    """The terms, in some order."""
    places: NDArray[np.int64]
    """Where each of them stands if all terms stand end to end in the order of the pieces."""


def analyze_words(pieces: WordList) -> WordTerms:
    """The terms of pieces whose ASCII capitals have been lowered: those of `r2med.text.analyze_pieces`.

    >>> counts, terms, places = analyze_words(WordList(PackedWords.of([b"cells", b"the", b"1.5,mg"]), []))
    >>> counts.tolist(), terms.words(), places.tolist()
    ([1, 0, 2], [b'cell', b'1.5', b'mg'], [0, 1, 2])
    """
    packed = pieces.packed
    marked = np.flatnonzero(packed.have(_NOT_PLAIN))
    odd = marked[~_are_numbers(packed.at(marked))]
    plain = ~_are_stop_words(packed)
    plain[odd] = False
    kept = np.flatnonzero(plain)
    others = np.concatenate([odd, np.arange(packed.size, pieces.size)])
    chosen = packed.at(odd).words() + pieces.long
    tokens, token_counts = analyze_pieces(word.decode("utf-8", "surrogatepass") for word in chosen)

    counts = np.zeros(pieces.size, dtype=np.int64)
    counts[kept] = 1
    counts[others] = token_counts
    starts = np.cumsum(counts) - counts
    more, order = WordList.of([token.encode("utf-8", "surrogatepass") for token in tokens])
    # A number with a point ends in a digit, as no word does that stemming would change.
    terms = WordList(PackedWords.joined([stem_columns(packed.at(kept)), more.packed]), more.long)
    return WordTerms(counts, terms, np.concatenate([starts[kept], ragged(starts[others], counts[others])[order]]))


def _are_stop_words(words: PackedWords) -> NDArray[np.bool_]:
    near = _STOP_WORDS.take(np.searchsorted(_STOP_WORDS, words.low), mode="clip")
    found: NDArray[np.bool_] = (near == words.low) & (words.high == 0)
    return found


def _are_numbers(words: PackedWords) -> NDArray[np.bool_]:
    """Which words are digits with single points or commas between them, so that all of it is one term."""
    points, lengths = words.bits(_POINT), words.lengths().astype(np.uint64)
    doubled = points & (points << np.uint64(1) | np.uint64(1))
    found: NDArray[np.bool_] = (doubled == 0) & (points >> lengths - np.uint64(1) == 0)
    return found & ~words.have(_NOT_NUMERIC)
