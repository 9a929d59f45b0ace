"""Long lists on pages: cut into pages, and sorted."""

from __future__ import annotations

from r2med.leaderboard.board import ordered
from r2med.render.scores.model import BoardRow
from r2med.web.addresses import Pages


def line(name: str, values: dict[str, float]) -> BoardRow:
    return BoardRow(name, ("own",), values)


def test_pages_hold_everything_once():
    for total in (0, 1, 50, 51, 149):
        parts = [list(range(total))[Pages.of(total, number).cut()] for number in range(1, Pages.of(total, 1).count + 1)]
        assert [place for part in parts for place in part] == list(range(total))


def test_lines_without_a_figure_come_last_both_ways():
    lines = [line("a", {"A": 0.1}), line("b", {"A": 0.3, "B": 0.1}), line("c", {"A": 0.2, "B": 0.2})]
    assert [each.name for each in ordered(lines, "B")] == ["c", "b", "a"]
    assert [each.name for each in ordered(lines, "B", descending=False)] == ["b", "c", "a"]
