"""A passage as the desk shows it: by sentences, matching words marked, long stretches without a match folded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from r2med.build.chunks import sentences
from r2med.text.highlight import Kinds, Part, WordMark, marks

LONG = 1500
"""Characters of a text that is shown whole."""
LONGEST = 200_000
"""Characters that are shown at all: nobody reads more, and a genome has millions."""
_LEAST = 300
"""A stretch with fewer characters is not worth a fold."""
_LONGEST = 600
"""A sentence with more characters is cut between words: tables and genomes have no full stops."""


class Sentence(NamedTuple):
    """A sentence from character to character, in stretches that are marked or not."""

    start: int
    end: int
    parts: tuple[Part, ...]

    @property
    def matches(self) -> bool:
        """Whether a word of it is marked."""
        return any(part.kind for part in self.parts)


class Stretch(NamedTuple):
    """Sentences that stand together, in view or folded."""

    sentences: tuple[Sentence, ...]
    folded: bool

    @property
    def letters(self) -> int:
        """How long it is."""
        return self.sentences[-1].end - self.sentences[0].start


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


def lay_out(text: str, kinds: Kinds) -> list[Stretch]:
    """A text in stretches: of a long one, sentences far from any match are folded; the first is always in view."""
    text = text[:LONGEST]
    words = list(marks(text, kinds))
    starts = [word.start for word in words]
    found = [
        _sentence(text, start, end, words[bisect_left(starts, start) : bisect_left(starts, end)])
        for start, end in sentence_places(text)
    ]
    if not found:
        return []
    if len(text) <= LONG:
        return [Stretch(tuple(found), folded=False)]
    shown = [each.matches for each in found]
    near = [place == 0 or any(shown[max(0, place - 1) : place + 2]) for place in range(len(found))]
    return _joined(found, near)


def _sentence(text: str, start: int, end: int, words: Sequence[WordMark]) -> Sentence:
    found: list[Part] = []
    done = start
    for word in words:
        stop = min(word.end, end)
        found += [Part(text[done : word.start]), Part(text[word.start : stop], word.kind)]
        done = stop
    parts = (*found, Part(text[done:end]))
    return Sentence(start, end, tuple(part for part in parts if part.text))


def _joined(parts: Sequence[Sentence], near: Sequence[bool]) -> list[Stretch]:
    """Neighbours of a kind together; a fold that would hide next to nothing is left open."""
    groups = _grouped([not shown for shown in near], parts)
    folded = [each.folded and each.letters >= _LEAST for each in groups for _ in each.sentences]
    return _grouped(folded, parts)


def _grouped(folded: Sequence[bool], parts: Sequence[Sentence]) -> list[Stretch]:
    runs = groupby(zip(folded, parts, strict=True), key=itemgetter(0))
    return [Stretch(tuple(sentence for _, sentence in run), fold) for fold, run in runs]
