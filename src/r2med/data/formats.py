"""Formats of a task's files: the names of the files of each part, and how their rows are read.

A format is one object in `FORMATS`. Its readers yield rows as mappings of names to values, and note every defect and
step over it. To add one, write a function that yields the rows of a file, and an entry.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import orjson

from r2med.data.problems import Findings
from r2med.formatting import describe, first_line, shorten
from r2med.settings import memory_limit
from r2med.store.hashes import stamp

Row = Mapping[str, object]
Rows = Iterator[tuple[int, Row]]  # rows with their numbers, counted from 1
ID_FIELDS = ("id", "_id")
QUERY_FIELDS = ("q_id", "query-id", "query_id", "qid")
DOCUMENT_FIELDS = ("p_id", "corpus-id", "corpus_id", "document_id", "doc_id", "docid", "pid")
GRADE_FIELDS = tuple(
    "score relevance grade rel label rating judgment judgement relevancy relevant gain relevance_score relevance_grade"
    " relevance_label".split()
)
ASPECT_FIELDS = ("aspect", "aspect_id", "subtopic", "subtopic_id")
WEIGHT_FIELDS = ("weight", "aspect_weight")
REVIEWER_FIELDS = ("reviewer", "annotator", "rater", "assessor", "judge")
"""The names of fields by what they hold, in any case, with - or _; reviewers are read by `read_label_sets` alone."""
_HEADINGS = ((QUERY_FIELDS, DOCUMENT_FIELDS), (ID_FIELDS, ("text",)))  # fields by which a header is known
_COLUMNS: Mapping[int, Sequence[str]] = {  # of a table without a header, by their number; TREC's second is ignored
    3: (QUERY_FIELDS[0], DOCUMENT_FIELDS[0], GRADE_FIELDS[0]),
    4: (QUERY_FIELDS[0], "", DOCUMENT_FIELDS[0], GRADE_FIELDS[0]),
}
_DIVERSITY = "diversity"  # in the name of a file of TREC judgements, its second column is the subtopic
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 20
_LONGEST = 64 << 20  # the bytes of the longest line that is read
_DEEPEST = 250  # brackets in a line from which on a parser may give up for their depth
_SHARE = 64  # fraction of the memory that may be used for the rows of a table at a time
_FIRST_ROWS = 256
_MOST_ROWS = 65_536


def lines(path: Path, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file with their numbers, unzipped and without a byte order mark."""
    number, crlf = 0, False
    try:
        with open_file(path) as stream:
            first = stream.readline(_LONGEST + 1)
            if first.startswith(_UTF16):
                findings.add("bad-encoding", path, 1, "the file is UTF-16; save it as UTF-8")
                return
            if first.startswith(_BOM):
                findings.add("bom", path, 1, "starts with a byte order mark, which was skipped")
                first = first.removeprefix(_BOM)
            rest = iter(partial(stream.readline, _LONGEST + 1), b"")
            for number, line in enumerate(chain([first] if first else [], rest), 1):
                if len(line) > _LONGEST:
                    message = f"longer than {_LONGEST >> 20} MB without an end of line; a row is a line"
                    findings.add("damaged-file", path, number, message)
                    return
                if not crlf and line.endswith(b"\r\n"):
                    crlf = True
                    findings.add("crlf", path, number, "Windows line ends (CRLF), which were accepted")
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        findings.add("damaged-file", path, number + 1, f"the gzip data is cut short or damaged ({first_line(error)})")
    except OSError as error:
        findings.add("unreadable-file", path, 0, f"cannot be read: {error.strerror or first_line(error)}")


def json_rows(path: Path, findings: Findings) -> Rows:
    """Read the objects of a file of JSON lines; blank lines are skipped."""
    return parse_lines(lines(path, findings), path, findings)


def parse_lines(numbered: Iterable[tuple[int, bytes]], path: Path, findings: Findings) -> Rows:
    """Yield the objects that lines of a file hold."""
    for number, line in numbered:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if "memory" in error.msg.lower():
                if line.count(b"[") + line.count(b"{") <= _DEEPEST:
                    # orjson reports it so when memory cannot be allocated.
                    raise MemoryError(f"while {path} was read") from error
                findings.add("broken-json", path, number, "not JSON: brackets are nested too deeply, or not closed")
            elif line.strip():
                code, message = _broken(line, error)
                findings.add(code, path, number, message)
            continue
        if type(row) is not dict:
            findings.add("broken-json", path, number, f"expected a JSON object, found {describe(row)}")
        elif line.count(b'"') == 2 * (len(row) + list(map(type, row.values())).count(str)):
            # Quotes surround keys and texts, and escaped ones only add to them: without more of them, no further key.
            yield number, row
        elif repeated := repeated_key(line, row):
            findings.add("repeated-key", path, number, f"the key {shorten(repeated)!r} is given twice")
        else:
            yield number, row


