"""The plan of a build: `plan.toml` read into typed settings, with errors that name the line at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from r2med.data.tasks import HUB_PREFIX
from r2med.errors import DataError, R2medError, SpecError, suggest
from r2med.llm.cards import find_model
from r2med.llm.steps import AskedModel
from r2med.llm.types import Model
from r2med.models.templates import Template
from r2med.pipeline.registry import build_system
from r2med.store.toml import WrongSetting, line_of, read_tables, read_text, require, section_readers

PLAN, GUIDELINE = "plan.toml", "guideline.md"
VIEWS = ("question", "answer", "reasoning")
COMBINE = ("mean", "median", "min", "max")
BAND = ("drop", "mark")
_FILES = ("scripted:", "local:")
"""How names of models begin that name a file, which is one of the plan's folder."""


def _check_models(key: str, *names: str) -> None:
    """Refuse unknown names of models; those of files are checked once the plan's folder is known."""
    for name in filter(None, names):
        try:
            if not name.startswith(_FILES):
                find_model(name)
        except SpecError as error:
            raise WrongSetting(key, str(error)) from error


@dataclass(frozen=True)
class TaskFacts:
    """Facts that the built task states about itself."""

    name: str = "my-task"
    noun: str = "question"
    target: str = "relevant passages"
    purpose: str = "answer the question"
    licence: str = ""
    """Of the sources of the texts."""

    def __post_init__(self) -> None:
        for name in ("name", "noun", "target", "purpose"):
            require(bool(getattr(self, name).strip()), name, "must not be empty")


@dataclass(frozen=True)
class QuestionSource:
    """Location of the questions, and the names of their columns."""

    path: Path = Path("questions.jsonl")
    id: str = "id"
    question: str = "question"
    answer: str = "answer"
    options: str = ""
    """Empty where questions have no options."""
    source: str = ""
    """Empty where the source of a question is not known."""
    reasoning: str = ""
    """The path from question to answer, where the file has it already."""

    def __post_init__(self) -> None:
        for name in ("id", "question", "answer"):
            require(bool(getattr(self, name)), name, "must name a column")


@dataclass(frozen=True)
class DocumentSource:
    """Location of the documents, and the names of their columns."""

    path: Path = Path("documents")
    id: str = "id"
    text: str = "text"
    title: str = ""
    source: str = ""
    """The column with the link or file that a document came from."""
    near: float = 0.8
    """From which similarity on two documents count as one; 0 folds only those with the same words."""

    def __post_init__(self) -> None:
        for name in ("id", "text"):
            require(bool(getattr(self, name)), name, "must name a column")
        require(self.near == 0 or 0.5 <= self.near <= 1, "near", "must be 0, or from 0.5 to 1")


@dataclass(frozen=True)
class ChunkSettings:
    """Settings for cutting documents into passages."""

    tokens: int = 128
    """About how long a passage is; 0 keeps documents whole."""

    def __post_init__(self) -> None:
        require(self.tokens == 0 or self.tokens >= 8, "tokens", "must be 0, or 8 or more")


@dataclass(frozen=True)
class RuleSettings:
    """Rules by which questions are dropped without asking a model."""

    on: bool = True
    min_words: int = 5
    max_words: int = 600
    needs_image: bool = True
    answer_in_question: bool = True
    options_missing: bool = True

    def __post_init__(self) -> None:
        require(0 <= self.min_words <= self.max_words, "min_words", "must be from 0 to max_words")


@dataclass(frozen=True)
class IntentSettings:
    """Classification of the intent of a question; without a model every question passes."""

    model: str = ""
    classes: tuple[str, ...] = ("examination", "diagnosis", "treatment")
    keep: tuple[str, ...] = ()
    """Those that pass; all classes when none is named."""

    def __post_init__(self) -> None:
        _check_models("model", self.model)
        require(bool(self.classes), "classes", "must name a class")
        for name in self.keep:
            require(name in self.classes, "keep", f"has {name!r}, which is not among the classes")


