"""`r2med train run`: a base model trained on data, in a folder that can be used as a system at once.

Checkpoints are saved in DIR.work at regular steps. If killed, the same command resumes from the last whole checkpoint
and ends with the same weights; DIR itself exists only when training has finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from r2med.encode.resolve import card_for, known
from r2med.errors import R2medError, require_extra
from r2med.models.source import ModelSource, as_path, locate, looks_like_path
from r2med.pipeline.executor.local import Executor, quiet
from r2med.store.files import write_file
from r2med.store.hashes import cache_key
from r2med.store.typed import plain
from r2med.training.negatives import TRAIN
from r2med.training.rows import TrainerRow, TrainingFile, trainer_rows
from r2med.training.settings import RunSettings

RECORD = "training.json"
_BEGUN = "begun.json"


@dataclass(frozen=True)
class TrainingPlan:
    """Base model, data and settings of a training."""

    data: Sequence[TrainingFile]
    base: str
    kind: str
    settings: RunSettings

    def rows(self, part: str) -> list[TrainerRow]:
        """Return the rows of a part; the held-out part is searched as systems search, with the question alone."""
        queries = self.settings.train.query if part == TRAIN else "question"
        return [row for file in self.data for row in trainer_rows(file.part(part), queries)]

    def source(self) -> ModelSource:
        """Locate the base model."""
        name = as_path(self.base)
        if looks_like_path(name):
            return locate(name)
        if not known(self.base):
            raise R2medError(f"no model {self.base!r}; name a card, hf:ORG/NAME or a folder")
        card = card_for(self.base, {})
        if card.backend != "torch":
            kind = f"not a model of torch, but of the backend {card.backend}"
            raise R2medError(f"{self.base} cannot be trained: it is {kind}")
        return locate(card.id, card.revision, card.package)


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained."""

    folder: Path
    record: Mapping[str, Any]
    first: bool = True  # whether this is the process, of several that trained together, which wrote the folder


def train(plan: TrainingPlan, folder: Path, executor: Executor | None = None) -> TrainedModel:
    """Train, or resume a stopped training of the same plan."""
    require_extra("train", "sentence_transformers", "accelerate", "datasets")
    if folder.exists():
        raise R2medError(f"{folder}: exists already; name a new folder")
    source = plan.source()
    if source.read_json("config.json") is None:
        raise R2medError(f"{source.name}: not a model (no config.json)")
    from r2med.training.loop import TrainingLoop

    work = folder.with_name(f"{folder.name}.work")
    training = TrainingLoop(plan, source, work, executor or quiet())
    data = [file.fingerprint for file in plan.data]
    key = cache_key(data=data, base=source.version, kind=plan.kind, settings=plain(plan.settings))
    file = work / _BEGUN
    if file.is_file() and orjson.loads(file.read_bytes()).get("key") != key:
        raise R2medError(f"{work}: another training was begun here; remove it, or name another --out")
    write_file(file, orjson.dumps({"key": key}), parents=True)
    try:
        return training.run(folder)
    except R2medError:
        if not list(work.glob("checkpoint-*")):  # nothing to go on from, and the next try may be another training
            shutil.rmtree(work, ignore_errors=True)
        raise
