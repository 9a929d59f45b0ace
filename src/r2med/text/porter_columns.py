"""The Porter stemmer over whole columns of words: what `r2med.text.porter` says of each, without a loop over them.

A word of at most sixteen bytes is a number of 128 bits whose last byte is its last letter. So a suffix is found by a
mask, and cut by a shift; which letters are vowels is a number too, of a bit a letter, from which measures are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.text.packed_words import PACKED, Column, PackedWords
from r2med.text.porter import CHANGED, DERIVED, STEP_2, STEP_3, STEP_4

_Places = NDArray[np.intp]
_Mask = NDArray[np.bool_]
_Rule = TypeVar("_Rule", tuple[str, str], tuple[str, int])

_BYTE: Final = np.uint64(8)
_HALF: Final = np.array(64, dtype=np.uint64)
"""Half the bits of a word. A shift by more of them leaves nothing, and one by fewer than none wraps around to many."""
_SECOND: Final = np.uint64(0xFF00)
_BELOW: Final = (np.uint64(1) << np.arange(PACKED + 1, dtype=np.uint64)) - np.uint64(1)
"""Masks of the first 0, 1, ... 16 letters."""
_VOWELS: Final = bytes(byte in b"aeiou" for byte in range(256))
_Y: Final = bytes(byte == ord("y") for byte in range(256))


class _Words:
    """Words that are being stemmed."""

    def __init__(self, head: Column, tail: Column, lengths: Column) -> None:
        self.head, self.tail, self.lengths = head, tail, lengths
        """All letters but the last eight; those, of which the last is the lowest byte; how many there are."""

    @classmethod
    def aligned(cls, words: PackedWords) -> Self:
        """Words as they stand in columns."""
        lengths = words.lengths().astype(np.uint64)
        blank = (np.uint64(PACKED) - lengths) * _BYTE
        return cls(*_shifted(words.low.byteswap(), words.high.byteswap(), blank), lengths)

    def columns(self) -> PackedWords:
        """The words as they stand in columns."""
        blank = (np.uint64(PACKED) - self.lengths) * _BYTE
        carried: Column = self.tail >> _HALF - blank | self.tail << blank - _HALF
        head, tail = self.head << blank | carried, self.tail << blank
        return PackedWords(head.byteswap(), tail.byteswap())

    def at(self, places: _Places) -> _Words:
        """Some of the words, to be put back when they are done."""
        return _Words(self.head[places], self.tail[places], self.lengths[places])

    def put(self, places: _Places, words: _Words) -> None:
        """Put back what was taken."""
        self.head[places], self.tail[places], self.lengths[places] = words.head, words.tail, words.lengths

    def drop(self, places: _Places, letters: int | Column) -> None:
        """Take the last letters off some words."""
        count = np.asarray(letters, dtype=np.uint64)
        self.head[places], self.tail[places] = _shifted(self.head[places], self.tail[places], count * _BYTE)
        self.lengths[places] -= count

    def append(self, places: _Places, letters: str) -> None:
        """Put letters behind some words."""
        if not letters:
            return
        bits = np.uint64(8 * len(letters))
        self.head[places] = self.head[places] << bits | self.tail[places] >> _HALF - bits
        self.tail[places] = self.tail[places] << bits | _number(letters)
        self.lengths[places] += np.uint64(len(letters))

    def end_in(self, suffix: str) -> _Mask:
        """Which words have a suffix."""
        return _ends(self.tail, suffix)

    def end_like(self, table: _Mask) -> _Places:
        """The places of the words whose last two letters are in a table."""
        return np.flatnonzero(table[self.tail & np.uint64(0xFFFF)])

    def vowels(self) -> Column:
        """Which letters are vowels, the first one the lowest bit; a y is one where it follows a consonant."""
        words = self.columns()
        plain, after_consonant = words.bits(_VOWELS), words.bits(_Y)
        after_consonant &= ~np.uint64(1)
        found = plain | after_consonant & ~(plain << np.uint64(1))
        while True:
            # In a row of them each depends on the one before.
            again = plain | after_consonant & ~(found << np.uint64(1))
            if np.array_equal(again, found):
                return found
            found = again


def _shifted(head: Column, tail: Column, bits: Column) -> tuple[Column, Column]:
    """Numbers of 128 bits, shifted to their lower end."""
    carried = head << _HALF - bits | head >> bits - _HALF
    return head >> bits, tail >> bits | carried


def _number(letters: str) -> np.uint64:
    return np.uint64(int.from_bytes(letters.encode(), "big"))


def _ends(tail: Column, suffix: str) -> _Mask:
    found: _Mask = (tail & np.uint64((1 << 8 * len(suffix)) - 1)) == _number(suffix)
    return found


def _one_of(letters: str, last: Column) -> _Mask:
    found: _Mask = last == ord(letters[0])
    for letter in letters[1:]:
        found |= last == ord(letter)
    return found


def _table(endings: Iterable[str]) -> _Mask:
    """The pairs of letters, as numbers, that are or end in one of some endings."""
    found = np.zeros(1 << 16, dtype=bool)
    for ending in endings:
        found[int(_number(ending)) :: 1 << 8 * len(ending)] = True
    return found


_BUSY: Final = _table([*"sdgye", *CHANGED])
_DERIVABLE: Final = _table(DERIVED)


def _changes(vowels: Column, lengths: Column) -> Column:
    """Where a vowel is followed by a consonant, within the first letters: as many bits as the measure says."""
    found: Column = vowels & ~(vowels >> np.uint64(1)) & _BELOW[np.maximum(lengths, 1).view(np.int64) - 1]
    return found


def _measure_above_1(vowels: Column, lengths: Column) -> _Mask:
    changes = _changes(vowels, lengths)
    found: _Mask = changes & changes - np.uint64(1) > 0
    return found


def _has_vowel(vowels: Column, lengths: Column) -> _Mask:
    found: _Mask = vowels & _BELOW[lengths] > 0
    return found


def _is_short(vowels: Column, lengths: Column, last: Column) -> _Mask:
    """Which beginnings of words are consonants, one vowel and one consonant that is not w, x or y."""
    changes = _changes(vowels, lengths)
    once = (changes > 0) & (changes & changes - np.uint64(1) == 0)
    ending = vowels >> np.maximum(lengths, 3) - np.uint64(3)
    between = (ending & np.uint64(7) == 2) & (lengths >= 3)
    found: _Mask = once & between & ~_one_of("wxy", last)
    return found


def stem_columns(words: PackedWords) -> PackedWords:
    """The stems of lower-cased words of ASCII letters and digits.

    >>> stem_columns(PackedWords.of([b"assembly", b"hypertensive", b"is"])).words()
    [b'assembl', b'hypertens', b'is']
    """
    every = _Words.aligned(words)
    busy = every.end_like(_BUSY)
    busy = busy[every.lengths[busy] > 2]
    changing = every.at(busy)
    _take_inflection(changing)
    _take_derivation(changing)
    _take_final_letters(changing)
    every.put(busy, changing)
    return every.columns()


def _take_inflection(words: _Words) -> None:
    """Step 1: the endings of plurals and verbs; a final y becomes i."""
    plural = np.flatnonzero(words.end_in("s") & ~words.end_in("ss"))
    twice = _ends(words.tail[plural], "sses") | _ends(words.tail[plural], "ies")
    words.drop(plural, np.where(twice, np.uint64(2), np.uint64(1)))
    _take_verb_endings(words)
    final = np.flatnonzero(words.end_in("y"))
    last = words.at(final)
    final = final[_has_vowel(last.vowels(), last.lengths - np.uint64(1))]
    words.tail[final] ^= np.uint64(ord("y") ^ ord("i"))


def _take_verb_endings(words: _Words) -> None:
    """Step 1b: -ed and -ing, and the repair of what is left."""
    places = np.flatnonzero(words.end_in("ed") | words.end_in("ing"))
    verbs = words.at(places)
    vowels = verbs.vowels()
    agreed = verbs.end_in("eed")
    ends = np.where(verbs.end_in("ing"), np.uint64(3), np.uint64(2))
    cut = np.flatnonzero(~agreed & _has_vowel(vowels, verbs.lengths - ends))
    known = np.flatnonzero(agreed)
    verbs.drop(known[_changes(vowels[known], verbs.lengths[known] - np.uint64(3)) > 0], 1)
    verbs.drop(cut, ends[cut])

    tail, lengths, vowels = verbs.tail[cut], verbs.lengths[cut], vowels[cut]
    last = tail & np.uint64(0xFF)
    silent = _ends(tail, "at") | _ends(tail, "bl") | _ends(tail, "iz")
    doubled = (last << _BYTE == tail & _SECOND) & (vowels >> lengths - np.uint64(1) & np.uint64(1) == 0) & ~silent
    kept = _one_of("lsz", last)
    short = ~silent & ~doubled & _is_short(vowels, lengths, last)
    verbs.append(cut[silent | short], "e")
    verbs.drop(cut[doubled & ~kept], 1)
    words.put(places, verbs)


def _take_derivation(words: _Words) -> None:
    """Steps 2 to 4: shorten a double suffix, then a single one, then take off what is left of it."""
    places = words.end_like(_DERIVABLE)
    derived = words.at(places)
    # What comes before a suffix is never changed by the steps before, so that this holds for all three.
    vowels = derived.vowels()
    for step in (STEP_2, STEP_3):
        for found, (suffix, replacement) in _decided(derived, step):
            chosen = found[_changes(vowels[found], derived.lengths[found] - np.uint64(len(suffix))) > 0]
            derived.drop(chosen, len(suffix))
            derived.append(chosen, replacement)
    for found, (_, cut) in _decided(derived, STEP_4):
        derived.drop(found[_measure_above_1(vowels[found], derived.lengths[found] - np.uint64(cut))], cut)
    words.put(places, derived)


def _decided(words: _Words, step: Mapping[str, Sequence[_Rule]]) -> list[tuple[_Places, _Rule]]:
    """For each rule of a step the words for which it is the first that fits."""
    found = []
    for ending, rules in step.items():
        left = np.flatnonzero(words.end_in(ending))
        for rule in rules:
            fits = _ends(words.tail[left], rule[0])
            found.append((left[fits], rule))
            left = left[~fits]
    return found


def _take_final_letters(words: _Words) -> None:
    """Step 5: a final e, and one of two l."""
    places = np.flatnonzero(words.end_in("e") | words.end_in("ll"))
    ending = words.at(places)
    vowels = ending.vowels()
    before = ending.lengths - np.uint64(1)
    short = _is_short(vowels, before, ending.tail >> _BYTE & np.uint64(0xFF))
    ending.drop(np.flatnonzero(ending.end_in("e") & (_changes(vowels, before) > 0) & ~short), 1)
    ending.drop(np.flatnonzero(ending.end_in("ll") & _measure_above_1(vowels, ending.lengths)), 1)
    words.put(places, ending)
