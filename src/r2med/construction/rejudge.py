"""Label noise: a share of the judged pairs judged again by the same judges, with another sample of their replies.

All stages of a label are repeated (first judge, judges, samples, extra samples, cuts). Every request has a number of
its own, so that no stored reply of the build stands in for it; the new replies are stored like any other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from r2med.construction.judging import Pair, foresee_judging, judging_step
from r2med.construction.package import plan_settings
from r2med.construction.plan import PLAN, BuildPlan, read_plan
from r2med.construction.pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.construction.selection import verdict
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, UNJUDGED
from r2med.errors import R2medError
from r2med.llm.client import current_client
from r2med.llm.items import FAILED, STORE, ItemStore
from r2med.llm.steps import StepEstimate, open_items, run_step
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.population import CaughtShare, share
from r2med.pipeline.executor.local import Executor
from r2med.usage import Usage

STEP = "reask"
_START = 5001
"""The number of the first sample, far from those of a build and of its retries."""
_GRADES: Mapping[str, float] = {NEGATIVE: 0.0, BAND: 1.0, POSITIVE: 2.0}
_COEFFICIENTS = ("raw", "kappa", "alpha-ordinal", "ac1")


@dataclass(frozen=True)
class SecondLabels:
    """Judgements of some pairs when judged again."""

    share: float
    """Of the pairs of each verdict, so many were asked about again."""
    pairs: int
    """Those that could be judged again."""
    unread: int
    """Those that no judge could be read on, or answered."""
    confusion: Mapping[str, Mapping[str, int]]
    """First verdict to second verdict to how many pairs."""
    stays: CaughtShare | None
    """Of the positives, those that were positive again."""
    joins: CaughtShare | None
    """Of all others, those that were positive now."""
    agreement: Mapping[str, Figure | None]
    spent: Usage

    def as_dict(self) -> dict[str, Any]:
        """Return the second judgements in the shape of `--json`."""
        return {
            "share": self.share,
            "pairs": self.pairs,
            "unread": self.unread,
            "confusion": {first: dict(row) for first, row in self.confusion.items()},
            "stays": self.stays.as_dict() if self.stays else None,
            "joins": self.joins.as_dict() if self.joins else None,
            "agreement": {name: figure_dict(figure) for name, figure in self.agreement.items()},
            "spent": self.spent.bill(),
        }


class SecondAsking:
    """A share of a task's pairs, ready to be judged again."""

    def __init__(self, built: BuiltTask, part: float) -> None:
        self.share = part
        self._folder = built.folder.parent
        self._plan = _unchanged_plan(built)
        kept = {question.id for question in built.pool.questions}
        verdicts = {pair: said for pair, said in _verdicts(built.folder).items() if pair[0] in kept}
        self._pairs = list(_pairs(built.folder, _drawn(verdicts, part, self._plan.judge.seed)))
        self._first = {pair.id: verdicts[pair.question.id, pair.passage.id] for pair in self._pairs}

    def estimate(self) -> StepEstimate:
        """Estimate the cost of judging again; nothing is asked."""
        step, foresee = judging_step(self._plan, STEP, _START), foresee_judging(self._plan, _START)
        with ItemStore(self._folder) as store:
            missing = open_items(step, self._pairs, store)
        guess = current_client().estimate([request for pair in missing for request in foresee(pair)])
        return StepEstimate(STEP, len(missing), guess)

    def ask(self, executor: Executor) -> SecondLabels:
        """Ask, and compare the verdicts with the labels of the build."""
        with ItemStore(self._folder) as store:
            outcomes = run_step(judging_step(self._plan, STEP, _START), self._pairs, store, executor)
        second = {name: verdict(outcome, self._plan.select) for name, outcome in outcomes.items()}
        usable = {n for n, o in outcomes.items() if o.state != FAILED and second[n] != UNJUDGED}
        compared = [(pair, self._first[pair.id], second[pair.id]) for pair in self._pairs if pair.id in usable]
        rows = [[_GRADES[first], _GRADES[now]] for _, first, now in compared]
        asked = [pair.question.id for pair, _, _ in compared]
        ratings = Ratings.of(rows, asked, list(_GRADES.values())) if rows else None
        positive = [now == POSITIVE for _, first, now in compared if first == POSITIVE]
        others = [now == POSITIVE for _, first, now in compared if first != POSITIVE]
        return SecondLabels(
            self.share,
            len(compared),
            len(outcomes) - len(compared),
            _confusion([(first, now) for _, first, now in compared]),
            share(sum(positive), len(positive)),
            share(sum(others), len(others)),
            coefficients(ratings, _COEFFICIENTS) if ratings else {},
            sum((outcome.spent for outcome in outcomes.values()), Usage()),
        )


def _unchanged_plan(built: BuiltTask) -> BuildPlan:
    """Return the plan that the task was made by: judges of another plan would not measure the noise of these labels."""
    folder = built.folder.parent
    if not (folder / PLAN).is_file() or not (folder / STORE).is_file():
        raise R2medError(f"{built.folder}: pairs can be asked about again only in the folder of their build")
    plan = read_plan(folder)
    now, then = orjson.loads(orjson.dumps(plan_settings(plan))), built.manifest["plan"]
    changed = [name for name in ("judge", "select", "ask") if now[name] != then[name]]
    changed += ["guideline"] if plan.guideline != built.manifest["guideline"] else []
    if changed:
        raise R2medError(
            f"{folder / PLAN}: {' and '.join(changed)} changed since the task was made; first: r2med build run {folder}"
        )
    return plan


def _verdicts(folder: Path) -> dict[tuple[str, str], str]:
    rows = pl.read_parquet(folder / JUDGEMENT_FILE, columns=["query_id", "passage_id", "verdict"])
    return {(query, passage): said for query, passage, said in rows.unique(maintain_order=True).iter_rows()}


def _drawn(verdicts: Mapping[tuple[str, str], str], part: float, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the same share of the pairs of each verdict, at least one; a smaller share is part of a larger one."""

    def order(pair: tuple[str, str]) -> bytes:
        return hashlib.blake2b("\t".join([str(seed), *pair]).encode("utf-8", "surrogatepass"), digest_size=8).digest()

    for said in _GRADES:
        pairs = sorted((pair for pair, first in verdicts.items() if first == said), key=order)
        yield from pairs[: math.ceil(part * len(pairs))]


def _pairs(folder: Path, drawn: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    """Yield the drawn pairs whose passage is in the task: those of the band may have been left out."""
    wanted: dict[str, list[str]] = {}
    for query, passage in drawn:
        wanted.setdefault(query, []).append(passage)
    passages = {passage.id: passage for passage in task_passages(folder)}
    for question in task_questions(folder):
        yield from (Pair(question, passages[name]) for name in wanted.get(question.id, ()) if name in passages)


def _confusion(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[str, int]]:
    return {
        first: {now: sum(pair == (first, now) for pair in pairs) for now in _GRADES}
        for first in (POSITIVE, BAND, NEGATIVE)
        if any(pair[0] == first for pair in pairs)
    }
