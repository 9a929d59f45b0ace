"""Questions and documents that a plan takes from the hub: `hf:ORG/NAME/FILE`, or `hf:ORG/NAME` for a whole corpus.

A revision may stand behind an @. What was fetched once is read from this machine from then on, and the finished task
says which commit it was made of.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from r2med.construction.items import Document, Question
from r2med.construction.plan import PLAN, BuildPlan, DocumentSource, QuestionSource
from r2med.data.formats import Row, read_rows
from r2med.data.layout import choose_part, listing
from r2med.data.loader import HUB
from r2med.data.problems import ERROR, Findings
from r2med.data.tasks import HUB_PREFIX
from r2med.data.texts import read_documents
from r2med.errors import DataError, suggest
from r2med.formatting import describe, shorten
from r2med.store.hub import Snapshot

_PLACE = re.compile(rf"{HUB_PREFIX}([^/@\s]+/[^/@\s]+)(?:/([^@]+))?(?:@(\S+))?")


class HubPlace(NamedTuple):
    """A file of a dataset on the hub, or all of it."""

    repo: str
    file: str
    """Empty for the repository itself."""
    revision: str


def hub_place(text: str) -> HubPlace | None:
    """Parse a path of a plan as a place on the hub; None for a local path.

    >>> hub_place("hf:org/exams/data/train.parquet@v2")
    HubPlace(repo='org/exams', file='data/train.parquet', revision='v2')
    """
    if not text.startswith(HUB_PREFIX):
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise DataError(f"{text}: not a place on the hub; write {HUB_PREFIX}ORG/NAME/FILE or {HUB_PREFIX}ORG/NAME")
    return HubPlace(match[1], match[2] or "", match[3] or "main")


def fetch_sources(plan: BuildPlan) -> BuildPlan:
    """Fetch what a plan takes from the hub, and return the plan with local paths and the origin of the files."""
    origins: dict[str, str] = {}
    sources: dict[str, Any] = {}
    for name in ("questions", "documents"):
        source = getattr(plan, name)
        place = hub_place(source.path.as_posix())
        if place is None:
            continue
        if not place.file and name == "questions":
            raise DataError(f"{plan.folder / PLAN}: [questions] path must name a file: hf:{place.repo}/FILE")
        snapshot = _fetch_files(place, [place.file]) if place.file else _fetch_corpus(place)
        origins[name] = f"{HUB_PREFIX}{place.repo}{'/' * bool(place.file)}{place.file}@{snapshot.commit}"
        sources[name] = replace(source, path=snapshot.folder / place.file)
    return replace(plan, **sources, origins=origins)


def _fetch_files(place: HubPlace, names: list[str]) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and all((cached.folder / name).is_file() for name in names):
        return cached
    revision = place.revision if cached is None else cached.commit
    offered = HUB.names(place.repo, revision)
    for name in names:
        if name not in offered:
            raise DataError(f"{place.repo} at {revision} has no file {name!r}")
    return HUB.download(place.repo, revision, names)


def _fetch_corpus(place: HubPlace) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and (files := document_files(cached.folder)) and all(map(Path.is_file, files)):
        return cached
    names = choose_part("documents", sorted(HUB.names(place.repo, place.revision)))
    if not names:
        advice = f"name its file: {HUB_PREFIX}{place.repo}/FILE"
        raise DataError(f"{place.repo} at {place.revision} has no documents in BEIR's or R2MED's layout; {advice}")
    return _fetch_files(place, list(names))


TABLES = (".jsonl", ".gz", ".csv", ".tsv", ".parquet")
"""The endings of tables; what is gzipped is JSON lines."""


def read_questions(source: QuestionSource) -> tuple[list[Question], dict[str, str]]:
    """Read the questions of a file, and the reason for each that cannot be used, by its place."""
    questions: dict[str, Question] = {}
    unusable: dict[str, str] = {}
    columns = (source.id, source.question, source.answer, source.options, source.source, source.reasoning)
    for place, row in _rows(source.path, list(filter(None, columns))):
        identifier, text, answer = (_text(row, name, place) for name in (source.id, source.question, source.answer))
        why = _problem(identifier, text, answer, questions)
        if why:
            unusable[f"{place} {shorten(identifier)}" if identifier else place] = why
            continue
        options, sources = _split(row.get(source.options)), _split(row.get(source.source))
        reasoning = _text(row, source.reasoning, place)
        questions[identifier] = Question(identifier, text, answer, options, sources, text, reasoning=reasoning)
    if not questions:
        why = f": all {len(unusable):,} are {next(iter(unusable.values()))}" if len(set(unusable.values())) == 1 else ""
        raise DataError(f"{source.path}: holds no question that can be used{why}")
    return list(questions.values()), unusable


def _problem(identifier: str, text: str, answer: str, known: Mapping[str, Question]) -> str:
    if not identifier:
        return "without an id"
    if identifier in known:
        return "with the id of another question"
    if re.search(r"[\t\r\n]", identifier):
        return "with a tab or line break in the id"
    if not text:
        return "without text"
    return "" if answer else "without an answer"


def read_table_documents(source: DocumentSource) -> list[Document]:
    """Read the documents of a file, or of a folder in BEIR's or R2MED's layout."""
    if source.path.is_dir():
        problems = Findings()
        table = read_documents(document_files(source.path), problems)
        problems.raise_errors(source.path)
        return [Document(identifier, "", text, "") for identifier, text in table.column()]
    documents: dict[str, Document] = {}
    columns = (source.id, source.text, source.title, source.source)
    for place, row in _rows(source.path, list(filter(None, columns))):
        identifier, title = _text(row, source.id, place), _text(row, source.title, place)
        text, origin = _text(row, source.text, place), _text(row, source.source, place)
        if not identifier:
            raise DataError(f"{place}: a document without an id")
        if identifier in documents and documents[identifier].text != text:
            raise DataError(f"{place}: repeats the id {shorten(identifier)!r} with another text")
        documents.setdefault(identifier, Document(identifier, title, text, origin))
    return list(documents.values())


def is_task_folder(path: Path) -> bool:
    """Return whether a folder has documents in BEIR's or R2MED's layout."""
    return path.is_dir() and bool(document_files(path))


def document_files(folder: Path) -> list[Path]:
    """Return the files of a folder in BEIR's or R2MED's layout that hold its documents."""
    return [folder / name for name in choose_part("documents", listing(folder))]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a table with their places; the named columns must exist."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix not in TABLES:
        raise DataError(f"{path}: not a table; expected {', '.join(TABLES[:-1])} or {TABLES[-1]}")
    problems = Findings()
    numbered = _csv_rows(path) if path.suffix in (".csv", ".tsv") else read_rows(path, problems)
    seen: set[str] = set()
    for number, row in numbered:
        absent = [] if seen else [name for name in columns if name not in row]
        for name in absent:
            advice = f"{suggest(name, row)}; the plan says which column holds what"
            raise DataError(f"{path}:{number}: no column {name!r}{advice}")
        seen.update(row)
        yield f"{path.name}:{number}", row
    for problem in problems.of(ERROR):
        raise DataError(str(problem))
    if not seen:
        raise DataError(f"{path}: holds no rows")


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: byte 0x{error.object[error.start]:02x}; save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
    try:
        for row in reader:
            if None in row:
                raise DataError(f"{path}:{reader.line_num}: more cells than the header has columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not readable as CSV: {error}") from error


def _text(row: Row, column: str, place: str) -> str:
    """Return a cell as text; a missing one is empty."""
    value = row.get(column)
    if isinstance(value, bool | list | dict):
        raise DataError(f"{place}: {column} must be a text, not {describe(value)}")
    return "" if value is None else str(value).strip()


def _split(value: object) -> tuple[str, ...]:
    """Return the texts of a cell: a list, an object, or a text split at lines or bars."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return tuple(str(part).strip() for part in value if part is not None and str(part).strip())
    return tuple(part.strip() for part in re.split(r"[\n|]", str(value or "")) if part.strip())
