"""Groupwise scoring: a model sees a group of passages at a time and grades each; the groups are merged by grade."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from r2med.errors import SpecError
from r2med.llm import Failed, Reply
from r2med.llm.reading import excerpt, read_grades
from r2med.pipeline.stage import Context, note_incomplete
from r2med.rerank.candidate_lists import CandidateList, KeptOrder, Outcome, candidates, in_order, reranked
from r2med.rerank.llm_reranker import ModelReranker, ask, trouble

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.run import Run


def groups(documents: int, size: int, number: int = 0, seed: str = "") -> list[list[int]]:
    """Places in groups of about equal size. The first grouping deals them out like cards, so that good and bad
    meet in every group and grades mean the same in all of them; further ones are shuffled, the same way each time.

    >>> groups(7, 3)
    [[0, 3, 6], [1, 4], [2, 5]]
    """
    places = list(range(documents))
    if number:
        random.Random(f"{seed}\t{number}").shuffle(places)
    count = -(-documents // size)
    return [places[start::count] for start in range(count)]


class _Group(NamedTuple):
    """Some candidates of a query that are shown together."""

    query: int
    places: list[int]


@dataclass
class _Grades:
    """What became of one query's groups."""

    shown: CandidateList
    given: dict[int, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Why a group came to nothing, for each that did."""
    passed_over: list[str] = field(default_factory=list)
    """Documents that a reply left out although it graded others."""

    def add(self, places: Sequence[int], reply: Reply | Failed) -> None:
        """Take the grades of a reply. A passage that it leaves out gets the lowest that it gives."""
        problem = trouble(reply)
        found = read_grades(reply.text, len(places)) if isinstance(reply, Reply) and not problem else {}
        if not found:
            said = excerpt(reply.text) if isinstance(reply, Reply) else ""
            self.problems.append(problem or f"no grades in the reply {said}")
            return
        lowest = min(found.values())
        for number, place in enumerate(places):
            self.given.setdefault(place, []).append(found.get(number, lowest))
            if number not in found:
                self.passed_over.append(self.shown.documents[place])

    def outcome(self) -> Outcome:
        """The mean grades; candidates with equal ones stay in the order they had."""
        missing = len(self.shown) - len(self.given)
        if missing:
            return KeptOrder(f"{missing} of {len(self.shown)} passages got no grade: {self.problems[0]}")
        means = [sum(grades) / len(grades) for _, grades in sorted(self.given.items())]
        return in_order(sorted(range(len(means)), key=lambda place: (-means[place], place)), means)

    @property
    def reason(self) -> str:
        """Why the grades of a list that has them are not all they should be; empty when they are."""
        if len(self.given) < len(self.shown) or not (self.problems or self.passed_over):
            return ""
        if self.problems:
            return f"{len(self.problems)} groups gave no grades: {self.problems[0]}"
        return f"{len(self.passed_over)} passages were left out of a reply; the first is {self.passed_over[0]}"


@dataclass(frozen=True)
class Groupwise(ModelReranker):
    """A language model grades groups of passages from 0 to 10; several groupings are averaged.

    >>> str(Groupwise("gpt-4o", size=20, rounds=3))
    'groupwise(gpt-4o, size=20, rounds=3)'
    """

    size: int = 10
    """How many passages are shown at a time."""
    rounds: int = 1
    """How many times every passage is graded, each time in other company."""

    name = "groupwise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1 or self.rounds < 1:
            raise SpecError(f"groupwise: size and rounds must be 1 or more, not {self.size} and {self.rounds}")

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        return {**super().describe(), "size": self.size, "rounds": self.rounds}

    def requests_a_query(self, documents: int) -> int:
        """One for each group of each round."""
        return self.rounds * -(-documents // self.size)

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Ask for all groups of all queries at once, and order each list by grade."""
        shown = candidates(collection, run, self.depth)
        asked = [
            _Group(query, places)
            for query, found in enumerate(shown)
            for number in range(self.rounds)
            for places in groups(len(found), self.size, number, found.query)
        ]
        template, task = self.templates()[0], collection.task
        requests = []
        for query, places in asked:
            texts = [shown[query].texts[place] for place in places]
            values = {"passages": self.passages(texts), "count": str(len(places))}
            requests.append(self.request(task, shown[query].text, template, values))
        with context.engine.progress(str(self), len(requests)) as bar:
            replies, seconds = ask(requests, bar)
        self.note(requests[0] if requests else None, replies, seconds, context)
        grades = [_Grades(found) for found in shown]
        for (query, places), reply in zip(asked, replies, strict=True):
            grades[query].add(places, reply)
        context.notes.facts |= {
            "groups": len(asked),
            "unusable": sum(len(each.problems) for each in grades),
            "passed_over": sum(len(each.passed_over) for each in grades),
        }
        partly = {each.shown.query: each.reason for each in grades if each.reason}
        note_incomplete(self, partly, len(shown), context, kept="were not wholly graded")
        return reranked(self, run, shown, [each.outcome() for each in grades], context)
