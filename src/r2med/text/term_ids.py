"""A growing hash table that numbers words as they are first met, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.text.packed_words import PACKED, WORD, Column, PackedWords, WordList

_PORTION: Final = 1 << 15
"""How many words are numbered at a time: few enough that their keys stay near the processor."""
_BYTES_A_LONG_WORD: Final = 200
"""One that cannot be packed, with its number."""


class SortedTerms(NamedTuple):
    """Terms in alphabetical order, that of their bytes."""

    names: list[bytes]
    numbers: NDArray[np.int64]


class TermIds:
    """Numbers words 0, 1, 2, ... as they are first met.

    >>> ids = TermIds()
    >>> numbers, new = ids.number(PackedWords.of([b"to", b"be", b"or", b"not", b"to", b"be"]))
    >>> [new.words()[number] for number in numbers]
    [b'to', b'be', b'or', b'not', b'to', b'be']
    """

    def __init__(self) -> None:
        self._count = 0
        self._long: dict[bytes, int] = {}
        self._clear(17)

    def _clear(self, bits: int) -> None:
        self._bits = bits
        # No word is empty: where the low half is zero, a place is free. Memory is taken as places are.
        self._low = np.zeros(1 << bits, dtype=WORD)
        self._high = np.zeros(1 << bits, dtype=WORD)
        self._number = np.zeros(1 << bits, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The size of the table, and of the next larger one that it is copied to when it is half full."""
        table = self._low.nbytes + self._high.nbytes + self._number.nbytes
        return 3 * table + _BYTES_A_LONG_WORD * len(self._long)

    def number(self, words: PackedWords, long: Sequence[bytes] = ()) -> tuple[NDArray[np.int32], WordList]:
        """The number of each of some words, packed ones and then longer ones, and the words never met before."""
        numbers = np.empty(words.size + len(long), dtype=np.int32)
        new: list[PackedWords] = []
        # In portions: what one has taught the table is found by the next, so that little is ever sorted.
        for start in range(0, words.size, _PORTION):
            portion = words.part(start, start + _PORTION)
            found = self._find(portion)
            unknown = np.flatnonzero(found < 0)
            if len(unknown):
                found[unknown], learnt = self._learn(portion.at(unknown))
                new.append(learnt)
            numbers[start : start + portion.size] = found
        new_long = []
        for place, word in enumerate(long, words.size):
            if word not in self._long:
                self._long[word] = self._count
                self._count += 1
                new_long.append(word)
            numbers[place] = self._long[word]
        return numbers, WordList(PackedWords.joined(new), new_long)

    def by_name(self) -> SortedTerms:
        """All words in alphabetical order.

        >>> ids = TermIds()
        >>> _ = ids.number(PackedWords.of([b"wall", b"cell"]), [b"blood-brain-barrier", b"cell-wall-membrane"])
        >>> ids.by_name().names
        [b'blood-brain-barrier', b'cell', b'cell-wall-membrane', b'wall']
        """
        used = np.flatnonzero(self._low)
        long = sorted(self._long)
        beginnings = PackedWords.of([word[:PACKED] for word in long])
        low = np.concatenate([self._low[used], beginnings.low])
        high = np.concatenate([self._high[used], beginnings.high])
        numbers = np.concatenate([self._number[used], np.fromiter((self._long[word] for word in long), np.int32)])
        # A longer word comes after the one that it begins with, and longer ones are in order.
        behind = np.zeros(len(numbers), dtype=np.int32)
        behind[len(used) :] = np.arange(1, len(long) + 1)
        order = np.lexsort((behind, high.byteswap(), low.byteswap()))
        names = PackedWords(low[order], high[order]).words()
        for place in np.flatnonzero(behind[order]).tolist():
            names[place] = long[behind[order[place]] - 1]
        return SortedTerms(names, numbers[order].astype(np.int64))

    def _learn(self, words: PackedWords) -> tuple[NDArray[np.int32], PackedWords]:
        """Number words that are not in the table; a word may come several times."""
        self._make_room(words.size)
        slots, entered = self._enter(words)
        self._number[slots.take(entered)] = np.arange(self._count, self._count + len(entered), dtype=np.int32)
        self._count += len(entered)
        return self._number.take(slots), words.at(entered)

    def _slots(self, words: PackedWords) -> NDArray[np.int64]:
        mixed: Column = words.low * np.uint64(0x9E3779B97F4A7C15) + words.high * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)

    def _find(self, words: PackedWords) -> NDArray[np.int32]:
        """The numbers of words, -1 for those not in the table: linear probing, all of them in step."""
        slots = self._slots(words)
        same, full = self._compare(words, slots)
        numbers = self._number.take(slots, mode="clip")
        numbers[~same] = -1
        pending = np.flatnonzero(full & ~same)
        slots = slots.take(pending)
        while len(pending):
            slots = (slots + 1) & ((1 << self._bits) - 1)
            same, full = self._compare(words.at(pending), slots)
            numbers[pending[same]] = self._number[slots[same]]
            going = np.flatnonzero(full & ~same)
            pending, slots = pending.take(going), slots.take(going)
        return numbers

    def _compare(self, words: PackedWords, slots: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which words are at their places, and which of the places are taken."""
        low = self._low.take(slots, mode="clip")  # all of them exist, and need not be looked at twice
        same: NDArray[np.bool_] = low == words.low
        same &= self._high.take(slots, mode="clip") == words.high
        return same, low != 0

    def _enter(self, words: PackedWords) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Enter words that are not in the table, without numbers: where each is now, and which of equal ones counts."""
        slots = self._slots(words)
        entered = [np.empty(0, dtype=np.intp)]
        waiting = np.arange(words.size)
        while len(waiting):
            wanted = slots.take(waiting)
            free = np.flatnonzero(self._low.take(wanted, mode="clip") == 0)
            trying, found = waiting.take(free), wanted.take(free)
            # Where several words want one place, the last of them has it; equal ones have it with it.
            self._low[found], self._high[found] = words.at(trying)
            self._number[found] = trying
            entered.append(trying[self._number.take(found) == trying])
            same, _ = self._compare(words.at(waiting), wanted)
            waiting = waiting[~same]
            slots[waiting] = (slots[waiting] + 1) & ((1 << self._bits) - 1)
        return slots, np.concatenate(entered)

    def _make_room(self, more: int) -> None:
        """Keep the table at most half full, so that probing stays short."""
        if 2 * (self._count + more) <= 1 << self._bits:
            return
        used = np.flatnonzero(self._low)
        words, numbers = PackedWords(self._low[used], self._high[used]), self._number[used]
        self._clear((4 * (self._count + more) - 1).bit_length())
        slots, _ = self._enter(words)
        self._number[slots] = numbers
