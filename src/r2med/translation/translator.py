"""A task in other languages: questions are translated and checked, corpus and judgements stay, so that scores compare.

A question is asked for again while a gate stops it: those of `gates`, and a back-translation that a judge compares.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from r2med.data.dataset import Dataset
from r2med.data.layout import locate
from r2med.data.loader import load
from r2med.data.manifests import TRANSLATION
from r2med.data.problems import Findings
from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.llm.items import FAILED, STORE, ItemStore, Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import AskedModel, Asking, Step, StepEstimate, Unread, price_step, run_step, step_key, tries
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import bundled
from r2med.pipeline.executor.local import Executor
from r2med.render.html import render_card
from r2med.retrieve.dense import ENCODER, cosines
from r2med.store.files import draft_folder, unwritable
from r2med.store.typed import json_lines
from r2med.translation.gates import GATES, Language, find_problems, language
from r2med.usage import Usage

UNREAD, NOT_ANSWERED, MEANING, SIMILARITY = "unread", "not answered", "meaning", "similarity"
DROP, MARK = "drop", "mark"
_ROUND = 100  # samples of each attempt are numbered from a multiple of this


@dataclass(frozen=True)
class TranslationSettings:
    """Settings for translating questions, and requirements on a translation."""

    model: str
    judge: str = ""  # who compares the back-translation; empty for the model itself
    encoder: str = ENCODER
    near: float = 0.7
    attempts: int = 2
    failed: str = DROP
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
        return [q for q in self.questions if q.text and (not q.problems or self.failed == MARK)]

    @property
    def passed(self) -> int:
        """Count the questions that no gate stopped."""
        return sum(not question.problems for question in self.questions)

    @property
    def gates(self) -> dict[str, int]:
        """Count questions by the first gate that stopped them."""
        return dict(sorted(Counter(q.problems[0][0] for q in self.questions if q.problems).items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the translation in the shape of `--json`."""
        return {
            "language": self.spoken.code,
            "questions": len(self.questions),
            "passed": self.passed,
            "kept": len(self.kept),
            "gates": self.gates,
            "spent": self.spent.bill(),
        }


_Item = tuple[str, str]  # the id and the text of a question


class Translator:
    """The questions of a task, ready to be translated into a language."""

    def __init__(self, dataset: Dataset, code: str, settings: TranslationSettings, folder: Path) -> None:
        self.dataset, self.spoken, self.settings, self._folder = dataset, language(code), settings, folder
        judge = settings.judge or settings.model
        self._writer = AskedModel.of(settings.model, find_model(settings.model), settings.max_tokens)
        self._judge = AskedModel.of(judge, find_model(judge), settings.max_tokens)
        self._items = list(dataset.collection.queries)
        self._step = Step(f"translate-{code}", lambda item: item[0], self._key, work=self._work)

    def _key(self, item: _Item) -> str:
        limits = {"attempts": self.settings.attempts, "language": self.spoken.code, "gates": GATES}
        return step_key("translate", asked=[request.key() for request in self._requests(item)], **limits)

    def estimate(self) -> StepEstimate:
        """Estimate the cost if every first translation passes; nothing is asked."""
        with ItemStore(self._folder) as store:
            return price_step(self._step, self._items, self._requests, store)

    def run(self, executor: Executor) -> TranslatedTask:
        """Translate questions that are not stored yet, and return the translated task."""
        with ItemStore(self._folder) as store:
            outcomes = run_step(self._step, self._items, store, executor)
        originals = {name: text for name, text in self._items if outcomes[name].value.get("back")}
        backs = [outcomes[name].value["back"] for name in originals]
        near = cosines(self.settings.encoder, self.dataset.task, list(originals.values()), backs, executor)
        similarity = dict(zip(originals, near, strict=True))
        questions = []
        for name, original in self._items:
            outcome, cosine = outcomes[name], similarity.get(name)
            problems = [(gate, what) for gate, what in outcome.value.get("problems", ())]
            if outcome.state == FAILED:
                problems = [(NOT_ANSWERED, outcome.failed)]
            if not problems and cosine is not None and cosine < self.settings.near:
                problems = [(SIMILARITY, f"the back-translation is {cosine:.2f} near, not {self.settings.near:g}")]
            text, back = outcome.value.get("text", ""), outcome.value.get("back", "")
            questions.append(TranslatedQuestion(name, original, text, back, cosine, problems))
        spent = sum((outcome.spent for outcome in outcomes.values()), Usage())
        return TranslatedTask(self.spoken, questions, self.settings.failed, spent)

    def _work(self, item: _Item) -> Asking:
        value: dict[str, Any] = {}
        for number in range(self.settings.attempts):
            value = yield from self._attempt(item[1], number * _ROUND)
            if not value["problems"]:
                break
        return Outcome(value, marks=tuple(gate for gate, _ in value["problems"][:1]))

    def _attempt(
        self, original: str, first: int
    ) -> Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], dict[str, Any]]:
        request = self._filled(self._writer, "translate", question=original)
        text = yield from tries(self._writer, request, _read_text, first)
        if not text:
            return {"problems": [(UNREAD, "no translation could be read")]}
        if problems := find_problems(original, text, self.spoken):
            return {"text": text, "problems": problems}
        request = self._filled(self._writer, "back_translate", question=text)
        back = yield from tries(self._writer, request, _read_text, first)
        if not back:
            return {"text": text, "problems": [(UNREAD, "no back-translation could be read")]}
        request = self._filled(self._judge, "same_question", original=original, translated=back)
        verdict = yield from tries(self._judge, request, _read_verdict, first)
        value = {"text": text, "back": back, "problems": []}
        if verdict is None:
            return value | {"problems": [(UNREAD, "the judge could not be read")]}
        difference = " ".join(str(verdict.get("difference") or "").split())
        return value if verdict["same"] else value | {"problems": [(MEANING, difference)]}

    def _filled(self, model: AskedModel, name: str, **values: str) -> Request:
        return model.request(bundled(name, "r2med.translation").fill(values | {"language": self.spoken.name}))

    def _requests(self, item: _Item) -> list[Request]:
        """Return the requests if all goes well; the original stands in for texts not written yet."""
        return [
            self._filled(self._writer, "translate", question=item[1]),
            self._filled(self._writer, "back_translate", question=item[1]),
            self._filled(self._judge, "same_question", original=item[1], translated=item[1]),
        ]


