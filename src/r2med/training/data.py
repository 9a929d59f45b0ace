"""`r2med train data`: questions written from passages, mined, judged and typed, checked for leakage and saved.

Replies of models are stored item by item in FILE.work next to the file: if stopped, the same command resumes. Documents
become a build of their own; of an existing build, questions, reasoning and judgements are reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from msgspec import structs

import r2med
from r2med.construction.builder import Builder
from r2med.construction.items import Question
from r2med.construction.judging import Pair
from r2med.construction.plan import PLAN, ReasonSettings
from r2med.construction.pool import MANIFEST, TASK, BuiltTask, read_built_task
from r2med.construction.question_steps import question_steps
from r2med.errors import R2medError
from r2med.llm.items import DROPPED, KEPT, Count, ItemStore, KeptRow, count_outcomes, count_reasons
from r2med.llm.steps import StepEstimate, price_step, run_step
from r2med.models.templates import bundled
from r2med.pipeline.executor.local import Executor
from r2med.store.files import draft_folder, write_file
from r2med.training.cards import card_path, write_card
from r2med.training.gate import GateResult, GateRules, LeakageGate
from r2med.training.negatives import TrainingPool, TrainingQuestion, foresee_typing, judged_questions, typing_step
from r2med.training.rows import RowProvenance, count_rows, count_types, training_frame, write_training_file
from r2med.training.settings import QUESTIONS, DataSettings
from r2med.training.writing import QuestionDraft, draw_drafts, foresee_writing, writing_step

NOT_STATED = "not stated"


@dataclass(frozen=True)
class MadeData:
    """A file of training data that was written."""

    file: Path
    record: Mapping[str, Any]
    gate: GateResult

    def as_dict(self) -> dict[str, Any]:
        """Return the data in the shape of `--json`."""
        names = ("rows", "types", "steps", "held_out", "sources_judged_positive", "licence", "origin", "leakage")
        return {"file": str(self.file), "card": str(card_path(self.file)), **{n: self.record[n] for n in names}}


class DataMaker:
    """Maker of training data from a source, with a price before anything is asked."""

    def __init__(self, source: str, out: Path, settings: DataSettings, executor: Executor) -> None:
        if out.suffix != ".parquet":
            raise R2medError(f"{out}: training data is written as parquet; name a file that ends in .parquet")
        self.source, self.out, self.executor = source, out, executor
        self.work = out.with_suffix(".work")
        self.built = is_build(Path(source))
        if not self.built:
            settings = structs.replace(settings, documents=structs.replace(settings.documents, path=Path(source)))
            if not settings.writer:
                raise R2medError(f"{source}: questions are written from documents by a model; name it with --llm")
        self.settings = settings
        self.counts: list[Count] = []

    def estimate(self) -> list[StepEstimate]:
        """Estimate each step that asks a model; nothing is asked."""
        if self.built:
            pool = self._pool(read_built_task(Path(self.source)))
            return [self._price_types(self._pairs(pool.questions))] if self.settings.writer else []
        builder, drafts = self._drafts()
        step = writing_step(self.settings)
        with ItemStore(self.work) as store:
            first = price_step(step, drafts, partial(foresee_writing, self.settings), store)
            kept = store.kept(step.name)
        asked = [_foreseen_question(draft, kept) for draft in drafts if not _dropped(draft, kept)]
        rest = builder.estimate(asked)
        pairs = [
            Pair(question, drafts[(place + step) % len(drafts)].passage)
            for place, question in enumerate(asked)
            for step in range(1, self.settings.negatives.count + 1)
        ]
        return [first, *rest, self._price_types(pairs)]

    def run(self, rules: GateRules) -> MadeData:
        """Make the data, pass it through the gate, and write file and card."""
        gate = LeakageGate(rules)  # first: nobody pays for data that cannot leave
        built = read_built_task(Path(self.source)) if self.built else self._build()
        pool = self._pool(built)
        pool = pool._replace(questions=self._reasoned(pool.questions))
        if not pool.questions:
            why = max(pool.dropped, key=pool.dropped.__getitem__, default="the task has no question")
            raise R2medError(f"no question is left to train on (most often: {why})")
        self.counts.append(_count_pool(pool))
        frame = training_frame(self._typed(pool.questions), self._provenance(built))
        passed = self._let_through(frame, gate)
        frame = _without(frame, passed)
        record = self._record(built, frame, pool, passed)
        write_card(self.out, record)
        write_training_file(self.out, frame, record)
        return MadeData(self.out, record, passed)

    def _drafts(self) -> tuple[Builder, list[QuestionDraft]]:
        self.work.mkdir(parents=True, exist_ok=True)
        builder = Builder(self.work, self.executor, self.settings.plan(self.work))
        passages = builder.read_corpus().passages
        drafts = draw_drafts(passages, self.settings.write)
        if not drafts:
            fewest = self.settings.write.min_tokens
            raise R2medError(f"{self.source}: no passage has the {fewest} tokens that a question is written from")
        return builder, drafts

    def _build(self) -> BuiltTask:
        """Write questions, and let the builder mine and judge for them."""
        builder, drafts = self._drafts()
        step = writing_step(self.settings)
        with ItemStore(self.work) as store:
            outcomes = run_step(step, drafts, store, self.executor)
        self.counts.append(count_outcomes(step.name, outcomes.values()))
        rows = [outcome.value for outcome in outcomes.values() if outcome.state == KEPT]
        if not rows:
            why = next(iter(self.counts[-1].dropped), "no reply")
            raise R2medError(f"no question could be written from {len(drafts):,} passages (most often: {why})")
        write_file(self.work / QUESTIONS, b"".join(orjson.dumps(row) + b"\n" for row in rows))
        progress = builder.run()
        self.counts += progress.counts
        return read_built_task(self.work)

    def _pool(self, built: BuiltTask) -> TrainingPool:
        return judged_questions(built, self.settings.negatives.count, self.settings.parts)

    def _reasoned(self, questions: list[TrainingQuestion]) -> list[TrainingQuestion]:
        """Return the questions of a build, with a bridge written for those without, if there is a model to write it."""
        bare = [row.question for row in questions if not row.question.reasoning]
        if not bare or not self.settings.writer:
            return questions
        self.work.mkdir(parents=True, exist_ok=True)
        plan = structs.replace(self.settings.plan(self.work), reason=ReasonSettings(self.settings.writer))
        (reason,) = question_steps(plan)
        with ItemStore(self.work) as store:
            outcomes = run_step(reason.step, bare, store, self.executor)
        self.counts.append(count_outcomes(reason.name, outcomes.values()))
        new = {
            question.id: reason.advance(question, outcomes[question.id].value)
            for question in bare
            if outcomes[question.id].state == KEPT
        }
        return [replace(row, question=new.get(row.question.id, row.question)) for row in questions]

    def _pairs(self, questions: Sequence[TrainingQuestion]) -> list[Pair]:
        return [Pair(row.question, each.passage) for row in questions for each in row.negatives]

    def _price_types(self, pairs: Sequence[Pair]) -> StepEstimate:
        self.work.mkdir(parents=True, exist_ok=True)
        with ItemStore(self.work) as store:
            return price_step(typing_step(self.settings), pairs, partial(foresee_typing, self.settings), store)

    def _typed(self, questions: Sequence[TrainingQuestion]) -> list[TrainingQuestion]:
        """Return the questions with types for their negatives; unchanged if there is no model to ask."""
        if not self.settings.writer:
            return list(questions)
        self.work.mkdir(parents=True, exist_ok=True)
        step = typing_step(self.settings)
        with ItemStore(self.work) as store:
            outcomes = run_step(step, self._pairs(questions), store, self.executor)
        self.counts.append(count_outcomes(step.name, outcomes.values()))
        types = {name: str(outcome.value.get("type", "")) for name, outcome in outcomes.items()}
        return [
            replace(
                row, negatives=[replace(n, type=types[f"{row.question.id}\t{n.passage.id}"]) for n in row.negatives]
            )
            for row in questions
        ]

    def _provenance(self, built: BuiltTask) -> RowProvenance:
        plan = built.manifest["plan"]
        licence = self.settings.licence or plan["task"]["licence"] or NOT_STATED
        writer = "" if self.built else self.settings.writer
        return RowProvenance(_named(self.source), writer, tuple(plan["judge"]["models"]), licence)

    def _let_through(self, frame: pl.DataFrame, gate: LeakageGate) -> GateResult:
        self.work.mkdir(parents=True, exist_ok=True)
        with draft_folder(self.work, "gate") as draft:
            file = draft / "rows.parquet"
            frame.write_parquet(file)
            return gate.check(file, self.executor)

    def _record(self, built: BuiltTask, frame: pl.DataFrame, pool: TrainingPool, gate: GateResult) -> dict[str, Any]:
        common = self._provenance(built)
        positive, seen = pool.sources
        return {
            "r2med": r2med.__version__,
            "origin": common.origin,
            "licence": common.licence,
            "rows": count_rows(frame),
            "types": count_types(frame),
            "held_out": pool.held_out._asdict(),
            "sources_judged_positive": positive / seen if seen else None,
            "steps": [count.as_dict() for count in self.counts],
            "settings": self.settings.as_dict() | ({"build": built.manifest["plan"]} if self.built else {}),
            "prompts": self._prompts(built),
            "leakage": gate.as_dict(),
        }

    def _prompts(self, built: BuiltTask) -> dict[str, str]:
        own = {} if self.built else {"write_question": bundled("write_question", "r2med.training").text}
        own |= {"type_negative": bundled("type_negative", "r2med.training").text} if self.settings.writer else {}
        judge = built.manifest["prompts"]["judge"] if self.built else self.settings.plan(self.work).prompt("judge").text
        return own | {"judge": judge}


def is_build(folder: Path) -> bool:
    """Return whether a folder is that of a build, or of the task that one made."""
    return any((folder / name).is_file() for name in (PLAN, MANIFEST, f"{TASK}/{MANIFEST}"))


def _named(source: str) -> str:
    """Return a source as the record names it: without local paths."""
    return source if source.startswith("hf:") else Path(source).resolve().name


def _dropped(draft: QuestionDraft, kept: Mapping[str, KeptRow]) -> bool:
    return draft.id in kept and kept[draft.id].outcome.state == DROPPED


def _foreseen_question(draft: QuestionDraft, kept: Mapping[str, KeptRow]) -> Question:
    """Return a written question as the builder will read it, or a stand-in if it is not written yet."""
    if draft.id not in kept or kept[draft.id].outcome.state != KEPT:
        return draft.stand_in()
    value = kept[draft.id].outcome.value
    text = value["question"]
    return Question(value["id"], text, value["answer"], (), (value["document"],), text, reasoning=value["bridge"])


def _count_pool(pool: TrainingPool) -> Count:
    reasons = [""] * len(pool.questions) + [why for why, count in pool.dropped.items() for _ in range(count)]
    return count_reasons("rows", reasons)


def _without(frame: pl.DataFrame, gate: GateResult) -> pl.DataFrame:
    """Return the rows that pass the gate."""
    if not gate.dropped:
        return frame
    left_out = {number - 1 for number in gate.affected}
    kept = frame[[place for place in range(len(frame)) if place not in left_out]]
    if not len(kept):
        raise R2medError(f"all {len(frame):,} rows hold what systems are measured on; nothing is left to write")
    return kept
