"""The plan of a build: `plan.toml` in types, with errors that name the line; its template describes each setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import asdict, replace

from r2med.data.tasks import HUB_PREFIX, Task
from r2med.errors import DataError, R2medError, suggest
from r2med.llm.cards import find_model
from r2med.llm.steps import AskedModel
from r2med.llm.types import Model
from r2med.models.templates import Template, bundled, own_template
from r2med.pipeline.registry import build_system
from r2med.reviews.rows import review_path
from r2med.store.files import expanded
from r2med.store.typed import FieldError, Typed, line_of, parse_toml, plain, read_text, require

PLAN, GUIDELINE = "plan.toml", "guideline.md"
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1, pattern=r"\S")]
View = Literal["question", "answer", "reasoning"]


def is_file(model: str) -> bool:
    """Return whether a model's name names a file."""
    kind, _, file = model.partition(":")
    return kind in ("scripted", "local") and bool(file)


def in_folder(model: str, folder: Path) -> str:
    """Return a model's name; if it names a file, that is one of a folder."""
    kind, _, file = model.partition(":")
    return f"{kind}:{folder / expanded(file)}" if is_file(model) else model


class TaskFacts(Typed, frozen=True):
    """Facts that the built task states about itself."""

    name: Name = "my-task"
    noun: Name = "question"
    target: Name = "relevant passages"
    purpose: Name = "answer the question"
    licence: str = ""

    @property
    def words(self) -> dict[str, Any]:
        """Return the words of a task that are settings of a build."""
        return {name: getattr(self, name) for name in Task.WORDS if name in self.__struct_fields__}


class QuestionSource(Typed, frozen=True):
    """Location of the questions, and the names of their columns."""

    path: Path = Path("questions.jsonl")
    id: Name = "id"
    question: Name = "question"
    answer: Name = "answer"
    options: str = ""
    source: str = ""
    reasoning: str = ""


class DocumentSource(Typed, frozen=True):
    """Location of the documents, and the names of their columns."""

    path: Path = Path("documents")
    id: Name = "id"
    text: Name = "text"
    title: str = ""
    source: str = ""
    near: float = 0.8

    def __post_init__(self) -> None:
        require(self.near == 0 or 0.5 <= self.near <= 1, "near", "must be 0, or from 0.5 to 1")


class ChunkSettings(Typed, frozen=True):
    """Settings for cutting documents into passages."""

    tokens: int = 128

    def __post_init__(self) -> None:
        require(self.tokens == 0 or self.tokens >= 8, "tokens", "must be 0, or 8 or more")


class RuleSettings(Typed, frozen=True):
    """Rules by which questions are dropped without asking a model."""

    on: bool = True
    min_words: int = 5
    max_words: int = 600
    needs_image: bool = True
    answer_in_question: bool = True
    options_missing: bool = True

    def __post_init__(self) -> None:
        require(0 <= self.min_words <= self.max_words, "min_words", "must be from 0 to max_words")


class IntentSettings(Typed, frozen=True):
    """Classification of the intent of a question; without a model every question passes."""

    model: str = ""
    classes: Annotated[tuple[str, ...], Meta(min_length=1)] = ("examination", "diagnosis", "treatment")
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.keep:
            require(name in self.classes, "keep", f"has {name!r}, which is not among the classes")


class DifficultySettings(Typed, frozen=True):
    """Closed-book answers of small models; without models every question passes."""

    models: tuple[str, ...] = ()
    judge: str = ""
    drop_at: Positive = 1

    def __post_init__(self) -> None:
        if self.models:
            require(self.drop_at <= len(self.models), "drop_at", f"is more than the {len(self.models)} models")


class RewriteSettings(Typed, frozen=True):
    """Rewriting of multiple choice to open questions; without a model questions only lose their options."""

    model: str = ""
    checker: str = ""
    attempts: Positive = 2


class ReasonSettings(Typed, frozen=True):
    """The path from question to answer; without a model there is none but that of the questions' file."""

    model: str = ""


