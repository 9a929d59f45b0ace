"""`r2med train data`: questions written from passages, mined, judged and typed, checked for leakage and saved.

Replies of models are stored item by item in FILE.work next to the file: if stopped, the same command resumes. Documents
become a build of their own; of an existing build, questions, reasoning and judgements are reused. Data is written only
after a comparison with the tasks that systems are measured on: the leakage gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from msgspec import structs

import r2med
from r2med.construction.builder import Builder
from r2med.construction.items import Question
from r2med.construction.judging import Pair
from r2med.construction.plan import PLAN, ReasonSettings
from r2med.construction.pool import MANIFEST, TASK, BuiltTask, read_built_task
from r2med.construction.question_steps import question_steps
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import R2medError, require_extra
from r2med.formatting import counted
from r2med.leakage.check import check
from r2med.leakage.findings import LeakageReport
from r2med.llm.items import FAILED, KEPT, Count, ItemStore, Outcome, count_outcomes, count_reasons
from r2med.llm.steps import Step, StepEstimate, price_step, run_step
from r2med.models.templates import bundled
from r2med.pipeline.executor.local import Executor
from r2med.store.files import draft_folder, write_file
from r2med.store.typed import json_lines
from r2med.training.cards import data_card
from r2med.training.negatives import TrainingQuestion, Typing, judged_questions
from r2med.training.rows import RowProvenance, count_rows, count_types, training_frame, write_training_file
from r2med.training.settings import QUESTIONS, DataSettings
from r2med.training.writing import QuestionDraft, Writing, draw_drafts

NOT_STATED = "not stated"
Item = TypeVar("Item")
ALWAYS = ("full", "nano")  # R2MED and NanoR2MED: what everybody measures on
_SHOWN = 5


@dataclass(frozen=True)
class GateRules:
    """Rules of the gate: additional tasks, exceptions, and whether to drop rows."""

    against: tuple[str, ...] = ()
    allow_leakage: bool = False
    allow_unchecked: bool = False
    drop_leaking: bool = False

    def __post_init__(self) -> None:
        if self.allow_leakage and self.drop_leaking:
            raise R2medError("rows with leakage are either let through or left out: name one of the two")


@dataclass(frozen=True)
class GateResult:
    """Findings of the check, and the rules that were applied."""

    checked: Sequence[str]
    unchecked: Mapping[str, str]
    rules: GateRules
    report: LeakageReport | None
    affected: tuple[int, ...] = field(default=(), repr=False)
    """The numbers of the rows that hold queries or positives, from 1."""

    @property
    def dropped(self) -> int:
        """Return the number of rows left out."""
        return len(self.affected) if self.rules.drop_leaking else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the check for a record."""
        pairs = self.report.strongest if self.report else ()
        return {
            "checked": list(self.checked),
            "unchecked": dict(self.unchecked),
            "affected_rows": len(self.affected),
            "dropped_rows": self.dropped,
            "allow_leakage": self.rules.allow_leakage,
            "allow_unchecked": self.rules.allow_unchecked,
            "tasks": self.report.as_dict()["tasks"] if self.report else [],
            "strongest": [{n: value for n, value in pair._asdict().items() if n != "file"} for pair in pairs],
        }


class LeakageGate:
    """Tasks that data is compared with; read before the data is made, since a missing one can be an error."""

    def __init__(self, rules: GateRules) -> None:
        require_extra("leakage", "rensa")
        self.rules = rules
        self.unchecked: dict[str, str] = {}
        self._tasks = []
        for task in {task.name: task for task in resolve([*ALWAYS, *rules.against])}.values():
            try:
                load(task)
                self._tasks.append(task)
            except R2medError as error:
                self.unchecked[task.name] = str(error)
        if self.unchecked and not rules.allow_unchecked:
            name, why = next(iter(self.unchecked.items()))
            raise R2medError(
                f"{counted(len(self.unchecked), 'task')} could not be compared with the data, so that nothing is"
                f" written ({name}: {why}); --allow-unchecked lets it pass and records so"
            )

    def check(self, file: Path, executor: Executor) -> GateResult:
        """Compare a file with the tasks before it is saved; data that may not pass raises an error."""
        report = check([file], self._tasks, executor=executor, limit=_SHOWN) if self._tasks else None
        affected = tuple(map(int, report.files[file].judged)) if report else ()
        if affected and not (self.rules.allow_leakage or self.rules.drop_leaking):
            pair = report.strongest[0] if report and report.strongest else None
            place = f"{pair.kind} {pair.id} of {pair.task}, found as {pair.method}" if pair else ""
            example = f" (row {pair.line} holds {place})" if pair else ""
            raise R2medError(
                f"{counted(len(affected), 'row')} of the data hold what systems are measured on, so that nothing is"
                f" written{example}; --drop-leaking leaves such rows out, --allow-leakage keeps them and records so"
            )
        return GateResult([task.name for task in self._tasks], self.unchecked, self.rules, report, affected)


