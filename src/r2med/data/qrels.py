"""Judgements of rows in any format: query, document and grade, with every defect noted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from r2med.data.dataset import Aspect, Aspects, Qrels
from r2med.data.formats import (
    ASPECT_FIELDS,
    DOCUMENT_FIELDS,
    GRADE_FIELDS,
    QUERY_FIELDS,
    REVIEWER_FIELDS,
    WEIGHT_FIELDS,
    Row,
    plain_name,
    read_rows,
)
from r2med.data.layout import DEFAULT_SPLIT, choose_part, listing, missing
from r2med.data.problems import Findings, Spot, place
from r2med.data.texts import identifier_of
from r2med.errors import DataError
from r2med.formatting import describe, shorten
from r2med.store.files import expanded

_GRADE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_LARGEST = 999_999_999
_BRIGHT_PRO = re.compile(r"[a-z_]+-(?P<query>.+)-(?:a|aspect-)[0-9]+")  # id of an aspect: domain, query, number
_SUPPORTING = "supporting_docs"


@dataclass
class Judgements:
    """Grades by query and document, and where each was read. A document has the best of the grades by aspects."""

    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: int = 0  # number of rows read, repeated ones included
    whole: bool = True  # whether every file was read to its end
    _places: dict[tuple[str, str], tuple[Path, int]] = field(default_factory=dict)
    _by_aspect: dict[str, dict[str, Judgements]] = field(default_factory=dict)
    _weights: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, row: JudgedRow) -> None:
        """Add a row, or fold it into an equal one."""
        self.rows += 1
        query, document, grade, spot = row.query, row.document, row.grade, row.spot
        judged = self.grades.setdefault(query, {})
        if row.aspect:
            weight = self._weights.setdefault((query, row.aspect), row.weight)
            if weight != row.weight:
                pair = f"the aspect {shorten(row.aspect)!r} of {shorten(query)}"
                spot.note("bad-weight", f"{pair} weighs {row.weight:g} here and {weight:g} before")
            of_aspect = self._by_aspect.setdefault(query, {}).setdefault(row.aspect, Judgements())
            of_aspect.add(row._replace(aspect=""))
            judged[document] = max(grade, judged.get(document, grade))
            self._places.setdefault((query, document), (spot.file, spot.line))
            return
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

    def aspects(self, queries: Container[str]) -> dict[str, dict[str, Aspect]]:
        """Return the aspects of these queries, with the relevant documents that cover each."""
        covered: dict[str, dict[str, Aspect]] = {}
        for query, named in self._by_aspect.items():
            for name, judgements in named.items() if query in queries else ():
                judged = judgements.grades[query]
                documents = frozenset(d for d, grade in judged.items() if grade > 0 and d in self.grades[query])
                if documents:
                    covered.setdefault(query, {})[name] = Aspect(documents, self._weights[query, name])
        return covered

    def check_queries(self, known: Container[str], findings: Findings) -> None:
        """Note every judgement of a query that does not exist."""
        for (query, _), (file, line) in self._places.items():
            if query not in known:
                findings.add("unknown-query", file, line, f"judges the query {shorten(query)!r}, which does not exist")

    def leave_out_documents(self, known: Container[str], findings: Findings) -> None:
        """Note and leave out every judgement of a document that does not exist: nothing could find it."""
        for (query, document), (file, line) in self._places.items():
            if document not in known:
                message = f"judges the document {shorten(document)!r}, which does not exist"
                findings.add("missing-document", file, line, message)
                del self.grades[query][document]

    def origin(self, query: str) -> tuple[Path, int]:
        """Return where a query was first judged."""
        return self._places[query, next(iter(self.grades[query]))]

    def place_of(self, query: str, document: str) -> tuple[Path, int]:
        """Return where a document was first judged for a query."""
        return self._places[query, document]

    def positive(self) -> dict[str, dict[str, int]]:
        """Return the judgements of the queries that have a relevant document."""
        return {query: judged for query, judged in self.grades.items() if max(judged.values(), default=0) > 0}


class QrelsFile(NamedTuple):
    """Judgements read from a file of their own, with what was folded or left out on the way."""

    qrels: Qrels
    warnings: tuple[str, ...]
    aspects: Aspects


def read_qrels(path: str | Path, *, split: str = DEFAULT_SPLIT) -> QrelsFile:
    """Read the judgements in a file or a task's folder; queries without a relevant document are left out, counted."""
    source, findings = expanded(path), Findings()
    judgements = read_judgements(_qrels_files(source, split), findings)
    findings.raise_errors(source)
    qrels = judgements.positive()
    for query in judgements.grades:
        if query not in qrels:
            Spot(*judgements.origin(query), findings).note("no-positive", no_positive(query))
    if not qrels:
        raise DataError(f"{source}: no query has a relevant document (a grade of 1 or more)")
    return QrelsFile(qrels, findings.warnings(), judgements.aspects(qrels))


