"""`r2med tune`: options chosen on some queries and measured on the others."""

from __future__ import annotations

from dataclasses import replace

import click

from r2med.cli.execution import executor_option, one_executor
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.measure.metrics import Measure
from r2med.render.table import output
from r2med.tuning.study import TuneOptions, read_over, tune
from r2med.tuning.tables import show_tuned


@click.command("tune", cls=ManyValues)
@click.argument("system")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: the sample).")
@click.option(
    "--over", multiple=True, metavar="NAME=VALUES...", help="Options to try: k1=0.6,0.9,1.2 or b=0..1, a range."
)
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to choose by.")
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True, help="How many parts of the queries.")
@click.option("--halves", type=click.IntRange(2), help="In place of folds: so many random halves, with their spread.")
@click.option(
    "--split-queries", is_flag=True, help="Split queries one by one, also those that share a relevant document."
)
@click.option(
    "--budget",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="The most that a route may send to its strong system.",
)
@click.option("--trials", type=click.IntRange(1), help="Let Optuna suggest so many; without, all combinations.")
@executor_option()
@json_option()
def tune_command(
    system: str,
    tasks: tuple[str, ...],
    over: tuple[str, ...],
    metric: str,
    folds: int,
    halves: int | None,
    split_queries: bool,
    budget: float,
    trials: int | None,
    executor: str,
    as_json: bool,
) -> None:
    """Choose a system's options on some of the queries, and measure it on the others.

    What a system gains by being tuned is reported only on queries that had no part in the choice, paired with the
    system as it was written. Queries that share a relevant document stay together unless --split-queries is given.
    An option is set in every stage that has it, also one of your own class or function; a range is tried at five
    values, or wherever Optuna looks. A route is tuned without --over: the share of the queries that its strong system
    answers, as a threshold of its signal.

    Candidates are not kept in the ledger; answers of language models are. Every candidate runs on all queries.

    \b
    Examples:
      r2med tune bm25 --over k1=0.6,0.9,1.2,2 b=0.2,0.4,0.75 --tasks sample
      r2med tune "rrf(bm25, wordllama)" --over weights=[1,1],[2,1],[1,2] --tasks sample
      r2med tune "route(bm25, replay >> bm25, by=nqc)" --budget 0.5 --halves 20 --tasks sample
    """
    options = TuneOptions(
        Measure.parse(metric), folds=folds, halves=halves or 0, split_queries=split_queries, budget=budget,
        trials=trials or 0,
    )  # fmt: skip
    with one_executor(executor, no_shards="one candidate is tried after another") as chosen:
        found = tune(system, tasks, read_over(over), replace(options, executor=chosen))
    if as_json:
        write_json(found.as_dict())
    else:
        show_tuned(found, output())
