"""The progress of a build, and the history of one question, read from the store; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import r2med
from r2med.construction.files import READER, file_hash, list_files
from r2med.construction.health_report import CARD
from r2med.construction.items import Passage, Question
from r2med.construction.judging import Pair, judging_step
from r2med.construction.plan import PLACES, BuildPlan, DocumentSource, QuestionSource, prompt, read_plan
from r2med.construction.pool import TASK
from r2med.construction.question_steps import label_step, question_steps
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
    _check_begun(folder)
    with ItemStore(folder) as store:
        finished, counts = store.counts(), []
        for step in active_steps(plan):
            if step in finished:
                counts.append(finished[step])
                continue
            so_far = f"{step} (so far)"
            if step == "documents":
                count = count_files(so_far, dict(store.stream(step)))
            else:
                count = count_outcomes(so_far, (outcome for _, outcome in store.stream(step)))
            if count.items and step not in ("fold", "chunk"):
                counts.append(count)
            break
    task = folder / TASK
    return BuildProgress(folder, counts, task if task.is_dir() else None)


def active_steps(plan: BuildPlan) -> list[str]:
    """Return the names of the plan's active steps, in order."""
    asked = [each.step.name for each in question_steps(plan)]
    label = ["label"] if plan.label.model else []
    return ["read", "documents", "fold", "chunk", *asked, "mine", "judge", "select", *label]


def _check_begun(folder: Path) -> None:
    if not (folder / STORE).is_file():
        raise R2medError(f"{folder}: nothing is built yet; run: r2med build run {folder}")


def show(folder: Path, identifier: str, top: int | None = None) -> dict[str, Any]:
    """Return the history of one question: the result of each step, and its candidates with scores, best first."""
    plan = read_plan(folder)
    _check_begun(folder)
    with ItemStore(folder) as store:
        read = store.outcome("read", identifier)
        if read is None:
            raise R2medError(f"{folder}: no question {identifier!r}{suggest(identifier, store.kept('read'))}")
        steps = {step: store.outcome(step, identifier) for step in active_steps(plan) if step not in _IN_PARTS}
        mined, chosen = steps.pop("mine", None), steps.pop("select", None)
        verdicts = chosen.value["verdicts"] if chosen is not None else {}
        candidates = [
            _candidate(name, ways, store.outcome("judge", f"{identifier}\t{name}"), verdicts.get(name))
            for name, ways in (mined.value.get("candidates", {}) if mined is not None else {}).items()
        ]
    candidates.sort(key=lambda candidate: -candidate.get("answers", -1.0) - candidate.get("supports", -1.0))
    found = {step: _shown(outcome) for step, outcome in steps.items() if outcome is not None}
    ended = steps | {"mine": mined, "select": chosen}
    dropped = [f"{step}: {each.dropped}" for step, each in ended.items() if each is not None and each.dropped]
    return {"id": identifier, "steps": found, "candidates": candidates[:top], "dropped": "; ".join(dropped[:1])}


_IN_PARTS = ("documents", "fold", "chunk", "judge")
"""Steps whose items are not questions."""


def _shown(outcome: Outcome) -> dict[str, Any]:
    extra = {name: value for name in ("dropped", "failed") if (value := getattr(outcome, name))}
    return {**outcome.value, **extra}


def _candidate(name: str, ways: Sequence[Sequence[Any]], judged: Outcome | None, verdict: str | None) -> dict[str, Any]:
    return {
        "passage": name,
        "found": [dict(zip(("system", "view", "rank"), way, strict=True)) for way in ways],
        "verdict": verdict,
        **(_shown(judged) if judged is not None else {}),
    }


_STEP, _ITEM = "finished", "task"
_QUESTION = Question("q", "question", "answer", ("option",), ("source",), "text", "intent", "reasoning")
_PASSAGE = Passage("p", "title", "text", "d", "source", 0, 4)
"""Made up: the key of a step says which models, prompts and settings it has, whatever the item."""


def build_key(plan: BuildPlan) -> str:
    """Return a hash of everything that the finished task depends on."""
    steps = [each.step.key(_QUESTION) for each in question_steps(plan)]
    steps += [label_step(plan).step.key(_QUESTION)] if plan.label.model else []
    steps += [build_system(name).key() for name in plan.mine.systems]
    steps += [judging_step(plan).key(Pair(_QUESTION, _PASSAGE))]
    prompts = [prompt(name, plan).text for name in PLACES]
    settings = asdict(plan) | {"folder": "", "questions": _named(plan.questions), "documents": _named(plan.documents)}
    files = [(path.name, file_hash(path)) for path in _sources(plan)]
    versions = {"r2med": r2med.__version__, "reader": READER}
    return step_key("build", **versions, settings=settings, prompts=prompts, steps=steps, files=files)


def _named(source: QuestionSource | DocumentSource) -> dict[str, object]:
    """Return the settings of a source without its folder: moving a build does not change its key."""
    return asdict(source) | {"path": source.path.name}


def _sources(plan: BuildPlan) -> Iterator[Path]:
    yield plan.questions.path
    documents = plan.documents.path
    if documents.is_file():
        yield documents
    elif is_task_folder(documents):
        yield from document_files(documents)
    else:
        yield from list_files(documents)


def finished_counts(store: ItemStore, key: str, task: Path) -> list[Count] | None:
    """Return the counts of the steps if the task was made with this key and is unchanged; None otherwise."""
    row = store.kept(_STEP).get(_ITEM)
    if row is None or row.key != key or row.outcome.value["files"] != _checksums(task, row.outcome):
        return None
    return [read_count(value) for value in row.outcome.value["counts"]]


def _checksums(task: Path, outcome: Outcome) -> dict[str, int]:
    """Return the checksums of the files that were made; the card's is 0, for it may have been added to since."""
    files = {name: task / name for name in outcome.value["files"]}
    return {name: 0 if name == CARD else checksum(path) for name, path in files.items() if path.is_file()}


def seal_build(store: ItemStore, key: str, task: Path, counts: Sequence[Count]) -> None:
    """Record that the task is finished, with the counts of its steps."""
    files = sorted(path for path in task.rglob("*") if path.is_file())
    made = Outcome({"files": {path.relative_to(task).as_posix(): 0 for path in files}})
    sealed = {"files": _checksums(task, made), "counts": [count.as_dict() for count in counts]}
    store.put(_STEP, [(_ITEM, key, Outcome(sealed))])
