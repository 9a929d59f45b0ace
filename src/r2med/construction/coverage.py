"""Coverage of a judged pool: the finders of the positives, an estimate of those missed, and leaks between questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from r2med.construction.pool import JudgedPool, PoolQuestion, Positive
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
    by = "members" if len(systems) > 1 else "views"
    names, finders = (systems, _systems) if by == "members" else (views, _views)
    table = [[name in finders(each) for name in names] for each in positives]
    known = [each for each in positives if each.source]
    return PoolCoverage(
        len(positives),
        _finders(positives, systems, _systems),
        _finders(positives, views, _views),
        _overlaps(positives, systems),
        sum(not each.systems for each in positives),
        share(sum(bool(each.systems) for each in known), len(known)),
        by,
        estimate_population(table),
    )


def _systems(positive: Positive) -> frozenset[str]:
    return positive.systems


def _views(positive: Positive) -> frozenset[str]:
    return positive.views


def _finders(
    positives: Sequence[Positive], names: Iterable[str], finders: Callable[[Positive], frozenset[str]]
) -> list[Finder]:
    found = []
    for name in names:
        whole = share(sum(name in finders(each) for each in positives), len(positives))
        if whole is not None:
            found.append(Finder(name, whole, sum(finders(each) == {name} for each in positives)))
    return found


def _overlaps(positives: Sequence[Positive], systems: Sequence[str]) -> list[Overlap]:
    counts = Counter(tuple(name for name in systems if name in each.systems) for each in positives)
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [Overlap(members, number) for members, number in ranked]


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
    found = find_duplicates([question.text for question in questions], near)
    repeated = [(questions[place].id, questions[first].id, how) for place, (first, how) in found.items()]
    owners: dict[str, list[str]] = {}
    for positive in pool.positives:
        owners.setdefault(positive.passage, []).append(positive.question)
    sharing = {question for several in owners.values() if len(several) > 1 for question in several}
    return QuestionLeakage(len(questions), repeated, len(sharing), _across(questions, repeated, owners))


def _across(
    questions: Sequence[PoolQuestion], repeated: Sequence[tuple[str, str, str]], owners: dict[str, list[str]]
) -> list[tuple[str, str, str]]:
    """Return pairs of questions in different splits that share something, each pair and thing once."""
    split = {question.id: question.split for question in questions}
    if len(set(split.values())) < 2:
        return []
    sources: dict[str, list[str]] = {}
    for question in questions:
        for source in question.sources:
            sources.setdefault(source, []).append(question.id)
    pairs = [(later, earlier, "text") for later, earlier, _ in repeated]
    for what, groups in (("source", sources), ("positive", owners)):
        pairs += [(one, other, what) for several in groups.values() for one, other in combinations(several, 2)]
    return sorted({(one, other, what) for one, other, what in pairs if split[one] != split[other]})
