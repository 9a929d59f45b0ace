"""Coverage of a judged pool: the finders of the positives, an estimate of those missed, and leaks between questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from r2med.construction.pool import JudgedPool
from r2med.lexical.near_duplicates import find_duplicates
from r2med.measure.population import CaughtShare, PopulationEstimate, estimate_population, share

NEAR = 0.8
"""From which similarity on two questions count as one, as for documents."""


@dataclass(frozen=True)
class Finder:
    """A member of the committee, or a view, and the positives that it found."""

    name: str
    found: CaughtShare
    """What it would have found alone."""
    alone: int
    """Positives that no other found."""


@dataclass(frozen=True)
class Overlap:
    """Positives that exactly these members found."""

    members: tuple[str, ...]
    positives: int


@dataclass(frozen=True)
class PoolCoverage:
    """Positives by finder, and an estimate of how many were missed."""

    positives: int
    members: Sequence[Finder]
    views: Sequence[Finder]
    overlaps: Sequence[Overlap]
    """The largest first."""
    source_only: int
    """Positives of known sources that no member found."""
    sources: CaughtShare | None
    """Of the positives of known sources, those that the committee found too: its recall, seen from outside."""
    by: str
    """Between whom captures are counted: `members`, or `views` where there is one member."""
    missed: PopulationEstimate

    def as_dict(self) -> dict[str, Any]:
        """Return the coverage in the shape of `--json`."""
        return {
            "positives": self.positives,
            "members": [_finder(each) for each in self.members],
            "views": [_finder(each) for each in self.views],
            "overlaps": [asdict(each) for each in self.overlaps],
            "source_only": self.source_only,
            "sources": self.sources.as_dict() if self.sources else None,
            "by": self.by,
            "missed": self.missed.as_dict(),
        }


def _finder(each: Finder) -> dict[str, Any]:
    return {"name": each.name, "alone": each.alone, **each.found.as_dict()}


def pool_coverage(pool: JudgedPool, systems: Sequence[str], views: Sequence[str]) -> PoolCoverage:
    """Count positives by their finders, and estimate how many were missed."""
    positives = pool.positives
    by_system, by_view = [p.systems for p in positives], [p.views for p in positives]
    by, names, captures = ("members", systems, by_system) if len(systems) > 1 else ("views", views, by_view)
    of_source = [positive for positive in positives if positive.source]
    counts = Counter(tuple(name for name in systems if name in members) for members in by_system)
    return PoolCoverage(
        len(positives),
        _finders(by_system, systems),
        _finders(by_view, views),
        [Overlap(members, n) for members, n in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))],
        by_system.count(frozenset()),
        share(sum(bool(positive.systems) for positive in of_source), len(of_source)),
        by,
        estimate_population([[name in finders for name in names] for finders in captures]),
    )


def _finders(captures: Sequence[frozenset[str]], names: Sequence[str]) -> list[Finder]:
    finders = []
    for name in names:
        if caught := share(sum(name in members for members in captures), len(captures)):
            finders.append(Finder(name, caught, captures.count(frozenset({name}))))
    return finders


@dataclass(frozen=True)
class QuestionLeakage:
    """Questions that repeat each other, or that share sources or positives."""

    questions: int
    repeated: Sequence[tuple[str, str, str]]
    """A question, the earlier one that it repeats, and how: the same words or nearly."""
    sharing: int
    """Questions that share a relevant passage with another."""
    across: Sequence[tuple[str, str, str]]
    """A question of each split and what they share: text, source or positive. There should be none."""

    def as_dict(self) -> dict[str, Any]:
        """Return the leakage in the shape of `--json`."""
        return {
            "questions": self.questions,
            "repeated": [dict(zip(("question", "repeats", "how"), each, strict=True)) for each in self.repeated],
            "sharing": self.sharing,
            "across": [dict(zip(("question", "other", "shared"), each, strict=True)) for each in self.across],
        }


def question_leakage(pool: JudgedPool, near: float = NEAR) -> QuestionLeakage:
    """Find questions that repeat others, share positives, or leak across the splits."""
    questions = pool.questions
    twins = find_duplicates([question.text for question in questions], near)
    repeated = [(questions[place].id, questions[first].id, how) for place, (first, how) in twins.items()]
    owners: dict[str, list[str]] = defaultdict(list)
    for positive in pool.positives:
        owners[positive.passage].append(positive.question)
    sharing = {question for several in owners.values() if len(several) > 1 for question in several}
    sources: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        for source in question.sources:
            sources[source].append(question.id)
    pairs = [(later, earlier, "text") for later, earlier, _ in repeated]
    for what, groups in (("source", sources), ("positive", owners)):
        pairs += [(one, other, what) for several in groups.values() for one, other in combinations(several, 2)]
    split = {question.id: question.split for question in questions}
    across = sorted({pair for pair in pairs if split[pair[0]] != split[pair[1]]})
    return QuestionLeakage(len(questions), repeated, len(sharing), across)