def _read_text(reply: str) -> str | None:
    text = (read_object(reply) or {}).get("translation")
    return " ".join(text.split()) or None if isinstance(text, str) else None


def _read_verdict(reply: str) -> Mapping[str, Any] | None:
    value = read_object(reply)
    return value if value and isinstance(value.get("same"), bool) else None


def check_place(out: Path) -> None:
    """Refuse a folder that holds something else."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / STORE).is_file())):
        raise R2medError(f"{out}: exists and was not made by r2med build translate; name another --out")


def write_translation(out: Path, source: Dataset, translated: TranslatedTask, settings: TranslationSettings) -> Path:
    """Write the task of a language into its folder below `out`, as a whole, replacing an earlier one."""
    folder = out / translated.spoken.code
    try:
        with draft_folder(out, folder.name) as draft:
            _copy_documents(source, draft, out, translated.spoken.code)
            for name, content in _files(source, translated, settings).items():
                (draft / name).write_bytes(content)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    if load(folder).collection.documents.fingerprint != source.collection.documents.fingerprint:
        raise R2medError(f"{folder}: its documents are not those of {source.name}; were they changed meanwhile?")
    return folder


def _copy_documents(source: Dataset, draft: Path, out: Path, code: str) -> None:
    """Copy the files of the corpus once; further languages link to them if the file system can."""
    origin = source.collection.origin
    if origin is None:
        rows = ({"id": name, "text": text} for name, text in source.collection.documents)
        (draft / "corpus.jsonl").write_bytes(json_lines(rows))
        return
    others = [file.parent for file in sorted(out.glob(f"*/{TRANSLATION}")) if file.parent.name != code]
    for file in locate(origin, source.task.split, Findings(), source.task.files).documents:
        base = file.rpartition("/")[2]
        name = file if file.startswith("corpus") else base if base.startswith("corpus.") else f"corpus/{base}"
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        size = (origin / file).stat().st_size
        twins = (path / name for path in others if (path / name).is_file() and (path / name).stat().st_size == size)
        try:
            os.link(next(twins), draft / name)
        except (OSError, StopIteration):
            shutil.copyfile(origin / file, draft / name)


def _files(source: Dataset, translated: TranslatedTask, settings: TranslationSettings) -> dict[str, bytes]:
    facts = {
        "format": 1,
        "source": source.name,
        "revision": source.revision,
        "fingerprints": {
            "documents": source.collection.documents.fingerprint,
            "queries": source.collection.queries.fingerprint,
            "gold": source.gold.fingerprint,
        },
        "model": settings.model,
        "judge": settings.judge or settings.model,
        **{name: getattr(settings, name) for name in ("encoder", "near", "attempts", "failed")},
        **translated.as_dict(),
    }
    card = render_card("translation/card.md", **facts, judged_by_itself=settings.judges_itself)
    stated = {name: value for name in source.task.STATED if (value := getattr(source.task, name))}
    gold = {"answer": source.gold.answers, "reasoning": source.gold.reasoning}  # in the language of the corpus
    qrels = (row for question in translated.kept for row in source.gold.rows(question.id))
    return {
        "query.jsonl": json_lines(
            {"id": q.id, "text": q.text, "original": q.original}
            | {name: texts[q.id] for name, texts in gold.items() if q.id in texts}
            | ({"gate": q.problems[0][0]} if q.problems else {})
            for q in translated.kept
        ),
        "qrels.jsonl": json_lines(qrels),
        "translations.jsonl": json_lines(
            {
                "id": q.id,
                "original": q.original,
                "translation": q.text,
                "back": q.back,
                "similarity": q.similarity,
                "problems": [{"gate": gate, "what": what} for gate, what in q.problems],
            }
            for q in translated.questions
        ),
        "task.toml": "".join(f"{name} = {orjson.dumps(value).decode()}\n" for name, value in stated.items()).encode(),
        TRANSLATION: orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n",
        "README.md": f"{card}\n".encode(),
    }
