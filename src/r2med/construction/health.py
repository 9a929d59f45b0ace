"""The quality of a built task by stated rules: its pool, leaks between questions, and what a check measures of it.

`known_health` reads labels alone; `check_health` runs systems on the task, and may ask judges again.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from r2med.construction.judging import AXES, FOUND, INVENTED, Rejudgement, Rejudging
from r2med.construction.pool import BuiltTask, JudgedPool, ScoreCount
from r2med.data.dataset import Dataset
from r2med.data.labels import PAIR, POSITIVE, UNJUDGED
from r2med.data.loader import load
from r2med.diagnosis.gap import Gap, bare, measure_gap, with_answer
from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.lexical.near_duplicates import find_duplicates
from r2med.measure.agreement import COEFFICIENTS, Ratings
from r2med.measure.bootstrap import task_intervals
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.metrics import DEFAULT
from r2med.measure.population import CaughtShare, PopulationEstimate, estimate_population, share
from r2med.measure.score import positive, score
from r2med.measure.significance import difference_interval
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report

NEAR = 0.8  # from which similarity on two questions count as one, as for documents


@dataclass(frozen=True)
class Finder:
    """A member of the committee, or a view, and the positives that it found."""

    name: str
    found: CaughtShare  # what it would have found alone
    alone: int


@dataclass(frozen=True)
class Overlap:
    """Positives that exactly these members found."""

    members: tuple[str, ...]
    positives: int


@dataclass(frozen=True)
class PoolCoverage:
    """Positives by finder, and an estimate of how many were missed."""

    positives: int
    members: Sequence[Finder]
    views: Sequence[Finder]
    overlaps: Sequence[Overlap]
    """The largest first."""
    source_only: int
    """Positives of known sources that no member found."""
    sources: CaughtShare | None
    """Of the positives of known sources, those that the committee found too: its recall, seen from outside."""
    by: str
    """Between whom captures are counted: `members`, or `views` where there is one member."""
    missed: PopulationEstimate

    def as_dict(self) -> dict[str, Any]:
        """Return the coverage in the shape of `--json`."""
        parts: dict[str, Any] = {
            "missed": self.missed.as_dict(),
            "sources": self.sources.as_dict() if self.sources else None,
        }
        for name in ("members", "views"):
            parts[name] = [{"name": f.name, "alone": f.alone, **f.found.as_dict()} for f in getattr(self, name)]
        return vars(self) | parts


def pool_coverage(pool: JudgedPool, systems: Sequence[str], views: Sequence[str]) -> PoolCoverage:
    """Count positives by their finders, and estimate how many were missed."""
    positives = pool.positives
    by_system, by_view = [p.systems for p in positives], [p.views for p in positives]
    by, names, captures = ("members", systems, by_system) if len(systems) > 1 else ("views", views, by_view)
    of_source = [p for p in positives if p.source]
    counts = Counter(tuple(name for name in systems if name in members) for members in by_system)

    def finders(captures: Sequence[frozenset[str]], names: Sequence[str]) -> list[Finder]:
        shares = [(name, share(sum(name in members for members in captures), len(captures))) for name in names]
        return [Finder(name, caught, captures.count(frozenset({name}))) for name, caught in shares if caught]

    return PoolCoverage(
        len(positives),
        finders(by_system, systems),
        finders(by_view, views),
        [Overlap(members, n) for members, n in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))],
        by_system.count(frozenset()),
        share(sum(bool(p.systems) for p in of_source), len(of_source)),
        by,
        estimate_population([[name in members for name in names] for members in captures]),
    )


@dataclass(frozen=True)
class QuestionLeakage:
    """Questions that repeat each other, or that share sources or positives."""

    questions: int
    repeated: Sequence[tuple[str, str, str]]
    """A question, the earlier one that it repeats, and how: the same words or nearly."""
    sharing: int
    across: Sequence[tuple[str, str, str]]
    """A question of each split and what they share: text, source or positive. There should be none."""

    def as_dict(self) -> dict[str, Any]:
        """Return the leakage in the shape of `--json`."""
        return vars(self) | {
            "repeated": [dict(zip(("question", "repeats", "how"), part, strict=True)) for part in self.repeated],
            "across": [dict(zip(("question", "other", "shared"), part, strict=True)) for part in self.across],
        }


def question_leakage(pool: JudgedPool, near: float = NEAR) -> QuestionLeakage:
    """Find questions that repeat others, share positives, or leak across the splits."""
    questions = pool.questions
    twins = find_duplicates([question.text for question in questions], near)
    repeated = [(questions[place].id, questions[first].id, how) for place, (first, how) in twins.items()]
    owners: dict[str, list[str]] = defaultdict(list)
    for pair in pool.positives:
        owners[pair.passage].append(pair.question)
    sharing = {name for several in owners.values() if len(several) > 1 for name in several}
    sources: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        for source in question.sources:
            sources[source].append(question.id)
    pairs = [(later, earlier, "text") for later, earlier, _ in repeated]
    for what, groups in (("source", sources), ("positive", owners)):
        pairs += [(one, other, what) for several in groups.values() for one, other in combinations(several, 2)]
    across = sorted({p for p in pairs if pool.splits.get(p[0]) != pool.splits.get(p[1])})
    return QuestionLeakage(len(questions), repeated, len(sharing), across)


GOOD, DOUBTFUL, POOR, UNKNOWN = "good", "doubtful", "poor", "unknown"
SOUND, RESERVED, UNREADY = "sound", "usable with reservations", "not ready"


@dataclass(frozen=True)
class HealthRule:
    """Thresholds from which a figure is good, and beyond which it is poor."""

    name: str
    figure: str
    asks: str
    good: float
    poor: float
    unit: str
    why: str
    less: bool = False
    optional: bool = False
    needs: str = ""
    """The figure of another rule that must be good for this one to be."""
    bound: str = ""
    """Said before a figure that is the end of what can be: `at most`."""

    def judge(self, figure: Figure | None) -> str:
        """Return the verdict on a figure.

        >>> rule = HealthRule("", "", "", 0.8, 0.5, "percent", "")
        >>> rule.judge(Figure(0.9, 0.6)), rule.judge(Figure(0.9, 0.4)), rule.judge(Figure(0.4))
        ('good', 'doubtful', 'poor')
        """
        if figure is None:
            return UNKNOWN
        worse = figure.high if self.less else figure.low
        if not self._reaches(figure.value, self.poor):
            return POOR
        sure = worse is None or self._reaches(worse, self.poor)
        return GOOD if sure and self._reaches(figure.value, self.good) else DOUBTFUL

    def _reaches(self, value: float, limit: float) -> bool:
        return value <= limit if self.less else value >= limit


@dataclass(frozen=True)
class HealthFinding:
    """Verdict of a rule on a task."""

    rule: HealthRule
    figure: Figure | None
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """Return the finding in the shape of `--json`."""
        return asdict(self.rule) | figure_dict(self.figure) | {"verdict": self.verdict}


@cache
def health_rules() -> Sequence[HealthRule]:
    """Return all rules, in the order in which findings are shown."""
    text = resources.files("r2med.construction").joinpath("health_rules.toml").read_text("utf-8")
    return [HealthRule(**entry) for entry in tomllib.loads(text)["rule"]]


MEASURE = DEFAULT[0]
BASE = "bm25"


@dataclass(frozen=True)
class Baseline:
    """A system's score on the task."""

    system: str
    member: bool
    """Whether it is of the committee, whose findings were judged."""
    oracle: bool
    score: Figure


