"""Settings of `r2med train data` and `r2med train run`: defaults, changed key by key by the user's file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import asdict, replace

from r2med.construction import plan as build
from r2med.construction.plan import Natural, Positive, in_folder, is_file
from r2med.llm.cards import find_model
from r2med.llm.steps import AskedModel
from r2med.measure.metrics import parse_all
from r2med.store.typed import Typed, convert, parse_toml, plain, read_text, require, toml_values

QUESTIONS = "questions.jsonl"
Texts = Annotated[tuple[str, ...], Meta(min_length=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Above = Annotated[float, Meta(gt=0)]


class WriteSettings(Typed, frozen=True):
    """Settings for writing questions, and the properties to draw for each."""

    questions: Natural
    min_tokens: Positive
    copied_words: Annotated[int, Meta(ge=3)]
    attempts: Positive
    seed: int
    lengths: Texts
    styles: Texts
    difficulties: Texts


class NegativeSettings(Typed, frozen=True):
    """Number of negatives per question, and their types."""

    count: Positive
    types: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.named]
        require(all(names) and all(text for _, text in self.named), "types", "must each be NAME: WHAT IT MEANS")
        require(len(names) >= 2 and len(set(names)) == len(names), "types", "must be two or more, each once")

    @property
    def named(self) -> list[tuple[str, str]]:
        """Return each type's name in lower case, and its meaning."""
        return [(name.strip().casefold(), text.strip()) for name, _, text in (t.partition(":") for t in self.types)]


class PartSettings(Typed, frozen=True):
    """Share of the questions that is held out."""

    dev: Share = 0.1
    seed: int = 0


class DataTables(Typed, frozen=True):
    """The tables of a file of settings."""

    write: WriteSettings
    negatives: NegativeSettings
    documents: build.DocumentSource = build.DocumentSource()
    chunk: build.ChunkSettings = build.ChunkSettings()
    mine: build.MineSettings = build.MineSettings()
    judge: build.JudgeSettings = build.JudgeSettings()
    select: build.SelectSettings = build.SelectSettings()
    parts: PartSettings = PartSettings()
    ask: build.AskSettings = build.AskSettings()


class DataSettings(DataTables, frozen=True, kw_only=True):
    """All settings of training data."""

    guideline: str
    licence: str = ""
    writer: str = ""

    def plan(self, work: Path) -> build.BuildPlan:
        """Return the plan by which a builder mines and judges for the questions written into a folder."""
        return build.BuildPlan(
            folder=work,
            guideline=self.guideline,
            task=build.TaskFacts("training-data", licence=self.licence),
            questions=build.QuestionSource(work / QUESTIONS, source="document", reasoning="bridge"),
            rules=build.RuleSettings(on=False),
            **{name: getattr(self, name) for name in ("documents", "chunk", "mine", "judge", "select", "ask")},
        )

    def asked(self) -> AskedModel:
        """Return the model that writes, with the limit on its replies."""
        return AskedModel.of(self.writer, find_model(self.writer), self.ask.max_tokens)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a record, without local paths."""
        settings: dict[str, Any] = plain(self)
        settings["documents"]["path"] = self.documents.path.name
        return settings


def read_settings(file: Path | None, changes: Mapping[str, Mapping[str, Any]]) -> DataSettings:
    """Read the bundled settings, changed by a file and then by the command line, by table and key."""
    bundled = resources.files("r2med.training").joinpath("data.toml").read_text("utf-8")
    text, defaults = read_text(file) if file else "", toml_values(bundled, "data.toml")
    tables: dict[str, Any] = plain(parse_toml(text, DataTables, str(file), defaults=defaults))
    for name, table in changes.items():
        tables[name] |= table
    guideline = resources.files("r2med.construction").joinpath("template", "guideline.md").read_text("utf-8")
    return DataSettings(**asdict(convert(tables, DataTables)), guideline=guideline)


def with_models(settings: DataSettings, writer: str, judge: str) -> DataSettings:
    """Return the settings with the models of the command line; judges of the file are used unless it names one."""
    writer, judge = (in_folder(name, Path.cwd()) for name in (writer, judge))
    judges = (judge,) if judge else settings.judge.models or (writer,) * bool(writer)
    for name in filter(None, (writer, judge)):
        find_model(name)
    for name in filter(None, (*judges, settings.judge.first)):
        if not is_file(name):
            find_model(name)
    return replace(settings, writer=writer, judge=replace(settings.judge, models=judges))


QUESTION, BRIDGE, BOTH = "question", "bridge", "both"
QUERIES = (QUESTION, BRIDGE, BOTH)
"""What is searched with: the question, the question with the bridge behind it, or each of the two."""
DENSE, SPARSE, LATE, RERANKER = "dense", "sparse", "late", "reranker"
KINDS = (DENSE, SPARSE, LATE, RERANKER)
INFONCE, DISTILL = "infonce", "distill"


class OptimizerSettings(Typed, frozen=True):
    """Settings of the optimizer: length of training, batches, learning rate and inputs."""

    epochs: Above = 1.0
    steps: Natural = 0  # so many steps, whatever `epochs` says; 0 for epochs
    batch: Annotated[int, Meta(ge=2)] = 32
    learning_rate: Above = 2e-5
    warmup: Share = 0.1
    weight_decay: float = 0.01
    seed: int = 0
    bf16: bool = False
    query: Literal["question", "bridge", "both"] = "question"
    negatives: Natural = 0  # of a question; 0 for as many as all have, seven at the most
    max_length: Natural = 0
    query_prompt: str = ""
    document_prompt: str = ""


class LossSettings(Typed, frozen=True):
    """Settings of the loss."""

    name: str = ""
    """infonce (in-batch negatives, cached) or distill (the judges' scores); a reranker distils unless told."""
    mini_batch: Positive = 16
    temperature: Above = 0.05
    teacher_temperature: Above = 0.2
    matryoshka: tuple[Positive, ...] = ()
    query_flops: float = 5e-5  # how strongly a sparse retriever is held to few terms of a query, and of a document
    document_flops: float = 3e-5

    def __post_init__(self) -> None:
        require(self.name in ("", INFONCE, DISTILL), "name", f"must be {INFONCE} or {DISTILL}")


class LoraSettings(Typed, frozen=True):
    """A low-rank adapter in place of all weights; it is merged into the model at the end."""

    rank: Natural = 0
    alpha: int = 16
    dropout: Share = 0.0


class CheckpointSettings(Typed, frozen=True):
    """Interval and number of checkpoints."""

    every: Positive = 100
    keep: Positive = 2


class DevSettings(Typed, frozen=True):
    """Interval and measures of evaluation on the held-out part."""

    every: Positive = 100
    measures: Texts = ("nDCG@10", "Recall@10")
    passages: int = 5000
    """The most passages that are searched: those of the held-out questions, then others of the data."""

    def __post_init__(self) -> None:
        parse_all(self.measures)


class RunSettings(Typed, frozen=True):
    """All settings of a training."""

    train: OptimizerSettings = OptimizerSettings()
    loss: LossSettings = LossSettings()
    lora: LoraSettings = LoraSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    dev: DevSettings = DevSettings()

    def loss_of(self, kind: str) -> str:
        """Return the name of the loss that a kind of model is trained with."""
        return self.loss.name or (DISTILL if kind == RERANKER else INFONCE)


def read_run_settings(file: Path | None) -> RunSettings:
    """Read the settings of a file; without one, return the defaults of r2med."""
    return parse_toml(read_text(file), RunSettings, str(file)) if file else RunSettings()
