"""Import of labels from other tools as reviewers: judgements, CSV, exports of Label Studio and of Argilla."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from r2med.data.formats import DOCUMENT_FIELDS, QUERY_FIELDS
from r2med.data.labels import judged_qrels
from r2med.data.qrels import read_label_rows
from r2med.data.task_names import task_names
from r2med.errors import DataError, R2medError
from r2med.formatting import counted, shorten
from r2med.reviews.labels import written_score
from r2med.reviews.rows import GRADED, IMPORTED, MODEL, PERSON, REVEALS, DraftDecision, Revealed
from r2med.reviews.scale import GradeScale
from r2med.reviews.store import ReviewStore
from r2med.store.files import expanded, reason

OF_JUDGEMENTS, OF_REVIEW = "judgements", "review"  # the scales that the numbers of a file may be on
KINDS = (PERSON, MODEL)  # what labels can be said to come from


class ForeignLabel(NamedTuple):
    """A label as it is in the file; task and kind of reviewer are empty if the file does not name them."""

    who: str
    query: str
    document: str
    value: object
    note: str
    place: str  # where it stands in the file, for messages
    task: str = ""
    kind: str = ""
    is_score: bool = False  # whether the value is that of judgements, which may not be on the scale of the review
    revealed: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedLabels:
    """Result of an import."""

    reviewers: Mapping[str, int]  # Reviewer to the labels that came in under this name.
    written: int  # Decisions that were not there before.
    unknown: int  # Labels of pairs that are not items of the review.
    first_unknown: str
    skipped: int  # Answers that their tool calls cancelled, discarded or a draft.


@dataclass(frozen=True)
class ImportSettings:
    """Settings for reading a file of labels, by the options of `r2med review import`."""

    name: str  # the name of the reviewer; with several in the file, the beginning of their names
    grades: Mapping[str, int]  # the values of the file with the grades that they mean
    question: str = ""
    task: str = ""
    scale: str = ""
    kind: str = ""


def import_labels(store: ReviewStore, path: Path, settings: ImportSettings) -> ImportedLabels:
    """Read a file of labels into a project."""
    skipped: list[str] = []
    labels = list(foreign_labels(expanded(path), settings.question, skipped))
    project = store.project
    if settings.task and settings.task not in project.data:
        raise R2medError(f"the review {project.name} has no task {settings.task!r}; it has {', '.join(project.data)}")
    matched, unknown = _match_items(path, store, labels, settings.task)
    if not matched:
        first = f"; its first is {_pair(unknown[0])}" if unknown else ""
        raise DataError(f"{path}: labels no item of {project.name}{first}")
    grades = settings.grades or _meanings(path, [label for label, _ in matched], store, settings.scale)
    drafts: dict[str, dict[int, DraftDecision]] = {}
    kinds: dict[str, str] = {}
    several = len({label.who for label, _ in matched}) > 1
    for label, number in matched:
        name = f"{settings.name}: {label.who}" if several else settings.name
        seen = tuple(Revealed(what, "") for what in label.revealed)
        draft = DraftDecision(GRADED, _grade(path, label, project.scale, grades), note=label.note, revealed=seen)
        before = drafts.setdefault(name, {}).setdefault(number, draft)
        if before.grade != draft.grade:
            raise DataError(
                f"{path}: {label.place}: {_pair(label)} is labelled twice, {before.grade} and {draft.grade}"
            )
        if project.aspects and label.aspects:
            names = store.aspects_of(store.question(store.item(number).question))
            if unasked := [aspect for aspect in label.aspects if aspect not in names]:
                raise DataError(f"{path}: {label.place}: {_pair(label)} has no aspect {unasked[0]!r} here")
            covered = tuple(dict.fromkeys([*(before.aspects or ()), *label.aspects]))
            drafts[name][number] = replace(before, aspects=covered)
        kinds.setdefault(name, settings.kind or label.kind or IMPORTED)
    for reviewer in store.reviewers():
        if reviewer.name in kinds and "file" not in reviewer.settings:
            raise R2medError(f"{reviewer.name} judges in {project.name} already; choose another name with --as")
    written = 0
    for name, by_item in drafts.items():
        reviewer = store.add_reviewer(name, kinds[name], settings={"file": path.name})
        written += store.record_all(reviewer.id, by_item.items())
    first = f"{unknown[0].place}: {_pair(unknown[0])}" if unknown else ""
    counts = {name: len(by_item) for name, by_item in drafts.items()}
    return ImportedLabels(counts, written, len(unknown), first, len(skipped))


def _pair(label: ForeignLabel) -> str:
    return f"query {shorten(label.query)!r} with document {shorten(label.document)!r}"


def _match_items(
    path: Path, store: ReviewStore, labels: Sequence[ForeignLabel], task: str
) -> tuple[list[tuple[ForeignLabel, int]], list[ForeignLabel]]:
    """Return labels with their items, and those of no item; a file may name the task of a review, in full or short."""
    questions = {question.number: question for question in store.questions() if task in ("", question.task)}
    items: dict[tuple[str, str], dict[str, int]] = {}
    for item in store.items():
        if item.question in questions:
            question = questions[item.question]
            items.setdefault((question.query, item.document), {})[question.task] = item.number
    tasks = {name: full for full, short in task_names(store.project.data).items() for name in (short, full)}
    matched, unknown = [], []
    for label in labels:
        by_task, named = items.get((label.query, label.document), {}), tasks.get(label.task)
        numbers = [number for full, number in by_task.items() if named in (None, full)]
        if len(numbers) > 1:
            raise DataError(f"{path}: {label.place}: {_pair(label)} is in {len(numbers)} tasks; name one with --task")
        matched += [(label, number) for number in numbers]
        unknown += [] if numbers else [label]
    return matched, unknown


def _meanings(path: Path, labels: Sequence[ForeignLabel], store: ReviewStore, given_scale: str) -> Mapping[str, int]:
    """Return the meaning of the numbers in a file by the scale that they are on.

    Judgements call 1 relevant, whatever a review calls its grade 1. Where the numbers would mean other grades as
    judgements than on the scale of the review, and could be either, the scale must be named.
    """
    scale, name = store.project.scale, store.project.name
    scores = {int(str(label.value)) for label in labels if label.is_score}
    meanings = {written_score(grade, scale.relevant_from): grade for grade in reversed(scale.values)}
    unlike = sorted(score for score in scores if meanings.get(score) != score)
    beyond = sorted(scores - set(meanings))
    if given_scale == OF_REVIEW or not unlike or (beyond and given_scale != OF_JUDGEMENTS):
        return {}
    if beyond:
        raise DataError(f"{path}: {beyond[0]} is beyond the judgements of {name}, which end at {max(meanings)}")
    if given_scale == OF_JUDGEMENTS or not scores <= set(scale.values):
        return {str(score): grade for score, grade in meanings.items()}
    score = unlike[0]
    raise DataError(
        f"{path}: {score} may be that of judgements ({scale.grade(meanings[score]).name} here) or a grade of"
        f" {name} ({scale.grade(score).name}); say which: --scale {OF_JUDGEMENTS} or --scale {OF_REVIEW}"
    )


def _grade(path: Path, label: ForeignLabel, scale: GradeScale, grades: Mapping[str, int]) -> int:
    """Return the grade of a value: by --grades, as a number of the scale, or by the name of a grade."""
    text = str(label.value).strip()
    names = {grade.name.casefold(): grade.value for grade in scale.grades}
    number = int(float(text)) if re.fullmatch(r"-?\d+(\.0*)?", text) else None
    grade = grades.get(text, grades.get(str(number), names.get(text.casefold()) if number is None else number))
    if grade is None or grade not in scale.values:
        grades_text = ", ".join(map(str, scale.values))
        raise DataError(
            f"{path}: {label.place}: {shorten(text)!r} is not a grade of the scale ({grades_text});"
            f" say what it means: --grades {text.split()[0] if text else 'X'}={scale.values[-1]}"
        )
    return grade


def parse_grades(text: str) -> dict[str, int]:
    """Parse the option `--grades`.

    >>> parse_grades("0=0, 1=2,yes=3")
    {'0': 0, '1': 2, 'yes': 3}
    """
    grades = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(.*\S)\s*=\s*(\d+)", part)
        if not match:
            raise R2medError(f"--grades takes pairs such as 0=0,1=2, not {part!r}")
        grades[match[1]] = int(match[2])
    return grades


def foreign_labels(path: Path, question: str, skipped: list[str]) -> Iterator[ForeignLabel]:
    """Yield the labels of a file of any kind; the places of answers without a label are added to `skipped`."""
    records = list(_records(path))
    if any("annotations" in record or "completions" in record for _, record in records):
        read = _label_studio
    elif any("responses" in record for _, record in records):
        read = _argilla
    else:
        yield from _judgements(path)
        return
    for place, record in records:
        query, document = _ids(path, place, *(record.get(name) for name in ("data", "fields", "metadata")))
        for who, answers, note in read(record, place, skipped):
            value = _answer(path, place, answers, question)
            if value is None:
                skipped.append(place)
            else:
                yield ForeignLabel(who, query, document, value, note, place)


def _judgements(path: Path) -> Iterator[ForeignLabel]:
    """Yield the labels of a file of judgements: the grade as given, if it has that column of our CSV."""
    built = judged_qrels(path)
    if built is not None:
        for query, judged in built.items():
            for document, score in judged.items():
                yield ForeignLabel("", query, document, score, "", f"{query} {document}", kind=MODEL, is_score=True)
        return
    for row in read_label_rows(path):
        columns = {str(name).strip().casefold(): value for name, value in row.columns.items()}
        task, kind, note, seen = (str(columns.get(name) or "") for name in ("task", "kind", "note", "revealed"))
        kind = kind if kind in KINDS else ""
        revealed = tuple(what for what in dict.fromkeys(seen.split()) if what in REVEALS)
        is_score = columns.get("given") in (None, "")
        value, place = row.grade if is_score else columns["given"], f"{row.query} {row.document}"
        facts = (value, note, place, task, kind, is_score, revealed)
        named = [*map(str, _json_list(columns.get("aspects"))), row.aspect]
        yield ForeignLabel(row.reviewer, row.query, row.document, *facts, tuple(filter(None, named)))


def _json_list(cell: object) -> list[object]:
    try:
        value = orjson.loads(cell) if isinstance(cell, str) and cell else []
    except orjson.JSONDecodeError:
        return []
    return value if isinstance(value, list) else []


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON file, a list or one per line, with their places; nothing for other files."""
    if path.is_dir() or path.suffix == ".parquet" or path.name.endswith(".gz"):
        return
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}") from error
    first = content.lstrip()[:1]
    parts = {b"[": [content], b"{": content.split(b"\n")}.get(first, [])
    for line, part in enumerate(parts, 1):
        try:
            value = orjson.loads(part) if part.strip() else []
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}:{line + error.lineno - 1}: not JSON: {error.msg}") from error
        for number, record in enumerate(value if isinstance(value, list) else [value], 1):
            place = f"entry {number}" if first == b"[" else f"line {line}"
            if not isinstance(record, dict):
                raise DataError(f"{path}: {place} is not an object")
            yield place, record


