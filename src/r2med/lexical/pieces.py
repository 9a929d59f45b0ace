"""Cutting texts into pieces and numbering these, whole blocks of documents at a time.

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
from r2med.lexical.arrays import offsets_of

_WORD: Final = np.dtype("<u8")
PACKED: Final = 2 * _WORD.itemsize  # the longest piece, in bytes, that can be packed
STOPS = ".,:;"
"""Marks that only ever belong to a token between two of its letters or digits, and mostly stand at a word's end."""
# A break is zero, a capital lower case (the analyzer ignores case), any other byte itself.
_BYTES = bytes(0 if chr(byte) in BREAK and byte < 128 else byte + 32 * (65 <= byte <= 90) for byte in range(256))
_FIRST = np.array([(1 << 8 * length) - 1 for length in range(_WORD.itemsize + 1)], dtype=_WORD)
"""Masks that keep the first 0, 1, ... 8 bytes of a word."""


class PackedPieces(NamedTuple):
    """Pieces of at most sixteen bytes, none of them zero, as two columns of numbers."""

    low: NDArray[np.uint64]  # bytes 0 to 7 as a number, zeros behind the end
    high: NDArray[np.uint64]  # bytes 8 to 15

    def take(self, places: NDArray[np.intp]) -> PackedPieces:
        """Return the pieces at some places."""
        return PackedPieces(self.low.take(places, mode="clip"), self.high.take(places, mode="clip"))

    def words(self) -> list[bytes]:
        """Return the pieces as bytes."""
        # numpy drops the zeros at the end.
        words: list[bytes] = np.stack([self.low, self.high], axis=1).view(f"S{PACKED}").ravel().tolist()
        return words


class JoinedTexts(NamedTuple):
    """Texts as one stretch of UTF-8, a zero byte before each of them and some behind the last."""

    data: bytes
    lengths: NDArray[np.int64]  # number of bytes of each text


