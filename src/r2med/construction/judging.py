"""Judging: each candidate on two axes, by one judge or several, with a reason and a quote that must occur in it.

Each pair of question and passage is judged on its own, so that no candidate is measured against its neighbours. For the
noise of labels a share of the pairs is judged again by the same judges, with another sample of their replies.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

import orjson
import polars as pl

from r2med.construction.items import Passage, Question
from r2med.construction.plan import PLAN, BuildPlan, read_plan
from r2med.construction.pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.construction.selection import verdict
from r2med.data.labels import BAND, NEGATIVE, PAIR, POSITIVE, UNJUDGED
from r2med.errors import R2medError
from r2med.llm.items import FAILED, STORE, ItemStore, Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import (
    AskedModel,
    Asking,
    Step,
    StepEstimate,
    Unread,
    answered,
    price_step,
    run_step,
    step_key,
)
from r2med.llm.types import Failed, Reply, Request
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.population import CaughtShare, share
from r2med.pipeline.executor.local import Executor
from r2med.store.hashes import seeded_hash
from r2med.store.typed import plain
from r2med.usage import Usage

AXES = ("answers", "supports")
FOUND, INVENTED, NO_QUOTE = "found", "invented", "none"
_RETRY = 1000  # samples of retries are numbered from here on, apart from those that a plan asks for
RULES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}


class Pair(NamedTuple):
    """A question and a passage of its pool."""

    question: Question
    passage: Passage

    @property
    def id(self) -> str:
        """Return the ids of question and passage, with a tab between."""
        return f"{self.question.id}\t{self.passage.id}"


@dataclass(frozen=True)
class Opinion:
    """One opinion of one judge on a pair."""

    judge: str
    answers: float
    supports: float
    reason: str
    quote: str
    quote_state: str


Opinions = Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], tuple[list[Opinion], int]]
"""Judges being asked: requests out, replies in, their opinions at the end and how many could not be read."""


def read_opinion(text: str, judge: str, passage: Passage, scale: Sequence[int]) -> Opinion | None:
    """Read a judge's reply; None if a grade is missing, is not a whole number, or lies outside of the scale."""
    (low, high), value = scale, read_object(text)
    if value is None:
        return None
    grades = []
    for grade in map(value.get, AXES):
        if isinstance(grade, str) and re.fullmatch(r"\s*-?\d+\s*", grade):
            grade = int(grade)
        if isinstance(grade, bool) or not isinstance(grade, int | float) or grade % 1 or not low <= grade <= high:
            return None
        grades.append(float(grade))
    reason, quote = (" ".join(str(value.get(name) or "").split()) for name in ("reason", "quote"))
    state = NO_QUOTE if not quote else FOUND if occurs(quote, passage.shown) else INVENTED
    return Opinion(judge, grades[0], grades[1], reason, quote, state)


def occurs(quote: str, text: str) -> bool:
    """Return whether a text holds a quote, ignoring case, spaces and kinds of marks; `...` may leave words out.

    >>> occurs("gums ... BLEED", "The gums swell and bleed."), occurs("gums heal", "The gums bleed.")
    (True, False)
    """
    parts = [_plain(part) for part in re.split(r"\.\.\.|…", quote)]
    rest = _plain(text)
    for part in filter(None, parts):
        _, match, rest = rest.partition(part)
        if not match:
            return False
    return any(parts)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


_Ask = tuple[AskedModel, Request]


