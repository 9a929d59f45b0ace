"""The results of an evaluation as boards, tables and text, and the parts of its systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from typing import TYPE_CHECKING

import orjson

from r2med.data.task_names import GROUP_NOTES
from r2med.errors import R2medError, SpecError
from r2med.formatting import counted, dollars_text
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.render.scores.model import OWN, RECALL_LOST, Board, BoardRow, SystemParts
from r2med.render.scores.significance import Sample, about_marks, intervals, significance
from r2med.render.scores.table import board_table
from r2med.render.scores.text import FORMATS, show_table
from r2med.render.table import say
from r2med.runs.ledger import Entry
from r2med.runs.record import RunRecord, StageRecord
from r2med.runs.report import Report, failure_lines
from r2med.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console


_AGENTS = ("search-o1", "search-r1")
_ASKING = ("answer-agreement", "confidence")
"""Signals that ask a language model."""
_FUSIONS = ("rrf", "wsum", "combmnz", "views", "route", "cascade")


def mean_recall_lost(records: Sequence[RunRecord]) -> float | None:
    """Average what approximate searches lost of the exact lists over tasks; None if all were exact."""
    lost = [record.recall_lost for record in records if record.recall_lost is not None]
    return sum(lost) / len(lost) if lost else None


def parts_of(stages: Sequence[StageRecord], *, oracle: bool = False) -> SystemParts:
    """Return the parts of a system, from the stages that its record names.

    >>> parts_of([StageRecord("hyde(gpt-4o)", "expander"), StageRecord("bm25", "retriever")])
    SystemParts(kind='gar', retrievers=('bm25',), llms=('gpt-4o',), rerankers=())
    """
    calls: dict[str, list[Call]] = {"expander": [], "retriever": [], "reranker": []}
    for stage in stages:
        calls.setdefault(stage.kind, []).append(_call(stage.spec))
    asking = [
        *calls["expander"],
        *calls["reranker"],
        *(call for call in calls.get("signal", ()) if call.name in _ASKING),
    ]
    llms = tuple(dict.fromkeys(llm for call in asking if (llm := _llm(call))))
    return SystemParts(
        "oracle" if oracle else _kind(calls, llms),
        tuple(dict.fromkeys(call.name for call in calls["retriever"])),
        llms,
        tuple(dict.fromkeys(call.name for call in calls["reranker"])),
    )


def _call(spec: str) -> Call:
    try:
        return parse(spec).calls[0]
    except SpecError:
        # What a submission calls a stage need not be a spec.
        return Call(spec)


def _llm(call: Call) -> str:
    """Return the language model of a stage: its `llm`, or its first argument if that is how models are named."""
    named = dict(call.options).get("llm")
    first: Value = call.args[0] if call.args and call.name != "replay" else ""
    return str(named or first) if not isinstance(named or first, Call | Chain | tuple) else ""


def _kind(calls: Mapping[str, Sequence[Call]], llms: Sequence[str]) -> str:
    if calls["reranker"]:
        return "reranker"
    methods = {call.name for call in calls["expander"]}
    methods |= {str(dict(call.options).get("method", "")) for call in calls["expander"]}
    if methods.intersection(_AGENTS):
        return "agent"
    if calls["expander"]:
        return "reasoning" if any(map(_reasons, llms)) else "gar"
    return "fusion" if any(call.name in _FUSIONS for call in calls["retriever"]) else "base"


@cache
def _reasons(llm: str) -> bool:
    from r2med.llm.cards import find_model  # with the client of models, which few boards need

    try:
        return find_model(llm).reasoning
    except R2medError:
        # A published name, or a model whose card is gone.
        return False


@dataclass(frozen=True)
class Shown:
    """Choice of what the boards of an evaluation show beside the means."""

    intervals: bool = False
    cost: bool = False
    baseline: str = ""
    """The system that marks of significance are against."""


def boards_from_report(report: Report, measures: Sequence[str] = (), shown: Shown | None = None) -> list[Board]:
    """Return a board for each group and measure, the headline alone if no measure is named."""
    wanted = list(measures) or report.measures[:1]
    boards = [_board(report, group, measure, shown or Shown()) for group in report.groups for measure in wanted]
    return [board for board in boards if board.lines]


def _board(report: Report, group: str, measure: str, shown: Shown) -> Board:
    tasks = report.tasks(group)
    found = {
        system: [result for task in tasks if (result := report.result(system, task)) is not None]
        for system in report.systems
    }
    averages = {system: report.average(system, group, measure) for system in found}
    samples = {
        system: {result.task: _sample(result, measure) for result in results}
        for system, results in found.items()
        if averages[system] is not None
    }
    ranges = intervals(samples) if shown.intervals else {}
    marks = significance(samples, shown.baseline) if shown.baseline else {}
    rows = [
        BoardRow(
            name=system,
            sources=(OWN,),
            values={result.task: result.metrics[measure] for result in results if measure in result.metrics},
            system=report.specs.get(system, system),
            parts=parts_of(results[0].record.stages or (), oracle=any(result.oracle for result in results)),
            oracle=any(result.oracle for result in results),
            incomplete=sum(len(result.incomplete) for result in results),
            runs={result.task: result.id for result in results if result.id},
            cost=reduce(add, [result.cost for result in results]),
            recall_lost=mean_recall_lost([result.record for result in results]),
            average=averages[system],
            intervals=ranges.get(system, {}),
            marks=marks.get(system, {}),
        )
        for system, results in found.items()
        if results
    ]
    return Board(group, measure, tasks, rows, _notes(report, group, shown, rows), 0, shown.cost, shown.baseline)


def _sample(result: Entry, measure: str) -> Sample:
    return Sample(result.queries, result.scores[measure], result.record.data.fingerprint or "")


def _notes(report: Report, group: str, shown: Shown, rows: Sequence[BoardRow]) -> list[str]:
    notes = [f"{row.name}: {row.incomplete} queries incomplete" for row in rows if row.incomplete]
    if any(row.recall_lost is not None for row in rows):
        notes.append(RECALL_LOST)
    notes += failure_lines(report.failures, report.names)
    notes += [about_marks(shown.baseline)] if shown.baseline else []
    return [*notes, *([GROUP_NOTES[group]] if group in GROUP_NOTES else [])]


def show_report(report: Report, console: Console, measures: Sequence[str] = (), shown: Shown | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        boards = [board for board in boards_from_report(report, measures, shown) if board.group == group]
        for board in boards:
            show_table(board_table(board), console)
        if boards and group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def _footnotes(report: Report, console: Console) -> None:
    for system in report.systems:
        lost = [result for result in report.results if result.system == system and result.incomplete]
        reasons = [reason for result in lost for reason in result.incomplete.values()]
        if reasons:
            say(console, f"* {system}: {_incomplete(reasons)}")
    if any(result.record.recall_lost is not None for result in report.results):
        say(console, RECALL_LOST)
    for system in report.systems:
        times = [result.record.latency for result in report.results if result.system == system]
        if known := [each for each in times if each is not None]:
            say(console, f"{system}: {_latency(known)}", "dim")
        made = [result.record for result in report.results if result.system == system and not result.cached]
        if line := _forecast_error(made):
            say(console, f"{system}: {line}", "dim")
        if line := _failed_attempts([result.record for result in report.results if result.system == system]):
            say(console, f"{system}: {line}")
    warnings: dict[str, list[str]] = {}
    for result in report.results:
        for sentence in result.warnings:
            warnings.setdefault(f"{report.names[result.task]}: {sentence}", []).append(result.system)
    for sentence, systems in warnings.items():
        whose = "" if set(systems) == set(report.systems) else f" ({', '.join(dict.fromkeys(systems))})"
        say(console, f"warning: {sentence}{whose}", "yellow")
    for line in failure_lines(report.failures, report.names):
        say(console, line, "red")


def _incomplete(reasons: Sequence[str]) -> str:
    """Count the incomplete queries, with the reason of the first of them.

    >>> _incomplete(["not in exp.tsv"]), _incomplete(["empty answer", "timed out"])
    ('1 query incomplete (not in exp.tsv)', '2 queries incomplete (empty answer, ...)')
    """
    more = ", ..." if len(set(reasons)) > 1 else ""
    return f"{len(reasons)} {'query' if len(reasons) == 1 else 'queries'} incomplete ({reasons[0]}{more})"


def format_report(report: Report, name: str, measures: Sequence[str] = (), shown: Shown | None = None) -> str:
    """Format the results of an evaluation in one of `FORMATS`, a table for each group and measure.

    >>> import r2med
    >>> print(format_report(r2med.evaluate("bm25", "sample/Biology"), "csv").partition(",incomplete")[0])
    group,measure,rank,system,spec,sources,kind,sample/Biology,average
    """
    if name == "json":
        return orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode("utf-8") + "\n"
    return FORMATS[name](boards_from_report(report, measures, shown or Shown()))


def _latency(times: Sequence[Mapping[str, float]]) -> str:
    """Format an engine's latency as a sentence for one task or several.

    >>> _latency([{"p50": 0.0021, "p95": 0.05, "p99": 1.2}])
    'a query took 2.1 ms (p50), 50 ms (p95), 1,200 ms (p99)'
    """
    slowest = max(times, key=lambda each: each["p50"])
    said = ", ".join(f"{_milliseconds(slowest[name])} ({name})" for name in ("p50", "p95", "p99"))
    return f"a query took {said}" + (f" on the slowest of {len(times)} tasks" if len(times) > 1 else "")


def _failed_attempts(records: Sequence[RunRecord]) -> str:
    """Count failed requests to engines, those that succeeded on a retry too; empty if there were none.

    >>> _failed_attempts([RunRecord(notes={"mine": {"errors": 0, "timeouts": 2}})])
    'failed attempts: 0, time-outs: 2'
    """
    counts = [record.failed_attempts or {} for record in records]
    errors, late = (sum(each.get(name, 0) for each in counts) for name in ("errors", "timeouts"))
    return f"failed attempts: {errors:,}, time-outs: {late:,}" if errors + late else ""


def _forecast_error(records: Sequence[RunRecord]) -> str:
    """Compare the forecast cost of servers with the actual cost; empty if one of them is unknown.

    >>> from r2med.runs.record import StepRecord
    >>> forecast = Usage(requests=9, prompt_tokens=600, cost=0.4)
    >>> step = StepRecord("hyde(m)", account=Usage(requests=9, prompt_tokens=900, cost=0.5), foreseen=forecast)
    >>> _forecast_error([RunRecord(work=(step,))])
    'foreseen 9 requests, 600 tokens, $0.40; used 9 requests, 900 tokens (+50%), $0.50 (+25%)'
    """
    pairs = [record.foreseen_and_used for record in records]
    known = [pair for pair in pairs if pair is not None]
    if not known:
        return ""
    foreseen, used = (sum(column, Usage()) for column in zip(*known, strict=True))

    def said(spent: Usage, before: Usage | None = None) -> str:
        tokens_before, dollars_before = (None, None) if before is None else (before.tokens, before.cost)
        tokens = f", {spent.tokens:,} tokens{_off(spent.tokens, tokens_before)}" if spent.tokens else ""
        price = "?" if spent.cost is None else f"${dollars_text(spent.cost)}"
        return f"{counted(spent.requests, 'request')}{tokens}, {price}{_off(spent.cost, dollars_before)}"

    return f"foreseen {said(foreseen)}; used {said(used, foreseen)}"


def _off(value: float | None, before: float | None) -> str:
    """Format the relative difference of a figure from the forecast one."""
    return f" ({value / before - 1:+.0%})" if value is not None and before else ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
