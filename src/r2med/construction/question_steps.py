"""Steps on questions before mining: rules, intent, difficulty, rewriting and reasoning.

Each is a `Step` over questions, and says what it adds to a question that passes and what it would ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from r2med.construction.items import Question
from r2med.construction.plan import BuildPlan, RuleSettings, asked_model, prompt
from r2med.diagnosis.labelling import Scheme, scheme
from r2med.llm.items import Outcome
from r2med.llm.judge import judge_text, read_verdict
from r2med.llm.parsing import read_class, read_object
from r2med.llm.steps import AskedModel, Asking, Step, Unread, answered, step_key
from r2med.llm.types import Failed, Reply, Request
from r2med.measure.answers import matches, normalised

Value = TypeVar("Value")
Tries = Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], Value | None]
OTHER = "other"
_TRIES = 3
"""How often a reply that cannot be read is asked for, the first time included."""
_IMAGE = re.compile(
    r"\b(?:(?:image|figure|photograph|photo|picture|radiograph|x-ray|ecg|ekg|ct scan|micrograph|graph|table|diagram)s?"
    r" (?:is |are )?(?:shown|below|above|attached|provided)|(?:shown|seen|pictured|depicted) (?:below|above|in the "
    r"(?:image|figure|photograph|photo|picture|exhibit))|as shown|see (?:the )?(?:image|figure|exhibit))\b",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\bwhich (?:one )?of (?:the following|these)\b|\ball of the following\b", re.IGNORECASE)
_STAND_IN = "The findings point to one condition, and its mechanism explains each of them in turn. " * 8
"""A text of about the length of a reasoning path, for estimates."""


def _same(question: Question, _: Mapping[str, Any] | None = None) -> Question:
    return question


def _identify(question: Question) -> str:
    return question.id


@dataclass(frozen=True)
class QuestionStep:
    """A step over questions, with its effect on a question and the requests that it would make."""

    step: Step[Question]
    advance: Callable[[Question, Mapping[str, Any]], Question] = _same
    """The question with what the step found."""
    foresee: Callable[[Question], list[Request]] = lambda question: []
    """What is asked about a question when all goes well; replies that are needed for it are made up."""
    guess: Callable[[Question], Question] = _same
    """The question as the next step might see it, for estimates."""


def question_steps(plan: BuildPlan) -> list[QuestionStep]:
    """Return the plan's active steps on questions, in order."""
    makers = [
        (_rules, plan.rules.on),
        (_intent, plan.intent.model),
        (_difficulty, plan.difficulty.models),
        (_rewrite, plan.rewrite.model),
        (_reason, plan.reason.model),
    ]
    return [make(plan) for make, on in makers if on]


def broken_rule(question: Question, rules: RuleSettings) -> str:
    """Return the rule that a question breaks; empty if it breaks none.

    >>> broken_rule(Question("q", "Which of the following is it, if anything at all?", "x"), RuleSettings())
    '"which of the following" without options'
    """
    words = len(question.original.split())
    if words < rules.min_words:
        return f"fewer than {rules.min_words} words"
    if words > rules.max_words:
        return f"more than {rules.max_words} words"
    if rules.needs_image and _IMAGE.search(question.original):
        return "needs an image"
    if rules.options_missing and not question.options and _LISTED.search(question.original):
        return '"which of the following" without options'
    if rules.answer_in_question and matches(question.original, question.answer)[1]:
        return "the answer is in the question"
    return ""


def _rules(plan: BuildPlan) -> QuestionStep:
    settings = asdict(plan.rules)

    def make(questions: Sequence[Question]) -> Iterable[Outcome]:
        return [Outcome(dropped=broken_rule(question, plan.rules)) for question in questions]

    def key(question: Question) -> str:
        return step_key("rules", settings=settings, question=(question.original, question.answer, question.options))

    return QuestionStep(Step("rules", _identify, key, make=make, batch=4096))