class Judging:
    """The judges of a plan; from another number of the first sample on, every request is new."""

    def __init__(self, plan: BuildPlan, name: str = "judge", start: int = 0) -> None:
        self._plan, self._settings, self._name, self._start = plan, plan.judge, name, start
        self._first = [plan.asked(plan.judge.first)] if plan.judge.first else []
        self._judges = [plan.asked(judge) for judge in plan.judge.models]
        self._template = plan.prompt("judge")
        self._cuts = {axis: getattr(plan.select, axis) for axis in AXES}
        text = self._template.fill({"guideline": plan.guideline.strip()})
        asked = [judge.again(judge.request(text), 0).key() for judge in (*self._first, *self._judges)]
        settings = plain(plan.judge) | {"models": (), "first": "", "seed": 0}
        cuts = sorted(self._cuts.items()) if plan.judge.extra else ()
        self._panel = step_key("panel", settings=settings, cuts=cuts, asked=asked, start=start)

    @property
    def step(self) -> Step[Pair]:
        """Return the step that judges pairs, in an order that depends only on the seed and their ids."""
        seed = self._settings.seed
        in_order = partial(sorted, key=lambda pair: seeded_hash(seed, pair.id))
        return Step(self._name, lambda pair: pair.id, self.key, work=self._work, order=in_order)

    def key(self, pair: Pair) -> str:
        """Hash what the opinions on a pair depend on."""
        question, passage = pair
        texts = (question.text, question.answer, question.reasoning, passage.shown)
        return step_key("judge", panel=self._panel, texts=texts)

    def requests(self, pair: Pair) -> list[Request]:
        """Return the requests about a pair if no judge sorts it out and every reply is readable."""
        asks = self._samples(pair, self._first, 1) + self._samples(pair, self._judges, self._settings.samples)
        return [request for _, request in asks]

    def _work(self, pair: Pair) -> Asking:
        settings, unread = self._settings, 0
        if self._first:
            first, unread = yield from self._opinions(self._samples(pair, self._first, 1), pair)
            if first and max(first[0].answers, first[0].supports) <= settings.first_drop:
                return self._outcome(first, unread, "surely irrelevant, by the first judge")
        opinions, lost = yield from self._opinions(self._samples(pair, self._judges, settings.samples), pair)
        if opinions and settings.extra:
            scores = self._combined(opinions)
            if any(abs(scores[axis] - cut) <= settings.near for axis, cut in self._cuts.items()):
                further = self._samples(pair, self._judges, settings.extra, settings.samples)
                more, lost_again = yield from self._opinions(further, pair)
                opinions, lost = [*opinions, *more], lost + lost_again
        return self._outcome(opinions, unread + lost)

    def _samples(self, pair: Pair, judges: Sequence[AskedModel], count: int, skipped: int = 0) -> list[_Ask]:
        """Return requests to some judges: the very first sample without sampling, further ones with it."""
        low, high = self._settings.scale
        values = {
            "guideline": self._plan.guideline.strip(),
            "question": pair.question.text,
            "answer": pair.question.answer,
            "reasoning": pair.question.reasoning or "(not given)",
            "passage": pair.passage.shown,
            "low": str(low),
            "high": str(high),
        }
        text, first = self._template.fill(values), self._start + skipped
        return [
            (judge, judge.again(judge.request(text), number) if number else judge.request(text))
            for judge in judges
            for number in range(first, first + count)
        ]

    def _opinions(self, asks: Sequence[_Ask], pair: Pair) -> Opinions:
        """Collect the judges' opinions, asking again for unreadable replies, and count those left unreadable."""
        opinions: list[Opinion] = []
        waiting = [(judge, request, list[Reply]()) for judge, request in asks]
        for number in range(self._settings.retries + 1):
            if number:
                waiting = [(j, j.again(r, r.sample + _RETRY), unread) for j, r, unread in waiting]
            replies = yield [request for _, request, _ in waiting]
            asked, waiting = waiting, []
            for (judge, request, unread), reply in zip(asked, map(answered, replies), strict=True):
                scale = self._settings.scale
                opinion = None if reply.incomplete else read_opinion(reply.text, judge.name, pair.passage, scale)
                if opinion is None:
                    waiting.append((judge, request, [*unread, reply]))
                else:
                    opinions.append(opinion)
            if not waiting:
                break
        if waiting:
            yield Unread([reply for *_, unread in waiting for reply in unread])
        return opinions, len(waiting)

    def _combined(self, opinions: Sequence[Opinion]) -> dict[str, float]:
        rule = RULES[self._settings.combine]
        return {axis: float(rule([getattr(opinion, axis) for opinion in opinions])) for axis in AXES}

    def _outcome(self, opinions: Sequence[Opinion], unread: int, dropped: str = "") -> Outcome:
        value: dict[str, Any] = {"opinions": [asdict(opinion) for opinion in opinions], "unread": unread}
        if not opinions:
            return Outcome(value, "no judge could be read")
        marks = ["a judge's reply could not be read"] * bool(unread)
        marks += ["a judge's quote is not in the passage"] * any(o.quote_state == INVENTED for o in opinions)
        return Outcome(value | self._combined(opinions), dropped, marks=tuple(marks))


_START = 5001  # the number of the first sample, far from those of a build and of its retries
_GRADES: Mapping[str, float] = {NEGATIVE: 0.0, BAND: 1.0, POSITIVE: 2.0}


@dataclass(frozen=True)
class Rejudgement:
    """Judgements of some pairs when judged again."""

    share: float
    pairs: int  # those that could be judged again
    unread: int
    confusion: Mapping[str, Mapping[str, int]]  # first verdict to second verdict to how many pairs
    kept_positive: CaughtShare | None
    became_positive: CaughtShare | None
    agreement: Mapping[str, Figure | None]
    spent: Usage

    def as_dict(self) -> dict[str, Any]:
        """Return the second judgements in the shape of `--json`."""
        facts = {name: getattr(self, name) for name in ("share", "pairs", "unread", "confusion")}
        return facts | {
            "stays": self.kept_positive.as_dict() if self.kept_positive else None,
            "joins": self.became_positive.as_dict() if self.became_positive else None,
            "agreement": {name: figure_dict(figure) for name, figure in self.agreement.items()},
            "spent": self.spent.bill(),
        }


