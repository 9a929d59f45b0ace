"""`r2med run`: systems over tasks, one table."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from r2med.cli.execution import asking_options, close_batch, one_client, open_executor, print_report
from r2med.cli.options import DROP_SELF, ManyValues, Size, format_option, json_option, tasks_option, write_json
from r2med.data.loader import load
from r2med.data.run_files import write_run
from r2med.errors import DataError
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.named_runs import read_experiment
from r2med.pipeline.plan import plan
from r2med.pipeline.system import System
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report
from r2med.settings import RequestSettings, memory_limit, overriding
from r2med.store.files import file_name, write_file

if TYPE_CHECKING:
    from r2med.pipeline.plan import Plan


def write_results(report: Report, folder: Path) -> None:
    """Write results.json, per_query.csv, and for each system and task a run file and what its expanders wrote.

    Folders have short names in all of them: the files are for others, who do not have them at the same place.
    """
    report = report.named({}, report.names)
    write_file(folder / "results.json", orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2), parents=True)
    write_file(folder / "per_query.csv", report.per_query().write_csv())
    with Ledger() as ledger:
        for result in report.results:
            if not result.id:
                continue
            entry, name = ledger.get(result.id), f"{file_name(result.task)}.{file_name(result.system)}.{result.id}"
            run = ledger.run(entry)
            try:
                write_run(run, folder / "runs" / f"{name}.trec", tag=file_name(result.system))
            except DataError:  # an id that cannot be written in a TREC file
                write_run(run, folder / "runs" / f"{name}.jsonl")
            if generations := ledger.generations(entry):
                from r2med.expand.replay import HYDOC, hydoc_rows  # brings the client of language models

                queries = load(entry.task).collection.queries
                write_file(folder / "generations" / name / HYDOC, hydoc_rows(queries, generations), parents=True)


_PROMPT = "first prompt"
_WIDTH = 100


def show_plan(plan: Plan, *, prompts: bool = False) -> None:
    """Print the plan of one system, with the first prompt of each of its stages, or with that of every task."""
    prompted: set[str] = set()
    click.secho(plan.system, bold=True)
    for number, stage in enumerate(plan.stages, 1):
        click.echo(f"  {number}. {stage.spec} ({stage.kind})")
        facts = {name.replace("_", " "): value for name, value in stage.settings.items()}
        needs = [f"pip install 'r2med[{stage.needs['extra']}]'"] if "extra" in stage.needs else []
        needs += [f"the key {stage.needs['key']}"] if "key" in stage.needs else []
        needs += [f"{repository} from the hub" for repository in stage.needs.get("hub", ())]
        facts["needs"] = [*needs, "a GPU"] if "gpu" in stage.needs else needs
        texts = {name: text for name, value in facts.items() if (text := _text(value))}
        width = max(map(len, texts), default=0)
        for name, text in texts.items():
            lead = f"     {name:<{width}}  "
            click.echo(textwrap.fill(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))
    for state in dict.fromkeys(task.state for task in plan.tasks):
        tasks = [task for task in plan.tasks if task.state == state]
        names = ", ".join(task.task for task in tasks)
        click.echo(textwrap.fill(f"{names}: {state}", _WIDTH, initial_indent="  ", subsequent_indent="    "))
        for task in tasks:
            if prompts:
                prompted.clear()
            for spec, forecast in task.forecast.items():
                click.echo(f"    {f'{task.task}, ' if len(tasks) > 1 else ''}{spec}: {_facts(forecast)}")
                if _PROMPT in forecast and spec not in prompted:
                    prompted.add(spec)
                    click.echo(textwrap.indent(str(forecast[_PROMPT]), "      | ", lambda line: True))
    for spec in dict.fromkeys(spec for task in plan.tasks for spec in task.forecast):
        several = [task.forecast[spec] for task in plan.tasks if spec in task.forecast]
        counts = [name for name in several[0] if all(type(facts.get(name)) in (int, float) for facts in several)]
        if len(several) > 1 and counts:
            totals = {name: sum(facts[name] for facts in several) for name in counts}
            click.echo(f"  in all, {spec}: {_facts(totals)}")
    click.echo()


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(fact) or '?'}" for name, fact in facts.items() if name != _PROMPT)


def _text(value: Any) -> str:
    """Format a value in words; empty for what is not set."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_text(part)}" for name, part in value.items())
    if isinstance(value, str):
        return "\\n".join(value.splitlines()) if value.strip() else ""
    if isinstance(value, Sequence):
        return ", ".join(filter(None, map(_text, value)))
    return f"{value:,}" if value is not None else ""


