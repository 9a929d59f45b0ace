"""Run files: TREC, JSON lines, JSON and parquet, zipped or not, read with every defect that they can have, and written.

A line of TREC is `query Q0 document rank score tag`. A line of jsonl is an object with the query under one of `QUERY`
and its list under one of `LIST`. The values of a json file, and a line's list, are any of

    [["document", score], ...]                  the benchmark authors' form, under "topk_pid"
    {"document": score, ...}                    the input of pytrec_eval
    [{"id": "document", "score": score}, ...]   the document under one of `DOCUMENT`
    ["document", ...]                           best first; the scores become n, n - 1, ..., 1

Ids may be numbers. Lists of one query on several lines are joined. Parquet has a row per document, with the columns
query, document, score and, if there is one, rank.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.formats import repeated_key
from r2med.data.run import Run
from r2med.errors import DataError
from r2med.formatting import counted, describe, shorten
from r2med.lexical.ranking import Scores, as_float32
from r2med.store.files import write_file

if TYPE_CHECKING:
    import polars as pl

QUERY = ("id", "q_id", "query_id", "qid", "query-id")
LIST = ("topk_pid", "topk_docs", "docs", "documents", "results")
DOCUMENT = ("id", "doc_id", "p_id", "pid", "docid", "document", "corpus-id")
_QUERY_COLUMN = ("query", "query_id", "qid", "q_id", "query-id")
_DOCUMENT_COLUMN = ("document", "document_id", "doc_id", "docno", "docid", "p_id", "pid", "corpus-id")
_SCORE_COLUMN = ("score", "sim", "similarity")
_UNSCORED = object()


@dataclass
class QueryRows:
    """Rows of a query, in the order of the file."""

    documents: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)  # ranks; empty if the file has none


@dataclass
class FileRows:
    """Rows of a file."""

    lists: defaultdict[str, QueryRows] = field(default_factory=lambda: defaultdict(QueryRows))
    unscored: int = 0  # number of lists without scores
    double: bool = True  # whether the scores were in double precision, not in single


def assemble(file_rows: FileRows) -> tuple[Run, list[str]]:
    """Build the run of a file's rows; return it with a counted sentence for each kind of fix."""
    lists: dict[str, tuple[list[str], Scores]] = {}
    folded = misranked = unsorted = 0
    for query, rows in file_rows.lists.items():
        compared = as_float32(np.array(rows.scores))
        by_rank = sorted(range(len(rows.ranks)), key=rows.ranks.__getitem__)
        if _rises(compared[by_rank]):
            misranked += 1
        elif _rises(compared):
            unsorted += 1
        documents, scores = rows.documents, rows.scores
        if len(set(documents)) < len(documents):
            best: dict[str, float] = {}
            for document, score in zip(documents, scores, strict=True):
                best[document] = max(score, best.get(document, score))
            folded += len(documents) - len(best)
            documents, scores = list(best), list(best.values())
        lists[query] = (documents, np.array(scores, dtype=np.float64 if file_rows.double else np.float32))
    counts = (
        (folded, "row repeats a document of its", "rows repeat a document of their", "query; the best score was kept"),
        (misranked, "list has", "lists have", "ranks that disagree with the scores; the scores decide"),
        (unsorted, "list was", "lists were", "not in the order of the scores, and sorted"),
        (file_rows.unscored, "list has", "lists have", "no scores; the order given was kept"),
    )
    return Run.from_lists(lists), [f"{counted(count, one, many)} {what}" for count, one, many, what in counts if count]


def _rises(scores: NDArray[np.float32]) -> bool:
    """Return whether a later score is above an earlier one; ties may be in any order."""
    return bool((scores[1:] > scores[:-1]).any())


def _read_trec(data: bytes, name: str) -> FileRows:
    """Read the rows of a TREC run. Columns are separated by ASCII's white space; any other may be part of an id."""
    file_rows = FileRows()
    for number, line in enumerate(data.split(b"\n"), 1):
        columns = line.split()
        if not columns:
            continue
        try:
            query, _, document, rank, text, _ = columns
            place, score = int(rank), float(text)
            rows = file_rows.lists[query.decode()]
            rows.documents.append(document.decode())
        except ValueError:
            raise DataError(f"{name}:{number}: {_fault(columns)}") from None
        if not math.isfinite(score):
            raise DataError(f"{name}:{number}: the score is {score}, not a finite number")
        rows.scores.append(score)
        rows.ranks.append(place)
    return file_rows


def _fault(columns: list[bytes]) -> str:
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


def _write_trec(run: Run, tag: str) -> bytes:
    """Write a TREC run; white space in the tag is left out."""
    for name in (*run.queries, *set(run.documents)):
        if name.split() != [name]:
            fault = "has white space in it" if name else "is empty"
            raise DataError(f"the id {name!r} {fault}, which a TREC run cannot hold; write .jsonl or .parquet")
    label = "".join(tag.split()) or "r2med"
    lines = [
        f"{query} Q0 {document} {place} {score!r} {label}\n"
        for query, (documents, scores) in run
        for place, (document, score) in enumerate(zip(documents, scores.tolist(), strict=True), 1)
    ]
    return "".join(lines).encode()


