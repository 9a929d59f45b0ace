"""Ask one model every question under every arm, judge the answers, and keep them in the ledger.

A finished arm of a task is a set of answers in the ledger, and every single reply is kept from the moment it arrives:
whatever stops a study, the same command goes on where it was, and nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from r2med.answers.arms import Arm, PromptRule, Source, choose, file_lists, prompt, show
from r2med.answers.nuggets import Support, read_support, support_prompt, support_text
from r2med.answers.samples import (
    DECIDED,
    AnswerKind,
    QuestionAnswers,
    SampledAnswer,
    holds_answer,
    read_reply,
    with_verdict,
)
from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.nuggets import Nugget, NuggetFile, read_nuggets
from r2med.data.run import Run
from r2med.data.tasks import resolve
from r2med.errors import R2medError
from r2med.llm.budget import account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.parsing import judge_prompt, judge_text, unwavering, verdict_of
from r2med.llm.stage import settings as sampling_settings
from r2med.llm.types import Failed, Model, Reply, Request
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.models.templates import Template, bundled
from r2med.pipeline.evaluate import ALGORITHM, Options, evaluate
from r2med.pipeline.executor.local import Executor, every_share, postponed_as, quiet
from r2med.runs.answer_sets import AnswerSet
from r2med.runs.ledger import Ledger
from r2med.store.hashes import cache_key
from r2med.store.typed import convert, plain
from r2med.usage import Usage

Replies = Sequence[Reply | Failed]


@dataclass(frozen=True)
class StudyOptions:
    """Options that all arms of a study share."""

    llm: str
    judge: str = ""  # the model that compares answers with the gold answer; without one, only their words are compared
    samples: int = 1  # how many answers each question gets under each arm
    rule: PromptRule = field(default_factory=PromptRule)
    temperature: float | None = None
    answer_tokens: int | None = None
    judge_prompt: str = ""  # a file in place of the judge's own prompt
    measure: str = "nDCG@10"  # what the lists of systems are measured by
    nuggets: str = ""  # a file of the facts that answers should hold, which the judge looks for

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise R2medError(f"samples must be 1 or more, not {self.samples}")
        if self.nuggets and not self.judge:
            raise R2medError("nuggets are looked for in answers by a judge; name one with --judge")

    @property
    def model(self) -> Model:
        """Return the model that answers, with this study's sampling."""
        model = find_model(self.llm)
        changes = {"temperature": self.temperature, "max_tokens": self.answer_tokens}
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(model, sampling=replace(model.sampling, **given))

    @property
    def judging(self) -> Model | None:
        """Return the model that judges."""
        return unwavering(find_model(self.judge)) if self.judge else None

    @cached_property
    def nugget_file(self) -> NuggetFile | None:
        """Return the nuggets of the file."""
        return read_nuggets(self.nuggets) if self.nuggets else None

    def template(self) -> Template:
        """Return the prompt: one for whole answers if nuggets are looked for in them, or the user's own."""
        if self.nuggets and not self.rule.prompt:
            return bundled("long_answer", "r2med.answers")
        return self.rule.template()

    def facts(self) -> dict[str, Any]:
        """Return everything that the answers depend on except the arm and the data; results record it."""
        rule, judging, template = self.rule, self.judging, self.template()
        facts = {
            "llm": _model_facts(self.model),
            "judge": judging and {**_model_facts(judging), "prompt": judge_prompt(self.judge_prompt).hash},
            "prompt": {"source": template.source, "hash": template.hash},
            **{name: getattr(rule, name) for name in ("k", "budget", "order")},
            "samples": self.samples,
            "measure": self.measure,
        }
        if self.nugget_file is not None:
            hashes = {"hash": self.nugget_file.hash, "prompt": support_prompt().hash}
            facts["nuggets"] = {"file": self.nuggets, **hashes}
        return facts

    @property
    def key(self) -> str:
        """Return the name of the study: arms with the same may be compared."""
        return cache_key(version=1, **{name: repr(value) for name, value in self.facts().items()})[:10]