def no_positive(query: str) -> str:
    """Return the message about a query that cannot be evaluated."""
    return f"the query {shorten(query)!r} has no relevant document, left out"


def _qrels_files(source: Path, split: str) -> list[Path]:
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    if not source.is_dir():
        return [source]
    names = listing(source)
    files = choose_part("qrels", names, split)
    if not files:
        raise DataError(f"{source}: {missing('qrels', names, split)}")
    return [source / name for name in files]


def read_judgements(files: Sequence[Path], findings: Findings) -> Judgements:
    """Read the judgements of a task, with every defect noted."""
    judgements, errors, start = Judgements(), findings.errors, len(findings.problems)
    for row in chain.from_iterable(_judged_rows(file, findings) for file in files):
        judgements.add(row)
    if files and not judgements.rows and findings.errors == errors:
        findings.add("empty-file", files[0], 0, "holds no rows")
    judgements.whole = judgements.rows > 0 and not findings.lost_a_file(start)
    return judgements


def read_label_sets(path: str | Path) -> dict[str, Qrels]:
    """Read the judgements in a file by reviewer ("" if it names none), queries without a relevant document included."""
    rows, sets = read_label_rows(path), defaultdict[str, Judgements](Judgements)
    for row in rows:
        sets[row.reviewer].add(row)
    rows[0].spot.found.raise_errors(expanded(path))
    return {reviewer: judgements.grades for reviewer, judgements in sets.items()}


def read_label_rows(path: str | Path) -> list[JudgedRow]:
    """Read every judgement of a file with all columns of its row."""
    source, findings = expanded(path), Findings()
    files = _qrels_files(source, DEFAULT_SPLIT)
    rows = [row for file in files for row in _judged_rows(file, findings, by_reviewer=True)]
    findings.raise_errors(source)
    if not rows:
        raise DataError(f"{source}: holds no rows")
    return rows


class JudgedRow(NamedTuple):
    """Judgement, and where it was read."""

    query: str
    document: str
    grade: int
    reviewer: str  # the reviewer; empty if the file has none, or it is not asked for
    spot: Spot
    columns: Row  # the whole row by the names of its columns
    aspect: str = ""  # what the judgement is about; empty for the query as a whole
    weight: float = 1.0  # of the aspect


def _judged_rows(file: Path, findings: Findings, *, by_reviewer: bool = False) -> Iterator[JudgedRow]:
    """Yield the sound judgements of a file; every defect of the others is noted."""
    ungraded: bool | None = None
    for line, row in _spread_aspects(read_rows(file, findings, part="qrels")):
        spot, columns = Spot(file, line, findings), _columns_of(tuple(row))
        query = _identifier(row, columns.query, QUERY_FIELDS, "query", spot)
        document = _identifier(row, columns.document, DOCUMENT_FIELDS, "document", spot)
        grade = _grade(row, columns, spot)
        named = columns.reviewer if by_reviewer else None
        reviewer = identifier_of(row[named], named, spot) if named else ""
        aspect, weight = _aspect(row, columns, spot)
        if ungraded not in (None, not columns.grade):
            spot.note("missing-field", "some rows of this file have a grade and others have none")
        elif query is not None and document is not None and grade is not None and reviewer is not None:
            yield JudgedRow(query, document, grade, reviewer, spot, row, aspect, weight)
            ungraded = not columns.grade


