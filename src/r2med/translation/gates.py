"""Gates that compare a translation with its question: numbers, units, codes, names of drugs, and the language itself.
A number is compared by its value, however the language writes it. Facts about languages are in `languages.toml`.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from r2med.errors import R2medError, suggest

NUMBERS, UNITS, NAMES, LANGUAGE = "numbers", "units", "names", "language"
SOURCE_LANGUAGE = "en"
GATES = 2  # the version of the rules below: what passed an earlier one is looked at again
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile("[⁻⁰¹²³⁴-⁹]+")
_NUMBER = re.compile(r"(?<![\d.,])\d+(?:[.,]\d+)*")
_NEGATIVE = re.compile(r"(?<![a-zà-öø-ÿ\d.,)%])[-–]$")
_RANGE = re.compile(r"\d[\d.,]*\s*\S{0,6}\s+[-–]$")
"""A sign before a number that stands between two of them: 5 mg -10 mg."""
_PER = re.compile(r"\s*(?:/|per\b)\s*")
_POWER = re.compile(r"(?<![a-zA-Zµ])([mcµ]?m)\^?[23](?![\d\w])")  # of square and cubic units only the unit is looked at
_CODE = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]+(?:-[A-Za-z]+)?)-?\d+[A-Za-z0-9]*(?![A-Za-z0-9])")
_WORD = re.compile(r"[^\W\d_]+")
_SAME = 0.6  # a text of whose words so many stand in the original was not translated
_SCRIPT = 0.3  # so many letters at least are of a language's own script


@dataclass(frozen=True)
class Language:
    """Spelling rules of a language that the gates use."""

    code: str
    name: str
    numbers: Sequence[str]
    comma: bool = False
    script: str = ""  # the first word of the names of its letters, where these are not Latin
    also: Mapping[str, int] = field(default_factory=dict)
    myriads: Mapping[str, int] = field(default_factory=dict)
    percent: str = ""


class Quantity(NamedTuple):
    """A number in a text: its possible values, and its unit."""

    values: frozenset[float]
    unit: str
    per: tuple[str, ...]
    written: str


class GateProblem(NamedTuple):
    """A problem found by a gate."""

    gate: str
    what: str


@cache
def _facts() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("r2med.translation").joinpath("languages.toml").read_text("utf-8"))


def language(code: str) -> Language:
    """Return a language by its code.

    >>> language("es").name
    'Spanish'
    """
    languages = _facts()["language"]
    if code not in languages or code == SOURCE_LANGUAGE:
        raise R2medError(f"unknown language {code!r}{suggest(code, languages.keys() - {SOURCE_LANGUAGE})}")
    return Language(code, **languages[code])


@cache
def _units() -> Mapping[str, str]:
    units = _facts()["dose"] | _facts()["other"]
    return {spelling: name for name, spellings in units.items() for spelling in spellings}


@cache
def _unit_pattern() -> re.Pattern[str]:
    spellings = sorted(_units(), key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(map(re.escape, spellings))})(?![a-zà-öø-ÿ])")


def _unified(text: str) -> str:
    """Return a text with plain digits and signs; raised digits are marked, so that 10⁹ is not 109."""
    # A comma of full width parts words, and never digits.
    marked = _RAISED.sub(lambda digits: "^" + digits[0].translate(_SUPERSCRIPTS), text.replace("，", ", "))
    return _POWER.sub(r"\1 ", unicodedata.normalize("NFKC", marked).replace("\N{MINUS SIGN}", "-"))


def codes(text: str) -> list[str]:
    """Return names with a number in them, such as B12, HbA1c or COVID-19, in lower case.

    >>> codes("vitamin B12 and HbA1c in type-2 diabetes for 10 days")
    ['b12', 'hba1c']
    """
    names = [(match[0].lower(), match[1]) for match in _CODE.finditer(_unified(text))]
    return [name for name, head in names if sum(map(str.isupper, head)) > 1 or (len(head) <= 3 and "-" not in head)]


def quantities(text: str, spoken: Language, *, known: Sequence[float] = ()) -> list[Quantity]:
    """Return the numbers of a text; those of `known` are also read with spaces between their thousands.

    >>> [(sorted(q.values), q.unit) for q in quantities("2,5 mg y 1.200 mL", language("es"))]
    [([2.5], 'mg'), ([1.2, 1200.0], 'ml')]
    """
    lowered = _unified(text).lower()
    for value in known:
        if value >= 1000:
            spaced = re.escape(f"{int(value):,}").replace(",", r"\s")
            lowered = re.sub(rf"(?<!\d){spaced}(?!\d)", str(int(value)), lowered)
    if spoken.percent:
        lowered = re.sub(rf"{spoken.percent}\s*([\d.,]*\d)", r"\1%", lowered)
    return list(_quantities(lowered, spoken))


def _quantities(text: str, spoken: Language) -> Iterator[Quantity]:
    for number in _NUMBER.finditer(text):
        values, end = _values(number[0], spoken), number.end()
        for sign, times in spoken.myriads.items():
            # 千克 is a kilogram, and no thousand of anything.
            if text[end:].lstrip().startswith(sign) and not _unit_pattern().match(text[end:].lstrip()):
                values, end = frozenset(value * times for value in values), text.index(sign, end) + len(sign)
        before = text[: number.start()]
        negative = bool(_NEGATIVE.search(before)) and not _RANGE.search(before)
        # Words may say that a number is negative; "menos" also means "at least".
        signs = _facts()["signs"]
        worded = before.rstrip().endswith(tuple(signs["minus"])) or any(words in text for words in signs["below"])
        if negative or worded:
            values = frozenset(-value for value in values) | (frozenset() if negative else values)
        rest = text[end:].lstrip(" -\N{NON-BREAKING HYPHEN}")
        unit = _unit_pattern().match(rest)
        names = []  # the unit, and those below a stroke behind it
        while unit:
            names.append(_units()[unit[0]])
            stroke = _PER.match(rest, unit.end())
            unit = stroke and _unit_pattern().match(rest, stroke.end())
        yield Quantity(values, names[0] if names else "", tuple(names[1:]), "-" * negative + number[0])


def _spoken_divisors(text: str) -> set[str]:
    """Return units that stand neither behind a stroke nor behind a number, as in "por kg", "daily" or "每公斤"."""
    units = set()
    for unit in re.finditer(rf"(?<![a-zà-öø-ÿ]){_unit_pattern().pattern}", text):
        before = text[: unit.start()].rstrip(" -")
        if not before.endswith("/") and not re.search(r"(?<!\d)(?!1$)\d+$", before):
            units.add(_units()[unit[0]])
    return units


def _values(token: str, spoken: Language) -> frozenset[float]:
    """Return the possible values of a number: one sign with three digits after it may be decimal or mark thousands."""
    signs = re.findall("[.,]", token)
    joined = float(re.sub("[.,]", "", token))
    if len({*signs}) == 2:
        whole, _, part = token.rpartition(signs[-1])
        return frozenset([float(f"{re.sub('[.,]', '', whole)}.{part}") if signs[-1] != signs[0] else joined])
    if len(signs) != 1:
        return frozenset([joined])
    decimal, thousands = float(token.replace(",", ".")), len(token.split(signs[0])[1]) == 3
    if signs[0] == "," and thousands and not spoken.comma:
        return frozenset([joined])
    return frozenset([decimal, joined] if thousands and spoken.comma else [decimal])


def _is_worded(value: float, text: str, spoken: Language) -> bool:
    if value < 0:
        return any(word in text for word in _facts()["signs"]["minus"]) and _is_worded(-value, text, spoken)
    if not value.is_integer() or not 0 <= value < 100:
        return False
    words = [spoken.numbers[int(value)]] if value < len(spoken.numbers) else []
    words += [word for word, number in spoken.also.items() if number == value]
    if not spoken.script:
        return any(re.search(rf"(?<!\w){re.escape(word)}", text) for word in words)
    tens, ones = divmod(int(value), 10)
    if tens:  # as in 三十五
        words.append(spoken.numbers[tens] * (tens > 1) + spoken.numbers[10] + spoken.numbers[ones] * (ones > 0))
    return any(word in text for word in words)


def find_problems(original: str, translation: str, spoken: Language) -> list[GateProblem]:
    """Return all problems of a translation that the gates find; empty if it passes.

    >>> find_problems("Is 500 mg of metformin enough?", "¿Bastan 500 g de metformina?", language("es"))
    [GateProblem(gate='units', what='500 mg became 500 g')]
    """
    shared = codes(original)
    lost = [code for code in dict.fromkeys(shared) if code not in _unified(translation).lower()]
    return [
        *_untranslated(original, translation, spoken),
        *_lost_names(original, translation),
        *(GateProblem(NAMES, f"{code} is missing") for code in lost),
        *_changed_numbers(_without(original, shared), _without(translation, shared), spoken),
    ]


def _without(text: str, names: Sequence[str]) -> str:
    """Return a text without some codes, whose digits are not numbers."""
    left = _unified(text)
    for name in sorted(set(names), key=len, reverse=True):
        left = re.sub(rf"(?<![a-zA-Z]){re.escape(name)}", " ", left, flags=re.IGNORECASE)
    return left


def _changed_numbers(original: str, translation: str, spoken: Language) -> Iterator[GateProblem]:
    english = Language(SOURCE_LANGUAGE, **_facts()["language"][SOURCE_LANGUAGE])
    stated = quantities(original, english)
    values = sorted({value for quantity in stated for value in quantity.values})
    left = quantities(translation, spoken, known=values)
    before, after = _unified(original).lower(), _unified(translation).lower()
    divisors = _spoken_divisors(before), _spoken_divisors(after)
    for quantity in stated:
        same = [other for other in left if other.values & quantity.values]
        right = []
        for other in same:  # what stands below a stroke may be said in words, and not be lost
            same_unit = quantity.unit in ("", other.unit) if other.unit else quantity.unit not in _facts()["dose"]
            below, others = set(quantity.per), set(other.per)
            if same_unit and below <= others | divisors[1] and others <= below | divisors[0]:
                right.append(other)
        if right:
            left.remove(right[0])
        elif same:
            left.remove(same[0])
            yield GateProblem(UNITS, f"{_written(quantity)} became {_written(same[0])}")
        elif not any(_is_worded(value, after, spoken) for value in quantity.values):
            yield GateProblem(NUMBERS, f"{_written(quantity)} is missing")
    for quantity in left:
        worded = any(_is_worded(value, before, english) for value in quantity.values)
        if not worded and not quantity.values & set(values):
            yield GateProblem(NUMBERS, f"{_written(quantity)} is not in the original")


def _written(quantity: Quantity) -> str:
    unit = {"percent": "%", "celsius": "°C", "fahrenheit": "°F", "ug": "µg"}.get(quantity.unit, quantity.unit)
    return f"{quantity.written} {unit}".strip() + "".join(f"/{unit}" for unit in quantity.per)


def drug_names(text: str) -> list[str]:
    """Return the names of drugs in an English text, in lower case, each once.

    >>> drug_names("In April she took lisinopril and Aspirin.")
    ['lisinopril', 'aspirin']
    """
    drugs = _facts()["drugs"]
    names, endings = {*drugs["names"]} - {*drugs["not"]}, tuple(drugs["stems"])
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return [w for w in words if w in names or (len(w) > 6 and w.endswith(endings) and w not in drugs["not"])]


def _lost_names(original: str, translation: str) -> Iterator[GateProblem]:
    spelled = [_spelled(word) for word in re.findall(r"[a-zà-öø-ÿ]+", _unified(translation).lower())]
    for name in drug_names(original):
        others = map(_spelled, next((group for group in _facts()["drugs"]["same"] if name in group), [name]))
        stems = [(other[: max(4, len(other) - 2)], len(other) + 3) for other in others]  # the ending may be another
        if not any(word.startswith(stem) and len(word) <= longest for stem, longest in stems for word in spelled):
            yield GateProblem(NAMES, f"{name} is missing")


def _spelled(word: str) -> str:
    """Normalise a name as most languages in Latin script spell it: no accents, double letters and Greek spellings."""
    bare = "".join(sign for sign in unicodedata.normalize("NFKD", word) if not unicodedata.combining(sign))
    for greek, latin in (("ph", "f"), ("th", "t"), ("ch", "c"), ("y", "i"), ("k", "c"), ("h", "")):
        bare = bare.replace(greek, latin)
    return re.sub(r"(.)\1", r"\1", bare)


def _untranslated(original: str, translation: str, spoken: Language) -> Iterator[GateProblem]:
    letters = [sign for sign in translation if sign.isalpha()]
    if spoken.script:
        of_script = sum(unicodedata.name(sign, "").startswith(spoken.script) for sign in letters)
        if of_script < _SCRIPT * len(letters):
            yield GateProblem(LANGUAGE, f"it is not {spoken.name}")
        return
    words = {word.lower() for word in _WORD.findall(translation) if len(word) > 2}
    same = words & {word.lower() for word in _WORD.findall(original)}
    if len(words) > 3 and len(same) > _SAME * len(words):
        yield GateProblem(LANGUAGE, "it was not translated")
