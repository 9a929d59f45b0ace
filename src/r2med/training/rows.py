"""Rows of training data: the file with its record, and the tables that trainers take."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import polars as pl

from r2med.errors import DataError, R2medError
from r2med.store.files import draft_file
from r2med.training.negatives import DEV, TRAIN, JudgedPassage, TrainingQuestion, pick_evenly
from r2med.training.settings import BOTH, BRIDGE, QUESTION


class ScoredText(NamedTuple):
    """A passage with its score from the judges, from 0 to 1."""

    id: str
    text: str
    score: float


class TrainerRow(NamedTuple):
    """A question in the form that a trainer takes."""

    id: str
    query: str
    positives: Sequence[ScoredText]
    negatives: Sequence[ScoredText]


def trainer_rows(frame: pl.DataFrame, queries: str = QUESTION) -> list[TrainerRow]:
    """Return the rows of a file; one for the question and one with the bridge, where there is one, for `both`."""
    rows = []
    for values in frame.iter_rows(named=True):
        positives, negatives = (
            [ScoredText(passage["id"], passage["text"], passage["score"]) for passage in values[name]]
            for name in ("positives", "negatives")
        )
        name, query, bridge = values["id"], values["query"], values["bridge"]
        bridged = f"{query}\n{bridge}" if bridge else query
        if queries in (QUESTION, BOTH):
            rows.append(TrainerRow(name, query, positives, negatives))
        if queries == BRIDGE or (queries == BOTH and bridge):
            rows.append(TrainerRow(name if queries == BRIDGE else f"{name}+bridge", bridged, positives, negatives))
    return rows


def common_negatives(rows: Sequence[TrainerRow], count: int | None = None) -> int:
    """Return the number of negatives that all rows have, for a trainer that needs the same number of each."""
    if not rows:
        raise R2medError("no row to train on; every question is held out")
    return count if count is not None else min(len(row.negatives) for row in rows)


def triplets(rows: Sequence[TrainerRow], negatives: int) -> dict[str, list[str]]:
    """Return columns anchor, positive, negative_1, ..., a row per positive; leave out rows with fewer negatives."""
    names = ["anchor", "positive", *(f"negative_{number}" for number in range(1, negatives + 1))]
    texts = [
        (row.query, positive.text, *(negative.text for negative in pick_evenly(row.negatives, negatives)))
        for row in rows
        if len(row.negatives) >= negatives
        for positive in row.positives
    ]
    if not texts:
        raise R2medError(f"no row has {negatives:,} negatives; ask for fewer")
    return {name: list(column) for name, column in zip(names, zip(*texts, strict=True), strict=True)}


def labelled_pairs(rows: Sequence[TrainerRow]) -> dict[str, list[Any]]:
    """Return columns query, document and label, a row per pair: the judges' score, from 0 to 1."""
    pairs = [(row.query, passage.text, passage.score) for row in rows for passage in (*row.positives, *row.negatives)]
    return {name: [pair[place] for pair in pairs] for place, name in enumerate(("query", "document", "label"))}


def labelled_lists(rows: Sequence[TrainerRow]) -> dict[str, list[Any]]:
    """Return columns query, docs and labels, a row per question: positives 1, negatives 0."""
    return {
        "query": [row.query for row in rows],
        "docs": [[passage.text for passage in (*row.positives, *row.negatives)] for row in rows],
        "labels": [[1] * len(row.positives) + [0] * len(row.negatives) for row in rows],
    }


def passages_of_rows(rows: Sequence[TrainerRow]) -> dict[str, str]:
    """Return all passages of some rows by id."""
    return {passage.id: passage.text for row in rows for passage in (*row.positives, *row.negatives)}


FORMAT = 1
_KEY = "r2med"
_TEXT, _SCORE = pl.String(), pl.Float64()
_PASSAGE = {"id": _TEXT, "text": _TEXT, "score": _SCORE, "reason": _TEXT, "link": _TEXT}
COLUMNS: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("id", "part", "query", "answer", "bridge"), _TEXT),
    "positives": pl.List(pl.Struct(_PASSAGE)),
    "negatives": pl.List(pl.Struct(_PASSAGE | {"type": _TEXT})),
    **dict.fromkeys(("source", "document", "length", "style", "difficulty", "origin", "writer"), _TEXT),
    "judges": pl.List(_TEXT),
    "licence": _TEXT,
}
"""The columns: `source` is the passage that a question was written from, `origin` the documents or build it is of."""


@dataclass(frozen=True)
class RowProvenance:
    """Provenance that all rows of a file share."""

    origin: str
    writer: str
    judges: tuple[str, ...]
    licence: str


