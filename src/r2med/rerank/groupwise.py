"""Groupwise scoring (arXiv 2511.11653): a model compares a group of passages and grades each from 0 to 10.

Groups are drawn at random, several times over; a passage's grades are averaged and may be fused with the score of the
stage before. A group whose reply cannot be read, or leaves passages out, is asked for again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.errors import SpecError, suggest
from r2med.llm.client import current_client
from r2med.llm.parsing import TOP_GRADE, excerpt, read_grades
from r2med.llm.stage import Exchange, money_facts
from r2med.llm.types import Failed, Reply, Request
from r2med.pipeline.stage import Context, note_incomplete
from r2med.rerank.candidates import CandidateList, Outcome, candidates, in_order, reranked
from r2med.rerank.llm import ModelReranker

GROUPINGS = ("random", "dealt", "sorted")
_AGAIN = "Your last reply could not be read. Give every one of the {count} passages its grade, in the form asked for."


def make_groups(documents: int, size: int, how: str = "random", number: int = 0, seed: str = "") -> list[list[int]]:
    """Split places into groups of about equal size, the same way each time for a seed.

    `random` shuffles; `dealt` deals them out like cards, so that good and bad meet in every group, and shuffles from
    the second grouping on; `sorted` puts neighbours together, each group shuffled.

    >>> make_groups(7, 3, "dealt")
    [[0, 3, 6], [1, 4], [2, 5]]
    """
    places, count = list(range(documents)), -(-documents // size)
    drawn = random.Random(f"{seed}\t{number}")
    if how == "sorted":
        groups = [part.tolist() for part in np.array_split(np.array(places), count)] if documents else []
        for group in groups:
            drawn.shuffle(group)
        return groups
    if how == "random" or number:
        drawn.shuffle(places)
    return [places[start::count] for start in range(count)]


@dataclass
class _Group:
    """Passages of a query that are graded together, with the most grades that any reply gave."""

    shown: CandidateList
    places: Sequence[int]
    grades: dict[int, float] = field(default_factory=dict)  # by place
    problem: str = ""  # why there are none
    replies: list[Reply | Failed] = field(default_factory=list)

    def add(self, reply: Reply | Failed) -> None:
        """Add the grades of a reply, unless an earlier one gave more."""
        self.replies.append(reply)
        numbers = {} if reply.incomplete else read_grades(reply.text, len(self.places))
        if not numbers:
            self.problem = reply.incomplete or f"no grades in the reply {excerpt(reply.text)}"
        if len(numbers) > len(self.grades):
            self.grades = {self.places[number]: grade for number, grade in numbers.items()}


class _Grades:
    """Grades of one query's groups; for passages that a reply left out, the `lowest` grade that it gave others."""

    def __init__(self, shown: CandidateList, groups: Sequence[_Group]) -> None:
        self.shown = shown
        self.problems = [group.problem for group in groups if not group.grades]
        self.given: dict[int, list[float]] = {}
        self.lowest: dict[int, float] = {}
        for group in groups:
            least = min(group.grades.values(), default=0.0)
            for place in group.places if group.grades else ():
                if place in group.grades:
                    self.given.setdefault(place, []).append(group.grades[place])
                else:
                    self.lowest[place] = min(least, self.lowest.get(place, least))

    @property
    def passed_over(self) -> list[str]:
        """Return the documents that got no grade in any round, although others in their groups did."""
        return [self.shown.documents[place] for place in sorted(self.lowest) if place not in self.given]

    def outcome(self, fuse: float) -> Outcome:
        """Return the mean grades, fused with the scores of the stage before; equal ones keep their order."""
        grades_of = {place: [grade] for place, grade in self.lowest.items()} | self.given
        missing = len(self.shown) - len(grades_of)
        if missing:
            return f"{missing} of {len(self.shown)} passages got no grade: {self.problems[0]}"
        means = np.array([np.mean(grades) for _, grades in sorted(grades_of.items())])
        if fuse:
            scores = np.asarray(self.shown.scores, dtype=np.float64)
            width = float(scores.max() - scores.min())
            spread = (scores - float(scores.min())) / width if width > 0 else np.zeros(len(scores))
            means = (1 - fuse) * means / TOP_GRADE + fuse * spread
        return in_order(sorted(range(len(means)), key=lambda place: (-means[place], place)), means)

    @property
    def reason(self) -> str:
        """Return the reason why the grades of a list are not complete; empty if they are."""
        if len({*self.given, *self.lowest}) < len(self.shown) or not (self.problems or self.passed_over):
            return ""
        if self.problems:
            return f"{len(self.problems)} groups gave no grades: {self.problems[0]}"
        return f"{len(self.passed_over)} passages were left out of every reply; the first is {self.passed_over[0]}"


