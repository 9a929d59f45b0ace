"""The table of a board on a terminal: every cell whole, columns in line, and no wider than it must be."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from r2med.board.grid import Column, Row, grid

names = st.text(st.characters(whitelist_categories=["Lu", "Ll", "Nd", "Lo"], whitelist_characters="-/()_ "), min_size=1)
names = names.map(str.strip).filter(bool)


def printed(columns: list[Column], rows: list[Row], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(grid(columns, rows, console), soft_wrap=True)
    return console.file.getvalue().splitlines()


@given(st.lists(st.tuples(names, st.integers(0, 99999)), min_size=1, max_size=8), st.integers(24, 90))
def test_every_cell_is_there_and_lines_are_equally_wide(cells, width):
    columns = [Column("system", folds=True), Column("avg", right=True)]
    lines = printed(columns, [Row([escape(name), str(value)]) for name, value in cells], width)
    blank, head, rule, *body = lines
    assert blank == ""
    assert head.split() == ["system", "avg"]
    body = [line for line in body if line]
    assert {cell_len(line) for line in body} == {cell_len(rule)}
    assert cell_len(rule) <= width
    assert [line.split()[-1] for line in body if line[-2] != " "] == [str(value) for _, value in cells]
    last = 2 + max(len("avg"), *(len(str(value)) for _, value in cells))
    squeezed = "".join(line[:-last].replace(" ", "") for line in body)
    for name, _ in cells:
        assert name.replace(" ", "") in squeezed


def test_markup_is_style_and_not_text():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    rows = [Row(["[bold]1.00[/bold]"]), Row(["2.00"], "cyan")]
    console.print(grid([Column("x", right=True)], rows, console), soft_wrap=True)
    text = console.file.getvalue()
    assert "\x1b[1m1.00" in text
    assert "\x1b[36m" in text
    assert "bold" not in text


def test_no_rows_are_a_heading_alone():
    head, rule = [line for line in printed([Column("#"), Column("system")], [], 40) if line]
    assert head.split() == ["#", "system"]
    assert set(rule.strip()) == {"─"}
