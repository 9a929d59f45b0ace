"""Import of labels from other tools as reviewers: judgements, CSV, exports of Label Studio and of Argilla."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from r2med.data.formats import DOCUMENT_FIELDS, QUERY_FIELDS
from r2med.data.labels import judged_qrels
from r2med.data.qrels import JudgedRow, read_label_rows
from r2med.data.task_names import task_names
from r2med.errors import DataError, R2medError
from r2med.formatting import counted, shorten
from r2med.reviews.labels import written_score
from r2med.reviews.rows import GRADED, IMPORTED, MODEL, PERSON, REVEALS, DraftDecision, Revealed
from r2med.reviews.scale import GradeScale
from r2med.reviews.store import ReviewStore
from r2med.store.files import expanded, reason

_SKIPPED = ("discarded", "draft", "pending")
"""What Argilla calls an answer that is none."""
GIVEN = "given"
"""The column of `r2med review export --to csv` that has the grade as it was given, on the scale of the review."""
OF_JUDGEMENTS, OF_REVIEW = "judgements", "review"
"""The scales that the numbers of a file may be on."""
KINDS = (PERSON, MODEL)
"""What labels can be said to come from."""


class ForeignLabel(NamedTuple):
    """A label as it is in the file."""

    who: str
    query: str
    document: str
    value: object
    note: str
    place: str
    """Where it stands in the file, for messages."""
    task: str = ""
    kind: str = ""
    """Whether a person or a model made it; both are empty where the file does not say."""
    is_score: bool = False
    """Whether the value is that of judgements, which may not be on the scale of the review."""
    revealed: tuple[str, ...] = ()
    """What was in view when it was given, as the CSV of a review says."""


@dataclass(frozen=True)
class ImportedLabels:
    """Result of an import."""

    reviewers: Mapping[str, int]
    """Reviewer to the labels that came in under this name."""
    written: int
    """Decisions that were not there before."""
    unknown: int
    """Labels of pairs that are not items of the review."""
    first_unknown: str
    skipped: int
    """Answers that their tool calls cancelled, discarded or a draft."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result in the shape of `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class ImportSettings:
    """Settings for reading a file of labels."""

    name: str
    """What the reviewer is called here; with several in the file, the beginning of their names."""
    grades: Mapping[str, int]
    """What the file says, to the grade that it means here."""
    question: str = ""
    """Which question of an annotation tool holds the grade, where it has several."""
    task: str = ""
    """Which task of the review the file is about, where that is not clear."""
    scale: str = ""
    """What scale the numbers of judgements are on: theirs, where 1 is relevant, or that of the review."""
    kind: str = ""
    """Whether the labels are a person's or a model's; without it they count as those of neither."""


def import_labels(store: ReviewStore, path: Path, settings: ImportSettings) -> ImportedLabels:
    """Read a file of labels into a project."""
    skipped: list[str] = []
    labels = list(foreign_labels(expanded(path), settings.question, skipped))
    items = _items(store, settings.task)
    tasks = {name: task for task, short in task_names(store.project.data).items() for name in (short, task)}
    known, strange = [], []
    for label in labels:
        numbers = _numbers(items, label, tasks)
        if numbers:
            known.append((label, _only(path, label, numbers)))
        else:
            strange.append(label)
    if not known:
        first = f"; its first is {_pair(strange[0])}" if strange else ""
        raise DataError(f"{path}: labels no item of {store.project.name}{first}")
    grades = _meanings(path, [label for label, _ in known], store, settings)
    drafts: dict[str, dict[int, DraftDecision]] = {}
    kinds: dict[str, str] = {}
    several = len({label.who for label, _ in known}) > 1
    for label, number in known:
        name = f"{settings.name}: {label.who}" if several else settings.name
        grade = _grade(path, label, store.project.scale, grades)
        seen = tuple(Revealed(what, "") for what in label.revealed)
        draft = DraftDecision(GRADED, grade, note=label.note, revealed=seen)
        before = drafts.setdefault(name, {}).setdefault(number, draft)
        if before.grade != draft.grade:
            raise DataError(
                f"{path}: {label.place}: {_pair(label)} is labelled twice, {before.grade} and {draft.grade}"
            )
        kinds.setdefault(name, settings.kind or label.kind or IMPORTED)
    _check_names(store, kinds)
    written = 0
    for name, reviewer_drafts in drafts.items():
        reviewer = store.add_reviewer(name, kinds[name], settings={"file": path.name})
        written += store.record_all(reviewer.id, reviewer_drafts.items())
    first = f"{strange[0].place}: {_pair(strange[0])}" if strange else ""
    return ImportedLabels(
        {name: len(each) for name, each in drafts.items()}, written, len(strange), first, len(skipped)
    )


def _check_names(store: ReviewStore, kinds: Mapping[str, str]) -> None:
    """Refuse to write labels of a file among those that a person or a model of the review gives here."""
    for each in store.reviewers():
        if each.name in kinds and "file" not in each.settings:
            raise R2medError(f"{each.name} judges in {store.project.name} already; choose another name with --as")


def _pair(label: ForeignLabel) -> str:
    return f"query {shorten(label.query)!r} with document {shorten(label.document)!r}"


Items = Mapping[tuple[str, str], Mapping[str, int]]
"""Pairs of query and document to their items by task: several where two tasks use the same ids."""


def _items(store: ReviewStore, task: str) -> Items:
    if task and task not in store.project.data:
        raise R2medError(
            f"the review {store.project.name} has no task {task!r}; it has {', '.join(store.project.data)}"
        )
    questions = {each.number: each for each in store.questions() if not task or each.task == task}
    found: dict[tuple[str, str], dict[str, int]] = {}
    for item in store.items():
        if item.question in questions:
            question = questions[item.question]
            found.setdefault((question.query, item.document), {})[question.task] = item.number
    return found


