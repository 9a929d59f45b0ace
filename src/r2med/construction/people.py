"""People as judges: the pool of a build goes to the review desk, and their grades come back as its opinions."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from r2med.construction.judging import AXES, FOUND, NO_QUOTE, RULES, Opinion, Pair
from r2med.construction.mining import SOURCE
from r2med.construction.plan import GUIDELINE, PLAN, BuildPlan
from r2med.construction.pool import TASK
from r2med.errors import R2medError
from r2med.formatting import counted
from r2med.llm.budget import Estimate
from r2med.llm.items import ItemStore, Outcome
from r2med.llm.steps import Step, StepEstimate, step_key
from r2med.reviews.rows import (
    AGREED,
    GRADED,
    PERSON,
    POOLED,
    SKIPPED,
    Decision,
    ReviewItem,
    ReviewProject,
    ReviewQuestion,
    now,
    review_path,
)
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE, GradeScale, omit_grades
from r2med.reviews.store import ReviewStore, create_review
from r2med.store.typed import Typed

POOL = "pool"  # the queue of a review that holds the whole pool of a build


class PeopleProgress(Typed, frozen=True):
    """How far people are with the pool of a build."""

    review: str
    """The name of the review."""
    pairs: int
    """All pairs of a question and a passage."""
    labelled: int
    """Pairs with a grade or a ruling."""
    open: int
    """Pairs that wait for a reviewer: the first, or where all are asked, one of those at work."""
    people: Sequence[str]
    """Those who have graded a pair."""


def _texts(pair: Pair) -> tuple[str, ...]:
    """Return what a person reads of a pair, the passage last."""
    question, passage = pair
    return question.text, question.answer, question.reasoning, passage.shown


class PeopleJudging:
    """The labels of a review as they stand, by the ids of pairs."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self.texts: dict[str, tuple[str, ...]] = {}
        self._decisions: dict[str, list[tuple[str, Decision]]] = defaultdict(list)
        with ReviewStore.open(plan.people.review) as review:
            self.project = review.project
            people = {person.id: person.name for person in review.reviewers() if person.kind == PERSON}
            questions = {question.number: question for question in review.questions()}
            items = {item.number: item for item in review.items()}
            names = {number: f"{questions[item.question].query}\t{item.document}" for number, item in items.items()}
            for number, item in items.items():
                question = questions[item.question]
                self.texts[names[number]] = question.text, question.answer, question.reasoning, item.text
            for row in review.standing():
                if row.reviewer in people and row.verdict != SKIPPED and not row.again:
                    self._decisions[names[row.item]].append((people[row.reviewer], row))
            self._rulings = {names[item]: ruling.grade for item, ruling in review.rulings().items()}
            linked = {people[link.reviewer] for link in review.invitations()}
        self._at_work = linked & {name for rows in self._decisions.values() for name, _ in rows}
        self._shared = {names[number] for number, item in items.items() if item.shared}

    @property
    def state(self) -> object:
        """Return what the labels of a finished task depend on."""
        return {name: self.outcome(name).value for name in self.texts}

    @property
    def step(self) -> Step[Pair]:
        """Return the step that reads the labels of pairs."""
        return Step(
            "judge",
            lambda pair: pair.id,
            lambda pair: step_key("people", outcome=self.outcome(pair.id)),
            make=lambda pairs: [self.outcome(pair.id) for pair in pairs],
        )

    def outcome(self, pair: str) -> Outcome:
        """Return the opinions on a pair with the label that they combine to; a ruling goes before them."""
        rows, ruling = self._decisions.get(pair, ()), self._rulings.get(pair)
        opinions = []
        for name, row in rows:
            if row.verdict == GRADED and row.grade is not None:
                quote = self.texts[pair][-1][slice(*row.span)] if row.span else ""
                state = FOUND if quote else NO_QUOTE
                opinions.append(Opinion(name, row.grade, row.grade, " ".join(row.note.split()), quote, state))
        value = {"opinions": [asdict(opinion) for opinion in opinions], "unread": 0}
        grades = [opinion.answers for opinion in opinions] if ruling is None else [ruling]
        if not grades:
            return Outcome(value, "people are unsure" if rows else "no person has judged it yet")
        marks = ("settled by an adjudicator",) * (ruling is not None)
        return Outcome(value | dict.fromkeys(AXES, float(RULES[self._plan.judge.combine](grades))), marks=marks)

    def is_open(self, pair: str) -> bool:
        """Return whether a pair waits for a person; shared ones wait for all who take part and have a link."""
        decided = {name for name, _ in self._decisions.get(pair, ())}
        return pair not in self._rulings and (not decided or (pair in self._shared and not self._at_work <= decided))

    def progress(self, pairs: Iterable[str] | None = None) -> PeopleProgress:
        """Count how far people are, with some pairs or all of the review."""
        pool = list(self.texts if pairs is None else pairs)
        labelled = sum(not self.outcome(pair).dropped for pair in pool)
        people = {name for pair in pool for name, row in self._decisions.get(pair, ()) if row.verdict == GRADED}
        return PeopleProgress(self.project.name, len(pool), labelled, sum(map(self.is_open, pool)), sorted(people))

    def check(self, pairs: Sequence[Pair]) -> None:
        """Refuse a review that is of another build, or of other texts, another pool or another guideline than now."""
        name, file = self.project.name, self._plan.folder / PLAN
        same = [pair for pair in pairs if pair.id in self.texts]
        if self.project.queue != POOL or not same:
            sources = ", ".join(self.project.sources)
            raise R2medError(f"{file}: the review {name} belongs to {sources}; name another in [people] review")
        changed = [pair for pair in pairs if self.texts.get(pair.id) != _texts(pair)]
        if changed:
            question, passage = changed[0]
            raise R2medError(
                f"{file}: {len(changed):,} of {counted(len(pairs), 'pair')} are not in the review {name} as they are"
                f" now, the first: {question.id} with {passage.id}; undo what changed in the documents, questions or"
                " settings since it began, or name another review in [people] review"
            )
        if self.project.guideline != _guideline(self._plan):
            raise R2medError(
                f"{self._plan.folder / GUIDELINE}: changed since the review {name} began, whose people judge by the"
                " earlier one; undo the change, or name another review in [people] review"
            )