def join_texts(texts: Sequence[str]) -> JoinedTexts:
    """Join texts end to end; a lone surrogate, which cannot be encoded strictly, passes through as it is."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return JoinedTexts(b"\0".join([b"", *encoded, bytes(PACKED)]), lengths)


class Pieces(NamedTuple):
    """Pieces of a block of texts, as columns."""

    data: bytes  # the block, every break a zero byte
    starts: NDArray[np.int64]  # where each piece starts in the data
    lengths: NDArray[np.int64]  # number of bytes of each piece; 0 for a piece of stops only
    packed: PackedPieces  # the pieces; of a longer one, its first sixteen bytes
    owners: NDArray[np.int32]  # index of the text in the block that each piece comes from

    def short(self) -> NDArray[np.intp]:
        """Return the places of the pieces that are packed whole, without those of stops alone."""
        return np.flatnonzero((self.lengths > 0) & (self.lengths <= PACKED))

    def long(self) -> NDArray[np.intp]:
        """Return the places of the pieces that cannot be packed."""
        return np.flatnonzero(self.lengths > PACKED)

    def word(self, place: int) -> bytes:
        """Return one piece."""
        start = int(self.starts[place])
        return self.data[start : start + int(self.lengths[place])]


def cut(texts: JoinedTexts, table: bytes = _BYTES, stops: str = STOPS) -> Pieces:
    """Cut texts into pieces; `table` maps each byte, a break to zero (by default, the analyzer's).

    The marks of `stops` are taken off the end of a piece.

    >>> pieces = cut(join_texts(["Acute (renal) failure, 1.5", "renal."]))
    >>> [pieces.word(place) for place in range(5)], pieces.owners.tolist()
    ([b'acute', b'renal', b'failure', b'1.5', b'renal'], [0, 0, 0, 0, 1])
    """
    data = texts.data.translate(table)
    letters = np.frombuffer(data, dtype=np.uint8)
    is_filled = letters != 0
    # Where the next byte is of the other kind: before a piece, at its last byte, before the next one, ...
    edges = np.flatnonzero(is_filled[1:] != is_filled[:-1])
    del is_filled  # to reuse its memory
    starts = edges[0::2] + 1
    lengths = edges[1::2] - edges[0::2]
    is_stop = np.zeros(256, dtype=bool)
    is_stop[np.frombuffer(stops.encode(), dtype=np.uint8)] = True
    stopped = np.flatnonzero(is_stop.take(letters.take(edges[1::2], mode="clip"), mode="clip"))
    while len(stopped):
        lengths[stopped] -= 1
        # The byte before a piece is a break, which is not a stop.
        stopped = stopped[is_stop[letters[starts[stopped] + lengths[stopped] - 1]]]

    words = np.ndarray((len(data) - _WORD.itemsize + 1,), _WORD, data, strides=(1,))  # a word at every byte
    low = words[starts]
    low &= _FIRST.take(lengths, mode="clip")
    high = np.zeros(len(starts), dtype=_WORD)
    longer = np.flatnonzero(lengths > _WORD.itemsize)
    high[longer] = words[starts.take(longer) + 8] & _FIRST.take(lengths.take(longer) - 8, mode="clip")

    counts = np.diff(np.searchsorted(starts, 1 + offsets_of(texts.lengths + 1)))
    owners = np.repeat(np.arange(len(texts.lengths), dtype=np.int32), counts)
    return Pieces(data, starts, lengths, PackedPieces(low, high), owners)


_PORTION: Final = 1 << 15  # pieces entered at a time: the table grows with the vocabulary, not with the block
_BYTES_A_LONG_PIECE: Final = 200  # size of a piece that cannot be packed, with its number


class PieceIds:
    """Growing hash table of the numbers 0, 1, 2, ... of distinct pieces, which takes whole columns of them.

    >>> ids, pieces = PieceIds(), cut(join_texts(["to be or not to be"]))
    >>> numbers, new = ids.number(pieces.packed, [b"immunohistochemistry"])
    >>> numbers.tolist(), new
    ([2, 3, 0, 1, 2, 3, 4], [b'or', b'not', b'to', b'be', b'immunohistochemistry'])
    """

    def __init__(self) -> None:
        self._count = 0
        self._long: dict[bytes, int] = {}
        self._allocate(17)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        # No piece is empty: a slot is free if its low half is zero.
        self._low = np.zeros(1 << bits, dtype=_WORD)
        self._high = np.zeros(1 << bits, dtype=_WORD)
        self._number = np.full(1 << bits, -1, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Return the bytes of the table, and of the larger one that it is copied to when it is half full."""
        table = self._low.nbytes + self._high.nbytes + self._number.nbytes
        return 3 * table + _BYTES_A_LONG_PIECE * len(self._long)

    def number(self, packed: PackedPieces, long: Sequence[bytes]) -> tuple[NDArray[np.int32], list[bytes]]:
        """Return the numbers of packed pieces, then of longer ones, and the new pieces in the order of numbers."""
        total = len(packed.low)
        numbers = np.empty(total + len(long), dtype=np.int32)
        new: list[bytes] = []
        for start in range(0, total, _PORTION):
            part = slice(start, min(start + _PORTION, total))
            slots = self._enter(PackedPieces(packed.low[part], packed.high[part]))
            numbers[part] = self._number.take(slots, mode="clip")
            unnumbered = slots[numbers[part] < 0]
            if len(unnumbered):
                # Equal pieces share a slot: one of them, the last that was written, gives it its number.
                self._number[unnumbered] = np.arange(len(unnumbered), dtype=np.int32)
                fresh = unnumbered[self._number.take(unnumbered, mode="clip") == np.arange(len(unnumbered))]
                self._number[fresh] = np.arange(self._count, self._count + len(fresh), dtype=np.int32)
                self._count += len(fresh)
                new += PackedPieces(self._low, self._high).take(fresh).words()
                numbers[part] = self._number.take(slots, mode="clip")
        for place, piece in enumerate(long, total):
            if piece not in self._long:
                self._long[piece] = self._count
                self._count += 1
                new.append(piece)
            numbers[place] = self._long[piece]
        return numbers, new

    def _enter(self, pieces: PackedPieces) -> NDArray[np.int64]:
        """Return the slot of each piece, entering those that have none: linear probing, all of them in step."""
        self._make_room(len(pieces.low))
        mixed = pieces.low * np.uint64(0x9E3779B97F4A7C15) + pieces.high * np.uint64(0xC2B2AE3D27D4EB4F)
        slots = (mixed >> np.uint64(64 - self._bits)).view(np.int64)
        waiting, probes = np.arange(len(slots)), slots
        while len(waiting):
            low = self._low.take(probes, mode="clip")
            free = np.flatnonzero(low == 0)
            if len(free):
                # If several pieces probe one free slot, the last of them gets it.
                self._low[probes[free]], self._high[probes[free]] = pieces.take(free)
                low = self._low.take(probes, mode="clip")
            differ = (low != pieces.low) | (self._high.take(probes, mode="clip") != pieces.high)
            waiting, pieces = waiting[differ], pieces.take(np.flatnonzero(differ))
            probes = (probes[differ] + 1) & ((1 << self._bits) - 1)
            slots[waiting] = probes
        return slots

    def _make_room(self, more: int) -> None:
        if 2 * (self._count + more) <= 1 << self._bits:
            return
        used = np.flatnonzero(self._low)
        pieces, numbers = PackedPieces(self._low[used], self._high[used]), self._number[used]
        self._allocate((4 * (self._count + more) - 1).bit_length())
        self._number[self._enter(pieces)] = numbers
