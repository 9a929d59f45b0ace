"""The table of an evaluation: systems down, tasks across, the average last, the best in bold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from r2med.results import Report, failure_lines
from r2med.store.cost import COST_HEADINGS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GROUP_TITLES = {
    "sample": "bundled sample",
    "nano": "NanoR2MED",
    "full": "R2MED",
    "custom": "own data",
    "custom-nano": "own nano sets",
}
"""What the groups are called above a table."""
GROUP_NOTES = {
    "sample": "The sample is a small demonstration: its scores compare with nothing but each other.",
    "nano": "Nano tasks are easier than the full ones: never compare the two.",
    "custom-nano": "A nano set is easier than its source: never compare the two (r2med nano agree shows by how much).",
}
"""What a reader must know about a group's scores."""
SHORT_NAMES = {
    "Biology": "Bio",
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXp",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}
"""Task names as table headings, where eight columns must fit a terminal."""


@dataclass(frozen=True)
class Look:
    """What a table shows beside the means."""

    intervals: bool = False
    """95% intervals below them."""
    cost: bool = False
    """Requests, tokens, dollars and seconds a query after them."""


def show(report: Report, console: Console, measures: Sequence[str] = (), look: Look | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        for measure in measures or report.measures[:1]:
            console.print(f"{measure} x 100, {GROUP_TITLES[group]}", style="bold", highlight=False)
            console.print(_table(report, group, measure, look or Look()))
        if group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def as_text(report: Report) -> str:
    """The tables as plain text."""
    from rich.console import Console

    buffer = StringIO()
    show(report, Console(file=buffer, width=140, color_system=None))
    return buffer.getvalue().rstrip()


def task_heading(task: str) -> str:
    """A task's name as the heading of a column.

    >>> task_heading("nano/MedQA-Diag")
    'MedQA'
    """
    base = task.rpartition("/")[2] or task
    return SHORT_NAMES.get(base, base)


def task_headings(tasks: Sequence[str]) -> dict[str, str]:
    """The headings of columns side by side; tasks that would share one have as much of their path as tells them apart.

    >>> task_headings(["nfcorpus/dev", "scifact/dev", "sample/Biology"])
    {'nfcorpus/dev': 'nfcorpus/dev', 'scifact/dev': 'scifact/dev', 'sample/Biology': 'Bio'}
    """
    headings = {task: task_heading(task) for task in tasks}
    for parts in range(2, max((task.count("/") for task in headings), default=0) + 2):
        shown = list(headings.values())
        headings |= {
            task: "/".join(task.rsplit("/", parts)[-parts:]) for task, name in headings.items() if shown.count(name) > 1
        }
    return headings


def _table(report: Report, group: str, measure: str, look: Look) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    tasks = report.tasks(group)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("system", overflow="fold", no_wrap=False)
    for heading in task_headings(tasks).values():
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("avg", justify="right", no_wrap=True)
    for heading in COST_HEADINGS if look.cost else ():
        table.add_column(heading, justify="right", no_wrap=True)
    rows = {system: _values(report, system, group, measure) for system in report.systems}
    ranked = {system for system in rows if not _is_oracle(report, system)}
    best = [max((rows[system][place] or 0.0 for system in ranked), default=0.0) for place in range(len(tasks) + 1)]
    ranges = report.intervals(group, measure) if look.intervals else {}
    for system, values in rows.items():
        cells = [_cell(value, system in ranked and value == top) for value, top in zip(values, best, strict=True)]
        cells += report.cost(system, group).cells() if look.cost else []
        table.add_row(escape(f"{system} {_marks(report, system, group)}".rstrip()), *cells)
        if system in ranges:
            found = [ranges[system][task] for task in (*tasks, "")]
            table.add_row("", *(f"[dim]{100 * each.low:.1f}-{100 * each.high:.1f}[/dim]" for each in found))
    return table


def _values(report: Report, system: str, group: str, measure: str) -> list[float | None]:
    found = [report.result(system, task) for task in report.tasks(group)]
    return [*(r.metrics.get(measure) if r else None for r in found), report.average(system, group, measure)]


def _cell(value: float | None, best: bool) -> str:
    if value is None:
        return "-"
    return f"[bold]{100 * value:.2f}[/bold]" if best else f"{100 * value:.2f}"


def _is_oracle(report: Report, system: str) -> bool:
    return any(result.oracle for result in report.results if result.system == system)


def _marks(report: Report, system: str, group: str) -> str:
    own = [result for result in report.results if result.system == system and result.group == group]
    marks = "(oracle)" if any(result.oracle for result in own) else ""
    return marks + ("*" if any(result.incomplete for result in own) else "")


def _footnotes(report: Report, console: Console) -> None:
    for system in report.systems:
        lost = [result for result in report.results if result.system == system and result.incomplete]
        if lost:
            count = sum(len(result.incomplete) for result in lost)
            reason = next(iter(lost[0].incomplete.values()))
            console.print(f"* {system}: {count} queries incomplete ({reason}, ...)", markup=False, highlight=False)
    warnings: dict[str, list[str]] = {}
    for result in report.results:
        for sentence in result.warnings:
            warnings.setdefault(f"{result.task}: {sentence}", []).append(result.system)
    for sentence, systems in warnings.items():
        whose = "" if set(systems) == set(report.systems) else f" ({', '.join(dict.fromkeys(systems))})"
        console.print(f"warning: {sentence}{whose}", markup=False, highlight=False, style="yellow")
    for line in failure_lines(report.failures):
        console.print(line, markup=False, highlight=False, style="red")