class Rejudging:
    """A share of a task's pairs, ready to be judged again."""

    def __init__(self, built: BuiltTask, part: float) -> None:
        self.share = part
        self._folder = built.folder.parent
        self._plan = _unchanged_plan(built)
        rows = pl.read_parquet(built.folder / JUDGEMENT_FILE, columns=[*PAIR, "verdict"])
        questions = {question.id: question for question in task_questions(built.folder)}
        passages = {passage.id: passage for passage in task_passages(built.folder)}
        of_verdict: dict[str, list[str]] = {label: [] for label in _GRADES}
        pairs: dict[str, Pair] = {}
        for query, passage, label in rows.unique(maintain_order=True).iter_rows():
            if query in questions and label in of_verdict:
                of_verdict[label].append(f"{query}\t{passage}")
                if passage in passages:  # those of the band may have been left out
                    pairs[f"{query}\t{passage}"] = Pair(questions[query], passages[passage])
        self._first: dict[str, str] = {}
        for label, ids in of_verdict.items():
            # A smaller share is part of a larger one.
            ids.sort(key=partial(seeded_hash, self._plan.judge.seed))
            self._first |= {name: label for name in ids[: math.ceil(part * len(ids))] if name in pairs}
        place = {name: number for number, name in enumerate(questions)}
        self._judging = Judging(self._plan, "reask", _START)
        self._pairs = sorted((pairs[name] for name in self._first), key=lambda pair: place[pair.question.id])

    def estimate(self) -> StepEstimate:
        """Estimate the cost of judging again; nothing is asked."""
        with ItemStore(self._folder) as store:
            return price_step(self._judging.step, self._pairs, self._judging.requests, store)

    def ask(self, executor: Executor) -> Rejudgement:
        """Ask, and compare the verdicts with the labels of the build."""
        with ItemStore(self._folder) as store:
            outcomes = run_step(self._judging.step, self._pairs, store, executor)
        judged = [pair for pair in self._pairs if outcomes[pair.id].state != FAILED]
        verdicts = {pair: verdict(outcomes[pair.id], self._plan.select) for pair in judged}
        compared = {pair: (self._first[pair.id], now) for pair, now in verdicts.items() if now != UNJUDGED}
        grades = [[_GRADES[first], _GRADES[now]] for first, now in compared.values()]
        asked = [pair.question.id for pair in compared]
        ratings = Ratings.of(grades, asked, list(_GRADES.values())) if grades else None
        counts = Counter(compared.values())
        rows = {first: {now: counts[first, now] for now in _GRADES} for first in (POSITIVE, BAND, NEGATIVE)}
        confusion = {first: row for first, row in rows.items() if any(row.values())}
        positives = sum(confusion.get(POSITIVE, {}).values())
        return Rejudgement(
            self.share,
            len(compared),
            len(outcomes) - len(compared),
            confusion,
            share(counts[POSITIVE, POSITIVE], positives),
            share(counts[BAND, POSITIVE] + counts[NEGATIVE, POSITIVE], len(compared) - positives),
            coefficients(ratings, ("raw", "kappa", "alpha-ordinal", "ac1")) if ratings else {},
            sum((outcome.spent for outcome in outcomes.values()), Usage()),
        )


def _unchanged_plan(built: BuiltTask) -> BuildPlan:
    """Return the plan that the task was made by: judges of another plan would not measure the noise of these labels."""
    folder = built.folder.parent
    if not (folder / PLAN).is_file() or not (folder / STORE).is_file():
        raise R2medError(f"{built.folder}: pairs can be asked about again only in the folder of their build")
    plan = read_plan(folder)
    if review := plan.people.review:
        raise R2medError(f"{folder / PLAN}: people judged, who cannot be asked again: r2med review agreement {review}")
    now, then = orjson.loads(orjson.dumps(plan.settings)), built.manifest["plan"]
    changed = [name for name in ("judge", "select", "ask") if now[name] != then[name]]
    changed += ["guideline"] if plan.guideline != built.manifest["guideline"] else []
    if changed:
        raise R2medError(
            f"{folder / PLAN}: {' and '.join(changed)} changed since the task was made; first: r2med build run {folder}"
        )
    return plan
