"""Documents and queries: rows to aligned columns of ids and texts, with repeated ids folded."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from r2med.data.formats import ID_FIELDS, Row, read_rows
from r2med.data.problems import Findings, Spot, place
from r2med.formatting import describe, shorten

EXTRAS = ("answer", "reasoning")  # fields of a query row that belong to the gold data

Table = TypeVar("Table", bound="TextTable")


@dataclass
class TextTable:
    """Columns of ids and texts, and where each row came from."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    rows: int = 0  # number of rows read, repeated ones included
    extras: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in EXTRAS})
    synonyms: dict[str, tuple[str, ...]] = field(default_factory=dict)  # further wordings of the gold answers
    position: dict[str, int] = field(default_factory=dict)
    whole: bool = True  # whether every file was read to its end, so that an id that is not here does not exist
    _lines: array[int] = field(default_factory=lambda: array("q"))
    _files: list[tuple[int, Path]] = field(default_factory=list)

    def origin(self, position: int) -> tuple[Path, int]:
        """Return the file and line of a row."""
        file = self._files[bisect_right(self._files, position, key=lambda start: start[0]) - 1][1]
        return file, self._lines[position]

    def begin(self, file: Path) -> None:
        """Set the file that the next rows come from."""
        self._files.append((len(self.ids), file))

    def add(self, identifier: str, text: str, line: int, findings: Findings) -> None:
        """Append a row, or fold it into the row that has its id already."""
        self.rows += 1
        here = len(self.ids)
        first = self.position.setdefault(identifier, here)
        if first == here:
            self.ids.append(identifier)
            self.texts.append(text)
            self._lines.append(line)
            return
        self.note_repeat(identifier, first, self.texts[first] == text, Spot(self._files[-1][1], line, findings))

    def note_repeat(self, identifier: str, first: int, same: bool, spot: Spot) -> None:
        """Note a row that repeats the id of an earlier one."""
        repeats = f"repeats the id {shorten(identifier)!r} of {place(*self.origin(first))}"
        if same:
            spot.note("repeated-id", f"{repeats} with the same text, folded")
        else:
            spot.note("conflicting-id", f"{repeats} with another text")


def read_documents(files: Sequence[Path], findings: Findings) -> TextTable:
    """Read the documents; a title is put before its text."""
    return fill_table(TextTable(), files, findings, "documents")


def read_queries(files: Sequence[Path], findings: Findings) -> TextTable:
    """Read the queries, with the gold answers and reasoning paths that their rows may hold."""
    return fill_table(TextTable(), files, findings, "queries")


def fill_table(table: Table, files: Sequence[Path], findings: Findings, part: str) -> Table:
    """Read documents or queries into a table."""
    errors, start = findings.errors, len(findings.problems)
    for file in files:
        table.begin(file)
        id_field = ID_FIELDS[0]
        for line, row in read_rows(file, findings, part):
            if id_field not in row:
                id_field = next((name for name in ID_FIELDS if name in row), id_field)
            identifier, text = row.get(id_field), row.get("text")
            if type(identifier) is not str or type(text) is not str or not identifier:
                identifier, text = _mended(identifier, id_field, row, Spot(file, line, findings))
                if identifier is None or text is None:
                    continue
            if part == "queries":
                _keep_extras(table, identifier, row, Spot(file, line, findings))
            elif title := row.get("title"):
                if type(title) is str:
                    text = f"{title} {text}" if text else title
                else:
                    message = f"the field title must be a string, not {describe(title)}"
                    findings.add("wrong-type", file, line, message)
            if not text or text.isspace():
                code = "empty-query" if part == "queries" else "empty-document"
                findings.add(code, file, line, f"{shorten(identifier)!r} has no text")
            table.add(identifier, text, line, findings)
    if files and not table.rows and findings.errors == errors:
        findings.add("empty-file", files[0], 0, "holds no rows")
    table.whole = table.rows > 0 and not findings.lost_a_file(start)
    return table


def identifier_of(value: object, name: str, spot: Spot) -> str | None:
    """Convert an id to text; return None, and note why, if it is not one."""
    if type(value) is str and value:
        return value
    if type(value) is int:
        spot.note("number-as-id", f"{name} is {describe(value)}, read as text")
        return str(value)
    spot.note("wrong-type", f"the field {name} must be a non-empty string, not {describe(value)}")
    return None


def _mended(identifier: object, id_field: str, row: Row, spot: Spot) -> tuple[str | None, str | None]:
    """Return the id and text of a malformed row, as far as they can still be used; every defect is noted."""
    mended, names = None, shorten(", ".join(row)) or "no fields"
    if id_field in row:
        mended = identifier_of(identifier, id_field, spot)
    else:
        spot.note("missing-field", f"no {' or '.join(ID_FIELDS)}; the row has {names}")
    text = row.get("text")
    if type(text) is str:
        return mended, text
    if "text" in row:
        spot.note("wrong-type", f"the field text must be a string, not {describe(text)}")
    else:
        spot.note("missing-field", f"no text; the row has {names}")
    return mended, None


def _keep_extras(table: TextTable, identifier: str, row: Row, spot: Spot) -> None:
    for name in EXTRAS:
        value = row.get(name)
        if type(value) is str:
            table.extras[name].setdefault(identifier, value)
        elif value is not None:
            spot.note("unused-field", f"the field {name} must be a string, not {describe(value)}; left out")
    synonyms = row.get("synonyms")
    if isinstance(synonyms, list) and all(type(synonym) is str for synonym in synonyms):
        table.synonyms.setdefault(identifier, tuple(synonym for synonym in synonyms if synonym.strip()))
    elif synonyms is not None:
        spot.note("unused-field", f"the field synonyms must be a list of strings, not {describe(synonyms)}; left out")
