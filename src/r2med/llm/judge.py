"""The judge of answers and its verdict, and scores from the log probabilities of yes, true or a grade."""

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
    """Read the verdict of a judge: a line `Verdict: yes` or `Verdict: no`, or that word alone; else None.

    >>> read_verdict("Other words, same disease.\\n**Verdict: Yes.**"), read_verdict("no"), read_verdict("yes?")
    (True, False, None)
    """
    lines = [line.rstrip(".") for line in reply_lines(text)]
    verdicts = {match[1] for line in lines if (match := _VERDICT.fullmatch(line))}
    if not verdicts and len(lines) == 1 and lines[0] in ("yes", "no"):
        verdicts = {lines[0]}
    return verdicts == {"yes"} if len(verdicts) == 1 else None


def yes_or_no(tokens: Sequence[Token]) -> float | None:
    """Return the log odds of yes against no at the token where the answer is first given.

    Spellings of a word are added up. A word that is not even among the alternatives is taken to be as likely as the
    least likely of them, which is the most it can be.

    >>> round(yes_or_no([Token("Yes", -0.1, (("Yes", -0.1), (" yes", -3.0), ("No", -2.5)))]), 3)
    2.454
    """
    for token in tokens:
        if _word(token.text) in ("yes", "no"):
            return _odds([(token.text, token.logprob), *token.top])
    return _odds(tokens[0].top) if tokens and any(_word(text) in ("yes", "no") for text, _ in tokens[0].top) else None


def true_or_false(tokens: Sequence[Token], text: str) -> float | None:
    """Return the log odds of true against false if a model ends with one of them; 1 or -1 by the word alone.

    >>> round(true_or_false([Token(" so", -0.1), Token(" true", -0.1, ((" true", -0.1), (" false", -2.4)))], "true"), 3)
    2.3
    """
    answer = _word(text)
    if answer not in ("true", "false"):
        return None
    for token in reversed(tokens):
        if _word(token.text) == answer and token.top:
            return _odds([(token.text, token.logprob), *token.top], ("true", "false"))
    return 1.0 if answer == "true" else -1.0


def whole_number(tokens: Sequence[Token], text: str) -> float | None:
    """Read a reply that is a whole number from 0 to 10, and multiply it by its probability if the tokens give it.

    >>> round(whole_number([Token("<answer>", 0.0), Token(" 8", -0.5)], "8"), 3)
    4.852
    """
    match = _WHOLE.fullmatch(text.strip())
    if match is None or int(match[1]) > TOP_GRADE:
        return None
    spelled, logs = "", 0.0
    for token in reversed(tokens):
        part = _word(token.text)
        if part.isdigit():
            spelled, logs = part + spelled, logs + token.logprob
        elif spelled:
            break
    return int(match[1]) * (math.exp(logs) if spelled == match[1] else 1.0)


_WHOLE = re.compile(r"(\d{1,2})(?:\.0)?[.\s]*")


def _word(token: str) -> str:
    return token.strip(" \t\n\r*\"'.,!_▁Ġ").lower()


def _odds(alternatives: Iterable[tuple[str, float]], words: tuple[str, str] = ("yes", "no")) -> float:
    log_probabilities = dict(alternatives)
    floor = min(log_probabilities.values())

    def likelihood(word: str) -> float:
        logs = [value for text, value in log_probabilities.items() if _word(text) == word] or [floor]
        highest = max(logs)
        return highest + math.log(sum(math.exp(value - highest) for value in logs))

    return likelihood(words[0]) - likelihood(words[1])


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
    if isinstance(reply, Failed):
        return None, reply.reason
    verdict = read_verdict(reply.text)
    return verdict, "" if verdict is not None else reply.incomplete or " ".join(reply.text.split())[:200]
