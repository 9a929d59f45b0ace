"""Parsers of decisions in a model's reply: a class, a cited answer, JSON, a ranking, grades, the verdict of a judge.

A reply that cannot be read is None or empty, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from json import JSONDecoder
from typing import Any, NamedTuple

import orjson

from r2med.llm.types import Failed, Model, Reply
from r2med.models.templates import Template, bundled, delimited, own_template


def excerpt(text: str) -> str:
    """Return the beginning of a reply, for a message about it."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:60] + "...")


_FULL_WIDTH = {ord(sign): chr(ord(sign) - 0xFEE0) for sign in "＞，；＝：［］＃．－／（）"}
_ESCAPE = re.compile(r"\\([][><*_#.()=~-])")


def _plain_signs(text: str) -> str:
    r"""Return a text with ASCII signs in place of full-width ones, and without the escapes of Markdown.

    >>> _plain_signs(r"\[3\] \> [1] ＞ [2]")
    '[3] > [1] > [2]'
    """
    return _ESCAPE.sub(r"\1", text.translate(_FULL_WIDTH))


def reply_lines(text: str) -> list[str]:
    """Return the lines of a reply in lower case, without marks of emphasis."""
    lines = (re.sub(r"[*_`#>]", "", line).strip().casefold() for line in _plain_signs(text).splitlines())
    return [line for line in lines if line]


_DENIAL = re.compile(r"\b(?:not|no|nor|neither|non|nothing|none|except)\b")


def read_class(text: str, classes: Sequence[str]) -> str | None:
    """Read the class that a reply names: its only line, or its line `Class: ...`, must name exactly one.

    >>> read_class("It is the heart.\\n**Class: Cardiovascular**", ["cardiovascular", "nervous"])
    'cardiovascular'
    """
    lines = reply_lines(text)
    stated = [line.partition(":")[2] for line in lines if re.match(r"class\s*:", line)]
    if not stated and len(lines) == 1:
        stated = lines
    if any(_DENIAL.search(line) for line in stated):
        return None
    words = {name: rf"(?<![\w-]){re.escape(name.casefold())}(?![\w-])" for name in classes}
    named = [{name for name, pattern in words.items() if re.search(pattern, line)} for line in stated]
    return next(iter(named[0])) if named and all(named) and len(set().union(*named)) == 1 else None


_FIELD = re.compile(r"[\s*_`#>\\-]*(answer|sources?)[\s*_`\\]*[:：][\s*_`\\]*(.*)", re.IGNORECASE)
_FEW_WORDS = 20  # what is longer has not kept to the form that was asked for, and may well say more than one thing
_NUMBER = re.compile(r"(?<![\d.])\d{1,3}(?![\d.]*\d)")
_CITED = re.compile(r"[\[【]([\d\s,;]+)[\]】]")
_ABSTAINS = re.compile(
    r"(?:it is |this is )?not answerable(?: from (?:this|these|the) ?(?:sources?|passages?)?)?\W*", re.IGNORECASE
)


class CitedAnswer(NamedTuple):
    """An answer and the numbers of the sources that it names."""

    answer: str
    cited: tuple[int, ...]
    abstained: bool = False


def read_cited_answer(text: str) -> CitedAnswer | None:
    """Read the fields `Answer:` and `Sources:` of a reply; None if no answer, or more than one, is given.

    Only these fields are read. A reply of a few words in one line without a field is an answer.

    >>> read_cited_answer("Low ceruloplasmin.\\n**Answer:** Wilson disease [2]\\nSources: [2], [7]")
    CitedAnswer(answer='Wilson disease', cited=(2, 7), abstained=False)
    """
    fields = _fields(text)
    answers = [value for name, value in fields if name == "answer"]
    if not answers and not fields and len(text.strip().splitlines()) == 1 and len(text.split()) <= _FEW_WORDS:
        answers = [text.strip()]
    plain = {_uncited(answer).casefold() for answer in answers}
    if len(plain) != 1 or plain == {""}:
        return None
    sources = [value for name, value in fields if name == "sources"]
    cited = dict.fromkeys(
        [*_citations(answers), *(_citations(sources) or map(int, _NUMBER.findall(" ".join(sources))))]
    )
    answer = _uncited(answers[0])
    return CitedAnswer(answer, tuple(cited), _ABSTAINS.fullmatch(answer) is not None)


def _citations(texts: Sequence[str]) -> list[int]:
    return [int(number) for text in texts for part in _CITED.findall(text) for number in _NUMBER.findall(part)]


