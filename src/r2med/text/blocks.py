"""Cutting texts into pieces and numbering the distinct ones, whole blocks of documents at a time.

A piece is what lies between two characters that no token contains. A corpus of 29 million words has a few hundred
thousand distinct pieces, so it is enough to analyze each of those once; what remains, cutting the text and finding the
number of each piece, is done here by numpy on UTF-8 bytes, without a Python loop over words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.text import BREAK

_WORD = np.dtype("<u8")
PACKED = 2 * _WORD.itemsize
"""The longest piece, in bytes, that fits into its two-word key; longer ones are few and go through a dict."""
_PORTION = 1 << 15
"""How many pieces are numbered at a time: few enough that their keys stay near the processor."""


def _byte_table() -> bytes:
    """What each byte becomes: zero for a break, lower case for a capital (the analyzer ignores case in any event)."""
    table = bytearray(range(256))
    for character in filter(str.isascii, BREAK):
        table[ord(character)] = 0
    for capital in range(ord("A"), ord("Z") + 1):
        table[capital] = capital + 32
    return bytes(table)


_BYTES = _byte_table()
_FIRST = np.array([(1 << 8 * length) - 1 for length in range(_WORD.itemsize + 1)], dtype=_WORD)
"""Masks that keep the first 0, 1, ... 8 bytes of a word."""


class JoinedTexts(NamedTuple):
    """Texts as one stretch of UTF-8, a zero byte before each of them and some behind the last."""

    data: bytes
    lengths: NDArray[np.int64]
    """How many bytes each text has."""


def join_texts(texts: Sequence[str]) -> JoinedTexts:
    """Some texts end to end; a lone surrogate, which cannot be encoded strictly, passes through as it is."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return JoinedTexts(b"\0" + b"\0".join(encoded) + b"\0" * (PACKED + 1), lengths)


@dataclass(frozen=True)
class Pieces:
    """The pieces of a block of texts, as columns."""

    data: bytes
    """The block, every break a zero byte."""
    starts: NDArray[np.int64]
    """Where each piece starts in the data."""
    lengths: NDArray[np.int64]
    """How many bytes it has."""
    low: NDArray[np.uint64]
    """Its bytes 0 to 7 as a number, zeros behind its end."""
    high: NDArray[np.uint64]
    """Its bytes 8 to 15."""
    owners: NDArray[np.int64]
    """Which of the block's texts it comes from."""

    def text(self, place: int) -> str:
        """One piece as text."""
        start = self.starts[place]
        return _decode(self.data[start : start + self.lengths[place]])


def cut(texts: Sequence[str], table: bytes = _BYTES) -> Pieces:
    """The pieces of some texts; `table` says what each byte becomes, zero for a break (by default, the analyzer's).

    >>> pieces = cut(["Acute (renal) failure", "renal"])
    >>> [pieces.text(place) for place in range(4)], pieces.owners.tolist()
    (['acute', 'renal', 'failure', 'renal'], [0, 0, 0, 1])
    """
    return cut_joined(join_texts(texts), table)


def cut_joined(texts: JoinedTexts, table: bytes = _BYTES) -> Pieces:
    """The pieces of texts that have been joined."""
    data = texts.data.translate(table)
    filled = np.frombuffer(data, dtype=np.uint8) != 0
    edges = np.flatnonzero(filled[1:] != filled[:-1]) + 1
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]

    words = np.ndarray((len(data) - _WORD.itemsize + 1,), _WORD, data, strides=(1,))  # a word at every byte
    low = words[starts] & _FIRST[np.minimum(lengths, 8)]
    high = np.zeros(len(starts), dtype=_WORD)
    longer = np.flatnonzero(lengths > 8)
    high[longer] = words[starts[longer] + 8] & _FIRST[np.minimum(lengths[longer] - 8, 8)]

    ends = 1 + np.cumsum(texts.lengths + 1)
    held = np.diff(np.searchsorted(starts, ends), prepend=0)
    return Pieces(data, starts, lengths, low, high, np.repeat(np.arange(len(texts.lengths)), held))


