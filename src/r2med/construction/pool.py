"""The judged pool of a built task: finders of each positive, verdicts, scores, opinions and splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import polars as pl

from r2med.construction.items import Passage, Question
from r2med.construction.mining import SOURCE
from r2med.data.labels import PAIR, POSITIVE
from r2med.errors import DataError, R2medError
from r2med.store.typed import read_json_lines

TASK, MANIFEST = "task", "build.json"
FORMAT = 1  # of what `r2med build` writes into the folder of a task; another one whenever that changes
QUERY_FILE, CORPUS_FILE, JUDGEMENT_FILE = "query.jsonl", "corpus.jsonl", "judgements.parquet"


class Positive(NamedTuple):
    """A relevant passage of a question, and how it came into the pool."""

    question: str
    passage: str
    systems: frozenset[str]  # members of the committee that found it, from any view
    views: frozenset[str]
    source: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Positive:
        """Build a positive from a row of judgements."""
        systems, views = (frozenset(row[name]) - {SOURCE} for name in ("system", "view"))
        return cls(row["query_id"], row["passage_id"], systems, views, SOURCE in row["system"])


class ScoreCount(NamedTuple):
    """Number of pairs with these scores on both axes."""

    answers: float
    supports: float
    verdict: str
    pairs: int


@dataclass(frozen=True)
class JudgedPool:
    """Judgements of the questions that a task kept."""

    questions: Sequence[Question]
    splits: Mapping[str, str]  # the split of each question; empty where there is one only
    positives: Sequence[Positive]
    verdicts: Mapping[str, int]
    scores: Sequence[ScoreCount]
    opinions: pl.DataFrame = field(repr=False)  # query_id, passage_id, judge and both grades, a row an opinion
    quotes: Mapping[str, int]

    @classmethod
    def of(cls, rows: pl.DataFrame, questions: Sequence[Question], splits: Mapping[str, str]) -> JudgedPool:
        """Build the pool of some questions from the rows of all judgements."""
        scored = ["answers", "supports", "verdict"]
        pairs = rows.unique(PAIR, keep="first", maintain_order=True)
        kept = pl.col("query_id").is_in([question.id for question in questions])
        positives = pairs.filter(kept & (pl.col("verdict") == POSITIVE))
        opinions = rows.filter(kept & pl.col("judge").is_not_null())
        return cls(
            questions,
            splits,
            [Positive.of(row) for row in positives.iter_rows(named=True)],
            _counts(pairs.filter(kept)["verdict"]),
            [ScoreCount(*row) for row in pairs.drop_nulls("answers").group_by(scored).len().sort(scored).iter_rows()],
            opinions.select(*PAIR, "judge", "judge_answers", "judge_supports"),
            _counts(opinions.filter(pl.col("verdict") == POSITIVE)["quote_state"]),
        )


def _counts(column: pl.Series) -> dict[str, int]:
    return dict(sorted(column.drop_nulls().value_counts().iter_rows()))


@dataclass(frozen=True)
class BuiltTask:
    """A finished task in its folder."""

    folder: Path
    manifest: Mapping[str, Any]
    pool: JudgedPool

    @property
    def systems(self) -> list[str]:
        """Return the systems of the committee."""
        return list(self.manifest["plan"]["mine"]["systems"])


def read_built_task(folder: Path) -> BuiltTask:
    """Read the task of a build's folder, or of the task's folder itself."""
    place = folder if (folder / MANIFEST).is_file() else folder / TASK
    if not (place / MANIFEST).is_file():
        raise R2medError(f"{folder}: no finished task in it; run: r2med build run {folder}")
    try:
        manifest = orjson.loads((place / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            raise R2medError(
                f"{place}: made by another version of r2med (format {manifest['format']}, this version has {FORMAT});"
                f" make it again with: r2med build run {folder}"
            )
        judged = pl.read_parquet(place / JUDGEMENT_FILE)
        splits = {
            line.partition("\t")[0]: file.stem
            for file in (place / "qrels").glob("*.tsv")
            for line in file.read_text("utf-8").splitlines()[1:]
        }
        return BuiltTask(place, manifest, JudgedPool.of(judged, list(task_questions(place)), splits))
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DataError(f"{place}: not a whole task of r2med build: {reason}") from error


def task_questions(folder: Path) -> Iterator[Question]:
    """Yield the questions of a finished task, as its builder had them."""
    for row in read_json_lines(folder / QUERY_FILE):
        original, sources = row.get("original", row["text"]), tuple(row.get("sources", ()))
        reasoning = row.get("reasoning", "")
        yield Question(row["id"], original, row["answer"], (), sources, row["text"], reasoning=reasoning)


def task_passages(folder: Path) -> Iterator[Passage]:
    """Yield the passages of a finished task."""
    for row in read_json_lines(folder / CORPUS_FILE):
        yield Passage(**({"title": "", "source": ""} | row))