@dataclass(frozen=True)
class DifficultySettings:
    """Closed-book answers of small models; without models every question passes."""

    models: tuple[str, ...] = ()
    judge: str = ""
    """Who compares their answers with the gold one; without it, words decide."""
    drop_at: int = 1
    """How many of them must be right for a question to be too easy."""

    def __post_init__(self) -> None:
        _check_models("models", *self.models)
        _check_models("judge", self.judge)
        require(self.drop_at >= 1, "drop_at", "must be 1 or more")
        if self.models:
            require(self.drop_at <= len(self.models), "drop_at", f"is more than the {len(self.models)} models")


@dataclass(frozen=True)
class RewriteSettings:
    """Rewriting of multiple choice to open questions; without a model questions only lose their options."""

    model: str = ""
    checker: str = ""
    """Who looks whether the new question gives the answer away and asks the same; without it, words alone."""
    attempts: int = 2

    def __post_init__(self) -> None:
        _check_models("model", self.model)
        _check_models("checker", self.checker)
        require(self.attempts >= 1, "attempts", "must be 1 or more")


@dataclass(frozen=True)
class ReasonSettings:
    """The path from question to answer; without a model there is none but that of the questions' file."""

    model: str = ""

    def __post_init__(self) -> None:
        _check_models("model", self.model)


@dataclass(frozen=True)
class MineSettings:
    """Systems that search for candidates, their views and their depth."""

    systems: tuple[str, ...] = ("bm25",)
    views: tuple[str, ...] = VIEWS
    depth: int = 10
    """Candidates of each system from each view."""
    source_passages: int = 10
    """Passages of the known source that are judged at the most; the best ranked come first."""

    def __post_init__(self) -> None:
        require(bool(self.systems), "systems", "must name a system")
        for name in self.systems:
            try:
                system = build_system(name)
                system.check()
            except R2medError as error:
                raise WrongSetting("systems", str(error)) from error
            require(not system.oracle, "systems", f"{name} is shown the gold answers and cannot mine")
        require(bool(self.views), "views", "must name a view")
        for view in self.views:
            require(view in VIEWS, "views", f"no view {view!r}{suggest(view, VIEWS)}")
        require(self.depth >= 1, "depth", "must be 1 or more")
        require(self.source_passages >= 1, "source_passages", "must be 1 or more")


