"""Builds for tests: the sample's questions and documents, and a model that answers every prompt of a build."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from r2med.construction.builder import init
from r2med.data.loader import load

TASK = "MedQA-Diag"
EASY, OTHER, CHOICE = "mqd-q02", "mqd-q03", "mqd-q04"
"""Questions of the sample that the model finds easy, of another intent, and that are made multiple choice."""


def sample():
    return load(f"sample/{TASK}")


def write_plan(folder: Path, model: str, **changes: Mapping[str, object]) -> Path:
    """A folder with the plan of a build of the sample; each change replaces settings of a table."""
    init(folder)
    dataset = sample()
    rows = []
    for name, text in dataset.collection.queries:
        row = {"id": name, "question": text, "answer": dataset.gold.answers[name]}
        if name == CHOICE:
            row["options"] = [dataset.gold.answers[name], "Gout", "Mumps"]
        rows.append(row)
    write_rows(folder / "questions.jsonl", rows)
    tables: dict[str, dict[str, object]] = {
        "questions": {"path": "questions.jsonl"},
        "documents": {"path": str(dataset.task.folder)},
        "chunk": {"tokens": 0},
        "intent": {"model": model},
        "difficulty": {"models": [model], "judge": model},
        "rewrite": {"model": model, "checker": model},
        "reason": {"model": model},
        "mine": {"depth": 4},
        "judge": {"models": [model]},
    }
    tables["questions"]["options"] = "options"
    for row in rows:
        row.setdefault("options", [])
    write_rows(folder / "questions.jsonl", rows)
    for name, settings in changes.items():
        tables[name] = tables.get(name, {}) | dict(settings)
    write_tables(folder, tables)
    return folder


def write_rows(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_tables(folder: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    lines = []
    for name, settings in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]
    (folder / "plan.toml").write_text("\n".join(lines), "utf-8")


def part(prompt: str, heading: str) -> str:
    """What stands in a prompt below a heading, up to the next empty line."""
    return re.search(rf"(?m)^{re.escape(heading)}\n(.*?)(?:\n\n|\Z)", prompt, re.DOTALL)[1]


def judgement(answers: int, supports: int, quote: str = "") -> str:
    return json.dumps({"answers": answers, "supports": supports, "reason": "It is so.", "quote": quote})


def brain() -> Callable[[str], str]:
    """What a model says to each prompt of a build of the sample, with judgements that are the sample's own."""
    dataset = sample()
    documents = {text: name for name, text in dataset.collection.documents}
    answers = {dataset.gold.answers[name]: name for name in dataset.collection.queries.ids}
    texts = dict(dataset.collection.queries)

    def answer(prompt: str) -> str:
        if prompt.startswith("Sort a medical question"):
            return "Class: other" if texts[OTHER] in prompt else "Class: diagnosis"
        if prompt.startswith("Answer the question below"):
            return dataset.gold.answers[EASY] if texts[EASY] in prompt else "I do not know"
        if prompt.startswith("Compare a response"):
            return "Verdict: yes" if "I do not know" not in prompt else "Verdict: no"
        if prompt.startswith("The exam question below"):
            return f"{texts[CHOICE]} Name it."
        if prompt.startswith("A question was rewritten"):
            return '{"gives_away": false, "same": true}'
        if prompt.startswith("You see a question"):
            return f"The findings lead to {part(prompt, 'Correct answer:')}."
        if prompt.startswith("You judge whether"):
            question = answers[part(prompt, "Correct answer:")]
            passage = part(prompt, "Passage:")
            good = documents[passage] in dataset.gold.qrels.get(question, {})
            return judgement(3, 3, " ".join(passage.split()[:5])) if good else judgement(0, 1, "never written")
        raise AssertionError(prompt)

    return answer


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