def tries(model: AskedModel, request: Request, read: Callable[[str], Value | None]) -> Tries[Value]:
    """Ask until a reply can be read, each time for another sample; return what was read, or None."""
    unread = []
    for number in range(_TRIES):
        (reply,) = yield [model.again(request, request.sample + number) if number else request]
        said = answered(reply)
        value = None if said.incomplete else read(said.text)
        if value is not None:
            return value
        unread.append(said)
    yield Unread(unread)
    return None


def _intent(plan: BuildPlan) -> QuestionStep:
    settings, template = plan.intent, prompt("intent", plan)
    model = asked_model(settings.model, plan)
    classes = Scheme("intent", (*settings.classes, OTHER), template)
    keep = settings.keep or settings.classes

    def request(question: Question) -> Request:
        return model.request(classes.fill(question.with_options))

    def work(question: Question) -> Asking:
        found = yield from tries(model, request(question), partial(read_class, classes=classes.classes))
        if found is None:
            return Outcome(dropped="no class could be read")
        return Outcome({"intent": found}, "" if found in keep else f"class {found}")

    def key(question: Question) -> str:
        return step_key("intent", keep=keep, request=request(question).key())

    def advance(question: Question, value: Mapping[str, Any]) -> Question:
        return replace(question, intent=value["intent"])

    step = Step("intent", _identify, key, work=work)
    return QuestionStep(step, advance, lambda question: [request(question)])


def _difficulty(plan: BuildPlan) -> QuestionStep:
    settings, template = plan.difficulty, prompt("answer", plan)
    models = [asked_model(name, plan) for name in settings.models]
    judge = asked_model(settings.judge, plan) if settings.judge else None

    def requests(question: Question) -> list[Request]:
        text = template.fill({"question": question.with_options})
        return [model.request(text) for model in models]

    def comparison(judge: AskedModel, question: Question, answer: str) -> Request:
        return judge.request(judge_text(question.with_options, question.answer, answer))

    def work(question: Question) -> Asking:
        replies = yield requests(question)
        answers = [answered(reply).text for reply in replies]
        unanswered = [said for reply in replies if (said := answered(reply)).incomplete]
        if unanswered:
            yield Unread(unanswered)
        right: list[bool | None] = []
        for answer in answers:
            if judge is None or not answer:
                right.append(bool(answer) and any(matches(answer, question.answer)))
            else:
                right.append((yield from tries(judge, comparison(judge, question, answer), read_verdict)))
        easy = sum(decided is True for decided in right) >= settings.drop_at
        why = f"answered by {settings.drop_at} or more of {len(models)} small models" if easy else ""
        lacks = {"a verdict could not be read": None in right, "a model did not answer": bool(unanswered)}
        marks = tuple(lack for lack, there in lacks.items() if there)
        value = {"answers": dict(zip(settings.models, answers, strict=True)), "right": right}
        return Outcome(value, why, marks=marks)

    def key(question: Question) -> str:
        compared = comparison(judge, question, "").key() if judge else ""
        asked = [request.key() for request in requests(question)]
        return step_key("difficulty", at=settings.drop_at, asked=asked, compared=compared, gold=question.answer)

    def foresee(question: Question) -> list[Request]:
        compared = [comparison(judge, question, question.answer)] * len(models) if judge else []
        return requests(question) + compared

    return QuestionStep(Step("difficulty", _identify, key, work=work), _same, foresee)


def gives_away(question: Question, rewritten: str) -> bool:
    """Return whether a rewritten question holds the words of the answer and the original does not."""
    return matches(rewritten, question.answer)[1] and not matches(question.original, question.answer)[1]