def _ids(path: Path, place: str, *tables: object) -> tuple[str, str]:
    """Return query and document of a record, by the names that judgements have for them."""
    merged = {str(key).casefold(): value for table in tables for key, value in _table(table).items()}

    def find(what: str, fields: Sequence[str]) -> str:
        for name in fields:
            if merged.get(name) not in (None, ""):
                return str(merged[name])
        raise DataError(f"{path}: {place}: no {what} id ({', '.join(fields[:3])}) in its data")

    return find("query", QUERY_FIELDS), find("document", DOCUMENT_FIELDS)


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _answer(path: Path, place: str, answers: Mapping[str, object], question: str) -> object:
    """Return the answer to the question that holds the grade; None if there is no answer."""
    named = {name: value for name, value in answers.items() if question in ("", name)}
    if answers and not named:
        raise DataError(f"{path}: {place}: has no question {question!r}; it has {', '.join(answers)}")
    if len(named) > 1:
        raise DataError(f"{path}: {place}: answers {', '.join(named)}; say which is the grade: --question NAME")
    value = next(iter(named.values()), None)
    choices = value if isinstance(value, list) else [value]
    if len(choices) > 1:
        raise DataError(f"{path}: {place}: has {counted(len(choices), 'choice')} where a grade is one")
    return next(iter(choices), None)


