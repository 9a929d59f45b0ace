"""`r2med run`: systems over tasks, one table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from r2med.cli.execution import asking_options, close_batch, one_client, open_executor, print_report
from r2med.cli.options import DROP_SELF, ManyValues, Size, format_option, json_option, write_json
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_files import write_run
from r2med.errors import DataError
from r2med.expand.files import HYDOC, hydoc_rows
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.named_runs import read_experiment
from r2med.pipeline.plan import plan
from r2med.pipeline.system import System
from r2med.render.scores.report import Shown
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.report import Report
from r2med.settings import RequestSettings, memory_limit, overriding
from r2med.store.files import file_name, write_file

if TYPE_CHECKING:
    from r2med.pipeline.plan import Plan, PlannedStage, PlannedTask


def write_results(report: Report, folder: Path) -> None:
    """Write results.json, per_query.csv, and for each system and task a run file and what its expanders wrote.

    Folders have short names in all of them: the files are for others, who do not have them at the same place.
    """
    report = report.with_task_names()
    write_file(folder / "results.json", orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2), parents=True)
    write_file(folder / "per_query.csv", report.per_query().write_csv())
    with Ledger() as ledger:
        for result in report.results:
            if result.id:
                entry = ledger.get(result.id)
                _write_run_lists(ledger.run(entry), result, folder / "runs")
                if generations := ledger.generations(entry):
                    place = folder / "generations" / _name(result) / HYDOC
                    queries = load(entry.task).collection.queries
                    write_file(place, hydoc_rows(queries, generations), parents=True)


def _name(result: Entry) -> str:
    """Return the name of a result's files."""
    return f"{file_name(result.task)}.{file_name(result.system)}.{result.id}"


def _write_run_lists(run: Run, result: Entry, folder: Path) -> None:
    """Write a TREC file, or jsonl if an id cannot be written in one."""
    name = _name(result)
    try:
        write_run(run, folder / f"{name}.trec", tag=file_name(result.system))
    except DataError:
        write_run(run, folder / f"{name}.jsonl")


_PROMPT = "first prompt"
_WIDTH = 100


def show_plan(plan: Plan, *, prompts: bool = False) -> None:
    """Print the plan of one system, with the first prompt of each of its stages, or with that of every task."""
    shown: set[str] = set()
    click.secho(plan.system, bold=True)
    for number, stage in enumerate(plan.stages, 1):
        click.echo(f"  {number}. {stage.spec} ({stage.kind})")
        _list({name.replace("_", " "): value for name, value in stage.settings.items()} | _needs(stage))
    for state, tasks in _by_state(plan.tasks).items():
        names = ", ".join(task.task for task in tasks)
        click.echo(textwrap.fill(f"{names}: {state}", _WIDTH, initial_indent="  ", subsequent_indent="    "))
        for task in tasks:
            _forecast(task, len(tasks) > 1, set() if prompts else shown)
    for spec, facts in _totals(plan.tasks).items():
        click.echo(f"  in all, {spec}: {_facts(facts)}")
    click.echo()


def _by_state(tasks: Sequence[PlannedTask]) -> dict[str, list[PlannedTask]]:
    """Group tasks by their state, in the order of the first of each."""
    found: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        found.setdefault(task.state, []).append(task)
    return found


def _forecast(task: PlannedTask, several: bool, shown: set[str]) -> None:
    """Print what is left to do on a task; the prompts of stages that were shown before are left out."""
    for spec, facts in task.forecast.items():
        click.echo(f"    {f'{task.task}, ' if several else ''}{spec}: {_facts(facts)}")
        if _PROMPT in facts and spec not in shown:
            shown.add(spec)
            click.echo(textwrap.indent(str(facts[_PROMPT]), "      | ", lambda line: True))


def _totals(tasks: Sequence[PlannedTask]) -> dict[str, dict[str, float]]:
    """Add up what a stage takes on all tasks together, for stages that have work on several."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        for spec, facts in task.forecast.items():
            found.setdefault(spec, []).append(facts)
    return {
        spec: {name: sum(facts[name] for facts in several) for name in several[0] if _countable(name, several)}
        for spec, several in found.items()
        if len(several) > 1 and any(_countable(name, several) for name in several[0])
    }


def _countable(name: str, several: Sequence[Mapping[str, Any]]) -> bool:
    return all(type(facts.get(name)) in (int, float) for facts in several)


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_said(fact) or '?'}" for name, fact in facts.items() if name != _PROMPT)


def _needs(stage: PlannedStage) -> dict[str, str]:
    """Return what a stage needs to run, in words."""
    needs = stage.needs
    words = [f"pip install 'r2med[{needs['extra']}]'"] if "extra" in needs else []
    words += [f"the key {needs['key']}"] if "key" in needs else []
    words += [f"{repository} from the hub" for repository in needs.get("hub", ())]
    words += ["a GPU"] if "gpu" in needs else []
    return {"needs": ", ".join(words)} if words else {}


def _list(facts: Mapping[str, Any]) -> None:
    shown = {name: text for name, value in facts.items() if (text := _said(value))}
    wide = max(map(len, shown), default=0)
    for name, text in shown.items():
        lead = f"     {name:<{wide}}  "
        click.echo(textwrap.fill(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))


def _said(value: Any) -> str:
    """Format a value in words; empty for what is not set."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_said(each)}" for name, each in value.items())
    if isinstance(value, str):
        return "\\n".join(value.splitlines()) if value.strip() else ""
    return ", ".join(_items(value)) if isinstance(value, Sequence) else f"{value:,}" if value is not None else ""


