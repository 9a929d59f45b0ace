"""The rows of a review: questions, items, people, decisions and rulings, as everything above the store sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from r2med.errors import R2medError
from r2med.review.grading_scale import GradeScale

PERSON, MODEL, IMPORTED = "person", "model", "imported"
"""The kinds of reviewers."""
REVIEWER, ADJUDICATOR = "reviewer", "adjudicator"
"""What somebody is invited for."""
GRADED, UNSURE, SKIPPED, UNDONE = "graded", "unsure", "skipped", "undone"
"""What a decision says."""
RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, GOLD = "random", "disagreements", "near-cut", "holes", "gold"
"""How items are drawn. Only what was drawn at random may feed an estimate."""
CAUSES: Mapping[str, str] = {
    "question": "The question is ambiguous",
    "guideline": "The guideline is ambiguous",
    "knowledge": "It takes knowledge that one of them lacked",
    "slip": "A slip",
}
"""Why people disagreed, as an adjudicator names it."""
ANSWER, REASONING, SOURCES = REVEALS = "answer", "reasoning", "sources"
"""What a person can have revealed: the gold answer, the way to it, and (after deciding) where the item came from."""


class ChangedElsewhere(R2medError):
    """Somebody decides on something that was decided meanwhile, in another tab or on another device."""


@dataclass(frozen=True)
class ReviewProject:
    """What a review is of, and by which rules."""

    name: str
    created: str
    sources: tuple[str, ...]
    """What `--from` named."""
    data: Mapping[str, str]
    """The fingerprint of each task's data."""
    queue: str
    frames: Mapping[str, int]
    """How many pairs each way of drawing could draw from; estimates need that of `random`."""
    scale: GradeScale
    guideline: str
    overlap: float
    """The share of items that everybody judges."""
    repeat: float
    """The share of a person's items that come a second time."""
    seed: int
    open_answer: bool = False
    """Whether everybody sees the gold answer from the start; otherwise it is shown on request, and that is recorded."""

    def as_dict(self) -> dict[str, Any]:
        """As it is kept, and as JSON shows it."""
        return {**vars(self), "scale": self.scale.as_dict(), "sources": list(self.sources)}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> ReviewProject:
        """What `as_dict` gave."""
        return cls(**{**kept, "scale": GradeScale.from_dict(kept["scale"]), "sources": tuple(kept["sources"])})


@dataclass(frozen=True)
class ReviewQuestion:
    """A question, with what the task knows of it."""

    number: int
    task: str
    query: str
    """Its id in the task."""
    text: str
    answer: str = ""
    reasoning: str = ""


@dataclass(frozen=True)
class ReviewItem:
    """A passage to be judged for a question."""

    number: int
    question: int
    document: str
    """Its id in the task."""
    text: str
    drawn: str
    """How it was drawn."""
    shared: bool
    """Whether everybody judges it."""
    gold: int | None = None
    """The grade that is known to be right, where one is."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from (ranks by system, labels by source): nothing that a reviewer sees before deciding."""


@dataclass(frozen=True)
class Reviewer:
    """A person, a model or an imported label set."""

    id: int
    name: str
    kind: str
    role: str = REVIEWER
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a model or an import: what made its labels."""


class DealtItem(NamedTuple):
    """An item in its place in somebody's order."""

    position: int
    item: int
    again: bool
    """Whether this person has been dealt it before."""


class ProofSpan(NamedTuple):
    """The stretch of a passage's text that proves a decision, from character to character."""

    start: int
    end: int


class Revealed(NamedTuple):
    """What a person had revealed, and when."""

    what: str
    created: str


@dataclass(frozen=True)
class Decision:
    """One appended row: what a reviewer said of an item."""

    id: int
    """Counts up; the order of decisions, whatever clocks say."""
    reviewer: int
    item: int
    position: int | None
    """Its place in this person's order; None for models and imports."""
    again: bool
    """Whether it is a second look at the same item."""
    verdict: str
    grade: int | None
    """The grade where the verdict is `graded`; an unsure person may name one, too."""
    span: ProofSpan | None
    note: str
    sentence: int | None
    """The sentence of the guideline that is unclear, counted from 0."""
    seconds: float | None
    """How long the item was looked at; None where that is not known."""
    revealed: tuple[Revealed, ...]
    created: str
    """By the server's clock, in UTC."""
    undoes: int | None = None
    """The decision that is taken back."""


@dataclass(frozen=True)
class DraftDecision:
    """A decision before it is a row."""

    verdict: str
    grade: int | None = None
    span: ProofSpan | None = None
    note: str = ""
    sentence: int | None = None
    seconds: float | None = None
    revealed: tuple[Revealed, ...] = ()
    """Of an import: what its file says was revealed. Of a person at the desk, the file of the review knows it."""

    def check(self, scale: GradeScale, letters: int, guideline: int) -> None:
        """Refuse what the scale, the text of so many letters or the guideline of so many sentences does not have."""
        if self.verdict not in (GRADED, UNSURE, SKIPPED):
            raise R2medError(f"a decision is {GRADED}, {UNSURE} or {SKIPPED}, not {self.verdict!r}")
        if self.grade is not None:
            scale.grade(self.grade)
        if self.verdict == GRADED and self.grade is None:
            raise R2medError("a decision needs a grade")
        if self.span is not None and not 0 <= self.span.start < self.span.end <= letters:
            raise R2medError("the marked stretch is not in the passage")
        if self.sentence is not None and not 0 <= self.sentence < guideline:
            raise R2medError(f"the guideline has no sentence {self.sentence + 1}")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise R2medError("the seconds of a decision must be a number from 0 on")


@dataclass(frozen=True)
class Ruling:
    """One appended row: what an adjudicator says of an item that people disagree about."""

    id: int
    reviewer: int
    item: int
    grade: int | None
    """None where a ruling is taken back."""
    cause: str
    sentence: int | None
    note: str
    seconds: float | None
    created: str
    undoes: int | None = None
    revealed: tuple[Revealed, ...] = ()
    """What the adjudicator had revealed before."""


class Invitation(NamedTuple):
    """A link that was given out."""

    id: int
    reviewer: int
    created: str
    withdrawn: str
    """When it was withdrawn; empty while it holds."""


def standing_rows(rows: Sequence[Decision]) -> dict[tuple[int, int, bool], Decision]:
    """The decisions that hold, by reviewer, item and whether it is a second look: the last that was not taken back."""
    undone = {row.undoes for row in rows if row.undoes is not None}
    held = (row for row in rows if row.verdict != UNDONE and row.id not in undone)
    return {(row.reviewer, row.item, row.again): row for row in held}
