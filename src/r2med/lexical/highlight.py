"""Highlighting of the words of a text that match a query or answer: matched by stem, marked as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

from r2med.lexical.analyzer import BREAK_PATTERN, analyze
from r2med.lexical.segmentation import segment

_PIECE = re.compile(BREAK_PATTERN.replace("[", "[^", 1))
_WORD = re.compile(r"\S+")
_LETTERS = 12  # characters of an excerpt for each of its words: a genome is one word
_FUNCTION_WORDS = frozenset(
    "about above after again against all also although am among any anybody anything because been before being "
    "below between both can cannot could did do does doing down during each either else ever every few from "
    "further had has have having he her here hers herself him himself his how however i its itself just less let "
    "many may me might more most much must my myself neither nor now off often once one only other our ours out "
    "over own per perhaps quite rather same several shall she should since so some still than them themselves "
    "therefore those though through thus too toward towards under until up upon us very via we were what when "
    "where whether which while who whom whose why within without would yet you your yours yourself".split()
)
"""Function words beside the stop words of the analyzer: BM25 counts them, but they are not highlighted."""
_LONGEST_WORD = 200  # characters of a word that are analyzed when only an excerpt is chosen


class WordMark(NamedTuple):
    """Span of a matching word in characters, and the kind of its match."""

    start: int
    end: int
    kind: str


class Part(NamedTuple):
    """Stretch of text, marked or not (then its kind is empty)."""

    text: str
    kind: str = ""


Kinds = Mapping[str, str]  # map from a term to the kind of its mark


def kinds_of(**texts: Sequence[str]) -> dict[str, str]:
    """Map the terms of texts to their kinds; a term of several kinds has the first, function words and letters none.

    >>> kinds_of(query=["When do the gums swell?"], answer=["Scurvy of the gums"])
    {'gum': 'query', 'swell': 'query', 'scurvi': 'answer'}
    """
    kinds: dict[str, str] = {}
    for kind, several in texts.items():
        for term in chain.from_iterable(map(analyze, several)):
            if len(term) > 1 and term not in _unmarked():
                kinds.setdefault(term, kind)
    return kinds


@cache
def _unmarked() -> frozenset[str]:
    return frozenset(analyze(" ".join(_FUNCTION_WORDS)))


class WordForms(NamedTuple):
    """Word forms for a page that marks words by itself and has no stemmer."""

    alike: list[str]
    """Words of one stem in lower case, with blanks between them; a word that is alone with its stem is not here."""
    unmarked: list[str]  # words that are never marked


def word_forms(texts: Iterable[str]) -> WordForms:
    """Group the words of texts by stem.

    >>> word_forms(["When gums bleed,", "a gum is bleeding"])
    WordForms(alike=['bleed bleeding', 'gum gums'], unmarked=['a', 'is', 'when'])
    """
    pieces = {piece for text in texts for piece in _PIECE.findall(text.lower())}
    words = sorted({word for piece in pieces for word in segment(piece)})
    stems: dict[str, list[str]] = {"": []}
    for word in words:
        stems.setdefault(next(iter(kinds_of(word=[word])), ""), []).append(word)
    unmarked = stems.pop("")
    return WordForms([" ".join(several) for several in stems.values() if len(several) > 1], unmarked)


@lru_cache(maxsize=1 << 16)
def _terms(word: str) -> tuple[str, ...]:
    return tuple(analyze(word))


class _Matching(dict[str, bool]):
    """Cache of whether a word has a known term: a text and its neighbours repeat most words."""

    def __init__(self, kinds: Kinds) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, word: str) -> bool:
        matches = any(term in self._kinds for term in _terms(word))
        if len(word) <= _LONGEST_WORD:
            self[word] = matches
        return matches


@lru_cache(maxsize=32)
def _matching(terms: frozenset[str]) -> _Matching:
    return _Matching(dict.fromkeys(terms, ""))


def marks(text: str, kinds: Kinds) -> Iterator[WordMark]:
    """Yield the words of a text whose terms are known, in order.

    >>> list(marks("Gums bleed: a gum's plight.", {"gum": "query"}))
    [WordMark(start=0, end=4, kind='query'), WordMark(start=14, end=19, kind='query')]
    """
    # The characters at which pieces are cut are in no word, so that only pieces that match are segmented.
    matching = _matching(frozenset(kinds))
    for piece in _PIECE.finditer(text):
        place = piece.start()
        for word in segment(piece[0]) if matching[piece[0]] else ():
            start = text.find(word, place, piece.end())
            if start < 0:
                continue
            place = start + len(word)
            if kind := next((kinds[term] for term in _terms(word) if term in kinds), ""):
                yield WordMark(start, place, kind)


def parts(text: str, kinds: Kinds) -> list[Part]:
    """Split a text into stretches, those that match marked; joined they are the text.

    >>> parts("Gums bleed", {"bleed": "query"})
    [Part(text='Gums ', kind=''), Part(text='bleed', kind='query')]
    """
    stretches: list[Part] = []
    done = 0
    for mark in marks(text, kinds):
        stretches += [Part(text[done : mark.start]), Part(text[mark.start : mark.end], mark.kind)]
        done = mark.end
    return [part for part in (*stretches, Part(text[done:])) if part.text]


def excerpt(text: str, kinds: Kinds, words: int) -> str:
    """Return the stretch of this many words with most matches, with dots where it was cut, within long words too.

    >>> excerpt("one two three gums four bleed five", {"gum": "q", "bleed": "q"}, 3)
    '... gums four bleed ...'
    """
    if words <= 0:
        return text
    places = [match.span() for match in _WORD.finditer(text)]
    if len(places) <= words:
        return _shortened(text, words)
    matching = _matching(frozenset(kinds))
    matched = [matching[text[start : min(end, start + _LONGEST_WORD)]] for start, end in places]
    counts = [0, *accumulate(matched)]
    starts = range(len(places) - words + 1)
    first = max(starts, key=lambda start: counts[start + words] - counts[start])
    last = first + words - 1
    stretch = _shortened(text[places[first][0] : places[last][1]], words)
    cut = last < len(places) - 1 and not stretch.endswith("...")
    return ("... " if first else "") + stretch + (" ..." if cut else "")


def _shortened(stretch: str, words: int) -> str:
    most = max(300, _LETTERS * words)
    if len(stretch) <= most:
        return stretch
    cut = stretch[:most]
    whole = re.sub(r"\s+\S{0,40}$", "", cut)
    return f"{whole} ..." if whole != cut else f"{cut}..."