@dataclass(frozen=True)
class PoolBias:
    """Change of a member's own score if it is left out of the pool."""

    system: str
    lost: int
    """Positives that only it found."""
    questions: int
    """Those that still have a positive, over which both are measured."""
    whole: float
    left_out: float
    """Its score by the labels that the others would have led to."""
    change: Figure


@dataclass(frozen=True)
class TaskHealth:
    """Quality of a built task, as far as it is known."""

    task: str
    questions: int
    passages: int
    coverage: PoolCoverage
    leakage: QuestionLeakage
    split: bool
    verdicts: Mapping[str, int]
    scores: Sequence[ScoreCount]
    cuts: Mapping[str, float]
    """Where the axes are cut: answers, supports, band_answers, band_supports."""
    quotes: Mapping[str, int]
    measured: bool = False
    gap: Gap | None = None
    baselines: Sequence[Baseline] = ()
    bias: Sequence[PoolBias] = ()
    judges: Mapping[str, float] = field(default_factory=dict)
    """Krippendorff's alpha between opinions, by axis; empty where each pair has one."""
    second: Rejudgement | None = None
    people: Sequence[str] = ()
    """Who judged; empty where models did."""
    by_two: int = 0
    """Pairs with opinions of two people or more."""
    notes: Sequence[str] = ()

    @cached_property
    def findings(self) -> list[HealthFinding]:
        """Return the findings of the rules; optional ones are left out if their figure is not known."""
        pairs, missed = sum(self.verdicts.values()), self.coverage.missed
        # Members that find the same easy passages make every estimate of the whole too small, so that the larger one
        # counts, Chao's bound or that of independent members; an interval around it would promise what it cannot.
        bound = missed.seen / missed.lower_bound if missed.lower_bound else 1.0
        quoted, invented = (self.quotes.get(state, 0) for state in (FOUND, INVENTED))
        once = sum(overlap.positives for overlap in self.coverage.overlaps if len(overlap.members) == 1)
        worst = max(self.bias, key=lambda bias: bias.whole - bias.left_out, default=None)
        overlap = self.gap.overlap if self.gap else None
        figures = {
            "questions": Figure(self.questions),
            "gap": Figure(overlap["answer-positive"].value - overlap["query-positive"].value) if overlap else None,
            "bm25": next((baseline.score for baseline in self.baselines if baseline.system == BASE), None),
            "complete": Figure(min(missed.complete, bound)) if missed.complete is not None else None,
            "sources": _share_figure(self.coverage.sources),
            "single": _share_figure(share(once, self.coverage.positives)),
            "bias": Figure(-worst.change.value, *(-end for end in reversed(worst.change.ends))) if worst else None,
            "stays": _share_figure(self.second.kept_positive) if self.second else None,
            "judges": Figure(min(self.judges.values())) if self.judges else None,
            "said yes": _share_figure(share(self.verdicts.get(POSITIVE, 0), pairs)),
            "invented": _share_figure(share(invented, quoted + invented)),
            "unjudged": Figure(self.verdicts.get(UNJUDGED, 0) / pairs) if pairs else None,
            "repeated": Figure(len(self.leakage.repeated) / max(1, self.questions)),
            "across": Figure(len(self.leakage.across)) if self.split else None,
        }
        verdicts = {rule.figure: rule.judge(figures[rule.figure]) for rule in health_rules()}
        for rule in health_rules():
            if verdicts[rule.figure] == GOOD and rule.needs and verdicts[rule.needs] != GOOD:
                verdicts[rule.figure] = DOUBTFUL
        return [
            HealthFinding(rule, figures[rule.figure], verdicts[rule.figure])
            for rule in health_rules()
            if figures[rule.figure] is not None or not rule.optional
        ]

    @property
    def verdict(self) -> str:
        """Return the verdict on the whole task: as good as its worst finding."""
        verdicts = {finding.verdict for finding in self.findings}
        return UNREADY if POOR in verdicts else RESERVED if verdicts & {DOUBTFUL, UNKNOWN} else SOUND

    def as_dict(self) -> dict[str, Any]:
        """Return the health in the shape of `--json`."""
        parts = {name: getattr(self, name) for name in ("coverage", "gap", "second", "leakage")}
        return {
            "task": self.task,
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            **{name: getattr(self, name) for name in ("questions", "passages", "verdicts", "cuts", "quotes", "judges")},
            **{name: getattr(self, name) for name in ("people", "by_two")},
            **{name: part.as_dict() if part else None for name, part in parts.items()},
            "scores": [score._asdict() for score in self.scores],
            "bias": [asdict(bias) | {"change": figure_dict(bias.change, "mean")} for bias in self.bias],
            "baselines": [asdict(base) | {"score": figure_dict(base.score, "mean")} for base in self.baselines],
            "measure": str(MEASURE),
            "notes": self.notes,
        }


