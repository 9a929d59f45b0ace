"""Labels in files: tables of a class per query, by which results can be sliced, and the judgements of a build."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from r2med.errors import DataError
from r2med.store.files import write_file
from r2med.store.typed import read_text

POSITIVE, BAND, NEGATIVE, UNJUDGED = "positive", "band", "negative", "unjudged"

PAIR = ["query_id", "passage_id"]  # the columns that name a pair in judgements of a build


def judged_qrels(path: Path) -> dict[str, dict[str, int]] | None:
    """Return a build's verdicts in its `judgements.parquet`, the band as 0, without unjudged pairs; else None."""
    try:
        if path.suffix != ".parquet" or not {*PAIR, "verdict"} <= set(pl.read_parquet_schema(path)):
            return None
        rows = pl.read_parquet(path, columns=[*PAIR, "verdict"]).unique(PAIR, keep="first", maintain_order=True)
    except (OSError, pl.exceptions.PolarsError):
        # The reader of other kinds of judgements reports what is wrong.
        return None
    qrels: dict[str, dict[str, int]] = {}
    for query, passage, verdict in rows.filter(pl.col("verdict") != UNJUDGED).iter_rows():
        qrels.setdefault(query, {})[passage] = int(verdict == POSITIVE)
    return qrels


_HEADERS = {"query", "id", "_id", "qid", "query_id", "query-id"}
_COLUMNS = ("task", "query", "label")


@dataclass(frozen=True)
class Labels:
    """Labels of queries. Ids are local to a task; a label without a task is for any."""

    found: Mapping[tuple[str, str], str]

    def of(self, task: str, query: str) -> str:
        """Return a query's label, empty if it has none."""
        return self.found.get((task, query)) or self.found.get(("", query), "")


def read_labels(path: Path) -> Labels:
    """Read a table of tab-separated columns: task, query, label; or query, label. A line of headings may come first."""
    labels: dict[tuple[str, str], str] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        cells = line.removesuffix("\r").split("\t")
        if cells == [""] or (number == 1 and cells[-2:-1] and cells[-2].casefold() in _HEADERS):
            continue
        if len(cells) not in (2, 3) or not all(cells[-2:]):
            raise DataError(f"{path}:{number}: expected task, query and label (or query and label) with tabs between")
        task, query, label = ["", *cells][-3:]
        if labels.setdefault((task, query), label) != label:
            raise DataError(f"{path}:{number}: query {query!r} has the label {labels[task, query]!r} above")
    if not labels:
        raise DataError(f"{path}: holds no labels")
    return Labels(labels)


def write_labels(path: Path, labels: Iterable[tuple[str, str, str]]) -> None:
    """Write rows of task, query and label, as `read_labels` reads them."""
    rows = list(labels)
    for cell in (cell for row in rows for cell in row):
        if re.search(r"[\t\r\n]", cell):
            raise DataError(f"{cell!r} holds a tab or a line break and cannot stand in a table of labels")
    write_file(path, "".join("\t".join(row) + "\n" for row in (_COLUMNS, *rows)), parents=True)
