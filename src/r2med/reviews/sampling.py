"""Creating a project: pools that it draws from, draws at random or by a queue, and the texts that are stored.

A pool has the judged pairs of a task, the finds of runs, and all candidates of a build. Only what was drawn at random
stands for all that could have been drawn and may feed an estimate, so every item keeps how it was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from msgspec import structs

from r2med.construction.plan import read_plan
from r2med.construction.pool import TASK as BUILT
from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.nuggets import NuggetFile, read_nuggets
from r2med.data.qrels import read_label_sets
from r2med.data.tasks import resolve
from r2med.diagnosis.verification import kept_verification
from r2med.errors import DataError, R2medError
from r2med.formatting import counted
from r2med.measure.decision import DEEPEST, PoolComparison
from r2med.measure.metrics import Measure
from r2med.pipeline.named_runs import select
from r2med.reviews.rows import (
    DECIDE,
    DISAGREEMENTS,
    GOLD,
    HOLES,
    NEAR_CUT,
    NUGGETS,
    RANDOM,
    UNVERIFIED,
    DecisionRule,
    ReviewItem,
    ReviewProject,
    ReviewQuestion,
    now,
)
from r2med.reviews.scale import (
    DEFAULT_GUIDELINE,
    DEFAULT_SCALE,
    NUGGET_GUIDELINE,
    NUGGET_SCALE,
    GradeScale,
    omit_grades,
)
from r2med.reviews.store import ReviewStore, create_review
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data

_ITEMS = 100  # passages of a review by default
DEPTH = 10  # a document is found when it is among so many: what nDCG@10 looks at


@dataclass(frozen=True, eq=False)
class TaskPool:
    """The candidates of one task."""

    dataset: Dataset
    systems: Sequence[str]  # the names of the runs that were looked at
    built: bool = False
    guideline: str = ""  # of a build
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """Return how many runs were looked at."""
        return len(self.systems)


@dataclass(eq=False)
class Candidate:
    """A passage that could be reviewed for a question, with all facts on the pair."""

    pool: TaskPool
    query: str
    document: str
    label: int | None = None  # the task's own grade; None if the pair is not judged
    ranks: dict[str, int] = field(default_factory=dict)  # its place in the list of each run that has it
    margin: float | None = None  # of a build: by how much the judges' scores lie above the cuts
    spread: float | None = None  # of a build: how far its judges are apart
    unverified: float | None = None  # if every verifier of a diagnosis ranks it last: the share of others above it
    facts: dict[str, Any] = field(default_factory=dict)  # more that is known of where it came from
    nugget: str = ""  # the text, if it is a nugget and not a passage of the data

    @property
    def key(self) -> tuple[str, str, str]:
        """Return its task, query and document."""
        return self.pool.dataset.name, self.query, self.document

    @property
    def found(self) -> bool:
        """Return whether a run has it within the depth that is measured."""
        return any(rank <= DEPTH for rank in self.ranks.values())

    @property
    def vote(self) -> float:
        """Return how highly the runs rank it, from 0 to 1: 1 if it is the first of all."""
        votes = [max(0.0, 1 - (rank - 1) / DEPTH) for rank in self.ranks.values()]
        return sum(votes) / self.pool.runs if self.pool.runs else 0.0

    def rate_random(self) -> float | None:
        """Rate judged pairs and finds of runs alike."""
        return 0.0 if self.label is not None or self.found or self.pool.built else None

    def rate_hole(self) -> float | None:
        """Rate finds of runs that are not judged by how highly runs rank them."""
        verdict = self.facts.get("verdict", "")
        is_unjudged = verdict == "unjudged" or (self.found and not verdict)
        return self.vote if self.label is None and is_unjudged else None

    def rate_near_cut(self) -> float | None:
        """Rate pairs close to the cut: of the judges' scores in a build, of the lists of runs otherwise."""
        if self.margin is not None:
            return -abs(self.margin) if abs(self.margin) <= 1 else None
        distance = abs(sum(self.ranks.values()) / len(self.ranks) - DEPTH - 0.5) if self.ranks else DEPTH
        return -distance / DEPTH if distance <= DEPTH / 2 else None

    def rate_unverified(self) -> float | None:
        """Rate relevant documents that every verifier ranks last by how many others stand above."""
        return self.unverified

    def rate_disagreement(self) -> float | None:
        """Rate pairs that the judges of a build grade differently, or, otherwise, on which runs and labels disagree."""
        if self.spread is not None:
            return self.spread if self.spread > 0 else None
        distance = abs(self.vote - ((self.label or 0) > 0))
        return distance if self.pool.runs and distance >= _APART else None


