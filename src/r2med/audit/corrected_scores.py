"""The study of `r2med correct`: scores as published, with holes filled by a judge, and corrected by people's labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.audit.correction import CorrectedMeans, HolePool, calibrate, correct
from r2med.data.dataset import Qrels
from r2med.data.qrels import read_label_sets
from r2med.errors import DataError, R2medError
from r2med.formatting import counted
from r2med.measure.bootstrap import SEED, task_intervals
from r2med.measure.correlation import kendall
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.significance import ALPHA, difference_interval, holm, randomisation_tests
from r2med.store.cache import home
from r2med.store.files import expanded, write_file
from r2med.store.hashes import cache_key
from r2med.store.typed import json_bytes, read_json

Floats = NDArray[np.float64]
_FOLDER = "corrections"
LEAST = 20  # human labels below which there is no figure
MISSING = 0.1  # the share of a sample that may lack a grade
SIZES = (30, 100, 300, 1_000)  # of samples that `--plan` tries
_ROUNDS = 20
_PLANNED_DRAWS = 8
_ASSUMED = {"a good judge": (0.9, 0.02), "a poor judge": (0.6, 0.05)}
"""Judges that `--plan` assumes: which share of what they call relevant is, and which share of the rest."""
_RARE = 0.1  # the share of relevant holes that `--plan` assumes without a judge
_FAMILIES = {
    "GPT": r"gpt|chatgpt|\bo[134]\b|text-embedding-(3|ada)|openai",
    "Claude": r"claude|anthropic",
    "Gemini": r"gemini|gemma|google",
    "Qwen": r"qwen|qwq",
    "Llama": r"llama",
    "Mistral": r"mistral|mixtral|ministral",
    "DeepSeek": r"deepseek",
}


@dataclass(frozen=True)
class HumanSample:
    """People's labels of pairs that a review drew at random."""

    review: str
    qrels: Qrels  # with 0 for what is not relevant
    drawn: Qrels  # the pairs of the task that were drawn at random, judged or not
    systems: tuple[str, ...]  # names of the runs whose documents the review drew from
    depth: int  # down to which rank


@dataclass(frozen=True)
class JudgeLabels:
    """A judge's labels of holes, once or several times."""

    name: str
    replies: Floats  # time x hole: 1 where it is called relevant, 0 where not, not a number without a reply

    @property
    def shares(self) -> Floats:
        """Return the share of replies that call each hole relevant; the mean of all where there is no reply."""
        counts = (~np.isnan(self.replies)).sum(axis=0)
        mean = np.nanmean(self.replies)
        return np.where(counts > 0, np.nansum(self.replies, axis=0) / np.maximum(counts, 1), mean)


@dataclass(frozen=True)
class CorrectedSystem:
    """A system with its score under three sets of labels."""

    system: str
    holes: float  # The mean share of its documents down to the cutoff that the task does not judge.
    published: Figure  # Holes count as 0; the interval is over questions.
    filled: Figure | None  # Holes as the first judge labels them; null without a judge.
    corrected: Figure | None  # As people would label them; the interval has questions and labels in it.
    labels: Figure | None  # The corrected score with the interval for these questions, from labels alone.
    places: Mapping[str, tuple[int, int]]  # By score, the first and the last place that are not excluded.
    family: str  # The family of models that it shares with a judge; empty if none.
    interaction: Figure | None  # Between two judges: by how much more than others it gains from the first.

    def as_dict(self) -> dict[str, Any]:
        """Return the system in the shape of `--json`."""
        names = ("published", "filled", "corrected", "labels", "interaction")
        return vars(self) | {name: figure_dict(getattr(self, name), "mean") for name in names}


@dataclass(frozen=True)
class JudgeFacts:
    """How a judge labels the holes, and how far people agree where they looked."""

    judge: str
    relevant: float  # The share of holes that it calls relevant.
    sampled: int  # Holes that people labelled.
    both: int  # Of these, called relevant by both.
    judge_alone: int
    people_alone: int
    repeats: int  # How many times it was asked.
    changes: float | None  # The share of holes on which its replies differ; null if it was asked once.
    spread: float | None  # The largest range over repeats of a system's filled score; null if it was asked once.