def _model_facts(model: Model) -> dict[str, Any]:
    return {
        "model": model.id,
        "name": model.name,
        "server": model.server,
        "extra": sorted((name, repr(value)) for name, value in model.extra.items()),
        "sampling": sampling_settings(model.sampling),
    }


@dataclass(frozen=True)
class ArmAnswers:
    """One arm on one task, answered."""

    arm: Arm
    task: str
    group: str
    answers: Sequence[QuestionAnswers]
    account: Usage  # usage of the model that answers
    judge_account: Usage
    study: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


class StudyQuestion(NamedTuple):
    """One question of an arm, ready to be asked."""

    query: str
    sources: Sequence[Source]
    requests: Sequence[Request]
    retrieval: float | None
    nuggets: tuple[Nugget, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """One arm on one task before anything is asked."""

    arm: Arm
    dataset: Dataset
    questions: Sequence[StudyQuestion]
    options: StudyOptions

    @cached_property
    def key(self) -> str:
        """Hash everything that the answers depend on."""
        passages = [(q.query, [(s.document, s.score) for s, _ in q.sources], q.retrieval) for q in self.questions]
        asked = [request.key() for request in self.requests]
        facts = (self.dataset.fingerprint, self.dataset.name, self.arm.label, self.arm.kind)
        return cache_key(study=self.options.key, facts=facts, shown=repr(passages), asked=asked, algorithm=ALGORITHM)

    @property
    def requests(self) -> list[Request]:
        """Return all requests."""
        return [request for question in self.questions for request in question.requests]


def with_answers(tasks: Sequence[str], notes: list[str]) -> Iterator[Dataset]:
    """Yield the data of tasks that have gold answers, one in memory at a time; the others are noted."""
    count = 0
    for task in resolve(tasks):
        dataset = load(task)
        if any(answer.strip() for answer in dataset.gold.answers.values()):
            count += 1
            yield dataset
        else:
            notes.append(f"{dataset.name} is left out: it has no gold answers to compare with")
    if not count:
        raise R2medError(f"no question can be judged: {'; '.join(notes)}")


def check_groups(tasks: Sequence[str]) -> None:
    """Refuse tasks whose figures must not be averaged."""
    groups = {task.group for task in resolve(tasks)}
    if len(groups) > 1:
        raise R2medError(f"tasks of {' and '.join(sorted(groups))} are never averaged; ask for one group at a time")


def run_study(
    arms: Sequence[Arm],
    tasks: Sequence[str],
    options: StudyOptions,
    executor: Executor | None = None,
    *,
    fresh: bool = False,
) -> tuple[list[ArmAnswers], list[str]]:
    """Answer every arm on every task, from the ledger or asked now; return them with notes for the reader."""
    check_groups(tasks)
    if options.nugget_file is not None:
        options.nugget_file.check_tasks(task.name for task in resolve(tasks))
    executor = executor or quiet()
    notes: list[str] = []
    options.facts()  # what cannot be asked is refused before anything runs
    with Ledger() as ledger:

        def answer(dataset: Dataset) -> list[ArmAnswers]:
            lists = _ranked_lists(arms, dataset, options, ledger, executor)
            prepared = [prepare(arm, dataset, lists.get(arm.label), options) for arm in arms]
            expected = sum(bool(answer.strip()) for answer in dataset.gold.answers.values())
            lacking = {part.arm.label: missing for part in prepared if (missing := expected - len(part.questions))}
            questions = f"of {expected} questions of {dataset.name}"
            notes.extend(f"{label} has no list for {missing} {questions}" for label, missing in lacking.items())
            with postponed_as(dataset.name):
                return _answered(prepared, ledger, executor, fresh=fresh)

        answered = every_share(partial(answer, dataset) for dataset in with_answers(tasks, notes))
    return [answers for task in answered for answers in task], notes


def _ranked_lists(
    arms: Sequence[Arm], dataset: Dataset, options: StudyOptions, ledger: Ledger, executor: Executor
) -> dict[str, Run]:
    """Return the lists that arms are made of, by the arm's label; systems that were not run yet are run now."""
    specs = list(dict.fromkeys(arm.system for arm in arms if arm.system))
    runs: dict[str, Run] = {}
    if specs:
        measures = [Measure.parse(options.measure)]
        report = evaluate(specs, dataset, Options(executor=executor), measures=measures).whole()
        if report.failures:
            raise R2medError(f"{report.failures[0].system} on {dataset.name}: {report.failures[0].message}")
        runs = {result.system: ledger.run(ledger.get(result.id)) for result in report.results}
    from_files = {arm.label: file_lists(arm, dataset) for arm in arms if arm.file is not None}
    return from_files | {arm.label: runs[arm.system] for arm in arms if arm.system}


def prepare(arm: Arm, dataset: Dataset, run: Run | None, options: StudyOptions) -> Prepared:
    """Build the prompts of an arm on a task: every question with a gold answer, and for a run file with a list."""
    passages = choose(arm, dataset, run, options.rule.k)
    values: dict[str, float] = {}
    if run is not None and arm.retrieves:
        scores = score(run, dataset.gold.qrels, [Measure.parse(options.measure)], dataset.gold.aspects)
        values = dict(zip(scores.queries, scores.values(scores.measures[0]).tolist(), strict=True))
    template, model, words = options.template(), options.model, dataset.task.words
    nuggets = options.nugget_file.of(dataset) if options.nugget_file is not None else {}
    questions = []
    for query, text in dataset.collection.queries:
        if not dataset.gold.answers.get(query, "").strip() or (arm.file is not None and not passages[query]):
            continue
        sources = show(query, passages[query], dataset, options.rule)
        request = model.request(prompt(template, text, sources, words))
        questions.append(
            StudyQuestion(query, sources, request.samples(options.samples), values.get(query), nuggets.get(query, ()))
        )
    return Prepared(arm, dataset, questions, options)


def _answered(prepared: Sequence[Prepared], ledger: Ledger, executor: Executor, *, fresh: bool) -> list[ArmAnswers]:
    """Return the arms of one task; those that the ledger does not have in full are asked all at once."""
    answered = {part.arm.label: None if fresh else _recalled(part, ledger) for part in prepared}
    missing = [part for part in prepared if answered[part.arm.label] is None]
    replies = iter(_ask([request for part in missing for request in part.requests], "answers", executor))
    read = []
    for part in missing:
        part_replies = list(islice(replies, len(part.requests)))
        read.append((part, part_replies, _read(part, part_replies)))
    for answers in _judged(read, executor):
        usages = {name: getattr(answers, name).as_json() for name in ("account", "judge_account")}
        settings = {**answers.settings, "arm": plain(answers.arm), **usages}
        key, rows = answers.settings["key"], plain(answers.answers)
        ledger.answers.add(AnswerSet(key, answers.study, answers.arm.label, answers.task, settings, rows))
        answered[answers.arm.label] = answers
    return [answers for answers in answered.values() if answers is not None]


def _ask(requests: Sequence[Request], label: str, executor: Executor) -> list[Reply | Failed]:
    if not requests:
        return []
    with executor.progress(label, len(requests), "requests") as bar, postponed_as(label):
        return current_client().ask_all(requests, bar)


def _read(prepared: Prepared, replies: Replies) -> list[QuestionAnswers]:
    """Read the replies of an arm, as far as words decide them."""
    gold, judged = prepared.dataset.gold, bool(prepared.options.judge)
    answers, rest = [], iter(replies)
    for question in prepared.questions:
        facts = gold.answers[question.query], gold.synonyms.get(question.query, ())
        samples = tuple(read_reply(r, *facts, judged=judged) for r in islice(rest, prepared.options.samples))
        passages = tuple(source.shown for source in question.sources)
        answers.append(QuestionAnswers(question.query, passages, samples, question.retrieval, question.nuggets))
    kinds = [sample.kind for question in answers for sample in question.samples]
    unread = [reply for reply, kind in zip(replies, kinds, strict=True) if kind is AnswerKind.UNPARSABLE]
    current_client().reject(unread)
    return answers


def _judged(
    read: Sequence[tuple[Prepared, Replies, list[QuestionAnswers]]], executor: Executor
) -> Iterator[ArmAnswers]:
    """Judge what words do not decide; the same answer to the same question is judged once."""
    judge = read[0][0].options.judging if read else None
    template = judge_prompt(read[0][0].options.judge_prompt) if read else None
    requests: dict[tuple[str, str], Request] = {}
    supports: dict[tuple[str, str], Request] = {}
    nuggets: dict[str, tuple[Nugget, ...]] = {}
    if judge is not None:
        for prepared, _, answers in read:
            texts, gold = prepared.dataset.collection.queries, prepared.dataset.gold.answers
            for query, answer in _undecided(answers):
                text = judge_text(texts.text(query), gold[query], answer, template)
                requests.setdefault((query, answer), judge.request(text))
            nuggets |= {row.query: row.nuggets for row in answers}
            for query, answer in _searched(answers):
                text = support_text(texts.text(query), answer, nuggets[query])
                supports.setdefault((query, answer), judge.request(text))
    verdicts = dict(zip(requests, _ask(list(requests.values()), "verdicts", executor), strict=True))
    current_client().reject(reply for reply in verdicts.values() if verdict_of(reply)[0] is None)
    labels = dict(zip(supports, _ask(list(supports.values()), "nuggets", executor), strict=True))
    support = {pair: read_support(reply, len(nuggets[pair[0]])) for pair, reply in labels.items()}
    current_client().reject(reply for pair, reply in labels.items() if support[pair] is None)

    def decide(question: QuestionAnswers, sample: SampledAnswer) -> SampledAnswer:
        pair = question.query, sample.answer
        if sample.kind is AnswerKind.ABSTAINED and question.nuggets:
            return msgspec.structs.replace(sample, support=(Support.NONE,) * len(question.nuggets))
        if holds_answer(sample) and question.nuggets:
            sample = msgspec.structs.replace(sample, support=support.get(pair))
        reply = verdicts.get(pair) if sample.kind is AnswerKind.UNJUDGED else None
        return sample if reply is None else with_verdict(sample, *verdict_of(reply))

    for prepared, replies, answers in read:
        asked = [verdicts[pair] for pair in _undecided(answers)] if verdicts else []
        asked += [labels[pair] for pair in _searched(answers)]
        samples = ((question, tuple(decide(question, s) for s in question.samples)) for question in answers)
        judged = [msgspec.structs.replace(question, samples=decided) for question, decided in samples]
        dataset, options = prepared.dataset, prepared.options
        facts = {**options.facts(), "data": dataset.fingerprint, "group": dataset.task.group, "key": prepared.key}
        usages = account(replies), account(asked)
        yield ArmAnswers(prepared.arm, dataset.name, dataset.task.group, judged, *usages, options.key, facts)


def _undecided(answers: Sequence[QuestionAnswers]) -> list[tuple[str, str]]:
    """Return the questions and answers that a judge decides."""
    return [(row.query, s.answer) for row in answers for s in row.samples if s.kind is AnswerKind.UNJUDGED]


def _searched(answers: Sequence[QuestionAnswers]) -> list[tuple[str, str]]:
    """Return the questions and answers in which nuggets are looked for."""
    return [(row.query, s.answer) for row in answers if row.nuggets for s in row.samples if holds_answer(s)]


def read_answers(stored: AnswerSet) -> ArmAnswers:
    """Read an arm on a task from the ledger."""
    facts = dict(stored.settings)
    arm = convert(facts["arm"], Arm)
    answers = convert(stored.rows, list[QuestionAnswers])
    usages = Usage(**facts["account"]), Usage(**facts["judge_account"])
    return ArmAnswers(arm, stored.task, facts["group"], answers, *usages, stored.study, facts)


def _recalled(prepared: Prepared, ledger: Ledger) -> ArmAnswers | None:
    """Return the answers of the ledger; None if it has none, or some that are not decided and are asked again."""
    stored = ledger.answers.find(prepared.key)
    if stored is None:
        return None
    answers = read_answers(stored)
    samples = [(question, sample) for question in answers.answers for sample in question.samples]
    if any(sample.kind not in DECIDED or (question.nuggets and not sample.support) for question, sample in samples):
        return None
    if ledger.answers.newest(stored.study, stored.arm, stored.task) != stored.key:
        # Data or a system that was changed and changed back has its own answers shown again.
        ledger.answers.add(stored)
    return answers
