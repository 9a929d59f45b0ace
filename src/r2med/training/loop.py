"""The training loop: trainer, checkpoints, evaluation on the held-out part, and the trained model with its record."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, set_seed
from transformers.utils import logging

import r2med
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.measure.bootstrap import task_intervals
from r2med.measure.metrics import parse_all
from r2med.measure.score import QueryScores, score
from r2med.models.memory import find_devices
from r2med.models.source import ModelSource
from r2med.pipeline.executor.local import Executor, Progress
from r2med.runs.record import version_of
from r2med.store.files import draft_folder, unwritable
from r2med.store.hashes import FILE as CHECKSUMS
from r2med.store.hashes import is_unchanged, write_checksums
from r2med.store.processes import foreign_output
from r2med.store.sqlite import warn
from r2med.store.typed import json_bytes, plain
from r2med.training.cards import model_card
from r2med.training.losses import make_columns, make_loss, make_model, merge_lora, trainer_parts
from r2med.training.negatives import DEV, TRAIN
from r2med.training.rows import TrainerRow, passages_of_rows
from r2med.training.run import RECORD, TrainedModel, TrainingPlan
from r2med.training.settings import LATE, RERANKER, DevSettings

_DEPTH = 100


class DevTask:
    """Held-out questions and the passages that they search; a reranker orders the judged ones of each question."""

    def __init__(self, rows: Sequence[TrainerRow], others: Sequence[TrainerRow], settings: DevSettings) -> None:
        self.rows, self.measures = rows, parse_all(settings.measures)
        passages = passages_of_rows(rows)
        for name, text in passages_of_rows(others).items():
            if len(passages) >= settings.passages:
                break
            passages.setdefault(name, text)
        self.passages = passages
        self.qrels = {row.id: {passage.id: 1 for passage in row.positives} for row in rows}

    def measure(self, model: Any, kind: str) -> QueryScores:
        """Measure a model as it is now."""
        lists: dict[str, tuple[Sequence[str], Any]] = {}
        if kind == RERANKER:
            for row in self.rows:
                judged = {passage.id: passage.text for passage in (*row.positives, *row.negatives)}
                scores = model.predict([(row.query, text) for text in judged.values()], show_progress_bar=False)
                lists[row.id] = (list(judged), np.asarray(scores, dtype=np.float32).reshape(-1))
        else:
            quiet = {"show_progress_bar": False, **({} if kind == LATE else {"convert_to_tensor": True})}
            queries = model.encode_query([row.query for row in self.rows], **quiet)
            documents = model.encode_document(list(self.passages.values()), **quiet)
            table, names = np.asarray(model.similarity(queries, documents).float().cpu()), list(self.passages)
            for row, scores in zip(self.rows, table, strict=True):
                best = np.argsort(-scores, kind="stable")[:_DEPTH]
                lists[row.id] = ([names[place] for place in best], scores[best])
        return score(Run.from_lists(lists), self.qrels, self.measures)


def make_evaluator(task: DevTask, kind: str) -> Any:
    """Return the task as an evaluator for the trainers."""
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

    class DevEvaluator(SentenceEvaluator):  # type: ignore[misc]
        """Evaluator on the held-out part during training."""

        primary_metric = f"dev_{task.measures[0]}"

        def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
            scores = task.measure(model, kind)
            return {f"dev_{measure}": scores.mean(measure) for measure in scores.measures}

    return DevEvaluator()


_LIBRARIES = ("sentence-transformers", "transformers", "torch", "accelerate", "peft")


class TrainingLoop:
    """One training, which resumes from its checkpoints."""

    def __init__(self, plan: TrainingPlan, source: ModelSource, work: Path, executor: Executor) -> None:
        rows, held = plan.rows(TRAIN), plan.rows(DEV)
        if not rows:
            raise R2medError("no row to train on; every question is held out")
        self._executor = executor
        self._plan, self._source, self._work, self._rows = plan, source, work, rows
        self._dev = DevTask(held, rows, plan.settings.dev) if held else None

    def run(self, folder: Path) -> TrainedModel:
        """Train to the end and write the folder."""
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        getLogger("sentence_transformers").setLevel(ERROR)
        set_seed(self._plan.settings.train.seed)
        kind, settings = self._plan.kind, self._plan.settings
        try:
            model = make_model(kind, self._source.folder(), settings)
        except (ValueError, OSError, KeyError, RuntimeError, ImportError) as error:
            why = f"cannot become a {kind} model: {one_line(error)}"
            raise R2medError(f"{self._source.name}: {why}") from error
        before = self._measured(model)
        trainer_class, arguments_class = trainer_parts(kind)
        columns = make_columns(kind, self._rows, settings)
        trainer = trainer_class(
            model=model,
            args=arguments_class(**self._arguments(list(columns))),
            train_dataset=Dataset.from_dict(columns),
            loss=make_loss(kind, model, settings),
            evaluator=make_evaluator(self._dev, kind) if self._dev is not None else None,
        )
        arguments = trainer.args
        batches = max(1, len(trainer.get_train_dataloader()) // arguments.gradient_accumulation_steps)
        steps = arguments.max_steps if arguments.max_steps > 0 else batches * arguments.num_train_epochs
        with self._executor.progress(f"train {kind}", int(steps)) as bar:
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(_Callback(trainer, bar))
            with foreign_output.apart():
                trainer.train(resume_from_checkpoint=_last_checkpoint(self._work))
        if not trainer.state.global_step:
            why = "no batch could be made: texts repeat in all rows, or a batch is larger than the data"
            if (processes := trainer.args.world_size) > 1:
                why += f"; with {processes} processes every batch must be full: lower [train] batch or negatives"
            raise R2medError(why)
        if settings.lora.rank:
            merge_lora(model)
        record = self._record(trainer.state, before, self._measured(model))
        if first := bool(trainer.is_world_process_zero()):
            self._save(model, record, folder)
        return TrainedModel(folder, record, first)

    def _save(self, model: Any, record: Mapping[str, Any], folder: Path) -> None:
        try:
            with draft_folder(folder.parent, folder.name) as draft:
                model.save(str(draft), create_model_card=False)
                (draft / RECORD).write_bytes(json_bytes(record, indent=2))
                (draft / "README.md").write_text(model_card(folder.name, record), "utf-8")
                draft.rename(folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        shutil.rmtree(self._work, ignore_errors=True)

    def _measured(self, model: Any) -> dict[str, Any]:
        if self._dev is None:
            return {}
        model.eval()
        scores = self._dev.measure(model, self._plan.kind)
        return {str(measure): list(task_intervals(scores.values(measure))[0]) for measure in scores.measures}

    def _arguments(self, columns: Sequence[str]) -> dict[str, Any]:
        settings, reranks = self._plan.settings, self._plan.kind == RERANKER
        train = settings.train
        on_processor = find_devices("auto") == ("cpu",)
        arguments: dict[str, Any] = {
            "output_dir": str(self._work),
            "per_device_train_batch_size": train.batch,
            "learning_rate": train.learning_rate,
            "warmup_steps": train.warmup,
            "weight_decay": train.weight_decay,
            "seed": train.seed,
            "data_seed": train.seed,
            "bf16": train.bf16,
            "save_strategy": "steps",
            "save_steps": settings.checkpoints.every,
            "save_total_limit": settings.checkpoints.keep,
            "logging_strategy": "steps",
            "logging_steps": max(1, settings.dev.every // 2),
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": not on_processor,
            "use_cpu": on_processor,
            "batch_sampler": "batch_sampler" if reranks else "no_duplicates",
        }
        arguments |= {"max_steps": train.steps} if train.steps else {"num_train_epochs": train.epochs}
        if self._dev is not None:
            arguments |= {"eval_strategy": "steps", "eval_steps": settings.dev.every}
        if reranks:
            # Several processes: a cross-encoder uses all its weights, and the search for others misses its output.
            arguments["ddp_find_unused_parameters"] = False
        elif train.query_prompt or train.document_prompt:
            arguments["prompts"] = dict.fromkeys(columns, train.document_prompt) | {columns[0]: train.query_prompt}
        return arguments

    def _record(self, state: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        plan = self._plan
        # The loss and the measures on the held-out part, without times.
        measured = re.compile("step|loss|eval_dev_.*")
        history = [{n: value for n, value in entry.items() if measured.fullmatch(n)} for entry in state.log_history]
        return {
            "r2med": r2med.__version__,
            "kind": plan.kind,
            "base": {"name": self._source.label, "version": self._source.version},
            "data": [file.facts for file in plan.data],
            "questions": {"train": len(self._rows), "dev": len(self._dev.rows) if self._dev else 0},
            "settings": plain(plan.settings),
            "loss": plan.settings.loss_of(plan.kind),
            "steps": int(state.global_step),
            "history": [entry for entry in history if len(entry) > 1],
            "dev": {"before": dict(before), "after": dict(after)},
            "libraries": {name: version_of(name) for name in _LIBRARIES},
        }


class _Callback(TrainerCallback):  # type: ignore[misc]
    """Callback that advances a bar, and writes the checksums of a checkpoint once all processes have written it."""

    def __init__(self, trainer: Any, bar: Progress) -> None:
        self._trainer, self._bar = trainer, bar

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.advance(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.advance()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.accelerator.wait_for_everyone()
        if state.is_world_process_zero:
            write_checksums(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def _last_checkpoint(work: Path) -> str | None:
    """Return the newest intact checkpoint; remove broken ones after it, and report damaged ones."""
    checkpoints = sorted(work.glob("checkpoint-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))
    damaged = []
    while checkpoints and not is_unchanged(checkpoints[-1]):
        last = checkpoints.pop()
        if (last / CHECKSUMS).is_file():  # else the training was killed while it was written
            damaged.append(last.name)
        shutil.rmtree(last, ignore_errors=True)
    if damaged:
        begin = f"goes on from {checkpoints[-1].name}" if checkpoints else "begins again"
        warn(f"{work}: {' and '.join(damaged)} changed on the disk since written and cannot be used; training {begin}")
    return str(checkpoints[-1]) if checkpoints else None
