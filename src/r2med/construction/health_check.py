"""`r2med build check`: the quality of a finished task, measured by running systems on it and by asking judges again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from r2med.construction.health import BASE, MEASURE, Baseline, PoolBias, TaskHealth, known_health
from r2med.construction.pool import BuiltTask
from r2med.construction.rejudge import Rejudging
from r2med.data.dataset import Dataset
from r2med.data.loader import load
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
        judges=_judge_agreement(built.pool.opinions),
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
    pair = ["query_id", "passage_id"]
    placed = opinions.with_columns(pl.int_range(pl.len()).over(pair).alias("place"))
    if placed.is_empty() or placed["place"].max() == 0:
        return {}
    alphas: dict[str, float] = {}
    for axis in ("answers", "supports"):
        wide = placed.pivot("place", index=pair, values=f"judge_{axis}")
        grades = wide.drop(pair).to_numpy().astype(np.float64)
        value = COEFFICIENTS["alpha-ordinal"](Ratings.of(grades, np.zeros(len(grades))).sums().total())[0]
        alphas |= {axis: float(value)} if np.isfinite(value) else {}
    return alphas