@dataclass(frozen=True)
class CorrectedScores:
    """Systems of a task under published, filled and corrected labels."""

    task: str
    measure: str
    questions: int
    pool: int  # Pairs in the pool: what the task judges and the systems' documents down to the cutoff.
    holes: int  # Those of them that the task does not judge.
    sampled: int  # Holes drawn at random that people labelled.
    relevant: int  # Those of them that people call relevant.
    systems: Sequence[CorrectedSystem]  # The best by the last column that there is first.
    judges: Sequence[JudgeFacts]
    kendall: Mapping[str, float | None]  # Kendall's tau of the published order with each other one.
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the scores in the shape of `--json`."""
        return vars(self) | {"systems": [system.as_dict() for system in self.systems]}


@dataclass(frozen=True)
class SavedCorrection:
    """Corrected scores of a task as they were last computed, for the page that shows them."""

    command: str
    scores: CorrectedScores

    def save(self) -> None:
        """Write the scores to the folder of results, over those of the same task."""
        name = cache_key(task=self.scores.task)
        write_file(home() / _FOLDER / f"{name}.json", json_bytes(self), parents=True)


def saved_corrections() -> list[SavedCorrection]:
    """Return the corrected scores of all tasks that have any, the last computed first; damaged files are left out."""
    saved = []
    for file in sorted((home() / _FOLDER).glob("*.json"), key=lambda file: -file.stat().st_mtime):
        with suppress(R2medError):
            saved.append(read_json(file, SavedCorrection))
    return saved


@dataclass(frozen=True)
class PlannedWidth:
    """Mean width of the interval that so many human labels would give."""

    humans: int
    judge: str  # An assumed judge, the given one, or none.
    score: float  # The mean width of the interval of a score, from labels alone.
    difference: float | None  # The same for the difference of two systems; null for one system.


def check_pool(pool: HolePool) -> None:
    """Refuse a pool that holds nothing to correct."""
    if (cutoff := pool.measure.cutoff) is None:
        raise R2medError(
            f"{pool.measure} looks at whole lists, which are too long to judge; give it a cutoff: {pool.measure}@10"
        )
    if not len(pool.holes):
        raise R2medError(
            f"the task judges every document among the first {cutoff} of these systems: nothing to correct"
        )
    lists = [np.intersect1d(places, pool.holes) for places in pool.lists]
    if len(lists) > 1 and not any(len(np.intersect1d(one, other)) for one, other in combinations(lists, 2)):
        raise R2medError(
            f"{' and '.join(pool.systems)} share no hole: no unjudged document is among the first {cutoff} of two of"
            " them; are the runs of one collection?"
        )


def read_judge(file: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return from a file of judgements whether each pair is relevant; not a number where the file does not say."""
    sets = read_label_sets(expanded(file))
    if len(sets) > 1:
        raise DataError(f"{file}: has labels of {len(sets)} reviewers; a judge is one of them")
    (qrels,) = sets.values()
    labels = (qrels.get(query, {}).get(document) for query, document in pairs)
    return [math.nan if grade is None else float(grade > 0) for grade in labels]


def check_judge(judge: JudgeLabels) -> None:
    """Refuse a judge whose labels tell nothing, or that left many holes without one."""
    missing = np.asarray(np.isnan(judge.replies).all(axis=0))
    if missing.mean() > MISSING / 2:
        raise R2medError(
            f"{judge.name} labels {int((~missing).sum()):,} of {counted(len(missing), 'hole')}; a correction needs a"
            " label of each (of a model, the same command asks for what is missing)"
        )
    if np.nanmin(judge.shares) == 1:
        raise R2medError(f"{judge.name} calls all {len(missing):,} holes relevant, so that its labels tell nothing")


def find_sample(pool: HolePool, people: HumanSample, runs: Mapping[str, str]) -> tuple[NDArray[np.intp], Floats, int]:
    """Return the sampled holes, their grades, and how many drawn holes lack one; `runs` are names by system."""
    cutoff = pool.measure.cutoff or 0
    if cutoff > people.depth:
        raise R2medError(
            f"{people.review} was drawn from the first {people.depth} of each list, which is not at random for"
            f" {pool.measure}; choose a cutoff of at most {people.depth}"
        )
    if absent := [system for system in pool.systems if runs[system] not in people.systems]:
        raise R2medError(
            f"{people.review} did not draw from what {absent[0]} finds, so that it is not random for it; make a review"
            " with it: r2med review new NAME --queue random --from TASK SYSTEMS"
        )
    pairs = [pool.pairs[place] for place in pool.holes]
    drawn = [place for place, (query, d) in enumerate(pairs) if d in people.drawn.get(query, {})]
    graded = [place for place in drawn if pairs[place][1] in people.qrels.get(pairs[place][0], {})]
    missing = len(drawn) - len(graded)
    if len(graded) < LEAST:
        raise R2medError(
            f"{people.review} has {counted(len(graded), 'label')} of people for holes of these systems that were drawn"
            f" at random, too few for an interval: {LEAST} at least; r2med correct --plan says what more would give"
        )
    if missing > MISSING * len(drawn):
        raise R2medError(
            f"{people.review}: {missing:,} of {len(drawn):,} holes drawn at random have no label of a person yet; those"
            " that have one are not a random part, since the desk deals question by question: finish the review"
        )
    grades = [float(max(0, people.qrels[query][document])) for query, document in (pairs[place] for place in graded)]
    return np.array(graded, dtype=np.intp), np.array(grades), missing


