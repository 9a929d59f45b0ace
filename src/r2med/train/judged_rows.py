"""From a judged pool to training rows: which passages are positives, which negatives, and which questions are held out.

The passage that a question was written from is neither: a retriever would learn to find a text by its own words.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson
import polars as pl

from r2med.build.build_items import Passage, Question
from r2med.build.judged_pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.build.mining import SOURCE
from r2med.build.select_questions import NEGATIVE, POSITIVE
from r2med.train.data_settings import QUESTIONS, PartSettings

TRAIN, DEV = "train", "dev"
NO_POSITIVE = "no positive but the passage it was written from"
NO_NEGATIVE = "no negative"
Item = TypeVar("Item")


@dataclass(frozen=True)
class JudgedPassage:
    """A passage of a question's pool with its judgement."""

    passage: Passage
    score: float
    """Both grades of the judges together, from 0 to 1."""
    rank: int
    """The best rank that a system gave it."""
    reason: str = ""
    type: str = ""
    """Why it is wrong, of a negative; empty where nobody was asked."""


@dataclass(frozen=True)
class TrainingQuestion:
    """A question with the passages that it is trained on."""

    question: Question
    positives: Sequence[JudgedPassage]
    negatives: Sequence[JudgedPassage]
    part: str = TRAIN
    written: Mapping[str, str] = field(default_factory=dict)
    """What was drawn for it, and the passage that it was written from; empty where it was not written here."""


class TrainingPool(NamedTuple):
    """What a built task yields for training."""

    questions: list[TrainingQuestion]
    dropped: dict[str, int]
    """Why questions yield nothing, and how many."""
    sources: tuple[int, int]
    """Of the passages that questions were written from, how many the judges call evidence, and how many they saw."""


def judged_questions(built: BuiltTask, negatives: int, parts: PartSettings) -> TrainingPool:
    """The questions of a built task that have a positive and a negative."""
    passages = {passage.id: passage for passage in task_passages(built.folder)}
    written = _written(built.folder.parent / QUESTIONS)
    pools = _pools(built, passages)
    found: list[TrainingQuestion] = []
    dropped: Counter[str] = Counter()
    sources = [0, 0]
    for question in task_questions(built.folder):
        drawn = written.get(question.id, {})
        pool = dict(pools.get(question.id, {}))
        source = pool.pop(drawn.get("passage", ""), None)
        if source is not None:
            sources = [sources[0] + (source[0] == POSITIVE), sources[1] + 1]
        row = _question(question, pool, negatives, drawn)
        if not row.positives or not row.negatives:
            dropped[NO_NEGATIVE if row.positives else NO_POSITIVE] += 1
            continue
        found.append(replace(row, part=part_of(question, parts)))
    return TrainingPool(found, dict(dropped), (sources[0], sources[1]))


def _question(
    question: Question, pool: Mapping[str, tuple[str, JudgedPassage]], count: int, drawn: Mapping[str, str]
) -> TrainingQuestion:
    judged = {verdict: [each for said, each in pool.values() if said == verdict] for verdict in (POSITIVE, NEGATIVE)}
    best = sorted(judged[POSITIVE], key=lambda each: (-each.score, each.rank, each.passage.id))
    return TrainingQuestion(question, best, spread(judged[NEGATIVE], count), written=drawn)


def spread(negatives: Sequence[JudgedPassage], count: int) -> list[JudgedPassage]:
    """So many negatives from the whole range, the hardest and the easiest among them; the hardest come first.

    Hard is what judges grade high, and among equals what systems rank high.
    """
    ordered = sorted(negatives, key=lambda each: (-each.score, each.rank, each.passage.id))
    return pick_evenly(ordered, count)


def pick_evenly(ordered: Sequence[Item], count: int) -> list[Item]:
    """So many from all over an order, its first and its last among them; all of them where there are not more.

    >>> pick_evenly("abcdefg", 3), pick_evenly("ab", 3), pick_evenly("ab", 1)
    (['a', 'd', 'g'], ['a', 'b'], ['a'])
    """
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[round(place * (len(ordered) - 1) / max(1, count - 1))] for place in range(count)]


def part_of(question: Question, parts: PartSettings) -> str:
    """Whether a question is trained on or held out: all questions of one source document lie in one part."""
    name = "\t".join(question.sources) or question.id
    digest = hashlib.blake2b(f"{parts.seed}\t{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return DEV if int.from_bytes(digest, "big") / 2**64 < parts.dev else TRAIN


def _written(file: Path) -> dict[str, dict[str, str]]:
    """What was drawn for each question that was written, by its id; nothing for a build of given questions."""
    if not file.is_file():
        return {}
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
    return {str(row["id"]): row for row in rows if isinstance(row, dict) and "passage" in row and "bridge" in row}


def _pools(built: BuiltTask, passages: Mapping[str, Passage]) -> dict[str, dict[str, tuple[str, JudgedPassage]]]:
    """Every judged passage of each question that is in the task, with its verdict."""
    columns = ["query_id", "passage_id", "verdict", "answers", "supports", "reason", "system", "rank"]
    rows = pl.read_parquet(built.folder / JUDGEMENT_FILE, columns=columns)
    low, high = built.manifest["plan"]["judge"]["scale"]
    pools: dict[str, dict[str, tuple[str, JudgedPassage]]] = {}
    for row in rows.unique(["query_id", "passage_id"], keep="first", maintain_order=True).iter_rows(named=True):
        if row["passage_id"] in passages and row["verdict"] in (POSITIVE, NEGATIVE):
            judged = _judged(row, passages[row["passage_id"]], low, high)
            pools.setdefault(row["query_id"], {})[row["passage_id"]] = row["verdict"], judged
    return pools


def _judged(row: Mapping[str, Any], passage: Passage, low: int, high: int) -> JudgedPassage:
    score = ((row["answers"] + row["supports"]) / 2 - low) / (high - low)
    ranks = [rank for system, rank in zip(row["system"], row["rank"], strict=True) if system != SOURCE]
    return JudgedPassage(passage, score, min(ranks, default=0), row["reason"] or "")