def _rewrite(plan: BuildPlan) -> QuestionStep:
    settings = plan.rewrite
    writing, checking = prompt("rewrite", plan), prompt("check", plan)
    writer = asked_model(settings.model, plan)
    checker = asked_model(settings.checker, plan) if settings.checker else None

    def request(question: Question) -> Request:
        return writer.request(writing.fill({"question": question.with_options, "answer": question.answer}))

    def comparison(checker: AskedModel, question: Question, text: str) -> Request:
        values = {"original": question.with_options, "rewritten": text, "answer": question.answer}
        return checker.request(checking.fill(values))

    def problem(question: Question, text: str) -> Tries[str]:
        if not text or normalised(text) == normalised(question.with_options):
            return "nothing was written"
        if gives_away(question, text):
            return _GIVEN_AWAY
        if checker is None:
            return ""
        found = yield from tries(checker, comparison(checker, question, text), read_check)
        return _check_reason(found)

    def work(question: Question) -> Asking:
        text, why = question.original, ""
        for number in range(settings.attempts if question.options else 0):
            first = request(question)
            (reply,) = yield [writer.again(first, number) if number else first]
            text = answered(reply).text.strip()
            why = (yield from problem(question, text)) or ""
            if not why:
                break
            if not text:
                yield Unread([answered(reply)])
        return Outcome({"text": text}, why)

    def key(question: Question) -> str:
        if not question.options:
            return step_key("rewrite", text=question.original)
        compared = comparison(checker, question, "").key() if checker else ""
        return step_key("rewrite", attempts=settings.attempts, request=request(question).key(), check=compared)

    def advance(question: Question, value: Mapping[str, Any]) -> Question:
        return replace(question, text=value["text"])

    def foresee(question: Question) -> list[Request]:
        if not question.options:
            return []
        return [request(question), *([comparison(checker, question, question.original)] if checker else [])]

    return QuestionStep(Step("rewrite", _identify, key, work=work), advance, foresee)


_GIVEN_AWAY = "the answer is given away"


def _check_reason(found: Mapping[str, bool] | None) -> str:
    if found is None:
        return "the check could not be read"
    if found["gives_away"]:
        return _GIVEN_AWAY
    return "" if found["same"] else "it asks something else"


def read_check(text: str) -> dict[str, bool] | None:
    """Read the decisions of a checker; None if the reply lacks one.

    >>> read_check('{"gives_away": false, "same": true}')
    {'gives_away': False, 'same': True}
    """
    value = read_object(text)
    if value is None or not all(isinstance(value.get(name), bool) for name in ("gives_away", "same")):
        return None
    return {name: value[name] for name in ("gives_away", "same")}


def _reason(plan: BuildPlan) -> QuestionStep:
    template = prompt("reason", plan)
    model = asked_model(plan.reason.model, plan)

    def request(question: Question) -> Request:
        return model.request(template.fill({"question": question.text, "answer": question.answer}))

    def work(question: Question) -> Asking:
        text = yield from tries(model, request(question), lambda said: said.strip() or None)
        return Outcome({"reasoning": text}) if text else Outcome(dropped="nothing was written")

    def key(question: Question) -> str:
        return step_key("reason", request=request(question).key())

    def advance(question: Question, value: Mapping[str, Any]) -> Question:
        return replace(question, reasoning=value["reasoning"])

    def guess(question: Question) -> Question:
        return replace(question, reasoning=question.reasoning or _STAND_IN)

    return QuestionStep(Step("reason", _identify, key, work=work), advance, lambda question: [request(question)], guess)


def label_step(plan: BuildPlan) -> QuestionStep:
    """Return the step that classifies finished questions by the schemes of `r2med label` and counts failures."""
    model = asked_model(plan.label.model, plan)
    schemes = [scheme(name) for name in plan.label.by]

    def requests(question: Question) -> list[Request]:
        return [model.request(by.fill(question.text)) for by in schemes]

    def work(question: Question) -> Asking:
        labels: dict[str, str] = {}
        for by, request in zip(schemes, requests(question), strict=True):
            found = yield from tries(model, request, partial(read_class, classes=by.classes))
            labels |= {by.name: found} if found is not None else {}
        marks = tuple(f"{by.name}: no class could be read" for by in schemes if by.name not in labels)
        return Outcome({"labels": labels}, marks=marks)

    def key(question: Question) -> str:
        return step_key("label", requests=[request.key() for request in requests(question)])

    return QuestionStep(Step("label", _identify, key, work=work), foresee=requests)
