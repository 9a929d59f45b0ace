"""Words as numbers: those of at most sixteen bytes as two of them, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

WORD: Final = np.dtype("<u8")
PACKED: Final = 2 * WORD.itemsize
"""The longest word, in bytes, that can be packed."""

Column = NDArray[np.uint64]
_ONES: Final = np.uint64(0x0101010101010101)
_FILLED: Final = bytes(byte > 0 for byte in range(256))


class PackedWords(NamedTuple):
    """Words of at most sixteen bytes, none of them zero."""

    low: Column
    """Bytes 0 to 7 as a number, zeros behind the end."""
    high: Column
    """Bytes 8 to 15."""

    @classmethod
    def of(cls, words: Sequence[bytes]) -> PackedWords:
        """Some words, packed.

        >>> PackedWords.of([b"renal", b"cardiomyopathy"]).words()
        [b'renal', b'cardiomyopathy']
        """
        columns = np.array(words, dtype=f"S{PACKED}").view(WORD).reshape(-1, 2)
        return cls(columns[:, 0].copy(), columns[:, 1].copy())

    @classmethod
    def joined(cls, parts: Sequence[PackedWords]) -> PackedWords:
        """The words of several columns, end to end."""
        none = np.empty(0, dtype=WORD)
        return cls(*(np.concatenate([none, *columns]) for columns in zip((none, none), *parts, strict=True)))

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.low)

    def at(self, places: NDArray[np.intp]) -> PackedWords:
        """The words at some places."""
        return PackedWords(self.low.take(places, mode="clip"), self.high.take(places, mode="clip"))

    def part(self, start: int, stop: int) -> PackedWords:
        """The words from one place to another."""
        return PackedWords(self.low[start:stop], self.high[start:stop])

    def letters(self) -> bytes:
        """All bytes, sixteen a word."""
        return np.stack([self.low, self.high], axis=1).tobytes()

    def words(self) -> list[bytes]:
        """The words one by one."""
        # numpy drops the zeros at the end.
        found: list[bytes] = np.frombuffer(self.letters(), dtype=f"S{PACKED}").tolist()
        return found

    def lengths(self) -> NDArray[np.int64]:
        """How many bytes each word has.

        >>> PackedWords.of([b"is", b"hypertensive"]).lengths().tolist()
        [2, 12]
        """
        filled = np.frombuffer(self.letters().translate(_FILLED), dtype=WORD)
        # The highest byte of the product is the sum of all eight.
        sums = (filled * _ONES >> np.uint64(56)).astype(np.int64)
        return sums[0::2] + sums[1::2]

    def have(self, table: bytes) -> NDArray[np.bool_]:
        """Which words have a byte for which a table has anything but zero."""
        marks = np.frombuffer(self.letters().translate(table), dtype=WORD)
        found: NDArray[np.bool_] = (marks[0::2] | marks[1::2]) != 0
        return found

    def bits(self, table: bytes) -> Column:
        """A bit for each byte of a word, the first one the lowest, set where a table has a 1.

        >>> PackedWords.of([b"1.5", b"2,000.5"]).bits(bytes(byte in b".," for byte in range(256))).tolist()
        [2, 34]
        """
        marks = np.frombuffer(self.letters().translate(table), dtype=np.uint8).reshape(-1, PACKED)
        return np.packbits(marks, axis=1, bitorder="little").view("<u2").ravel().astype(np.uint64)


class WordList(NamedTuple):
    """Words of any length: the packed ones, then the longer ones."""

    packed: PackedWords
    long: list[bytes]

    @classmethod
    def of(cls, words: Sequence[bytes]) -> tuple[WordList, NDArray[np.intp]]:
        """Some words, and which of those given each of the list is."""
        long = np.fromiter((len(word) > PACKED for word in words), dtype=bool, count=len(words))
        short = PackedWords.of([word for word in words if len(word) <= PACKED])
        return cls(short, [word for word in words if len(word) > PACKED]), np.argsort(long, kind="stable")

    @property
    def size(self) -> int:
        """How many there are."""
        return self.packed.size + len(self.long)

    def words(self) -> list[bytes]:
        """The words one by one."""
        return self.packed.words() + self.long