@dataclass(frozen=True)
class JudgeSettings:
    """Judges of candidates, their scale, and the handling of disagreement and failures."""

    models: tuple[str, ...] = ()
    samples: int = 1
    """How often each judge is asked about a pair."""
    combine: str = "mean"
    first: str = ""
    """A cheap judge that discards what is surely irrelevant before the others look."""
    first_drop: float = 0.0
    """Discarded when its scores on both axes are not above this."""
    scale: tuple[int, ...] = (0, 3)
    """The lowest and the highest grade, whole numbers; the guideline says what each means."""
    near: float = 0.5
    """A combined score this close to a cut of `select` is asked about again."""
    extra: int = 0
    """How many further samples of each judge that takes; 0 for none."""
    retries: int = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Of the order in which pairs are judged, so that a build that stops early has judged a fair sample."""

    def __post_init__(self) -> None:
        _check_models("models", *self.models)
        _check_models("first", self.first)
        require(self.samples >= 1, "samples", "must be 1 or more")
        require(self.combine in COMBINE, "combine", f"no rule {self.combine!r}{suggest(self.combine, COMBINE)}")
        ordered = len(self.scale) == 2 and self.scale[0] < self.scale[1]
        require(ordered, "scale", "must be the lowest and the highest grade, such as [0, 3]")
        for name in ("extra", "retries"):
            require(getattr(self, name) >= 0, name, "must not be negative")
        require(self.near >= 0, "near", "must not be negative")


@dataclass(frozen=True)
class SelectSettings:
    """Settings from scores to judgements: cuts, band, numbers of positives, size of the corpus, splits."""

    answers: float = 2.0
    """A positive has at least this on the first axis."""
    supports: float = 2.0
    """And at least this on the second."""
    band_answers: float = 1.0
    """What is no positive, but has at least this and `band_supports`, is neither positive nor negative."""
    band_supports: float = 1.0
    band: str = "mark"
    """Whether passages of the band are left out of the corpus (drop), unless another question needs them, or stay."""
    min_positives: int = 1
    max_positives: int = 50
    corpus: int = 0
    """Passages of the corpus: the pool, then others drawn by the seed up to this; 0 takes all."""
    dev: float = 0.0
    """The share of questions for a split `dev`; 0 for no split."""
    seed: int = 0

    def __post_init__(self) -> None:
        for axis in ("answers", "supports"):
            below = getattr(self, f"band_{axis}") <= getattr(self, axis)
            require(below, f"band_{axis}", f"must not be above {axis}")
        require(self.band in BAND, "band", f"must be {' or '.join(BAND)}")
        ordered = 1 <= self.min_positives <= self.max_positives
        require(ordered, "min_positives", "must be from 1 to max_positives")
        require(self.corpus >= 0, "corpus", "must not be negative")
        require(0 <= self.dev < 1, "dev", "must be from 0 to less than 1")


@dataclass(frozen=True)
class LabelSettings:
    """Classes of the kept questions, by `r2med label`'s schemes; without a model none."""

    model: str = ""
    by: tuple[str, ...] = ("body-system",)

    def __post_init__(self) -> None:
        _check_models("model", self.model)


@dataclass(frozen=True)
class AskSettings:
    """Settings of every request."""

    max_tokens: int = 1024
    """The longest reply, of models whose card does not say."""

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, "max_tokens", "must be 1 or more")


