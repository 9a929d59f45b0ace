"""Labels that were made elsewhere come in as reviewers: judgements, CSV, exports of Label Studio and of Argilla."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from r2med.data.qrels import DOCUMENT_FIELDS, QUERY_FIELDS, read_label_sets
from r2med.data.rows import shorten
from r2med.errors import DataError, R2medError, counted
from r2med.review.grading_scale import GradeScale
from r2med.review.review_rows import GRADED, IMPORTED, DraftDecision
from r2med.review.review_store import ReviewStore
from r2med.storage.files import expanded, reason

_SKIPPED = ("discarded", "draft", "pending")
"""What Argilla calls an answer that is none."""


class ForeignLabel(NamedTuple):
    """A label as a file has it."""

    who: str
    query: str
    document: str
    value: object
    note: str
    place: str
    """Where it stands in the file, for messages."""


@dataclass(frozen=True)
class ImportedLabels:
    """What came of an import."""

    reviewers: Mapping[str, int]
    """Reviewer to the labels that came in under this name."""
    written: int
    """Decisions that were not there before."""
    unknown: int
    """Labels of pairs that are no items of the review."""
    first_unknown: str
    skipped: int
    """Answers that their tool calls cancelled, discarded or a draft."""

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class ImportSettings:
    """How a file is read."""

    name: str
    """What the reviewer is called here; with several in the file, the beginning of their names."""
    grades: Mapping[str, int]
    """What the file says, to the grade that it means here."""
    question: str = ""
    """Which question of an annotation tool holds the grade, where it has several."""
    task: str = ""
    """Which task of the review the file is about, where that is not clear."""


def import_labels(store: ReviewStore, path: Path, settings: ImportSettings) -> ImportedLabels:
    """Read a file of labels into a project."""
    skipped: list[str] = []
    labels = list(foreign_labels(expanded(path), settings.question, skipped))
    items = _items(store, settings.task)
    known = [label for label in labels if (label.query, label.document) in items]
    strange = [label for label in labels if (label.query, label.document) not in items]
    if not known:
        first = f"; its first is {_pair(strange[0])}" if strange else ""
        raise DataError(f"{path}: labels no item of {store.project.name}{first}")
    drafts: dict[str, dict[int, DraftDecision]] = {}
    several = len({label.who for label in known}) > 1
    for label in known:
        name = f"{settings.name}: {label.who}" if several else settings.name
        draft = DraftDecision(GRADED, _grade(path, label, store.project.scale, settings.grades), note=label.note)
        number = _only(path, label, items[label.query, label.document])
        before = drafts.setdefault(name, {}).setdefault(number, draft)
        if before.grade != draft.grade:
            raise DataError(
                f"{path}: {label.place}: {_pair(label)} is labelled twice, {before.grade} and {draft.grade}"
            )
    written = sum(
        store.record_all(store.add_reviewer(name, IMPORTED, settings={"file": path.name}).id, several_drafts.items())
        for name, several_drafts in drafts.items()
    )
    first = f"{strange[0].place}: {_pair(strange[0])}" if strange else ""
    return ImportedLabels(
        {name: len(each) for name, each in drafts.items()}, written, len(strange), first, len(skipped)
    )


def _pair(label: ForeignLabel) -> str:
    return f"query {shorten(label.query)!r} with document {shorten(label.document)!r}"


def _items(store: ReviewStore, task: str) -> dict[tuple[str, str], list[int]]:
    """The items of each pair of ids: several where two tasks use the same ids."""
    if task and task not in store.project.data:
        raise R2medError(
            f"the review {store.project.name} has no task {task!r}; it has {', '.join(store.project.data)}"
        )
    questions = {each.number: each for each in store.questions() if not task or each.task == task}
    found: dict[tuple[str, str], list[int]] = {}
    for item in store.items():
        if item.question in questions:
            found.setdefault((questions[item.question].query, item.document), []).append(item.number)
    return found


def _only(path: Path, label: ForeignLabel, numbers: Sequence[int]) -> int:
    if len(numbers) > 1:
        raise DataError(f"{path}: {label.place}: {_pair(label)} is in {len(numbers)} tasks; name one with --task")
    return numbers[0]


def _grade(path: Path, label: ForeignLabel, scale: GradeScale, grades: Mapping[str, int]) -> int:
    """The grade that a value stands for: as --grades says, a number of the scale, or the name of a grade."""
    said = str(label.value).strip()
    names = {grade.name.casefold(): grade.value for grade in scale.grades}
    number = int(float(said)) if re.fullmatch(r"-?\d+(\.0*)?", said) else None
    found = grades.get(said, grades.get(str(number)) if number is not None else None)
    if found is None:
        found = number if number is not None else names.get(said.casefold())
    if found is None or found not in scale.values:
        known = ", ".join(map(str, scale.values))
        raise DataError(
            f"{path}: {label.place}: {shorten(said)!r} is no grade of the scale ({known});"
            f" say what it means: --grades {said.split()[0] if said else 'X'}={scale.values[-1]}"
        )
    return found


def parse_grades(text: str) -> dict[str, int]:
    """What `--grades` says.

    >>> parse_grades("0=0, 1=2,yes=3")
    {'0': 0, '1': 2, 'yes': 3}
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        said, equals, grade = part.rpartition("=")
        if not equals or not said.strip() or not re.fullmatch(r"\s*\d+\s*", grade):
            raise R2medError(f"--grades takes pairs such as 0=0,1=2, not {part!r}")
        found[said.strip()] = int(grade)
    return found