def read_pools(ledger: Ledger, names: Sequence[str], depth: int = DEPTH + 5) -> list[TaskPool]:
    """Read the pools of tasks, folders of builds, and runs; runs are taken on the named tasks, or on all."""
    builds = [Path(name) for name in names if (Path(name) / "plan.toml").is_file()]
    tasks = [name for name in names if Path(name) not in builds and _is_task(name)]
    systems = [name for name in names if Path(name) not in builds and name not in tasks]
    for folder in builds:
        if not (folder / BUILT).is_dir():
            raise R2medError(f"{folder}: the task is not built yet; run: r2med build run {folder}")
    folders = {(folder / BUILT).resolve(): folder for folder in builds}
    task_names = [task.name for task in resolve([*tasks, *(folder / BUILT for folder in builds)])]
    runs: dict[str, list[Entry]] = {}
    for system in select(ledger, systems, task_names) if systems else ():
        if system.missing:
            raise R2medError(system.advice)
        for task, entry in system.runs.items():
            runs.setdefault(task, []).append(entry)
    names_of_tasks = task_names or list(runs)
    return [_pool(ledger, task, runs.get(task, []), folders.get(Path(task)), depth) for task in names_of_tasks]


def _is_task(name: str) -> bool:
    try:
        return bool(resolve([name]))
    except R2medError:
        if Path(name).is_dir():
            raise
        return False


def _pool(ledger: Ledger, task: str, entries: Sequence[Entry], folder: Path | None, depth: int) -> TaskPool:
    dataset = load(task)
    guideline = omit_grades(read_plan(folder).guideline) if folder else ""
    pool = TaskPool(dataset, [entry.name for entry in entries], folder is not None, guideline)
    pairs: dict[tuple[str, str], Candidate] = {}

    def pair(query: str, document: str) -> Candidate:
        return pairs.setdefault((query, document), Candidate(pool, query, document))

    for query, judged in dataset.gold.qrels.items():
        for document, grade in judged.items():
            pair(query, document).label = grade
    for entry in entries:
        check_data(entry, dataset)
        run = ledger.run(entry)
        for query in run.queries:
            # What stands just below the cut lies near it.
            for rank, document in enumerate(run[query].documents[:depth], 1):
                pair(query, document).ranks[entry.name] = rank
    for row in _judged(folder).iter_rows(named=True) if folder else ():
        if row["passage_id"] in dataset.collection.documents.position:
            candidate = pair(row["query_id"], row["passage_id"])
            candidate.margin, candidate.spread = row["margin"], row["spread"]
            candidate.facts = {name: row[name] for name in ("verdict", "answers", "supports")}
    verification = kept_verification(dataset.name, dataset.fingerprint)
    for suspect in verification.unverified if verification else ():
        pair(suspect.query, suspect.document).unverified = suspect.above
    queries = dataset.collection.queries.position
    pool.candidates.extend(candidate for candidate in pairs.values() if candidate.query in queries)
    return pool


def _judged(folder: Path) -> pl.DataFrame:
    """Return the pairs judged in a build, with the margin to the cuts and the spread of the judges."""
    settings, axes = read_plan(folder).select, ("answers", "supports")
    file = folder / BUILT / "judgements.parquet"
    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{file}: cannot be read; run: r2med build run {folder}") from error
    spreads = [pl.col(f"judge_{axis}").max() - pl.col(f"judge_{axis}").min() for axis in axes]
    grouped = table.group_by("query_id", "passage_id", maintain_order=True)
    pairs = grouped.agg(pl.col("verdict", *axes).first(), spread=pl.max_horizontal(*spreads))
    margins = [pl.col(axis) - getattr(settings, axis) for axis in axes]
    return pairs.with_columns(margin=pl.min_horizontal(*margins))


MIXED = "mixed"
QUEUES = (RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, UNVERIFIED, MIXED, DECIDE)
_APART = 0.5  # runs and labels disagree on a pair from this difference on, of a scale from 0 to 1


