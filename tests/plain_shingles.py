"""How alike two texts are, by plain sets of strings: what the searches by hashes must find."""

from __future__ import annotations

import re


def shingles(text: str, words: int = 5) -> frozenset[str]:
    """The runs of so many words of a text, in lower case without punctuation; a shorter text is one run."""
    found = re.findall(r"\w+", text.casefold())
    starts = range(max(1, len(found) - words + 1)) if found else ()
    return frozenset(" ".join(found[start : start + words]) for start in starts)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """How much two sets have in common, from 0 to 1."""
    return len(one & other) / len(one | other) if one & other else 0.0
