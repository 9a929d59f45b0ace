"""Plans of studies: the requests and their cost, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from r2med.answers.arms import Arm, PromptRule, file_lists, make_arms
from r2med.answers.nuggets import support_text
from r2med.answers.report import RagReport
from r2med.answers.study import Prepared, StudyOptions, check_groups, prepare, with_answers
from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.parsing import judge_prompt, judge_text
from r2med.llm.types import Request
from r2med.pipeline.evaluate import run_key
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger


@dataclass(frozen=True)
class PlannedArm:
    """One arm on one task."""

    arm: str
    task: str
    questions: int
    answers: Estimate
    verdicts: Estimate | None  # if every answer had to be judged, which is the most; None without a judge


@dataclass(frozen=True)
class StudyPlan:
    """Estimate of the requests of a study."""

    study: str
    arms: Sequence[PlannedArm]
    answers: Estimate
    verdicts: Estimate | None
    first_prompt: str
    notes: Sequence[str]

    @property
    def total(self) -> Estimate:
        """Return the answers and verdicts together."""
        return self.answers if self.verdicts is None else self.answers + self.verdicts

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--dry-run --json`."""
        return {**asdict(self), "cost": self.total.cost, "cost_limit": self.total.cost_limit}


def plan_study(arms: Sequence[Arm], tasks: Sequence[str], options: StudyOptions) -> StudyPlan:
    """Price a study; nothing is asked, and no system is run."""
    check_groups(tasks)
    notes: list[str] = []
    planned: list[PlannedArm] = []
    asked: list[Request] = []
    judged: list[Request] = []
    first = ""
    client = current_client()
    with Ledger() as ledger:
        for dataset in with_answers(tasks, notes):
            for arm in arms:
                prepared = prepare(arm, dataset, _known_lists(arm, dataset, ledger, notes), options)
                answers, verdicts = prepared.requests, _verdicts(prepared)
                first = first or (answers[-1].messages[-1].content if arm.kind != "closed" and answers else "")
                prices = client.estimate(answers), client.estimate(verdicts) if options.judge else None
                planned.append(PlannedArm(arm.label, dataset.name, len(prepared.questions), *prices))
                asked += answers
                judged += verdicts
    first = first or (asked[0].messages[-1].content if asked else "")
    prices = client.estimate(asked), client.estimate(judged) if options.judge else None
    return StudyPlan(options.key, planned, *prices, first, notes)


def _known_lists(arm: Arm, dataset: Dataset, ledger: Ledger, notes: list[str]) -> Run | None:
    """Return the lists of an arm; the longest documents stand for those of a run that is not there."""
    if arm.file is not None:
        return file_lists(arm, dataset)
    if not arm.system:
        return None
    entry = ledger.find(run_key(System.parse(arm.system), dataset))
    if entry is not None:
        return ledger.run(entry)
    note = f"{arm.system} was not run on {dataset.name} yet: priced as if its passages were the longest there are"
    if note not in notes:
        notes.append(note)
    documents = sorted(dataset.collection.documents, key=lambda pair: len(pair[1]), reverse=True)[:100]
    longest = [name for name, _ in documents]
    scores = [float(len(longest) - place) for place in range(len(longest))]
    return Run.from_lists(dict.fromkeys(dataset.collection.queries.ids, (longest, scores)))


def _verdicts(prepared: Prepared) -> list[Request]:
    """Build the largest set of requests to a judge, with the gold answer in place of answers that are not known yet."""
    judge = prepared.options.judging
    if judge is None:
        return []
    texts, gold = prepared.dataset.collection.queries, prepared.dataset.gold.answers
    template = judge_prompt(prepared.options.judge_prompt)
    # Answers differ between arms and samples, and each that differs is judged.
    answers = [
        (question.query, f"{prepared.arm.label} {sample} {gold[question.query]}")
        for question in prepared.questions
        for sample in range(prepared.options.samples)
    ]
    verdicts = [judge_text(texts.text(query), gold[query], text, template) for query, text in answers]
    nuggets = {question.query: question.nuggets for question in prepared.questions}
    verdicts += [support_text(texts.text(query), text, nuggets[query]) for query, text in answers if nuggets[query]]
    return [judge.request(text) for text in verdicts]


@dataclass(frozen=True)
class StudyCommand:
    """Command line of `r2med rag` for a study."""

    systems: Sequence[str]  # systems whose highest ranked distractors are an arm
    names: Sequence[str]  # values of `--arms`
    tasks: Sequence[str]
    options: StudyOptions

    @property
    def arms(self) -> list[Arm]:
        """Return the arms that it names."""
        return make_arms(self.systems, self.names)

    @property
    def words(self) -> list[str]:
        """Return the words behind `r2med`, default settings left out."""
        names = "llm judge nuggets k budget order prompt samples temperature answer_tokens measure".split()
        values, usual = ({**vars(options), **vars(options.rule)} for options in (self.options, StudyOptions("")))
        changed = [name for name in names if values[name] != usual[name]]
        given = [f"--{name.replace('_', '-')}={values[name]}" for name in changed]
        return ["rag", *self.systems, *given, "--arms", *self.names, "--tasks", *self.tasks]


def study_command(report: RagReport, judge: str = "") -> StudyCommand:
    """Return the command of a kept study, or of the same with a judge; an error if a model or a prompt has changed."""
    arms = {part.arm.label: part.arm for part in report.answers}
    hard = [arm.system for arm in arms.values() if arm.kind == "hard"]
    plain = [arm.system if arm.kind == "system" else arm.kind for arm in arms.values()]
    names = [f"{arm.label}={arm.file}" if arm.file else name for arm, name in zip(arms.values(), plain, strict=True)]
    command = StudyCommand(hard, list(dict.fromkeys(names)), report.tasks, _options(report.settings))
    if command.options.key != report.study or {arm.label for arm in command.arms} != set(arms):
        raise R2medError(f"study {report.study} cannot be repeated: its model, a prompt or a file has changed since")
    return replace(command, options=replace(command.options, judge=judge)) if judge else command


def _options(facts: Mapping[str, Any]) -> StudyOptions:
    """Return the options that results record; the prompt of a file by the file's name."""
    llm, prompt = facts["llm"], facts["prompt"]
    rule = PromptRule(facts["k"], facts["budget"], facts["order"])
    usual = find_model(llm["name"]).sampling
    temperature, tokens = (
        None if value == getattr(usual, name) else value
        for name in ("temperature", "max_tokens")
        for value in [llm["sampling"].get(name)]
    )
    judge = facts["judge"]["name"] if facts["judge"] else ""
    more = {"measure": facts["measure"], "nuggets": facts["nuggets"]["file"] if facts["nuggets"] else ""}
    options = StudyOptions(llm["name"], judge, facts["samples"], rule, temperature, tokens, **more)
    if options.template().hash != prompt["hash"]:
        options = replace(options, rule=replace(rule, prompt=prompt["source"]))
    return options
