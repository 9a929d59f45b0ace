"""Settings of `r2med train data`: bundled ones, changed key by key by a file of one's own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from r2med.build.build_plan import (
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
from r2med.llm import find_model
from r2med.storage.files import expanded
from r2med.storage.toml_sections import WrongSetting, read_section, read_tables, read_text, require, section_kinds

BUNDLED = "bridge_data.toml"
QUESTIONS = "questions.jsonl"
_FILES = ("scripted:", "local:")


@dataclass(frozen=True)
class WriteSettings:
    """Which passages questions are written from, and what is drawn for each."""

    questions: int = 0
    least_tokens: int = 1
    copied_words: int = 8
    attempts: int = 1
    seed: int = 0
    lengths: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    difficulties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.questions >= 0, "questions", "must not be negative")
        for name in ("least_tokens", "attempts"):
            require(getattr(self, name) >= 1, name, "must be 1 or more")
        require(self.copied_words >= 3, "copied_words", "must be 3 or more")
        for name in ("lengths", "styles", "difficulties"):
            require(bool(getattr(self, name)), name, "must have a text to draw")


@dataclass(frozen=True)
class NegativeSettings:
    """How many negatives a question has, and which types of wrong there are."""

    count: int = 15
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.count >= 1, "count", "must be 1 or more")
        names = [name for name, _ in self.named]
        require(all(names) and all(text for _, text in self.named), "types", "must each be NAME: WHAT IT MEANS")
        require(len(names) >= 2 and len(set(names)) == len(names), "types", "must be two or more, each once")

    @property
    def named(self) -> list[tuple[str, str]]:
        """Each type's name in lower case, and what it means."""
        return [(name.strip().casefold(), text.strip()) for name, _, text in (t.partition(":") for t in self.types)]


@dataclass(frozen=True)
class PartSettings:
    """Which share of the questions is held out."""

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
        """The plan by which a builder mines and judges for the questions that were written into a folder."""
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
        """The settings for a record, without places of this machine."""
        found = asdict(self)
        return found | {"documents": found["documents"] | {"path": self.documents.path.name}}


def read_settings(file: Path | None, changes: Mapping[str, Mapping[str, Any]]) -> DataSettings:
    """The bundled settings with those of a file and, on top, those of the command line by table and key."""
    tables = tomllib.loads(resources.files("r2med.train").joinpath(BUNDLED).read_text("utf-8"))
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
    template = resources.files("r2med.build").joinpath("template", "guideline.md")
    return DataSettings(**made, guideline=template.read_text("utf-8"))


def _merge(kind: type, bundled: Mapping[str, Any], table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A table of a file, checked together with what it leaves as it is."""
    read_section(kind, {**bundled, **table})
    return table


def with_models(settings: DataSettings, writer: str, judge: str) -> DataSettings:
    """The settings with the models that were named on the command line; a judge of the file's own stays."""
    writer = _absolute(writer)
    judges = (_absolute(judge),) if judge else settings.judge.models or ((writer,) if writer else ())
    return replace(settings, writer=writer, judge=replace(settings.judge, models=judges))


def _absolute(name: str) -> str:
    """A model's name; one that names a file does so from wherever it is read."""
    kind, _, file = name.partition(":")
    if file and name.startswith(_FILES):
        name = f"{kind}:{expanded(file).resolve()}"
    if name:
        find_model(name)
    return name
