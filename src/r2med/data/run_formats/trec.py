"""TREC run files: `query Q0 document rank score tag`, a line per document."""

from __future__ import annotations

import math

from r2med.data.run import Run
from r2med.data.run_formats.rows import FileRows
from r2med.errors import DataError


def read(data: bytes, name: str) -> FileRows:
    """Read the rows of a TREC run. Columns are separated by ASCII's white space; any other may be part of an id."""
    found = FileRows()
    for number, line in enumerate(data.split(b"\n"), 1):
        columns = line.split()
        if not columns:
            continue
        try:
            query, _, document, rank, text, _ = columns
            place, score = int(rank), float(text)
            rows = found.of(query.decode())
            rows.documents.append(document.decode())
        except ValueError:
            raise DataError(f"{name}:{number}: {_fault(columns)}") from None
        if not math.isfinite(score):
            raise DataError(f"{name}:{number}: the score is {score}, not a finite number")
        rows.scores.append(score)
        rows.ranks.append(place)
    return found


def _fault(columns: list[bytes]) -> str:
    """Return what is wrong with a line that could not be read."""
    if len(columns) != 6:
        return f"{len(columns)} columns where a TREC run has 6: query Q0 document rank score tag"
    for column in (columns[0], columns[2]):
        try:
            column.decode()
        except UnicodeDecodeError:
            return "not UTF-8"
    rank, score = (column.decode(errors="replace")[:40] for column in columns[3:5])
    try:
        int(columns[3])
    except ValueError:
        return f"the rank is {rank!r}, not a whole number"
    return f"the score is {score!r}, not a number"


def write(run: Run, tag: str) -> bytes:
    """Write a TREC run; white space in the tag is left out."""
    for name in (*run.queries, *set(run.documents)):
        if name.split() != [name]:
            fault = "has white space in it" if name else "is empty"
            raise DataError(f"the id {name!r} {fault}, which a TREC run cannot hold; write .jsonl or .parquet")
    label = "".join(tag.split()) or "r2med"
    lines: list[str] = []
    for query, (documents, scores) in run:
        rows = enumerate(zip(documents, scores.tolist(), strict=True), 1)
        lines += [f"{query} Q0 {document} {place} {score!r} {label}\n" for place, (document, score) in rows]
    return "".join(lines).encode()
