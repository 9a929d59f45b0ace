"""A task in other languages: questions are translated and checked, corpus and judgements stay, so that scores compare.

A question is asked for again while a gate stops it. Gates: it can be read; it is in the language; numbers, units, codes
and names of drugs survive; a back-translation means the same, by a judge and by an encoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from r2med.data.dataset import Dataset
from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.llm.items import FAILED, ItemStore, Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import AskedModel, Asking, Step, StepEstimate, Unread, price_step, run_step, step_key, tries
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import bundled
from r2med.pipeline.executor.local import Executor
from r2med.retrieve.dense import ENCODER, cosines
from r2med.translation.gates import GATES, Language, find_problems, language
from r2med.usage import Usage

UNREAD, NOT_ANSWERED, MEANING, SIMILARITY = "unread", "not answered", "meaning", "similarity"
DROP, MARK = "drop", "mark"
_ROUND = 100
"""Samples of each attempt are numbered from a multiple of this."""


@dataclass(frozen=True)
class TranslationSettings:
    """Settings for translating questions, and requirements on a translation."""

    model: str
    judge: str = ""
    """Who compares the back-translation; empty for the model itself."""
    encoder: str = ENCODER
    near: float = 0.7
    attempts: int = 2
    failed: str = DROP
    """Whether questions that fail a gate are left out, or stay and are marked."""
    max_tokens: int = 2048

    @property
    def judges_itself(self) -> bool:
        """Return whether the translating model, under any name, also judges its translations."""
        return self.judge in ("", self.model) or find_model(self.judge).id == find_model(self.model).id

    def __post_init__(self) -> None:
        if not 0 <= self.near <= 1:
            raise R2medError(f"the least similarity must be from 0 to 1, not {self.near:g}")
        if self.attempts < 1:
            raise R2medError("there must be one attempt at least")


@dataclass(frozen=True)
class TranslatedQuestion:
    """A question with its translation, and the problems found in it."""

    id: str
    original: str
    text: str
    back: str
    similarity: float | None
    problems: Sequence[tuple[str, str]]

    @property
    def gate(self) -> str:
        """Return the first gate that stopped the question; empty if it passed."""
        return self.problems[0][0] if self.problems else ""


@dataclass(frozen=True)
class TranslatedTask:
    """The questions of a task in one language."""

    spoken: Language
    questions: Sequence[TranslatedQuestion]
    failed: str
    spent: Usage = field(default_factory=Usage)

    @property
    def kept(self) -> list[TranslatedQuestion]:
        """Return the questions that go into the task."""
        return [each for each in self.questions if each.text and (not each.problems or self.failed == MARK)]

    @property
    def gates(self) -> dict[str, int]:
        """Count questions by the first gate that stopped them."""
        return dict(sorted(Counter(each.gate for each in self.questions if each.gate).items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the translation in the shape of `--json`."""
        return {
            "language": self.spoken.code,
            "questions": len(self.questions),
            "passed": sum(not each.problems for each in self.questions),
            "kept": len(self.kept),
            "gates": self.gates,
            "spent": self.spent.bill(),
        }


class _Item(NamedTuple):
    """A question in one language, to be worked on."""

    id: str
    text: str


