"""Export of a review: judgements in three forms, all labels as CSV, and a new version of the task."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.task_names import task_names
from r2med.errors import R2medError, suggest
from r2med.reviews.labels import ResolvedLabels, resolve_labels, written_score
from r2med.reviews.progress import grades_by_item
from r2med.reviews.rows import ANSWER, MODEL, now
from r2med.reviews.store import ReviewStore
from r2med.store.files import draft_folder, unwritable, write_file

TASK, CSV = "task", "csv"
CHANGES, RECORD = "label_changes.csv", "review.json"
"""What changed, and how the labels were come by, in the folder of a new version."""


@dataclass(frozen=True)
class LabelExport:
    """Record of an export."""

    path: str
    form: str
    labels: int
    settings: Mapping[str, Any]
    fingerprint: str = ""
    """Of the new version of the task."""
    before: str = ""
    """Of the version that was reviewed."""
    changed: int = 0
    """Judgements that are other than they were."""
    added: int = 0
    """Pairs that nobody had judged."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the export in the shape of `--json`."""
        return asdict(self) | {"notes": list(self.notes)}


@dataclass(frozen=True)
class ExportSettings:
    """Settings for exporting labels."""

    form: str
    rule: str = "majority"
    reviewers: tuple[str, ...] = ()
    binary: bool = False
    task: str = ""
    """Which task of a review of several."""


def export_labels(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write the labels of a review."""
    if settings.form == CSV:
        return _export_csv(store, out, settings)
    task = _only_task(store, settings.task)
    if settings.form == TASK:
        return _export_task(store, out, task, settings)
    found = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary)
    rows = _rows(found, task)
    write_file(out, _FORMS[settings.form](rows), parents=True)
    return LabelExport(str(out), settings.form, len(rows), found.settings(), notes=_notes(found))


def _only_task(store: ReviewStore, wanted: str) -> str:
    names = list(store.project.data)
    if wanted and wanted not in names:
        raise R2medError(f"the review {store.project.name} has no task {wanted!r}{suggest(wanted, names)}")
    if not wanted and len(names) > 1:
        raise R2medError(f"the review {store.project.name} is of {len(names)} tasks; choose with --task {names[0]}")
    return wanted or names[0]


Row = tuple[str, str, int]
"""Query, document and score."""


def _rows(found: ResolvedLabels, task: str) -> list[Row]:
    mine = [label for label in found.labels if label.question.task == task]
    if not mine:
        raise R2medError(f"no item of {task} has a label yet")
    return [(label.question.query, label.item.document, label.score) for label in mine]


def _trec(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign.isspace() for sign in query + document):
            raise R2medError(f"TREC's format has no ids with blanks, such as {query!r} {document!r}; try --to r2med")
    return "".join(f"{query} 0 {document} {score}\n" for query, document, score in rows)


def _r2med(rows: Sequence[Row]) -> bytes:
    return _lines({"q_id": query, "p_id": document, "score": score} for query, document, score in rows)


def _beir(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign in "\t\r\n" for sign in query + document):
            raise R2medError(f"BEIR's format has no ids with tabs, such as {query!r} {document!r}; try --to r2med")
    return "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{score}\n" for q, d, score in rows)


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


_FORMS: Mapping[str, Callable[[Sequence[Row]], bytes | str]] = {"trec": _trec, "r2med": _r2med, "beir": _beir}
FORMS = (*_FORMS, CSV, TASK)
_OPEN = "the gold answer was in view of everybody who judged in this review"


def _notes(found: ResolvedLabels) -> tuple[str, ...]:
    opened = (_OPEN,) if found.open_answer else ()
    if not found.undecided:
        return opened
    items = "1 item is" if found.undecided == 1 else f"{found.undecided:,} items are"
    return (*opened, f"{items} left out: reviewers differ, nobody has ruled, and {found.rule} does not decide")


# -------------------------------------------------------------------------------------------------- every label

_COLUMNS = (
    *("task", "query_id", "doc_id", "reviewer", "kind", "score", "given", "drawn", "seconds", "created"),
    *("quote", "note", "revealed"),
)


def _export_csv(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write a row per standing grade; `score` is as in judgements, `given` on the scale of the review."""
    people = {each.id: each for each in store.reviewers()}
    items = {item.number: item for item in store.items()}
    questions = {each.number: each for each in store.questions()}
    held = store.standing()
    graded = grades_by_item(held)
    tasks = task_names(question.task for question in questions.values())
    rows: list[tuple[object, ...]] = []
    for row in held:
        if row.again or graded.get(row.item, {}).get(row.reviewer) is None:
            continue
        item, person = items[row.item], people[row.reviewer]
        question = questions[item.question]
        quote = item.text[row.span.start : row.span.end] if row.span else ""
        score = written_score(row.grade or 0, store.project.scale.relevant_from, binary=settings.binary)
        head = (tasks[question.task], question.query, item.document, person.name, person.kind, score, row.grade)
        seen = (ANSWER,) if person.kind == MODEL and question.answer else [each.what for each in row.revealed]
        rows.append((*head, item.drawn, row.seconds, row.created, _prose(quote), _prose(row.note), " ".join(seen)))
    for number, ruling in store.rulings().items():
        item, person = items[number], people[ruling.reviewer]
        question = questions[item.question]
        score = written_score(ruling.grade or 0, store.project.scale.relevant_from, binary=settings.binary)
        head = (tasks[question.task], question.query, item.document, person.name, person.role, score, ruling.grade)
        seen = [each.what for each in ruling.revealed]
        rows.append((*head, item.drawn, ruling.seconds, ruling.created, "", _prose(ruling.note), " ".join(seen)))
    if not rows:
        raise R2medError(f"nobody has graded an item of {store.project.name} yet")
    write_file(out, _csv_text(_COLUMNS, rows), parents=True)
    opened = store.project.open_answer
    chosen = {"binary": settings.binary, "open_answer": opened}
    return LabelExport(str(out), CSV, len(rows), chosen, notes=(_OPEN,) if opened else ())


def _csv_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()


def _prose(text: str) -> str:
    """Return a free text in one line, escaped so that a spreadsheet does not read it as a formula.

    >>> _prose("=HYPERLINK(1)"), _prose("two\\nlines")
    ("'=HYPERLINK(1)", 'two lines')
    """
    line = " ".join(text.split())
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line


# -------------------------------------------------------------------------------------------------- a new version


def _export_task(store: ReviewStore, out: Path, task: str, settings: ExportSettings) -> LabelExport:
    """Write the task with labels corrected by the review, into a folder that must not exist yet."""
    if out.exists() or out.is_symlink():
        raise R2medError(f"{out}: exists already; give another --out or remove it")
    dataset = load(task)
    if dataset.fingerprint != store.project.data[task]:
        raise R2medError(f"{task}: its data changed since the review was made; the labels are of other data")
    plain = max(grade for judged in dataset.gold.qrels.values() for grade in judged.values()) <= 1
    found = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary or plain)
    merged, changes = _merged(dataset, _rows(found, task))
    record = {
        "review": store.project.name,
        "task": task,
        "made": now(),
        "data": dataset.fingerprint,
        "scale": store.project.scale.as_dict(),
        **found.settings(),
    }
    _write_folder(out, dataset, merged, changes, record)
    made = load(out)
    new, other = (sum((row[2] is None) == fresh for row in changes) for fresh in (True, False))
    notes = (*_notes(found), *made.warnings)
    ends = (made.fingerprint, dataset.fingerprint, other, new, notes)
    return LabelExport(str(out), TASK, len(_rows(found, task)), found.settings(), *ends)