def read_people(plan: BuildPlan) -> PeopleJudging | None:
    """Return the labels of the plan's review; None if people do not judge, or their review is not made yet."""
    name = plan.people.review
    return PeopleJudging(plan) if name and review_path(name).is_file() else None


def ask_people(plan: BuildPlan, pairs: Sequence[Pair], store: ItemStore) -> PeopleJudging:
    """Return the labels of the plan's review, which is made of the pool if it does not exist."""
    if not review_path(plan.people.review).is_file():
        _create(plan, pairs, store)
    judging = PeopleJudging(plan)
    judging.check(pairs)
    return judging


def price_people(plan: BuildPlan, pairs: Sequence[Pair]) -> StepEstimate:
    """Count the pairs that wait for people, who send no request."""
    judging = read_people(plan)
    waiting = sum(judging is None or judging.is_open(pair.id) for pair in pairs)
    return StepEstimate("judge", waiting, Estimate(0, 0, 0, 0, 0.0, 0.0))


def _guideline(plan: BuildPlan) -> str:
    return omit_grades(plan.guideline) or DEFAULT_GUIDELINE


def _create(plan: BuildPlan, pairs: Sequence[Pair], store: ItemStore) -> None:
    """Create the review of a pool: what every member of the committee found is dealt first."""
    task, members, seed = str((plan.folder / TASK).resolve()), set(plan.mine.systems), plan.judge.seed
    questions = {pair.question.id: pair.question for pair in pairs}
    ways = {name: store.sound("mine", name).value["candidates"] for name in questions}
    rows = {
        name: ReviewQuestion(number, task, name, question.text, question.answer, question.reasoning)
        for number, (name, question) in enumerate(questions.items(), 1)
    }
    shared = set(random.Random(f"{seed}\toverlap").sample(range(len(pairs)), round(plan.people.overlap * len(pairs))))
    items = []
    for place, (question, passage) in enumerate(pairs):
        ranks: dict[str, int] = {}
        for system, _, rank in ways[question.id][passage.id]:
            ranks |= {system: min(rank, ranks.get(system, rank))} if system != SOURCE else {}
        drawn = AGREED if members <= ranks.keys() else POOLED
        texts = (rows[question.id].number, passage.id, passage.shown)
        items.append(ReviewItem(place + 1, *texts, drawn, place in shared, facts={"ranks": ranks}))
    frames = {name: sum(item.drawn == name for item in items) for name in (AGREED, POOLED)}
    project = ReviewProject(
        name=plan.people.review,
        created=now(),
        sources=(str(plan.folder),),
        data={task: step_key("pool", texts={pair.id: _texts(pair) for pair in pairs})},
        queue=POOL,
        frames=frames,
        scale=GradeScale(DEFAULT_SCALE.grades, math.ceil(plan.select.answers)),
        guideline=_guideline(plan),
        overlap=plan.people.overlap,
        repeat=0.0,
        seed=seed,
        open_answer=True,
    )
    create_review(project, list(rows.values()), items).close()
