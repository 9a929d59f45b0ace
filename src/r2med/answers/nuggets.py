"""Nuggets of answers: which facts of a good answer an answer holds, by a judge, and the recall that this makes.

The scores are those of AutoNuggetizer in the RAG track of TREC 2024 (arXiv 2411.09607 and 2504.15068), except that a
question without a vital nugget has no vital recall, in place of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from r2med.data.nuggets import Nugget
from r2med.llm.parsing import read_object
from r2med.llm.types import Failed, Reply
from r2med.models.templates import Prompt, Template, bundled, delimited


class Support(StrEnum):
    """Label of a nugget for an answer."""

    FULL = "support"
    PARTIAL = "partial_support"
    NONE = "not_support"


_CREDITS: Mapping[str, float] = {"strict": 0.0, "lenient": 0.5}  # what partial support counts
_WEIGHTS: Mapping[str, float] = {"vital": 0.0, "all": 1.0, "weighted": 0.5}  # of okay nuggets; that of vital ones is 1
RECALLS: Mapping[str, tuple[float, float]] = {
    f"{credit}_{weight}": (_CREDITS[credit], _WEIGHTS[weight]) for credit in _CREDITS for weight in _WEIGHTS
}
"""The kinds of recall, from `strict_vital` on: credit of partial support and weight of okay nuggets."""


def recall(kind: str, nuggets: Sequence[Nugget], support: Sequence[Support]) -> float | None:
    """Return the share of nuggets that an answer holds; None if none of them counts.

    >>> nuggets = [Nugget("a", "scurvy", True), Nugget("b", "lack of vitamin C", False)]
    >>> [recall(kind, nuggets, [Support.PARTIAL, Support.FULL]) for kind in ("strict_all", "lenient_all")]
    [0.5, 0.75]
    >>> recall("strict_weighted", nuggets, [Support.FULL, Support.NONE]), recall("strict_vital", nuggets[1:], ["x"])
    (0.6666666666666666, None)
    """
    partial, okay = RECALLS[kind]
    credits = {Support.FULL: 1.0, Support.PARTIAL: partial}
    weights = [1.0 if nugget.vital else okay for nugget in nuggets]
    held = sum(weight * credits.get(label, 0.0) for weight, label in zip(weights, support, strict=True))
    return held / sum(weights) if sum(weights) else None


def support_prompt() -> Template:
    """Return the prompt of the judge of nuggets."""
    return bundled("support", "r2med.answers")


def support_text(question: str, answer: str, nuggets: Sequence[Nugget]) -> Prompt:
    """Fill in the prompt about one answer and all nuggets of its question."""
    lines = [f"{number}. {' '.join(nugget.text.split())}" for number, nugget in enumerate(nuggets, 1)]
    texts = {"question": delimited("question", question), "response": delimited("response", answer)}
    return support_prompt().fill({**texts, "nuggets": "\n".join(lines)})


def read_support(reply: Reply | Failed, count: int) -> tuple[Support, ...] | None:
    """Read the label of every nugget; None if one has none, or one that is not a label."""
    labels = None if reply.incomplete else read_object(reply.text)
    try:
        return tuple(Support(str(labels[str(number)])) for number in range(1, count + 1)) if labels else None
    except (KeyError, ValueError):
        return None