def _share_figure(caught: CaughtShare | None) -> Figure | None:
    return caught.figure if caught else None


def known_health(pool: JudgedPool, manifest: Mapping[str, Any]) -> TaskHealth:
    """Return the health that labels alone show: no model is asked, and no system is run."""
    plan = manifest["plan"]
    views = [view for view in plan["mine"]["views"] if view != "reasoning" or plan["reason"]["model"]]
    by_people = bool(plan.get("people", {}).get("review"))
    near = NEAR if importlib.util.find_spec("rensa") else 0.0
    return TaskHealth(
        plan["task"]["name"],
        len(pool.questions),
        manifest["passages"],
        pool_coverage(pool, list(plan["mine"]["systems"]), views),
        question_leakage(pool, near),
        len({*pool.splits.values()}) > 1,
        pool.verdicts,
        pool.scores,
        {name: plan["select"][name] for name in ("answers", "supports", "band_answers", "band_supports")},
        pool.quotes,
        judges=_judge_agreement(pool.opinions),
        people=sorted(pool.opinions["judge"].unique()) if by_people else (),
        by_two=pool.opinions.group_by(PAIR).len().filter(pl.col("len") > 1).height if by_people else 0,
        notes=[] if near else ["questions were compared by their words only: near-duplicates need r2med[build]"],
    )