class TermIds:
    """A growing hash table that numbers pieces 0, 1, 2, ... as they are first met, whole columns at a time.

    >>> numbers = TermIds()
    >>> found, new = numbers.number(cut(["to be or not to be"]))
    >>> [new[number] for number in found]
    ['to', 'be', 'or', 'not', 'to', 'be']
    """

    def __init__(self) -> None:
        self.count = 0
        self._long: dict[str, int] = {}
        self._clear(16)

    def _clear(self, bits: int) -> None:
        self._bits = bits
        self._low = np.zeros(1 << bits, dtype=_WORD)
        self._high = np.zeros(1 << bits, dtype=_WORD)
        self._number = np.full(1 << bits, -1, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """The size of the table, and of the next larger one that it is copied to when it is half full."""
        return 3 * (self._low.nbytes + self._high.nbytes + self._number.nbytes)

    def number(self, pieces: Pieces) -> tuple[NDArray[np.int32], list[str]]:
        """Each piece's number, and those that were never met before in the order of their numbers."""
        numbers = np.empty(len(pieces.starts), dtype=np.int32)
        new: list[str] = []
        # In portions: what one has taught the table is found by the next, so that little is ever sorted.
        for start in range(0, len(numbers), _PORTION):
            span = slice(start, start + _PORTION)
            numbers[span], names = self._number_keys(pieces.low[span], pieces.high[span], pieces.lengths[span] > PACKED)
            new += names
        for place in np.flatnonzero(numbers < 0).tolist():
            text = pieces.text(place)
            if text not in self._long:
                self._long[text] = self.count
                self.count += 1
                new.append(text)
            numbers[place] = self._long[text]
        return numbers, new

    def _number_keys(
        self, low: NDArray[np.uint64], high: NDArray[np.uint64], long: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], list[str]]:
        """The numbers of keys, -1 where a piece is too long for one, and the pieces never met before."""
        numbers = self._find(low, high)
        unknown = np.flatnonzero((numbers < 0) & ~long)
        numbers[unknown], new = self._learn(low[unknown], high[unknown])
        numbers[long] = -1
        return numbers, new

    def _learn(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> tuple[NDArray[np.int32], list[str]]:
        """Number keys that are not in the table; a key may come several times."""
        order = np.lexsort((low, high))
        low, high = low[order], high[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
        numbers = np.empty(len(order), dtype=np.int32)
        numbers[order] = self.count + np.cumsum(first) - 1
        keys = np.stack([low[first], high[first]], axis=1)
        self._make_room(len(keys))
        self._put(keys[:, 0], keys[:, 1], np.arange(self.count, self.count + len(keys), dtype=np.int32))
        self.count += len(keys)
        # numpy drops a byte string's zeros at the end, and there are none elsewhere; a piece holds no end of a line.
        names = b"\n".join(keys.view(f"S{PACKED}").ravel().tolist())
        return numbers, _decode(names).split("\n") if len(keys) else []

    def _slots(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int64]:
        mixed = low * np.uint64(0x9E3779B97F4A7C15) + high * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)

    def _find(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The numbers of keys, -1 for those not in the table: linear probing, all keys in step."""
        slots = self._slots(low, high)
        numbers = self._number[slots]
        other = (self._low[slots] != low) | (self._high[slots] != high)
        pending = np.flatnonzero(other & (numbers >= 0))
        slots = slots[pending]
        while len(pending):
            slots = (slots + 1) & ((1 << self._bits) - 1)
            numbers[pending] = self._number[slots]
            other = (self._low[slots] != low[pending]) | (self._high[slots] != high[pending])
            going = np.flatnonzero(other & (numbers[pending] >= 0))
            pending, slots = pending[going], slots[going]
        return numbers

    def _put(self, low: NDArray[np.uint64], high: NDArray[np.uint64], numbers: NDArray[np.int32]) -> None:
        """Enter distinct keys that are not in the table."""
        slots = self._slots(low, high)
        waiting = np.arange(len(numbers))
        while len(waiting):
            free = waiting[self._number[slots[waiting]] < 0]
            self._number[slots[free]] = numbers[free]
            # Where several keys wanted one slot, one of them has it now; the others try the next.
            settled = free[self._number[slots[free]] == numbers[free]]
            self._low[slots[settled]], self._high[slots[settled]] = low[settled], high[settled]
            waiting = np.setdiff1d(waiting, settled, assume_unique=True)
            slots[waiting] = (slots[waiting] + 1) & ((1 << self._bits) - 1)

    def _make_room(self, more: int) -> None:
        """Keep the table at most half full, so that probing stays short."""
        if 2 * (self.count + more) <= 1 << self._bits:
            return
        used = np.flatnonzero(self._number >= 0)
        low, high, numbers = self._low[used], self._high[used], self._number[used]
        self._clear((4 * (self.count + more) - 1).bit_length())
        self._put(low, high, numbers)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