class Stratum(NamedTuple):
    """Pairs that were drawn in one way, and how many it could draw from."""

    pairs: Sequence[Candidate]
    frame: int


def draw(pools: Sequence[TaskPool], queue: str, count: int, seed: int) -> tuple[dict[str, Stratum], list[str]]:
    """Draw pairs from a queue, and return them by how they were drawn, with notes.

    `mixed` draws half of them at random, the rest in equal parts from the other queues.
    """
    chance = random.Random(f"{seed}\tdraw")
    pairs = [pair for pool in pools for pair in pool.candidates]
    frames = {name: [(w, pair) for pair in pairs if (w := rate(pair)) is not None] for name, rate in _RATES.items()}
    drawn: set[Candidate] = set()
    sample: dict[str, Stratum] = {}
    for name, number in _shares(queue, count, frames, pools).items():
        ranked = [(worth, pair) for worth, pair in frames[name] if pair not in drawn]
        # The pairs worth most, ties in random order: a random sample if all are worth the same.
        chance.shuffle(ranked)
        best = [pair for _, pair in sorted(ranked, key=lambda item: -item[0])[:number]]
        sample[name] = Stratum(best, len(frames[name]))
        drawn.update(best)
    notes = []
    if (total := sum(len(stratum.pairs) for stratum in sample.values())) < count:
        parts = ", ".join(f"{len(stratum.pairs)} {name}" for name, stratum in sample.items())
        notes.append(f"only {counted(total, 'pair')} of {count} could be drawn" + f" ({parts})" * (queue == MIXED))
    at_random = [pair.label or 0 for _, pair in frames[RANDOM]]
    if queue in (RANDOM, MIXED) and at_random and min(at_random) > 0:
        notes.append(
            "every pair that can be drawn at random is labelled relevant, which a reviewer soon notices;"
            " add systems to --from to draw from what they found, too"
        )
    return sample, notes


Given = dict[str, tuple[float, ...]]  # query to the number of passages known to be relevant, and the systems' gains


def draw_deciding(pools: Sequence[TaskPool], settings: ReviewSettings) -> tuple[dict[str, Stratum], Given, list[str]]:
    """Return all pairs whose label could turn a comparison of the systems, and what is known of it beforehand."""
    measure, pool = Measure.parse(settings.measure), pools[0]
    if len(pools) > 1:
        raise R2medError(f"--queue {DECIDE} compares on one task, not on {len(pools)}; name one in --from")
    if len(pool.systems) < 2:
        named = f"not {pool.systems[0]} alone" if pool.systems else "and --from names none"
        raise R2medError(f"--queue {DECIDE} needs two systems at least, {named}; add another to --from")
    if not 0 < settings.error < 0.5:
        raise R2medError(f"--error must lie between 0 and 50%, not at {settings.error:.0%}")
    if settings.gold:
        raise R2medError(f"--gold does not go with --queue {DECIDE}, which deals only what decides")
    pairs, given, alike = [], Given(), True
    for pair in pool.candidates:
        ranks = np.array([pair.ranks.get(system, DEEPEST + 1) for system in pool.systems])
        gains = PoolComparison.gains(ranks, measure)
        label = None if settings.fresh else pair.label
        alike &= len(set(gains.tolist())) == 1
        if label is None and gains.any():
            pairs.append(pair)
        elif label is not None and label > 0:
            before = given.get(pair.query, (0.0,) * (1 + len(gains)))
            given[pair.query] = tuple(float(total + gain) for total, gain in zip(before, (1, *gains), strict=True))
    names = " and ".join(pool.systems)
    if alike:
        raise R2medError(f"{names} have the same first {measure.cutoff} for every question: there is nothing to decide")
    if not pairs:
        raise R2medError(
            f"{pool.dataset.name} judges all that {names} rank high; compare them: r2med compare, or add --fresh"
        )
    return {DECIDE: Stratum(pairs, len(pairs))}, given, []


