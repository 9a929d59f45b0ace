"""Judging: each candidate on two axes, by one judge or several, with a reason and a quote that must occur in it.

One pair of question and passage is one item, and each is judged on its own, so that no candidate is measured against
its neighbours; the seed sets the order in which pairs are asked about.
"""

from __future__ import annotations

import hashlib
import re
import statistics
import unicodedata
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from r2med.construction.items import Passage, Question
from r2med.construction.plan import BuildPlan, JudgeSettings, asked_model, prompt
from r2med.llm.items import Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import AskedModel, Asking, Step, Unread, answered, step_key
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import Template

AXES = ("answers", "supports")
FOUND, INVENTED, NO_QUOTE = "found", "invented", "none"
_RETRY = 1000
"""Samples of retries are numbered from here on, apart from those that a plan asks for."""
_RULES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class Pair(NamedTuple):
    """A question and a passage of its pool."""

    question: Question
    passage: Passage

    @property
    def id(self) -> str:
        """Return the ids of question and passage, with a tab between."""
        return _identify(self)


@dataclass(frozen=True)
class Opinion:
    """One opinion of one judge on a pair."""

    judge: str
    answers: float
    supports: float
    reason: str
    quote: str
    quote_state: str
    """Whether the quote occurs in the passage: found, invented, or none."""


Opinions = Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], tuple[list[Opinion], int]]
"""Judges being asked: requests out, replies in, their opinions at the end and how many could not be read."""


def read_opinion(text: str, judge: str, passage: Passage, scale: Sequence[int]) -> Opinion | None:
    """Read a judge's reply; None if a grade is missing, is not a whole number, or lies outside of the scale."""
    value = read_object(text)
    if value is None:
        return None
    grades = [_grade(value.get(axis), scale) for axis in AXES]
    if any(grade is None for grade in grades):
        return None
    quote = " ".join(str(value.get("quote") or "").split())
    state = NO_QUOTE if not quote else FOUND if occurs(quote, passage.shown) else INVENTED
    reason = " ".join(str(value.get("reason") or "").split())
    return Opinion(judge, float(grades[0] or 0), float(grades[1] or 0), reason, quote, state)


def _grade(value: object, scale: Sequence[int]) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and scale[0] <= value <= scale[1] else None


def occurs(quote: str, text: str) -> bool:
    """Return whether a text holds a quote, ignoring case, spaces and kinds of marks; `...` may leave words out.

    >>> occurs("gums ... BLEED", "The gums swell and bleed."), occurs("gums heal", "The gums bleed.")
    (True, False)
    """
    parts = [_plain(part) for part in re.split(r"\.\.\.|…", quote)]
    rest = _plain(text)
    for part in filter(None, parts):
        _, found, rest = rest.partition(part)
        if not found:
            return False
    return any(parts)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


@dataclass(frozen=True)
class JudgePanel:
    """The judges of a plan, ready to be asked."""

    plan: BuildPlan
    first: AskedModel | None
    judges: tuple[AskedModel, ...]
    template: Template
    start: int = 0
    """The number of the first sample: 0 for the labels of a build, another to ask for all of them once more."""

    @classmethod
    def of(cls, plan: BuildPlan, start: int = 0) -> JudgePanel:
        """Build the panel of a plan."""
        first = plan.judge.first
        judges = tuple(asked_model(name, plan) for name in plan.judge.models)
        return cls(plan, asked_model(first, plan) if first else None, judges, prompt("judge", plan), start)

    def keys(self) -> list[str]:
        """Return hashes of what an opinion depends on apart from the pair: prompt, guideline, models."""
        text = self.template.fill({"guideline": self.plan.guideline.strip()})
        judges = (*([self.first] if self.first else []), *self.judges)
        return [judge.again(judge.request(text), 0).key() for judge in judges]

    def usual(self, pair: Pair) -> list[Ask]:
        """Return the requests to every judge about a pair: the first without sampling, further samples with it."""
        return self._samples(pair, self.judges, self.plan.judge.samples)

    def cheap(self, pair: Pair) -> list[Ask]:
        """Return the request to the first judge; nothing if there is none."""
        return self._samples(pair, [self.first], 1) if self.first else []

    def further(self, pair: Pair) -> list[Ask]:
        """Return the extra requests about a pair that lies near a cut."""
        settings = self.plan.judge
        return self._samples(pair, self.judges, settings.extra, settings.samples)

    def _samples(self, pair: Pair, judges: Sequence[AskedModel], count: int, skipped: int = 0) -> list[Ask]:
        text, first = self.template.fill(_values(pair, self.plan)), self.start + skipped
        return [
            Ask(judge, judge.again(judge.request(text), number) if number else judge.request(text))
            for judge in judges
            for number in range(first, first + count)
        ]


class Ask(NamedTuple):
    """A request, and the model that it goes to."""

    judge: AskedModel
    request: Request


