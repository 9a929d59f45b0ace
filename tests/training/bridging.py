"""Documents about made-up diseases, two of each, and a model that writes questions from one and judges the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

from r2med.construction.items import Passage, Question
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.models.http import AttemptError
from r2med.training.negatives import DEV, TRAIN, JudgedPassage, TrainingQuestion
from r2med.training.rows import RowProvenance, training_frame, write_training_file

SIGNS = (
    "rash", "fever", "cough", "tremor", "goitre", "ascites", "vertigo", "stridor", "jaundice", "pallor",
    "clubbing", "oedema",
)  # fmt: skip


def name(number: int) -> str:
    return f"{SIGNS[number].capitalize()}son disease"


def document(number: int, kind: str) -> str:
    sign = SIGNS[number]
    if kind == "cause":
        head = f"{name(number)} arises when the {sign} gene is lost, which shows itself as {sign} in the young."
    else:
        head = f"Treatment of {name(number)} replaces the missing product; the {sign} then recedes within weeks."
    rest = " ".join(f"{kind}{number}word{place}" for place in range(24))
    return f"{head} {rest}. Nothing else is known about its course so far."


def write_documents(folder: Path, count: int = len(SIGNS)) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        for kind in ("cause", "therapy"):
            (folder / f"{SIGNS[number]}-{kind}.txt").write_text(document(number, kind))
    return folder


class Brain:
    """A model that writes, judges and types, and counts what it is asked."""

    def __init__(self, label: str = "thinker") -> None:
        self.asked: list[str] = []
        self.mute = ""
        """No question is written about this sign."""
        self.down = ""
        """The server fails when it is asked about this sign."""
        self.bad: list[str] = []
        """Replies that are given before a proper one is written."""
        add_model(scripted(self._answer, label))

    def _answer(self, request: Request) -> str:
        prompt = request.messages[-1].content
        self.asked.append(prompt)
        if prompt.startswith("Read the passage"):
            return self.bad.pop() if self.bad else self._written(prompt)
        if prompt.startswith("You judge whether"):
            return self._judged(prompt)
        if prompt.startswith("A passage was found"):
            return f"Class: {'same-topic' if 'Treatment of' in prompt.rpartition('Passage:')[2] else 'same-symptoms'}"
        raise AssertionError(prompt)

    def _written(self, prompt: str) -> str:
        sign = next(sign for sign in SIGNS if f"{sign.capitalize()}son" in prompt)
        if sign == self.down:
            raise AttemptError("out of order", retry=False)
        if sign == self.mute:
            return "I would rather not."
        return json.dumps(
            {
                "question": f"A child has had {sign} for weeks, like a brother of hers. What would help?",
                "answer": f"{sign.capitalize()}son disease, replacement",
                "bridge": f"{sign} in siblings suggests an inherited defect. What is missing can be replaced.",
            }
        )

    def _judged(self, prompt: str) -> str:
        answer = re.search(r"Correct answer:\n(\w+)", prompt)[1]
        passage = prompt.partition("\nPassage:\n")[2].partition("\n\nGive two grades")[0]
        if answer in passage:
            return '{"answers": 3, "supports": 3, "reason": "It is about it.", "quote": ""}'
        grade = 1 if "Treatment of" in passage else 0
        return json.dumps({"answers": 0, "supports": grade, "reason": "Another disease.", "quote": ""})


def training_file(path: Path, count: int = len(SIGNS), dev: int = 3) -> Path:
    """A file of training data about the first so many diseases, the last of them held out."""
    passages = {
        (number, kind): Passage(f"{SIGNS[number]}-{kind}", "", document(number, kind), SIGNS[number], "", 0, 1)
        for number in range(count)
        for kind in ("cause", "therapy")
    }

    def row(number: int) -> TrainingQuestion:
        sign = SIGNS[number]
        question = Question(
            f"{sign}~q", "", sign, (), (sign,), f"A child has {sign}. What helps?", "", f"{sign} is lost."
        )
        others = [
            JudgedPassage(passages[n, "cause"], 0.1 if n % 2 else 0.0, n + 1) for n in range(count) if n != number
        ]
        part = DEV if number >= count - dev else TRAIN
        return TrainingQuestion(question, [JudgedPassage(passages[number, "therapy"], 1.0, 1)], others, part)

    frame = training_frame([row(number) for number in range(count)], RowProvenance("made up", "", ("nobody",), "CC0"))
    record = {"origin": "made up", "licence": "CC0", "rows": {}, "leakage": {"checked": ["sample/Biology"]}}
    write_training_file(path, frame, record)
    return path
