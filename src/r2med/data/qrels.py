"""Judgements: JSON lines, TREC's four columns, BEIR's tab-separated table, three plain columns, or parquet."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from r2med.data.layout import DEFAULT_SPLIT, choose_part, listing, missing
from r2med.data.model import Qrels
from r2med.data.problems import Findings, Spot, place
from r2med.data.rows import Row, Rows, describe, json_rows, lines, parquet_rows, shorten
from r2med.data.texts import identifier_of
from r2med.errors import DataError

QUERY_FIELDS = ("q_id", "query-id", "query_id", "qid")
DOCUMENT_FIELDS = ("p_id", "corpus-id", "corpus_id", "document_id", "doc_id", "docid", "pid")
GRADE_FIELDS = ("score", "relevance", "grade")

_COLUMNS: Mapping[int, Sequence[str]] = {
    3: (QUERY_FIELDS[0], DOCUMENT_FIELDS[0], GRADE_FIELDS[0]),
    4: (QUERY_FIELDS[0], "", DOCUMENT_FIELDS[0], GRADE_FIELDS[0]),
}
"""What the columns of a text file mean when no header says so, by their number; TREC's second column means nothing."""


@dataclass
class Judgements:
    """Grades by query and document, and where each was read."""

    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: int = 0
    """How many rows were read, repeated ones included."""
    whole: bool = True
    """Whether every file was read to its end."""
    _places: dict[tuple[str, str], tuple[Path, int]] = field(default_factory=dict)

    def add(self, query: str, document: str, grade: int, spot: Spot) -> None:
        """Add a row, or fold it into an equal one."""
        self.rows += 1
        judged = self.grades.setdefault(query, {})
        if document not in judged:
            judged[document] = grade
            self._places[query, document] = (spot.file, spot.line)
            return
        pair = f"{shorten(query)} {shorten(document)}"
        first = place(*self._places[query, document])
        if judged[document] == grade:
            spot.note("repeated-judgement", f"repeats the judgement of {pair} in {first}, counted once")
        else:
            spot.note("conflicting-grade", f"judges {pair} as {grade}, {first} as {judged[document]}")

    def check_ids(self, part: str, known: Container[str], found: Findings) -> None:
        """Note every judgement of a query or a document, as `part` says, that does not exist."""
        for pair, (file, line) in self._places.items():
            name = pair[part == "document"]
            if name not in known:
                found.add(f"unknown-{part}", file, line, f"judges the {part} {shorten(name)!r}, which does not exist")

    def origin(self, query: str) -> tuple[Path, int]:
        """Where a query was first judged."""
        return self._places[query, next(iter(self.grades[query]))]

    def positive(self) -> dict[str, dict[str, int]]:
        """The judgements of the queries that have a relevant document."""
        return {query: judged for query, judged in self.grades.items() if max(judged.values()) > 0}


class QrelsFile(NamedTuple):
    """Judgements read from a file of their own, with what was folded or left out on the way."""

    qrels: Qrels
    warnings: tuple[str, ...]


def read_qrels(path: str | Path, *, split: str = DEFAULT_SPLIT) -> QrelsFile:
    """The judgements in a file of any layout, or in the folder of a task.

    Queries without a relevant document are left out, as `load` does, with a counted warning.
    """
    source = Path(path).expanduser()
    found = Findings()
    judgements = read_judgements(_qrels_files(source, split), found)
    found.raise_errors(source)
    qrels = judgements.positive()
    for query in judgements.grades:
        if query not in qrels:
            Spot(*judgements.origin(query), found).note("no-positive", no_positive(query))
    if not qrels:
        raise DataError(f"{source}: no query has a relevant document (a grade of 1 or more)")
    return QrelsFile(qrels, found.warnings())


def no_positive(query: str) -> str:
    """What to say of a query that cannot be evaluated."""
    return f"the query {shorten(query)!r} has no relevant document, left out"


def _qrels_files(source: Path, split: str) -> list[Path]:
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    if not source.is_dir():
        return [source]
    names = listing(source)
    chosen = choose_part("qrels", names, split)
    if not chosen:
        raise DataError(f"{source}: {missing('qrels', names, split)}")
    return [source / name for name in chosen]


def read_judgements(files: Sequence[Path], found: Findings) -> Judgements:
    """The judgements of a task, with every defect noted."""
    judgements = Judgements()
    errors, start = found.errors, len(found.problems)
    for file in files:
        for line, row in _rows(file, found):
            spot = Spot(file, line, found)
            query = _identifier(row, QUERY_FIELDS, "query", spot)
            document = _identifier(row, DOCUMENT_FIELDS, "document", spot)
            grade = _grade(row, spot)
            if query is not None and document is not None and grade is not None:
                judgements.add(query, document, grade, spot)
    if files and not judgements.rows and found.errors == errors:
        found.add("empty-file", files[0], 0, "holds no rows")
    judgements.whole = judgements.rows > 0 and not found.lost_a_file(start)
    return judgements


def _rows(file: Path, found: Findings) -> Rows:
    """The rows of a qrels file, whose format shows in its name or, for text files, in its first line."""
    if file.suffix == ".parquet":
        return parquet_rows(file, found)
    named = file.name.removesuffix(".gz").endswith((".jsonl", ".json"))
    return json_rows(file, found) if named or _starts_with_json(file) else _column_rows(file, found)


def _starts_with_json(file: Path) -> bool:
    first = next((line for _, line in lines(file, Findings()) if line.strip()), b"")
    try:
        return isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return False


def _column_rows(file: Path, found: Findings) -> Rows:
    header: Sequence[str] | None = None
    first = True
    for line, cells in _cells(file, found):
        if first:
            first = False
            if {*QUERY_FIELDS} & {*cells} and {*DOCUMENT_FIELDS} & {*cells}:
                header = cells
                continue
        names = header or _COLUMNS.get(len(cells))
        if names is None or len(names) != len(cells):
            wanted = ", ".join(header) if header else "query, document, grade or query, 0, document, grade"
            found.add("wrong-columns", file, line, f"{len(cells)} columns; expected {wanted}")
            continue
        yield line, dict(zip(names, cells, strict=True))


def _cells(file: Path, found: Findings) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line: between tabs where there are any, otherwise between blanks."""
    for number, line in lines(file, found):
        if not line.strip():
            continue
        # Split before decoding: only ASCII blanks separate columns, an id may hold any other space.
        cells = line.rstrip(b"\r\n").split(b"\t") if b"\t" in line else line.split()
        try:
            yield number, [cell.decode("utf-8") for cell in cells]
        except UnicodeDecodeError as bad:
            found.add("bad-encoding", file, number, f"not UTF-8: byte 0x{bad.object[bad.start]:02x}; save it as UTF-8")


def _identifier(row: Row, names: Sequence[str], what: str, spot: Spot) -> str | None:
    name = next((name for name in names if name in row), None)
    if name is None:
        spot.note("missing-field", f"no {what} id ({', '.join(names[:3])}); the row has {shorten(', '.join(row))}")
        return None
    return identifier_of(row[name], name, spot)


def _grade(row: Row, spot: Spot) -> int | None:
    """The grade of a row as an integer; 1 where judgements are stored without one."""
    name = next((name for name in GRADE_FIELDS if name in row), None)
    if name is None:
        return 1
    value = row[name]
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or not number.is_integer():
        spot.note("bad-grade", f"the grade ({name}) must be an integer, not {describe(value)}")
        return None
    return int(number)
