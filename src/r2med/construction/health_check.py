"""`r2med build check`: the quality of a finished task, measured by running systems on it and by asking judges again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from r2med.construction.health import BASE, MEASURE, Baseline, PoolBias, TaskHealth, known_health
from r2med.construction.pool import BuiltTask, JudgedPool
from r2med.construction.rejudge import SecondAsking
from r2med.data.dataset import Dataset, Qrels
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.diagnosis.gap import bare, measure_gap, with_answer
from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.measure.agreement import COEFFICIENTS, Ratings
from r2med.measure.bootstrap import task_intervals
from r2med.measure.score import positive, score
from r2med.measure.significance import difference_interval
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report


def check_health(built: BuiltTask, executor: Executor, again: SecondAsking | None = None) -> TaskHealth:
    """Measure the health of a finished task; pairs are judged again if `again` is given."""
    known = known_health(built.pool, built.manifest)
    dataset, notes = load(built.folder), list(known.notes)
    if known.split:
        notes.append(f"systems are measured on the split {dataset.task.split}")
    try:
        gap = measure_gap(dataset, executor=executor)
    except R2medError as error:
        gap = None
        notes.append(f"the reasoning gap is not known: {one_line(error)}")
    report = _run(built, dataset, executor)
    notes += [f"{failure.system} could not be run: {failure.message}" for failure in report.failures]
    return replace(
        known,
        measured=True,
        gap=gap,
        baselines=_baselines(report, built.systems),
        bias=_biases(report, built, dataset),
        judges=_judge_agreement(built.pool.opinions),
        second=again.ask(executor) if again else None,
        notes=notes,
    )


def _run(built: BuiltTask, dataset: Dataset, executor: Executor) -> Report:
    """Run the committee, BM25, and BM25 with the gold answers."""
    systems: list[System | str] = list(dict.fromkeys([BASE, *built.systems]))
    if any(text.strip() for text in dataset.gold.answers.values()):
        systems.append(with_answer(bare(System.parse(BASE))))
    return evaluate(systems, dataset, Options(executor=executor)).whole()


def _baselines(report: Report, committee: Sequence[str]) -> list[Baseline]:
    members = {System.parse(name).spec for name in committee}
    found = [
        Baseline(each.system, each.system in members, each.oracle, task_intervals(each.scores[str(MEASURE)][None])[0])
        for each in report.results
    ]
    return sorted(found, key=lambda each: (each.oracle, -each.score.value))


def _biases(report: Report, built: BuiltTask, dataset: Dataset) -> list[PoolBias]:
    """Return the change of each member's score without its own finds; with a single member, no pool would be left."""
    if len(built.systems) < 2:
        return []
    found = []
    with Ledger() as ledger:
        for name in built.systems:
            result = report.result(System.parse(name).spec, dataset.name)
            if result is not None and result.id:
                found.append(_bias(name, ledger.run(ledger.get(result.id)), built.pool, dataset.gold.qrels))
    return [each for each in found if each is not None]


def _bias(system: str, run: Run, pool: JudgedPool, qrels: Qrels) -> PoolBias | None:
    own = {(p.question, p.passage) for p in pool.positives if p.systems == {system} and not p.source}
    relevant = positive(qrels)
    fewer = {query: {d: g for d, g in judged.items() if (query, d) not in own} for query, judged in relevant.items()}
    fewer = {query: judged for query, judged in fewer.items() if judged}
    if not fewer:
        return None
    whole = score(run, {query: relevant[query] for query in fewer}, [MEASURE]).values(MEASURE)
    left = score(run, fewer, [MEASURE]).values(MEASURE)
    lost = sum(query in relevant and passage in relevant[query] for query, passage in own)
    change = difference_interval([left - whole])
    return PoolBias(system, lost, len(fewer), float(whole.mean()), float(left.mean()), change)


def _judge_agreement(opinions: pl.DataFrame) -> dict[str, float]:
    """Return Krippendorff's alpha of each axis, over pairs with opinions of several judges or samples of one."""
    pair = ["query_id", "passage_id"]
    placed = opinions.with_columns(pl.int_range(pl.len()).over(pair).alias("place"))
    if placed.is_empty() or placed["place"].max() == 0:
        return {}
    found: dict[str, float] = {}
    for axis in ("answers", "supports"):
        wide = placed.pivot("place", index=pair, values=f"judge_{axis}")
        grades = wide.drop(pair).to_numpy().astype(np.float64)
        value = COEFFICIENTS["alpha-ordinal"](Ratings.of(grades, np.zeros(len(grades))).sums().total())[0]
        found |= {axis: float(value)} if np.isfinite(value) else {}
    return found