@click.command("run", cls=ManyValues)
@click.argument("systems", nargs=-1, required=True, metavar="SYSTEM|EXPERIMENT.toml...")
@tasks_option("What to run on (default: sample).")
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
def run_command(
    systems: tuple[str, ...],
    tasks: tuple[str, ...],
    measures: tuple[str, ...],
    split: str | None,
    drop_self: bool | None,
    ci: bool,
    columns: str | None,
    form: str,
    strict: bool,
    samples: int | None,
    max_cost: float | None,
    max_tokens: int | None,
    memory: int | None,
    executor: str,
    out: Path | None,
    fresh: bool,
    dry_run: bool,
    prompts: bool,
    as_json: bool,
    rpm: float | None,
    **requests: Any,
) -> None:
    """Run retrieval systems over tasks and print one table.

    A SYSTEM is a short description such as bm25, "bm25(k1=1.2, b=0.75)" or "rrf(bm25, bm25-classic)"; an
    EXPERIMENT.toml names several of them.

    \b
    Examples:
      r2med run bm25 bm25-classic
      r2med run "bm25(k1=1.2)" --tasks sample/MedQA-Diag path/to/folder
      r2med run bm25 --tasks full --measures nDCG@10 Recall@100 --json
    """
    specs_by_name: list[tuple[str, str]] = []
    for text in systems:
        if text.endswith(".toml"):
            experiment = read_experiment(Path(text))
            specs_by_name += experiment.systems.items()
            tasks, measures = tasks or experiment.tasks, measures or experiment.measures
        else:
            specs_by_name.append((text, text))
    tasks, asked = tasks or ("sample",), parse_all(measures)
    named = [_parse(text, drop_self=drop_self, samples=samples) for _, text in specs_by_name]
    built = list({system.spec: system for system in named}.values())
    if dry_run:
        with overriding(memory=memory or memory_limit()):
            plans = plan(built, tasks, split=split, fresh=fresh, strict=strict)
        if as_json:
            write_json(plans)
        for system_plan in () if as_json else plans:
            show_plan(system_plan, prompts=prompts)
        return
    specs = [system.spec for system in named]
    options = Options(
        measures=tuple(dict.fromkeys([*asked, *DEFAULT])),
        # A table shows what was asked for or the headline; JSON and files have all measures.
        shown=None if as_json or out is not None else asked or DEFAULT[:1],
        fresh=fresh,
        split=split,
        strict=strict,
        # A shard whose siblings have other systems, tasks or splits is refused.
        executor=open_executor(executor, {"systems": specs, "tasks": list(tasks), "split": split}),
    )
    limited = max_cost is not None or max_tokens is not None
    asks = limited or any(hasattr(stage, "llm") for system in built for stage in system.walk())
    client = one_client(max_cost, max_tokens) if asks else nullcontext()
    with overriding(RequestSettings(requests_per_minute=rpm, **requests), memory or memory_limit()), client:
        report = evaluate(built, list(tasks), options)
    for part in report.postponed:
        for line in part.message.splitlines():
            click.echo(f"{part.task}: {line}", err=True)
    if not report.failures:
        close_batch(options.executor)
    if report.postponed and not report.results and not report.failures:
        return
    if out is not None:
        write_results(report, out)
        click.echo(f"results and run files are in {out}", err=True)
    rows = zip(specs_by_name, named, strict=True)
    renamed = {system.spec: name for (name, text), system in rows if name != text}
    shown = View(intervals=ci, cost=columns == "cost")
    whole = report if as_json else report.named(renamed)
    print_report(whole, "json" if as_json else form, [str(measure) for measure in asked], shown)
    if not as_json and form == "terminal":
        for spec, name in renamed.items():
            click.echo(f"{name}: {spec}")
    if report.failures or any(not result.id for result in report.results):
        raise click.exceptions.Exit(1)


def _parse(text: str, *, drop_self: bool | None, samples: int | None) -> System:
    """Parse a system, with the options that apply to all of them."""
    system = System.parse(text)
    for name, value in (("drop_self", drop_self), ("samples", samples)):
        if value is not None:
            system = system.with_option(name, value)
    return system