# -------------------------------------------------------------------------------------------------- files


def foreign_labels(path: Path, question: str = "", skipped: list[str] | None = None) -> Iterator[ForeignLabel]:
    """The labels of a file of any kind; the places of answers that are none are added to `skipped`."""
    skipped = [] if skipped is None else skipped
    records = list(_records(path))
    if records and any("annotations" in record or "completions" in record for _, record in records):
        for place, record in records:
            yield from _label_studio(path, place, record, question, skipped)
    elif records and any("responses" in record for _, record in records):
        for place, record in records:
            yield from _argilla(path, place, record, question, skipped)
    else:
        for who, qrels in read_label_sets(path).items():
            for query, judged in qrels.items():
                for document, grade in judged.items():
                    yield ForeignLabel(who, query, document, grade, "", f"{query} {document}")


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON file, a list or one a line, with their places; nothing where it is no JSON of objects."""
    if path.is_dir() or path.suffix == ".parquet" or path.name.endswith(".gz"):
        return
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}") from error
    if content.lstrip()[:1] == b"[":
        yield from _listed(path, content)
    elif content.lstrip()[:1] == b"{":
        yield from _lined(path, content)


def _listed(path: Path, content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        values = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{path}: entry {number} is no object")
        yield f"entry {number}", value


def _lined(path: Path, content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON: {error.msg}") from error
        if not isinstance(value, dict):
            raise DataError(f"{path}:{number}: is no object")
        yield f"line {number}", value


def _ids(path: Path, place: str, *tables: object) -> tuple[str, str]:
    """Query and document of a record, by the names that judgements have for them."""
    merged = {str(key).casefold(): value for table in tables if isinstance(table, dict) for key, value in table.items()}
    found = []
    for what, fields in (("query", QUERY_FIELDS), ("document", DOCUMENT_FIELDS)):
        value = next((merged[name] for name in fields if merged.get(name) not in (None, "")), None)
        if value is None:
            raise DataError(f"{path}: {place}: no {what} id ({', '.join(fields[:3])}) in its data")
        found.append(str(value))
    return found[0], found[1]


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _label_studio(
    path: Path, place: str, record: Mapping[str, Any], question: str, skipped: list[str]
) -> Iterator[ForeignLabel]:
    """The annotations of a task of Label Studio: a rating, a number or a choice of each."""
    query, document = _ids(path, place, record.get("data"))
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
        name = str(who.get("email") or who.get("id")) if isinstance(who, dict) else "" if who is None else str(who)
        said = _answer(path, place, answers, question)
        if said is None:
            skipped.append(place)
            continue
        yield ForeignLabel(name, query, document, said, " ".join(notes), place)


def _answer(path: Path, place: str, answers: Mapping[str, object], question: str) -> object:
    """The answer to the question that holds the grade; None where nothing was answered."""
    chosen = {name: value for name, value in answers.items() if not question or name == question}
    if question and answers and not chosen:
        raise DataError(f"{path}: {place}: has no question {question!r}; it has {', '.join(answers)}")
    if len(chosen) > 1:
        raise DataError(f"{path}: {place}: answers {', '.join(chosen)}; say which is the grade: --question NAME")
    value = next(iter(chosen.values()), None)
    if isinstance(value, list):
        if len(value) > 1:
            raise DataError(f"{path}: {place}: has {counted(len(value), 'choice')} where a grade is one")
        return value[0] if value else None
    return value


def _argilla(
    path: Path, place: str, record: Mapping[str, Any], question: str, skipped: list[str]
) -> Iterator[ForeignLabel]:
    """The responses of a record of Argilla: by question as version 2 writes them, or by user as version 1 did."""
    query, document = _ids(path, place, record.get("fields"), record.get("metadata"))
    by_user: dict[str, dict[str, object]] = {}
    for who, name, value, status in _responses(record.get("responses")):
        if status in _SKIPPED:
            skipped.append(place)
        else:
            by_user.setdefault(who, {})[name] = value
    for who, answers in by_user.items():
        value = _answer(path, place, answers, question)
        if value is None:
            skipped.append(place)
        else:
            yield ForeignLabel(who, query, document, value, "", place)


def _responses(found: object) -> Iterator[tuple[str, str, object, str]]:
    """User, question, value and status of each answer."""
    if isinstance(found, dict):
        for name, answers in found.items():
            for each in _tables(answers):
                yield str(each.get("user_id") or ""), str(name), each.get("value"), str(each.get("status") or "")
        return
    for each in _tables(found):
        for name, answer in _table(each.get("values")).items():
            value = answer.get("value") if isinstance(answer, dict) else answer
            yield str(each.get("user_id") or ""), str(name), value, str(each.get("status") or "")
