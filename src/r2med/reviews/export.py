"""Export of a review: judgements in three forms, all labels as CSV, and a new version of the task."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.data.loader import load
from r2med.data.task_names import task_names
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.reviews.labels import ResolvedLabels, resolve_labels, written_score
from r2med.reviews.rows import ANSWER, GRADED, MODEL, Decision, Ruling, now
from r2med.reviews.store import ReviewStore
from r2med.store.files import draft_folder, unwritable, write_file
from r2med.store.typed import json_bytes, json_lines

TASK, CSV = "task", "csv"
CHANGES, RECORD = "label_changes.csv", "review.json"
"""Files in the folder of a new version: every change, and where the labels come from."""


@dataclass(frozen=True)
class LabelExport:
    """Record of an export."""

    path: str
    form: str
    labels: int
    settings: Mapping[str, Any]
    fingerprint: str = ""  # Of the new version of the task.
    before: str = ""  # Of the version that was reviewed.
    changed: int = 0  # Judgements with another grade than before.
    added: int = 0  # Pairs that were not judged.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportSettings:
    """Settings for exporting labels."""

    form: str
    rule: str = "majority"
    reviewers: tuple[str, ...] = ()
    binary: bool = False
    task: str = ""  # which task of a review of several


def export_labels(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write the labels of a review."""
    if settings.form == CSV:
        return _export_csv(store, out, settings)
    tasks = list(store.project.data)
    task, review = settings.task or tasks[0], f"the review {store.project.name}"
    if task not in tasks:
        raise R2medError(f"{review} has no task {task!r}{suggest(task, tasks)}")
    if not settings.task and len(tasks) > 1:
        raise R2medError(f"{review} is of {len(tasks)} tasks; choose with --task {task}")
    if settings.form == TASK:
        return _export_task(store, out, task, settings)
    resolved = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary)
    rows = _rows(resolved, task)
    write_file(out, _FORMS[settings.form](rows), parents=True)
    return LabelExport(str(out), settings.form, len(rows), resolved.settings(), notes=_notes(resolved))


Row = tuple[str, str, int]  # query, document and score


def _rows(resolved: ResolvedLabels, task: str) -> list[Row]:
    labels = [label for label in resolved.labels if label.question.task == task]
    if not labels:
        raise R2medError(f"no item of {task} has a label yet")
    return [(label.question.query, label.item.document, label.score) for label in labels]


def _trec(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign.isspace() for sign in query + document):
            raise R2medError(f"TREC's format has no ids with blanks, such as {query!r} {document!r}; try --to r2med")
    return "".join(f"{query} 0 {document} {score}\n" for query, document, score in rows)


def _r2med(rows: Sequence[Row]) -> bytes:
    return json_lines({"q_id": query, "p_id": document, "score": score} for query, document, score in rows)


def _beir(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign in "\t\r\n" for sign in query + document):
            raise R2medError(f"BEIR's format has no ids with tabs, such as {query!r} {document!r}; try --to r2med")
    return "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{score}\n" for q, d, score in rows)


_FORMS: Mapping[str, Callable[[Sequence[Row]], bytes | str]] = {"trec": _trec, "r2med": _r2med, "beir": _beir}
FORMS = (*_FORMS, CSV, TASK)
_OPEN = "the gold answer was in view of everybody who judged in this review"


def _notes(resolved: ResolvedLabels) -> tuple[str, ...]:
    opened = (_OPEN,) if resolved.open_answer else ()
    if not resolved.undecided:
        return opened
    items = counted(resolved.undecided, "item is", "items are")
    return (*opened, f"{items} left out: reviewers differ, nobody has ruled, and {resolved.rule} does not decide")


_COLUMNS = "task query_id doc_id reviewer kind score given drawn seconds created quote note revealed".split()


