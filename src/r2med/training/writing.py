"""Writing questions from passages, so that the answer must be inferred; the inference, the bridge, is recorded.

Properties of a question (length, style, difficulty) are drawn for each passage by the seed. A question that gives its
answer away or copies its passage is asked for again, and dropped after the last attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.construction.items import Passage, Question
from r2med.lexical.segmentation import count_tokens
from r2med.llm.cards import find_model
from r2med.llm.items import Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import AskedModel, Asking, Step, step_key, tries
from r2med.llm.types import Request
from r2med.measure.answers import matches, normalised
from r2med.models.templates import bundled
from r2med.training.settings import DataSettings, WriteSettings

STEP = "write"
_ROUND = 100
"""Samples of each attempt are numbered from a multiple of this."""
_STAND_IN = "The findings point to one condition, and its mechanism explains each of them in turn. "


@dataclass(frozen=True)
class QuestionDraft:
    """A passage to write a question from, and the properties drawn for that question."""

    passage: Passage
    length: str
    style: str
    difficulty: str

    @property
    def id(self) -> str:
        """Return the id of the question."""
        return f"{self.passage.id}~q"

    @property
    def asked(self) -> dict[str, str]:
        """Return the drawn properties."""
        return {"length": self.length, "style": self.style, "difficulty": self.difficulty}

    def stand_in(self) -> Question:
        """Return a question of about the right length, for estimates."""
        text = " ".join(self.passage.text.split()[:60])
        answer = "a condition"
        return Question(self.id, text, answer, (), (self.passage.document,), text, reasoning=_STAND_IN * 4)


def draw_drafts(passages: Sequence[Passage], settings: WriteSettings) -> list[QuestionDraft]:
    """Return the passages to write from, in an order that depends only on the seed and their ids."""
    usable = [passage for passage in passages if count_tokens(passage.text) >= settings.min_tokens]
    usable.sort(key=lambda passage: _draw(settings.seed, passage.id))
    return [_draft(passage, settings) for passage in usable[: settings.questions or None]]


def _draft(passage: Passage, settings: WriteSettings) -> QuestionDraft:
    lists = (settings.lengths, settings.styles, settings.difficulties)
    drawn = [texts[_draw(settings.seed, passage.id, number) % len(texts)] for number, texts in enumerate(lists, 1)]
    return QuestionDraft(passage, *drawn)


def _draw(seed: int, name: str, number: int = 0) -> int:
    text = f"{seed}\t{number}\t{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def read_written(text: str) -> dict[str, str] | None:
    """Read question, answer and bridge of a reply; None if one is missing, unless the question is empty.

    >>> read_written('{"question": "Why  so?", "answer": "Scurvy", "bridge": "No vitamin C."}')
    {'question': 'Why so?', 'answer': 'Scurvy', 'bridge': 'No vitamin C.'}
    """
    value = read_object(text)
    if value is None or not isinstance(value.get("question"), str):
        return None
    found = {name: " ".join(str(value.get(name) or "").split()) for name in ("question", "answer", "bridge")}
    return found if all(found.values()) or not found["question"] else None


def copied_run(question: str, passage: str, words: int) -> str:
    """Return the first n-gram that a question shares with its passage; empty if there is none.

    >>> copied_run("Why do gums bleed so easily?", "In scurvy the gums bleed so easily.", 4)
    'gums bleed so easily'
    """
    asked, known = normalised(question).split(), f" {normalised(passage)} "
    runs = (" ".join(asked[start : start + words]) for start in range(len(asked) - words + 1))
    return next((run for run in runs if f" {run} " in known), "")


def find_fault(written: Mapping[str, str], passage: Passage, settings: WriteSettings) -> str:
    """Return the reason why a written question cannot be used; empty if it can."""
    if matches(written["question"], written["answer"])[1]:
        return "the answer is given away"
    if copied_run(written["question"], passage.shown, settings.copied_words):
        return "words of the passage are copied"
    return ""


def writing_step(settings: DataSettings) -> Step[QuestionDraft]:
    """Return the step that writes a question, its answer and the bridge from each draft."""
    writer, wanted = _writer(settings), settings.write

    def work(draft: QuestionDraft) -> Asking:
        why = ""
        for attempt in range(wanted.attempts):
            first = _request(writer, draft)
            request = writer.again(first, attempt * _ROUND) if attempt else first
            written = yield from tries(writer, request, read_written)
            if written is None:
                why = "no question could be read"
            elif not written["question"]:
                return Outcome(dropped="nothing to ask about it")
            else:
                why = find_fault(written, draft.passage, wanted)
                if not why:
                    return Outcome(_value(draft, written))
        return Outcome(dropped=why)

    def key(draft: QuestionDraft) -> str:
        limits = (wanted.attempts, wanted.copied_words)
        return step_key(STEP, request=_request(writer, draft).key(), limits=limits, passage=draft.passage.id)

    return Step(STEP, lambda draft: draft.id, key, work=work)


def foresee_writing(settings: DataSettings, draft: QuestionDraft) -> list[Request]:
    """Return the requests about a draft if all goes well."""
    return [_request(_writer(settings), draft)]


def _writer(settings: DataSettings) -> AskedModel:
    return AskedModel.of(settings.writer, find_model(settings.writer), settings.ask.max_tokens)


def _request(writer: AskedModel, draft: QuestionDraft) -> Request:
    template = bundled("write_question", "r2med.training")
    return writer.request(template.fill(draft.asked | {"passage": draft.passage.shown}))


def _value(draft: QuestionDraft, written: Mapping[str, str]) -> dict[str, Any]:
    place = {"passage": draft.passage.id, "document": draft.passage.document}
    return {"id": draft.id, **written, **place, **draft.asked}
