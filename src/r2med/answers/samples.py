"""Answers as samples: each with its kind, the sources that it names, and what was in view."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from itertools import combinations

from msgspec.structs import replace

from r2med.answers.arms import ShownPassage
from r2med.answers.nuggets import Support, recall
from r2med.data.nuggets import Nugget
from r2med.llm.parsing import read_cited_answer
from r2med.llm.types import Failed, Reply
from r2med.measure.answers import matches, normalise_answer, plainly_contains
from r2med.store.typed import Typed

_LONGEST = 2000  # letters of a reply that are kept to be looked at; the whole is among the kept replies


class AnswerKind(StrEnum):
    """Outcome of one request for an answer."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSTAINED = "abstained"  # the model said that it cannot be answered
    UNPARSABLE = "unparsable"  # the reply holds no answer, or several
    UNJUDGED = "unjudged"  # the judge's verdict cannot be read, or never came
    FAILED = "failed"  # the model never replied


DECIDED = (AnswerKind.RIGHT, AnswerKind.WRONG, AnswerKind.ABSTAINED)
"""Those that count in an accuracy: an abstention is not right."""


class SampledAnswer(Typed, frozen=True):
    """One answer to one question."""

    kind: AnswerKind
    answer: str = ""
    cited: tuple[int, ...] = ()  # the numbers of the sources that it names, shown or not
    exact: bool = False
    contained: bool = False
    decided_by: str = ""
    """`exact`, `contained`, `judge`, or `words` where no judge was asked about an answer that does not match."""
    text: str = ""  # the reply, as far as it is kept
    problem: str = ""  # why it could not be decided
    support: tuple[Support, ...] | None = None
    """The label of every nugget of the question; None if it has none, or if the judge's labels cannot be read."""


class QuestionAnswers(Typed, frozen=True, dict=True):
    """Samples of answers to one question under one arm."""

    query: str
    shown: tuple[ShownPassage, ...]
    samples: tuple[SampledAnswer, ...]
    retrieval: float | None = None  # the measure of the list that the passages came from; None without a list
    nuggets: tuple[Nugget, ...] = ()  # facts of a good answer, which the answers were searched for

    @cached_property
    def value(self) -> float | None:
        """Return the share of right ones among the samples that were decided; None if none was."""
        decided = [sample.kind is AnswerKind.RIGHT for sample in self.samples if sample.kind in DECIDED]
        return sum(decided) / len(decided) if decided else None

    def recall(self, kind: str) -> float | None:
        """Return the mean recall of nuggets of the samples whose labels could be read; None if there are none."""
        values = [recall(kind, self.nuggets, sample.support) for sample in self.samples if sample.support]
        recalls = [value for value in values if value is not None]
        return sum(recalls) / len(recalls) if recalls else None

    @property
    def right(self) -> bool:
        """Return whether more than half of the decided samples are right."""
        return (self.value or 0.0) > 0.5

    @property
    def evidence(self) -> bool:
        """Return whether a relevant passage was in view."""
        return any(passage.relevant for passage in self.shown)

    @property
    def agreement(self) -> float | None:
        """Return the share of pairs of samples with the same words; None for fewer than two answers."""
        unread = (AnswerKind.FAILED, AnswerKind.UNPARSABLE)
        words = [normalise_answer(sample.answer) for sample in self.samples if sample.kind not in unread]
        pairs = list(combinations(words, 2))
        return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


def read_reply(reply: Reply | Failed, gold: str, synonyms: Sequence[str], *, judged: bool) -> SampledAnswer:
    """Read a reply as far as words decide it; with `judged`, the rest is left UNJUDGED for a judge."""
    if isinstance(reply, Failed):
        return SampledAnswer(AnswerKind.FAILED, problem=reply.incomplete)
    cited = None if reply.incomplete else read_cited_answer(reply.text)
    text = reply.text[:_LONGEST]
    if cited is None:
        return SampledAnswer(AnswerKind.UNPARSABLE, text=text, problem=reply.incomplete or "no answer, or several")
    sample = SampledAnswer(AnswerKind.ABSTAINED, cited.answer, cited.cited, text=text)
    if cited.abstained:
        return sample
    exact, contained = matches(cited.answer, gold, synonyms)
    kind, decided_by = (AnswerKind.UNJUDGED, "") if judged else (AnswerKind.WRONG, "words")
    if exact or plainly_contains(cited.answer, gold, synonyms):
        kind, decided_by = AnswerKind.RIGHT, "exact" if exact else "contained"
    return replace(sample, kind=kind, exact=exact, contained=contained, decided_by=decided_by)


def holds_answer(sample: SampledAnswer) -> bool:
    """Return whether a sample has an answer, which nuggets can be looked for in."""
    return sample.kind in (AnswerKind.RIGHT, AnswerKind.WRONG, AnswerKind.UNJUDGED)


def with_verdict(sample: SampledAnswer, verdict: bool | None, problem: str) -> SampledAnswer:
    """Add the judge's verdict to a sample."""
    if verdict is None:
        return replace(sample, problem=problem)
    return replace(sample, kind=AnswerKind.RIGHT if verdict else AnswerKind.WRONG, decided_by="judge")
