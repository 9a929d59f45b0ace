"""`r2med diagnose`: why does a system fail, and what would help?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.cli.run import show_plan
from r2med.data.labels import read_labels
from r2med.data.loader import load
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import resolve
from r2med.diagnosis import tables
from r2med.diagnosis.attribution import diagnose
from r2med.diagnosis.causes import Diagnosis, summary
from r2med.diagnosis.charts import sensitivity_chart
from r2med.diagnosis.complement import complementarity
from r2med.diagnosis.coverage import coverage
from r2med.diagnosis.gap import climb, floor_and_ceiling, measure_gap
from r2med.diagnosis.slices import cut, rows
from r2med.diagnosis.truncation import measure_sensitivity
from r2med.diagnosis.verification import VerificationStudy, parse_verifier, plan_verification, verify
from r2med.errors import R2medError
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import open_shared
from r2med.pipeline.named_runs import lacks, select, share
from r2med.render.charts.files import check_chart_file, save
from r2med.render.sections import write_sections
from r2med.render.table import messages, output
from r2med.runs.ledger import Ledger
from r2med.runs.selection import Shared, by_group
from r2med.store.jobs import DONE, reporter
from r2med.tuning.frontier import COSTS, frontier, price

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.data.dataset import Dataset
    from r2med.pipeline.loaded_runs import LoadedRun


@dataclass(frozen=True)
class DiagnoseRequest:
    """Arguments and options of the command."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: Path | None
    base: str
    encoder: str
    limit: int
    verify: tuple[str, ...]
    distractors: int
    dry_run: bool
    form: str | None

    def names(self, least: int, what: str) -> tuple[str, ...]:
        """Return the runs, of which at least so many are needed."""
        if len(self.runs) < least:
            raise click.UsageError(f"{what} needs {'a run' if least == 1 else f'{least} runs'}, by spec or id")
        return self.runs


DiagnosisPart = tuple[Callable[[], object], Callable[["Console"], object]]  # what JSON says of a part, what prints it