def training_frame(questions: Sequence[TrainingQuestion], common: RowProvenance) -> pl.DataFrame:
    """Build the table of the questions' rows."""
    rows = [
        {
            "id": row.question.id,
            "part": row.part,
            "query": row.question.text,
            "answer": row.question.answer,
            "bridge": row.question.reasoning,
            "positives": [_passage(judged) for judged in row.positives],
            "negatives": [_passage(judged) | {"type": judged.type or None} for judged in row.negatives],
            "source": row.written.get("passage"),
            "document": "\t".join(row.question.sources),
            **{name: row.written.get(name) for name in ("length", "style", "difficulty")},
            "origin": common.origin,
            "writer": common.writer or None,
            "judges": list(common.judges),
            "licence": common.licence,
        }
        for row in questions
    ]
    return pl.DataFrame(rows, schema=dict(COLUMNS))


def _passage(judged: JudgedPassage) -> dict[str, Any]:
    passage = judged.passage
    content = {"id": passage.id, "text": passage.shown, "score": judged.score}
    return content | {"reason": judged.reason, "link": passage.source or None}


def fingerprint(frame: pl.DataFrame) -> str:
    """Return a hash of all rows in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for row in frame.iter_rows():
        digest.update(orjson.dumps(row))
    return digest.hexdigest()


def write_training_file(path: Path, frame: pl.DataFrame, record: Mapping[str, Any]) -> None:
    """Write the file as a whole; the same rows and record give the same bytes."""
    full = {"format": FORMAT, "fingerprint": fingerprint(frame), **record}
    with draft_file(path, parents=True) as draft:
        frame.write_parquet(
            draft,
            compression="zstd",
            row_group_size=max(1, len(frame)),
            statistics=False,
            metadata={_KEY: orjson.dumps(full, option=orjson.OPT_SORT_KEYS).decode()},
        )


@dataclass(frozen=True)
class TrainingFile:
    """A file of training data as it was read."""

    path: Path
    rows: pl.DataFrame
    record: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the rows."""
        return str(self.record["fingerprint"])

    @property
    def facts(self) -> dict[str, Any]:
        """Return where the rows come from and the tasks that they were compared with, for the records of others."""
        names = ("fingerprint", "origin", "licence", "rows", "leakage")
        return {"file": self.path.name, **{name: self.record.get(name) for name in names}}

    def part(self, name: str) -> pl.DataFrame:
        """Return the rows that are trained on (train) or held out (dev)."""
        return self.rows.filter(pl.col("part") == name)


def read_training_file(path: Path) -> TrainingFile:
    """Read a file of training data; refuse one without a record of the leakage check, or with changed rows."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        record = orjson.loads(pl.read_parquet_metadata(path).get(_KEY, "null"))
        rows = pl.read_parquet(path)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path}: is not a whole parquet file ({str(error).partition(chr(10))[0]})") from error
    if not isinstance(record, dict) or "leakage" not in record:
        raise DataError(f"{path}: has no record of a leakage check; make training data with: r2med train data")
    if record.get("format") != FORMAT or dict(rows.schema) != dict(COLUMNS):
        numbers = f"format {record.get('format')}, this version has {FORMAT}"
        raise DataError(f"{path}: made by another version of r2med ({numbers}); make it again: r2med train data")
    if fingerprint(rows) != record.get("fingerprint"):
        raise DataError(f"{path}: the rows changed since they were checked for leakage; run r2med train data again")
    return TrainingFile(path, rows, record)


def read_training_files(paths: Sequence[Path]) -> list[TrainingFile]:
    """Read files of training data, each once; refuse a question that is in two of them."""
    files = [read_training_file(path) for path in dict.fromkeys(paths)]
    seen: dict[str, Path] = {}
    for file in files:
        for name in file.rows["id"]:
            if seen.setdefault(name, file.path) != file.path:
                raise DataError(f"{file.path}: has the question {name!r} of {seen[name]}, too")
    return files


def count_rows(frame: pl.DataFrame) -> dict[str, int]:
    """Count the questions of each part, the positives and the negatives."""
    parts = {part: frame.filter(pl.col("part") == part).height for part in (TRAIN, DEV)}
    return parts | {name: int(frame[name].list.len().sum()) for name in ("positives", "negatives")}


def count_types(frame: pl.DataFrame) -> dict[str, int]:
    """Count the negatives of each type; those without a type are under an empty name."""
    kinds = frame.explode("negatives").select(pl.col("negatives").struct.field("type").fill_null(""))
    return {name: int(count) for name, count in sorted(kinds["type"].value_counts().iter_rows())}
