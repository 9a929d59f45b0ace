"""The file of training data: one parquet, a row a question, with where everything came from and what was checked.

The record (settings, models, prompts, leakage) travels in the file's metadata, with a fingerprint of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from r2med.errors import DataError
from r2med.storage.files import draft_file
from r2med.train.judged_rows import DEV, TRAIN, JudgedPassage, TrainingQuestion

FORMAT = 1
_KEY = "r2med"
_TEXT, _SCORE = pl.String(), pl.Float64()
_POSITIVE = pl.Struct({"id": _TEXT, "text": _TEXT, "score": _SCORE, "reason": _TEXT, "link": _TEXT})
_NEGATIVE = pl.Struct({"id": _TEXT, "text": _TEXT, "score": _SCORE, "reason": _TEXT, "link": _TEXT, "type": _TEXT})
COLUMNS: Mapping[str, pl.DataType] = {
    "id": _TEXT,
    "part": _TEXT,
    "query": _TEXT,
    "answer": _TEXT,
    "bridge": _TEXT,
    "positives": pl.List(_POSITIVE),
    "negatives": pl.List(_NEGATIVE),
    "source": _TEXT,
    "document": _TEXT,
    "length": _TEXT,
    "style": _TEXT,
    "difficulty": _TEXT,
    "origin": _TEXT,
    "writer": _TEXT,
    "judges": pl.List(_TEXT),
    "licence": _TEXT,
}
"""The columns: `source` is the passage that a question was written from, `origin` the documents or build it is of."""


@dataclass(frozen=True)
class RowProvenance:
    """What is the same for all rows of a file."""

    origin: str
    writer: str
    judges: tuple[str, ...]
    licence: str


def training_frame(questions: Sequence[TrainingQuestion], common: RowProvenance) -> pl.DataFrame:
    """The rows of questions."""
    return pl.DataFrame([_row(question, common) for question in questions], schema=dict(COLUMNS))


def _row(row: TrainingQuestion, common: RowProvenance) -> dict[str, Any]:
    question, drawn = row.question, row.written
    return {
        "id": question.id,
        "part": row.part,
        "query": question.text,
        "answer": question.answer,
        "bridge": question.reasoning,
        "positives": [_passage(each) for each in row.positives],
        "negatives": [_passage(each) | {"type": each.type or None} for each in row.negatives],
        "source": drawn.get("passage"),
        "document": "\t".join(question.sources),
        **{name: drawn.get(name) for name in ("length", "style", "difficulty")},
        "origin": common.origin,
        "writer": common.writer or None,
        "judges": list(common.judges),
        "licence": common.licence,
    }


def _passage(each: JudgedPassage) -> dict[str, Any]:
    passage = each.passage
    shown = {"id": passage.id, "text": passage.shown, "score": each.score}
    return shown | {"reason": each.reason, "link": passage.source or None}


def fingerprint(frame: pl.DataFrame) -> str:
    """A hash of all rows in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for row in frame.iter_rows():
        digest.update(orjson.dumps(row))
    return digest.hexdigest()


def write_training_file(path: Path, frame: pl.DataFrame, record: Mapping[str, Any]) -> None:
    """Put the file in its place, whole; the same rows and record are the same bytes."""
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
        """Of its rows."""
        return str(self.record["fingerprint"])

    def part(self, name: str) -> pl.DataFrame:
        """The rows that are trained on (train) or held out (dev)."""
        return self.rows.filter(pl.col("part") == name)


def read_training_file(path: Path) -> TrainingFile:
    """A file of training data; one without a record of the leakage check, or with other rows, is refused."""
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
    """Files of training data, each once; a question that two of them have is refused."""
    files = [read_training_file(path) for path in dict.fromkeys(paths)]
    seen: dict[str, Path] = {}
    for file in files:
        for name in file.rows["id"]:
            if seen.setdefault(name, file.path) != file.path:
                raise DataError(f"{file.path}: has the question {name!r} of {seen[name]}, too")
    return files


def count_rows(frame: pl.DataFrame) -> dict[str, int]:
    """How many questions each part has, and how many positives and negatives there are."""
    return {
        TRAIN: frame.filter(pl.col("part") == TRAIN).height,
        DEV: frame.filter(pl.col("part") == DEV).height,
        "positives": int(frame["positives"].list.len().sum()),
        "negatives": int(frame["negatives"].list.len().sum()),
    }


def count_types(frame: pl.DataFrame) -> dict[str, int]:
    """How many negatives each type has; those without a type under an empty name."""
    kinds = frame.explode("negatives").select(pl.col("negatives").struct.field("type").fill_null(""))
    return {name: int(count) for name, count in sorted(kinds["type"].value_counts().iter_rows())}