def correct_scores(
    task: str,
    pool: HolePool,
    judges: Sequence[JudgeLabels],
    people: HumanSample | None,
    runs: Mapping[str, str],
    specs: Mapping[str, str],
) -> CorrectedScores:
    """Score systems as published, filled by the first judge, and corrected by people; specs name models."""
    check_pool(pool)
    for judge in judges:
        check_judge(judge)
    notes: list[str] = []
    nothing = np.zeros(len(pool.holes))
    tables = {"published": pool.values(nothing)}
    every_time = [np.stack([pool.values(np.nan_to_num(reply)) for reply in judge.replies]) for judge in judges]
    if judges:
        tables["filled"] = every_time[0].mean(axis=0)
        unread = int(np.isnan(judges[0].replies).all(axis=0).sum())
        notes += [f"{counted(unread, 'hole')} without a label of {judges[0].name} filled as not relevant"] * (
            unread > 0
        )
    sample, grades = np.empty(0, dtype=np.intp), np.empty(0)
    correction: CorrectedMeans | None = None
    if people:
        sample, grades, missing = find_sample(pool, people, runs)
        notes += [f"{counted(missing, 'hole')} of the sample without a label of a person left out"] * (missing > 0)
        correction = correct(pool, judges[0].shares if judges else nothing, sample, grades)
        tables["corrected"] = correction.values
    places = {name: _places(table, correction if name == "corrected" else None) for name, table in tables.items()}
    figures = {name: task_intervals(table) for name, table in tables.items()}
    labels = [correction.figure(system) for system in range(len(pool.systems))] if correction else []
    if correction:
        figures["corrected"] = [_widened(*both) for both in zip(labels, figures["corrected"], strict=True)]
    of_judges = " ".join(judge.name for judge in judges)
    is_hole = np.isin(pool.lists, pool.holes)
    interactions = _interactions(every_time)
    systems = [
        CorrectedSystem(
            system,
            float(is_hole[row].sum() / max(1, (pool.lists[row] < len(pool.pairs)).sum())),
            figures["published"][row],
            figures["filled"][row] if judges else None,
            figures["corrected"][row] if correction else None,
            labels[row] if labels else None,
            {name: table[row] for name, table in places.items()},
            shared_family(of_judges, specs[system]),
            interactions[row] if interactions else None,
        )
        for row, system in enumerate(pool.systems)
    ]
    best = list(tables)[-1]
    means = {name: [figure.value for figure in column] for name, column in figures.items()}
    order = sorted(range(len(systems)), key=lambda row: -means[best][row])
    taus = {name: float(kendall(means["published"], column)) for name, column in means.items() if name != "published"}
    return CorrectedScores(
        *(task, str(pool.measure), len(pool.queries), len(pool.pairs), len(pool.holes)),
        *(len(sample), int((grades > 0).sum())),
        [systems[row] for row in order],
        [_judge_facts(*both, sample, grades) for both in zip(judges, every_time, strict=True)],
        {name: None if math.isnan(tau) else tau for name, tau in taus.items()},
        notes,
    )


def _widened(labels: Figure, questions: Figure) -> Figure:
    """Return the corrected score with half widths from labels and from questions added as independent errors."""
    value, (low, high) = labels.value, labels.ends
    sides = (questions.value - questions.ends[0], questions.ends[1] - questions.value)
    ends = value - math.hypot(value - low, sides[0]), value + math.hypot(high - value, sides[1])
    return Figure(value, max(0.0, ends[0]), min(1.0, ends[1]))


