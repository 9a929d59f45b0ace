"""The judge of answers: a model that says whether an answer means the same as the gold answer."""

from __future__ import annotations

from dataclasses import replace

from r2med.llm.reading import read_verdict
from r2med.llm.types import Failed, Model, Reply
from r2med.models.prompts import Template, bundled, delimited, own_template

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
