"""The rows of a review: questions, items, people, decisions and rulings, as the layers above the store use them.

A row is a struct whose fields are the columns of a table, in order, before its seal; what is not plain is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from r2med.errors import R2medError
from r2med.reviews.scale import GradeScale
from r2med.store.cache import home
from r2med.store.sqlite import Format
from r2med.store.typed import Typed

PERSON, MODEL, IMPORTED = "person", "model", "imported"  # the kinds of reviewers
REVIEWER, ADJUDICATOR = "reviewer", "adjudicator"  # the roles that a reviewer can be invited for
GRADED, UNSURE, SKIPPED, UNDONE = "graded", "unsure", "skipped", "undone"  # the verdicts of a decision
RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, GOLD = "random", "disagreements", "near-cut", "holes", "gold"
UNVERIFIED = "unverified"
DECIDE = "decide"  # the queue that deals what decides a comparison of systems
"""How items are drawn. Only what was drawn at random may feed an estimate."""
NUGGETS = "nuggets"  # the queue of a review of all nuggets of a file, in place of passages
AGREED, POOLED = "found by all members", "other"
"""Of the pool of a build: what every member of its committee found, which is dealt first, and the rest."""
CAUSES: Mapping[str, str] = {
    "question": "The question is ambiguous",
    "guideline": "The guideline is ambiguous",
    "knowledge": "It takes knowledge that one of them lacked",
    "slip": "A slip",
}
"""Why people disagreed, as an adjudicator names it."""
ANSWER, REASONING, SOURCES = REVEALS = "answer", "reasoning", "sources"
"""What can be revealed: the gold answer, the way to it, and (after deciding) the origin of the item."""


class DecisionConflict(R2medError):
    """Conflict with a decision made meanwhile in another tab or on another device."""


class DecisionRule(Typed, frozen=True):
    """Comparison of systems that a review is to decide."""

    systems: tuple[str, ...]
    measure: str
    error: float
    """The probability of a wrong verdict at which no more is dealt."""
    given: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """By question with labels of the task: its number here (0 if it has no item), and how many passages are known to be
    relevant, with the gain of each system by them."""


class SystemPair(Typed, frozen=True):
    """Verdict on two systems."""

    a: str
    b: str
    difference: float
    """The expected difference of the means on the pool, a minus b."""
    deviation: float
    """Its standard deviation."""
    ahead: float
    """The probability that the one that is ahead is better."""
    alike: float
    """The probability that they are less than half a point apart."""

    @property
    def verdict(self) -> str:
        """Return the likelier verdict."""
        better, other = (self.a, self.b) if self.difference > 0 else (self.b, self.a)
        return f"{self.a} and {self.b} are alike" if self.alike > self.ahead else f"{better} is better than {other}"


class ReviewDecision(Typed, frozen=True):
    """How a comparison stands by the labels of a review."""

    measure: str
    systems: tuple[str, ...]
    means: tuple[float, ...]
    """The expected mean of each system, on the pool of the first documents of them all."""
    pairs: tuple[SystemPair, ...]
    error: float
    """A bound on the probability that one of the verdicts is wrong."""
    allowed: float
    """The error at which nothing more is dealt."""
    decided: bool
    labels: int
    """How many passages people have labelled."""
    pool: int
    """How many could be."""
    more: int
    """About how many more labels it takes if the differences stay as they are; 0 once decided."""

    @property
    def summary(self) -> str:
        """Return the outcome in a sentence."""
        labels = f"{self.labels:,} of {self.pool:,} labels"
        if self.decided:
            verdicts = "; ".join(pair.verdict for pair in self.pairs)
            return f"decided by {labels}: {verdicts} (a chance of at most {self.error:.1%} to be wrong)"
        more = f"about {self.more:,} more if the differences stay as they are"
        return f"not decided by {labels}: the chance to be wrong is {self.error:.0%}, not {self.allowed:.0%}; {more}"


class ReviewProject(Typed, frozen=True):
    """Sources and rules of a review."""

    name: str
    created: str
    sources: tuple[str, ...]  # What `--from` named.
    data: Mapping[str, str]  # The fingerprint of each task's data.
    queue: str
    frames: Mapping[str, int]  # How many pairs each way of drawing could draw from; estimates need that of `random`.
    scale: GradeScale
    guideline: str
    overlap: float  # The share of items that everybody judges.
    repeat: float  # The share of a person's items that come a second time.
    seed: int
    open_answer: bool = False
    """Whether everybody sees the gold answer from the start; otherwise it is shown on request, and that is recorded."""
    aspects: Mapping[str, Mapping[str, Mapping[str, float]]] = {}
    """The aspects of each query with their weights, by task, if reviewers are asked which of them a passage covers."""
    rule: DecisionRule | None = None
    """The comparison to decide, with `--queue decide`."""

    @property
    def unit(self) -> str:
        """Return the word for an item."""
        return "nugget" if self.queue == NUGGETS else "passage"


class ReviewQuestion(Typed, frozen=True):
    """A question, with what the task knows of it."""

    table: ClassVar = "question"

    number: int
    task: str
    query: str  # its id in the task
    text: str
    answer: str = ""
    reasoning: str = ""


class ReviewItem(Typed, frozen=True):
    """A passage to be judged for a question."""

    table: ClassVar = "item"

    number: int
    question: int
    document: str  # its id in the task
    text: str
    drawn: str  # how it was drawn
    shared: bool  # whether everybody judges it
    gold: int | None = None  # the grade that is known to be right, if any
    facts: Mapping[str, Any] = {}  # where it came from, such as ranks by system; no reviewer sees it before deciding


class Reviewer(Typed, frozen=True):
    """A person, a model or an imported label set."""

    table: ClassVar = "reviewer"

    id: int
    name: str
    kind: str
    role: str = REVIEWER
    settings: Mapping[str, Any] = {}  # of a model or an import: what made its labels


class DealtItem(NamedTuple):
    """An item at its place in a reviewer's order."""

    position: int
    item: int
    again: bool  # whether this person has been dealt it before


