"""Plans of studies: the requests and their cost, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from r2med.answers.arms import Arm, file_lists, make_arms
from r2med.answers.report import RagReport
from r2med.answers.sources import PromptRule
from r2med.answers.study import Prepared, StudyOptions, check_groups, prepare, with_answers
from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.judge import judge_prompt, judge_text
from r2med.llm.types import Request
from r2med.pipeline.plan import run_key
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger


@dataclass(frozen=True)
class PlannedArm:
    """One arm on one task."""

    arm: str
    task: str
    questions: int
    answers: Estimate
    verdicts: Estimate | None
    """If every answer had to be judged, which is the most; None without a judge."""

    def plus(self, other: PlannedArm) -> PlannedArm:
        """Add the same arm on another task."""
        verdicts = None if self.verdicts is None or other.verdicts is None else self.verdicts + other.verdicts
        questions = self.questions + other.questions
        return PlannedArm(self.arm, "", questions, self.answers + other.answers, verdicts)


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
    def cost(self) -> float | None:
        """Return the remaining cost, in US dollars; None if a price is unknown."""
        return _sum(self.answers.cost, None if self.verdicts is None else self.verdicts.cost, self.verdicts is None)

    @property
    def cost_limit(self) -> float | None:
        """Return the same if every reply were as long as it may be."""
        most = None if self.verdicts is None else self.verdicts.cost_limit
        return _sum(self.answers.cost_limit, most, self.verdicts is None)

    def by_arm(self) -> dict[str, PlannedArm]:
        """Return each arm over all tasks."""
        found: dict[str, PlannedArm] = {}
        for each in self.arms:
            before = found.get(each.arm)
            found[each.arm] = each if before is None else before.plus(each)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--dry-run --json`."""
        return {
            **asdict(self),
            "arms": [asdict(each) for each in self.arms],
            "cost": self.cost,
            "cost_limit": self.cost_limit,
        }


def _sum(one: float | None, other: float | None, alone: bool) -> float | None:
    return one if alone else None if one is None or other is None else one + other


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
                lists = _known_lists(arm, dataset, ledger, notes)
                prepared = prepare(arm, dataset, lists, options)
                own, verdicts = prepared.requests, _verdicts(prepared)
                first = first or (own[-1].messages[-1].content if arm.kind != "closed" and own else "")
                guesses = client.estimate(own), client.estimate(verdicts) if options.judge else None
                planned.append(PlannedArm(arm.label, dataset.name, len(prepared.questions), *guesses))
                asked += own
                judged += verdicts
    total = client.estimate(asked), client.estimate(judged) if options.judge else None
    first = first or (asked[0].messages[-1].content if asked else "")
    return StudyPlan(options.key, planned, *total, first, notes)


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
    asking = judge_prompt(prepared.options.judge_prompt)
    # Answers differ between arms and samples, and each that differs is judged.
    pairs = [(each.query, sample) for each in prepared.questions for sample in range(prepared.options.samples)]
    answers = [f"{prepared.arm.label} {sample} {gold[query]}" for query, sample in pairs]
    asked = zip(pairs, answers, strict=True)
    return [judge.request(judge_text(texts.text(query), gold[query], answer, asking)) for (query, _), answer in asked]


@dataclass(frozen=True)
class StudyCommand:
    """Command line of `r2med rag` for a study."""

    systems: Sequence[str]
    """Those whose highest ranked distractors are an arm."""
    names: Sequence[str]
    """What `--arms` lists."""
    tasks: Sequence[str]
    options: StudyOptions

    @property
    def arms(self) -> list[Arm]:
        """Return the arms that it names."""
        return make_arms(self.systems, self.names)

    @property
    def words(self) -> list[str]:
        """Return the words behind `r2med`, default settings left out."""
        options, rule, usual = self.options, self.options.rule, StudyOptions("")
        pairs = [
            ("--llm", options.llm, ""),
            ("--judge", options.judge, ""),
            ("--k", rule.k, usual.rule.k),
            ("--budget", rule.budget, usual.rule.budget),
            ("--order", rule.order, usual.rule.order),
            ("--prompt", rule.prompt, ""),
            ("--samples", options.samples, usual.samples),
            ("--temperature", options.temperature, None),
            ("--answer-tokens", options.answer_tokens, None),
            ("--measure", options.measure, usual.measure),
        ]
        told = [f"{name}={value}" for name, value, unsaid in pairs if value != unsaid]
        return ["rag", *self.systems, *told, "--arms", *self.names, "--tasks", *self.tasks]

    def judged_by(self, judge: str) -> StudyCommand:
        """Return the same study, with a judge for what words do not decide."""
        return replace(self, options=replace(self.options, judge=judge))


def study_command(report: RagReport) -> StudyCommand:
    """Return the command of a kept study; an error if a model or a prompt has changed."""
    arms = {each.arm.label: each.arm for each in report.answers}
    hard = [arm.system for arm in arms.values() if arm.kind == "hard"]
    names = list(dict.fromkeys(_name(arm) for arm in arms.values()))
    found = StudyCommand(hard, names, report.tasks, _options(report.settings))
    if found.options.key != report.study or {arm.label for arm in found.arms} != set(arms):
        raise R2medError(f"study {report.study} cannot be repeated: its model, a prompt or a file has changed since")
    return found


def _name(arm: Arm) -> str:
    """Return the name of an arm in `--arms`."""
    if arm.file is not None:
        return f"{arm.label}={arm.file}"
    return arm.system if arm.kind == "system" else arm.kind


def _options(facts: Mapping[str, Any]) -> StudyOptions:
    """Return the options that results record; the prompt of a file by the file's name."""
    llm, judge, prompt = facts["llm"], facts["judge"], facts["prompt"]
    rule = PromptRule(facts["k"], facts["budget"], facts["order"])
    if rule.template().hash != prompt["hash"]:
        rule = replace(rule, prompt=prompt["source"])
    usual = find_model(llm["name"]).sampling
    sampling = llm["sampling"]
    return StudyOptions(
        llm["name"],
        "" if judge is None else judge["name"],
        facts["samples"],
        rule,
        _unless(sampling.get("temperature"), usual.temperature),
        _unless(sampling.get("max_tokens"), usual.max_tokens),
        measure=facts["measure"],
    )


def _unless(value: Any, usual: Any) -> Any:
    return None if value == usual else value
