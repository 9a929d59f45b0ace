"""Reports of studies: every arm's accuracy, what passages changed, and how that goes with retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from r2med.answers.arms import Arm
from r2med.answers.effects import (
    ByTask,
    Counts,
    Grounding,
    Paired,
    Quadrants,
    WayToGold,
    accuracy,
    decided,
    foresee_harm,
    paired,
    values,
    way_to_gold,
)
from r2med.answers.samples import QuestionAnswers
from r2med.answers.study import ArmAnswers, from_set
from r2med.errors import R2medError
from r2med.measure.correlation import Discrimination, Slope, slope_over_systems, slope_within_queries
from r2med.measure.figure import Figure, figure_dict
from r2med.runs.ledger import Ledger
from r2med.runs.viewable import Viewable
from r2med.usage import Usage


@dataclass(frozen=True)
class ArmReport:
    """One arm over all tasks."""

    arm: Arm
    accuracy: Figure | None
    """The mean over tasks; None where nothing was decided."""
    tasks: Mapping[str, Figure | None]
    counts: Counts
    task_counts: Mapping[str, Counts]
    passages: float
    """The mean number in view."""
    tokens: float
    """About how many tokens they take, the mean over questions."""
    cut: int
    """Passages that the budget cut."""
    retrieval: float | None
    """The measure of its lists, the mean over tasks; None for what is not a list."""
    quadrants: Quadrants | None
    """None for an arm without passages."""
    grounding: Grounding
    paired: Paired | None
    """None for closed itself, and where closed was not asked."""
    way: WayToGold | None
    """None for closed and gold."""
    harm: Mapping[str, Discrimination]
    account: Usage
    judge_account: Usage

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            "arm": self.arm.label,
            "kind": self.arm.kind,
            "oracle": self.arm.oracle,
            "accuracy": _plain(self.accuracy),
            "tasks": {task: _plain(found) for task, found in self.tasks.items()},
            "answers": asdict(self.counts),
            "passages": self.passages,
            "passage_tokens": self.tokens,
            "passages_cut": self.cut,
            "retrieval": self.retrieval,
            "quadrants": None if self.quadrants is None else asdict(self.quadrants),
            "grounding": asdict(self.grounding),
            "paired": None if self.paired is None else self.paired.as_dict(),
            "way_to_gold": None if self.way is None else self.way.as_dict(),
            "harm": {name: found.as_dict() for name, found in self.harm.items()},
            "account": self.account.as_json(),
            "judge_account": self.judge_account.as_json(),
        }


def _plain(found: Figure | None) -> dict[str, float | None] | None:
    return None if found is None else figure_dict(found, "mean")


@dataclass(frozen=True, repr=False)
class RagReport(Viewable):
    """A study: the same questions, model and prompt, with and without passages."""

    shown_by: ClassVar = "r2med.answers.tables:show_rag"

    study: str
    settings: Mapping[str, Any]
    """What all arms share: models, prompt, numbers."""
    answers: Sequence[ArmAnswers]
    notes: Sequence[str] = field(default_factory=tuple)

    def __repr__(self) -> str:
        size = f"{len(self.by_arm)} arms on {len(self.tasks)} tasks"
        return f"RagReport({self.settings['llm']['name']!r}, {size})"

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
        return list(dict.fromkeys(each.task for each in self.answers))

    @cached_property
    def by_arm(self) -> dict[str, dict[str, dict[str, QuestionAnswers]]]:
        """Return the answers by arm, task and question."""
        found: dict[str, dict[str, dict[str, QuestionAnswers]]] = {}
        for each in self.answers:
            found.setdefault(each.arm.label, {})[each.task] = each.by_query
        return found

    @cached_property
    def arms(self) -> list[ArmReport]:
        """Return every arm, in the order of asking."""
        return [self._arm(arm) for arm in {each.arm.label: each.arm for each in self.answers}.values()]

    def arm(self, label: str) -> ArmReport:
        """Return an arm by its label."""
        for each in self.arms:
            if each.arm.label == label:
                return each
        raise R2medError(f"no arm {label!r} in this study; it has {', '.join(each.arm.label for each in self.arms)}")

    def _arm(self, arm: Arm) -> ArmReport:
        tasks, own = self.by_arm[arm.label], [each for each in self.answers if each.arm.label == arm.label]
        closed, gold = self.by_arm.get("closed"), self.by_arm.get("gold")
        compared = closed is not None and arm.kind != "closed"
        return ArmReport(
            arm=arm,
            accuracy=accuracy(tasks),
            tasks={task: accuracy({task: found}) for task, found in tasks.items()},
            counts=Counts.of(tasks),
            task_counts={task: Counts.of({task: found}) for task, found in tasks.items()},
            passages=_mean([len(each.shown) for each in _questions(tasks)]),
            tokens=_mean([sum(passage.tokens for passage in each.shown) for each in _questions(tasks)]),
            cut=sum(passage.cut for each in _questions(tasks) for passage in each.shown),
            retrieval=_retrieval(tasks),
            quadrants=None if arm.kind == "closed" else Quadrants.of(tasks),
            grounding=Grounding.of(tasks),
            paired=paired(closed, tasks) if closed is not None and compared else None,
            way=_way(closed, gold, tasks) if arm.kind not in ("closed", "gold") else None,
            harm=foresee_harm(closed, tasks) if closed is not None and compared else {},
            account=sum((each.account for each in own), Usage()),
            judge_account=sum((each.judge_account for each in own), Usage()),
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
        arms = [self.by_arm[each.arm.label] for each in self.arms if each.arm.retrieves and not each.arm.oracle]
        x, y = [], []
        for task in self.tasks if arms else ():
            there = [arm[task] for arm in arms if task in arm]
            queries = decided(*there) if len(there) == len(arms) else []
            if queries:
                x.append(np.array([[arm[query].retrieval or 0.0 for query in queries] for arm in there]))
                y.append(np.stack([values(arm, queries) for arm in there]))
        return x, y

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            "study": self.study,
            "settings": dict(self.settings),
            "tasks": self.tasks,
            "arms": [arm.as_dict() for arm in self.arms],
            "over_systems": self.over_systems.as_dict(),
            "within_queries": self.within_queries.as_dict(),
            "notes": list(self.notes),
        }


def _questions(tasks: ByTask) -> list[QuestionAnswers]:
    return [each for arm in tasks.values() for each in arm.values()]


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers)) if numbers else 0.0


def _retrieval(tasks: ByTask) -> float | None:
    columns = [[each.retrieval for each in arm.values() if each.retrieval is not None] for arm in tasks.values()]
    known = [column for column in columns if column]
    return float(np.mean([np.mean(column) for column in known])) if known else None


def _way(closed: ByTask | None, gold: ByTask | None, arm: ByTask) -> WayToGold:
    if closed is None or gold is None:
        return WayToGold(undefined=f"the arm {'closed' if closed is None else 'gold'} was not asked")
    return way_to_gold(closed, gold, arm)


def make_report(answers: Sequence[ArmAnswers], notes: Sequence[str] = ()) -> RagReport:
    """Build the report of a study's answers."""
    if not answers:
        raise R2medError("there are no answers to report on; r2med rag SYSTEM --llm MODEL asks for them")
    facts = answers[0].settings
    shared = {name: facts[name] for name in ("llm", "judge", "prompt", "k", "budget", "order", "samples", "measure")}
    return RagReport(answers[0].study, shared, answers, tuple(notes))


def kept_reports(ledger: Ledger) -> list[RagReport]:
    """Return every study of the ledger, a group of tasks at a time, the newest first."""
    studies: dict[tuple[str, str], list[ArmAnswers]] = {}
    for found in ledger.answers.of_study():
        made = from_set(found)
        studies.setdefault((made.study, made.group), []).append(made)
    return [make_report(answers) for answers in reversed(studies.values())]