def _read_lines(data: bytes, name: str) -> FileRows:
    file_rows = FileRows()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        entry = _parsed(line, where)
        if not isinstance(entry, dict):
            raise DataError(f"{where}: not an object with a query and its documents")
        query, documents = _pick(entry, QUERY), _pick(entry, LIST)
        if query is None:
            raise DataError(f"{where}: no query id; looked for {', '.join(QUERY)}")
        if documents is None:
            raise DataError(f"{where}: no list of documents; looked for {', '.join(LIST)}")
        _add(file_rows, _identifier(entry[query], where), entry[documents], where)
    return file_rows


def _read_object(data: bytes, name: str) -> FileRows:
    lists = _parsed(data, name)
    if not isinstance(lists, dict):
        raise DataError(f"{name}: not an object of queries, each with its documents")
    file_rows = FileRows()
    for query, documents in lists.items():
        _add(file_rows, query, documents, f"{name}: query {query}")
    return file_rows


def _write_lines(run: Run, _: str) -> bytes:
    """Write a query per line, in the shape of the benchmark's authors."""
    lines = ({"id": query, "topk_pid": list(zip(ids, scores.tolist(), strict=True))} for query, (ids, scores) in run)
    return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


def _write_object(run: Run, _: str) -> bytes:
    lists = {query: dict(zip(documents, scores.tolist(), strict=True)) for query, (documents, scores) in run}
    return orjson.dumps(lists, option=orjson.OPT_APPEND_NEWLINE)


def _is_lines(data: bytes) -> bool:
    """Return whether JSON text is a query per line rather than one object."""
    first, _, rest = data.strip().partition(b"\n")
    try:
        entry = orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return bool(rest) or (isinstance(entry, dict) and None not in (_pick(entry, QUERY), _pick(entry, LIST)))


def _pick(entry: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if key in entry), None)


def _parsed(data: bytes, where: str) -> Any:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        fault = f"not JSON ({error.msg.removesuffix('.')}, column {error.colno})"
        try:
            data.decode()
        except UnicodeDecodeError:
            fault = "not UTF-8"
        # One object may span lines; a line of jsonl is in `where` already.
        line = f":{error.lineno}" if b"\n" in data else ""
        raise DataError(f"{where}{line}: {fault}") from error
    if repeated := repeated_key(data, value):
        raise DataError(f"{where}: the key {shorten(repeated)!r} is given twice")
    return value


def _add(file_rows: FileRows, query: str, value: Any, where: str) -> None:
    pairs, rows = list(_pairs(value, where)), file_rows.lists[query]
    if unscored := sum(score is _UNSCORED for _, score in pairs):
        if unscored < len(pairs):
            raise DataError(f"{where}: {unscored} of {len(pairs)} documents have no score")
        if rows.documents:
            raise DataError(f"{where}: a second list for query {query}, without scores to join the two by")
        file_rows.unscored += 1
        pairs = [(document, len(pairs) - place) for place, (document, _) in enumerate(pairs)]
    for document, score in pairs:
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise DataError(f"{where}: document {document}: the score is {describe(score)}, not a number")
        try:
            number = float(score)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise DataError(f"{where}: document {document}: the score is {number}, not a finite number")
        rows.documents.append(document)
        rows.scores.append(number)


