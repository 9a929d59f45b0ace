"""Near-duplicates: documents that say the same in nearly the same words, found exactly.

Two texts are near-duplicates when the sets of their runs of five words (shingles) have a Jaccard similarity of 0.8 or
more. A text that near to one with n shingles lacks at most n - ceil(0.8 n) of them, so it holds at least one of any
n - ceil(0.8 n) + 1: of each text the rarest so many are looked up, and whoever shares one is compared in full. No
pair is missed, and few are compared for nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

THRESHOLD = 0.8
WORDS = 5
_words = re.compile(r"\w+").findall


class Pair(NamedTuple):
    """Two documents that are nearly the same."""

    document: str
    other: str
    jaccard: float


def shingles(text: str, words: int = WORDS) -> frozenset[str]:
    """The runs of so many words of a text, in lower case without punctuation; a shorter text is one run.

    >>> sorted(shingles("The gums bleed, the teeth fall out.", 5))
    ['bleed the teeth fall out', 'gums bleed the teeth fall', 'the gums bleed the teeth']
    >>> shingles("Gums!"), shingles("...")
    (frozenset({'gums'}), frozenset())
    """
    found = _words(text.casefold())
    if not found:
        return frozenset()
    starts = range(max(1, len(found) - words + 1))
    return frozenset(" ".join(found[start : start + words]) for start in starts)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """How much two sets have in common, from 0 to 1.

    >>> jaccard(frozenset("ab"), frozenset("bc"))
    0.3333333333333333
    """
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def near_duplicates(
    wanted: Mapping[str, str], documents: Iterable[tuple[str, str]], threshold: float = THRESHOLD
) -> Iterator[Pair]:
    """Every pair of one of the wanted texts and another document that are nearly the same.

    >>> text = "a deficiency of vitamin C makes gums bleed and wounds heal badly in sailors"
    >>> list(near_duplicates({"d1": text}, [("d1", text), ("d2", text.upper()), ("d3", "vitamin C")]))
    [Pair(document='d1', other='d2', jaccard=1.0)]
    """
    own = {name: shingles(text) for name, text in wanted.items()}
    telling = _telling(own, threshold)
    for other, text in documents:
        theirs = shingles(text)
        candidates = dict.fromkeys(name for shingle in theirs for name in telling.get(shingle, ()))
        for name in candidates:
            similarity = jaccard(own[name], theirs)
            if name != other and similarity >= threshold:
                yield Pair(name, other, similarity)


def _telling(own: Mapping[str, frozenset[str]], threshold: float) -> dict[str, list[str]]:
    """For each text, the shingles of which a near-duplicate must have one, those that few texts have first."""
    counts = Counter(shingle for found in own.values() for shingle in found)
    telling: dict[str, list[str]] = {}
    for name, found in own.items():
        # A hair less than the product, which may come out above a whole number that it should equal.
        needed = len(found) - math.ceil(threshold * len(found) - 1e-9) + 1
        for shingle in sorted(found, key=lambda each: (counts[each], each))[:needed] if found else ():
            telling.setdefault(shingle, []).append(name)
    return telling
