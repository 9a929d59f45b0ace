"""A board as a LaTeX table (booktabs): best bold, second underlined, significance marked, never wider than the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import AVERAGE
from r2med.render.scores.model import BEST, NONE, SECOND, Board, BoardRow, BoardTable, TableCell, board_table
from r2med.render.scores.significance import BETTER, WORSE, about_marks
from r2med.render.sections import SIGNS, breakable, escaped, one_line, unprintable

_MARKS = {BETTER: r"$^{\dagger}$", WORSE: r"$^{\ddagger}$"}
_NONE = "--"
_LETTER, _GAP = 4.5, 6.0  # what a letter and the space between columns take in points, in the size of the tables
_UPRIGHT, _TURNED = 345.0, 550.0  # how wide a page of an article is for text, and how high
_SMALLEST = 0.77  # a table that would have to be made smaller than this is turned
_ROWS, _TURNED_ROWS = 42, 24  # how many rows fit a page beside the caption
_NAME, _NARROWEST = 32, 66.0  # longer names are broken, and how narrow their column can be made
_SIZES = {"footnotesize": 1.0, "scriptsize": 0.94, "tiny": 0.8}
"""How wide letters are: a table that goes on over pages cannot be made smaller as a whole."""


@dataclass(frozen=True)
class _Shape:
    """Layout of a board on paper."""

    name: float  # the width of the names in points; 0 where none is broken
    turned: bool
    long: bool  # whether it goes on over pages
    size: str = "footnotesize"
    gap: float = _GAP


def latex(board: Board) -> str:
    r"""Write the table, with the packages that it needs in a comment.

    It is set in `\footnotesize` and made smaller where the text is narrower than it. One that would become too small to
    read is turned, and one that is longer than a page goes on over several.
    """
    table = board_table(board, average="Avg.")
    shape = _shape(table)
    rows = [text for row in table.rows for text in _rows(table, row, shape)]
    label = re.sub(r"[^a-z0-9]", "", board.measure.lower())
    caption = [rf"\caption{{{_caption(table, shape)}}}", rf"\label{{tab:r2med-{board.group}-{label}}}"]
    cost = [name.capitalize() if name.isalpha() else name for name in table.cost_headings]
    heads = [r"\#"] * table.has_ranks + ["System"] + ["Source"] * table.has_sources
    heads += map(escaped, (*table.headings.values(), *cost))
    name = f">{{\\raggedright\\hyphenpenalty=10000\\arraybackslash}}p{{{shape.name:.0f}pt}}" if shape.name else "l"
    columns = "r" * table.has_ranks + name + "l" * table.has_sources + "r" * (len(board.columns) + len(cost))
    body = (_long if shape.long else _float)(shape, columns, caption, [r"\toprule", _joined(heads), r"\midrule"], rows)
    packages = "longtable" + ",pdflscape" * shape.turned if shape.long else "rotating" if shape.turned else "graphicx"
    names = " ".join(row.name for row in table.rows)
    comments = [f"{escaped(sign)} stands for {sign}, which the usual fonts lack" for sign in unprintable(names)]
    comments += map(one_line, board.notes)
    return (
        "\n".join([rf"% \usepackage{{booktabs,array,{packages}}}", *body, *(f"% {comment}" for comment in comments)])
        + "\n"
    )


def _float(shape: _Shape, columns: str, caption: list[str], head: list[str], rows: list[str]) -> list[str]:
    name = "sidewaystable" if shape.turned else "table"
    return [
        rf"\begin{{{name}}}" + "[t]" * (not shape.turned),
        r"\centering",
        *caption,
        r"\smallskip",
        rf"\{shape.size}",
        rf"\setlength{{\tabcolsep}}{{{shape.gap / 2:.2g}pt}}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{{columns}}}",
        *head,
        *rows,
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        rf"\end{{{name}}}",
    ]


def _long(shape: _Shape, columns: str, caption: list[str], head: list[str], rows: list[str]) -> list[str]:
    around = "landscape" if shape.turned else "center"
    return [
        rf"\begin{{{around}}}",
        rf"\{shape.size}",
        rf"\setlength{{\tabcolsep}}{{{shape.gap / 2:.2g}pt}}",
        r"\setlength{\LTcapwidth}{\linewidth}",
        rf"\begin{{longtable}}{{{columns}}}",
        *caption[:-1],
        caption[-1] + r" \\",
        *head,
        r"\endfirsthead",
        *head,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *rows,
        r"\end{longtable}",
        rf"\end{{{around}}}",
    ]


def _shape(table: BoardTable) -> _Shape:
    """Choose a shape by the approximate width of the columns: TeX alone knows it exactly."""
    longest = _LETTER * max((len(row.label) for row in table.rows), default=0)
    name = min(longest, _NAME * _LETTER)
    height = len(table.rows) + sum(bool(row.intervals) for row in table.rows)
    long = height > _ROWS
    turned = (_rest(table, long) + name) * (1.0 if long else _SMALLEST) > _UPRIGHT
    if not (long or (turned and height > _TURNED_ROWS)):
        return _Shape(name if name < longest else 0.0, turned, long=False)
    rest = _rest(table, long=True)
    turned = rest + name > _UPRIGHT
    rooms = {size: (_TURNED if turned else _UPRIGHT) / scale - rest for size, scale in _SIZES.items()}
    size = next((size for size, room in rooms.items() if room >= min(name, _NARROWEST)), "tiny")
    name, scale = min(name, max(rooms[size], _NARROWEST)), _SIZES[size]
    return _Shape(name * scale if name < longest else 0.0, turned, True, size, _GAP * scale)


def _rest(table: BoardTable, long: bool) -> float:
    """Return the width of everything but the names."""
    columns = [["123"]] * table.has_ranks
    columns += [[", ".join(row.sources) for row in table.rows]] * table.has_sources
    columns += [[heading, *(row.cost_cells[heading] for row in table.rows)] for heading in table.cost_headings]
    cells = [table.cells(row) for row in table.rows]
    for name in table.board.columns:
        ranges = [_range(row[name], name, long) for row in cells]
        columns.append([table.headings[name], *(row[name].text for row in cells), *ranges])
    return _GAP + sum(_LETTER * max(map(len, texts)) + _GAP for texts in columns)


def _range(cell: TableCell, column: str, long: bool) -> str:
    """Return an interval; a table over several pages has those of the averages alone, or it would be too wide."""
    return "" if long and column != AVERAGE else cell.interval


def _caption(table: BoardTable, shape: _Shape) -> str:
    """Write what the table shows, and what each sign in it means."""
    board = table.board
    parts = [rf"{escaped(board.measure)} $\times$ 100, {escaped(GROUP_TITLES[board.group])}"]
    parts.append("Best in bold, second underlined")
    parts += ["Own runs in italics"] * any(table.is_own_among_others(row) for row in table.rows)
    below = "averages" if shape.long else "figures"
    intervals = any(row.intervals for row in table.rows)
    parts += [rf"Below the {below} 95\% intervals (bootstrap over queries)"] * intervals
    parts += map(escaped, table.legend)
    return ". ".join([*parts, *([breakable(about_marks(board.baseline))] if board.baseline else [])]) + "."


def _rows(table: BoardTable, row: BoardRow, shape: _Shape) -> list[str]:
    """Write the row of a system, and its intervals below."""
    cells = [str(row.rank or _NONE)] * table.has_ranks
    name = breakable(row.label) if shape.name else escaped(row.label)
    cells.append(rf"\textit{{{name}}}" if table.is_own_among_others(row) else name)
    cells += [escaped(", ".join(row.sources))] * table.has_sources
    before = len(cells)
    cells += map(_number, table.cells(row).values())
    cost = [row.cost_cells[heading] for heading in table.cost_headings]
    cells += [_NONE if cell == NONE else escaped(cell) for cell in cost]
    if not row.intervals:
        return [_joined(cells)]
    ranges = [_range(cell, column, shape.long).replace("-", "--") for column, cell in table.cells(row).items()]
    smaller = r"\scriptsize" if shape.size == "footnotesize" else r"\tiny"
    below = [*[""] * before, *(rf"{{{smaller} {text}}}" if text else "" for text in ranges), *[""] * len(cost)]
    return [_joined(cells) + "*", _joined(below) + "[2pt]"]


def _joined(cells: Sequence[str]) -> str:
    """Join cells to a row; one that began with a star or a bracket would be taken for an option of the row above."""
    return "{}" * cells[0].startswith(("*", "[")) + " & ".join(cells) + r" \\"


def _number(cell: TableCell) -> str:
    """Write a figure; what stands behind its digits takes no room, so that these stay below each other."""
    if cell.text == NONE:
        return _NONE
    if cell.other_data:
        return cell.digits + r"\rlap{$^\circ$}"
    if cell.brackets:
        return f"({cell.digits}" + r"\rlap{)}"
    figure = {BEST: rf"\textbf{{{cell.digits}}}", SECOND: rf"\underline{{{cell.digits}}}"}.get(cell.place, cell.digits)
    marks = "".join(_MARKS.get(mark, "") for mark in cell.mark)
    return rf"{figure}\rlap{{{marks}}}" if marks else figure


_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon phi"
    " chi psi omega"
)
SIGNS |= {chr(ord("α") + place): rf"$\{name}$" for place, name in enumerate(_GREEK.split()) if name != "o"}
