"""Runs as parquet: a row per document, columns query, document, score and, if there is one, rank."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from r2med.data.run import Run
from r2med.data.run_formats.rows import FileRows
from r2med.errors import DataError

if TYPE_CHECKING:
    import polars as pl

QUERY = ("query", "query_id", "qid", "q_id", "query-id")
DOCUMENT = ("document", "document_id", "doc_id", "docno", "docid", "p_id", "pid", "corpus-id")
SCORE = ("score", "sim", "similarity")


def read(data: bytes, name: str) -> FileRows:
    """Read the rows of a parquet file."""
    import polars as pl

    try:
        table = pl.read_parquet(BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{name}: not a parquet file, or a damaged one") from error
    queries, documents = _ids(table, QUERY, name), _ids(table, DOCUMENT, name)
    scores = _scores(table, name)
    found = FileRows(double=scores.dtype != pl.Float32)
    for query, document, score in zip(queries, documents, scores.to_list(), strict=True):
        rows = found.of(query)
        rows.documents.append(document)
        rows.scores.append(score)
    for query, rank in zip(queries, _ranks(table), strict=False):
        found.of(query).ranks.append(rank)
    return found


def write(run: Run, _: str) -> bytes:
    """Write a table with the columns query, document, rank and score."""
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


def _pick(table: pl.DataFrame, names: tuple[str, ...], path: str) -> pl.Series:
    chosen = next((name for name in names if name in table.columns), None)
    if chosen is None:
        raise DataError(
            f"{path}: no column of the {names[0]}; looked for {', '.join(names)} among {', '.join(table.columns)}"
        )
    column = table[chosen]
    if column.null_count():
        raise DataError(f"{path}: row {int(column.is_null().arg_max() or 0) + 1}: no {chosen}")
    return column


def _ids(table: pl.DataFrame, names: tuple[str, ...], path: str) -> list[str]:
    import polars as pl

    column = _pick(table, names, path)
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
        raise DataError(f"{path}: the column {column.name} is {column.dtype}, not ids")
    found: list[str] = column.cast(pl.String).to_list()
    return found


def _scores(table: pl.DataFrame, path: str) -> pl.Series:
    import polars as pl

    column = _pick(table, SCORE, path)
    if not column.dtype.is_numeric():
        raise DataError(f"{path}: the column {column.name} is {column.dtype}, not numbers")
    if column.dtype != pl.Float32:
        column = column.cast(pl.Float64)
    finite = column.is_finite()
    if not finite.all():
        bad = int(finite.arg_min() or 0)
        raise DataError(f"{path}: row {bad + 1}: the score is {column[bad]}, not a finite number")
    return column


def _ranks(table: pl.DataFrame) -> list[int]:
    """Return the ranks, an empty list if the file has no usable ones."""
    usable = "rank" in table.columns and table["rank"].dtype.is_integer() and not table["rank"].null_count()
    return table["rank"].to_list() if usable else []
