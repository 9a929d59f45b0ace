"""Files of generations: JSON lines, TSV and the authors' own layout, read and written."""

from __future__ import annotations

import csv
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from r2med.data.dataset import Generation, Texts
from r2med.data.formats import Digests, lines, read_rows
from r2med.data.problems import ERROR, Findings, Spot, place
from r2med.data.texts import identifier_of
from r2med.errors import DataError
from r2med.formatting import describe, shorten

if TYPE_CHECKING:
    pass

HYDOC = "query_with_hydoc.jsonl"
"""The name of the published files."""
_HEADERS = {"id", "_id", "qid", "query_id", "query-id"}


@dataclass
class Written:
    """Content of a file: texts by query, and the queries' own texts if it has them."""

    path: Path
    whole: bool
    """Whether a text is the whole query to search with, not something to join with it."""
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    digests: Digests = field(default_factory=Digests)

    @property
    def content(self) -> str:
        """Return the hash of the very bytes that the texts were read from."""
        return self.digests.of(self.path)[:32]

    def add(self, query: str, texts: tuple[str, ...], spot: Spot) -> None:
        """Add a row; a repeated one is ignored, another text under the same id is noted as an error."""
        if self.texts.setdefault(query, texts) != texts:
            spot.note("conflicting-id", f"repeats the id {shorten(query)!r} with another text")


def read_written(path: Path, known: AbstractCollection[str]) -> Written:
    """Read a file by its ending. `known` are the ids of the queries it is meant for."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; generations are read from a .jsonl or .tsv file")
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending == ".jsonl":
        return _checked(*_read_hydoc(path))
    if ending == ".tsv":
        return _checked(*_read_tsv(path, known))
    raise DataError(f"{path}: generations are read from {HYDOC} (id, text, hy_doc) or a .tsv file of two columns")


def hydoc_rows(queries: Texts, generations: Mapping[str, Sequence[Generation]]) -> bytes:
    """Format what was written for queries as the benchmark's rows (id, text, hy_doc); several texts are a list.

    A query without a usable text has no row.
    """
    rows = []
    for query, text in queries:
        texts = [one.text for one in generations.get(query, ()) if not one.incomplete]
        if texts:
            rows.append({"id": query, "text": text, "hy_doc": texts[0] if len(texts) == 1 else texts})
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _checked(written: Written, found: Findings) -> Written:
    if found.errors:
        more = f" (and {found.errors - 1} more)" if found.errors > 1 else ""
        raise DataError(f"{next(found.of(ERROR))}{more}")
    if not written.texts:
        raise DataError(f"{written.path}: holds no rows")
    return written


def _read_hydoc(path: Path) -> tuple[Written, Findings]:
    written, found = Written(path, whole=False), Findings()
    for number, row in read_rows(path, found, written.digests):
        spot = Spot(path, number, found)
        missing = [name for name in ("id", "hy_doc") if name not in row]
        if missing:
            names = shorten(", ".join(row)) or "no fields"
            spot.note("missing-field", f"no {' and no '.join(missing)}; the row has {names}")
            continue
        query, texts = identifier_of(row["id"], "id", spot), _texts(row["hy_doc"])
        if texts is None:
            spot.note("wrong-type", f"hy_doc must be a text or a list of texts, not {describe(row['hy_doc'])}")
        elif query is not None:
            written.add(query, texts, spot)
            text = row.get("text")
            if isinstance(text, str):
                written.queries[query] = text
    return written, found


def _texts(value: object) -> tuple[str, ...] | None:
    """Return one text, or several of a query that was asked about more than once."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    return None


def _read_tsv(path: Path, known: AbstractCollection[str]) -> tuple[Written, Findings]:
    written, found = Written(path, whole=True), Findings()
    for number, row in _table(written, found):
        spot = Spot(path, number, found)
        if len(row) != 2:
            spot.note("wrong-columns", f"expected two columns, an id and a text with a tab between, found {len(row)}")
            continue
        query, text = row
        if number == 1 and query not in known and query.casefold() in _HEADERS:
            continue
        swallowed = any(line.partition("\t")[0] in known for line in text.split("\n")[1:] if "\t" in line)
        if swallowed:
            spot.note("wrong-columns", "a quote opens here and takes in the rows below; quote the whole text")
            continue
        written.add(query, (text,), spot)
    return written, found


def _table(written: Written, found: Findings) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with the lines they start in; a quoted text may span several."""
    reader = csv.reader(_decoded(written, found), delimiter="\t")
    start = 1
    try:
        for row in reader:
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{place(written.path, start)}: not a table of two columns: {error}") from error


def _decoded(written: Written, found: Findings) -> Iterator[str]:
    for number, line in lines(written.path, found, written.digests):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{place(written.path, number)}: not UTF-8 (byte {error.start + 1}); save it as UTF-8"
            ) from error


def mismatched(written: Written, queries: Mapping[str, str]) -> int:
    """Count the rows that are under a query's id and quote another query, ignoring spacing."""
    quoted = ((written.queries[query], text) for query, text in queries.items() if query in written.queries)
    return sum(one.split() != other.split() for one, other in quoted)
