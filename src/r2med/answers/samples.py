"""Answers as samples: each with its kind, the sources that it names, and what was in view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

from r2med.answers.sources import Source
from r2med.llm.parsing import read_cited_answer
from r2med.llm.types import Failed, Reply
from r2med.measure.answers import matches, normalised, plainly_contains

_LONGEST = 2000
"""Letters of a reply that are kept to be looked at; the whole is among the kept replies."""


class AnswerKind(StrEnum):
    """Outcome of one request for an answer."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSTAINED = "abstained"
    """The model said that it cannot be answered."""
    UNPARSABLE = "unparsable"
    """The reply holds no answer, or several."""
    UNJUDGED = "unjudged"
    """The judge's verdict cannot be read, or never came."""
    FAILED = "failed"
    """The model never replied."""


DECIDED = (AnswerKind.RIGHT, AnswerKind.WRONG, AnswerKind.ABSTAINED)
"""Those that count in an accuracy: an abstention is not right."""


@dataclass(frozen=True)
class SampledAnswer:
    """One answer to one question."""

    kind: AnswerKind
    answer: str = ""
    cited: tuple[int, ...] = ()
    """The numbers of the sources that it names, shown or not."""
    exact: bool = False
    contained: bool = False
    decided_by: str = ""
    """`exact`, `contained`, `judge`, or `words` where no judge was asked about an answer that does not match."""
    text: str = ""
    """The reply, as far as it is kept."""
    problem: str = ""
    """Why it could not be decided."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SampledAnswer:
        """Read a sample from the ledger."""
        return cls(**{**content, "kind": AnswerKind(content["kind"]), "cited": tuple(content["cited"])})


class ShownPassage(NamedTuple):
    """A passage that was in view, under its place from 1."""

    document: str
    relevant: bool
    cut: bool
    tokens: int
    score: float | None


@dataclass(frozen=True)
class QuestionAnswers:
    """Samples of answers to one question under one arm."""

    query: str
    shown: tuple[ShownPassage, ...]
    samples: tuple[SampledAnswer, ...]
    retrieval: float | None = None
    """The measure of the list that the passages came from; None where they came from none."""

    @cached_property
    def value(self) -> float | None:
        """Return the share of right ones among the samples that were decided; None if none was."""
        decided = [each.kind is AnswerKind.RIGHT for each in self.samples if each.kind in DECIDED]
        return sum(decided) / len(decided) if decided else None

    @property
    def right(self) -> bool:
        """Return whether more than half of the decided samples are right."""
        return (self.value or 0.0) > 0.5

    @property
    def evidence(self) -> bool:
        """Return whether a relevant passage was in view."""
        return any(each.relevant for each in self.shown)

    @property
    def agreement(self) -> float | None:
        """Return the share of pairs of samples with the same words; None for fewer than two answers."""
        words = [
            normalised(each.answer)
            for each in self.samples
            if each.kind not in (AnswerKind.FAILED, AnswerKind.UNPARSABLE)
        ]
        pairs = list(combinations(words, 2))
        return sum(one == other for one, other in pairs) / len(pairs) if pairs else None

    def as_json(self) -> dict[str, Any]:
        """Return the answers for the ledger."""
        return {
            "query": self.query,
            "shown": [list(each) for each in self.shown],
            "samples": [vars(each) | {"kind": each.kind.value} for each in self.samples],
            "retrieval": self.retrieval,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> QuestionAnswers:
        """Read the answers from the ledger."""
        return cls(
            content["query"],
            tuple(ShownPassage(*each) for each in content["shown"]),
            tuple(map(SampledAnswer.from_json, content["samples"])),
            content["retrieval"],
        )


def in_view(sources: Sequence[Source]) -> tuple[ShownPassage, ...]:
    """Return the facts to store of the sources of a prompt."""
    return tuple(ShownPassage(each.document, each.relevant, each.cut, each.tokens, each.score) for each in sources)


def read_reply(reply: Reply | Failed, gold: str, synonyms: Sequence[str], *, judged: bool) -> SampledAnswer:
    """Read a reply as far as words decide it; with `judged`, the rest is left UNJUDGED for a judge."""
    if isinstance(reply, Failed):
        return SampledAnswer(AnswerKind.FAILED, problem=reply.reason)
    found = None if reply.incomplete else read_cited_answer(reply.text)
    text = reply.text[:_LONGEST]
    if found is None:
        return SampledAnswer(AnswerKind.UNPARSABLE, text=text, problem=reply.incomplete or "no answer, or several")
    sample = SampledAnswer(AnswerKind.ABSTAINED, found.answer, found.cited, text=text)
    if found.abstained:
        return sample
    exact, contained = matches(found.answer, gold, synonyms)
    sample = replace(sample, exact=exact, contained=contained)
    if exact or plainly_contains(found.answer, gold, synonyms):
        return replace(sample, kind=AnswerKind.RIGHT, decided_by="exact" if exact else "contained")
    return (
        replace(sample, kind=AnswerKind.UNJUDGED)
        if judged
        else replace(sample, kind=AnswerKind.WRONG, decided_by="words")
    )


def with_verdict(sample: SampledAnswer, verdict: bool | None, problem: str) -> SampledAnswer:
    """Add the judge's verdict to a sample."""
    if verdict is None:
        return replace(sample, problem=problem)
    return replace(sample, kind=AnswerKind.RIGHT if verdict else AnswerKind.WRONG, decided_by="judge")
