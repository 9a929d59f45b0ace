"""The command that makes a kept study again, or the same with a judge; nothing that was answered is asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from r2med.errors import R2medError
from r2med.llm import find_model
from r2med.rag.arms import Arm, make_arms
from r2med.rag.rag_report import RagReport
from r2med.rag.sources import PromptRule
from r2med.rag.study import StudyOptions


@dataclass(frozen=True)
class StudyCommand:
    """What `r2med rag` is told for a study."""

    systems: Sequence[str]
    """Those whose highest ranked distractors are an arm."""
    names: Sequence[str]
    """What `--arms` lists."""
    tasks: Sequence[str]
    options: StudyOptions

    @property
    def arms(self) -> list[Arm]:
        """The arms that it asks for."""
        return make_arms(self.systems, self.names)

    @property
    def words(self) -> list[str]:
        """The words behind `r2med`, settings that are the usual ones left out."""
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
            ("--metric", options.measure, usual.measure),
        ]
        told = [f"{name}={value}" for name, value, unsaid in pairs if value != unsaid]
        return ["rag", *self.systems, *told, "--arms", *self.names, "--tasks", *self.tasks]

    def judged_by(self, judge: str) -> StudyCommand:
        """The same study, with a judge for what words do not decide."""
        return replace(self, options=replace(self.options, judge=judge))


def study_command(report: RagReport) -> StudyCommand:
    """The command of a kept study; an error where a model or a prompt is no longer what it was."""
    arms = {each.arm.label: each.arm for each in report.answers}
    hard = [arm.system for arm in arms.values() if arm.kind == "hard"]
    names = list(dict.fromkeys(_name(arm) for arm in arms.values()))
    found = StudyCommand(hard, names, report.tasks, _options(report.settings))
    if found.options.key != report.study or {arm.label for arm in found.arms} != set(arms):
        raise R2medError(f"study {report.study} cannot be repeated: its model, a prompt or a file has changed since")
    return found


def _name(arm: Arm) -> str:
    """What `--arms` calls an arm."""
    if arm.file is not None:
        return f"{arm.label}={arm.file}"
    return arm.system if arm.kind == "system" else arm.kind


def _options(facts: Mapping[str, Any]) -> StudyOptions:
    """The options that results record; a prompt of one's own by the file that it came from."""
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
