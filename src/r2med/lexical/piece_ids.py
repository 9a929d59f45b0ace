"""A growing hash table that numbers pieces of text, whole columns of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.blocks import WORD, PackedPieces

_PORTION: Final = 1 << 15
"""Pieces entered at a time: the table grows with the vocabulary, not with the block."""
_BYTES_A_LONG_PIECE: Final = 200
"""Size of a piece that cannot be packed, with its number."""


class PieceIds:
    """Numbers 0, 1, 2, ... of the distinct pieces met so far.

    >>> ids = PieceIds()
    >>> ids.number(PackedPieces.of([b"to", b"be", b"or"]), [b"immunohistochemistry"])[1]
    [b'to', b'be', b'or', b'immunohistochemistry']
    >>> ids.number(PackedPieces.of([b"be", b"not"]), [])[1]
    [b'not']
    """

    def __init__(self) -> None:
        self._count = 0
        self._long: dict[bytes, int] = {}
        self._allocate(17)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        # No piece is empty: a slot is free if its low half is zero.
        self._low = np.zeros(1 << bits, dtype=WORD)
        self._high = np.zeros(1 << bits, dtype=WORD)
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
        numbers = np.empty(packed.size + len(long), dtype=np.int32)
        new: list[bytes] = []
        for start in range(0, packed.size, _PORTION):
            slots = self._enter(packed.part(start, start + _PORTION))
            found = self._number.take(slots)
            unnumbered = slots[found < 0]
            if len(unnumbered):
                # Equal pieces share a slot: one of them, the last that was written, gives it its number.
                self._number[unnumbered] = np.arange(len(unnumbered), dtype=np.int32)
                fresh = unnumbered[self._number.take(unnumbered) == np.arange(len(unnumbered))]
                self._number[fresh] = np.arange(self._count, self._count + len(fresh), dtype=np.int32)
                self._count += len(fresh)
                new += PackedPieces(self._low.take(fresh), self._high.take(fresh)).words()
                found = self._number.take(slots)
            numbers[start : start + len(found)] = found
        for place, piece in enumerate(long, packed.size):
            if piece not in self._long:
                self._long[piece] = self._count
                self._count += 1
                new.append(piece)
            numbers[place] = self._long[piece]
        return numbers, new

    def _enter(self, pieces: PackedPieces) -> NDArray[np.int64]:
        """Return the slot of each piece, entering those that have none: linear probing, all of them in step."""
        self._make_room(pieces.size)
        mixed = pieces.low * np.uint64(0x9E3779B97F4A7C15) + pieces.high * np.uint64(0xC2B2AE3D27D4EB4F)
        slots = (mixed >> np.uint64(64 - self._bits)).view(np.int64)
        waiting, wanted = np.arange(pieces.size), slots
        while len(waiting):
            low = self._low.take(wanted, mode="clip")
            free = np.flatnonzero(low == 0)
            if len(free):
                # If several pieces probe one free slot, the last of them gets it.
                self._low[wanted[free]], self._high[wanted[free]] = pieces.at(free)
                low = self._low.take(wanted, mode="clip")
            other = (low != pieces.low) | (self._high.take(wanted, mode="clip") != pieces.high)
            waiting, pieces = waiting[other], pieces.at(np.flatnonzero(other))
            wanted = (wanted[other] + 1) & ((1 << self._bits) - 1)
            slots[waiting] = wanted
        return slots

    def _make_room(self, more: int) -> None:
        """Keep the table at most half full, so that probing stays short."""
        if 2 * (self._count + more) <= 1 << self._bits:
            return
        used = np.flatnonzero(self._low)
        pieces, numbers = PackedPieces(self._low[used], self._high[used]), self._number[used]
        self._allocate((4 * (self._count + more) - 1).bit_length())
        self._number[self._enter(pieces)] = numbers
