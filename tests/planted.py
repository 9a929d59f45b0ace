"""Small tasks whose every answer is known, for the tests of diagnoses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.pipeline.loaded_runs import LoadedRun
from r2med.runs.ledger import Entry


def write_task(
    folder: Path,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    relevant: Mapping[str, Sequence[str]],
    answers: Mapping[str, str] | None = None,
) -> Path:
    """A task's folder in the benchmark's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = answers or {}

    def write(name: str, rows: list[dict[str, object]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("corpus.jsonl", [{"id": name, "text": text} for name, text in documents.items()])
    asked = [{"id": name, "text": text, "answer": answers.get(name)} for name, text in queries.items()]
    write("query.jsonl", [{name: value for name, value in row.items() if value is not None} for row in asked])
    judged = [{"q_id": q, "p_id": document, "score": 1} for q, several in relevant.items() for document in several]
    write("qrels.jsonl", judged)
    return folder


def opened(
    lists: Mapping[str, Sequence[str]], relevant: Mapping[str, Mapping[str, int]], system: str = "a"
) -> LoadedRun:
    """A run with these lists, opened beside a task with these judgements."""
    names = {name for several in lists.values() for name in several}
    names |= {name for grades in relevant.values() for name in grades}
    documents = Texts(sorted(names), [f"text of {name}" for name in sorted(names)])
    queries = Texts(list(relevant), [f"query {name}" for name in relevant])
    dataset = Dataset(Collection(Task("t", "t", "custom"), documents, queries), Gold(relevant))
    ranked = {q: (list(several), [float(-rank) for rank in range(len(several))]) for q, several in lists.items()}
    entry = Entry(f"key of {system}", system, "t", "custom", tuple(relevant), 1.0)
    return LoadedRun(entry, dataset, Run.from_lists(ranked), dict.fromkeys(relevant, 0.0), {})