def _pairs(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
        return
    if not isinstance(value, list):
        raise DataError(f"{where}: the documents are neither a list nor an object")
    for item in value:
        if isinstance(item, list) and len(item) == 2:
            yield _identifier(item[0], where), item[1]
        elif isinstance(item, dict) and (key := _pick(item, DOCUMENT)) is not None:
            yield _identifier(item[key], where), item.get("score", _UNSCORED)
        else:
            yield _identifier(item, where), _UNSCORED


def _identifier(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{where}: expected an id, found {describe(value)}")


def _read_parquet(data: bytes, name: str) -> FileRows:
    import polars as pl

    try:
        table = pl.read_parquet(BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{name}: not a parquet file, or a damaged one") from error
    queries, documents = (_ids(table, names, name) for names in (_QUERY_COLUMN, _DOCUMENT_COLUMN))
    scores = _column(table, _SCORE_COLUMN, name)
    if not scores.dtype.is_numeric():
        raise DataError(f"{name}: the column {scores.name} is {scores.dtype}, not numbers")
    scores = scores if scores.dtype == pl.Float32 else scores.cast(pl.Float64)
    if not scores.is_finite().all():
        bad = int(scores.is_finite().arg_min() or 0)
        raise DataError(f"{name}: row {bad + 1}: the score is {scores[bad]}, not a finite number")
    file_rows = FileRows(double=scores.dtype != pl.Float32)
    for query, document, score in zip(queries, documents, scores.to_list(), strict=True):
        file_rows.lists[query].documents.append(document)
        file_rows.lists[query].scores.append(score)
    if "rank" in table.columns and table["rank"].dtype.is_integer() and not table["rank"].null_count():
        for query, rank in zip(queries, table["rank"].to_list(), strict=True):
            file_rows.lists[query].ranks.append(rank)
    return file_rows


def _write_parquet(run: Run, _: str) -> bytes:
    import polars as pl

    lengths = np.diff(run.offsets)
    starts = np.repeat(run.offsets[:-1], lengths)
    table = pl.DataFrame(
        {
            "query": pl.Series(list(run.queries), dtype=pl.String).gather(np.repeat(np.arange(len(run)), lengths)),
            "document": pl.Series(list(run.documents), dtype=pl.String),
            "rank": np.arange(run.rows) - starts + 1,
            "score": run.scores,
        }
    )
    buffer = BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _column(table: pl.DataFrame, names: tuple[str, ...], path: str) -> pl.Series:
    heading = _pick(dict.fromkeys(table.columns), names)
    if heading is None:
        looked_for = f"{', '.join(names)} among {', '.join(table.columns)}"
        raise DataError(f"{path}: no column of the {names[0]}; looked for {looked_for}")
    column = table[heading]
    if column.null_count():
        raise DataError(f"{path}: row {int(column.is_null().arg_max() or 0) + 1}: no {heading}")
    return column


def _ids(table: pl.DataFrame, names: tuple[str, ...], path: str) -> list[str]:
    import polars as pl

    column = _column(table, names, path)
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
        raise DataError(f"{path}: the column {column.name} is {column.dtype}, not ids")
    return column.cast(pl.String).to_list()


class RunFormat(NamedTuple):
    """Format of run files, with its reader and writer."""

    extensions: tuple[str, ...]
    read: Callable[[bytes, str], FileRows]
    write: Callable[[Run, str], bytes]


FORMATS: Mapping[str, RunFormat] = {
    "trec": RunFormat((".trec", ".run", ".txt", ".res"), _read_trec, _write_trec),
    "jsonl": RunFormat((".jsonl", ".ndjson"), _read_lines, _write_lines),
    "json": RunFormat((".json",), _read_object, _write_object),
    "parquet": RunFormat((".parquet", ".pq"), _read_parquet, _write_parquet),
}
_BY_EXTENSION = {extension: name for name, form in FORMATS.items() for extension in form.extensions}


def read_run(path: Path | str) -> tuple[Run, list[str]]:
    """Read a run file of any known format; return it with a counted sentence for each kind of fix."""
    path = Path(path)
    data = _content(path)
    if not data.strip():
        raise DataError(f"{path}: the file is empty")
    ending = _ending(path)
    # The content decides if the ending is unknown or .json, used by both kinds of JSON.
    if ending in _BY_EXTENSION and ending != ".json":
        form = _BY_EXTENSION[ending]
    elif data.startswith(b"PAR1"):
        form = "parquet"
    elif ending != ".json" and data.lstrip()[:1] != b"{":
        form = "trec"
    else:
        form = "jsonl" if _is_lines(data) else "json"
    file_rows = FORMATS[form].read(data, str(path))
    if not file_rows.lists:
        raise DataError(f"{path}: the file holds no query")
    run, warnings = assemble(file_rows)
    # Single precision is that of trec_eval and r2med.
    lists = sum(len(np.unique(ranking.scores)) > len(np.unique(as_float32(ranking.scores))) for _, ranking in run)
    what = "scores that differ in double precision only or lie beyond single precision; they rank as equal"
    return run, [*warnings, *([f"{counted(lists, 'list has', 'lists have')} {what}"] if lists else [])]


def write_run(run: Run, path: Path | str, tag: str = "r2med") -> None:
    """Write a run in the format of the file's extension, whole or not at all; `tag` is the last column of trec."""
    path = Path(path)
    if _ending(path) not in _BY_EXTENSION:
        raise DataError(f"{path}: no format of that name; end it in {' '.join(_BY_EXTENSION)}, with .gz if you like")
    try:
        if len(bad := np.flatnonzero(~np.isfinite(run.scores))):
            document, score = run.documents[bad[0]], run.scores[bad[0]]
            raise DataError(f"the score of document {document} is {score}, not a finite number")
        data = FORMATS[_BY_EXTENSION[_ending(path)]].write(run, tag)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (UnicodeEncodeError, orjson.JSONEncodeError) as error:
        raise DataError(f"{path}: an id of the run is not valid Unicode") from error
    zipped = path.name.lower().endswith(".gz")
    write_file(path, gzip.compress(data, compresslevel=6, mtime=0) if zipped else data, parents=True)


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        reasons = {FileNotFoundError: "no such file", IsADirectoryError: "a folder, not a run file"}
        raise DataError(f"{path}: {reasons.get(type(error), f'cannot be read ({error.strerror})')}") from error
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path}: the gzip data is damaged or cut short") from error
    return data.removeprefix(b"\xef\xbb\xbf")


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