class MineSettings(Typed, frozen=True):
    """Systems that search for candidates, their views and their depth."""

    systems: Annotated[tuple[str, ...], Meta(min_length=1)] = ("bm25",)
    views: Annotated[tuple[View, ...], Meta(min_length=1)] = ("question", "answer", "reasoning")
    depth: Positive = 10
    source_passages: Positive = 10

    def __post_init__(self) -> None:
        for name in self.systems:
            try:
                system = build_system(name)
                system.check()
            except R2medError as error:
                raise FieldError("systems", str(error)) from error
            require(not system.oracle, "systems", f"{name} is shown the gold answers and cannot mine")


class JudgeSettings(Typed, frozen=True):
    """Judges of candidates, their scale, and the handling of disagreement and failures."""

    models: tuple[str, ...] = ()
    samples: Positive = 1
    combine: Literal["mean", "median", "min", "max"] = "mean"
    first: str = ""
    first_drop: float = 0.0
    scale: tuple[int, ...] = (0, 3)
    near: Annotated[float, Meta(ge=0)] = 0.5
    extra: Natural = 0
    retries: Natural = 2
    seed: int = 0

    def __post_init__(self) -> None:
        ordered = len(self.scale) == 2 and self.scale[0] < self.scale[1]
        require(ordered, "scale", "must be the lowest and the highest grade, such as [0, 3]")


class PeopleSettings(Typed, frozen=True):
    """The review whose people judge in place of models."""

    review: str = ""
    overlap: Annotated[float, Meta(ge=0, le=1)] = 0.2

    def __post_init__(self) -> None:
        try:
            review_path(self.review or "none")
        except R2medError as error:
            raise FieldError("review", str(error)) from error


class SelectSettings(Typed, frozen=True):
    """Settings from scores to judgements: cuts, band, numbers of positives, size of the corpus, splits."""

    answers: float = 2.0
    supports: float = 2.0
    band_answers: float = 1.0
    band_supports: float = 1.0
    band: Literal["drop", "mark"] = "mark"
    min_positives: int = 1
    max_positives: int = 50
    corpus: Natural = 0
    dev: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for axis in ("answers", "supports"):
            below = getattr(self, f"band_{axis}") <= getattr(self, axis)
            require(below, f"band_{axis}", f"must not be above {axis}")
        ordered = 1 <= self.min_positives <= self.max_positives
        require(ordered, "min_positives", "must be from 1 to max_positives")
        require(0 <= self.dev < 1, "dev", "must be from 0 to less than 1")


class LabelSettings(Typed, frozen=True):
    """Classes of the kept questions, by `r2med label`'s schemes; without a model none."""

    model: str = ""
    by: tuple[str, ...] = ("body-system",)


class AskSettings(Typed, frozen=True):
    """Settings of every request."""

    max_tokens: Positive = 1024


class PlanTables(Typed, frozen=True):
    """The tables of `plan.toml`."""

    task: TaskFacts = TaskFacts()
    questions: QuestionSource = QuestionSource()
    documents: DocumentSource = DocumentSource()
    chunk: ChunkSettings = ChunkSettings()
    rules: RuleSettings = RuleSettings()
    intent: IntentSettings = IntentSettings()
    difficulty: DifficultySettings = DifficultySettings()
    rewrite: RewriteSettings = RewriteSettings()
    reason: ReasonSettings = ReasonSettings()
    mine: MineSettings = MineSettings()
    judge: JudgeSettings = JudgeSettings()
    people: PeopleSettings = PeopleSettings()
    select: SelectSettings = SelectSettings()
    label: LabelSettings = LabelSettings()
    ask: AskSettings = AskSettings()
    prompts: Mapping[str, str] = {}  # files in place of the prompts that come with r2med, by their names


