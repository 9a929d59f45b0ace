"""The results of an evaluation as boards, tables and text, and the parts of its systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from r2med.data.task_names import GROUP_NOTES
from r2med.errors import R2medError, SpecError
from r2med.formatting import counted, dollars_text
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.render.scores.model import OWN, RECALL_LOST, Board, BoardRow, SystemParts, View, board_table
from r2med.render.scores.significance import Sample, about_marks, intervals, significance
from r2med.render.scores.text import FORMATS, show_table
from r2med.render.table import say
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry
from r2med.runs.record import RunRecord, StageRecord
from r2med.runs.report import Report, failure_lines
from r2med.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console


_AGENTS = ("search-o1", "search-r1")
_ASKING = ("answer-agreement", "confidence")  # signals that ask a language model
_FUSIONS = ("rrf", "wsum", "combmnz", "views", "route", "cascade")


def parts_of(stages: Sequence[StageRecord], *, oracle: bool = False) -> SystemParts:
    """Return the parts of a system, from the stages that its record names.

    >>> parts_of([StageRecord("hyde(gpt-4o)", "expander"), StageRecord("bm25", "retriever")])
    SystemParts(kind='gar', retrievers=('bm25',), llms=('gpt-4o',), rerankers=())
    """
    calls: dict[str, list[Call]] = defaultdict(list)
    for stage in stages:
        calls[stage.kind].append(_call(stage.spec))
    expanders, retrievers, rerankers = calls["expander"], calls["retriever"], calls["reranker"]
    asking = [*expanders, *rerankers, *(call for call in calls["signal"] if call.name in _ASKING)]
    llms = tuple(dict.fromkeys(llm for call in asking if (llm := _llm(call))))
    methods = {name for call in expanders for name in (call.name, str(dict(call.options).get("method", "")))}
    if oracle or rerankers:
        kind = "oracle" if oracle else "reranker"
    elif methods.intersection(_AGENTS):
        kind = "agent"
    elif expanders:
        kind = "reasoning" if any(map(_reasons, llms)) else "gar"
    else:
        kind = "fusion" if any(call.name in _FUSIONS for call in retrievers) else "base"
    names = (tuple(dict.fromkeys(call.name for call in several)) for several in (retrievers, rerankers))
    return SystemParts(kind, next(names), llms, next(names))


def _call(spec: str) -> Call:
    try:
        return parse(spec).calls[0]
    except SpecError:
        # What a submission calls a stage need not be a spec.
        return Call(spec)


def _llm(call: Call) -> str:
    """Return the language model of a stage: its `llm`, or its first argument if that is how models are named."""
    first: Value = call.args[0] if call.args and call.name != "replay" else ""
    llm = dict(call.options).get("llm") or first
    return "" if isinstance(llm, Call | Chain | tuple) else str(llm)


@cache
def _reasons(llm: str) -> bool:
    from r2med.llm.cards import find_model  # with the client of models, which few boards need

    try:
        return find_model(llm).reasoning
    except R2medError:
        # A published name, or a model whose card is gone.
        return False


def local_row(name: str, runs: Sequence[Entry], values: Mapping[str, float], **facts: Any) -> BoardRow:
    """Build the row of a system from its runs, with its figures by task and what else is known."""
    oracle = any(run.oracle for run in runs)
    lost = [run.record.recall_lost for run in runs if run.record.recall_lost is not None]
    return BoardRow(
        name,
        (OWN,),
        values,
        parts=parts_of(runs[0].record.stages or (), oracle=oracle),
        oracle=oracle,
        queries=sum(len(run.queries) for run in runs),
        incomplete=sum(len(run.incomplete) for run in runs),
        runs={run.task: run.id for run in runs if run.id},
        cost=Cost.of_runs(runs),
        recall_lost=sum(lost) / len(lost) if lost else None,
        **facts,
    )


def boards_from_report(report: Report, measures: Sequence[str] = (), view: View | None = None) -> list[Board]:
    """Return a board for each group and measure, the headline alone if no measure is named.

    Of the view, intervals, costs and the baseline count.
    """
    measures = measures or report.measures[:1]
    boards = [_board(report, group, measure, view or View()) for group in report.groups for measure in measures]
    return [board for board in boards if board.lines]


def _board(report: Report, group: str, measure: str, view: View) -> Board:
    tasks = report.tasks(group)
    runs = {
        system: [run for task in tasks if (run := report.result(system, task)) is not None] for system in report.systems
    }
    averages = {system: report.average(system, group, measure) for system in runs}
    samples = {
        system: {run.task: Sample(run.queries, run.scores[measure], run.data) for run in several}
        for system, several in runs.items()
        if averages[system] is not None
    }
    ranges = intervals(samples) if view.intervals else {}
    marks = significance(samples, view.baseline) if view.baseline else {}
    rows = [
        local_row(
            system,
            several,
            {run.task: run.metrics[measure] for run in several if measure in run.metrics},
            system=report.specs.get(system, system),
            average=averages[system],
            intervals=ranges.get(system, {}),
            marks=marks.get(system, {}),
        )
        for system, several in runs.items()
        if several
    ]
    notes = [f"{row.name}: {row.incomplete} queries incomplete" for row in rows if row.incomplete]
    notes += [RECALL_LOST] if any(row.recall_lost is not None for row in rows) else []
    notes += failure_lines(report.failures, report.names)
    notes += [about_marks(view.baseline)] if view.baseline else []
    notes += [GROUP_NOTES[group]] if group in GROUP_NOTES else []
    return Board(group, measure, tasks, rows, notes, cost=view.cost, baseline=view.baseline)


def show_report(report: Report, console: Console, measures: Sequence[str] = (), view: View | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        boards = [board for board in boards_from_report(report, measures, view) if board.group == group]
        for board in boards:
            show_table(board_table(board), console)
        if boards and group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def _footnotes(report: Report, console: Console) -> None:
    runs = {system: [run for run in report.results if run.system == system] for system in report.systems}
    for system, several in runs.items():
        if reasons := [reason for run in several for reason in run.incomplete.values()]:
            more = ", ..." if len(set(reasons)) > 1 else ""
            say(console, f"* {system}: {counted(len(reasons), 'query', 'queries')} incomplete ({reasons[0]}{more})")
    if any(run.record.recall_lost is not None for run in report.results):
        say(console, RECALL_LOST)
    for system, several in runs.items():
        if times := [run.record.latency for run in several if run.record.latency is not None]:
            say(console, f"{system}: {_latency(times)}", "dim")
        if line := _forecast_error([run.record for run in several if not run.cached]):
            say(console, f"{system}: {line}", "dim")
        if line := _failed_attempts([run.record for run in several]):
            say(console, f"{system}: {line}")
    warnings: dict[str, list[str]] = {}
    for run in report.results:
        for sentence in run.warnings:
            warnings.setdefault(f"{report.names[run.task]}: {sentence}", []).append(run.system)
    for sentence, systems in warnings.items():
        whose = "" if set(systems) == set(report.systems) else f" ({', '.join(dict.fromkeys(systems))})"
        say(console, f"warning: {sentence}{whose}", "yellow")
    for line in failure_lines(report.failures, report.names):
        say(console, line, "red")


def format_report(report: Report, name: str, measures: Sequence[str] = (), view: View | None = None) -> str:
    """Format the results of an evaluation in one of `FORMATS`, a table for each group and measure.

    >>> import r2med
    >>> print(format_report(r2med.evaluate("bm25", "sample/Biology"), "csv").partition(",incomplete")[0])
    group,measure,rank,system,spec,sources,kind,sample/Biology,average
    """
    if name == "json":
        return orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode("utf-8") + "\n"
    return FORMATS[name](boards_from_report(report, measures, view))


def _latency(times: Sequence[Mapping[str, float]]) -> str:
    """Format an engine's latency as a sentence for one task or several.

    >>> _latency([{"p50": 0.0021, "p95": 0.05, "p99": 1.2}])
    'a query took 2.1 ms (p50), 50 ms (p95), 1,200 ms (p99)'
    """
    slowest = max(times, key=lambda latency: latency["p50"])
    amounts = {name: 1000 * slowest[name] for name in ("p50", "p95", "p99")}
    text = ", ".join(f"{amount:,.{0 if amount >= 10 else 1}f} ms ({name})" for name, amount in amounts.items())
    return f"a query took {text}" + (f" on the slowest of {len(times)} tasks" if len(times) > 1 else "")


def _failed_attempts(records: Sequence[RunRecord]) -> str:
    """Count failed requests to engines, those that succeeded on a retry too; empty if there were none.

    >>> _failed_attempts([RunRecord(notes={"mine": {"errors": 0, "timeouts": 2}})])
    'failed attempts: 0, time-outs: 2'
    """
    counts = [record.failed_attempts or {} for record in records]
    errors, late = (sum(count.get(name, 0) for count in counts) for name in ("errors", "timeouts"))
    return f"failed attempts: {errors:,}, time-outs: {late:,}" if errors + late else ""


def _forecast_error(records: Sequence[RunRecord]) -> str:
    """Compare the forecast cost of servers with the actual cost; empty if one of them is unknown.

    >>> from r2med.runs.record import StepRecord
    >>> forecast = Usage(requests=9, prompt_tokens=600, cost=0.4)
    >>> step = StepRecord("hyde(m)", account=Usage(requests=9, prompt_tokens=900, cost=0.5), foreseen=forecast)
    >>> _forecast_error([RunRecord(work=(step,))])
    'foreseen 9 requests, 600 tokens, $0.40; used 9 requests, 900 tokens (+50%), $0.50 (+25%)'
    """
    pairs = [pair for record in records if (pair := record.foreseen_and_used) is not None]
    if not pairs:
        return ""
    foreseen, used = (sum(column, Usage()) for column in zip(*pairs, strict=True))

    def describe(usage: Usage, before: Usage) -> str:
        tokens = f", {usage.tokens:,} tokens{_off(usage.tokens, before.tokens)}" if usage.tokens else ""
        price = "?" if usage.cost is None else f"${dollars_text(usage.cost)}"
        return f"{counted(usage.requests, 'request')}{tokens}, {price}{_off(usage.cost, before.cost)}"

    return f"foreseen {describe(foreseen, Usage())}; used {describe(used, foreseen)}"


def _off(value: float | None, before: float | None) -> str:
    """Format the relative difference of a figure from the forecast one."""
    return f" ({value / before - 1:+.0%})" if value is not None and before else ""
