"""The one table: every name and every figure whole at any width, and no wider than it must be."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from r2med.render.table import Column, Number, Table, key, numbers, percent, say, written_to

names = st.text(st.characters(whitelist_categories=["Lu", "Ll", "Nd", "Lo"], whitelist_characters="-/()_ "), min_size=1)
names = names.map(str.strip).filter(bool)


def printed(table: Table, width: int | None) -> list[str]:
    stream = io.StringIO()
    table.show(written_to(stream, width))
    return stream.getvalue().splitlines()


@given(st.lists(st.tuples(names, st.integers(0, 99999)), min_size=1, max_size=8), st.integers(24, 90))
def test_every_cell_is_there_and_stands_in_line(cells, width):
    table = Table(key("system"), *numbers("avg"))
    for name, value in cells:
        table.add(name, str(value))
    blank, head, rule, *body = printed(table, width)
    assert blank == ""
    assert head.split() == ["system", "avg"]
    body = [line for line in body if line]
    assert max(map(cell_len, [rule, *body])) <= width
    figures = [line for line in body if cell_len(line) == cell_len(rule)]
    assert [line.split()[-1] for line in figures] == [str(value) for _, value in cells]
    last = max(len("avg"), *(len(str(value)) for _, value in cells))
    squeezed = "".join((line[:-last] if line in figures else line).replace(" ", "") for line in body)
    for name, _ in cells:
        assert name.replace(" ", "") in squeezed


def wide_table() -> Table:
    table = Table(key("system"), *numbers(*(f"a long heading {place}" for place in range(12))))
    table.add("rrf(bm25, bm25-classic)", *(percent(0.111111 * place / 2) for place in range(12)))
    table.rule()
    table.add("hyde(gpt-4o) >> bm25(k1=1.2, b=0.75)", *(percent(0.222222 * place / 4) for place in range(12)))
    return table


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_what_is_too_wide_becomes_several_parts_each_with_the_names(width):
    lines = printed(wide_table(), width)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    for value in (0.111111 / 2, 0.222222 * 11 / 4):
        figure = percent(value)
        assert re.search(rf"(?<![\d.])({re.escape(figure.wide)}|{re.escape(figure.narrow)})(?![\d.])", text)
    parts = text.count("system")
    squeezed = re.sub(r"[\s\d.─]", "", text)
    assert parts >= 1
    assert squeezed.count("rrf(") == squeezed.count("hyde(gpt-") == parts


def test_in_a_pipe_a_row_is_a_line():
    head, rule, first, second_rule, second = [line for line in printed(wide_table(), None) if line]
    assert first.startswith(" rrf(bm25, bm25-classic) ")
    assert second.startswith(" hyde(gpt-4o) >> bm25(k1=1.2, b=0.75) ")
    assert len(first.split()) == 2 + 12
    assert len(head) == len(first) == len(rule) == len(second_rule)


def test_figures_lose_a_digit_before_a_table_is_split():
    table = Table(key("task"), *numbers("a", "b", "c"))
    table.add("x" * 10, *(percent(0.123456) for _ in range(3)))
    assert "12.35" in "\n".join(printed(table, 33))
    narrow = printed(table, 30)
    assert "12.3 " in "\n".join(narrow)
    assert "12.35" not in "\n".join(narrow)
    assert sum("task" in line for line in narrow) == 1


def test_names_are_text_and_never_markup_or_emoji():
    table = Table(key("[bold]x[/bold]"))
    table.add("odd :smile: [red]name[/red]")
    lines = printed(table, 80)
    assert " odd :smile: [red]name[/red]" in lines
    stream = io.StringIO()
    say(written_to(stream, 20), "failed: mine:Boom: no [bold]vector[/bold] for a text that is longer than the screen")
    assert stream.getvalue().splitlines() == [
        "failed: mine:Boom: no [bold]vector[/bold] for a text that is longer than the screen"
    ]


def test_styles_of_rows_and_figures():
    stream = io.StringIO()
    table = Table(Column("x", right=True))
    table.add(Number("1.00", "1.0", "bold"))
    table.add("2.00", style="cyan")
    table.show(written_to(stream, 80, styled=True))
    assert "\x1b[1m1.00" in stream.getvalue()
    assert "\x1b[36m" in stream.getvalue()


def test_no_rows_are_a_heading_alone():
    head, rule = [line for line in printed(Table(Column("#"), Column("system")), 40) if line]
    assert head.split() == ["#", "system"]
    assert set(rule.strip()) == {"─"}
