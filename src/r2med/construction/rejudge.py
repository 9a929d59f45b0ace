"""Label noise: a share of the judged pairs judged again by the same judges, with another sample of their replies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

from r2med.construction.judging import Judging, Pair
from r2med.construction.plan import PLAN, BuildPlan, read_plan
from r2med.construction.pool import JUDGEMENT_FILE, BuiltTask, task_passages, task_questions
from r2med.construction.selection import verdict
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, UNJUDGED
from r2med.errors import R2medError
from r2med.llm.items import FAILED, STORE, ItemStore
from r2med.llm.steps import StepEstimate, price_step, run_step
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.population import CaughtShare, share
from r2med.pipeline.executor.local import Executor
from r2med.store.hashes import seeded_hash
from r2med.usage import Usage

STEP = "reask"
_START = 5001
"""The number of the first sample, far from those of a build and of its retries."""
_GRADES: Mapping[str, float] = {NEGATIVE: 0.0, BAND: 1.0, POSITIVE: 2.0}
_COEFFICIENTS = ("raw", "kappa", "alpha-ordinal", "ac1")


@dataclass(frozen=True)
class Rejudgement:
    """Judgements of some pairs when judged again."""

    share: float
    pairs: int
    """Those that could be judged again."""
    unread: int
    confusion: Mapping[str, Mapping[str, int]]
    """First verdict to second verdict to how many pairs."""
    kept_positive: CaughtShare | None
    became_positive: CaughtShare | None
    agreement: Mapping[str, Figure | None]
    spent: Usage

    def as_dict(self) -> dict[str, Any]:
        """Return the second judgements in the shape of `--json`."""
        facts = {name: getattr(self, name) for name in ("share", "pairs", "unread", "confusion")}
        return facts | {
            "stays": self.kept_positive.as_dict() if self.kept_positive else None,
            "joins": self.became_positive.as_dict() if self.became_positive else None,
            "agreement": {name: figure_dict(figure) for name, figure in self.agreement.items()},
            "spent": self.spent.bill(),
        }


class Rejudging:
    """A share of a task's pairs, ready to be judged again."""

    def __init__(self, built: BuiltTask, part: float) -> None:
        self.share = part
        self._folder = built.folder.parent
        self._plan = _unchanged_plan(built)
        rows = pl.read_parquet(built.folder / JUDGEMENT_FILE, columns=["query_id", "passage_id", "verdict"])
        questions = {question.id: question for question in task_questions(built.folder)}
        passages = {passage.id: passage for passage in task_passages(built.folder)}
        of_verdict: dict[str, list[str]] = {label: [] for label in _GRADES}
        pairs: dict[str, Pair] = {}
        for query, passage, label in rows.unique(maintain_order=True).iter_rows():
            if query in questions and label in of_verdict:
                of_verdict[label].append(f"{query}\t{passage}")
                if passage in passages:  # those of the band may have been left out
                    pairs[f"{query}\t{passage}"] = Pair(questions[query], passages[passage])
        self._first: dict[str, str] = {}
        for label, ids in of_verdict.items():
            # A smaller share is part of a larger one.
            ids.sort(key=lambda name: seeded_hash(self._plan.judge.seed, name))
            self._first |= {name: label for name in ids[: math.ceil(part * len(ids))] if name in pairs}
        place = {name: number for number, name in enumerate(questions)}
        self._judging = Judging(self._plan, STEP, _START)
        self._pairs = sorted((pairs[name] for name in self._first), key=lambda pair: place[pair.question.id])

    def estimate(self) -> StepEstimate:
        """Estimate the cost of judging again; nothing is asked."""
        with ItemStore(self._folder) as store:
            return price_step(self._judging.step, self._pairs, self._judging.requests, store)

    def ask(self, executor: Executor) -> Rejudgement:
        """Ask, and compare the verdicts with the labels of the build."""
        with ItemStore(self._folder) as store:
            outcomes = run_step(self._judging.step, self._pairs, store, executor)
        verdicts = {
            pair: verdict(outcomes[pair.id], self._plan.select)
            for pair in self._pairs
            if outcomes[pair.id].state != FAILED
        }
        compared = {pair: (self._first[pair.id], now) for pair, now in verdicts.items() if now != UNJUDGED}
        grades = [[_GRADES[first], _GRADES[now]] for first, now in compared.values()]
        asked = [pair.question.id for pair in compared]
        ratings = Ratings.of(grades, asked, list(_GRADES.values())) if grades else None
        counts = Counter(compared.values())
        rows = {first: {now: counts[first, now] for now in _GRADES} for first in (POSITIVE, BAND, NEGATIVE)}
        confusion = {first: row for first, row in rows.items() if any(row.values())}
        positives = sum(confusion.get(POSITIVE, {}).values())
        return Rejudgement(
            self.share,
            len(compared),
            len(outcomes) - len(compared),
            confusion,
            share(counts[POSITIVE, POSITIVE], positives),
            share(counts[BAND, POSITIVE] + counts[NEGATIVE, POSITIVE], len(compared) - positives),
            coefficients(ratings, _COEFFICIENTS) if ratings else {},
            sum((outcome.spent for outcome in outcomes.values()), Usage()),
        )


def _unchanged_plan(built: BuiltTask) -> BuildPlan:
    """Return the plan that the task was made by: judges of another plan would not measure the noise of these labels."""
    folder = built.folder.parent
    if not (folder / PLAN).is_file() or not (folder / STORE).is_file():
        raise R2medError(f"{built.folder}: pairs can be asked about again only in the folder of their build")
    plan = read_plan(folder)
    now, then = orjson.loads(orjson.dumps(plan.settings)), built.manifest["plan"]
    changed = [name for name in ("judge", "select", "ask") if now[name] != then[name]]
    changed += ["guideline"] if plan.guideline != built.manifest["guideline"] else []
    if changed:
        raise R2medError(
            f"{folder / PLAN}: {' and '.join(changed)} changed since the task was made; first: r2med build run {folder}"
        )
    return plan
