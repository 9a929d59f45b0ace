"""Steps on questions before mining: rules, intent, difficulty, rewriting and reasoning; and labels at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from r2med.construction.items import Question
from r2med.construction.plan import BuildPlan, RuleSettings
from r2med.diagnosis.labelling import Scheme, scheme
from r2med.llm.items import Outcome
from r2med.llm.parsing import judge_text, read_class, read_object, read_verdict
from r2med.llm.steps import AskedModel, Asking, Step, Tries, Unread, answered, step_key, tries
from r2med.llm.types import Request
from r2med.measure.answers import matches, normalise_answer
from r2med.store.typed import plain

OTHER = "other"
_IMAGE = re.compile(
    r"\b(?:(?:image|figure|photograph|photo|picture|radiograph|x-ray|ecg|ekg|ct scan|micrograph|graph|table|diagram)s?"
    r" (?:is |are )?(?:shown|below|above|attached|provided)|(?:shown|seen|pictured|depicted) (?:below|above|in the "
    r"(?:image|figure|photograph|photo|picture|exhibit))|as shown|see (?:the )?(?:image|figure|exhibit))\b",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\bwhich (?:one )?of (?:the following|these)\b|\ball of the following\b", re.IGNORECASE)
_STAND_IN = "The findings point to one condition, and its mechanism explains each of them in turn. " * 8
"""A text of about the length of a reasoning path, for estimates."""
_GIVEN_AWAY = "the answer is given away"


class QuestionStep:
    """A step over questions: what it asks about one, what comes of it, and what a question gains by it."""

    name: ClassVar[str]
    gain: ClassVar[str] = ""  # what its outcome gives a question: the name of the value and of the field

    def __init__(self, plan: BuildPlan) -> None:
        self.plan = plan
        self._settings = plain(getattr(plan, self.name))

    @property
    def step(self) -> Step[Question]:
        """Return the step in the form in which it is run and priced."""
        return Step(self.name, lambda question: question.id, self.key, work=self.work)

    def key(self, question: Question) -> str:
        """Hash everything that the outcome depends on."""
        content = (question.original, question.answer, question.options)
        asked = [request.key() for request in self.requests(question)]
        return step_key(self.name, settings=self._settings, question=content, requests=asked)

    def work(self, question: Question) -> Asking:
        """Ask about a question, and return its outcome."""
        raise NotImplementedError

    def requests(self, question: Question) -> list[Request]:
        """Return what is asked when all goes well; replies that are needed for it are made up."""
        return []

    def advance(self, question: Question, value: Mapping[str, Any]) -> Question:
        """Return the question with what the step found."""
        return replace(question, **{self.gain: value[self.gain]}) if self.gain else question

    def guess(self, question: Question) -> Question:
        """Return the question as the next step might see it, for estimates."""
        return question


def question_steps(plan: BuildPlan) -> list[QuestionStep]:
    """Return the plan's active steps on questions before mining, in order."""
    active = {
        _RuleStep: plan.rules.on,
        _IntentStep: plan.intent.model,
        _DifficultyStep: plan.difficulty.models,
        _RewriteStep: plan.rewrite.model,
        _ReasonStep: plan.reason.model,
    }
    return [step(plan) for step, on in active.items() if on]


def broken_rule(question: Question, rules: RuleSettings) -> str:
    """Return the rule that a question breaks; empty if it breaks none.

    >>> broken_rule(Question("q", "Which of the following is it, if anything at all?", "x"), RuleSettings())
    '"which of the following" without options'
    """
    text, words = question.original, len(question.original.split())
    broken = {
        f"fewer than {rules.min_words} words": words < rules.min_words,
        f"more than {rules.max_words} words": words > rules.max_words,
        "needs an image": rules.needs_image and _IMAGE.search(text),
        '"which of the following" without options': (
            rules.options_missing and not question.options and _LISTED.search(text)
        ),
        "the answer is in the question": rules.answer_in_question and matches(text, question.answer)[1],
    }
    return next((rule for rule, breaks in broken.items() if breaks), "")


class _RuleStep(QuestionStep):
    """Rules that need no model."""

    name = "rules"

    @property
    def step(self) -> Step[Question]:
        def make(questions: Sequence[Question]) -> Iterable[Outcome]:
            return [Outcome(dropped=broken_rule(question, self.plan.rules)) for question in questions]

        return Step(self.name, lambda question: question.id, self.key, make=make, batch=4096)


class _IntentStep(QuestionStep):
    """Classification by what is asked for: questions of other classes go no further."""

    name, gain = "intent", "intent"

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan)
        self._model = plan.asked(plan.intent.model)
        self._scheme = Scheme("intent", (*plan.intent.classes, OTHER), plan.prompt("intent"))
        self._keep = plan.intent.keep or plan.intent.classes

    def requests(self, question: Question) -> list[Request]:
        return [self._model.request(self._scheme.fill(question.with_options))]

    def work(self, question: Question) -> Asking:
        (request,) = self.requests(question)
        intent = yield from tries(self._model, request, partial(read_class, classes=self._scheme.classes))
        if intent is None:
            return Outcome(dropped="no class could be read")
        return Outcome({"intent": intent}, "" if intent in self._keep else f"class {intent}")


