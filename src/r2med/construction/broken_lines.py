"""Joining the lines of a printed paragraph: hyphenated words are made whole, and nothing else changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

_SOFT = "\u00ad"
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BROKEN = re.compile(r"([^\W\d_]+)-$")
_CONTINUED = re.compile(r"[^\W\d_]+")
_UNFINISHED = re.compile(r"\w[-‐‑–/]$")
_LINKS = {"and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "e"}
"""Before these a hyphen stands for the rest of a compound: short- and long-acting."""
_GREEK = {"alpha", "beta", "gamma", "delta", "epsilon", "kappa", "lambda", "mu", "omega", "sigma"}


def join_lines(paragraphs: Iterable[Sequence[str]]) -> str:
    """Return the paragraphs of a document, each in one line.

    >>> join_lines([["Give 10-", "20 mg of a beta-", "blocker by the treat-", "ment plan."]])
    'Give 10-20 mg of a beta-blocker by the treatment plan.\\n'
    """
    listed = [list(lines) for lines in paragraphs]
    words = Counter(word.lower() for lines in listed for word in _whole_words(lines))
    return "".join(f"{_joined(lines, words)}\n" for lines in listed)


def _whole_words(lines: Sequence[str]) -> list[str]:
    """Return the words of a paragraph that no line break goes through."""
    return _WORD.findall(re.sub(r"\S+-\n\S*", " ", "\n".join(lines)))


def _joined(lines: Sequence[str], words: Counter[str]) -> str:
    parts: list[str] = []
    for line, following in zip_longest(lines, lines[1:]):
        parts.append(line if following is None else _lead_over(line, following, words))
    return "".join(parts).replace(_SOFT, "")


def _lead_over(line: str, following: str, words: Counter[str]) -> str:
    """Return a line as it stands before the following one: with a space, without its hyphen, or as it is."""
    if line.endswith(_SOFT):
        return line
    broken, continued = _BROKEN.search(line), _CONTINUED.match(following)
    if broken and continued:
        if continued[0] in _LINKS:
            return f"{line} "
        return line if _keeps_hyphen(broken[1], continued[0], words) else line[:-1]
    # 10-|20, IL-|6, 3-|fold, 10–|20, mg/|kg: parts of one expression; after a space the sign stands alone.
    return line if _UNFINISHED.search(line) and re.match(r"[\w(]", following) else f"{line} "


def _keeps_hyphen(first: str, second: str, words: Counter[str]) -> bool:
    """Return whether a hyphen at the end of a line belongs to the word, by the document's other words."""
    whole, compound = (first + second).lower(), f"{first}-{second}".lower()
    if words[whole] != words[compound]:
        return words[compound] > words[whole]
    # No syllable is a single letter, and none begins with a capital.
    if len(first) == 1 or second[0].isupper() or first.lower() in _GREEK:
        return True
    return bool(words[first.lower()] and words[second.lower()])
