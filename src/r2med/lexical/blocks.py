"""Cutting texts into pieces, whole blocks of documents at a time.

A piece is what lies between two characters that no token contains, without the stops behind it. A corpus of 29 million
words has a few hundred thousand distinct pieces, so it is enough to analyze each of those once; what remains, cutting
the text and numbering the pieces, is done by numpy on UTF-8 bytes, without a Python loop over words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.analyzer import BREAK

WORD: Final = np.dtype("<u8")
PACKED: Final = 2 * WORD.itemsize
"""The longest piece, in bytes, that can be packed."""
STOPS = ".,:;"
"""Marks that only ever belong to a token between two of its letters or digits, and mostly stand at a word's end."""


def _byte_table() -> bytes:
    """Return the translation of each byte: zero for a break, lower case for a capital (the analyzer ignores case)."""
    table = bytearray(range(256))
    for character in filter(str.isascii, BREAK):
        table[ord(character)] = 0
    for capital in range(ord("A"), ord("Z") + 1):
        table[capital] = capital + 32
    return bytes(table)


_BYTES = _byte_table()
_FIRST = np.array([(1 << 8 * length) - 1 for length in range(WORD.itemsize + 1)], dtype=WORD)
"""Masks that keep the first 0, 1, ... 8 bytes of a word."""


class PackedPieces(NamedTuple):
    """Pieces of at most sixteen bytes, none of them zero, as two columns of numbers."""

    low: NDArray[np.uint64]
    """Bytes 0 to 7 as a number, zeros behind the end."""
    high: NDArray[np.uint64]
    """Bytes 8 to 15."""

    @classmethod
    def of(cls, words: Sequence[bytes]) -> PackedPieces:
        """Pack some pieces.

        >>> PackedPieces.of([b"renal", b"cardiomyopathy"]).words()
        [b'renal', b'cardiomyopathy']
        """
        columns = np.array(words, dtype=f"S{PACKED}").view(WORD).reshape(-1, 2)
        return cls(columns[:, 0].copy(), columns[:, 1].copy())

    @property
    def size(self) -> int:
        """Return the number of pieces."""
        return len(self.low)

    def at(self, places: NDArray[np.intp]) -> PackedPieces:
        """Return the pieces at some places."""
        return PackedPieces(self.low.take(places, mode="clip"), self.high.take(places, mode="clip"))

    def part(self, start: int, stop: int) -> PackedPieces:
        """Return the pieces from one place to another."""
        return PackedPieces(self.low[start:stop], self.high[start:stop])

    def words(self) -> list[bytes]:
        """Return the pieces as bytes."""
        # numpy drops the zeros at the end.
        words: list[bytes] = np.stack([self.low, self.high], axis=1).view(f"S{PACKED}").ravel().tolist()
        return words


class JoinedTexts(NamedTuple):
    """Texts as one stretch of UTF-8, a zero byte before each of them and some behind the last."""

    data: bytes
    lengths: NDArray[np.int64]
    """Number of bytes of each text."""


def join_texts(texts: Sequence[str]) -> JoinedTexts:
    """Join texts end to end; a lone surrogate, which cannot be encoded strictly, passes through as it is."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return JoinedTexts(b"\0".join([b"", *encoded, bytes(PACKED)]), lengths)


class Pieces(NamedTuple):
    """Pieces of a block of texts, as columns."""

    data: bytes
    """The block, every break a zero byte."""
    starts: NDArray[np.int64]
    """Where each piece starts in the data."""
    lengths: NDArray[np.int64]
    """Number of bytes of each piece; 0 for a piece of stops only."""
    packed: PackedPieces
    """The pieces; of a longer one, its first sixteen bytes."""
    owners: NDArray[np.int32]
    """Index of the text in the block that each piece comes from."""

    def short(self) -> NDArray[np.intp]:
        """Return the places of the pieces that are packed as they are, without those of stops alone."""
        return np.flatnonzero((self.lengths > 0) & (self.lengths <= PACKED))

    def long(self) -> NDArray[np.intp]:
        """Return the places of the pieces that cannot be packed."""
        return np.flatnonzero(self.lengths > PACKED)

    def word(self, place: int) -> bytes:
        """Return one piece."""
        start = int(self.starts[place])
        return self.data[start : start + int(self.lengths[place])]


def cut(texts: Sequence[str], table: bytes = _BYTES, stops: str = STOPS) -> Pieces:
    """Cut texts into pieces; `table` maps each byte, a break to zero (by default, the analyzer's).

    The marks of `stops` are taken off the end of a piece.

    >>> pieces = cut(["Acute (renal) failure, 1.5", "renal."])
    >>> [pieces.word(place) for place in range(5)], pieces.owners.tolist()
    ([b'acute', b'renal', b'failure', b'1.5', b'renal'], [0, 0, 0, 0, 1])
    """
    return cut_joined(join_texts(texts), table, stops)


def cut_joined(texts: JoinedTexts, table: bytes = _BYTES, stops: str = STOPS) -> Pieces:
    """Cut texts that have been joined into pieces."""
    data = texts.data.translate(table)
    starts, lengths = _spans(np.frombuffer(data, dtype=np.uint8), stops)

    words = np.ndarray((len(data) - WORD.itemsize + 1,), WORD, data, strides=(1,))  # a word at every byte
    low = words[starts]
    low &= _FIRST.take(lengths, mode="clip")
    high = np.zeros(len(starts), dtype=WORD)
    longer = np.flatnonzero(lengths > 8)
    high[longer] = words[starts.take(longer) + 8] & _FIRST.take(lengths.take(longer) - 8, mode="clip")

    ends = 1 + np.cumsum(texts.lengths + 1)
    held = np.diff(np.searchsorted(starts, ends), prepend=0)
    owners = np.repeat(np.arange(len(texts.lengths), dtype=np.int32), held)
    return Pieces(data, starts, lengths, PackedPieces(low, high), owners)


def _spans(letters: NDArray[np.uint8], stops: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where pieces start, and how long they are without the stops behind them."""
    filled = letters != 0
    # Where the next byte is of the other kind: before a piece, at its last byte, before the next one, ...
    edges = np.flatnonzero(filled[1:] != filled[:-1])
    del filled  # to reuse its memory
    starts = edges[0::2] + 1
    return starts, _without_stops(letters, starts, edges[1::2], stops)


def _without_stops(
    letters: NDArray[np.uint8], starts: NDArray[np.int64], lasts: NDArray[np.int64], stops: str
) -> NDArray[np.int64]:
    """Return the lengths of pieces without the stops behind them."""
    is_stop = np.zeros(256, dtype=bool)
    is_stop[np.frombuffer(stops.encode(), dtype=np.uint8)] = True
    stopped = np.flatnonzero(is_stop.take(letters.take(lasts, mode="clip"), mode="clip"))
    lengths = lasts - starts
    lengths += 1
    while len(stopped):
        lengths[stopped] -= 1
        # The byte before a piece is a break, which is not a stop.
        stopped = stopped[is_stop[letters[starts[stopped] + lengths[stopped] - 1]]]
    return lengths
