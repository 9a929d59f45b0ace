"""The progress of a build, and the history of one question, read from the store; nothing is run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import r2med
from r2med.construction.files import READER, file_hash, list_files
from r2med.construction.health_report import CARD
from r2med.construction.items import Passage, Question
from r2med.construction.judging import Judging, Pair
from r2med.construction.plan import PLACES, BuildPlan, read_plan
from r2med.construction.pool import TASK
from r2med.construction.question_steps import LabelStep, question_steps
from r2med.construction.sources import document_files, is_task_folder
from r2med.errors import R2medError, suggest
from r2med.llm.items import STORE, Count, ItemStore, Outcome, count_files, count_outcomes, read_count
from r2med.llm.steps import step_key
from r2med.pipeline.registry import build_system
from r2med.store.hashes import checksum

STEPS = (
    "read", "documents", "fold", "chunk", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "judge",
    "select", "label",
)  # fmt: skip
"""Every step in order; those that the plan has no model for are passed over."""


@dataclass(frozen=True, repr=False)
class BuildProgress:
    """Progress of a build."""

    folder: Path
    counts: Sequence[Count]
    task: Path | None = None
    """The finished task; None where the build ended before."""

    def as_dict(self) -> dict[str, Any]:
        """Return the progress for JSON."""
        return {
            "folder": str(self.folder),
            "steps": [count.as_dict() for count in self.counts],
            "task": str(self.task) if self.task else None,
        }

    def __repr__(self) -> str:
        last = f"{self.counts[-1].kept} kept by {self.counts[-1].step}" if self.counts else "nothing done"
        return f"BuildProgress({str(self.folder)!r}: {last}{', task written' if self.task else ''})"


def status(folder: Path) -> BuildProgress:
    """Return the progress of a build from its store; nothing is run."""
    plan = read_plan(folder)
    with _open(folder) as store:
        finished, counts = store.counts(), []
        for step in active_steps(plan):
            if step in finished:
                counts.append(finished[step])
                continue
            so_far, rows = f"{step} (so far)", store.stream(step)
            files = step == "documents"
            count = count_files(so_far, dict(rows)) if files else count_outcomes(so_far, (row[1] for row in rows))
            if count.items and step not in ("fold", "chunk"):
                counts.append(count)
            break
    task = folder / TASK
    return BuildProgress(folder, counts, task if task.is_dir() else None)


def active_steps(plan: BuildPlan) -> list[str]:
    """Return the names of the plan's active steps, in order."""
    off = {"rules", "intent", "difficulty", "rewrite", "reason"} - {step.name for step in question_steps(plan)}
    return [step for step in STEPS if step not in off and (step != "label" or plan.label.model)]


def _open(folder: Path) -> ItemStore:
    if not (folder / STORE).is_file():
        raise R2medError(f"{folder}: nothing is built yet; run: r2med build run {folder}")
    return ItemStore(folder)


def show(folder: Path, identifier: str, top: int | None = None) -> dict[str, Any]:
    """Return the history of one question: the result of each step, and its candidates with scores, best first."""
    plan = read_plan(folder)
    with _open(folder) as store:
        read = store.outcome("read", identifier)
        if read is None:
            raise R2medError(f"{folder}: no question {identifier!r}{suggest(identifier, store.kept('read'))}")
        steps = {step: store.outcome(step, identifier) for step in active_steps(plan) if step not in _IN_PARTS}
        mined, selected = steps.pop("mine", None), steps.pop("select", None)
        verdicts = selected.value["verdicts"] if selected else {}
        pool = mined.value.get("candidates", {}) if mined else {}
        candidates = [
            {
                "passage": name,
                "found": [dict(zip(("system", "view", "rank"), way, strict=True)) for way in ways],
                "verdict": verdicts.get(name),
                **_result(store.outcome("judge", f"{identifier}\t{name}")),
            }
            for name, ways in pool.items()
        ]
    candidates.sort(key=lambda candidate: -candidate.get("answers", -1.0) - candidate.get("supports", -1.0))
    results = {step: _result(outcome) for step, outcome in steps.items() if outcome is not None}
    ended = (steps | {"mine": mined, "select": selected}).items()
    dropped = (f"{step}: {outcome.dropped}" for step, outcome in ended if outcome and outcome.dropped)
    return {"id": identifier, "steps": results, "candidates": candidates[:top], "dropped": next(dropped, "")}


_IN_PARTS = ("documents", "fold", "chunk", "judge")


def _result(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {**outcome.value, **{name: why for name in ("dropped", "failed") if (why := getattr(outcome, name))}}


_STEP, _ITEM = "finished", "task"
_QUESTION = Question("q", "question", "answer", ("option",), ("source",), "text", "intent", "reasoning")
_PASSAGE = Passage("p", "title", "text", "d", "source", 0, 4)
"""Made up: the key of a step says which models, prompts and settings it has, whatever the item."""


def build_key(plan: BuildPlan) -> str:
    """Return a hash of everything that the finished task depends on."""
    asked = [*question_steps(plan), *([LabelStep(plan)] if plan.label.model else [])]
    steps = [step.key(_QUESTION) for step in asked] + [build_system(name).key() for name in plan.mine.systems]
    steps.append(Judging(plan).key(Pair(_QUESTION, _PASSAGE)))
    prompts = [plan.prompt(name).text for name in PLACES]
    documents = plan.documents.path
    if documents.is_file():
        sources = [documents]
    else:
        sources = document_files(documents) if is_task_folder(documents) else list_files(documents)
    files = [(path.name, file_hash(path)) for path in (plan.questions.path, *sources)]
    versions = {"r2med": r2med.__version__, "reader": READER}
    settings = (plan.settings, plan.guideline, plan.origins)
    return step_key("build", **versions, settings=settings, prompts=prompts, steps=steps, files=files)


def finished_counts(store: ItemStore, key: str, task: Path) -> list[Count] | None:
    """Return the counts of the steps if the task was made with this key and is unchanged; None otherwise."""
    row = store.kept(_STEP).get(_ITEM)
    if row is None or row.key != key or _checksums(task, row.outcome.value["files"]) != row.outcome.value["files"]:
        return None
    return [read_count(value) for value in row.outcome.value["counts"]]


def _checksums(task: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the checksums of the files that were made; the card's is 0, for it may have been added to since."""
    return {name: 0 if name == CARD else checksum(task / name) for name in names if (task / name).is_file()}


def seal_build(store: ItemStore, key: str, task: Path, counts: Sequence[Count]) -> None:
    """Record that the task is finished, with the counts of its steps."""
    files = sorted(path.relative_to(task).as_posix() for path in task.rglob("*") if path.is_file())
    sealed = {"files": _checksums(task, files), "counts": [count.as_dict() for count in counts]}
    store.put(_STEP, [(_ITEM, key, Outcome(sealed))])
