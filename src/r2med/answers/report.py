"""Reports of studies: every arm's accuracy, what passages changed, and how that goes with retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.answers import effects
from r2med.answers.arms import Arm
from r2med.answers.samples import QuestionAnswers
from r2med.answers.study import ArmAnswers, read_answers
from r2med.errors import R2medError
from r2med.measure.correlation import Discrimination, Slope, slope_over_systems, slope_within_queries
from r2med.measure.figure import Figure, figure_dict
from r2med.runs.ledger import Ledger
from r2med.usage import Usage


@dataclass(frozen=True, kw_only=True)
class ArmReport:
    """One arm over all tasks."""

    arm: Arm
    accuracy: Figure | None  # the mean over tasks; None if nothing was decided
    tasks: Mapping[str, Figure | None]
    counts: effects.Counts
    task_counts: Mapping[str, effects.Counts]
    in_view: effects.InView
    retrieval: float | None  # the measure of its lists, the mean over tasks; None for what is not a list
    quadrants: effects.Quadrants | None  # None for an arm without passages
    grounding: effects.Grounding
    paired: effects.Paired | None  # None for closed itself, and if closed was not asked
    way: effects.WayToGold | None  # None for closed and gold
    harm: Mapping[str, Discrimination]
    nuggets: effects.NuggetRecall | None  # None without a file of nuggets
    account: Usage
    judge_account: Usage

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            "arm": self.arm.label,
            "kind": self.arm.kind,
            "oracle": self.arm.oracle,
            "accuracy": self.accuracy and figure_dict(self.accuracy, "mean"),
            "tasks": {task: figure and figure_dict(figure, "mean") for task, figure in self.tasks.items()},
            "answers": asdict(self.counts),
            **asdict(self.in_view),
            "retrieval": self.retrieval,
            "quadrants": self.quadrants and asdict(self.quadrants),
            "grounding": asdict(self.grounding),
            "paired": self.paired and self.paired.as_dict(),
            "way_to_gold": self.way and self.way.as_dict(),
            "harm": {signal: discrimination.as_dict() for signal, discrimination in self.harm.items()},
            "nuggets": self.nuggets and self.nuggets.as_dict(),
            **{name: getattr(self, name).as_json() for name in ("account", "judge_account")},
        }


@dataclass(frozen=True, repr=False)
class RagReport:
    """A study: the same questions, model and prompt, with and without passages."""

    study: str
    settings: Mapping[str, Any]  # what all arms share: models, prompt, numbers
    answers: Sequence[ArmAnswers]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        model, arms, tasks = self.settings["llm"]["name"], len(self.by_arm), len(self.tasks)
        return f"RagReport({model!r}, {arms} arms on {tasks} tasks)"

    def __str__(self) -> str:
        from r2med.answers.tables import rag_sections
        from r2med.render.sections import show_sections
        from r2med.render.table import print_plainly

        return print_plainly(show_sections, rag_sections(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def measure(self) -> str:
        """Return the measure of the systems' lists."""
        return str(self.settings["measure"])

    @property
    def judged(self) -> bool:
        """Return whether a judge decided what words do not."""
        return self.settings["judge"] is not None

    @cached_property
    def tasks(self) -> list[str]:
        """Return the tasks, in the order of asking."""
        return list(dict.fromkeys(part.task for part in self.answers))

    @cached_property
    def by_arm(self) -> dict[str, dict[str, dict[str, QuestionAnswers]]]:
        """Return the answers by arm, task and question."""
        answers: dict[str, dict[str, dict[str, QuestionAnswers]]] = {}
        for part in self.answers:
            answers.setdefault(part.arm.label, {})[part.task] = {row.query: row for row in part.answers}
        return answers

    @cached_property
    def arms(self) -> list[ArmReport]:
        """Return every arm, in the order of asking."""
        return [self._report(arm) for arm in {part.arm.label: part.arm for part in self.answers}.values()]

    def arm(self, label: str) -> ArmReport:
        """Return an arm by its label."""
        arms = {report.arm.label: report for report in self.arms}
        if label in arms:
            return arms[label]
        raise R2medError(f"no arm {label!r} in this study; it has {', '.join(arms)}")

    def _report(self, arm: Arm) -> ArmReport:
        tasks, parts = self.by_arm[arm.label], [part for part in self.answers if part.arm.label == arm.label]
        closed, gold = self.by_arm.get("closed"), self.by_arm.get("gold")
        compared = closed if arm.kind != "closed" else None
        retrieval = [[v for row in rows.values() if (v := row.retrieval) is not None] for rows in tasks.values()]
        means = [np.mean(values) for values in retrieval if values]
        return ArmReport(
            arm=arm,
            accuracy=effects.accuracy(tasks),
            tasks={task: effects.accuracy({task: answers}) for task, answers in tasks.items()},
            counts=effects.Counts.of(tasks),
            task_counts={task: effects.Counts.of({task: answers}) for task, answers in tasks.items()},
            in_view=effects.InView.of(tasks),
            retrieval=float(np.mean(means)) if means else None,
            quadrants=None if arm.kind == "closed" else effects.Quadrants.of(tasks),
            grounding=effects.Grounding.of(tasks),
            paired=None if compared is None else effects.paired(compared, tasks),
            way=None if arm.kind in ("closed", "gold") else effects.way_to_gold(closed, gold, tasks),
            harm={} if compared is None else effects.foresee_harm(compared, tasks),
            nuggets=effects.NuggetRecall.of(compared, tasks),
            account=sum((part.account for part in parts), Usage()),
            judge_account=sum((part.judge_account for part in parts), Usage()),
        )

    @cached_property
    def over_systems(self) -> Slope:
        """Fit accuracy to the measure of retrieval, one point per system; oracles are left out."""
        return slope_over_systems(*self._tables())

    @cached_property
    def within_queries(self) -> Slope:
        """Fit the same within each question, over systems."""
        return slope_within_queries(*self._tables())

    def _tables(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
        """Return for each task the retrieval and the accuracy of all systems on the questions that all decided."""
        arms = [self.by_arm[report.arm.label] for report in self.arms if report.arm.is_system]
        x, y = [], []
        for task in self.tasks if arms else ():
            present = [arm[task] for arm in arms if task in arm]
            queries = effects.decided(*present) if len(present) == len(arms) else []
            if queries:
                x.append(np.array([[arm[query].retrieval or 0.0 for query in queries] for arm in present]))
                y.append(np.stack([effects.values(arm, queries) for arm in present]))
        return x, y

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        facts = {"study": self.study, "settings": self.settings, "tasks": self.tasks}
        slopes = {name: getattr(self, name).as_dict() for name in ("over_systems", "within_queries")}
        return {**facts, "arms": [report.as_dict() for report in self.arms], **slopes, "notes": self.notes}


def make_report(answers: Sequence[ArmAnswers], notes: Sequence[str] = ()) -> RagReport:
    """Build the report of a study's answers."""
    if not answers:
        raise R2medError("there are no answers to report on; r2med rag SYSTEM --llm MODEL asks for them")
    facts = answers[0].settings
    shared = {name: facts[name] for name in ("llm", "judge", "prompt", "k", "budget", "order", "samples", "measure")}
    shared["nuggets"] = facts.get("nuggets")
    return RagReport(answers[0].study, shared, answers, tuple(notes))


def kept_reports(ledger: Ledger) -> list[RagReport]:
    """Return every study of the ledger, a group of tasks at a time, the newest first."""
    studies: dict[tuple[str, str], list[ArmAnswers]] = {}
    for part in map(read_answers, ledger.answers.newest_sets()):
        studies.setdefault((part.study, part.group), []).append(part)
    return [make_report(answers) for answers in reversed(studies.values())]