def _places(table: Floats, correction: CorrectedMeans | None) -> list[tuple[int, int]]:
    """Return the first and last place of each system that the differences at 5%, after Holm, do not exclude."""
    pairs = list(combinations(range(len(table)), 2))
    gains = [table[a] - table[b] for a, b in pairs]
    means = table.mean(axis=1) if correction is None else correction.means
    if not correction:
        tests = randomisation_tests([[gain] for gain in gains])
    else:
        errors = [correction.draws[a] - correction.draws[b] for a, b in pairs]
        variances = [
            float(error.var() + gain.var(ddof=1) / len(gain)) if len(gain) > 1 else math.inf
            for error, gain in zip(errors, gains, strict=True)
        ]
        tests = [
            math.erfc(abs(means[a] - means[b]) / math.sqrt(2 * variance)) if variance else float(means[a] == means[b])
            for (a, b), variance in zip(pairs, variances, strict=True)
        ]
    better, worse = np.zeros(len(table), dtype=int), np.zeros(len(table), dtype=int)
    for (a, b), p in zip(pairs, holm(tests), strict=True):
        if p < ALPHA:
            ahead, behind = (a, b) if means[a] > means[b] else (b, a)
            better[behind] += 1
            worse[ahead] += 1
    return [(1 + above, len(table) - below) for above, below in zip(better.tolist(), worse.tolist(), strict=True)]


def _interactions(every_time: Sequence[Floats]) -> list[Figure] | None:
    """Return by how much more than the mean system each gains from the first of two judges, with its interval."""
    if len(every_time) < 2 or every_time[0].shape[1] < 2:
        return None
    gains = every_time[0].mean(axis=0) - every_time[1].mean(axis=0)
    return [difference_interval([gain]) for gain in gains - gains.mean(axis=0)]


def _judge_facts(judge: JudgeLabels, scored: Floats, sample: NDArray[np.intp], grades: Floats) -> JudgeFacts:
    accepted, people = judge.shares[sample] >= 0.5, grades > 0
    pairs = (int((accepted & people).sum()), int((accepted & ~people).sum()), int((~accepted & people).sum()))
    times = len(judge.replies)
    changes = spread = None
    if times > 1:
        changes = float(((judge.shares > 0) & (judge.shares < 1) & ~np.isnan(judge.replies).any(axis=0)).mean())
        spread = float(np.ptp(scored.mean(axis=2), axis=0).max())
    return JudgeFacts(judge.name, float(judge.shares.mean()), len(sample), *pairs, times, changes, spread)


def shared_family(judge: str, spec: str) -> str:
    """Return the family of models that both a judge's name and a system's spec name; empty if none.

    >>> shared_family("gpt-4o", "hyde(gpt-4o-mini) >> bm25"), shared_family("gpt-4o", "hyde(qwen3-8b) >> bm25")
    ('GPT', '')
    """
    families = (name for name, signs in _FAMILIES.items() if all(re.search(signs, t, re.I) for t in (judge, spec)))
    return next(families, "")


def plan_widths(
    pool: HolePool, judge: JudgeLabels | None, people: HumanSample | None, runs: Mapping[str, str]
) -> list[PlannedWidth]:
    """Simulate how wide intervals are after so many human labels.

    Labels of people are drawn as the sample that there is and the judge say, or without a sample by assumed errors.
    """
    check_pool(pool)
    if judge:
        check_judge(judge)
    judged = judge.shares if judge else np.zeros(len(pool.holes))
    if people:
        sample, grades, _ = find_sample(pool, people, runs)
        name = judge.name if judge else "no judge"
        assumed = {name: calibrate(pool, judged, sample, (grades > 0).astype(np.float64)).chances}
    elif judge:
        assumed = {name: judged * right + (1 - judged) * missed for name, (right, missed) in _ASSUMED.items()}
    else:
        assumed = {"no judge": np.full(len(judged), _RARE)}
    chance = np.random.default_rng(SEED)
    rows = []
    for humans in [size for size in SIZES if size <= len(judged)] or [len(judged)]:
        for name, chances in assumed.items():
            scores, differences = [], []
            for _ in range(_ROUNDS):
                truth = (chance.random(len(chances)) < chances).astype(np.float64)
                drawn = chance.choice(len(truth), humans, replace=False)
                result = correct(
                    pool, judged, drawn, truth[drawn], _PLANNED_DRAWS, 1_000, int(chance.integers(1 << 30))
                )
                scores.append(_mean_width(result.draws))
                pairs = combinations(result.draws, 2)
                differences += [_mean_width((one - other)[None]) for one, other in pairs]
            difference = float(np.mean(differences)) if differences else None
            rows.append(PlannedWidth(humans, name, float(np.mean(scores)), difference))
    return rows


def _mean_width(draws: Floats) -> float:
    return float(np.ptp(np.percentile(draws, [2.5, 97.5], axis=1), axis=0).mean())