def _numbers(items: Items, label: ForeignLabel, tasks: Mapping[str, str]) -> list[int]:
    """Return the items that a label may refer to; a file may name the task of the review, in full or short."""
    by_task = items.get((label.query, label.document), {})
    if label.task in tasks:
        task = tasks[label.task]
        return [by_task[task]] if task in by_task else []
    return list(by_task.values())


def _only(path: Path, label: ForeignLabel, numbers: Sequence[int]) -> int:
    if len(numbers) > 1:
        raise DataError(f"{path}: {label.place}: {_pair(label)} is in {len(numbers)} tasks; name one with --task")
    return numbers[0]


def _meanings(
    path: Path, labels: Sequence[ForeignLabel], store: ReviewStore, settings: ImportSettings
) -> Mapping[str, int]:
    """Return the meaning of the numbers in a file: by --grades, else by the scale that they are on.

    Judgements call 1 relevant, whatever a review calls its grade 1. Where the numbers would mean other grades as
    judgements than on the scale of the review, and could be either, the scale must be named.
    """
    scores = {int(str(label.value)) for label in labels if label.is_score}
    if settings.grades or not scores:
        return settings.grades
    scale = store.project.scale
    meanings: dict[int, int] = {}
    for grade in reversed(scale.values):
        meanings[written_score(grade, scale.relevant_from)] = grade
    unlike = sorted(score for score in scores if meanings.get(score) != score)
    beyond = sorted(scores - set(meanings))
    if settings.scale == OF_REVIEW or not unlike or (beyond and settings.scale != OF_JUDGEMENTS):
        return {}
    if beyond:
        best = max(meanings)
        raise DataError(f"{path}: {beyond[0]} is beyond the judgements of {store.project.name}, which end at {best}")
    if settings.scale == OF_JUDGEMENTS or not scores <= set(scale.values):
        return {str(score): grade for score, grade in meanings.items()}
    score = unlike[0]
    raise DataError(
        f"{path}: {score} may be that of judgements ({scale.grade(meanings[score]).name} here) or a grade of"
        f" {store.project.name} ({scale.grade(score).name}); say which: --scale {OF_JUDGEMENTS} or --scale {OF_REVIEW}"
    )


def _grade(path: Path, label: ForeignLabel, scale: GradeScale, grades: Mapping[str, int]) -> int:
    """Return the grade of a value: by --grades, as a number of the scale, or by the name of a grade."""
    said = str(label.value).strip()
    names = {grade.name.casefold(): grade.value for grade in scale.grades}
    number = int(float(said)) if re.fullmatch(r"-?\d+(\.0*)?", said) else None
    found = grades.get(said, grades.get(str(number)) if number is not None else None)
    if found is None:
        found = number if number is not None else names.get(said.casefold())
    if found is None or found not in scale.values:
        known = ", ".join(map(str, scale.values))
        raise DataError(
            f"{path}: {label.place}: {shorten(said)!r} is not a grade of the scale ({known});"
            f" say what it means: --grades {said.split()[0] if said else 'X'}={scale.values[-1]}"
        )
    return found


def parse_grades(text: str) -> dict[str, int]:
    """Parse the option `--grades`.

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
    """Yield the labels of a file of any kind; the places of answers without a label are added to `skipped`."""
    skipped = [] if skipped is None else skipped
    records = list(_records(path))
    if records and any("annotations" in record or "completions" in record for _, record in records):
        for place, record in records:
            yield from _label_studio(path, place, record, question, skipped)
    elif records and any("responses" in record for _, record in records):
        for place, record in records:
            yield from _argilla(path, place, record, question, skipped)
    else:
        built = judged_qrels(path)
        if built is None:
            yield from map(_judged, read_label_rows(path))
            return
        for query, judged in built.items():
            for document, score in judged.items():
                yield ForeignLabel("", query, document, score, "", f"{query} {document}", kind=MODEL, is_score=True)


def _judged(row: JudgedRow) -> ForeignLabel:
    """Return a row of judgements as a label: the grade as given, if the row has it."""
    columns = {str(name).strip().casefold(): value for name, value in row.columns.items()}
    task, kind, note, seen = (str(columns.get(name) or "") for name in ("task", "kind", "note", "revealed"))
    given = columns.get(GIVEN)
    is_score = given in (None, "")
    place = f"{row.query} {row.document}"
    head = (row.reviewer, row.query, row.document, row.grade if is_score else given, note, place)
    revealed = tuple(what for what in dict.fromkeys(seen.split()) if what in REVEALS)
    return ForeignLabel(*head, task, kind if kind in KINDS else "", is_score, revealed)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON file, a list or one per line, with their places; nothing for other files."""
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
            raise DataError(f"{path}: entry {number} is not an object")
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
            raise DataError(f"{path}:{number}: is not an object")
        yield f"line {number}", value


def _ids(path: Path, place: str, *tables: object) -> tuple[str, str]:
    """Return query and document of a record, by the names that judgements have for them."""
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
    """Yield the annotations of a task of Label Studio: a rating, a number or a choice each."""
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
    """Return the answer to the question that holds the grade; None if there is no answer."""
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
    """Yield the responses of a record of Argilla: by question as in version 2, or by user as in version 1."""
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
    """Yield user, question, value and status of each answer."""
    if isinstance(found, dict):
        for name, answers in found.items():
            for each in _tables(answers):
                yield str(each.get("user_id") or ""), str(name), each.get("value"), str(each.get("status") or "")
        return
    for each in _tables(found):
        for name, answer in _table(each.get("values")).items():
            value = answer.get("value") if isinstance(answer, dict) else answer
            yield str(each.get("user_id") or ""), str(name), value, str(each.get("status") or "")
