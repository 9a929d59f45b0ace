"""A board as text: Markdown, LaTeX, CSV and JSON. Of a results.Report the same, a table for each group and measure."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from io import StringIO

import orjson

from r2med.board.model import AVERAGE, Board, Line
from r2med.board.report_rows import Shown, boards_from_report
from r2med.render.board_table import (
    GROUP_TITLES,
    Leaders,
    cost_of,
    figure,
    has_ranks,
    has_sources,
    interval,
    label,
    leaders,
    task_headings,
)
from r2med.render.latex import latex
from r2med.runs.cost import COST_HEADINGS
from r2med.runs.report import Report

_COST_FACTS = ("requests", "prompt_tokens", "completion_tokens", "reasoning_tokens", "dollars", "seconds_per_query")


def title(board: Board) -> str:
    """What a table is about.

    >>> title(Board("nano", "nDCG@10", (), ()))
    'nDCG@10 x 100, NanoR2MED'
    """
    return f"{board.measure} x 100, {GROUP_TITLES[board.group]}"


def markdown(board: Board) -> str:
    """A table for a README or an issue: best in bold, second underlined, notes below."""
    heads = ["rank"] * has_ranks(board) + ["system"] + ["source"] * has_sources(board)
    averages = ["avg"] * (AVERAGE in board.columns)
    numbers = [*task_headings(board.tasks).values(), *averages, *(COST_HEADINGS if board.cost else ())]
    best = leaders(board)
    lines = [
        f"**{title(board)}**",
        "",
        _pipes([*heads, *numbers]),
        _pipes([*("---" for _ in heads), *("---:" for _ in numbers)]),
        *(_pipes(_markdown_cells(board, line, best)) for line in board.lines),
        "",
        *(f"- {_plain(note)}" for note in notes(board)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that means nothing but itself in a Markdown table."""
    for sign in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _markdown_cells(board: Board, line: Line, best: Mapping[str, Leaders]) -> list[str]:
    cells = ["-" if line.rank is None else str(line.rank)] * has_ranks(board)
    name = _plain(label(line))
    cells.append(f"**{name}**" if line.row.own and has_sources(board) else name)
    cells += [", ".join(line.row.sources)] * has_sources(board)
    for column in board.columns:
        text, known = figure(line, column), best[column]
        if not line.row.oracle and text == known.best:
            text = f"**{text}**"
        elif not line.row.oracle and text == known.second:
            text = f"<u>{text}</u>"
        text += line.marks.get(column, "")
        cells.append(f"{text} <sub>{interval(line, column)}</sub>" if interval(line, column) else text)
    return cells + (cost_of(line) if board.cost else [])


def notes(board: Board) -> list[str]:
    """The notes, and how many lines were left out."""
    cut = [f"{board.left_out} more systems are not shown"] if board.left_out else []
    return [*board.notes, *cut]


def as_csv(boards: Sequence[Board]) -> str:
    """A line a system, figures as shares of 1 with all their digits, one header for all boards."""
    tasks = list(dict.fromkeys(task for board in boards for task in board.tasks))
    ranges = any(line.intervals for board in boards for line in board.lines)
    cost = any(board.cost for board in boards)
    header = ["group", "measure", "rank", "system", "spec", "sources", "kind", *tasks, "average", "incomplete"]
    header += ["other_data"]
    header += ["low", "high"] * ranges + list(_COST_FACTS) * cost
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for board in boards:
        for line in board.lines:
            writer.writerow(_csv_cells(board, line, tasks, ranges=ranges, cost=cost))
    return stream.getvalue()


def _csv_cells(board: Board, line: Line, tasks: Sequence[str], *, ranges: bool, cost: bool) -> list[object]:
    row = line.row
    cells: list[object] = [board.group, board.measure, line.rank, row.name, row.system, "+".join(row.sources)]
    cells += [row.parts.kind, *(row.values.get(task) for task in tasks), line.average, row.incomplete]
    cells.append("+".join(row.other_data))
    found = line.intervals.get("")
    cells += ([found.low, found.high] if found else [None, None]) * ranges
    facts = row.cost.as_dict() if row.cost is not None else {}
    return cells + [facts.get(name) for name in _COST_FACTS] * cost


def as_json(boards: Sequence[Board]) -> str:
    """One object for one board, a list for several."""
    content = [board.as_dict() for board in boards]
    text = orjson.dumps(content[0] if len(content) == 1 else content, option=orjson.OPT_INDENT_2)
    return text.decode("utf-8") + "\n"


def _each(function: Callable[[Board], str]) -> Callable[[Sequence[Board]], str]:
    return lambda boards: "\n".join(map(function, boards))


FORMATS: Mapping[str, Callable[[Sequence[Board]], str]] = {
    "markdown": _each(markdown),
    "latex": _each(latex),
    "csv": as_csv,
    "json": as_json,
}
"""Every format by its name; `terminal` is in `board.terminal`."""


def format_report(report: Report, name: str, measures: Sequence[str] = (), shown: Shown | None = None) -> str:
    """The results of an evaluation in one of `FORMATS`, a table for each group and measure.

    >>> import r2med
    >>> print(format_report(r2med.evaluate("bm25", "sample/Biology"), "csv").splitlines()[0])
    group,measure,rank,system,spec,sources,kind,sample/Biology,average,incomplete,other_data
    """
    if name == "json":
        return orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2).decode("utf-8") + "\n"
    return FORMATS[name](boards_from_report(report, measures, shown or Shown()))
