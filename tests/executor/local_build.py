"""A build whose writer and judge is the real small model, which copies the judgement that it is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.llm import distributed as spread_answers
from r2med.llm.cards import add_model, find_model
from r2med.llm.types import Sampling

_GRADES = '{"answers": 2, "supports": 3}'
_JUDGE = f"""
Grades in JSON: {_GRADES}
Text: {{question}} {{answer}} {{passage}} {{guideline}} {{low}} to {{high}}.
Grades in JSON: {_GRADES}
Write the grades in JSON again.
"""
_REASON = "{question} {answer}"
_DOCUMENTS = {
    "scurvy": "Gums bleed at night when vitamin C is missing.",
    "gout": "Crystals of uric acid swell a toe at night.",
}
_QUESTIONS = {
    "q1": ("A sailor's gums bleed at night after months at sea, why?", "Vitamin C"),
    "q2": ("A man wakes at night with a swollen toe, why?", "Uric acid"),
}
_PLAN = """
[questions]
path = "questions.jsonl"
[documents]
path = "documents"
[reason]
model = "local"
[mine]
depth = 1
views = ["question", "answer"]
[judge]
models = ["local"]
[prompts]
judge = "judge.txt"
reason = "reason.txt"
"""


def terse_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `local` write few tokens with one thread, as workers do, and send each request as a block of its own."""
    monkeypatch.setenv("R2MED_THREADS", "1")
    add_model(replace(find_model("local"), sampling=Sampling(0.7, None, 42, 16)))
    monkeypatch.setattr(spread_answers, "_BLOCK_TOKENS", 1)


def write_build(folder: Path) -> Path:
    """The folder of a plan, with its questions and documents."""
    (folder / "documents").mkdir(parents=True)
    for name, text in _DOCUMENTS.items():
        (folder / "documents" / f"{name}.txt").write_text(text)
    rows = [{"id": name, "question": text, "answer": answer} for name, (text, answer) in _QUESTIONS.items()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "guideline.md").write_text("Be fair.")
    (folder / "judge.txt").write_text(_JUDGE)
    (folder / "reason.txt").write_text(_REASON)
    (folder / "plan.toml").write_text(_PLAN)
    return folder


def made_files(folder: Path) -> dict[str, bytes]:
    """Every file of the task that was made."""
    found = {
        str(file.relative_to(folder)): file.read_bytes() for file in (folder / "task").rglob("*") if file.is_file()
    }
    assert found, "there is a task"
    return found
