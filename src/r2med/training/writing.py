"""Writing questions from passages, so that the answer must be inferred; the inference, the bridge, is recorded.

A question that gives its answer away or copies its passage is asked for again, and dropped after the last attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.construction.items import Passage, Question
from r2med.lexical.segmentation import count_tokens
from r2med.llm.items import Outcome
from r2med.llm.parsing import read_object
from r2med.llm.steps import Asking, Step, step_key, tries
from r2med.llm.types import Request
from r2med.measure.answers import matches, normalise_answer
from r2med.models.templates import bundled
from r2med.store.hashes import seeded_hash
from r2med.training.settings import DataSettings, WriteSettings

_ROUND = 100  # samples of each attempt are numbered from a multiple of this
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
        return Question(self.id, text, "a condition", (), (self.passage.document,), text, reasoning=_STAND_IN * 4)


def draw_drafts(passages: Sequence[Passage], settings: WriteSettings) -> list[QuestionDraft]:
    """Return the passages to write from, in an order that depends only on the seed and their ids."""
    lists = (settings.lengths, settings.styles, settings.difficulties)

    def draw(passage: Passage, number: int = 0) -> int:
        return int.from_bytes(seeded_hash(settings.seed, f"{number}\t{passage.id}"), "big")

    usable = [passage for passage in passages if count_tokens(passage.text) >= settings.min_tokens]
    usable.sort(key=draw)
    return [
        QuestionDraft(passage, *(texts[draw(passage, n) % len(texts)] for n, texts in enumerate(lists, 1)))
        for passage in usable[: settings.questions or None]
    ]


def read_written(text: str) -> dict[str, str] | None:
    """Read question, answer and bridge of a reply; None if one is missing, unless the question is empty.

    >>> read_written('{"question": "Why  so?", "answer": "Scurvy", "bridge": "No vitamin C."}')
    {'question': 'Why so?', 'answer': 'Scurvy', 'bridge': 'No vitamin C.'}
    """
    value = read_object(text)
    if value is None or not isinstance(value.get("question"), str):
        return None
    texts = {name: " ".join(str(value.get(name) or "").split()) for name in ("question", "answer", "bridge")}
    return texts if all(texts.values()) or not texts["question"] else None


def copied_run(question: str, passage: str, words: int) -> str:
    """Return the first n-gram that a question shares with its passage; empty if there is none.

    >>> copied_run("Why do gums bleed so easily?", "In scurvy the gums bleed so easily.", 4)
    'gums bleed so easily'
    """
    asked, source = normalise_answer(question).split(), f" {normalise_answer(passage)} "
    runs = (" ".join(asked[start : start + words]) for start in range(len(asked) - words + 1))
    return next((run for run in runs if f" {run} " in source), "")


def find_fault(written: Mapping[str, str], passage: Passage, settings: WriteSettings) -> str:
    """Return the reason why a written question cannot be used; empty if it can."""
    if matches(written["question"], written["answer"])[1]:
        return "the answer is given away"
    if copied_run(written["question"], passage.shown, settings.copied_words):
        return "words of the passage are copied"
    return ""


class Writing:
    """The step that writes a question, its answer and the bridge from each draft."""

    def __init__(self, settings: DataSettings) -> None:
        self._settings, self._writer = settings.write, settings.asked()
        self._template = bundled("write_question", "r2med.training")

    @property
    def step(self) -> Step[QuestionDraft]:
        """Return the step in the form in which it is run and priced."""

        def key(draft: QuestionDraft) -> str:
            limits = (self._settings.attempts, self._settings.copied_words)
            return step_key("write", request=self.requests(draft)[0].key(), limits=limits, passage=draft.passage.id)

        return Step("write", lambda draft: draft.id, key, work=self._work)

    def requests(self, draft: QuestionDraft) -> list[Request]:
        """Return the requests about a draft if all goes well."""
        return [self._writer.request(self._template.fill(draft.asked | {"passage": draft.passage.shown}))]

    def _work(self, draft: QuestionDraft) -> Asking:
        why = ""
        for attempt in range(self._settings.attempts):
            written = yield from tries(self._writer, self.requests(draft)[0], read_written, attempt * _ROUND)
            if written is None:
                why = "no question could be read"
            elif not written["question"]:
                return Outcome(dropped="nothing to ask about it")
            else:
                why = find_fault(written, draft.passage, self._settings)
                if not why:
                    place = {"passage": draft.passage.id, "document": draft.passage.document}
                    return Outcome({"id": draft.id, **written, **place, **draft.asked})
        return Outcome(dropped=why)
