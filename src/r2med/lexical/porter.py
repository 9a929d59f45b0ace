"""The Porter stemmer as Lucene runs it.

Lucene ships the stemmer Martin Porter published as "release 3", which is not the algorithm that Snowball calls
``porter``: the suffixes ``bli`` and ``logi`` are stripped where the 1980 paper has only ``abli``, any doubled
consonant is undoubled after ``-ed`` and ``-ing`` (Snowball has a closed list), and whatever is not a Latin vowel,
digits and Greek letters included, counts as a consonant. Words of one or two characters are left alone.
"""

from __future__ import annotations

import re
from typing import Final

# What opens a word, up to its first vowel, and a further run of vowels and of consonants. A ``y`` is a consonant at the
# start of a word and after a vowel, else a vowel: so it may open a run of either kind and never continues one.
_OPENING: Final = r"(?:[^aeiou][^aeiouy]*+[aeiouy]|[aeiou])[aeiou]*+"
_CONSONANTS: Final = r"[^aeiou][^aeiouy]*+"
_VOWELS: Final = r"[aeiouy][aeiou]*+"
_has_vowel: Final = re.compile(r"[aeiou]|.y", re.DOTALL).search
_measure_above_0: Final = re.compile(rf"{_OPENING}[^aeiou]").match
_measure_above_1: Final = re.compile(rf"{_OPENING}{_CONSONANTS}{_VOWELS}[^aeiou]").match
# One run of consonants, one vowel and one consonant that is not w, x or y: "hop", "fil", "crim".
_SHORT: Final = r"[^aeiou][^aeiouy]*+[aeiouy][^aeiouwxy]"
_is_short: Final = re.compile(_SHORT).fullmatch
_drops_final_e: Final = re.compile(rf"(?!{_SHORT}e\Z){_OPENING}[^aeiou]").match


def _rules(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Read suffixes and what replaces them, by their last two letters."""
    rules: dict[str, tuple[tuple[str, str], ...]] = {}
    for suffix, _, replacement in (rule.partition(">") for rule in text.split()):
        rules[suffix[-2:]] = (*rules.get(suffix[-2:], ()), (suffix, replacement))
    return rules


# The longest first if one ends in another: the first that fits decides, even if the measure of what is left of it
# forbids the replacement.
STEP_2: Final = _rules(
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize "
    "ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble logi>log"
)
STEP_3: Final = _rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4: Final = _rules(
    "al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> sion>s tion>t ou> ism> ate> iti> ous> ive> ize>"
)
# The same with how much to cut: "ion" goes only after s or t, which stay.
STEP_4: Final = {end: tuple((old, len(old) - len(new)) for old, new in rules) for end, rules in _STEP_4.items()}
DERIVED: Final = frozenset((*STEP_2, *STEP_3, *STEP_4))
CHANGED: Final = DERIVED | {"ll"}  # endings beside single letters without which a word is its own stem


def stem(word: str) -> str:
    """Return the stem of a lower-cased word.

    >>> [stem(word) for word in ("assembly", "cardiology", "metabolites", "hypertensive", "is")]
    ['assembl', 'cardiolog', 'metabolit', 'hypertens', 'is']
    """
    if not word.isascii() and max(word) > "\uffff":
        # Characters beyond the basic plane as Java counts them: as two, both of them consonants.
        units = word.encode("utf-16-le", "surrogatepass")
        split = (units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2))
        return stem_basic("".join(split)).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return stem_basic(word)


def stem_basic(word: str) -> str:
    """Return the stem of a lower-cased word of the basic plane, whose characters Java counts as one each."""
    # Nearly half of a large vocabulary ends in none of these.
    if len(word) < 3 or (word[-1] not in "sdgye" and word[-2:] not in CHANGED):
        return word
    if word[-1] in "sdgy":
        word = _without_inflection(word)
    if word[-2:] in DERIVED:
        word = _without_derivation(word)
    if word[-1] == "e" and _drops_final_e(word):
        word = word[:-1]
    if word[-2:] == "ll" and _measure_above_1(word):
        word = word[:-1]
    return word


def _without_inflection(word: str) -> str:
    if word[-1] == "s" and word[-2] != "s":
        word = word[:-2] if word[-2] == "e" and word.endswith(("sses", "ies")) else word[:-1]
    if word[-1] in "dg":
        word = _infinitive(word)
    if word[-1] == "y" and _has_vowel(word, 0, len(word) - 1):
        word = word[:-1] + "i"
    return word


def _infinitive(word: str) -> str:
    """Apply step 1b: take off -ed and -ing, and repair the word that is left."""
    if word.endswith("eed"):
        return word[:-1] if _measure_above_0(word, 0, len(word) - 3) else word
    cut = 2 if word.endswith("ed") else 3 if word.endswith("ing") else 0
    if not cut or not _has_vowel(word, 0, len(word) - cut):
        return word
    word = word[:-cut]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_in_double_consonant(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _is_short(word) else word


def _ends_in_double_consonant(word: str) -> bool:
    last = word[-1]
    if last != word[-2:-1] or last in "aeiou":
        return False
    if last != "y":
        return True
    # In a run of y consonants and vowels alternate, beginning with a consonant after a vowel and at the word's start.
    before = word.rstrip("y")
    odd_is_consonant = not before or before[-1] in "aeiou"
    return (len(word) - len(before)) % 2 == odd_is_consonant


def _without_derivation(word: str) -> str:
    """Apply steps 2 to 4: shorten a double suffix, then a single one, then take off what is left of it."""
    for step in (STEP_2, STEP_3):
        for suffix, replacement in step.get(word[-2:], ()):
            if word.endswith(suffix):
                if _measure_above_0(word, 0, len(word) - len(suffix)):
                    word = word[: -len(suffix)] + replacement
                break
    for suffix, cut in STEP_4.get(word[-2:], ()):
        if word.endswith(suffix):
            return word[:-cut] if _measure_above_1(word, 0, len(word) - cut) else word
    return word
