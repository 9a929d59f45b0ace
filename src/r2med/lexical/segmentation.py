"""Segmentation of texts: words by Unicode's UAX #29 as Lucene cuts them, and sentences for cutting passages."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

TOKEN = re.compile(r"\w+|[^\w\s]")
_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])|(?<=[。！？])|\n\s*\n")
_ABBREVIATION = re.compile(
    r"\b(?:dr|mr|mrs|ms|prof|st|vs|fig|figs|nos|al|e\.g|i\.e|cf|approx|ca|resp|vol|ed|eds|pp?|sp|spp|inc|dept)\.$",
    re.IGNORECASE,
)


def count_tokens(text: str) -> int:
    """Count words and marks.

    >>> count_tokens("Fever (38.5 °C)?")
    9
    """
    return len(TOKEN.findall(text))


def sentences(text: str) -> list[tuple[int, int]]:
    """Return where each sentence of a text begins and ends; abbreviations do not end one.

    >>> [("Dr. Hart saw it. He left."[a:b]) for a, b in sentences("Dr. Hart saw it. He left.")]
    ['Dr. Hart saw it.', 'He left.']
    """
    edges, start = [], 0
    for match in _END.finditer(text):
        paragraph = match[0].count("\n") > 1
        if not paragraph and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.start()]):
            continue
        edges.append((start, match.end()))
        start = match.end()
    edges.append((start, len(text)))
    return [trimmed for begin, end in edges if (trimmed := trim(text, begin, end)) is not None]


def trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the bounds of a stretch without the blanks at its ends; None if it is blank."""
    part = text[start:end]
    if not part.strip():
        return None
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


MAX_UNITS: Final = 255  # longest token, in UTF-16 code units; Lucene cuts a longer one and continues behind the cut
NO_TOKEN: Final = "-"  # class of the characters that no token ever contains, wherever they stand
# Class letters of `unicode_classes.txt`, each before the hexadecimal length of a run of characters:
# A letter, H Hebrew letter, G Hangul, I letter that is also an emoji, D ASCII digit, N other digit,
# K Katakana, U Hiragana, Z Han, S South-East Asian, C South-East Asian mark, _ connector, ' single quote,
# " double quote, : between letters, . between letters or digits, comma between digits, P pictograph, R regional
# indicator, M emoji modifier, # the keycap bases that are not digits, Q keycap, J zero-width joiner, V and W text and
# emoji presentation selectors, T tag, E end of tags, X any other combining or format character.
#
# Quantifiers of single classes are possessive, which keeps matching linear; those of groups are not, because CPython
# before 3.11.5 gets them wrong.
_MARKS: Final = "[XCJQVWMTE]*+"
_EMOJI_MARKS: Final = "[XCJQMTE]*+"


def _unit(classes: str) -> str:
    """Match one character of the classes with the marks that follow it (rule WB4)."""
    return f"[{classes}]{_MARKS}"


