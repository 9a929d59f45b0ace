"""Training questions from a judged pool: positives, negatives and their types, and the held-out part.

The passage that a question was written from is neither positive nor negative: a retriever would learn to find a text by
its own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson
import polars as pl

from r2med.construction.items import Passage, Question
from r2med.construction.judging import Pair
from r2med.construction.mining import SOURCE
from r2med.construction.pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.construction.selection import draw_groups, join_groups
from r2med.data.labels import NEGATIVE, POSITIVE
from r2med.lexical.hashes import hash_words
from r2med.lexical.near_duplicates import SHINGLE, near_pairs
from r2med.llm.cards import find_model
from r2med.llm.items import Outcome
from r2med.llm.parsing import read_class
from r2med.llm.steps import AskedModel, Asking, Step, step_key, tries
from r2med.llm.types import Request
from r2med.models.templates import bundled
from r2med.training.settings import QUESTIONS, DataSettings, PartSettings

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


class HeldOut(NamedTuple):
    """Overlap of the training and held-out parts."""

    questions: int
    groups: int
    """Questions of a group have something in common, and lie in one part."""
    largest: int
    """The questions of the largest group."""
    shared_questions: int
    """Questions of dev with the same or nearly the same words as one of train."""
    shared_positives: int
    """Positives of dev that are positives in train."""


class TrainingPool(NamedTuple):
    """Training questions of a built task."""

    questions: list[TrainingQuestion]
    held_out: HeldOut
    dropped: dict[str, int]
    """Why questions yield nothing, and how many."""
    sources: tuple[int, int]
    """Of the passages that questions were written from, how many the judges call evidence, and how many they saw."""


def judged_questions(built: BuiltTask, negatives: int, parts: PartSettings) -> TrainingPool:
    """Return the questions of a built task that have a positive and a negative."""
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
        found.append(row)
    return TrainingPool(*hold_out(found, parts), dict(dropped), (sources[0], sources[1]))


def _question(
    question: Question, pool: Mapping[str, tuple[str, JudgedPassage]], count: int, drawn: Mapping[str, str]
) -> TrainingQuestion:
    judged = {verdict: [each for said, each in pool.values() if said == verdict] for verdict in (POSITIVE, NEGATIVE)}
    best = sorted(judged[POSITIVE], key=lambda each: (-each.score, each.rank, each.passage.id))
    return TrainingQuestion(question, best, spread(judged[NEGATIVE], count), written=drawn)


def spread(negatives: Sequence[JudgedPassage], count: int) -> list[JudgedPassage]:
    """Pick negatives evenly from the whole range, the hardest and the easiest among them; the hardest come first.

    Hard is what judges grade high, and among equals what systems rank high.
    """
    ordered = sorted(negatives, key=lambda each: (-each.score, each.rank, each.passage.id))
    return pick_evenly(ordered, count)


def pick_evenly(ordered: Sequence[Item], count: int) -> list[Item]:
    """Pick items evenly from an order, its first and its last among them; all of them if there are not more.

    >>> pick_evenly("abcdefg", 3), pick_evenly("ab", 3), pick_evenly("ab", 1)
    (['a', 'd', 'g'], ['a', 'b'], ['a'])
    """
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[round(place * (len(ordered) - 1) / max(1, count - 1))] for place in range(count)]


_NEAR = 0.8
"""The Jaccard similarity of the shingles of two questions from which on they are nearly the same."""
_MOST_HELD = 1 / 3
"""Where all groups are larger than what is to be held out, the smallest is, if it is at most this share."""


def hold_out(rows: Sequence[TrainingQuestion], parts: PartSettings) -> tuple[list[TrainingQuestion], HeldOut]:
    """Draw the questions that are held out, and count what the parts have in common.

    Questions lie in one part if they are nearly the same, share a positive, come from one document, or if one was
    written from a positive of the other; directly or through others.
    """
    alike = _alike([row.question.text for row in rows])
    shared = {row.question.id: [*_common(row), alike[place]] for place, row in enumerate(rows)}
    groups = join_groups(shared)
    sizes = Counter(groups.values())
    held = draw_groups(groups, parts.dev, parts.seed)
    smallest = min(sizes, key=lambda root: sizes[root], default="")
    if parts.dev and not held and 0 < sizes[smallest] <= _MOST_HELD * len(rows):
        held = {name for name, root in groups.items() if root == smallest}
    parted = [replace(row, part=DEV if row.question.id in held else TRAIN) for row in rows]
    texts = {part: {alike[n] for n, row in enumerate(parted) if row.part == part} for part in (TRAIN, DEV)}
    positives = {
        part: {each.passage.shown for row in parted if row.part == part for each in row.positives}
        for part in (TRAIN, DEV)
    }
    return parted, HeldOut(
        len(rows),
        len(sizes),
        max(sizes.values(), default=0),
        len(texts[TRAIN] & texts[DEV]),
        len(positives[TRAIN] & positives[DEV]),
    )


def _common(row: TrainingQuestion) -> list[tuple[str, str]]:
    """Return the keys that other questions may share: source documents, positives, the passage it was written from."""
    sources = [("document", name) for name in row.question.sources]
    passages = [each.passage.id for each in row.positives] + [name for name in [row.written.get("passage")] if name]
    return [*sources, *(("passage", name) for name in passages), *(("text", p.passage.shown) for p in row.positives)]


def _alike(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return for each question one name that those with nearly the same words have too."""
    words = hash_words(texts)
    names = [str(number) for number in words.text_hashes().tolist()]
    first = {name: place for place, name in reversed(list(enumerate(names)))}
    long_enough = [place for place in sorted(first.values()) if words.counts[place] > SHINGLE]
    pairs = near_pairs(texts, np.array(long_enough, dtype=np.intp), _NEAR) if long_enough else []
    linked: dict[str, list[object]] = {name: [name] for name in names}
    for one, other in pairs:
        linked[names[one]].append((one, other))
        linked[names[other]].append((one, other))
    groups = join_groups(linked)
    return [("question", groups[name]) for name in names]


