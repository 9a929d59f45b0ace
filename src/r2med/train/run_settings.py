"""Settings of `r2med train run`, in tables of one TOML file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from r2med.measure.metrics import parse_all
from r2med.storage.toml_sections import read_tables, read_text, require, section_readers
from r2med.train.trainer_rows import QUERIES, QUESTION

DENSE, SPARSE, LATE, RERANKER = "dense", "sparse", "late", "reranker"
KINDS = (DENSE, SPARSE, LATE, RERANKER)
INFONCE, DISTILL = "infonce", "distill"
LOSSES = (INFONCE, DISTILL)


@dataclass(frozen=True)
class OptimizerSettings:
    """How long and how fast is learnt, and from what."""

    epochs: float = 1.0
    steps: int = 0
    """So many steps, whatever `epochs` says; 0 for epochs."""
    batch: int = 32
    learning_rate: float = 2e-5
    warmup: float = 0.1
    """The share of steps in which the rate rises."""
    weight_decay: float = 0.01
    seed: int = 0
    bf16: bool = False
    query: str = QUESTION
    """question, bridge (the question with the bridge behind it) or both."""
    negatives: int = 0
    """Of a question; 0 for as many as all have, seven at the most."""
    max_length: int = 0
    """Tokens of a text; 0 for what the base model reads."""
    query_prompt: str = ""
    document_prompt: str = ""

    def __post_init__(self) -> None:
        require(self.epochs > 0, "epochs", "must be above 0")
        for name in ("steps", "negatives", "max_length"):
            require(getattr(self, name) >= 0, name, "must not be negative")
        require(self.batch >= 2, "batch", "must be 2 or more: the others of a batch are negatives")
        require(self.learning_rate > 0, "learning_rate", "must be above 0")
        require(0 <= self.warmup < 1, "warmup", "must be from 0 to less than 1")
        require(self.query in QUERIES, "query", f"must be one of {', '.join(QUERIES)}")


@dataclass(frozen=True)
class LossSettings:
    """What is minimised."""

    name: str = ""
    """infonce (in-batch negatives, cached) or distill (the judges' scores); a reranker distils unless told."""
    mini_batch: int = 16
    """Texts in memory at a time, whatever the batch."""
    temperature: float = 0.05
    teacher_temperature: float = 0.2
    """Of the judges' scores, which lie between 0 and 1."""
    matryoshka: tuple[int, ...] = ()
    """Shorter vectors that shall be good as well, of a dense retriever."""
    query_flops: float = 5e-5
    """How strongly a sparse retriever is held to few terms of a query, and of a document."""
    document_flops: float = 3e-5

    def __post_init__(self) -> None:
        require(self.name in ("", *LOSSES), "name", f"must be {' or '.join(LOSSES)}")
        require(self.mini_batch >= 1, "mini_batch", "must be 1 or more")
        for name in ("temperature", "teacher_temperature"):
            require(getattr(self, name) > 0, name, "must be above 0")
        require(all(size > 0 for size in self.matryoshka), "matryoshka", "must be sizes of vectors")


@dataclass(frozen=True)
class LoraSettings:
    """A low-rank adapter in place of all weights; it is merged into the model at the end."""

    rank: int = 0
    """0 to train all weights."""
    alpha: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require(self.rank >= 0, "rank", "must not be negative")
        require(0 <= self.dropout < 1, "dropout", "must be from 0 to less than 1")


@dataclass(frozen=True)
class CheckpointSettings:
    """How often the state is kept from which a stopped training goes on."""

    every: int = 100
    keep: int = 2

    def __post_init__(self) -> None:
        for name in ("every", "keep"):
            require(getattr(self, name) >= 1, name, "must be 1 or more")


@dataclass(frozen=True)
class DevSettings:
    """How often, and by what, the held-out part is measured."""

    every: int = 100
    measures: tuple[str, ...] = ("nDCG@10", "Recall@10")
    passages: int = 5000
    """The most passages that are searched: those of the held-out questions, then others of the data."""

    def __post_init__(self) -> None:
        require(self.every >= 1, "every", "must be 1 or more")
        require(bool(self.measures), "measures", "must name a measure")
        parse_all(self.measures)


@dataclass(frozen=True)
class RunSettings:
    """All settings of a training."""

    train: OptimizerSettings = field(default_factory=OptimizerSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    dev: DevSettings = field(default_factory=DevSettings)

    def as_dict(self) -> dict[str, Any]:
        """The settings for a record."""
        return asdict(self)

    def loss_of(self, kind: str) -> str:
        """The loss that a kind of model is trained with."""
        return self.loss.name or (DISTILL if kind == RERANKER else INFONCE)


def read_run_settings(file: Path | None) -> RunSettings:
    """The settings of a file; those that come with r2med where there is none."""
    if file is None:
        return RunSettings()
    return RunSettings(**read_tables(file, read_text(file), section_readers(RunSettings)))