class Translator:
    """The questions of a task, ready to be translated into a language."""

    def __init__(self, dataset: Dataset, code: str, settings: TranslationSettings, folder: Path) -> None:
        self.dataset, self.spoken, self.settings, self._folder = dataset, language(code), settings, folder
        judge = settings.judge or settings.model
        self._writer = AskedModel.of(settings.model, find_model(settings.model), settings.max_tokens)
        self._judge = AskedModel.of(judge, find_model(judge), settings.max_tokens)
        self._items = [_Item(*entry) for entry in dataset.collection.queries]

    def estimate(self) -> StepEstimate:
        """Estimate the cost if every first translation passes; nothing is asked."""
        with ItemStore(self._folder) as store:
            return price_step(self._step(), self._items, self._requests, store)

    def run(self, executor: Executor) -> TranslatedTask:
        """Translate questions that are not stored yet, and return the translated task."""
        with ItemStore(self._folder) as store:
            outcomes = run_step(self._step(), self._items, store, executor)
        compared = [item for item in self._items if outcomes[item.id].value.get("back")]
        texts = [item.text for item in compared], [outcomes[item.id].value["back"] for item in compared]
        near = cosines(self.settings.encoder, self.dataset.task, *texts, executor)
        similarity = dict(zip([item.id for item in compared], near, strict=True))
        questions = []
        for item in self._items:
            outcome, cosine = outcomes[item.id], similarity.get(item.id)
            problems = [(gate, what) for gate, what in outcome.value.get("problems", ())]
            if outcome.state == FAILED:
                problems = [(NOT_ANSWERED, outcome.failed)]
            if not problems and cosine is not None and cosine < self.settings.near:
                problems = [(SIMILARITY, f"the back-translation is {cosine:.2f} near, not {self.settings.near:g}")]
            text, back = outcome.value.get("text", ""), outcome.value.get("back", "")
            questions.append(TranslatedQuestion(item.id, item.text, text, back, cosine, problems))
        spent = sum((outcome.spent for outcome in outcomes.values()), Usage())
        return TranslatedTask(self.spoken, questions, self.settings.failed, spent)

    def _step(self) -> Step[_Item]:
        attempts = self.settings.attempts

        def key(item: _Item) -> str:
            asked = [request.key() for request in self._requests(item)]
            return step_key("translate", asked=asked, attempts=attempts, language=self.spoken.code, gates=GATES)

        return Step(f"translate-{self.spoken.code}", lambda item: item.id, key, work=self._work)

    def _work(self, item: _Item) -> Asking:
        value: dict[str, Any] = {}
        for number in range(self.settings.attempts):
            value = yield from self._attempt(item, number * _ROUND)
            if not value["problems"]:
                break
        return Outcome(value, marks=tuple(gate for gate, _ in value["problems"][:1]))

    def _attempt(
        self, item: _Item, first: int
    ) -> Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], dict[str, Any]]:
        translation = self._filled(self._writer, "translate", question=item.text)
        text = yield from tries(self._writer, translation, _read_text, first)
        if not text:
            return {"problems": [(UNREAD, "no translation could be read")]}
        problems = find_problems(item.text, text, self.spoken)
        if problems:
            return {"text": text, "problems": problems}
        translation = self._filled(self._writer, "back_translate", question=text)
        back = yield from tries(self._writer, translation, _read_text, first)
        if not back:
            return {"text": text, "problems": [(UNREAD, "no back-translation could be read")]}
        comparison = self._filled(self._judge, "same_question", original=item.text, translated=back)
        verdict = yield from tries(self._judge, comparison, _read_verdict, first)
        value = {"text": text, "back": back, "problems": []}
        if verdict is None:
            return value | {"problems": [(UNREAD, "the judge could not be read")]}
        return value if verdict["same"] else value | {"problems": [(MEANING, verdict["difference"])]}

    def _filled(self, model: AskedModel, name: str, **values: str) -> Request:
        return model.request(bundled(name, "r2med.translation").fill(values | {"language": self.spoken.name}))

    def _requests(self, item: _Item) -> list[Request]:
        """Return the requests if all goes well; the original stands in for texts not written yet."""
        return [
            self._filled(self._writer, "translate", question=item.text),
            self._filled(self._writer, "back_translate", question=item.text),
            self._filled(self._judge, "same_question", original=item.text, translated=item.text),
        ]


def _read_text(reply: str) -> str | None:
    """Read the translation in a reply, ignoring text around it."""
    value = read_object(reply)
    text = value.get("translation") if value else None
    return " ".join(text.split()) or None if isinstance(text, str) else None


def _read_verdict(reply: str) -> Mapping[str, Any] | None:
    value = read_object(reply)
    if value is None or not isinstance(value.get("same"), bool):
        return None
    return {"same": value["same"], "difference": " ".join(str(value.get("difference") or "").split())}