def check_health(built: BuiltTask, executor: Executor, again: Rejudging | None = None) -> TaskHealth:
    """Measure the health of a finished task; pairs are judged again if `again` is given."""
    labelled = known_health(built.pool, built.manifest)
    dataset, notes = load(built.folder), list(labelled.notes)
    if labelled.split:
        notes.append(f"systems are measured on the split {dataset.task.split}")
    try:
        gap = measure_gap(dataset, executor=executor)
    except R2medError as error:
        gap = None
        notes.append(f"the reasoning gap is not known: {one_line(error)}")
    systems: list[System | str] = list(dict.fromkeys([BASE, *built.systems]))
    if any(text.strip() for text in dataset.gold.answers.values()):
        systems.append(with_answer(bare(System.parse(BASE))))
    report = evaluate(systems, dataset, Options(executor=executor)).whole()
    members = {System.parse(name).spec for name in built.systems}
    baselines = [
        Baseline(
            result.system, result.system in members, result.oracle, task_intervals(result.scores[str(MEASURE)][None])[0]
        )
        for result in report.results
    ]
    notes += [f"{failure.system} could not be run: {failure.message}" for failure in report.failures]
    return replace(
        labelled,
        measured=True,
        gap=gap,
        baselines=sorted(baselines, key=lambda base: (base.oracle, -base.score.value)),
        bias=_biases(report, built, dataset),
        second=again.ask(executor) if again else None,
        notes=notes,
    )


def _biases(report: Report, built: BuiltTask, dataset: Dataset) -> list[PoolBias]:
    """Return the change of each member's score without its own finds; with a single member, no pool would be left."""
    if len(built.systems) < 2:
        return []
    biases = []
    relevant = positive(dataset.gold.qrels)
    with Ledger() as ledger:
        for name in built.systems:
            result = report.result(System.parse(name).spec, dataset.name)
            if result is None or not result.id:
                continue
            run = ledger.run(ledger.get(result.id))
            finds = {(p.question, p.passage) for p in built.pool.positives if p.systems == {name} and not p.source}
            fewer = {
                query: left
                for query, judged in relevant.items()
                if (left := {passage: grade for passage, grade in judged.items() if (query, passage) not in finds})
            }
            if fewer:
                whole = score(run, {query: relevant[query] for query in fewer}, [MEASURE]).values(MEASURE)
                left_out = score(run, fewer, [MEASURE]).values(MEASURE)
                lost = sum(passage in relevant.get(query, ()) for query, passage in finds)
                change = difference_interval([left_out - whole])
                means = float(whole.mean()), float(left_out.mean())
                biases.append(PoolBias(name, lost, len(fewer), *means, change))
    return biases


def _judge_agreement(opinions: pl.DataFrame) -> dict[str, float]:
    """Return Krippendorff's alpha of each axis, over pairs with opinions of several judges or samples of one."""
    placed = opinions.with_columns(pl.int_range(pl.len()).over(PAIR).alias("place"))
    if placed.is_empty() or placed["place"].max() == 0:
        return {}
    alphas: dict[str, float] = {}
    for axis in AXES:
        wide = placed.pivot("place", index=PAIR, values=f"judge_{axis}")
        grades = wide.drop(PAIR).to_numpy().astype(np.float64)
        value = COEFFICIENTS["alpha-ordinal"](Ratings.of(grades, np.zeros(len(grades))).sums().total())[0]
        alphas |= {axis: float(value)} if np.isfinite(value) else {}
    return alphas
