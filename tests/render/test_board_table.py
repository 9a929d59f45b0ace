"""One table in every format: the same figures, the same leaders, the same signs, whoever writes it down."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest

from r2med.data.tasks import AVERAGE
from r2med.leaderboard.board import ranked
from r2med.measure.figure import Figure
from r2med.render.scores.latex import latex
from r2med.render.scores.model import BEST, SECOND, Board, BoardRow, board_table
from r2med.render.scores.text import FORMATS, markdown, show_board
from r2med.render.table import written_to

TASKS = ("Biology", "MedQA-Diag")


@pytest.fixture
def board() -> Board:
    """A line of every kind."""
    rows = [
        BoardRow("mine", ("own",), {"Biology": 0.512, "MedQA-Diag": 0.2534}),
        BoardRow("base/bge", ("paper", "page"), {"Biology": 0.301, "MedQA-Diag": 0.5032}),
        BoardRow("shown answers", ("own",), {"Biology": 0.9012, "MedQA-Diag": 0.9134}, oracle=True),
        BoardRow("moved", ("own",), {"Biology": 0.6123, "MedQA-Diag": 0.2611}, other_data=("Biology",)),
        BoardRow("half", ("own",), {"Biology": 0.1177, "MedQA-Diag": 0.1188}, queries=9, incomplete=4),
        BoardRow("part", ("mteb",), {"Biology": 0.4455}),
        BoardRow("average only", ("page",), {}, stated=0.5119),
    ]
    lines = [replace(line, disputed=line.name == "base/bge") for line in ranked(rows, TASKS)]
    marked = {"marks": {"Biology": "†"}, "intervals": {AVERAGE: Figure(0.38, 0.3111, 0.4522)}}
    lines = [replace(line, **marked) if line.name == "mine" else line for line in lines]
    return Board("full", "nDCG@10", TASKS, lines, ("a note",), left_out=2, baseline="half")


def page(board: Board) -> str:
    from r2med.leaderboard.page_table import Hrefs, sorted_table
    from r2med.render.html import environment

    macros = environment().get_template("render/_scores.html").module
    return str(macros.board_table(sorted_table(board, board.lines), None, Hrefs(lambda name: "#")))


def test_every_figure_and_sign_is_in_every_format(board: Board) -> None:
    stream = StringIO()
    show_board(board, written_to(stream))
    written = {"terminal": stream.getvalue(), "markdown": markdown(board), "latex": latex(board), "page": page(board)}
    table = board_table(board)
    cells = [cell for row in table.rows for cell in table.cells(row).values() if cell.value is not None]
    assert len(cells) == 16
    for name, text in written.items():
        lacking = [cell.digits for cell in cells if cell.digits not in text]
        assert not lacking, name
        assert "51.19" in text, "an average without its tasks"
        assert text.count("oracle") >= 1, name
    assert {name: text.count("61.23°") for name, text in written.items() if name != "latex"} == {
        "terminal": 1, "markdown": 1, "page": 1,
    }  # fmt: skip
    assert r"61.23\rlap{$^\circ$}" in written["latex"]
    for name, mark in {"terminal": "51.20†", "markdown": "**51.20**†", "page": ">51.20†<"}.items():
        assert mark in written[name]
    assert r"\textbf{51.20}\rlap{$^{\dagger}$}" in written["latex"]
    for name in ("terminal", "markdown"):
        assert "a note" in written[name]
        assert "2 more systems are not shown" in written[name]
    assert "7 of 9 systems" in written["latex"]


def test_the_same_figures_lead_in_every_format(board: Board) -> None:
    table = board_table(board)
    for place, written in {
        BEST: (r"\*\*([\d.]+)\*\*", r"\\textbf\{([\d.]+)\}", r'class="n[^"]* best"[^>]*>([\d.]+)'),
        SECOND: (r"<u>([\d.]+)</u>", r"\\underline\{([\d.]+)\}", r'class="n[^"]* second"[^>]*>([\d.]+)'),
    }.items():
        leads = sorted(cell.digits for row in table.rows for cell in table.cells(row).values() if cell.place == place)
        assert len(leads) == 3
        for text, pattern in zip((markdown(board), latex(board), page(board)), written, strict=True):
            assert sorted(re.findall(pattern, text)) == leads


def test_an_oracle_and_figures_of_other_data_never_lead(board: Board) -> None:
    table = board_table(board)
    rows = {row.name: row for row in table.rows}
    assert not any(cell.place for cell in table.cells(rows["shown answers"]).values())
    assert not any(table.cells(rows["moved"])[column].place for column in ("Biology", AVERAGE))
    assert (rows["shown answers"].rank, rows["moved"].rank) == (None, None)


def test_the_legend_explains_what_is_there_and_no_more(board: Board) -> None:
    whole = " ".join(board_table(board).legend)
    for sign in ("oracle", "≠:", "*:", "°:", "brackets", "dash", "7 of 9"):
        assert sign in whole
    plain = replace(board, lines=[line for line in board.lines if line.name == "mine"], left_out=0)
    assert board_table(plain).legend == []


def test_formats_with_all_digits_have_them(board: Board) -> None:
    for name in ("csv", "json"):
        assert "0.5032" in FORMATS[name]([board])
