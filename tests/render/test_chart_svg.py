"""Charts: what is drawn is what was measured, whatever the names are."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from r2med.diagnosis.causes import Cause
from r2med.diagnosis.charts import cause_chart
from r2med.leaderboard.page_table import line_point
from r2med.render.charts.bars import FlowChart, FlowRow
from r2med.render.charts.chart import draw
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import NARROW, WIDE, ChartPoint, shortened
from r2med.render.charts.scale import CORNERS, Scale, number_corners
from r2med.render.charts.scatter import Level, TrendChart, TrendPoint
from r2med.render.palette import HATCHES, fills
from r2med.render.scores.model import BoardRow
from r2med.tuning.charts import frontier_chart
from r2med.tuning.frontier import Bill, Priced, frontier

names = st.text(max_size=60)
shares = st.floats(0, 1)


def line(name: str, values: dict[str, float], **facts) -> BoardRow:
    whole = len(values) == 2
    return BoardRow(name, ("own",), values, average=sum(values.values()) / 2 if whole else None, **facts)


def dots(*points: ChartPoint) -> str:
    return draw(DotChart("x", "y", points))


@given(st.lists(st.tuples(names, st.floats(0, 100), st.floats(0, 10)), min_size=1, max_size=6))
def test_any_name_gives_a_drawing_that_parses(rows):
    marks = [ChartPoint(name, value, value - off, value + off) for name, value, off in rows]
    drawing = ElementTree.fromstring(dots(*marks))
    assert len([each for each in drawing.iter() if each.get("class") == "row"]) == len(rows)
    circles = [float(each.get("cx")) for each in drawing.iter() if each.tag == "circle"]
    order = sorted(range(len(rows)), key=lambda place: rows[place][1])
    assert [circles[place] for place in order] == sorted(circles)


def test_a_missing_task_is_no_mark():
    lacking = line("x", {"A": 0.5})
    assert line_point(lacking, "B") is None


@given(st.lists(st.tuples(shares, st.one_of(st.none(), st.floats(0, 1e3))), max_size=8))
@example([(5e-324, 0.0)])
def test_a_frontier_draws_what_has_a_cost(systems):
    priced = [Priced(f"s{place}", score, Bill(cost, 0, 0)) for place, (score, cost) in enumerate(systems)]
    chart = frontier_chart(priced, "money", "nDCG@10")
    known = sum(cost is not None for _, cost in systems)
    assert (chart is None) == (known == 0)
    if chart is not None:
        assert len([each for each in ElementTree.fromstring(draw(chart)).iter() if each.tag == "circle"]) == known


def test_causes_fill_the_bar():
    drawing = ElementTree.fromstring(draw(cause_chart({"a<b": {Cause.FOUND: 0.25, Cause.LOW: 0.75}}, "%")))
    bars = [each for each in drawing.iter() if each.get("height") == "20" and each.get("class") == "filled"]
    assert float(bars[1].get("width")) / float(bars[0].get("width")) == pytest.approx(3, rel=0.05)


def test_a_cause_looks_the_same_on_a_page_as_in_a_figure():
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_hex

    from r2med.render.charts.files import paint, paper_svg

    chart = cause_chart({"a": {cause: 1 / len(Cause) for cause in Cause}}, "%")
    drawing = ElementTree.fromstring(draw(chart))
    bars = [each for each in drawing.iter() if each.get("height") == "20"]
    colors = [each.get("fill") for each in bars if each.get("class") == "filled"]
    patches = [each for each in paint(paper_svg(chart)).axes[0].patches if getattr(each, "get_height", int)() == 20]
    painted = [to_hex(bar.get_facecolor()) for bar in patches if not bar.get_hatch()]
    assert colors == painted == [fill.color for fill in fills(len(Cause))]
    assert [bar.get_hatch() for bar in patches if bar.get_hatch()] == list(filter(None, HATCHES[: len(Cause)]))
    hatched = [each.get("fill") for each in bars if (each.get("fill") or "").startswith("url(")]
    assert len(hatched) == sum(map(bool, HATCHES[: len(Cause)]))
    patterns = {each.get("id") for each in drawing.iter() if each.tag == "pattern"}
    assert {name.removeprefix("url(#").removesuffix(")") for name in hatched} == patterns


def test_a_chart_says_what_it_shows_and_its_parts_can_be_reached():
    drawing = ElementTree.fromstring(dots(ChartPoint("a < b", 50, 40, 60), ChartPoint("c", 10, filled=False)))
    assert [each.tag for each in drawing][:2] == ["title", "desc"]
    assert drawing.get("role") == "group", "an image would hide the titles of its parts"
    rows = [each for each in drawing if each.get("role") == "img"]
    assert [row[0].text for row in rows] == ["a < b: 50.00, 95% interval 40.00 to 60.00", "c: 10.00"]
    assert drawing[1].text == "y. a < b: 50.00, 95% interval 40.00 to 60.00; c: 10.00."


def test_marks_differ_without_colour():
    shapes = [ChartPoint("a", 1), ChartPoint("b", 2, filled=False), ChartPoint("c", 3, shape="diamond", tone="pub")]
    drawing = ElementTree.fromstring(dots(*shapes))
    marks = [each for each in drawing.iter() if (each.get("class") or "").startswith("mark")]
    assert [each.tag for each in marks] == ["circle", "circle", "path"]
    assert ["hollow" in each.get("class") for each in marks] == [False, True, False]


def test_a_frontier_names_only_what_is_on_it_however_many_there_are():
    priced = [Priced(f"system {n}", n / 100, Bill(1.0 + 40 - n if n % 10 else n, 0, 0)) for n in range(1, 41)]
    for layout in (WIDE, NARROW):
        drawing = ElementTree.fromstring(draw(frontier_chart(priced, "money", "nDCG@10"), layout))
        lines = [(float(each.get("y")), each.text) for each in drawing.iter() if "name" in (each.get("class") or "")]
        best = {each.system for each in frontier(priced, "money")}
        assert {text.split("  ")[1] for _, text in lines[:-1]} == best
        assert lines[-1][1] == f"{40 - len(best)} others, not named: rings"
        heights = [y for y, _ in lines]
        assert all(later - earlier >= 15 for earlier, later in pairwise(heights))
        assert heights[-1] < float(drawing.get("height"))


def test_numbers_of_marks_that_are_near_each_other_do_not_lie_on_each_other():
    priced = [Priced(f"s{n}", 0.40 + n / 2000, Bill(0.0, 0, 0)) for n in range(4)] + [Priced("d", 0.6, Bill(1.0, 0, 0))]
    drawing = ElementTree.fromstring(draw(frontier_chart(priced, "money", "nDCG@10")))
    numbers = [each for each in drawing.iter() if "number" in (each.get("class") or "")]
    assert len(numbers) == 5
    middles = [
        (float(each.get("x")) + (4 if each.get("text-anchor") == "start" else -4), float(each.get("y")))
        for each in numbers
    ]
    for (x, y), (other_x, other_y) in combinations(middles, 2):
        assert abs(x - other_x) >= 12 or abs(y - other_y) >= 11


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 300)), max_size=12))
def test_a_number_stands_aside_only_where_something_is_in_the_way(marks):
    corners = number_corners(marks)
    assert len(corners) == len(marks)
    for place, ((x, y), corner) in enumerate(zip(marks, corners, strict=True)):
        others = [mark for number, mark in enumerate(marks) if number != place]
        near = any(abs(x - other_x) < 60 and abs(y - other_y) < 60 for other_x, other_y in others)
        assert near or corner == CORNERS[0]


def test_flows_and_trends_have_tables_too():
    flows = FlowChart("f", "x", [FlowRow("bm25", (4, 1, 2, 3))])
    assert flows.figures() == [("", "both right", "broken", "fixed", "both wrong"), ("bm25", "4", "1", "2", "3")]
    trend = TrendChart("t", "nDCG", "right", [TrendPoint("bm25", 1, 30, 50, 40, 60)], [Level("closed", 20)], None)
    assert trend.figures()[1:] == [
        ("bm25", "30.00", "50.00", "40.00", "60.00"),
        ("closed", "\N{EN DASH}", "20.00", "\N{EN DASH}", "\N{EN DASH}"),
    ]


def test_dots_need_no_zero():
    drawing = ElementTree.fromstring(dots(ChartPoint("a", 36), ChartPoint("b", 43)))
    low, high = sorted(float(each.get("cx")) for each in drawing.iter() if each.tag == "circle")
    assert high - low > 300


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_inside(low, size):
    ticks = Scale(low, low + size, 0, 1).ticks()
    assert 1 <= len(ticks) <= 12
    assert all(low - size * 1e-6 <= tick <= low + size * (1 + 1e-6) for tick in ticks)


@given(names, st.integers(3, 50))
def test_a_shortened_name_fits(text, most):
    assert len(shortened(text, most)) <= most
    assert shortened(text, 60) == text


def test_an_interval_is_drawn_from_end_to_end():
    drawing = ElementTree.fromstring(dots(ChartPoint("a", 50, 40, 60), ChartPoint("b", 0)))
    whisker = next(each for each in drawing.iter() if (each.get("class") or "").startswith("range"))
    dot = next(each for each in drawing.iter() if each.tag == "circle")
    middle = (float(whisker.get("x1")) + float(whisker.get("x2"))) / 2
    assert float(dot.get("cx")) == pytest.approx(middle, abs=0.1)
    assert re.search(r"95% interval 40\.00 to 60\.00", dots(ChartPoint("a", 50, 40, 60)))
