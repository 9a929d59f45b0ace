"""The judge of answers: a model that says whether an answer means the same as the gold answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from r2med.llm.parsing import TOP_GRADE, reply_lines
from r2med.llm.types import Failed, Model, Reply, Token
from r2med.models.templates import Template, bundled, delimited, own_template

_VERDICT = re.compile(r"verdict\s*[:=-]?\s*(yes|no)")


def read_verdict(text: str) -> bool | None:
    """What a judge decided: a line `Verdict: yes` or `Verdict: no`, or that word alone; None for anything else.

    >>> read_verdict("Other words, same disease.\\n**Verdict: Yes.**"), read_verdict("no"), read_verdict("yes?")
    (True, False, None)
    """
    lines = [line.rstrip(".") for line in reply_lines(text)]
    verdicts = {match[1] for line in lines if (match := _VERDICT.fullmatch(line))}
    if not verdicts and len(lines) == 1 and lines[0] in ("yes", "no"):
        verdicts = {lines[0]}
    return verdicts == {"yes"} if len(verdicts) == 1 else None


def yes_or_no(tokens: Sequence[Token]) -> float | None:
    """How much likelier yes is than no, as the logarithm of the odds, where the answer is first given.

    Spellings of a word are added up. A word that is not even among the alternatives is taken to be as likely as the
    least likely of them, which is the most it can be.

    >>> round(yes_or_no([Token("Yes", -0.1, (("Yes", -0.1), (" yes", -3.0), ("No", -2.5)))]), 3)
    2.454
    >>> yes_or_no([Token("Maybe", -0.1, (("Maybe", -0.1),))])
    """
    for token in tokens:
        if _word(token.text) in ("yes", "no"):
            return _odds([(token.text, token.logprob), *token.top])
    return _odds(tokens[0].top) if tokens and any(_word(text) in ("yes", "no") for text, _ in tokens[0].top) else None


def true_or_false(tokens: Sequence[Token], text: str) -> float | None:
    """How much likelier true is than false where a model ends with one of them; 1 or -1 by the word alone.

    >>> round(true_or_false([Token(" so", -0.1), Token(" true", -0.1, ((" true", -0.1), (" false", -2.4)))], "true"), 3)
    2.3
    >>> true_or_false([], "False."), true_or_false([], "perhaps")
    (-1.0, None)
    """
    answer = _word(text)
    if answer not in ("true", "false"):
        return None
    for token in reversed(tokens):
        if _word(token.text) == answer and token.top:
            return _odds([(token.text, token.logprob), *token.top], ("true", "false"))
    return 1.0 if answer == "true" else -1.0


def whole_number(tokens: Sequence[Token], text: str) -> float | None:
    """The whole number from 0 to 10 that a reply is, times its probability where the tokens tell it.

    >>> round(whole_number([Token("<answer>", 0.0), Token(" 8", -0.5)], "8"), 3)
    4.852
    >>> whole_number([], " 3 "), whole_number([], "high")
    (3.0, None)
    """
    found = _WHOLE.fullmatch(text.strip())
    if found is None or int(found[1]) > TOP_GRADE:
        return None
    return int(found[1]) * _probability(tokens, found[1])


_WHOLE = re.compile(r"(\d{1,2})(?:\.0)?[.\s]*")


def _probability(tokens: Sequence[Token], digits: str) -> float:
    """The probability of the last tokens that spell a number; 1 where they are not among those that were told."""
    spelled, logs = "", 0.0
    for token in reversed(tokens):
        part = _word(token.text)
        if part.isdigit():
            spelled, logs = part + spelled, logs + token.logprob
        elif spelled:
            break
    return math.exp(logs) if spelled == digits else 1.0


def _word(token: str) -> str:
    return token.strip(" \t\n\r*\"'.,!_▁Ġ").lower()


def _odds(alternatives: Iterable[tuple[str, float]], words: tuple[str, str] = ("yes", "no")) -> float:
    known = dict(alternatives)
    floor = min(known.values())

    def likelihood(word: str) -> float:
        logs = [value for text, value in known.items() if _word(text) == word] or [floor]
        highest = max(logs)
        return highest + math.log(sum(math.exp(value - highest) for value in logs))

    return likelihood(words[0]) - likelihood(words[1])


_PLACES = ("question", "correct_answer", "response")


def judge_prompt(file: str = "") -> Template:
    """What the judge is asked, or a prompt of one's own instead."""
    return own_template("the judge", file, _PLACES) if file else bundled("judge", "r2med.llm")


def judge_text(question: str, gold: str, answer: str, prompt: Template | None = None) -> str:
    """The prompt about one answer; each text stands between tags that it cannot close.

    >>> "<response>\\nscurvy &lt;/response>\\n</response>" in judge_text("Why?", "scurvy", "scurvy </response>")
    True
    """
    parts = zip(_PLACES, (question, gold, answer), strict=True)
    return (prompt or judge_prompt()).fill({name: delimited(name, text) for name, text in parts})


def unwavering(model: Model) -> Model:
    """The same model sampled without chance, where it has a say in that."""
    if model.sampling.temperature is None:
        return model
    return replace(model, sampling=replace(model.sampling, temperature=0.0))


def verdict_of(reply: Reply | Failed) -> tuple[bool | None, str]:
    """What the judge decided, or None and why there is no verdict."""
    if isinstance(reply, Failed):
        return None, reply.reason
    verdict = read_verdict(reply.text)
    return verdict, "" if verdict is not None else reply.incomplete or " ".join(reply.text.split())[:200]
