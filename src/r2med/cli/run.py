"""`r2med run`: systems over tasks, one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.board.report_rows import Shown
from r2med.cli.asking import asking_options, one_client
from r2med.cli.engine_option import close_batch, open_engine
from r2med.cli.options import DROP_SELF, ManyValues, Size, json_option, output, write_json
from r2med.config.experiment import read_experiment
from r2med.config.limits import memory_limit, memory_limited
from r2med.config.request_settings import RequestSettings, requesting
from r2med.exchange.export import write_results
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.pipeline.engine import Engine
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.plan import plan
from r2med.pipeline.system import System
from r2med.render.plan_text import show_plan
from r2med.render.report_text import format_report, show_report
from r2med.runs.report import failure_lines

if TYPE_CHECKING:
    from r2med.runs.report import Report


@dataclass(frozen=True)
class RunRequest:
    """What the user typed."""

    systems: tuple[str, ...]
    tasks: tuple[str, ...]
    metrics: tuple[str, ...]
    split: str | None
    drop_self: bool | None
    ci: bool
    columns: str | None
    strict: bool
    samples: int | None
    max_cost: float | None
    max_tokens: int | None
    concurrency: int | None
    timeout: float | None
    retries: int | None
    rpm: float | None
    memory: int | None
    engine: str
    format: str
    out: Path | None
    fresh: bool
    dry_run: bool
    prompts: bool
    as_json: bool
    names: tuple[str, ...] = ()
    """What an experiment calls each of the systems."""


@click.command("run", cls=ManyValues)
@click.argument("systems", nargs=-1, required=True, metavar="SYSTEM|EXPERIMENT.toml...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="What to run on (default: sample).")
@click.option("--metrics", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--drop-self/--keep-self", default=None, help=DROP_SELF)
@click.option("--ci", is_flag=True, help="Show 95% intervals (bootstrap over queries) below the means.")
@click.option("--columns", type=click.Choice(["cost"]), help="Also show requests, tokens, dollars and seconds.")
@click.option(
    "--format",
    type=click.Choice(["terminal", "markdown", "latex", "csv"]),
    default="terminal",
    show_default=True,
    help="How the table is written.",
)
@click.option(
    "--strict", is_flag=True, help="Make a query that a stage could not serve, and data that is left out, an error."
)
@click.option("--samples", type=click.IntRange(1), help="How many texts each expander asks a model for.")
@click.option("--max-cost", type=float, metavar="DOLLARS", help="Stop asking models before this is spent.")
@click.option("--max-tokens", type=int, help="Stop asking models before so many tokens are used.")
@click.option("--memory", type=Size(), help="Memory for indexing and searching (default: 2GB, or that of r2med.toml).")
@asking_options
@click.option("--out", type=click.Path(path_type=Path), help="Write results, per-query scores and run files here.")
@click.option("--fresh", is_flag=True, help="Compute again what the ledger already has.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--prompts", is_flag=True, help="With --dry-run: the first prompt of every task, not of one.")
@json_option()
def command(**given: Any) -> None:
    """Run retrieval systems over tasks and print one table.

    A SYSTEM is a short description such as bm25, "bm25(k1=1.2, b=0.75)" or "rrf(bm25, bm25-classic)"; an
    EXPERIMENT.toml names several of them.

    \b
    Examples:
      r2med run bm25 bm25-classic
      r2med run "bm25(k1=1.2)" --tasks sample/MedQA-Diag path/to/folder
      r2med run bm25 --tasks full --metrics nDCG@10 Recall@100 --json
    """
    asked = _with_experiments(RunRequest(**given))
    systems = _systems(asked)
    if asked.dry_run:
        _show_plan(asked, _distinct(systems))
    else:
        _run(asked, systems)


def _with_experiments(asked: RunRequest) -> RunRequest:
    """The systems, tasks and metrics of experiment files in place of the files; what was typed wins."""
    systems: list[str] = []
    names: list[str] = []
    for text in asked.systems:
        if not text.endswith(".toml"):
            systems.append(text)
            names.append(text)
            continue
        experiment = read_experiment(Path(text))
        systems += experiment.systems.values()
        names += experiment.systems
        tasks, metrics = asked.tasks or experiment.tasks, asked.metrics or experiment.metrics
        asked = replace(asked, tasks=tasks, metrics=metrics)
    return replace(asked, systems=tuple(systems), names=tuple(names), tasks=asked.tasks or ("sample",))


def _systems(asked: RunRequest) -> list[System]:
    """The systems, with what was asked of all of them."""
    built = [System.parse(text) for text in asked.systems]
    if asked.drop_self is not None:
        built = [system.with_option("drop_self", asked.drop_self) for system in built]
    if asked.samples is not None:
        built = [system.with_option("samples", asked.samples) for system in built]
    return built


def _distinct(systems: list[System]) -> list[System]:
    """Each system once."""
    return list({system.spec: system for system in systems}.values())


def _names(asked: RunRequest, systems: list[System]) -> dict[str, str]:
    """The specs that an experiment has a name for."""
    given = zip(asked.systems, asked.names, systems, strict=True)
    return {system.spec: name for text, name, system in given if name != text}


def _run(asked: RunRequest, systems: list[System]) -> None:
    measures = parse_all(asked.metrics)
    options = Options(
        measures=tuple(dict.fromkeys([*measures, *DEFAULT])),
        # A table shows what was asked for or the headline; JSON and files have all measures.
        shown=None if asked.as_json or asked.out is not None else measures or DEFAULT[:1],
        fresh=asked.fresh,
        split=asked.split,
        strict=asked.strict,
        engine=_engine(asked, systems),
    )
    with _limits(asked, systems), memory_limited(asked.memory or memory_limit()):
        report = evaluate(_distinct(systems), list(asked.tasks), options)
    _finish_shards(options.engine, report)
    if report.postponed and not report.results and not report.failures:
        return
    names = _names(asked, systems)
    shown = Shown(intervals=asked.ci, cost=asked.columns == "cost")
    if asked.out is not None:
        write_results(report, asked.out)
        click.echo(f"results and run files are in {asked.out}", err=True)
    if asked.as_json:
        write_json(report.as_dict())
    elif asked.format != "terminal":
        click.echo(format_report(report.named(names), asked.format, [str(measure) for measure in measures], shown))
        if asked.format == "csv" or not report.results:
            _explain(report.named(names))
    else:
        show_report(report.named(names), output(), [str(measure) for measure in measures], shown)
        for spec, name in names.items():
            click.echo(f"{name}: {spec}")
    if report.failures or any(not result.run_id for result in report.results):
        raise click.exceptions.Exit(1)


def _engine(asked: RunRequest, systems: Sequence[System]) -> Engine:
    """Where the work runs; a shard whose siblings were asked something else is refused."""
    specs = [system.spec for system in systems]
    return open_engine(asked.engine, {"systems": specs, "tasks": list(asked.tasks), "split": asked.split})


def _finish_shards(engine: Engine, report: Report) -> None:
    """Say what was left to other shards; one that merged closes the batch."""
    for part in report.postponed:
        for line in part.message.splitlines():
            click.echo(f"{part.task}: {line}", err=True)
    if not report.failures:
        close_batch(engine)


def _explain(report: Report) -> None:
    """What failed, for a table that has no room for it."""
    for line in failure_lines(report.failures, report.names):
        click.echo(line, err=True)


@contextmanager
def _limits(asked: RunRequest, systems: Sequence[System]) -> Iterator[None]:
    """One client for the whole command, with the limits that were asked for; none where no model can be asked."""
    limited = asked.max_cost is not None or asked.max_tokens is not None
    asks = limited or any(hasattr(stage, "llm") for system in systems for stage in system.walk())
    settings = RequestSettings(asked.timeout, asked.retries, asked.rpm, asked.concurrency)
    with requesting(settings), one_client(asked.max_cost, asked.max_tokens) if asks else nullcontext():
        yield


def _show_plan(asked: RunRequest, systems: list[System]) -> None:
    with memory_limited(asked.memory or memory_limit()):
        plans = plan(systems, asked.tasks, split=asked.split, fresh=asked.fresh, strict=asked.strict)
    if asked.as_json:
        write_json([each.as_dict() for each in plans])
        return
    for each in plans:
        show_plan(each, prompts=asked.prompts)
