"""When a build is finished: a hash of all that goes into it, kept with the checksums of the files that came out.

A run that finds both as they were has nothing to do, however many questions and judgements there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import r2med
from r2med.build.build_items import Passage, Question
from r2med.build.build_plan import BuildPlan, DocumentSource, QuestionSource
from r2med.build.health_report import CARD
from r2med.build.item_store import Count, ItemStore, Outcome, read_count
from r2med.build.judging import Pair, judging_step
from r2med.build.prompt_files import PLACES, prompt
from r2med.build.question_steps import label_step, question_steps
from r2med.build.read_files import READER, file_hash, list_files
from r2med.build.read_tables import document_files, is_task_folder
from r2med.build.step_runner import step_key
from r2med.pipeline.registry import build_system
from r2med.storage.checksums import checksum

_STEP, _ITEM = "finished", "task"
_QUESTION = Question("q", "question", "answer", ("option",), ("source",), "text", "intent", "reasoning")
_PASSAGE = Passage("p", "title", "text", "d", "source", 0, 4)
"""Made up: the key of a step says which models, prompts and settings it has, whatever the item."""


def build_key(plan: BuildPlan) -> str:
    """A hash of everything that the finished task depends on."""
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
    """Settings of a source without its place: where a build lies does not matter."""
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
    """Return how the steps went if the task was made of exactly this and is as it was made; None otherwise."""
    row = store.kept(_STEP).get(_ITEM)
    if row is None or row.key != key or row.outcome.value["files"] != _checksums(task, row.outcome):
        return None
    return [read_count(value) for value in row.outcome.value["counts"]]


def _checksums(task: Path, outcome: Outcome) -> dict[str, int]:
    """The checksums of the files that were made; the card may have been added to since."""
    files = {name: task / name for name in outcome.value["files"]}
    return {name: 0 if name == CARD else checksum(path) for name, path in files.items() if path.is_file()}


def seal_build(store: ItemStore, key: str, task: Path, counts: Sequence[Count]) -> None:
    """Note that the task is finished, and how its steps went."""
    files = sorted(path for path in task.rglob("*") if path.is_file())
    made = Outcome({"files": {path.relative_to(task).as_posix(): 0 for path in files}})
    sealed = {"files": _checksums(task, made), "counts": [asdict(count) for count in counts]}
    store.put(_STEP, [(_ITEM, key, Outcome(sealed))])
