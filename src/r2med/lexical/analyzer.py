"""The analysis chain of Anserini's DefaultEnglishAnalyzer, token for token, without a Java machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from r2med.lexical.porter import stem, stem_basic
from r2med.lexical.segmentation import MAX_UNITS, segment

ANALYZER: Final = "lucene-english"  # the name of this analyzer in run files, tables and cache keys
ANALYZER_VERSION: Final = "1"
"""Version, raised if and only if the tokens of some text change: part of every cache key that depends on tokens."""
STOP_WORDS: Final = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
"""Lucene's English stop words."""
_APOSTROPHES: Final = ("'", "\u2019", "\uff07")
# In ASCII, Latin-1, General Punctuation and Mathematical Operators: the characters that no token ever contains.
_BREAK_RANGES: Final = (
    (0x00, 0x21), (0x24, 0x26), (0x28, 0x29), (0x2B, 0x2B), (0x2D, 0x2D), (0x2F, 0x2F), (0x3C, 0x40), (0x5B, 0x5E),
    (0x60, 0x60), (0x7B, 0xA8), (0xAB, 0xAC), (0xAF, 0xB4), (0xB6, 0xB6), (0xB8, 0xB9), (0xBB, 0xBF), (0xD7, 0xD7),
    (0xF7, 0xF7), (0x2000, 0x200B), (0x2010, 0x2017), (0x201A, 0x2023), (0x2025, 0x2026), (0x2028, 0x2029),
    (0x2030, 0x203B), (0x203D, 0x203E), (0x2041, 0x2043), (0x2045, 0x2048), (0x204A, 0x2053), (0x2055, 0x205F),
    (0x2200, 0x22FF),
)  # fmt: skip
BREAK: Final = "".join(chr(code) for first, last in _BREAK_RANGES for code in range(first, last + 1))
"""Characters that are hard token boundaries wherever they stand.

They are the ASCII controls and white space, ``! $ % & ( ) + - / < = > ? @ [ \\ ] ^ ` { | } ~``, and what Lucene treats
alike in Latin-1, General Punctuation and Mathematical Operators: no-break and thin spaces, dashes, double quotation
marks, plus-minus, degree, superscript digits and more. No token contains one and no rule looks across one, so for every
text ``analyze(text)`` is ``analyze(piece)`` over the pieces between them, end to end. Left out because some rule uses
them: ``" # ' * , . : ; _``, single quotation marks, soft hyphen, middle dot, narrow no-break space.
"""


_BREAK_CLASS: Final = "".join(rf"\u{first:04x}-\u{last:04x}" for first, last in _BREAK_RANGES)
BREAK_PATTERN: Final = f"[{_BREAK_CLASS}]+"
"""One or more of :data:`BREAK`, as a pattern that Python's and Rust's (hence polars') regular expressions both read.

>>> re.split(BREAK_PATTERN, "anti-TNF/IL-6 (n=12)")
['anti', 'TNF', 'IL', '6', 'n', '12', '']
"""
_beyond_ascii: Final = re.compile(rf"[^\x00-\x7f{_BREAK_CLASS}]").search
# UAX #29 for ASCII in lower case: words of letters, digits and underscores; a point, colon or apostrophe joins two
# letters, a point, comma, semicolon or apostrophe joins two digits.
_ascii_words: Final = re.compile(
    # The mark first: behind most words there is none, and then there is nothing to look back for.
    r"\w+(?:[.:,;'](?:(?<=[a-z][.:'])(?=[a-z])|(?<=[0-9][.,;'])(?=[0-9]))\w+)*",
    re.ASCII,
).findall
_is_ascii_number: Final = re.compile(r"[0-9]+(?:[.,][0-9]+)*").fullmatch
# What may stand around a word in a piece without being part of it. (An underscore would be.)
_ASCII_MARKS: Final = "\"#'*,.:;"


class PieceTokens(NamedTuple):
    """Tokens of many pieces of text, end to end."""

    tokens: list[str]  # all tokens, in the order of the pieces
    counts: list[int]  # number of tokens of each piece; they sum to the length of ``tokens``


def analyze(text: str) -> list[str]:
    """Return the tokens of a text: words cut by UAX #29, lower-cased, without stop words, stemmed.

    A surrogate without its partner counts as the replacement character that an encoder would write for it. (Lucene
    does the same, except that one at the very end of a text costs it the last buffer of tokens.)

    >>> analyze("The patient's β-cells weren't responding to 1,000 mg/dl.")
    ['patient', 'β', 'cell', "weren't", 'respond', '1,000', 'mg', 'dl']
    """
    return [term for word in _words(text) if (term := _TERMS[word])]


def analyze_pieces(pieces: Iterable[str]) -> PieceTokens:
    """Analyze many short texts at once, such as the distinct pieces of a corpus that was split on :data:`BREAK`.

    >>> analyze_pieces(["cells", "the", "and/or.both"])
    PieceTokens(tokens=['cell', 'or.both'], counts=[1, 0, 1])
    """
    tokens: list[str] = []
    counts: list[int] = []
    for piece in pieces:
        if piece.isascii():
            # Most pieces are one word, perhaps between marks: no need to look for the words in it.
            word = piece.strip(_ASCII_MARKS).lower()
            if word.isalnum() and len(word) <= MAX_UNITS:
                if word in STOP_WORDS:
                    counts.append(0)
                else:
                    # Pieces are distinct, so that a table of words already met would mostly be in the way.
                    tokens.append(stem_basic(word))
                    counts.append(1)
                continue
            if _is_ascii_number(word) and len(word) <= MAX_UNITS:
                tokens.append(word)
                counts.append(1)
                continue
        terms = analyze(piece)
        tokens += terms
        counts.append(len(terms))
    return PieceTokens(tokens, counts)


def _words(text: str) -> list[str]:
    if text.isascii():
        return _words_of_ascii(text)
    words: list[str] = []
    done = 0
    while match := _beyond_ascii(text, done):
        # From space to space, because a space is one of BREAK.
        start = text.rfind(" ", done, match.start()) + 1 or done
        end = text.find(" ", match.end())
        end = len(text) if end < 0 else end
        words += _words_of_ascii(text[done:start])
        words += map(_lower, segment(text[start:end]))
        done = end
    words += _words_of_ascii(text[done:])
    return words


def _words_of_ascii(text: str) -> list[str]:
    text = text.lower()
    words = _ascii_words(text)
    if len(text) > MAX_UNITS and words and max(map(len, words)) > MAX_UNITS:
        return segment(text)
    return words


def _lower(word: str) -> str:
    # Java lowers each character by itself: a final sigma is like any other, and of a dotted capital I no dot remains.
    return word.replace("\u03a3", "\u03c3").replace("\u0130", "i").lower()


class _TermTable(dict[str, str]):
    """Map from a lower-cased word to its term, computed once; the empty string for a word that is dropped."""

    LIMIT: Final = 2_000_000

    def __missing__(self, word: str) -> str:
        if len(self) >= self.LIMIT:
            self.clear()
        base = word[:-2] if word[-1] == "s" and word[-2:-1] in _APOSTROPHES else word
        term = self[word] = "" if base in STOP_WORDS or not base.strip("_") else stem(base)
        return term


_TERMS: Final = _TermTable()