def judging_step(plan: BuildPlan, name: str = "judge", start: int = 0) -> Step[Pair]:
    """Return the step that judges pairs; with another number of the first sample, every request is new."""
    panel, settings = JudgePanel.of(plan, start), plan.judge
    cuts = {axis: getattr(plan.select, axis) for axis in AXES}
    kept = asdict(settings) | {"models": (), "first": "", "seed": 0}

    # There may be hundreds of thousands of pairs: what is the same for many of them is hashed once.
    same = step_key("panel", settings=kept, cuts=sorted(cuts.items()) if settings.extra else (), asked=panel.keys())

    question_keys: dict[str, str] = {}
    passage_keys: dict[str, str] = {}
    end = str(start) if start else ""

    def key_of_question(question: Question) -> str:
        texts = (question.text, question.answer, question.reasoning)
        return question_keys.setdefault(question.id, same + step_key("question", texts=texts))

    def key_of_passage(passage: Passage) -> str:
        return passage_keys.setdefault(passage.id, step_key("passage", text=passage.shown) + end)

    def work(pair: Pair) -> Asking:
        unread = 0
        if settings.first:
            first, unread = yield from _opinions(panel.cheap(pair), pair, settings)
            if first and max(first[0].answers, first[0].supports) <= settings.first_drop:
                return _verdict(first, unread, settings.combine, "surely irrelevant, by the first judge")
        found, lost = yield from _opinions(panel.usual(pair), pair, settings)
        if found and settings.extra and _near(found, settings, cuts):
            more, lost_again = yield from _opinions(panel.further(pair), pair, settings)
            found, lost = [*found, *more], lost + lost_again
        return _verdict(found, unread + lost, settings.combine)

    def key(pair: Pair) -> str:
        question, passage = pair
        first = question_keys.get(question.id) or key_of_question(question)
        second = passage_keys.get(passage.id) or key_of_passage(passage)
        return hashlib.blake2b((first + second).encode(), digest_size=16).hexdigest()

    return Step(name, _identify, key, work=work, order=partial(in_order, seed=settings.seed))


def _identify(pair: Pair) -> str:
    return f"{pair[0].id}\t{pair[1].id}"


def foresee_judging(plan: BuildPlan, start: int = 0) -> Callable[[Pair], list[Request]]:
    """Return a function that lists the requests about a pair if no judge sorts it out and every reply is readable."""
    panel = JudgePanel.of(plan, start)
    return lambda pair: [ask.request for ask in (*panel.cheap(pair), *panel.usual(pair))]


def in_order(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Return the pairs in an order that depends only on the seed and their ids."""
    hashes = [hashlib.blake2b(f"{seed}\t{_identify(pair)}".encode(), digest_size=8).digest() for pair in pairs]
    order = np.argsort(np.frombuffer(b"".join(hashes), ">u8"), kind="stable")
    return [pairs[place] for place in order.tolist()]


def _values(pair: Pair, plan: BuildPlan) -> dict[str, str]:
    low, high = plan.judge.scale
    return {
        "guideline": plan.guideline.strip(),
        "question": pair.question.text,
        "answer": pair.question.answer,
        "reasoning": pair.question.reasoning or "(not given)",
        "passage": pair.passage.shown,
        "low": str(low),
        "high": str(high),
    }


def _opinions(asks: Sequence[Ask], pair: Pair, settings: JudgeSettings) -> Opinions:
    """Collect the judges' opinions, asking again for unreadable replies, and count those left unreadable."""
    found: list[Opinion] = []
    waiting = list(asks)
    unread: list[list[Reply]] = [[] for _ in asks]
    for number in range(settings.retries + 1):
        if number:
            waiting = [Ask(ask.judge, ask.judge.again(ask.request, ask.request.sample + _RETRY)) for ask in waiting]
        replies = yield [ask.request for ask in waiting]
        read = [
            _read(answered(reply), ask.judge.name, pair.passage, settings.scale)
            for ask, reply in zip(waiting, replies, strict=True)
        ]
        found += [opinion for opinion in read if opinion is not None]
        lost = [place for place, opinion in enumerate(read) if opinion is None]
        unread = [[*unread[place], answered(replies[place])] for place in lost]
        waiting = [waiting[place] for place in lost]
        if not waiting:
            break
    if waiting:
        yield Unread([reply for said in unread for reply in said])
    return found, len(waiting)


def _read(reply: Reply, judge: str, passage: Passage, scale: Sequence[int]) -> Opinion | None:
    return None if reply.incomplete else read_opinion(reply.text, judge, passage, scale)


def combined(opinions: Sequence[Opinion], rule: str) -> dict[str, float]:
    """Return the score of a pair on each axis."""
    return {axis: float(_RULES[rule]([getattr(opinion, axis) for opinion in opinions])) for axis in AXES}


def _near(opinions: Sequence[Opinion], settings: JudgeSettings, cuts: Mapping[str, float]) -> bool:
    scores = combined(opinions, settings.combine)
    return any(abs(scores[axis] - cut) <= settings.near for axis, cut in cuts.items())


def _verdict(opinions: Sequence[Opinion], unread: int, rule: str, dropped: str = "") -> Outcome:
    value: dict[str, Any] = {"opinions": [asdict(opinion) for opinion in opinions], "unread": unread}
    if not opinions:
        return Outcome(value, "no judge could be read")
    value |= combined(opinions, rule)
    marks = ["a judge's reply could not be read"] * bool(unread)
    marks += ["a judge's quote is not in the passage"] * any(each.quote_state == INVENTED for each in opinions)
    return Outcome(value, dropped, marks=tuple(marks))