def _merged(dataset: Dataset, rows: Sequence[Row]) -> tuple[dict[str, dict[str, int]], list[tuple[Any, ...]]]:
    """Return the corrected judgements, and each change: query, document, before, after."""
    merged = {query: dict(judged) for query, judged in dataset.gold.qrels.items()}
    changes = []
    for query, document, score in rows:
        before = merged.setdefault(query, {}).get(document)
        if before != score:
            changes.append((query, document, before, score))
        merged[query][document] = score
    return merged, changes


def _write_folder(
    out: Path,
    dataset: Dataset,
    merged: Mapping[str, Mapping[str, int]],
    changes: Sequence[tuple[Any, ...]],
    record: Mapping[str, Any],
) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(out.parent, out.name) as draft:
            for name, content in _files(dataset, merged, changes, record):
                (draft / name).write_bytes(content)
            draft.rename(out)
    except OSError as error:
        raise unwritable(out, error) from error


def _files(
    dataset: Dataset,
    merged: Mapping[str, Mapping[str, int]],
    changes: Sequence[tuple[Any, ...]],
    record: Mapping[str, Any],
) -> Iterable[tuple[str, bytes]]:
    collection = dataset.collection
    yield "corpus.jsonl", _lines({"id": name, "text": text} for name, text in collection.documents)
    yield "query.jsonl", _lines(_query_row(dataset, name, text) for name, text in collection.queries)
    rows = [(query, document, score) for query, judged in merged.items() for document, score in judged.items()]
    yield "qrels.jsonl", _r2med(rows)
    yield CHANGES, _csv_text(("query_id", "doc_id", "before", "after"), changes).encode()
    yield RECORD, orjson.dumps(record, option=orjson.OPT_INDENT_2) + b"\n"
    folder = dataset.task.folder
    if folder and (folder / "task.toml").is_file():
        yield "task.toml", (folder / "task.toml").read_bytes()


def _query_row(dataset: Dataset, name: str, text: str) -> dict[str, Any]:
    gold = dataset.gold
    known = {
        "answer": gold.answers.get(name),
        "reasoning": gold.reasoning.get(name),
        "synonyms": gold.synonyms.get(name),
    }
    return {"id": name, "text": text} | {key: value for key, value in known.items() if value}