def repeated_key(text: bytes, value: object) -> str:
    """Return a key that an object in JSON text gives twice, of which a parser keeps the last; else empty."""
    # A quote and a colon are nearly always a key. Only if their number differs is the text parsed with care.
    if text.count(b'":') == _count_keys(value):
        return ""
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)

    try:
        json.loads(text, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return ""
    return twice[0] if twice else ""


def _count_keys(value: object) -> int:
    if type(value) is dict:
        return len(value) + sum(_count_keys(part) for part in value.values() if type(part) in (dict, list))
    if type(value) is list:
        return sum(_count_keys(part) for part in value if type(part) in (dict, list))
    return 0


def parquet_rows(path: Path, findings: Findings) -> Rows:
    """Yield the rows of a parquet file, a slice of them in memory at a time."""
    import polars

    before, problem, size = stamp(path), ("", ""), max(_BUFFER, memory_limit() // _SHARE)
    try:
        # Batches of the streaming engine do not help: it reads ahead of its consumer.
        table = polars.scan_parquet(path, glob=False)
        total, start, rows = table.select(polars.len()).collect().item(), 0, _FIRST_ROWS
        while start < total:
            part = table.slice(start, rows).collect()
            yield from enumerate(part.iter_rows(named=True), start + 1)
            start += rows
            rows = max(1, min(_MOST_ROWS, size * len(part) // max(1, int(part.estimated_size()))))
    except OSError as error:
        problem = "unreadable-file", f"cannot be read: {error.strerror or first_line(error)}"
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        problem = "damaged-file", f"is not a whole parquet file ({first_line(error)})"
    if stamp(path) != before:
        problem = "unreadable-file", "changed while it was read; read it again"
    if problem[0]:
        findings.add(problem[0], path, 0, problem[1])


def open_file(path: Path) -> BinaryIO:
    """Open the bytes of a file, unzipped if it is gzipped."""
    stream = io.BufferedReader(io.FileIO(path), _BUFFER)
    if path.suffix == ".gz" or stream.peek(len(_GZIP)).startswith(_GZIP):
        # The outer buffer finds line ends in C; a GzipFile on its own does it in Python.
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=stream)), _BUFFER)
    return stream


def _broken(line: bytes, error: orjson.JSONDecodeError) -> tuple[str, str]:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return "bad-encoding", not_utf8(line, bad)
    if b"\0" in line:
        return "broken-json", f"not JSON: a null byte at position {line.index(0) + 1}"
    # JSON that ends too early ends before the line break, not on the next line.
    column = min(error.pos, len(error.doc.rstrip())) + 1
    return "broken-json", f"not JSON: {error.msg.partition(':')[0]} at column {column}"


def not_utf8(line: bytes, bad: UnicodeDecodeError) -> str:
    """Return the message about a line that does not decode."""
    return f"not UTF-8: byte 0x{line[bad.start]:02x} at position {bad.start + 1}; save it as UTF-8"


def table_rows(path: Path, findings: Findings) -> Rows:
    """Read a table, its cells between tabs if a line has any, otherwise between blanks; or JSON lines of any ending."""
    first = next((line for _, line in lines(path, Findings()) if line.strip()), b"")
    with suppress(orjson.JSONDecodeError):
        if isinstance(orjson.loads(first), dict):
            return json_rows(path, findings)
    return _named_cells(_table_cells(path, findings), path, findings)


def csv_rows(path: Path, findings: Findings) -> Rows:
    """Read the rows of a CSV file, cells quoted or not."""
    return _named_cells(_csv_cells(path, findings), path, findings)


def _table_cells(path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path, findings):
        if not line.strip():
            continue
        # Split before decoding: only ASCII blanks separate columns, an id may hold any other space.
        cells = line.rstrip(b"\r\n").split(b"\t") if b"\t" in line else line.split()
        try:
            yield number, [cell.decode("utf-8") for cell in cells]
        except UnicodeDecodeError as bad:
            message = f"not UTF-8: byte 0x{bad.object[bad.start]:02x}; save it as UTF-8"
            findings.add("bad-encoding", path, number, message)


def _csv_cells(path: Path, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path, findings):
        try:
            cells = next(csv.reader([line.decode("utf-8").rstrip("\r\n")], strict=True), [])
        except UnicodeDecodeError as bad:
            findings.add("bad-encoding", path, number, not_utf8(line, bad))
        except csv.Error as error:
            findings.add("wrong-columns", path, number, f"not a line of CSV: {error}")
        else:
            if any(cell.strip() for cell in cells):
                yield number, cells


def _named_cells(numbered: Iterator[tuple[int, list[str]]], path: Path, findings: Findings) -> Rows:
    """Yield rows by the names of a header, or of the columns that a table of judgements without one has."""
    header: Sequence[str] | None = None
    for place, (line, cells) in enumerate(numbered):
        plain = set(map(plain_name, cells)) if not place else set()
        if any(plain & set(map(plain_name, one)) and plain & set(map(plain_name, other)) for one, other in _HEADINGS):
            header = cells
            if len({*cells}) < len(cells):
                findings.add("wrong-columns", path, line, f"two columns have the same name: {', '.join(cells)}")
                return
            continue
        names = header or _COLUMNS.get(len(cells))
        if header is None and len(cells) == 4 and _DIVERSITY in path.name:
            names = (QUERY_FIELDS[0], ASPECT_FIELDS[0], DOCUMENT_FIELDS[0], GRADE_FIELDS[0])
        if names is None or len(names) != len(cells):
            expected = ", ".join(header) if header else "query, document, grade or query, 0, document, grade"
            findings.add("wrong-columns", path, line, f"{len(cells)} columns; expected {expected}")
            continue
        yield line, dict(zip(names, cells, strict=True))


def plain_name(name: str) -> str:
    """Return the name of a field as it is compared with others."""
    return name.strip().casefold().replace("_", "-")


class DataFormat(NamedTuple):
    """Format of files: what they are called, and how their rows are read."""

    endings: tuple[str, ...]  # endings of a file that is named by a user, before `.gz`
    rows: Callable[[Path, Findings], Rows]
    patterns: Mapping[str, tuple[str, ...]]
    """Names of the files of each part that may come in this format. Text files may end in .gz, a `{split}.parquet` may
    be cut into `{split}-00000-of-00002.parquet` and so on."""


_SHARDED = (".parquet", "/{split}.parquet", "/{split}/{shard}.parquet")
FORMATS: Sequence[DataFormat] = (
    DataFormat(
        (".jsonl", ".json"),
        json_rows,
        {"documents": ("corpus.jsonl",), "queries": ("query.jsonl", "queries.jsonl"), "qrels": ("qrels.jsonl",)},
    ),
    DataFormat((".txt", ".tsv"), table_rows, {"qrels": ("qrels.txt", "qrels.tsv", "qrels/{split}.tsv")}),
    DataFormat((".csv",), csv_rows, {"qrels": ("qrels.csv", "qrels/{split}.csv")}),
    DataFormat(
        (".parquet",),
        parquet_rows,
        {
            "documents": tuple(f"corpus{ending}" for ending in _SHARDED),
            "queries": tuple(f"{name}{ending}" for ending in _SHARDED for name in ("query", "queries")),
            "qrels": tuple(f"qrels{ending}" for ending in _SHARDED),
        },
    ),
)
"""Every format; of a part the files of the first pattern that exists are read. R2MED's own files come first, then
BEIR's, then parquet: one file per part, or a folder per part as the hub's configs are written."""
PATTERNS: Mapping[str, Sequence[str]] = {  # names of the files of each part, in the order they are looked for
    part: [pattern for form in FORMATS for pattern in form.patterns.get(part, ())]
    for part in ("documents", "queries", "qrels")
}


def read_rows(path: Path, findings: Findings, part: str = "documents") -> Rows:
    """Read the rows of a file of a part by its format."""
    ending = Path(path.name.removesuffix(".gz")).suffix
    readers = [form.rows for form in FORMATS if part in form.patterns and ending in form.endings]
    return (*readers, table_rows if part == "qrels" else json_rows)[0](path, findings)