@click.command("diagnose", cls=ManyValues)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--against", metavar="RUN", help="Another run, whose shares are compared with the last RUN's.")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--causes", is_flag=True, help="Causes of failure (the default).")
@click.option("--gap", is_flag=True, help="How far queries are from their documents, and the ceiling.")
@click.option("--complement", is_flag=True, help="What one system finds and another does not.")
@click.option("--coverage", is_flag=True, help="Unjudged documents, and likely false negatives.")
@click.option("--slices", is_flag=True, help="Scores by family, length, overlap and labels.")
@click.option("--cost", is_flag=True, help="Score against money, tokens and seconds; all systems.")
@click.option(
    "--verify", multiple=True, metavar="RERANKER...", help="The ceiling of a strong reranker, and the way to it."
)
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE.tsv", help="Labels of queries, for --slices.")
@click.option("--base", default="bm25", show_default=True, metavar="SYSTEM", help="Floor and ceiling of --gap.")
@click.option("--encoder", default="wordllama", show_default=True, metavar="MODEL", help="Embeddings of --gap.")
@click.option(
    "--distractors",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Other documents in a pool of --verify.",
)
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(0), help="Rows of --coverage and --verify; 0 for all."
)
@click.option("--dry-run", is_flag=True, help="Verify nothing; show what --verify would take.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@click.option("--max-tokens", type=click.IntRange(0), help="Stop before more tokens are used, read and written.")
@asking_options
@click.option("--format", "form", type=click.Choice(["md", "latex"]), help="Write --verify as Markdown or LaTeX.")
@json_option()
def diagnose_command(against: str | None, runs: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Why does a system fail, and what would help? From the runs of the ledger; RUN is a spec or the id of a run.

    Several parts can be asked for at a time; their JSON is then an object with a key for each.

    --verify puts the relevant documents of each query among the first others that the runs found, and has a reranker
    (any, also pointwise(MODEL) or module:Class) order them: an oracle, never a rank. It says whether a task fails in
    retrieval, and which relevant documents every RERANKER ranks last (`r2med review new --queue unverified`). The
    options on cost, requests and executors are for --verify.

    \b
    Examples:
      r2med diagnose bm25
      r2med diagnose "replay >> bm25" --against bm25 --tasks sample
      r2med diagnose "replay >> bm25" --gap --tasks sample
      r2med diagnose bm25 wordllama --complement
      r2med diagnose bm25 --slices --labels body_system.tsv
      r2med diagnose --cost --tasks sample
      r2med diagnose bm25 --verify bge-reranker "pointwise(gpt-4o)" --tasks sample --dry-run
    """
    names = [part for part in _PARTS if given[part]] or ["causes"]
    if names != ["verify"] and (given["dry_run"] or given["form"]):
        raise click.UsageError(f"{'--dry-run' if given['dry_run'] else '--format'} goes with --verify alone")
    if as_json and given["form"]:
        raise click.UsageError("--json and --format exclude each other")
    settings = {field.name: given[field.name] for field in fields(DiagnoseRequest) if field.name != "runs"}
    asked = DiagnoseRequest(runs=(*runs, against) if against else runs, **settings)
    requests = {name: given[name] for name in _REQUESTS}
    with Ledger() as ledger, asking(**requests) if asked.verify else nullcontext(Executor(messages())) as executor:
        groups = {
            group: {name: _PARTS[name](part, ledger, executor) for name in names}
            for group, part in _groups(asked, ledger).items()
        }
    if as_json:
        contents = [{name: content() for name, (content, _) in parts.items()} for parts in groups.values()]
        write_json(_only_or_all(dict(zip(groups, map(_only_or_all, contents), strict=True))))
        return
    console = output()
    for group, parts in groups.items():
        if len(groups) > 1:
            console.print(GROUP_TITLES.get(group, group), style="bold", markup=False)
        for _, show in parts.values():
            show(console)


def _only_or_all(contents: Mapping[str, object]) -> object:
    """Return contents for JSON, one alone without its name."""
    return contents if len(contents) > 1 else next(iter(contents.values()))


def _groups(asked: DiagnoseRequest, ledger: Ledger) -> dict[str, DiagnoseRequest]:
    """Return what is asked of each group of the tasks that the runs share: nothing is averaged over several."""
    if not asked.runs:
        return {"": asked}
    groups = by_group(select(ledger, asked.runs, [task.name for task in resolve(asked.tasks)]))
    if len(groups) == 1:
        return {groups[0].group: asked}
    return {shared.group: replace(asked, tasks=shared.tasks) for shared in groups}


def _opened(asked: DiagnoseRequest, ledger: Ledger, names: Sequence[str]) -> Iterator[tuple[LoadedRun, ...]]:
    """Open the runs task by task."""
    return open_shared(ledger, _shared(asked, ledger, names))


def _shared(asked: DiagnoseRequest, ledger: Ledger, names: Sequence[str]) -> Shared:
    shared = share(ledger, names, [task.name for task in resolve(asked.tasks)])
    remark(shared.notes)
    return shared


def _causes(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    names = asked.names(1, "a diagnosis")
    shared = _shared(asked, ledger, names)
    with reporter.plan([system.system for system in shared.systems], shared.tasks):
        by_task = [[_diagnose(run, ledger, executor) for run in opened] for opened in open_shared(ledger, shared)]
    systems = [list(column) for column in zip(*by_task, strict=True)]

    def show(console: Console) -> None:
        for diagnoses in systems:
            tables.show_causes(diagnoses, console)
            console.print()
        for diagnoses in systems[:-1]:
            tables.show_changes(systems[-1], diagnoses, console)

    return lambda: summary(systems), show


def _diagnose(opened: LoadedRun, ledger: Ledger, executor: Executor) -> Diagnosis:
    """Diagnose a run, and report its progress."""
    started, task = time.monotonic(), opened.entry.task
    with executor.working(opened.system, task):
        diagnosis = diagnose(opened, ledger, executor)
    reporter.finish_cell(opened.system, task, DONE, run=opened.entry.id, seconds=time.monotonic() - started)
    return diagnosis


def _gap(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    gaps, rows = [], {}
    for dataset, systems in _to_climb(asked, ledger):
        gaps.append(measure_gap(dataset, asked.encoder, executor))
        floor, ceiling = floor_and_ceiling(asked.base, dataset, executor)
        rows[dataset.name] = [(floor, ceiling, values) for values in systems or [floor]]
    names = asked.runs or (asked.base,)
    climbs = [
        climb(asked.base, name, {task: row[place] for task, row in rows.items()}) for place, name in enumerate(names)
    ]

    def show(console: Console) -> None:
        tables.show_gap(gaps, console)
        tables.show_ceiling(climbs, console)

    return lambda: {"gap": [gap.as_dict() for gap in gaps], "ceiling": climbs}, show


def _to_climb(asked: DiagnoseRequest, ledger: Ledger) -> Iterator[tuple[Dataset, list[Mapping[str, float]]]]:
    """Yield each task with the scores of the runs on it; without runs, the tasks alone."""
    if asked.runs:
        for opened in _opened(asked, ledger, asked.runs):
            yield opened[0].dataset, [run.values for run in opened]
        return
    tasks = resolve(asked.tasks or ("sample",))
    groups = sorted({task.group for task in tasks})
    if len(groups) > 1:
        raise R2medError(f"these tasks are of several groups ({', '.join(groups)}), which have no average in common")
    for task in tasks:
        yield load(task), []


def _complement(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    names = asked.names(2, "--complement")
    tasks = [complementarity(opened) for opened in _opened(asked, ledger, names)]
    return lambda: tasks, lambda console: tables.show_complement(tasks, console)


def _coverage(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    tasks = [coverage(opened) for opened in _opened(asked, ledger, asked.names(1, "--coverage"))]
    return lambda: tasks, lambda console: tables.show_coverage(tasks, console, asked.limit or None)


def _slices(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    names = asked.names(1, "--slices")
    if len(names) > 2:
        raise click.UsageError("--slices takes one run or two")
    labels = read_labels(asked.labels) if asked.labels else None
    queries = [row for opened in _opened(asked, ledger, names) for row in rows(opened, labels, executor)]
    slices = cut(queries, labelled=labels is not None)
    return (
        lambda: {way: [part.as_dict() for part in parts] for way, parts in slices.items()},
        lambda console: tables.show_slices(slices, names, console),
    )


def _cost(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    tasks = [task.name for task in resolve(asked.tasks)]
    remark(lacks(ledger, asked.runs, tasks))
    systems = price(ledger, asked.runs, tasks)
    best = {by: [one.system for one in frontier(systems, by)] for by in COSTS}
    return (
        lambda: {"systems": [one.as_dict() for one in systems], "frontier": best},
        lambda console: tables.show_costs(systems, console),
    )


def _verify(asked: DiagnoseRequest, ledger: Ledger, executor: Executor) -> DiagnosisPart:
    verifiers = list({str(stage): stage for stage in map(parse_verifier, asked.verify)}.values())
    each_task = _opened(asked, ledger, asked.names(1, "--verify"))
    if asked.dry_run:
        plans = [plan for runs in each_task for plan in plan_verification(runs, verifiers, asked.distractors)]
        return lambda: plans, lambda console: list(map(show_plan, plans))
    study = VerificationStudy([verify(runs, verifiers, asked.distractors, executor) for runs in each_task])
    sections = tables.verification_sections(study, asked.limit or None)
    return study.as_dict, lambda console: write_sections(asked.form, "Verifiability ceiling", sections)


_REQUESTS = ("executor", "concurrency", "timeout", "retries", "rpm", "max_cost", "max_tokens", "dry_run")
_PARTS = {
    "causes": _causes,
    "gap": _gap,
    "complement": _complement,
    "coverage": _coverage,
    "slices": _slices,
    "cost": _cost,
    "verify": _verify,
}


def _read_lengths(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[int, ...]:
    """Read numbers of tokens with commas between them: 512,2048,8192."""
    lengths: list[int] = []
    for value in values:
        try:
            lengths += map(int, value.split(","))
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not a list of whole numbers such as 512,2048") from error
    if min(lengths) < 1:
        raise click.BadParameter(f"a model reads at least 1 token, not {min(lengths)}")
    return tuple(lengths)


@click.command("sensitivity", cls=ManyValues)
@click.argument("system")
@click.option(
    "--max-length", "lengths", callback=_read_lengths, multiple=True, required=True, metavar="N,N...",
    help="The limits, in tokens.",
)  # fmt: skip
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="What to run on (default: sample).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="The figure.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the curves.")
@asking_options
@json_option()
def sensitivity_command(
    system: str, lengths: tuple[int, ...], tasks: tuple[str, ...], plot: Path | None, as_json: bool, **given: Any
) -> None:
    """How does a figure move with truncation?

    The system is run at every limit, set in each of its stages that has one (encoders, cross-encoders), and compared
    with the longest limit, paired by query: the difference with its 95% interval, the p-value after Holm over the
    limits, and the share of texts that were cut. Runs are kept in the ledger. A limit that a model cannot read is
    said and left out.

    \b
    Examples:
      r2med sensitivity wordllama --max-length 16,64,256 --tasks sample/Biology sample/MedQA-Diag
      r2med sensitivity diver --max-length 512,2048,8192 --tasks full --plot diver.svg
    """
    if plot is not None:
        check_chart_file("--plot", plot)
    figure = Measure.parse(given.pop("measure"))
    with asking(**given) as executor:
        options = Options(measures=tuple(dict.fromkeys([figure, *DEFAULT])), shown=(figure,), executor=executor)
        study = measure_sensitivity(system, lengths, resolve(tasks or ("sample",)), figure, options)
    if as_json:
        write_json(study.as_dict())
    else:
        tables.show_sensitivity(study, output())
    if plot is not None:
        save(sensitivity_chart(study), plot)
        click.echo(f"the figure is in {plot}", err=True)
