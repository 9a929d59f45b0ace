"""A board as a LaTeX table (booktabs): best bold, second underlined, significance marked."""

from __future__ import annotations

from collections.abc import Mapping

from r2med.board.cells import (
    Leaders,
    cost_of,
    figure,
    has_ranks,
    has_sources,
    interval,
    label,
    leaders,
)
from r2med.board.chances import BETTER, WORSE
from r2med.board.model import Board, Line
from r2med.board.table import COST_HEADINGS, GROUP_TITLES, task_heading

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    '"': r"\textquotedbl{}", "|": r"\textbar{}", "≠": r"$\neq$", BETTER: r"$^{\dagger}$", WORSE: r"$^{\ddagger}$",
}  # fmt: skip


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> escaped("hyde(gpt-4o) >> my_model & 5%")
    'hyde(gpt-4o) \\textgreater{}\\textgreater{} my\\_model \\& 5\\%'
    """
    return "".join(_SIGNS.get(sign, sign) for sign in text)


def latex(board: Board) -> str:
    """The table; it needs `\\usepackage{booktabs}` and, for the quotes of some specs, `\\usepackage[T1]{fontenc}`."""
    left = "r" * has_ranks(board) + "l" + "l" * has_sources(board)
    cost = COST_HEADINGS if board.cost else ()
    heads = ["\\#"] * has_ranks(board) + ["System"] + ["Source"] * has_sources(board)
    heads += [*(escaped(task_heading(task)) for task in board.tasks), "Avg.", *(escaped(name) for name in cost)]
    best = leaders(board)
    caption = escaped(f"{board.measure} x 100, {GROUP_TITLES[board.group]}")
    remarks = "".join(f" {escaped(note)}." for note in board.notes if BETTER in note)
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{caption}. Best in bold, second underlined.{remarks}}}",
        f"\\begin{{tabular}}{{{left}{'r' * (len(board.columns) + len(cost))}}}",
        "\\toprule",
        _joined(heads),
        "\\midrule",
        *(_joined(_cells(board, line, best)) for line in board.lines),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
        *(f"% {note}" for note in board.notes),
    ]
    return "\n".join(lines) + "\n"


def _joined(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cells(board: Board, line: Line, best: Mapping[str, Leaders]) -> list[str]:
    cells = ["--" if line.rank is None else str(line.rank)] * has_ranks(board)
    name = escaped(label(line))
    cells.append(f"\\textit{{{name}}}" if line.row.own and has_sources(board) else name)
    cells += [escaped(", ".join(line.row.sources))] * has_sources(board)
    cells += [_number(line, column, best[column]) for column in board.columns]
    return cells + ([escaped(cell) for cell in cost_of(line)] if board.cost else [])


def _number(line: Line, column: str, best: Leaders) -> str:
    text = figure(line, column)
    shown = "--" if text == "-" else text
    if not line.row.oracle and text == best.best:
        shown = f"\\textbf{{{text}}}"
    elif not line.row.oracle and text == best.second:
        shown = f"\\underline{{{text}}}"
    shown += escaped(line.marks.get(column, ""))
    found = interval(line, column)
    return f"{shown} {{\\scriptsize {found.replace('-', '--')}}}" if found else shown
