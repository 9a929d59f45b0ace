"""Training questions from a judged pool: positives, negatives and their types, and the held-out part.

The passage that a question was written from is neither positive nor negative: a retriever would learn to find a text by
its own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl

from r2med.construction.items import Passage, Question
from r2med.construction.judging import Pair
from r2med.construction.mining import SOURCE
from r2med.construction.pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.construction.selection import draw_groups, join_groups
from r2med.data.labels import NEGATIVE, POSITIVE
from r2med.lexical.hashes import hash_words
from r2med.lexical.near_duplicates import SHINGLE, near_pairs
from r2med.llm.items import Outcome
from r2med.llm.parsing import read_class
from r2med.llm.steps import Asking, Step, step_key, tries
from r2med.llm.types import Request
from r2med.models.templates import bundled
from r2med.store.typed import read_json_lines
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
    rank: int  # the best rank that a system gave it
    reason: str = ""
    type: str = ""  # why it is wrong, of a negative; empty where nobody was asked


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
    groups: int  # questions of a group have something in common, and lie in one part
    largest: int
    shared_questions: int
    shared_positives: int


class TrainingPool(NamedTuple):
    """Training questions of a built task."""

    questions: list[TrainingQuestion]
    held_out: HeldOut
    dropped: dict[str, int]  # why questions yield nothing, and how many
    sources: tuple[int, int]
    """Of the passages that questions were written from, how many the judges call evidence, and how many they saw."""


def judged_questions(built: BuiltTask, settings: DataSettings) -> TrainingPool:
    """Return the questions of a built task that have a positive and a negative."""
    passages = {passage.id: passage for passage in task_passages(built.folder)}
    file = built.folder.parent / QUESTIONS  # of a build of given questions, nothing in it was drawn
    lines = read_json_lines(file) if file.is_file() else []
    drawn = {str(row["id"]): row for row in lines if isinstance(row, dict) and {"passage", "bridge"} <= row.keys()}
    columns = ["query_id", "passage_id", "verdict", "answers", "supports", "reason", "system", "rank"]
    judgements = pl.read_parquet(built.folder / JUDGEMENT_FILE, columns=columns)
    low, high = built.manifest["plan"]["judge"]["scale"]
    pools: dict[str, dict[str, tuple[str, JudgedPassage]]] = {}
    for row in judgements.unique(["query_id", "passage_id"], keep="first", maintain_order=True).iter_rows(named=True):
        if row["passage_id"] in passages and row["verdict"] in (POSITIVE, NEGATIVE):
            score = ((row["answers"] + row["supports"]) / 2 - low) / (high - low)
            ranks = [rank for system, rank in zip(row["system"], row["rank"], strict=True) if system != SOURCE]
            judged = JudgedPassage(passages[row["passage_id"]], score, min(ranks, default=0), row["reason"] or "")
            pools.setdefault(row["query_id"], {})[row["passage_id"]] = row["verdict"], judged
    rows: list[TrainingQuestion] = []
    dropped, seen = Counter[str](), Counter[str]()
    for question in task_questions(built.folder):
        written, pool = drawn.get(question.id, {}), pools.get(question.id, {})
        source, _ = pool.pop(written.get("passage", ""), ("", None))
        seen[source] += 1
        positive, negative = (
            [judged for verdict, judged in pool.values() if verdict == kind] for kind in (POSITIVE, NEGATIVE)
        )
        if positive and negative:
            best = sorted(positive, key=_best_first)
            rows.append(TrainingQuestion(question, best, spread(negative, settings.negatives.count), written=written))
        else:
            dropped[NO_NEGATIVE if positive else NO_POSITIVE] += 1
    return TrainingPool(
        *hold_out(rows, settings.parts), dict(dropped), (seen[POSITIVE], seen[POSITIVE] + seen[NEGATIVE])
    )


def _best_first(judged: JudgedPassage) -> tuple[float, int, str]:
    return -judged.score, judged.rank, judged.passage.id


def spread(negatives: Sequence[JudgedPassage], count: int) -> list[JudgedPassage]:
    """Pick negatives evenly from the whole range, the hardest first: those with high grades, then with high ranks."""
    return pick_evenly(sorted(negatives, key=_best_first), count)


def pick_evenly(ordered: Sequence[Item], count: int) -> list[Item]:
    """Pick items evenly from an order, its first and its last among them; all of them if there are not more.

    >>> pick_evenly("abcdefg", 3), pick_evenly("ab", 3), pick_evenly("ab", 1)
    (['a', 'd', 'g'], ['a', 'b'], ['a'])
    """
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[round(place * (len(ordered) - 1) / max(1, count - 1))] for place in range(count)]


_NEAR = 0.8  # the Jaccard similarity of the shingles of two questions from which on they are nearly the same
_MOST_HELD = 1 / 3
"""Where all groups are larger than what is to be held out, the smallest is, if it is at most this share."""


def hold_out(rows: Sequence[TrainingQuestion], parts: PartSettings) -> tuple[list[TrainingQuestion], HeldOut]:
    """Draw the questions that are held out, and count what the parts have in common.

    Questions lie in one part if they are nearly the same, share a positive, come from one document, or if one was
    written from a positive of the other; directly or through others.
    """
    alike = _alike([row.question.text for row in rows])
    shared: dict[str, list[tuple[str, str]]] = {}
    for row, same in zip(rows, alike, strict=True):
        passages = [positive.passage for positive in row.positives]
        names = [passage.id for passage in passages] + list(filter(None, [row.written.get("passage")]))
        keys = (("document", row.question.sources), ("passage", names), ("text", [p.shown for p in passages]))
        shared[row.question.id] = [*((kind, name) for kind, several in keys for name in several), same]
    groups = join_groups(shared)
    sizes = Counter(groups.values())
    held = draw_groups(groups, parts.dev, parts.seed)
    smallest = min(sizes, key=sizes.__getitem__, default="")
    if parts.dev and not held and 0 < sizes[smallest] <= _MOST_HELD * len(rows):
        held = {name for name, root in groups.items() if root == smallest}
    parted = [replace(row, part=DEV if row.question.id in held else TRAIN) for row in rows]
    texts: dict[str, set[object]] = {TRAIN: set(), DEV: set()}
    positives: dict[str, set[str]] = {TRAIN: set(), DEV: set()}
    for row, same in zip(parted, alike, strict=True):
        texts[row.part].add(same)
        positives[row.part].update(positive.passage.shown for positive in row.positives)
    both = len(texts[TRAIN] & texts[DEV]), len(positives[TRAIN] & positives[DEV])
    return parted, HeldOut(len(rows), len(sizes), max(sizes.values(), default=0), *both)


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


UNTYPED = ""


class Typing:
    """The step that types pairs of a question and a passage that is not evidence for it."""

    def __init__(self, settings: DataSettings) -> None:
        self._types, self._model = settings.negatives.named, settings.asked()
        self._template = bundled("type_negative", "r2med.training")

    @property
    def step(self) -> Step[Pair]:
        """Return the step in the form in which it is run and priced."""
        return Step("type", lambda p: p.id, lambda p: step_key("type", request=self.requests(p)[0].key()), self._work)

    def requests(self, pair: Pair) -> list[Request]:
        """Return the requests about a pair."""
        question = pair.question
        values = {
            "types": "\n".join(f"- {name}: {text}" for name, text in self._types),
            "question": question.text,
            "answer": question.answer,
            "bridge": question.reasoning or "(not given)",
            "passage": pair.passage.shown,
        }
        return [self._model.request(self._template.fill(values))]

    def _work(self, pair: Pair) -> Asking:
        read = partial(read_class, classes=[name for name, _ in self._types])
        kind = yield from tries(self._model, self.requests(pair)[0], read)
        return Outcome({"type": kind or UNTYPED}, marks=() if kind else ("no type could be read",))
