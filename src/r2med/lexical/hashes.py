"""Texts as numbers: their normalised words hashed to 64 bits, a whole block of texts at a time.

Unless it is said otherwise, two texts are the same when they have the same words in the same order, whatever their
case, punctuation, spacing, ligatures or width. A word is a run of letters and digits; scripts without spaces between
words (Chinese) are not segmented. With 64 bits, a collision between any of 10^8 hashes of an evaluation and any of 10^9
of training data has a chance of less than one in a hundred.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import offsets_of, ragged
from r2med.lexical.pieces import cut, join_texts

Hashes = NDArray[np.uint64]
_find_words = re.compile(r"[^\W_]+").findall
_blank_marks = re.compile(r"[^\w\x00-\x7f]+").sub
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")


def fold(text: str) -> str:
    """Fold differences of case, width, ligatures and composition.

    >>> fold("The ﬁrst Ⅳ Straße")
    'the first iv strasse'
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def normalise(text: str) -> str:
    """Return the words of a text separated by single blanks: the form in which normalised texts are compared.

    >>> normalise("  Anti-TNF, “first line” \\n(n = 12)…")
    'anti tnf first line n 12'
    """
    return " ".join(_find_words(fold(text)))


def raw_hash(text: str) -> int:
    """Return a 64-bit hash of a text as it stands."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Words:
    """Hashed words of several texts, end to end."""

    hashes: Hashes
    offsets: NDArray[np.int64]  # offsets at which each text's words start, and finally where the last end

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return the number of words of each text."""
        return np.diff(self.offsets)

    def owners(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the texts that the words at these places belong to."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def select(self, texts: NDArray[np.int64]) -> Words:
        """Return the words of some of the texts."""
        counts = self.counts[texts]
        return Words(self.hashes[ragged(self.offsets[texts], counts)], offsets_of(counts))

    def text_hashes(self) -> Hashes:
        """Return one hash per text, of all its words in their order.

        >>> one, same, other = hash_words(["Acute renal pain", "acute RENAL pain!", "renal acute pain"]).text_hashes()
        >>> bool(one == same), bool(one == other)
        (True, False)
        """
        places = np.arange(len(self.hashes)) - np.repeat(self.offsets[:-1], self.counts)
        sums = np.zeros(len(self.hashes) + 1, dtype=np.uint64)
        np.cumsum(mix64(self.hashes + places.astype(np.uint64) * _STEP), out=sums[1:])
        return mix64(sums[self.offsets[1:]] - sums[self.offsets[:-1]])


def hash_words(texts: Sequence[str], folded: Callable[[str], str] = fold, marks: str = "") -> Words:
    """Hash the words of texts, those of `normalise`.

    Another folding may be given for texts beyond ASCII, and marks of ASCII that are parts of words too.

    >>> hash_words(["p_value Straße"]).counts.tolist(), hash_words(["p_value"], marks="_").counts.tolist()
    ([3], [1])
    """
    plain = [text if text.isascii() else _blank_marks(" ", folded(text)) for text in texts]
    pieces = cut(join_texts(plain), _byte_table(marks), stops="")
    hashes = mix64(pieces.packed.low * _STEP + pieces.packed.high * _OTHER)
    for place in pieces.long().tolist():
        digest = hashlib.blake2b(pieces.word(place), digest_size=8).digest()
        hashes[place] = int.from_bytes(digest, "little")
    counts = np.bincount(pieces.owners, minlength=len(texts))
    return Words(hashes, offsets_of(counts))


@cache
def _byte_table(marks: str) -> bytes:
    """Return the translation of each UTF-8 byte: lower case for letters, zero for all that is not part of a word."""
    kept = _LETTERS | frozenset(marks.encode("ascii"))
    return bytes(
        byte if byte >= 0x80 or byte in kept else byte + 32 if byte + 32 in _LETTERS and byte >= 0x41 else 0
        for byte in range(256)
    )


def joined(parts: Sequence[Words]) -> Words:
    """Concatenate the words of several blocks of texts."""
    hashes = np.concatenate([np.empty(0, dtype=np.uint64), *(part.hashes for part in parts)])
    return Words(hashes, offsets_of(np.concatenate([np.empty(0, dtype=np.int64), *(part.counts for part in parts)])))


_STEP = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)
_SPREAD = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)


def mix64(values: Hashes) -> Hashes:
    """Mix numbers so that every bit depends on every bit of the input, which is overwritten."""
    for _ in range(2):
        values ^= values >> _HALF
        values *= _SPREAD
    values ^= values >> _HALF
    return values