class ProofSpan(NamedTuple):
    """The stretch of a passage's text that proves a decision, from character to character."""

    start: int
    end: int


class Revealed(NamedTuple):
    """Facts that a reviewer had revealed, and the time."""

    what: str
    created: str


class Decision(Typed, frozen=True):
    """One appended row: a reviewer's verdict on an item."""

    table: ClassVar = "decision"

    id: int  # counts up; the order of decisions, whatever clocks say
    reviewer: int
    item: int
    position: int | None  # its place in this person's order; None for models and imports
    again: bool  # whether it is a second look at the same item
    verdict: str
    grade: int | None  # the grade if the verdict is `graded`; an unsure person may name one, too
    span: ProofSpan | None
    note: str
    sentence: int | None  # the sentence of the guideline that is unclear, counted from 0
    seconds: float | None  # how long the item was looked at; None if that is not known
    revealed: tuple[Revealed, ...]
    created: str  # by the server's clock, in UTC
    undoes: int | None = None  # the decision that is taken back
    token: str = ""  # of the form that was sent: a form sent twice is one row


class AspectCoverage(Typed, frozen=True):
    """The aspects of its question that a passage covers, as one decision says; written with the decision."""

    table: ClassVar = "coverage"

    decision: int
    aspects: tuple[str, ...]


class DraftDecision(Typed, frozen=True):
    """A decision before it is a row."""

    verdict: str
    grade: int | None = None
    span: ProofSpan | None = None
    note: str = ""
    sentence: int | None = None
    seconds: float | None = None
    revealed: tuple[Revealed, ...] = ()  # of an import: what its file says; of a person at the desk, the store knows
    aspects: tuple[str, ...] | None = None  # those that the passage covers; None if that was not asked

    def check(self, scale: GradeScale, letters: int, guideline: int) -> None:
        """Refuse a decision that does not fit the scale, the length of the text or the guideline's sentences."""
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


class Ruling(Typed, frozen=True):
    """One appended row: an adjudicator's grade for an item that people disagree about."""

    table: ClassVar = "ruling"

    id: int
    reviewer: int
    item: int
    grade: int | None  # None if a ruling is taken back
    cause: str
    sentence: int | None
    note: str
    seconds: float | None
    created: str
    undoes: int | None = None
    revealed: tuple[Revealed, ...] = ()  # what the adjudicator had revealed before
    token: str = ""


class Invitation(Typed, frozen=True):
    """A link that was given out."""

    table: ClassVar = "invitation"

    id: int
    reviewer: int
    hash: str  # of its secret, which is stored nowhere
    created: str


AnyRow = ReviewQuestion | ReviewItem | Reviewer | Decision | AspectCoverage | Ruling | Invitation