def _fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of a reply in order; an answer extends to the next blank line, sources are one line."""
    fields: list[tuple[str, str]] = []
    going_on = False
    for line in text.splitlines():
        if match := _FIELD.fullmatch(line):
            fields.append(("answer" if match[1].casefold() == "answer" else "sources", match[2].strip()))
            going_on = True
        elif fields and going_on:
            name, value = fields[-1]
            going_on = not value or (name == "answer" and bool(line.strip()))
            if going_on:
                fields[-1] = name, f"{value} {line.strip()}".strip()
    return fields


def _uncited(answer: str) -> str:
    return " ".join(_CITED.sub(" ", answer).split()).strip(" *_`")


_DECODER = JSONDecoder()


def read_object(text: str) -> dict[str, Any] | None:
    """Read the last JSON object in a reply, whatever surrounds it.

    >>> read_object('{"a": 1} or {"a": 2, "b": {"c": 3}}')
    {'a': 2, 'b': {'c': 3}}
    """
    last: dict[str, Any] | None = None
    end = 0
    for start in (match.start() for match in re.finditer(r"\{", text)):
        with suppress(ValueError, RecursionError):
            if start >= end:
                _, stop = _DECODER.raw_decode(text, start)
                last, end = orjson.loads(text[start:stop]), stop
    return last


_BRACKETED = re.compile(r"[\[【]\s*(\d{1,9})\s*[\]】]")
_BARE = re.compile(r"\d{1,9}")
_WORDS = r"(?:passages?|documents?|docs?|no\.?|#)"
# What may stand between two numbers of one ranking: marks, line breaks, the places of a numbered list, the word itself.
_BETWEEN = re.compile(rf"(?:[\s>,;=≥→*|&+\"'-]|{_WORDS}|(?:^|(?<=\n))\s*\d+[.)])*", re.IGNORECASE)
_BETWEEN_BARE = re.compile(rf"\s*(?:[>,;≥→]\s*)+{_WORDS}?\s*", re.IGNORECASE)
_ONLY_NUMBERS = re.compile(r"[\d\s]+")
_GAP = r"(?:\s|[:=|>*\"'–—]|-(?=\s)|grade|score|is)*"
_GRADE = r"(\d{1,3}(?:\.\d+)?)(?![\d.]*\d)"
_BRACKETED_GRADE = re.compile(rf"[\[【]\s*(\d{{1,9}})\s*[\]】]{_GAP}{_GRADE}", re.IGNORECASE)
_BARE_GRADE = re.compile(
    rf"(?:^|[\n,{{;])[\s*-]*{_WORDS}?\s*[\"']?(\d{{1,9}})[\"'*]*\s*[:=]{_GAP}{_GRADE}", re.IGNORECASE
)
_LAST_GRADE = re.compile(rf"(?:^|[\s:=*]){_GRADE}(?:\s*/\s*10)?[\s.*]*$")
TOP_GRADE = 10.0


class Permutation(NamedTuple):
    """An order that a reply gives, as places from 0."""

    order: tuple[int, ...]
    repaired: bool  # whether numbers were missing, repeated or invented


def read_permutation(text: str, count: int) -> Permutation | None:
    """Read the order in which a reply puts passages 1 to `count`; None if it names none of them.

    Unknown numbers are ignored, the first occurrence of a repeated one counts, and missing ones follow in the order
    they had. If a reply has several rankings, the one with the most numbers counts; of equals, the last. If it has none
    of two numbers or more, all numbers in brackets count, in their order.

    >>> read_permutation("[3] > [1]", 3)
    Permutation(order=(2, 0, 1), repaired=True)
    """
    text = _plain_signs(text)
    if _ONLY_NUMBERS.fullmatch(text.strip()):
        rankings = [list(map(int, _BARE.findall(text)))]
    else:
        # Those in brackets last, so that they win between equals.
        bare = [chain for chain in _chains(text, _BARE, _BETWEEN_BARE) if len(chain) > 1]
        rankings = [*bare, *_chains(text, _BRACKETED, _BETWEEN)]
    best: list[int] = []
    ranking: Sequence[int] = ()
    for numbers in rankings:
        usable = list(dict.fromkeys(number - 1 for number in numbers if 1 <= number <= count))
        if usable and len(usable) >= len(best):
            best, ranking = usable, numbers
    if not best:
        return None
    if len(best) == 1:
        ranking = [int(number) for number in _BRACKETED.findall(text)] or ranking
        best = list(dict.fromkeys(number - 1 for number in ranking if 1 <= number <= count)) or best
    missing = [place for place in range(count) if place not in set(best)]
    return Permutation((*best, *missing), bool(missing) or len(ranking) != len(best))


_TIED = re.compile(r"[\[【]\s*\d{1,9}\s*[\]】](?:\s*=\s*[\[【]\s*\d{1,9}\s*[\]】])+")


def read_tied_ranking(text: str, count: int) -> Permutation | None:
    """Read a ranking that may call passages equal, `[3] > [2] = [1]`; those stay in the order they had.

    >>> read_tied_ranking("[3] > [2] = [1]", 3)
    Permutation(order=(2, 0, 1), repaired=False)
    """

    def settle(tie: re.Match[str]) -> str:
        return " > ".join(f"[{number}]" for number in sorted(map(int, _BARE.findall(tie[0]))))

    return read_permutation(_TIED.sub(settle, _plain_signs(text)), count)


def _chains(text: str, item: re.Pattern[str], between: re.Pattern[str]) -> Iterable[list[int]]:
    chain: list[int] = []
    end = 0
    for match in item.finditer(text):
        if chain and not between.fullmatch(text, end, match.start()):
            yield chain
            chain = []
        chain.append(int(match[1] if item.groups else match[0]))
        end = match.end()
    if chain:
        yield chain


def read_grades(text: str, count: int) -> dict[int, float]:
    """Read the grades of passages 1 to `count` in a reply, by place from 0; the last of two for a passage counts.

    JSON comes first: an object of numbers and grades, or a list of objects with a number and a grade each.

    >>> read_grades("[1]: 7\\n[2]: 0/10", 2), read_grades('{"1": 3, "2": 9.5}', 2), read_grades("no idea", 2)
    ({0: 7.0, 1: 0.0}, {0: 3.0, 1: 9.5}, {})
    """
    text = _plain_signs(text)
    grades = _json_grades(text)
    if not grades:
        pairs = _BRACKETED_GRADE.findall(text) or _BARE_GRADE.findall(text)
        grades = [(int(number), float(grade)) for number, grade in pairs]
    return {number - 1: grade for number, grade in grades if 1 <= number <= count and 0 <= grade <= TOP_GRADE}


_ENTRY_KEYS = (
    ("id", "number", "passage", "index", "document", "doc", "passage_id", "doc_id"),
    ("score", "grade", "relevance", "relevance_score"),
)
_KEY_NUMBER = re.compile(r"\D*(\d{1,9})\D*")


def _json_grades(text: str) -> list[tuple[int, float]]:
    """Read numbers and grades from the JSON in a reply; none if there is no JSON, or it has another form."""
    for value in (read_object(text), _last_list(text)):
        if isinstance(value, dict):
            value = next((part for part in value.values() if isinstance(part, dict | list)), value)
        if isinstance(value, list):
            pairs = [
                tuple(next((entry[name] for name in names if name in entry), None) for names in _ENTRY_KEYS)
                for entry in value
                if isinstance(entry, dict)
            ]
        else:
            pairs = list((value or {}).items())
        grades = []
        for key, grade in pairs:
            number = _KEY_NUMBER.fullmatch(str(key))
            grade = read_grade(grade) if isinstance(grade, str) else grade  # a text such as 7/10
            if number and isinstance(grade, int | float) and not isinstance(grade, bool):
                grades.append((int(number[1]), float(grade)))
        if grades:
            return grades
    return []


def _last_list(text: str) -> Any:
    """Read the last JSON list of objects in a reply."""
    end = text.rfind("]") + 1
    for match in re.finditer(r"\[\s*\{", text):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text[match.start() : end])
    return None


def read_grade(text: str) -> float | None:
    """Read the one grade with which a reply ends; None if it ends with none.

    >>> read_grade("It fits well.\\nGrade: 8/10"), read_grade("7"), read_grade("Grade: 70")
    (8.0, 7.0, None)
    """
    match = _LAST_GRADE.search(_plain_signs(text).strip())
    grade = float(match[1]) if match else math.inf
    return grade if grade <= TOP_GRADE else None


_VERDICT = re.compile(r"verdict\s*[:=-]?\s*(yes|no)")


def read_verdict(text: str) -> bool | None:
    """Read the verdict of a judge: a line `Verdict: yes` or `Verdict: no`, or that word alone; else None.

    >>> read_verdict("Other words, same disease.\\n**Verdict: Yes.**"), read_verdict("no"), read_verdict("yes?")
    (True, False, None)
    """
    lines = [line.rstrip(".") for line in reply_lines(text)]
    verdicts = {match[1] for line in lines if (match := _VERDICT.fullmatch(line))}
    if not verdicts and len(lines) == 1 and lines[0] in ("yes", "no"):
        verdicts = {lines[0]}
    return verdicts == {"yes"} if len(verdicts) == 1 else None


_PLACES = ("question", "correct_answer", "response")


def judge_prompt(file: str = "") -> Template:
    """Return the prompt of the judge, or the user's own instead."""
    return own_template("the judge", file, _PLACES) if file else bundled("judge", "r2med.llm")


def judge_text(question: str, gold: str, answer: str, prompt: Template | None = None) -> str:
    """Fill in the prompt about one answer; each text is put between tags that it cannot close.

    >>> "<response>\\nscurvy &lt;/response>\\n</response>" in judge_text("Why?", "scurvy", "scurvy </response>")
    True
    """
    parts = zip(_PLACES, (question, gold, answer), strict=True)
    return (prompt or judge_prompt()).fill({name: delimited(name, text) for name, text in parts})


def unwavering(model: Model) -> Model:
    """Return the same model at temperature 0, if it takes a temperature."""
    if model.sampling.temperature is None:
        return model
    return replace(model, sampling=replace(model.sampling, temperature=0.0))


def verdict_of(reply: Reply | Failed) -> tuple[bool | None, str]:
    """Return the verdict of the judge, or None and the reason why there is none."""
    verdict = read_verdict(reply.text)
    return verdict, "" if verdict is not None else reply.incomplete or " ".join(reply.text.split())[:200]
