"""The verb `tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r2med.diagnose.tuning import Tuned, TuneOptions
from r2med.diagnose.tuning import tune as tune_system
from r2med.measure.metrics import Measure
from r2med.verbs.arguments import AnySystem, AnyTask, run_name, task_names_of


def tune(
    system: AnySystem,
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    measure: str = "nDCG@10",
    folds: int = 5,
    halves: int = 0,
    split_queries: bool = False,
    budget: float = 1.0,
    trials: int = 0,
) -> Tuned:
    """Choose a system's options on some queries and measure it on the others; a route is tuned without `over`.

    >>> import r2med
    >>> tuned = r2med.tune("bm25", "sample/Biology", over={"k1": [0.6, 0.9, 1.2]}, folds=3)
    >>> len(tuned.folds), tuned.candidates
    (3, 3)
    """
    options = TuneOptions(Measure(measure), folds, halves, split_queries, budget, trials)
    return tune_system(run_name(system), task_names_of(tasks), over, options)