def _spread_aspects(rows: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
    """Yield the rows; one that lists the documents of an aspect, as BRIGHT-Pro has them, becomes a row for each."""
    for line, row in rows:
        documents = row.get(_SUPPORTING)
        if not isinstance(documents, list):
            yield line, row
            continue
        match = _BRIGHT_PRO.fullmatch(str(row.get("id")))
        names = (QUERY_FIELDS[0], DOCUMENT_FIELDS[0], ASPECT_FIELDS[0], WEIGHT_FIELDS[0])
        for document in documents:
            values = (match and match["query"], document, row.get("id"), row.get(WEIGHT_FIELDS[0], 1))
            yield line, dict(zip(names, values, strict=True))


class _Columns(NamedTuple):
    """Columns of a row by their role; None for one that is missing."""

    fault: str  # the reason why the grade is ambiguous or unknown; empty if it is clear
    query: str | None
    document: str | None
    grade: str | None
    reviewer: str | None
    aspect: str | None
    weight: str | None


@lru_cache(maxsize=64)
def _columns_of(names: tuple[str, ...]) -> _Columns:
    plain = {plain_name(name): name for name in names if name}
    query, document, graded, reviewer, aspect, weight = (
        [plain[field] for field in map(plain_name, fields) if field in plain]
        for fields in (QUERY_FIELDS, DOCUMENT_FIELDS, GRADE_FIELDS, REVIEWER_FIELDS, ASPECT_FIELDS, WEIGHT_FIELDS)
    )
    if not aspect:
        weight = []
    roles = (query, document, graded, reviewer, aspect, weight)
    others = [name for name in names if name and name not in {*chain.from_iterable(roles)}]
    fault = ""
    if len(graded) > 1:
        fault = f"{' and '.join(graded)} could both be the grade; remove or rename one of them"
    elif others and not graded:
        expected = f"a column of grades is called {', '.join(GRADE_FIELDS[:5])}"
        fault = f"the column {shorten(others[0])!r} is unknown; {expected}"
    return _Columns(fault, *(next(iter(several), None) for several in roles))


def _aspect(row: Row, columns: _Columns, spot: Spot) -> tuple[str, float]:
    """Return the aspect that a judgement is about, and its weight; empty if it is about the query as a whole."""
    value = row[columns.aspect] if columns.aspect else None
    if columns.aspect is None or value is None or value == "":
        return "", 1.0
    aspect, given = identifier_of(value, columns.aspect, spot), row[columns.weight] if columns.weight else 1
    try:
        weight = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else 0.0
    except (ValueError, OverflowError):
        weight = 0.0
    if not 0 < weight < float("inf"):
        spot.note("bad-weight", f"the weight ({columns.weight}) must be a number above 0, not {describe(given)}")
    return aspect or "", weight


def _identifier(row: Row, name: str | None, names: Sequence[str], what: str, spot: Spot) -> str | None:
    if name is None:
        spot.note("missing-field", f"no {what} id ({', '.join(names[:3])}); the row has {shorten(', '.join(row))}")
        return None
    return identifier_of(row[name], name, spot)


def _grade(row: Row, columns: _Columns, spot: Spot) -> int | None:
    """Return the grade of a row as an integer; 1 if judgements are stored without one."""
    if columns.fault:
        spot.note("unknown-column", columns.fault)
        return None
    if columns.grade is None:
        return 1
    value, number = row[columns.grade], None
    if isinstance(value, str):
        # int() would also take 1_000 and the digits of other scripts.
        number = int(float(value)) if len(value) < 100 and _GRADE.fullmatch(value.strip(" ")) else None
    elif isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        number = int(value)
    if number is None:
        spot.note("bad-grade", f"the grade ({columns.grade}) must be an integer, not {describe(value)}")
    elif abs(number) > _LARGEST:
        spot.note("bad-grade", f"the grade ({columns.grade}) is {describe(value)}, which is not a grade")
    else:
        return number
    return None