def _written(file: Path) -> dict[str, dict[str, str]]:
    """Return the properties drawn for each written question, by its id; nothing for a build of given questions."""
    if not file.is_file():
        return {}
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
    return {str(row["id"]): row for row in rows if isinstance(row, dict) and "passage" in row and "bridge" in row}


def _pools(built: BuiltTask, passages: Mapping[str, Passage]) -> dict[str, dict[str, tuple[str, JudgedPassage]]]:
    """Return all judged passages of each question in the task, with their verdicts."""
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


STEP = "type"
UNTYPED = ""
"""The type of a negative that nobody was asked about, or that no reply could be read for."""


def typing_step(settings: DataSettings) -> Step[Pair]:
    """Return the step that types pairs of a question and a passage that is not evidence for it."""
    model, names = _model(settings), [name for name, _ in settings.negatives.named]

    def work(pair: Pair) -> Asking:
        request = _request(model, settings, pair)
        found = yield from tries(model, request, partial(read_class, classes=names))
        marks = () if found else ("no type could be read",)
        return Outcome({"type": found or UNTYPED}, marks=marks)

    def key(pair: Pair) -> str:
        return step_key(STEP, request=_request(model, settings, pair).key())

    return Step(STEP, lambda pair: pair.id, key, work=work)


def foresee_typing(settings: DataSettings, pair: Pair) -> list[Request]:
    """Return the requests about a pair."""
    return [_request(_model(settings), settings, pair)]


def _model(settings: DataSettings) -> AskedModel:
    return AskedModel.of(settings.writer, find_model(settings.writer), settings.ask.max_tokens)


def _request(model: AskedModel, settings: DataSettings, pair: Pair) -> Request:
    question = pair.question
    values = {
        "types": "\n".join(f"- {name}: {text}" for name, text in settings.negatives.named),
        "question": question.text,
        "answer": question.answer,
        "bridge": question.reasoning or "(not given)",
        "passage": pair.passage.shown,
    }
    return model.request(bundled("type_negative", "r2med.training").fill(values))