FORMAT = Format(
    "review",
    4,  # `coverage` came later: a file without it is of a review that asks for no aspects, and nothing looks for it
    """
    CREATE TABLE project (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL, seal INTEGER NOT NULL);
    CREATE TABLE question (
        number INTEGER PRIMARY KEY, task TEXT NOT NULL, query TEXT NOT NULL, text TEXT NOT NULL,
        answer TEXT NOT NULL, reasoning TEXT NOT NULL, seal INTEGER NOT NULL, UNIQUE (task, query)
    );
    CREATE TABLE item (
        number INTEGER PRIMARY KEY, question INTEGER NOT NULL REFERENCES question (number), document TEXT NOT NULL,
        text TEXT NOT NULL, drawn TEXT NOT NULL, shared INTEGER NOT NULL, gold INTEGER, facts BLOB NOT NULL,
        seal INTEGER NOT NULL, UNIQUE (question, document)
    );
    CREATE TABLE hold (item INTEGER PRIMARY KEY, question INTEGER NOT NULL, reviewer INTEGER);
    CREATE INDEX free ON hold (question) WHERE reviewer IS NULL;
    CREATE TABLE reviewer (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, role TEXT NOT NULL,
        settings BLOB NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE invitation (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        hash TEXT NOT NULL UNIQUE, created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE withdrawal (
        invitation INTEGER PRIMARY KEY REFERENCES invitation (id), created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE tour (
        reviewer INTEGER NOT NULL, place INTEGER NOT NULL, question INTEGER NOT NULL, part INTEGER NOT NULL,
        PRIMARY KEY (reviewer, place)
    ) WITHOUT ROWID;
    CREATE TABLE deal (
        reviewer INTEGER NOT NULL, position INTEGER NOT NULL, item INTEGER NOT NULL, again INTEGER NOT NULL,
        shared INTEGER NOT NULL, state INTEGER NOT NULL, seal INTEGER NOT NULL, PRIMARY KEY (reviewer, position)
    ) WITHOUT ROWID;
    CREATE INDEX deal_by_sharing ON deal (reviewer, shared, again);
    CREATE INDEX deal_by_state ON deal (reviewer, state, position);
    CREATE INDEX deal_by_item ON deal (item, reviewer);
    CREATE TABLE decision (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        item INTEGER NOT NULL REFERENCES item (number), position INTEGER, again INTEGER NOT NULL,
        verdict TEXT NOT NULL, grade INTEGER, span BLOB, note TEXT NOT NULL, sentence INTEGER, seconds,
        revealed BLOB NOT NULL, created TEXT NOT NULL, undoes INTEGER, token TEXT NOT NULL, seal INTEGER NOT NULL,
        UNIQUE (reviewer, token)
    );
    CREATE INDEX decision_by_item ON decision (item, reviewer);
    CREATE INDEX decision_by_place ON decision (reviewer, position);
    CREATE INDEX decision_undone ON decision (undoes) WHERE undoes IS NOT NULL;
    CREATE TABLE coverage (decision INTEGER PRIMARY KEY, aspects BLOB NOT NULL, seal INTEGER NOT NULL);
    CREATE TABLE reveal (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL, position INTEGER NOT NULL,
        what TEXT NOT NULL, created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE INDEX reveal_by_position ON reveal (reviewer, position);
    CREATE TABLE ruling (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        item INTEGER NOT NULL REFERENCES item (number), grade INTEGER, cause TEXT NOT NULL, sentence INTEGER,
        note TEXT NOT NULL, seconds, created TEXT NOT NULL, undoes INTEGER, revealed BLOB NOT NULL,
        token TEXT NOT NULL, seal INTEGER NOT NULL, UNIQUE (reviewer, token)
    )
    """,
)


def review_path(name: str) -> Path:
    """Return the file of a project; an invalid name is an error."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return review_folder() / f"{name}.sqlite"
    signs = "letters, digits, dots, dashes and underscores"
    raise R2medError(f"{name!r} is not a name for a review; use {signs}, 64 at most")


def review_folder() -> Path:
    """Return the folder of all projects."""
    return home() / "reviews"


def review_names() -> list[str]:
    """Return the names of all projects."""
    return sorted(path.stem for path in review_folder().glob("*.sqlite"))


def now() -> str:
    """Return the current time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