def _export_csv(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write a row per standing grade; `score` is as in judgements, `given` on the scale of the review."""
    reviewers = {reviewer.id: reviewer for reviewer in store.reviewers()}
    items = {item.number: item for item in store.items()}
    questions = {question.number: question for question in store.questions()}
    tasks = task_names(question.task for question in questions.values())
    graded: list[Decision | Ruling] = [row for row in store.standing() if row.verdict == GRADED and not row.again]
    rows: list[tuple[object, ...]] = []
    for row in graded + list(store.rulings().values()):
        item, reviewer, grade = items[row.item], reviewers[row.reviewer], row.grade or 0
        question = questions[item.question]
        score = written_score(grade, store.project.scale.relevant_from, binary=settings.binary)
        seen = [fact.what for fact in row.revealed]
        kind, quote = reviewer.role, ""
        if isinstance(row, Decision):
            kind, quote = reviewer.kind, item.text[slice(*row.span)] if row.span else ""
            seen = [ANSWER] if kind == MODEL and question.answer else seen
        head = (tasks[question.task], question.query, item.document, reviewer.name, kind, score, grade, item.drawn)
        rows.append((*head, row.seconds, row.created, _prose(quote), _prose(row.note), " ".join(seen)))
    if not rows:
        raise R2medError(f"nobody has graded an item of {store.project.name} yet")
    write_file(out, _csv_text(_COLUMNS, *rows), parents=True)
    opened = store.project.open_answer
    facts = {"binary": settings.binary, "open_answer": opened}
    return LabelExport(str(out), CSV, len(rows), facts, notes=(_OPEN,) if opened else ())


def _csv_text(*rows: Sequence[object]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _prose(text: str) -> str:
    """Return a free text in one line, escaped so that a spreadsheet does not read it as a formula.

    >>> _prose("=HYPERLINK(1)"), _prose("two\\nlines")
    ("'=HYPERLINK(1)", 'two lines')
    """
    line = " ".join(text.split())
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line


def _export_task(store: ReviewStore, out: Path, task: str, settings: ExportSettings) -> LabelExport:
    """Write the task with labels corrected by the review, into a folder that must not exist yet."""
    if out.exists() or out.is_symlink():
        raise R2medError(f"{out}: exists already; give another --out or remove it")
    dataset = load(task)
    if dataset.fingerprint != store.project.data[task]:
        raise R2medError(f"{task}: its data changed since the review was made; the labels are of other data")
    merged = {query: dict(judged) for query, judged in dataset.gold.qrels.items()}
    plain = max(grade for judged in merged.values() for grade in judged.values()) <= 1
    resolved = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary or plain)
    rows = _rows(resolved, task)
    changes = []
    for query, document, score in rows:
        before = merged.setdefault(query, {}).get(document)
        if before != score:
            changes.append((query, document, before, score))
        merged[query][document] = score
    facts = {"review": store.project.name, "task": task, "made": now(), "data": dataset.fingerprint}
    record = {**facts, "scale": store.project.scale, **resolved.settings()}
    gold = {"answer": dataset.gold.answers, "reasoning": dataset.gold.reasoning, "synonyms": dataset.gold.synonyms}
    queries = [
        {"id": query, "text": text} | {name: table[query] for name, table in gold.items() if table.get(query)}
        for query, text in dataset.collection.queries
    ]
    qrels = [(query, document, score) for query, judged in merged.items() for document, score in judged.items()]
    files = {
        "corpus.jsonl": json_lines({"id": name, "text": text} for name, text in dataset.collection.documents),
        "query.jsonl": json_lines(queries),
        "qrels.jsonl": _r2med(qrels),
        CHANGES: _csv_text(("query_id", "doc_id", "before", "after"), *changes).encode(),
        RECORD: json_bytes(record, indent=2),
    }
    if (folder := dataset.task.folder) and (folder / "task.toml").is_file():
        files["task.toml"] = (folder / "task.toml").read_bytes()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(out.parent, out.name) as draft:
            for name, content in files.items():
                (draft / name).write_bytes(content)
            draft.rename(out)
    except OSError as error:
        raise unwritable(out, error) from error
    written = load(out)
    added = sum(before is None for _, _, before, _ in changes)
    versions = (written.fingerprint, dataset.fingerprint, len(changes) - added, added)
    notes = (*_notes(resolved), *written.warnings)
    return LabelExport(str(out), TASK, len(rows), resolved.settings(), *versions, notes)