class BuildPlan(PlanTables, frozen=True, kw_only=True):
    """All settings of a build."""

    folder: Path
    guideline: str
    origins: Mapping[str, str] = {}  # where questions and documents of the hub came from, with the commit

    def model(self, name: str) -> Model:
        """Return the model with a name of the plan; its files are those of the plan's folder."""
        return find_model(in_folder(name, self.folder))

    def asked(self, name: str) -> AskedModel:
        """Return a model by its name, with the plan's limit on its replies."""
        return AskedModel.of(name, self.model(name), self.ask.max_tokens)

    def prompt(self, name: str) -> Template:
        """Return a prompt by its name: the plan's file, or the one that comes with r2med."""
        if name in self.prompts:
            return own_template(name, str(self.folder / self.prompts[name]), PLACES[name])
        return bundled(name, "r2med.construction")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings without local paths, for the manifest."""
        settings: dict[str, Any] = plain(self)
        for name in ("folder", "guideline", "origins"):
            del settings[name]
        for name in ("questions", "documents"):
            settings[name]["path"] = self.origins.get(name, Path(settings[name]["path"]).name)
        return settings

    @property
    def views(self) -> tuple[str, ...]:
        """Return the views that have a text: without a model that reasons, there is no reasoning to search with."""
        reasoning = self.reason.model or self.questions.reasoning
        return tuple(view for view in self.mine.views if view != "reasoning" or reasoning)


PLACES: Mapping[str, Sequence[str]] = {
    "intent": ("query", "classes"),
    "answer": ("question",),
    "rewrite": ("question", "answer"),
    "check": ("original", "rewritten", "answer"),
    "reason": ("question", "answer"),
    "judge": ("guideline", "question", "answer", "passage", "low", "high"),
}
"""Every prompt with the places that it must have; a plan's own may leave out none of them."""


def read_plan(folder: Path) -> BuildPlan:
    """Read and check the plan of a folder; its paths are relative to that folder."""
    file = folder / PLAN
    text = read_text(file, "make one with: r2med build init")
    tables = parse_toml(text, PlanTables, str(file))
    guideline = read_text(folder / GUIDELINE, "write what relevant means")
    plan = BuildPlan(**asdict(tables), folder=folder, guideline=guideline)
    if fault := next(_faults(plan), None):
        section, key, why = fault
        raise DataError(f"{file}:{line_of(text, (section, key))}: [{section}] {key} {why}")
    questions, documents = (
        source if source.path.as_posix().startswith(HUB_PREFIX) else replace(source, path=folder / source.path)
        for source in (plan.questions, plan.documents)
    )
    return replace(plan, questions=questions, documents=documents)


_MODELS = (
    ("intent", "model"), ("difficulty", "models"), ("difficulty", "judge"), ("rewrite", "model"),
    ("rewrite", "checker"), ("reason", "model"), ("judge", "models"), ("judge", "first"), ("label", "model"),
)  # fmt: skip


def _faults(plan: BuildPlan) -> Iterator[tuple[str, str, str]]:
    """Yield the section and key of settings that contradict each other or name what does not exist, and why."""
    for section, key in _MODELS:
        named: Any = getattr(getattr(plan, section), key)
        for name in filter(None, (named,) if isinstance(named, str) else named):
            try:
                plan.model(name)
            except R2medError as error:
                yield section, key, str(error)
    if plan.people.review:
        yield from _faults_of_people(plan)
    elif not plan.judge.models:
        yield "judge", "models", "must name a model, or [people] a review; without a judge nothing can be built"
    low, high = plan.judge.scale
    for name in ("answers", "supports"):
        if not low < getattr(plan.select, name) <= high:
            yield "select", name, f"must be above {low} and at most {high}, by the scale of [judge]"
    if not plan.views:
        yield "mine", "views", "has reasoning alone, and [reason] has no model to write it"
    for name in plan.prompts:
        if name not in PLACES:
            yield "prompts", name, f"is not a prompt{suggest(name, PLACES)}"
        plan.prompt(name)


def _faults_of_people(plan: BuildPlan) -> Iterator[tuple[str, str, str]]:
    """Yield what contradicts that people judge, who give one grade by the scale of the desk."""
    judge, select, usual = plan.judge, plan.select, JudgeSettings()
    if judge.models:
        advice = f"r2med review judge {plan.people.review} --llm {judge.models[0]}"
        yield "judge", "models", f"must be empty where [people] judge; a model labels the same pairs by: {advice}"
    for name in ("first", "samples", "extra", "scale"):
        if getattr(judge, name) != getattr(usual, name):
            yield "judge", name, "is for models, and [people] judge; leave it at its default"
    for name in ("", "band_"):
        if getattr(select, f"{name}supports") != (grade := getattr(select, f"{name}answers")):
            yield "select", f"{name}supports", f"must be {grade:g} as {name}answers: [people] give one grade"