_Answers = Iterator[tuple[str, dict[str, object], str]]  # user, answers by question, and note


def _label_studio(record: Mapping[str, Any], place: str, skipped: list[str]) -> _Answers:
    """Yield the annotations of a task of Label Studio: a rating, a number or a choice each."""
    for annotation in _tables(record.get("annotations") or record.get("completions")):
        if annotation.get("was_cancelled"):
            skipped.append(place)
            continue
        answers, notes = {}, []
        for region in _tables(annotation.get("result")):
            kind, value = region.get("type"), _table(region.get("value"))
            if kind in ("choices", "rating", "number"):
                answers[str(region.get("from_name"))] = value.get(kind)
            elif kind == "textarea":
                texts = value.get("text")
                notes += list(map(str, texts)) if isinstance(texts, list) else [str(texts)]
        who = annotation.get("completed_by")
        who = who.get("email") or who.get("id") if isinstance(who, dict) else "" if who is None else who
        yield str(who), answers, " ".join(notes)


def _argilla(record: Mapping[str, Any], place: str, skipped: list[str]) -> _Answers:
    """Yield the responses of a record of Argilla: by question as in version 2, or by user as in version 1."""
    responses = record.get("responses")
    flat = [(answer, name, answer) for name, answers in _table(responses).items() for answer in _tables(answers)]
    flat += [(user, name, value) for user in _tables(responses) for name, value in _table(user.get("values")).items()]
    by_user: dict[str, dict[str, object]] = {}
    for response, name, answer in flat:
        if response.get("status") in ("discarded", "draft", "pending"):
            skipped.append(place)
        else:
            value = answer.get("value") if isinstance(answer, dict) else answer
            by_user.setdefault(str(response.get("user_id") or ""), {})[str(name)] = value
    yield from ((who, answers, "") for who, answers in by_user.items())
