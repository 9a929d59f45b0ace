"""Settings of `r2med train data` and `r2med train run`: defaults, changed key by key by the user's file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from r2med.construction.plan import (
    AskSettings,
    BuildPlan,
    ChunkSettings,
    DocumentSource,
    JudgeSettings,
    MineSettings,
    QuestionSource,
    RuleSettings,
    SelectSettings,
    TaskFacts,
)
from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.measure.metrics import parse_all
from r2med.store.files import expanded
from r2med.store.toml import WrongSetting, read_section, read_tables, read_text, require, section_kinds, section_readers

BUNDLED = "data.toml"
QUESTIONS = "questions.jsonl"
_FILES = ("scripted:", "local:")


@dataclass(frozen=True)
class WriteSettings:
    """Settings for writing questions, and the properties to draw for each."""

    questions: int = 0
    min_tokens: int = 1
    copied_words: int = 8
    attempts: int = 1
    seed: int = 0
    lengths: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    difficulties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.questions >= 0, "questions", "must not be negative")
        for name in ("min_tokens", "attempts"):
            require(getattr(self, name) >= 1, name, "must be 1 or more")
        require(self.copied_words >= 3, "copied_words", "must be 3 or more")
        for name in ("lengths", "styles", "difficulties"):
            require(bool(getattr(self, name)), name, "must have a text to draw")


@dataclass(frozen=True)
class NegativeSettings:
    """Number of negatives per question, and their types."""

    count: int = 15
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.count >= 1, "count", "must be 1 or more")
        names = [name for name, _ in self.named]
        require(all(names) and all(text for _, text in self.named), "types", "must each be NAME: WHAT IT MEANS")
        require(len(names) >= 2 and len(set(names)) == len(names), "types", "must be two or more, each once")

    @property
    def named(self) -> list[tuple[str, str]]:
        """Return each type's name in lower case, and its meaning."""
        return [(name.strip().casefold(), text.strip()) for name, _, text in (t.partition(":") for t in self.types)]


@dataclass(frozen=True)
class PartSettings:
    """Share of the questions that is held out."""

    dev: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.dev < 1, "dev", "must be from 0 to less than 1")


@dataclass(frozen=True)
class DataSettings:
    """All settings of training data."""

    documents: DocumentSource = field(default_factory=DocumentSource)
    chunk: ChunkSettings = field(default_factory=ChunkSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    mine: MineSettings = field(default_factory=MineSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    select: SelectSettings = field(default_factory=SelectSettings)
    negatives: NegativeSettings = field(default_factory=NegativeSettings)
    parts: PartSettings = field(default_factory=PartSettings)
    ask: AskSettings = field(default_factory=AskSettings)
    guideline: str = ""
    licence: str = ""
    """Of the texts; empty where it is not stated."""
    writer: str = ""
    """The model that writes questions and types negatives; empty for none."""

    def plan(self, work: Path) -> BuildPlan:
        """Return the plan by which a builder mines and judges for the questions written into a folder."""
        columns = QuestionSource(work / QUESTIONS, source="document", reasoning="bridge")
        return BuildPlan(
            work,
            self.guideline,
            TaskFacts("training-data", licence=self.licence),
            columns,
            self.documents,
            self.chunk,
            RuleSettings(on=False),
            mine=self.mine,
            judge=self.judge,
            select=self.select,
            ask=self.ask,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a record, without local paths."""
        found = asdict(self)
        return found | {"documents": found["documents"] | {"path": self.documents.path.name}}


def read_settings(file: Path | None, changes: Mapping[str, Mapping[str, Any]]) -> DataSettings:
    """Read the bundled settings, changed by a file and then by the command line, by table and key."""
    tables = tomllib.loads(resources.files("r2med.training").joinpath(BUNDLED).read_text("utf-8"))
    kinds = section_kinds(DataSettings)
    if file:
        merged = {name: partial(_merge, kind, tables.get(name, {})) for name, kind in kinds.items()}
        found = read_tables(file, read_text(file), merged)
        tables |= {name: tables.get(name, {}) | table for name, table in found.items()}
    for name, table in changes.items():
        tables[name] = tables.get(name, {}) | dict(table)
    try:
        made = {name: read_section(kinds[name], table) for name, table in tables.items()}
    except WrongSetting as wrong:
        raise R2medError(f"{wrong.key} {wrong.why}") from wrong
    template = resources.files("r2med.construction").joinpath("template", "guideline.md")
    return DataSettings(**made, guideline=template.read_text("utf-8"))


def _merge(kind: type, bundled: Mapping[str, Any], table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check a table of a file together with the bundled keys that it does not change, and return it."""
    read_section(kind, {**bundled, **table})
    return table


def with_models(settings: DataSettings, writer: str, judge: str) -> DataSettings:
    """Return the settings with the models of the command line; judges of the file are used unless it names one."""
    writer = _absolute(writer)
    judges = (_absolute(judge),) if judge else settings.judge.models or ((writer,) if writer else ())
    return replace(settings, writer=writer, judge=replace(settings.judge, models=judges))


def _absolute(name: str) -> str:
    """Return a model's name; one that names a file gets an absolute path."""
    kind, _, file = name.partition(":")
    if file and name.startswith(_FILES):
        name = f"{kind}:{expanded(file).resolve()}"
    if name:
        find_model(name)
    return name


QUESTION, BRIDGE, BOTH = "question", "bridge", "both"
QUERIES = (QUESTION, BRIDGE, BOTH)
"""What is searched with: the question, the question with the bridge behind it, or each of the two."""
DENSE, SPARSE, LATE, RERANKER = "dense", "sparse", "late", "reranker"
KINDS = (DENSE, SPARSE, LATE, RERANKER)
INFONCE, DISTILL = "infonce", "distill"
LOSSES = (INFONCE, DISTILL)


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of the optimizer: length of training, batches, learning rate and inputs."""

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
    """Settings of the loss."""

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
    """Interval and number of checkpoints."""

    every: int = 100
    keep: int = 2

    def __post_init__(self) -> None:
        for name in ("every", "keep"):
            require(getattr(self, name) >= 1, name, "must be 1 or more")


@dataclass(frozen=True)
class DevSettings:
    """Interval and measures of evaluation on the held-out part."""

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
        """Return the settings for a record."""
        return asdict(self)

    def loss_of(self, kind: str) -> str:
        """Return the name of the loss that a kind of model is trained with."""
        return self.loss.name or (DISTILL if kind == RERANKER else INFONCE)


def read_run_settings(file: Path | None) -> RunSettings:
    """Read the settings of a file; without one, return the defaults of r2med."""
    if file is None:
        return RunSettings()
    return RunSettings(**read_tables(file, read_text(file), section_readers(RunSettings)))