def _shares(
    queue: str, count: int, frames: Mapping[str, Sequence[object]], pools: Sequence[TaskPool]
) -> dict[str, int]:
    """Return how many pairs each way draws; an error if none can draw any."""
    if queue != MIXED and frames[queue]:
        return {queue: count}
    others = [name for name in (DISAGREEMENTS, NEAR_CUT, HOLES) if frames[name]] if queue == MIXED else []
    if others:
        rest = count // 2
        parts = [rest // len(others) + (place < rest % len(others)) for place in range(len(others))]
        return {RANDOM: count - rest, **dict(zip(others, parts, strict=True))}
    if queue == RANDOM:
        raise R2medError("there is no pair to draw: name a task with judgements, or runs")
    if queue == UNVERIFIED:
        tasks = " ".join(pool.dataset.name for pool in pools)
        verify = f"r2med diagnose SYSTEM --verify RERANKER --tasks {tasks}"
        raise R2medError(f"no relevant document is kept as one that every verifier ranks last; look for some: {verify}")
    if any(pool.runs or pool.built for pool in pools):
        raise R2medError(f"no pair is one for --queue {queue}; try --queue {RANDOM}")
    raise R2medError(f"--queue {queue} needs runs or a build to look at: add systems to --from, such as bm25")


_RATES: Mapping[str, Callable[[Candidate], float | None]] = {
    RANDOM: Candidate.rate_random,
    DISAGREEMENTS: Candidate.rate_disagreement,
    NEAR_CUT: Candidate.rate_near_cut,
    HOLES: Candidate.rate_hole,
    UNVERIFIED: Candidate.rate_unverified,
}
"""How much a pair is worth to each way of drawing; None if it cannot be drawn."""


@dataclass(frozen=True)
class ReviewSettings:
    """Settings for creating a project."""

    queue: str = RANDOM
    items: int | None = None  # by default 100 passages
    overlap: float = 0.2
    repeat: float = 0.0
    scale: GradeScale = DEFAULT_SCALE
    guideline: str = ""  # empty for that of the build, or the usual one
    gold: Path | None = None
    seed: int = 0
    open_answer: bool = False
    aspects: bool = False
    error: float = 0.05  # of the verdicts of `decide`
    measure: str = "nDCG@10"
    fresh: bool = False  # whether `decide` leaves the task's own labels out


def new_review(
    ledger: Ledger, name: str, sources: Sequence[str], settings: ReviewSettings
) -> tuple[ReviewStore, list[str]]:
    """Create a project from tasks, runs and builds; return it with notes for its owner."""
    rule: DecisionRule | None = None
    given: Given = {}
    if files := [name for name in sources if Path(name).is_file()]:
        if len(files) > 1:
            raise R2medError(f"a review is of one file of nuggets, not of {len(files)}")
        settings = _nugget_settings(settings)
        pools = _nugget_pools(read_nuggets(files[0]), [name for name in sources if name not in files])
        candidates = [pair for pool in pools for pair in pool.candidates]
        sample, notes = {NUGGETS: Stratum(candidates, len(candidates))}, list[str]()
    elif settings.queue == DECIDE:
        pools = read_pools(ledger, sources, DEEPEST)
        sample, given, notes = draw_deciding(pools, settings)
        rule = DecisionRule(tuple(pools[0].systems), settings.measure, settings.error)
    else:
        pools = read_pools(ledger, sources)
        sample, notes = draw(pools, settings.queue, settings.items or _ITEMS, settings.seed)
    gold = _read_gold(settings.gold, pools, settings.scale) if settings.gold else {}
    pairs = {key: (GOLD, pair) for key, (pair, _) in gold.items()}
    pairs |= {pair.key: (name, pair) for name, stratum in sample.items() for pair in stratum.pairs}
    pairs = dict(sorted(pairs.items()))  # equal draws give equal projects
    others = [key for key in pairs if key not in gold]
    chance = random.Random(f"{settings.seed}\toverlap")
    shared = {*gold, *chance.sample(others, round(settings.overlap * len(others)))}
    questions: dict[tuple[str, str], ReviewQuestion] = {}
    items = []
    for number, (key, (drawn, pair)) in enumerate(pairs.items(), 1):
        (task, query, document), data = key, pair.pool.dataset
        if (task, query) not in questions:
            texts = (data.collection.queries.text(query), data.gold.answers.get(query, ""))
            solution = data.gold.reasoning.get(query, "")
            questions[task, query] = ReviewQuestion(len(questions) + 1, task, query, *texts, solution)
        text = pair.nugget or data.collection.documents.text(document)
        grade = gold[key][1] if key in gold else None
        facts = {"label": pair.label, "ranks": pair.ranks, **pair.facts}
        question = questions[task, query].number
        items.append(ReviewItem(number, question, document, text, drawn, key in shared, grade, facts))
    if rule:
        numbers = {query: question.number for (_, query), question in questions.items()}
        rule = structs.replace(rule, given=tuple((numbers.get(query, 0), gains) for query, gains in given.items()))
    guidelines = (settings.guideline, *(pool.guideline for pool in pools), DEFAULT_GUIDELINE)
    aspects: dict[str, dict[str, dict[str, float]]] = {}
    for pool in pools if settings.aspects else ():
        task, named = pool.dataset.name, pool.dataset.gold.aspects
        if not any((task, query) in questions for query in named):
            raise R2medError(f"{task}: its judgements have no column aspect for these questions; leave out --aspects")
        weights = {query: {name: aspect.weight for name, aspect in of.items()} for query, of in named.items()}
        aspects[task] = {query: of for query, of in weights.items() if (task, query) in questions}
    same = ("queue", "scale", "overlap", "repeat", "seed", "open_answer")
    project = ReviewProject(
        name=name,
        created=now(),
        sources=tuple(sources),
        data={pool.dataset.name: pool.dataset.fingerprint for pool in pools},
        frames={name: stratum.frame for name, stratum in sample.items()},
        guideline=next(filter(None, guidelines)),
        aspects=aspects,
        rule=rule,
        **{setting: getattr(settings, setting) for setting in same},
    )
    return create_review(project, list(questions.values()), items), notes


def _nugget_settings(settings: ReviewSettings) -> ReviewSettings:
    """Return the settings of a review of nuggets: all of them, the gold answer in view, grades of their own."""
    usual = ReviewSettings(guideline=settings.guideline)
    if any(getattr(settings, name) != getattr(usual, name) for name in ("queue", "items", "gold", "scale")):
        raise R2medError("a review of nuggets has all of a file: leave out --queue, --items, --gold and --scale")
    guideline = settings.guideline or NUGGET_GUIDELINE
    return replace(settings, queue=NUGGETS, scale=NUGGET_SCALE, guideline=guideline, open_answer=True)


def _nugget_pools(file: NuggetFile, names: Sequence[str]) -> list[TaskPool]:
    """Return the nuggets of a file as pools of the tasks that are named, or that the file names."""
    tasks = names or list(dict.fromkeys(row.task for row in file.rows.values()))
    if "" in tasks:
        raise R2medError(f"{file.path}: names no task; name it, too: --from TASK {file.path}")
    try:
        datasets = [load(task) for task in resolve(tasks)]
    except R2medError as error:
        raise R2medError(f"{file.path}: the task of its questions: {error}; name it, too: --from TASK FILE") from error
    file.check_tasks(dataset.name for dataset in datasets)
    pools = []
    for dataset in datasets:
        pool = TaskPool(dataset, ())
        for query, nuggets in file.of(dataset).items():
            pool.candidates.extend(Candidate(pool, query, n.id, 1 + n.vital, nugget=n.text) for n in nuggets)
        pools.append(pool)
    return pools


def _read_gold(
    path: Path, pools: Sequence[TaskPool], scale: GradeScale
) -> dict[tuple[str, str, str], tuple[Candidate, int]]:
    """Return the pairs of a file of known grades, in the first pool that has their texts."""
    gold = {}
    rows = ((q, d, grade) for qrels in read_label_sets(path).values() for q in qrels for d, grade in qrels[q].items())
    for query, document, grade in rows:
        if grade not in scale.values:
            raise DataError(f"{path}: the scale has no grade {grade} ({query} {document})")
        collections = ((pool, pool.dataset.collection) for pool in pools)
        has = (pool for pool, c in collections if query in c.queries.position and document in c.documents.position)
        if (pool := next(has, None)) is None:
            names = ", ".join(pool.dataset.name for pool in pools)
            raise DataError(f"{path}: {names} has no query {query!r} with a document {document!r}")
        same = (pair for pair in pool.candidates if (pair.query, pair.document) == (query, document))
        pair = next(same, Candidate(pool, query, document))
        gold[pair.key] = (pair, grade)
    return gold
