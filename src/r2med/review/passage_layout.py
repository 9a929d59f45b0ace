"""A passage as the desk shows it: whole, by sentences, with matching words marked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from r2med.build.chunks import sentences
from r2med.text.highlight import Kinds, Part, WordMark, marks

LONGEST = 200_000
"""Characters that are shown at all: nobody reads more, and a genome has millions."""
_LONGEST = 600
"""A sentence with more characters is cut between words: tables and genomes have no full stops."""


class Sentence(NamedTuple):
    """A sentence from character to character, in stretches that are marked or not."""

    start: int
    end: int
    parts: tuple[Part, ...]


def sentence_places(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end; put together they are the text, but for blanks before the first.

    >>> text = "It has 2.5 mg. Gums bleed, e.g. often! Then"
    >>> [text[start:end] for start, end in sentence_places(text)]
    ['It has 2.5 mg. ', 'Gums bleed, e.g. often! ', 'Then']
    """
    starts = [start for start, _ in sentences(text)]
    for start, end in pairwise([*starts, len(text)]):
        while end - start > _LONGEST:
            cut = text.rfind(" ", start, start + _LONGEST) + 1
            cut = cut if cut > start else start + _LONGEST
            yield start, cut
            start = cut
        yield start, end


def lay_out(text: str, kinds: Kinds) -> list[Sentence]:
    """Split a text into sentences with its matching words marked."""
    text = text[:LONGEST]
    words = list(marks(text, kinds))
    starts = [word.start for word in words]
    return [
        _sentence(text, start, end, words[bisect_left(starts, start) : bisect_left(starts, end)])
        for start, end in sentence_places(text)
    ]


def _sentence(text: str, start: int, end: int, words: Sequence[WordMark]) -> Sentence:
    found: list[Part] = []
    done = start
    for word in words:
        stop = min(word.end, end)
        found += [Part(text[done : word.start]), Part(text[word.start : stop], word.kind)]
        done = stop
    parts = (*found, Part(text[done:end]))
    return Sentence(start, end, tuple(part for part in parts if part.text))