_LETTER, _HEBREW, _DIGIT, _KATAKANA = _unit("AGHI"), _unit("H"), _unit("DN"), _unit("K")
_BETWEEN_LETTERS, _BETWEEN_DIGITS = _unit(":.'"), _unit(",.'")
_SINGLE_QUOTE, _DOUBLE_QUOTE = _unit("'"), _unit('"')
_WORD_PART: Final = (
    # The quote after a Hebrew letter comes first: taken as a plain letter it would leave the quote behind.
    f"(?:(?:{_HEBREW}(?:{_SINGLE_QUOTE}|{_DOUBLE_QUOTE}{_HEBREW})"
    f"|{_LETTER}(?:{_BETWEEN_LETTERS}{_LETTER})*"
    f"|{_DIGIT}(?:{_BETWEEN_DIGITS}{_DIGIT})*)+"
    f"|(?:{_KATAKANA})+)"
)
_CONNECTOR: Final = f"(?:{_unit('_')})"
_WORD: Final = re.compile(f"{_CONNECTOR}*{_WORD_PART}(?:{_CONNECTOR}+{_WORD_PART})*{_CONNECTOR}*")
# The elements of an emoji sequence are joined by a zero-width joiner, which is also one of the marks that may follow an
# element: hence the look-behind. After the emoji presentation selector (W) only a joiner or, once, tags can follow.
_PICTOGRAPH: Final = f"[PI]{_EMOJI_MARKS}"
_MODIFIER: Final = f"M{_EMOJI_MARKS}"
_JOINED: Final = (
    f"(?:(?<=J){_PICTOGRAPH}|WJ++{_PICTOGRAPH}|WJ{_MODIFIER}(?<=J){_PICTOGRAPH})*"  # further elements
    f"(?:WJ{_MODIFIER}|W)?"
)
_EMOJI: Final = re.compile(f"J*+{_PICTOGRAPH}(?:WT++E|{_JOINED})|{_MODIFIER}(?:(?<=J){_PICTOGRAPH}{_JOINED})?")
_KEYCAP: Final = re.compile(f"#(?:{_EMOJI_MARKS}WQ{_EMOJI_MARKS}|[XCJQMTE]*Q{_EMOJI_MARKS})")
_FLAG: Final = re.compile(_unit("R") * 2)
_SOUTH_EAST_ASIAN: Final = re.compile("[SC][SXCJQVWMTE]*+")
_IDEOGRAPH: Final = re.compile(_unit("ZU"))
# The rules that can match at a character, by its class; of two the longer match counts.
_RULES: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    **dict.fromkeys("AGHDNK_", (_WORD,)),
    **dict.fromkeys("PJM", (_EMOJI,)),
    **dict.fromkeys("SC", (_SOUTH_EAST_ASIAN,)),
    **dict.fromkeys("ZU", (_IDEOGRAPH,)),
    "I": (_WORD, _EMOJI),
    "#": (_KEYCAP,),
    "R": (_FLAG,),
}
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class _ClassTable(dict[int, str]):
    """Table for ``str.translate`` that looks a code point up among the runs when it is first met."""

    def __init__(self) -> None:
        super().__init__()
        text = Path(__file__).with_name("unicode_classes.txt").read_text("ascii")
        runs: list[tuple[str, str]] = re.findall("([^0-9a-f])([0-9a-f]+)", text)
        self._letters = [letter for letter, _ in runs]
        self._ends = list(accumulate(int(length, 16) for _, length in runs))

    def __missing__(self, code_point: int) -> str:
        letter = self[code_point] = self._letters[bisect_right(self._ends, code_point)]
        return letter


_class_table = cache(_ClassTable)


def classes_of(text: str) -> str:
    """Return the class letter of each character of a text.

    >>> classes_of("naïve 5µl")
    'AAAAA-DAA'
    """
    return text.translate(_class_table())


def segment(text: str) -> list[str]:
    """Cut a text into tokens, dropping what lies between them.

    >>> segment("IL-1β's half-life: 3.5 h, 東京 👩\u200d🔬")
    ['IL', "1β's", 'half', 'life', '3.5', 'h', '東', '京', '👩\u200d🔬']
    """
    if _SURROGATE_PAIR.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    classes = classes_of(text)
    tokens: list[str] = []
    position = 0
    while position < len(classes):
        end = _match_end(text, classes, position)
        if end > position:
            tokens.append(text[position:end])
        position = max(end, position + 1)
    return tokens


def _match_end(text: str, classes: str, start: int) -> int:
    rules = _RULES.get(classes[start], ())
    window = start + MAX_UNITS
    end = _longest(rules, classes, start, window)
    if 2 * (end - start) > MAX_UNITS and len(text[start:end].encode("utf-16-le", "replace")) > 2 * MAX_UNITS:
        # Beyond the basic plane a character is two units; a pair that does not fit stays out as a whole.
        cut = text[start:end].encode("utf-16-le")[: 2 * MAX_UNITS].decode("utf-16-le", "ignore")
        end = _longest(rules, classes, start, start + len(cut))
    return end


def _longest(rules: tuple[re.Pattern[str], ...], classes: str, start: int, stop: int) -> int:
    end = start
    for rule in rules:
        if match := rule.match(classes, start, stop):
            end = max(end, match.end())
    return end