def _items(values: Sequence[Any]) -> Iterator[str]:
    return (text for value in values if (text := _said(value)))


@dataclass(frozen=True)
class RunRequest:
    """Arguments and options of the command."""

    systems: tuple[str, ...]
    tasks: tuple[str, ...]
    measures: tuple[str, ...]
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
    executor: str
    form: str
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
@click.option("--measures", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--drop-self/--keep-self", default=None, help=DROP_SELF)
@click.option("--ci", is_flag=True, help="Show 95% intervals (bootstrap over queries) below the means.")
@click.option("--columns", type=click.Choice(["cost"]), help="Also show requests, tokens, dollars and seconds.")
@format_option()
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
def run_command(**given: Any) -> None:
    """Run retrieval systems over tasks and print one table.

    A SYSTEM is a short description such as bm25, "bm25(k1=1.2, b=0.75)" or "rrf(bm25, bm25-classic)"; an
    EXPERIMENT.toml names several of them.

    \b
    Examples:
      r2med run bm25 bm25-classic
      r2med run "bm25(k1=1.2)" --tasks sample/MedQA-Diag path/to/folder
      r2med run bm25 --tasks full --measures nDCG@10 Recall@100 --json
    """
    asked = _with_experiments(RunRequest(**given))
    built = [System.parse(text) for text in asked.systems]
    if asked.drop_self is not None:
        built = [system.with_option("drop_self", asked.drop_self) for system in built]
    if asked.samples is not None:
        built = [system.with_option("samples", asked.samples) for system in built]
    systems = built
    if asked.dry_run:
        _show_plan(asked, _distinct(systems))
    else:
        _run(asked, systems)


def _with_experiments(asked: RunRequest) -> RunRequest:
    """Replace experiment files by their systems, tasks and measures; what was typed takes precedence."""
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
        tasks, measures = asked.tasks or experiment.tasks, asked.measures or experiment.measures
        asked = replace(asked, tasks=tasks, measures=measures)
    return replace(asked, systems=tuple(systems), names=tuple(names), tasks=asked.tasks or ("sample",))


def _distinct(systems: list[System]) -> list[System]:
    """Return each system once."""
    return list({system.spec: system for system in systems}.values())


def _names(asked: RunRequest, systems: list[System]) -> dict[str, str]:
    """Return the names that an experiment gives to specs."""
    given = zip(asked.systems, asked.names, systems, strict=True)
    return {system.spec: name for text, name, system in given if name != text}


def _run(asked: RunRequest, systems: list[System]) -> None:
    measures = parse_all(asked.measures)
    options = Options(
        measures=tuple(dict.fromkeys([*measures, *DEFAULT])),
        # A table shows what was asked for or the headline; JSON and files have all measures.
        shown=None if asked.as_json or asked.out is not None else measures or DEFAULT[:1],
        fresh=asked.fresh,
        split=asked.split,
        strict=asked.strict,
        executor=_executor(asked, systems),
    )
    with _limits(asked, systems):
        report = evaluate(_distinct(systems), list(asked.tasks), options)
    for part in report.postponed:
        for line in part.message.splitlines():
            click.echo(f"{part.task}: {line}", err=True)
    if not report.failures:
        close_batch(options.executor)
    if report.postponed and not report.results and not report.failures:
        return
    names = _names(asked, systems)
    shown = Shown(intervals=asked.ci, cost=asked.columns == "cost")
    if asked.out is not None:
        write_results(report, asked.out)
        click.echo(f"results and run files are in {asked.out}", err=True)
    form = "json" if asked.as_json else asked.form
    print_report(report if asked.as_json else report.named(names), form, [str(measure) for measure in measures], shown)
    if form == "terminal":
        for spec, name in names.items():
            click.echo(f"{name}: {spec}")
    if report.failures or any(not result.id for result in report.results):
        raise click.exceptions.Exit(1)


def _executor(asked: RunRequest, systems: Sequence[System]) -> Executor:
    """Open the executor; a shard whose siblings have other systems, tasks or splits is refused."""
    specs = [system.spec for system in systems]
    return open_executor(asked.executor, {"systems": specs, "tasks": list(asked.tasks), "split": asked.split})


@contextmanager
def _limits(asked: RunRequest, systems: Sequence[System]) -> Iterator[None]:
    """Open one client for the whole command, with its spending limits; none if no model can be asked."""
    limited = asked.max_cost is not None or asked.max_tokens is not None
    asks = limited or any(hasattr(stage, "llm") for system in systems for stage in system.walk())
    settings = RequestSettings(asked.timeout, asked.retries, asked.rpm, asked.concurrency)
    client = one_client(asked.max_cost, asked.max_tokens) if asks else nullcontext()
    with overriding(settings, asked.memory or memory_limit()), client:
        yield


def _show_plan(asked: RunRequest, systems: list[System]) -> None:
    with overriding(memory=asked.memory or memory_limit()):
        plans = plan(systems, asked.tasks, split=asked.split, fresh=asked.fresh, strict=asked.strict)
    if asked.as_json:
        write_json([each.as_dict() for each in plans])
        return
    for each in plans:
        show_plan(each, prompts=asked.prompts)