@dataclass(frozen=True)
class BuildPlan:
    """All settings of a build."""

    folder: Path
    guideline: str
    task: TaskFacts = field(default_factory=TaskFacts)
    questions: QuestionSource = field(default_factory=QuestionSource)
    documents: DocumentSource = field(default_factory=DocumentSource)
    chunk: ChunkSettings = field(default_factory=ChunkSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    intent: IntentSettings = field(default_factory=IntentSettings)
    difficulty: DifficultySettings = field(default_factory=DifficultySettings)
    rewrite: RewriteSettings = field(default_factory=RewriteSettings)
    reason: ReasonSettings = field(default_factory=ReasonSettings)
    mine: MineSettings = field(default_factory=MineSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    select: SelectSettings = field(default_factory=SelectSettings)
    label: LabelSettings = field(default_factory=LabelSettings)
    ask: AskSettings = field(default_factory=AskSettings)
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Files in place of the prompts that come with r2med, by their names."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where questions and documents of the hub came from, with the commit."""

    def model(self, name: str) -> Model:
        """Return the model with a name of the plan; its files are those of the plan's folder."""
        kind, _, file = name.partition(":")
        return find_model(f"{kind}:{self.folder / file}" if file and name.startswith(_FILES) else name)

    @property
    def views(self) -> tuple[str, ...]:
        """Return the views that have a text: without a model that reasons, there is no reasoning to search with."""
        reasoning = self.reason.model or self.questions.reasoning
        return tuple(view for view in self.mine.views if view != "reasoning" or reasoning)


def read_plan(folder: Path) -> BuildPlan:
    """Read and check the plan of a folder; its paths are relative to that folder."""
    file = folder / PLAN
    text = read_text(file, "make one with: r2med build init")
    plan = _parse(file, text)
    _check_files(plan, file, text)
    where = f"{file}:{line_of(text, 'judge', 'models')}"
    if not plan.judge.models:
        raise DataError(f"{where}: [judge] models must name a model; without a judge nothing can be built")
    low, high = plan.judge.scale
    for name in ("answers", "supports"):
        if not low < getattr(plan.select, name) <= high:
            place = f"{file}:{line_of(text, 'select', name)}"
            raise DataError(f"{place}: [select] {name} must be above {low} and at most {high}, by the scale of [judge]")
    if not plan.views:
        place = f"{file}:{line_of(text, 'mine', 'views')}"
        raise DataError(f"{place}: [mine] views has reasoning alone, and [reason] has no model to write it")
    return plan


def _check_files(plan: BuildPlan, file: Path, text: str) -> None:
    for section, key in _MODELS:
        named = getattr(getattr(plan, section), key)
        for name in (named,) if isinstance(named, str) else named:
            try:
                if name.startswith(_FILES):
                    plan.model(name)
            except R2medError as error:
                raise DataError(f"{file}:{line_of(text, section, key)}: [{section}] {key}: {error}") from error


_MODELS = (
    ("intent", "model"), ("difficulty", "models"), ("difficulty", "judge"), ("rewrite", "model"),
    ("rewrite", "checker"), ("reason", "model"), ("judge", "models"), ("judge", "first"), ("label", "model"),
)  # fmt: skip
"""The settings that name models."""


def _parse(file: Path, text: str) -> BuildPlan:
    made = read_tables(file, text, section_readers(BuildPlan) | {"prompts": _prompts})
    plan = BuildPlan(file.parent, read_text(file.with_name(GUIDELINE), "write what relevant means"), **made)
    questions = replace(plan.questions, path=_placed(file.parent, plan.questions.path))
    return replace(
        plan, questions=questions, documents=replace(plan.documents, path=_placed(file.parent, plan.documents.path))
    )


def _placed(folder: Path, path: Path) -> Path:
    """Return a path of the plan relative to its folder; one on the hub stays as it is."""
    return path if path.as_posix().startswith(HUB_PREFIX) else folder / path


def _prompts(table: Mapping[str, Any]) -> dict[str, str]:
    for key, value in table.items():
        require(isinstance(value, str) and bool(value), key, "must be the name of a file")
    return dict(table)


PLACES: Mapping[str, Sequence[str]] = {
    "intent": ("query", "classes"),
    "answer": ("question",),
    "rewrite": ("question", "answer"),
    "check": ("original", "rewritten", "answer"),
    "reason": ("question", "answer"),
    "judge": ("guideline", "question", "answer", "passage", "low", "high"),
}
"""Every prompt with the places that it must have; a plan's own may leave out none of them."""


def prompt(name: str, plan: BuildPlan) -> Template:
    """Return a prompt by its name: the plan's file, or the one that comes with r2med."""
    if name in plan.prompts:
        return _own(name, plan)
    file = resources.files("r2med.construction").joinpath("prompts", f"{name}.txt")
    return Template(file.read_text("utf-8").strip(), source=f"{name}.txt")


def check_prompts(plan: BuildPlan) -> None:
    """Refuse prompts that cannot be used before anything is asked."""
    for name in plan.prompts:
        if name not in PLACES:
            raise DataError(f"{plan.folder / 'plan.toml'}: [prompts] has no {name!r}{suggest(name, PLACES)}")
        prompt(name, plan)


def _own(name: str, plan: BuildPlan) -> Template:
    path = plan.folder / plan.prompts[name]
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: the prompt cannot be read: {reason}") from error
    missing = [f"{{{place}}}" for place in PLACES[name] if f"{{{place}}}" not in text]
    if missing:
        raise DataError(f"{path}: a prompt for {name} must have {' and '.join(missing)} in it")
    return Template(text.strip(), source=plan.prompts[name])


def asked_model(name: str, plan: BuildPlan) -> AskedModel:
    """Return a model of a plan by its name, with a limit on its replies."""
    return AskedModel.of(name, plan.model(name), plan.ask.max_tokens)