@dataclass(frozen=True)
class Groupwise(ModelReranker):
    """Reranker whose language model grades groups of passages from 0 to 10; several groupings are averaged.

    >>> str(Groupwise("gpt-4o", size=10, fuse=0.5))
    'groupwise(gpt-4o, size=10, fuse=0.5)'
    """

    size: int = 20  # how many passages are shown at a time
    rounds: int = 2  # how many times every passage is graded, each time in other company
    groups: str = "random"  # how groups are made: random, dealt like cards, or sorted (neighbours of the list together)
    seed: int = 0  # by which random groups are drawn
    fuse: float = 0.0  # share of the stage before in the score, scaled to 0 to 1 within the list; 0 for none
    retries: int = 2  # how many times a group is asked for again whose reply cannot be read, or leaves passages out

    name = "groupwise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1 or self.rounds < 1:
            raise SpecError(f"groupwise: size and rounds must be 1 or more, not {self.size} and {self.rounds}")
        if self.groups not in GROUPINGS:
            hint = f"{self.groups!r}{suggest(self.groups, GROUPINGS)}"
            raise SpecError(f"groupwise: groups must be one of {', '.join(GROUPINGS)}, not {hint}")
        if not 0 <= self.fuse < 1:
            raise SpecError(f"groupwise: fuse must be 0 or more and below 1, not {self.fuse}")
        if self.retries < 0:
            raise SpecError(f"groupwise: retries must be 0 or more, not {self.retries}")

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        grouping = f"{self.groups}, seed {self.seed}"
        return {**super().describe(), "size": self.size, "rounds": self.rounds, "groups": grouping, "fuse": self.fuse}

    def requests_a_query(self, documents: int) -> int:
        """Return one request per group and round, if none has to be asked again."""
        return self.rounds * -(-documents // self.size)

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the requests that all groups take, and the most that asking again may add."""
        guess, times = self.foresee(collection), 1 + self.retries
        most = None if guess.cost_limit is None else guess.cost_limit * times
        facts = money_facts(replace(guess, cost_limit=most))
        return {"requests": guess.requests, "requests at most": guess.requests * times, **facts}

    def example(self, task: Task, query: str, texts: Sequence[str]) -> Request:
        """Build the request for a group of the usual size."""
        groups = -(-len(texts) // self.size)
        return self.group_request(task, query, texts[: -(-len(texts) // groups)])

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Ask for all groups of all queries at once, and order each list by grade."""
        lists = candidates(collection, run, self.depth)
        groups = [
            [
                _Group(row, places)
                for number in range(self.rounds)
                for places in make_groups(len(row), self.size, self.groups, number, f"{self.seed}\t{row.query}")
            ]
            for row in lists
        ]
        asked = [group for part in groups for group in part]
        self._ask(asked, collection.task, context)
        grades = [_Grades(row, part) for row, part in zip(lists, groups, strict=True)]
        unusable, passed_over = (sum(len(getattr(row, name)) for row in grades) for name in ("problems", "passed_over"))
        context.notes.facts |= {"groups": len(asked), "unusable": unusable, "passed_over": passed_over}
        partly = {row.shown.query: row.reason for row in grades if row.reason}
        note_incomplete(self, partly, len(lists), context, kept="were not wholly graded")
        return reranked(self, run, lists, [row.outcome(self.fuse) for row in grades], context)

    def _ask(self, groups: Sequence[_Group], task: Task, context: Context) -> None:
        exchange, incomplete = Exchange(), groups
        for attempt in range(1 + self.retries):
            label = str(self) if not attempt else f"{self}, asked again"
            with context.executor.progress(label, len(incomplete)) as bar:
                replies = exchange.ask([self._request(group, task, attempt) for group in incomplete], bar)
            for group, reply in zip(incomplete, replies, strict=True):
                group.add(reply)
            answered = [group for group in incomplete if not isinstance(group.replies[-1], Failed)]
            incomplete = [group for group in answered if len(group.grades) < len(group.places)]
            if not incomplete:
                break
        again = len(exchange.replies) - len(groups)
        current_client().reject(reply for group in groups if not group.grades for reply in group.replies)
        self.note(exchange, context)
        context.notes.facts["asked_again"] = again
        if again:
            what = "groups without all their grades were asked for again"
            context.warn(f"{self.name}: {what}, {again:,} requests in all")

    def _request(self, group: _Group, task: Task, attempt: int) -> Request:
        request = self.group_request(task, group.shown.text, [group.shown.texts[place] for place in group.places])
        if not attempt:
            return request
        hint = _AGAIN.format(count=len(group.places))
        again = self.model.request(f"{request.messages[-1].content}\n\n{hint}")
        return replace(again, sample=attempt - 1, kind=request.kind)
