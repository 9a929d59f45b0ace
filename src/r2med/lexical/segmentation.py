"""Segmentation of texts: words by Unicode's UAX #29 as Lucene cuts them, and sentences for cutting passages."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
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


RUNS = (
    "-22\"1#1-3'1-2#1-1,1-1.1-1Da:1,1-5A1a-4_1-1A1a-2eP1A1-2X1P1-6A1-1:1-2A1-5A17-1A1f-1A1e0-6A7-7A14X70A5-1A2-2A4,1A1"
    "-6A1:1A3-1A1-1A14-1A53-1A8b-1X7Aa6-1A26-2A1-1A2-1A1-1A29,1-7X2d-1X1-1X2-1X2-1X1-8H1b-4H4A1:1-bX6-6,2-2Xb-1X1-3A2"
    "bX15Na-1N1,1-1A2X1A63-1A1X8-1X6A2X2-1X4A2NaA3-2A1-fX1A1X1A1eX1b-2A59XbA1-eNaA21X9A2-2,1-1A1-2X1-2A16X4A1X9A1X3A1"
    "X5-12A19X3-4Ab-35A15-1A8-15X31A36X3A1X12A1X7AaX2-2Na-1A10X3-1A8-2A2-2A16-1A7-1A1-3A4-2X1A1X7-2X2-2X3A1-8X1-4A2-1"
    "A3X2-2NaA2-aA1-1X1-2X3-1A6-4A2-2A16-1A7-1A2-1A2-1A2-2X1-1X5-4X2-2X3-3X1-7A4-1A1-7NaX2A3X1-bX3-1A9-1A3-1A16-1A7-1"
    "A2-1A5-2X1A1X8-1X3-1X3-2A1-fA2X2-2Na-9A1X6-1X3-1A8-2A2-2A16-1A7-1A2-1A5-2X1A1X7-2X2-2X3-8X2-4A2-1A3X2-2Na-1A1-10"
    "X1A1-1A6-3A3-1A4-3A2-1A1-1A2-3A2-3A3-3Ac-4X5-3X3-1X4-2A1-6X1-eNa-10X5A8-1A3-1A17-1A10-3A1X7-1X3-1X4-7X2-1A3-5A2X"
    "2-2Na-10A1X3-1A8-1A3-1A17-1Aa-1A5-2X1A1X7-1X3-1X4-7X2-7A1-1A2X2-2Na-1A2-dX4-1A8-1A3-1A29X2A1X7-1X3-1X4A1-5A3X1-7"
    "A3X2-2Na-aA6-2X2-1A12-3A18-1A9-1A1-2A7-3X1-4X6-1X1-1X8-6Na-2X2-dS30C1S2C7-5S7C8-1Na-27S2-1S1-1S5-1S18-1S1-1SaC1S"
    "2C9S1-2S5-1S1-1C6-2Na-2S4-20A1-17X2-6Na-bX1-1X1-1X1-4X2A8-1A24-4X14-1X2A5Xb-1X24-9X1-39S2bC14S1Na-6S6C4S4C3S1C3S"
    "2C7S3C4SdCcS1C1NaC4S2A26-1A1-5A1-2A2b-1A4G100A49-1A4-2A7-1A1-1A4-2A29-1A4-2A21-1A4-2A7-1A1-1A4-2Af-1A39-1A4-2A43"
    "-2X3-20A10-10A56-2A6-3A26c-2A11-1A1a-5A4b-3Ab-7Ad-1A4X3-bA12X3-bA12X2-cAd-1A3-1X2-cS34C20-3S1-4S1C1-2Na-21X4-1Na"
    "-6A59-7A5X2A22X1A1-5A46-aA1f-1Xc-4Xc-aNaS1e-2S5-bS2c-4S1a-6NaS1-3S2-20A17X5-4S35Ca-1C1d-2X1Na-6Na-6Se-2Xf-41X5A2"
    "fX11A7-4Na-11X9-cX3A1eXdA2NaA2cXe-cA24X14-8Na-3A3NaA24-2A9-7A2b-2A3-10X3-1X15A4X1A6X1A2X3A1-5Ac0X3a-1X5A116-2A6-"
    "2A26-2A6-2A8-1A1-1A1-1A1-1A1f-2A35-1A7-1A1-3A3-1A7-3A4-2A6-4Ad-5A3-1A7-fX1J1X2-8.2-a.1-2:1-2X5_1-cP1-2_2-3,1-4P1"
    "-a_1-bX5-1Xa-1A1-dA1-10Ad-33X13Q1Xd-11A1-4A1-2Aa-1A1-3A5-4P1-1A1-1A1-1A1-1A4-1AaI1-2A4-5A5-4A1-11A29-bP6-fP2-16f"
    "P2-cP1-5fP1-46P1-19Pb-4P3-bbAcI1A27-c0P2-aP1-9P1-3aP4-1P6-1Pc-1P72-aP76-2Pb-1P1-1P1-6P1-3P1-6P1-aP2-fP1-2P1-4P1-"
    "1P1-4P3-1P1-bP5-2dP3-9P1-eP1-eP1-174P2-1cfP3-13P2-33P1-4P1-aaA2f-1A2f-1A85-6A4X3A2-cA26-1A1-5A1-2A38-7A1-fX1A17-"
    "9A7-1A7-1A7-1A7-1A7-1A7-1A7-1A7-1X20-2fA1-50Z1a-1Z59-cZd6-2fA1-1Z1-19Z9X6P1K5-2Z3A2P1-3U56-2X2K2U3K5b-1K4-5A2b-1"
    "G5e-11A1b-35K10-97P1-1P1-36K2f-1K58-a8Z19b6-4aZ51f0-10A48d-43A2e-2A10d-3A10NaA2-14A2fX4-1Xa-1A1fX2A50X2-25Aa9-2A"
    "5-30AbX1A3X1A4X1A17X5-18A34-cX2A32X12-aNa-6X12A6-3A1-1A2X1NaA1cX8-2A17Xd-cG1d-3X4A2fXe-eA1Na-6S5C1SaNaS5-1A29Xe-"
    "9A3X1A8X2-2Na-6S1bC3S32C1S1C3S2C2S5C2S1C1S1-18S5AbX5-2A3X2-aA6-2A6-2A6-9A7-1A7-1A38-8A73X8-1X2-2Na-6G2ba4-cG17-4"
    "G31-2104Z16e-2Z6a-26A7-cA5-5H1X1Ha-1Hd-1H5-1H1-1H2-1H2-1HaA62-21A16b-12A40-2A36-28Ac-4XeV1W1,1-2:1,1-bX10-3_2-18"
    "_3,1-1.1-1,1:1-1aA5-1A87-2X1-7.1-4,1-1.1-1Na:1,1-5A1a-4_1-1A1a-bK38X2G1f-3G6-2G6-2G6-2G3-1cX3-4Ac-1A1a-1A13-1A2-"
    "1Af-2Ae-22A7b-45A35-88X1-82A1d-3A31-fX1-1fA20-dA1e-5A26X5-5A1e-2A24-4A8-1A5-2aA9e-2Na-6A24-4A24-4A28-8A34-9cA137"
    "-9A16-aA8-98A6-2A1-1A2c-1A2-3A1-2A17-aA17-9A1f-41A13-1A2-aA16-aA1a-46A38-6A2-40A1X3-1X2-5X4A4-1A3-1A1d-2X3-4X1-2"
    "0A1d-3A1d-23A8-1A1cX2-19A36-aA16-aA13-dA12-6eA49-37A33-dA33-dA24X4-8Na-1c6A1d-aA1-8A16Xb-8fA17-9X3A35Xf-1fNa-fX4"
    "A2dXb-2X1-fX1-2A19-7Na-6X3A24Xe-1Na-4A1X2-9A23X1-2A1-9X3A30XeA4-4X4-3NaA1-1A1-23A12-1A19Xc-6X1-41A7-1A1-1A4-1Af-"
    "1Aa-7A2fXc-5Na-6X4-1A8-2A2-2A16-1A7-1A2-1A5-1X2A1X7-2X2-2X3-2A1-6X1-5A5X2-2X7-3X5-8bA35X12A4-5Na-4X1A1-20A30X14A"
    "2-1A1-8Na-a6A2fX7-2X9-17A4X2-22A30X11-3A1-bNa-26A2bXdA1-7Na-36S1b-2Cf-4NaS2-3S1-c0A2cXf-65A40Na-15A1-a0A8-2A27X7"
    "-2X7A1-1A1X1-1bA1XaA28X7A1X4-8X1-8A1XbA2eX10-3A1-22A39-107A9-1A25X8-1X8A1-fNa-18A1e-2X16-1Xe-49A7-1A2-1A26X6-3X1"
    "-1X2-1X7A1X1-8Na-6A6-1A2-1A20X5-1X2-1X5A1-7Na-136A13X4-109A39a-66A6f-11Ac4-abcA42f-1X9-fc7A247-21b9A239-7A1f-1Na"
    "-66A1e-2X5-bA30X7-9A4-cNa-9A15-5A13-2b0A40-80A4b-4X1A1X37-7X4Ad-40A2-1A1-401cK1U11e-31U3-11K4-a98A6b-5Ad-3A9-7Aa"
    "-3X2-1X4-14c1X5-3X16-2X7-1eX4-94X3-1bbA55-1A47-1A2-2A1-2A2-2A4-1Ac-1A1-1A7-1A41-1A4-2A8-1A7-1A1c-1A4-1A5-1A1-3A7"
    "-1A154-2A19-1A19-1A1f-1A19-1A1f-1A19-1A1f-1A19-1A1f-1A19-1A8-2N32-200X37-4X32-8X1-eX1-16X5-1Xf-550X7-1X11-2X7-1X"
    "2-1X5-d5A2d-3X7A7-2Na-4A1-171A2cX4Na-506Ac5-bX7-29A44X7A1-4Na-4a6A4-1A1b-1A2-1A1-2A1-1Aa-1A4-1A1-1A1-6A1-4A1-1A1"
    "-1A1-1A3-1A2-1A1-2A1-1A1-1A1-1A1-1A1-1A2-1A1-2A4-1A7-1A4-1A4-1A1-1Aa-1A11-5A3-1A5-1A11-144P100-dP3-1fP1A1a-6A1a-"
    "2P4I2AcI2Aa-4P1-2Pa-12P39R1aU1Pf-aP1-14P1-2P9-1P4-9P1b2M5P13e-8P10a-30P80-74Pc-55P2b-cP4-38P8-aP6-28P8-1eP52-cP2"
    "f-1Pa-1P6b7-2Za6d7-29Z1035-bZde-2Z1682-eZ1d31-c1fZ21e-b05e3X1-1eT5fE1-80Xf0-2fe10"
)
MAX_UNITS: Final = 255  # longest token, in UTF-16 code units; Lucene cuts a longer one and continues behind the cut
NO_TOKEN: Final = "-"  # class of the characters that no token ever contains, wherever they stand
# Class letters: A letter, H Hebrew letter, G Hangul, I letter that is also an emoji, D ASCII digit, N other digit,
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

    def __init__(self, runs: str) -> None:
        super().__init__()
        self._starts: list[int] = []
        self._letters: list[str] = []
        start = 0
        for letter, length in re.findall("([^0-9a-f])([0-9a-f]+)", runs):
            self._starts.append(start)
            self._letters.append(letter)
            start += int(length, 16)

    def __missing__(self, code_point: int) -> str:
        letter = self._letters[bisect_right(self._starts, code_point) - 1]
        self[code_point] = letter
        return letter


@cache
def _class_table() -> _ClassTable:
    return _ClassTable(RUNS)


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
            position = end
        else:
            position += 1
    return tokens


def _match_end(text: str, classes: str, start: int) -> int:
    """Return where the longest token that begins at ``start`` ends, or ``start`` if none does."""
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
        match = rule.match(classes, start, stop)
        if match and match.end() > end:
            end = match.end()
    return end