@dataclass(frozen=True)
class MadeData:
    """A file of training data that was written."""

    file: Path
    record: Mapping[str, Any]
    gate: GateResult

    def as_dict(self) -> dict[str, Any]:
        """Return the data in the shape of `--json`."""
        names = ("rows", "types", "steps", "held_out", "sources_judged_positive", "licence", "origin", "leakage")
        return {"file": str(self.file), "card": str(self.file.with_suffix(".md")), **{n: self.record[n] for n in names}}


class DataMaker:
    """Maker of training data from a source, with a price before anything is asked."""

    def __init__(self, source: str, out: Path, settings: DataSettings, executor: Executor) -> None:
        if out.suffix != ".parquet":
            raise R2medError(f"{out}: training data is written as parquet; name a file that ends in .parquet")
        self.source, self.out, self.executor = source, out, executor
        self.work = out.with_suffix(".work")
        # A folder of a build, or of the task that one made.
        self.built = any((Path(source) / name).is_file() for name in (PLAN, MANIFEST, f"{TASK}/{MANIFEST}"))
        if not self.built:
            settings = structs.replace(settings, documents=structs.replace(settings.documents, path=Path(source)))
            if not settings.writer:
                raise R2medError(f"{source}: questions are written from documents by a model; name it with --llm")
        self.settings = settings
        self.counts: list[Count] = []

    def estimate(self) -> list[StepEstimate]:
        """Estimate each step that asks a model; nothing is asked."""
        if self.built and not self.settings.writer:
            return []
        self.work.mkdir(parents=True, exist_ok=True)
        if self.built:
            pool = judged_questions(read_built_task(Path(self.source)), self.settings)
            return [self._price_types(_pairs(pool.questions))]
        builder, drafts = self._drafts()
        writing = Writing(self.settings)
        with ItemStore(self.work) as store:
            first = price_step(writing.step, drafts, writing.requests, store)
            outcomes = {name: row.outcome for name, row in store.kept(writing.step.name).items()}
        open_ones = (draft for draft in drafts if draft.id not in outcomes or outcomes[draft.id].state == FAILED)
        guessed = {draft.id: draft.stand_in() for draft in open_ones}
        written = {
            name: Question(v["id"], v["question"], v["answer"], (), (v["document"],), v["question"], "", v["bridge"])
            for name, v in ((name, outcome.value) for name, outcome in outcomes.items() if outcome.state == KEPT)
        }
        both = guessed | written
        asked = [both[draft.id] for draft in drafts if draft.id in both]
        pairs = [
            Pair(question, drafts[(place + step) % len(drafts)].passage)
            for place, question in enumerate(asked)
            for step in range(1, self.settings.negatives.count + 1)
        ]
        return [first, *builder.estimate(asked), self._price_types(pairs)]

    def run(self, rules: GateRules) -> MadeData:
        """Make the data, pass it through the gate, and write file and card."""
        gate = LeakageGate(rules)  # first: nobody pays for data that cannot leave
        self.work.mkdir(parents=True, exist_ok=True)
        built = read_built_task(Path(self.source)) if self.built else self._build()
        pool = judged_questions(built, self.settings)
        questions = self._reasoned(pool.questions)
        if not questions:
            why = max(pool.dropped, key=pool.dropped.__getitem__, default="the task has no question")
            raise R2medError(f"no question is left to train on (most often: {why})")
        reasons = [""] * len(questions) + [why for why, count in pool.dropped.items() for _ in range(count)]
        self.counts.append(count_reasons("rows", reasons))
        plan = built.manifest["plan"]
        origin = self.source if self.source.startswith("hf:") else Path(self.source).resolve().name
        licence = self.settings.licence or plan["task"]["licence"] or NOT_STATED
        writer = "" if self.built else self.settings.writer
        common = RowProvenance(origin, writer, tuple(plan["judge"]["models"]), licence)
        frame = training_frame(self._typed(questions), common)
        with draft_folder(self.work, "gate") as draft:
            frame.write_parquet(draft / "rows.parquet")
            passed = gate.check(draft / "rows.parquet", self.executor)
        if passed.dropped == len(frame):
            raise R2medError(f"all {len(frame):,} rows hold what systems are measured on; nothing is left to write")
        if passed.dropped:
            frame = frame.filter(~pl.int_range(1, pl.len() + 1).is_in(passed.affected))
        positive, seen = pool.sources
        names = ["write_question"] * (not self.built) + ["type_negative"] * bool(self.settings.writer)
        prompts = {name: bundled(name, "r2med.training").text for name in names}
        prompts["judge"] = built.manifest["prompts"]["judge"]
        record = {
            "r2med": r2med.__version__,
            "origin": origin,
            "licence": licence,
            "rows": count_rows(frame),
            "types": count_types(frame),
            "held_out": pool.held_out._asdict(),
            "sources_judged_positive": positive / seen if seen else None,
            "steps": [count.as_dict() for count in self.counts],
            "settings": self.settings.as_dict() | ({"build": plan} if self.built else {}),
            "prompts": prompts,
            "leakage": passed.as_dict(),
        }
        write_file(self.out.with_suffix(".md"), data_card(self.out.name, record), parents=True)
        write_training_file(self.out, frame, record)
        return MadeData(self.out, record, passed)

    def _drafts(self) -> tuple[Builder, list[QuestionDraft]]:
        builder = Builder(self.work, self.executor, self.settings.plan(self.work))
        drafts = draw_drafts(builder.read_corpus().passages, self.settings.write)
        if not drafts:
            fewest = self.settings.write.min_tokens
            raise R2medError(f"{self.source}: no passage has the {fewest} tokens that a question is written from")
        return builder, drafts

    def _run(self, step: Step[Item], items: Sequence[Item]) -> dict[str, Outcome]:
        with ItemStore(self.work) as store:
            outcomes = run_step(step, items, store, self.executor)
        self.counts.append(count_outcomes(step.name, outcomes.values()))
        return outcomes

    def _build(self) -> BuiltTask:
        """Write questions, and let the builder mine and judge for them."""
        builder, drafts = self._drafts()
        outcomes = self._run(Writing(self.settings).step, drafts)
        rows = [outcome.value for outcome in outcomes.values() if outcome.state == KEPT]
        if not rows:
            why = next(iter(self.counts[-1].dropped), "no reply")
            raise R2medError(f"no question could be written from {len(drafts):,} passages (most often: {why})")
        write_file(self.work / QUESTIONS, json_lines(rows))
        self.counts += builder.run().counts
        return read_built_task(self.work)

    def _reasoned(self, questions: list[TrainingQuestion]) -> list[TrainingQuestion]:
        """Return the questions of a build, with a bridge written for those without, if there is a model to write it."""
        bare = [row.question for row in questions if not row.question.reasoning]
        if not bare or not self.settings.writer:
            return questions
        plan = structs.replace(self.settings.plan(self.work), reason=ReasonSettings(self.settings.writer))
        (reason,) = question_steps(plan)
        outcomes = self._run(reason.step, bare)
        kept = [question for question in bare if outcomes[question.id].state == KEPT]
        bridged = {question.id: reason.advance(question, outcomes[question.id].value) for question in kept}
        return [replace(row, question=bridged.get(row.question.id, row.question)) for row in questions]

    def _price_types(self, pairs: Sequence[Pair]) -> StepEstimate:
        typing = Typing(self.settings)
        with ItemStore(self.work) as store:
            return price_step(typing.step, pairs, typing.requests, store)

    def _typed(self, questions: Sequence[TrainingQuestion]) -> list[TrainingQuestion]:
        """Return the questions with types for their negatives; unchanged if there is no model to ask."""
        if not self.settings.writer:
            return list(questions)
        outcomes = self._run(Typing(self.settings).step, _pairs(questions))
        types = {name: str(outcome.value.get("type", "")) for name, outcome in outcomes.items()}
        return [
            replace(row, negatives=[replace(n, type=types[Pair(row.question, n.passage).id]) for n in row.negatives])
            for row in questions
        ]


def _pairs(questions: Sequence[TrainingQuestion]) -> list[Pair]:
    return [Pair(row.question, negative.passage) for row in questions for negative in row.negatives]