class _DifficultyStep(QuestionStep):
    """Answers of small models without any document: what they know is too easy."""

    name = "difficulty"

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan)
        self._template = plan.prompt("answer")
        self._models = [plan.asked(name) for name in plan.difficulty.models]
        self._judge = plan.asked(plan.difficulty.judge) if plan.difficulty.judge else None

    def _comparison(self, judge: AskedModel, question: Question, answer: str) -> Request:
        return judge.request(judge_text(question.with_options, question.answer, answer))

    def requests(self, question: Question) -> list[Request]:
        text = self._template.fill({"question": question.with_options})
        compared = [self._comparison(self._judge, question, question.answer)] if self._judge else []
        return [model.request(text) for model in self._models] + compared * len(self._models)

    def work(self, question: Question) -> Asking:
        replies = [answered(r) for r in (yield self.requests(question)[: len(self._models)])]
        answers = [reply.text for reply in replies]
        if unanswered := [reply for reply in replies if reply.incomplete]:
            yield Unread(unanswered)
        right: list[bool | None] = []
        for answer in answers:
            if self._judge is None or not answer:
                right.append(bool(answer) and any(matches(answer, question.answer)))
            else:
                request = self._comparison(self._judge, question, answer)
                right.append((yield from tries(self._judge, request, read_verdict)))
        limit = self.plan.difficulty.drop_at
        easy = right.count(True) >= limit
        why = f"answered by {limit} or more of {len(answers)} small models" if easy else ""
        marks = ("a verdict could not be read",) * (None in right) + ("a model did not answer",) * bool(unanswered)
        value = {"answers": dict(zip(self.plan.difficulty.models, answers, strict=True)), "right": right}
        return Outcome(value, why, marks=marks)


def gives_away(question: Question, rewritten: str) -> bool:
    """Return whether a rewritten question holds the words of the answer and the original does not."""
    return matches(rewritten, question.answer)[1] and not matches(question.original, question.answer)[1]


class _RewriteStep(QuestionStep):
    """Open questions made of multiple choice."""

    name, gain = "rewrite", "text"

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan)
        self._writing, self._checking = plan.prompt("rewrite"), plan.prompt("check")
        self._writer = plan.asked(plan.rewrite.model)
        self._checker = plan.asked(plan.rewrite.checker) if plan.rewrite.checker else None

    def _check(self, checker: AskedModel, question: Question, text: str) -> Request:
        values = {"original": question.with_options, "rewritten": text, "answer": question.answer}
        return checker.request(self._checking.fill(values))

    def requests(self, question: Question) -> list[Request]:
        if not question.options:
            return []
        rewriting = self._writing.fill({"question": question.with_options, "answer": question.answer})
        checks = [self._check(self._checker, question, question.original)] if self._checker else []
        return [self._writer.request(rewriting), *checks]

    def work(self, question: Question) -> Asking:
        text, why = question.original, ""
        for number in range(self.plan.rewrite.attempts if question.options else 0):
            request = self.requests(question)[0]
            (reply,) = yield [self._writer.again(request, number) if number else request]
            text = answered(reply).text.strip()
            why = (yield from self._problem(question, text)) or ""
            if not why:
                break
            if not text:
                yield Unread([answered(reply)])
        return Outcome({"text": text}, why)

    def _problem(self, question: Question, text: str) -> Tries[str]:
        if not text or normalise_answer(text) == normalise_answer(question.with_options):
            return "nothing was written"
        if gives_away(question, text):
            return _GIVEN_AWAY
        if self._checker is None:
            return ""
        check = yield from tries(self._checker, self._check(self._checker, question, text), read_check)
        if check is None:
            return "the check could not be read"
        return _GIVEN_AWAY if check["gives_away"] else "" if check["same"] else "it asks something else"


def read_check(text: str) -> dict[str, bool] | None:
    """Read the decisions of a checker; None if the reply lacks one.

    >>> read_check('{"gives_away": false, "same": true}')
    {'gives_away': False, 'same': True}
    """
    value = read_object(text) or {}
    decisions: dict[str, Any] = {name: value.get(name) for name in ("gives_away", "same")}
    return decisions if all(isinstance(decision, bool) for decision in decisions.values()) else None


class _ReasonStep(QuestionStep):
    """The path from question to answer, written by a model."""

    name, gain = "reason", "reasoning"

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan)
        self._model, self._template = plan.asked(plan.reason.model), plan.prompt("reason")

    def requests(self, question: Question) -> list[Request]:
        return [self._model.request(self._template.fill({"question": question.text, "answer": question.answer}))]

    def work(self, question: Question) -> Asking:
        (request,) = self.requests(question)
        text = yield from tries(self._model, request, lambda reply: reply.strip() or None)
        return Outcome({"reasoning": text}) if text else Outcome(dropped="nothing was written")

    def guess(self, question: Question) -> Question:
        return replace(question, reasoning=question.reasoning or _STAND_IN)


class LabelStep(QuestionStep):
    """Classes of finished questions by the schemes of `r2med label`; failures are counted."""

    name = "label"

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan)
        self._model = plan.asked(plan.label.model)
        self._schemes = [scheme(name) for name in plan.label.by]

    def requests(self, question: Question) -> list[Request]:
        """Return the requests for each scheme."""
        return [self._model.request(by.fill(question.text)) for by in self._schemes]

    def work(self, question: Question) -> Asking:
        """Ask for a class by each scheme."""
        labels: dict[str, str] = {}
        for by, request in zip(self._schemes, self.requests(question), strict=True):
            label = yield from tries(self._model, request, partial(read_class, classes=by.classes))
            labels |= {by.name: label} if label is not None else {}
        marks = tuple(f"{by.name}: no class could be read" for by in self._schemes if by.name not in labels)
        return Outcome({"labels": labels}, marks=marks)
