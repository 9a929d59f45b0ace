"""An evaluation as text: on a terminal and in every format of a board, a table for each group and measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from io import StringIO
from typing import TYPE_CHECKING

import orjson

from r2med.board.model import RECALL_LOST
from r2med.board.report_rows import Shown, boards_from_report
from r2med.data.task_names import GROUP_NOTES
from r2med.errors import counted
from r2med.render.board_table import board_table
from r2med.render.board_terminal import show_table
from r2med.render.board_text import FORMATS
from r2med.render.consoles import say, written_to
from r2med.runs.cost import dollars_text
from r2med.runs.record import RunRecord
from r2med.runs.report import Report, failure_lines
from r2med.runs.step_record import Spending

if TYPE_CHECKING:
    from rich.console import Console


def show_report(report: Report, console: Console, measures: Sequence[str] = (), shown: Shown | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        boards = [board for board in boards_from_report(report, measures, shown) if board.group == group]
        for board in boards:
            show_table(board_table(board), console)
        if boards and group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def as_text(report: Report) -> str:
    """The tables of an evaluation as plain text."""
    buffer = StringIO()
    show_report(report, written_to(buffer), report.headline)
    return buffer.getvalue().rstrip()


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
    """How many queries are incomplete, and why the first of them is.

    >>> _incomplete(["not in exp.tsv"]), _incomplete(["empty answer", "timed out"])
    ('1 query incomplete (not in exp.tsv)', '2 queries incomplete (empty answer, ...)')
    """
    more = ", ..." if len(set(reasons)) > 1 else ""
    return f"{len(reasons)} {'query' if len(reasons) == 1 else 'queries'} incomplete ({reasons[0]}{more})"


def format_report(report: Report, name: str, measures: Sequence[str] = (), shown: Shown | None = None) -> str:
    """The results of an evaluation in one of `FORMATS`, a table for each group and measure.

    >>> import r2med
    >>> print(format_report(r2med.evaluate("bm25", "sample/Biology"), "csv").partition(",incomplete")[0])
    group,measure,rank,system,spec,sources,kind,sample/Biology,average
    """
    if name == "json":
        return orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode("utf-8") + "\n"
    return FORMATS[name](boards_from_report(report, measures, shown or Shown()))


def _latency(times: Sequence[Mapping[str, float]]) -> str:
    """How long an engine took, as a sentence for one task or several.

    >>> _latency([{"p50": 0.0021, "p95": 0.05, "p99": 1.2}])
    'a query took 2.1 ms (p50), 50 ms (p95), 1,200 ms (p99)'
    """
    slowest = max(times, key=lambda each: each["p50"])
    said = ", ".join(f"{_milliseconds(slowest[name])} ({name})" for name in ("p50", "p95", "p99"))
    return f"a query took {said}" + (f" on the slowest of {len(times)} tasks" if len(times) > 1 else "")


def _failed_attempts(records: Sequence[RunRecord]) -> str:
    """How many requests to engines came to nothing, those that were made good for too; empty where none did.

    >>> _failed_attempts([RunRecord(notes={"mine": {"errors": 0, "timeouts": 2}})])
    'failed attempts: 0, time-outs: 2'
    """
    counts = [record.failed_attempts or {} for record in records]
    errors, late = (sum(each.get(name, 0) for each in counts) for name in ("errors", "timeouts"))
    return f"failed attempts: {errors:,}, time-outs: {late:,}" if errors + late else ""


def _forecast_error(records: Sequence[RunRecord]) -> str:
    """What was foreseen of servers' bills and what they came to; empty where that cannot be told.

    >>> from r2med.runs.step_record import Account, StepRecord
    >>> step = StepRecord("hyde(m)", account=Account(9, prompt_tokens=900, cost=0.5), foreseen=Spending(9, 600, 0.4))
    >>> _forecast_error([RunRecord(work=(step,))])
    'foreseen 9 requests, 600 tokens, $0.40; used 9 requests, 900 tokens (+50%), $0.50 (+25%)'
    """
    pairs = [record.foreseen_and_used for record in records]
    known = [pair for pair in pairs if pair is not None]
    if not known:
        return ""
    foreseen, used = (reduce(Spending.plus, column) for column in zip(*known, strict=True))

    def said(spent: Spending, before: Spending | None = None) -> str:
        tokens_before, dollars_before = (None, None) if before is None else (before.tokens, before.dollars)
        tokens = f", {spent.tokens:,} tokens{_off(spent.tokens, tokens_before)}" if spent.tokens else ""
        price = "?" if spent.dollars is None else f"${dollars_text(spent.dollars)}"
        return f"{counted(spent.requests, 'request')}{tokens}, {price}{_off(spent.dollars, dollars_before)}"

    return f"foreseen {said(foreseen)}; used {said(used, foreseen)}"


def _off(value: float | None, before: float | None) -> str:
    """How far a figure is from the one foreseen."""
    return f" ({value / before - 1:+.0%})" if value is not None and before else ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
