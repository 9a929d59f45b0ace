"""The charts of boards and comparisons, as SVG: readable at a glance, without colour vision, and in print.

Nothing depends on colour alone: points differ in shape, cells and bars hold their figures, and colours come from the
style sheet, where light and dark have their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from r2med.board.model import AVERAGE
from r2med.data.task_names import task_headings
from r2med.data.tasks import families
from r2med.diagnose.causes import Cause
from r2med.diagnose.frontier import COSTS, comparable, frontier
from r2med.render.html import drawn
from r2med.render.plots import HATCHES
from r2med.web.svg import Scale, axis, drawing, hint, shortened, span, tag, words

if TYPE_CHECKING:
    from markupsafe import Markup

    from r2med.board.model import Board, Line
    from r2med.diagnose.causes import Cause
    from r2med.diagnose.compare import Comparison
    from r2med.diagnose.frontier import Priced
    from r2med.measure.bootstrap import Interval
    from r2med.measure.significance import Difference


class Layout(NamedTuple):
    """How a chart is laid out: what stands where, for how wide a place."""

    name: str
    width: int
    label: int
    """The width of the place for names at the left; 0 where names stand above their rows."""
    row: int
    characters: int
    """As many as the place for a name holds."""

    @property
    def above(self) -> bool:
        """Whether names stand above their rows."""
        return not self.label

    def name_of(self, y: float, text: str) -> str:
        """A row's name, beside its middle at `y` or above it."""
        if self.above:
            return words(0, y - 13, shortened(text, self.characters), class_="name")
        return words(self.label, y + 4, shortened(text, self.characters), class_="name", text_anchor="end")


WIDE = Layout("wide", 860, 300, 22, 42)
NARROW = Layout("narrow", 340, 0, 38, 42)
SHADES = 9
"""How many steps the heat map's scale has."""


_STROKES = {
    "/": "M-1 1L1 -1M0 6L6 0M5 7L7 5",
    "\\": "M-1 5L1 7M0 0L6 6M5 -1L7 1",
    ".": "M3 2.3v1.4",
    "x": "M0 6L6 0M0 0L6 6",
    "-": "M0 3H6",
    "+": "M0 3H6M3 0V6",
}
"""What is drawn for each hatch, on a tile of 6 x 6."""
CAUSES = 7
"""How many causes have a fill."""


class ChartPoint(NamedTuple):
    """One row of a chart of points: a name, a figure x 100 and how far it may be off."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    shape: str = "dot"
    """`dot` for one's own, `diamond` for published, `ring` for an oracle or a difference that may be 0."""


def responsive(draw: Callable[..., str], *facts: object) -> Markup:
    """A chart in both layouts; the style sheet shows the one that has room."""
    return drawn(tag("div", draw(*facts, layout=WIDE), draw(*facts, layout=NARROW), class_="charts"))


def mark_of(line: Line, column: str) -> ChartPoint | None:
    """The row of a line of the board in one column."""
    value = line.value(column)
    if value is None:
        return None
    found: Interval | None = line.intervals.get(column)
    low, high = (None, None) if found is None else (100 * found.low, 100 * found.high)
    shape = "ring" if line.row.oracle else "dot" if line.row.own else "diamond"
    return ChartPoint(line.row.name, 100 * value, low, high, shape)


def points(marks: Sequence[ChartPoint], label: str, *, zero: bool = False, layout: Layout = WIDE) -> str:
    """Figures with their intervals, a row each."""
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high) if end is not None]
    low, high = span([*ends, 0.0] if zero else ends, from_zero=False)
    scale = Scale(low, high, layout.label + 12, layout.width - (12 if layout.above else 58))
    bottom = 8 + layout.row * len(marks)
    rows = [axis(scale, 4, bottom, zero=zero)]
    for place, mark in enumerate(marks):
        top = 8 + layout.row * place
        y = top + (layout.row - 10 if layout.above else layout.row / 2)
        ranges = "" if mark.low is None or mark.high is None else f", 95% interval {mark.low:.2f} to {mark.high:.2f}"
        parts = [hint(f"{mark.name}: {mark.value:.2f}{ranges}")]
        parts.append(tag("rect", x=0, y=top, width=layout.width, height=layout.row))
        parts.append(layout.name_of(y, mark.name))
        parts.append(_whisker(mark, scale, y))
        figure = _figure(mark.value, signed=zero)
        parts.append(
            words(layout.width - 4, y + (-13 if layout.above else 4), figure, class_="value", text_anchor="end")
        )
        rows.append(tag("g", *parts, class_="row"))
    return drawing(layout.width, bottom + 22, label, *rows, layout=layout.name)


def _figure(value: float, *, signed: bool) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") if signed else f"{value:.2f}"


def _whisker(mark: ChartPoint, scale: Scale, y: float, radius: float = 4.5) -> str:
    x, parts = scale(mark.value), []
    if mark.low is not None and mark.high is not None:
        left, right = scale(mark.low), scale(mark.high)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="range"))
        parts += [tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, class_="range") for end in (left, right)]
    if mark.shape == "diamond":
        parts.append(tag("path", d=f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z", class_="diamond"))
    else:
        parts.append(tag("circle", cx=x, cy=y, r=radius, class_=mark.shape))
    return "".join(parts)


def small(found: Interval, low: float, high: float) -> str:
    """An interval as a cell of a table has room for it."""
    scale = Scale(low, high, 4, 92)
    mark = ChartPoint("", found.mean, found.low, found.high)
    label = f"95% interval {100 * found.low:.2f} to {100 * found.high:.2f}"
    return tag(
        "svg",
        hint(label),
        _whisker(mark, scale, 8, 2.6),
        class_="mini",
        viewBox="0 0 96 16",
        role="img",
        aria_label=label,
    )


def differences(found: Comparison, *, layout: Layout = WIDE) -> str:
    """B minus A by task, by family and over all tasks, filled where there is a difference after Holm."""
    headings = task_headings(list(found.tasks))
    names: Mapping[str, Callable[[str], str]]
    names = {"task": headings.__getitem__, "family": lambda name: f"all {families().get(name, name)}", "overall": str}
    marks = [_difference_mark(names[look.kind](look.name), look.found, look.sure) for look in found.looks()]
    return points(marks, f"{found.b} minus {found.a}, with 95% intervals", zero=True, layout=layout)


def against(found: Sequence[Comparison], *, layout: Layout = WIDE) -> str:
    """Several systems minus one and the same, over all tasks."""
    marks = [_difference_mark(each.b, each.overall, each.differs) for each in found]
    return points(marks, f"differences from {found[0].a}, with 95% intervals", zero=True, layout=layout)


def _difference_mark(name: str, found: Difference, sure: bool) -> ChartPoint:
    return ChartPoint(name, 100 * found.mean, 100 * found.low, 100 * found.high, "dot" if sure else "ring")


def heat_map(board: Board, *, layout: Layout = WIDE) -> str:
    """Systems x tasks, every cell with its figure and a shade of its place in its column."""
    columns = [column for column in board.columns if any(line.value(column) is not None for line in board.lines)]
    left = 0 if layout.above else layout.label + 8
    wide = (layout.width - left) / max(1, len(columns))
    systems = [line for line in board.lines if not line.row.oracle] or board.lines
    # By place and not by figure, so that one outlier does not make all others look alike.
    orders = {c: sorted({v for line in systems if (v := line.value(c)) is not None}) for c in columns}
    fitting = 6 if layout.above else 12
    headings = task_headings(board.tasks) | {AVERAGE: "average"}
    parts = [
        words(left + wide * (place + 0.5), 14, shortened(headings[column], fitting), class_="tick head")
        for place, column in enumerate(columns)
    ]
    row_height = 40 if layout.above else 24
    for row, line in enumerate(board.lines):
        y = 22 + row_height * row + (16 if layout.above else 0)
        parts.append(layout.name_of(y + (8 if layout.above else 12), line.row.name))
        for place, column in enumerate(columns):
            value = line.value(column)
            if value is None:
                continue
            shade = shade_of(bisect_left(orders[column], value), 0, len(orders[column]) - 1)
            x = left + wide * place
            cell = tag("rect", x=x, y=y, width=wide - 2, height=22, rx=3, class_=f"h{shade}")
            figure = words(x + wide / 2 - 1, y + 15, f"{100 * value:.1f}", class_=f"cell t{shade}")
            parts.append(tag("g", hint(f"{line.row.name}, {column or 'average'}: {100 * value:.2f}"), cell, figure))
    height = 26 + row_height * len(board.lines)
    return drawing(layout.width, height, "scores of systems by tasks", *parts, layout=layout.name)


def shade_of(value: float, low: float, high: float) -> int:
    """The step of the heat map's scale, from the lowest figure of a column to its highest.

    >>> shade_of(0.1, 0.1, 0.5), shade_of(0.5, 0.1, 0.5), shade_of(0.3, 0.3, 0.3)
    (0, 8, 4)
    """
    if high <= low:
        return SHADES // 2
    return max(0, min(SHADES - 1, int(SHADES * (value - low) / (high - low))))


def frontier_chart(systems: Sequence[Priced], by: str, measure: str, *, layout: Layout = WIDE) -> str:
    """Score against cost a query; what nothing beats for as little is filled, named, and joined by a stair."""
    known = sorted(comparable(systems, by), key=lambda pair: -pair[1].score)
    if not known:
        return ""
    best = sorted(frontier([each for _, each in known], by), key=lambda each: -each.score)
    costs = [cost for cost, _ in known if cost > 0] or [1.0]
    free = len(costs) < len(known)
    right = 330 if layout.above else 500
    x = Scale(min(costs) / 1.6, max(costs) * 1.6, 110 if free else 60, right, logarithmic=True)
    low, high = span([100 * each.score for _, each in known], from_zero=False)
    y = Scale(low, high, 290, 28)

    def place(cost: float) -> float:
        return x(cost) if cost > 0 else 70.0

    parts = [axis(x, 28, 290), words((right + 50) / 2, 324, COSTS[by], class_="tick", text_anchor="middle")]
    parts.append(words(4, 12, f"{measure} × 100", class_="tick"))
    parts += [words(70, 305, "free", class_="tick", text_anchor="middle")] if free else []
    for tick in y.ticks():
        parts.append(tag("line", x1=50, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(44, y(tick) + 4, f"{tick:g}", class_="tick", text_anchor="end"))
    path = ""
    for each in reversed(best):
        here, there = place(each.cost(by) or 0.0), y(100 * each.score)
        path += f"M{here:.1f} {there:.1f}" if not path else f"H{here:.1f}V{there:.1f}"
    parts.append(tag("path", d=f"{path}H{right}", class_="stair"))
    for cost, each in known:
        cx, cy = place(cost), y(100 * each.score)
        label = f"{each.system}: {measure} {100 * each.score:.2f}, {cost:.4g} {COSTS[by]}"
        point = tag("circle", cx=cx, cy=cy, r=5, class_="dot" if each in best else "ring")
        number = words(cx + 8, cy - 5, str(best.index(each) + 1), class_="tick number") if each in best else ""
        parts.append(tag("g", hint(label), point, number))
    legend = [f"{number}  {shortened(each.system, 44)}" for number, each in enumerate(best, 1)]
    others = len(known) - len(best)
    legend += [f"{others} {'other' if others == 1 else 'others'}, not named: rings"] if others else []
    left, top = (4, 336) if layout.above else (522, 28)
    for row, line in enumerate(legend):
        parts.append(words(left, top + 19 * row + 13, line, class_="name best" if row < len(best) else "name soft"))
    height = max(330, top + 19 * len(legend) + 4)
    return drawing(layout.width, height, f"{measure} against {COSTS[by]}", *parts, layout=layout.name)


def cause_chart(shares: Mapping[str, Mapping[Cause, float]], *, layout: Layout = WIDE) -> str:
    """The shares of causes, a bar a system, filled as the figures of `r2med plot causes` are."""
    order = list(Cause)
    used = [cause for cause in Cause if any(row.get(cause, 0.0) for row in shares.values())]
    scale = Scale(0, 100, 4 if layout.above else layout.label + 12, layout.width - 20)
    in_line = 2 if layout.above else max(1, len(used))
    width, parts = (layout.width - 20) / in_line, [_hatches(layout)]
    for place, cause in enumerate(used):
        x, y = 4 + width * (place % in_line), 4 + 20 * (place // in_line)
        parts.append(_filled(order.index(cause), layout, x=x, y=y, width=13, height=13))
        parts.append(words(x + 18, y + 11, cause.value, class_="name"))
    top, row_height = 8 + 20 * -(-len(used) // in_line), 42 if layout.above else 26
    bottom = top + row_height * len(shares)
    parts.append(axis(scale, top, bottom))
    for row, (system, found) in enumerate(shares.items()):
        y, done = top + row_height * row + (18 if layout.above else 3), 0.0
        parts.append(layout.name_of(y + (8 if layout.above else 10), system))
        for cause in used:
            share = 100 * found.get(cause, 0.0)
            left, right = scale(done), scale(done + share)
            done += share
            place = order.index(cause)
            bar = _filled(place, layout, x=left, y=y, width=max(0.0, right - left - 1), height=20)
            number = words((left + right) / 2, y + 14, f"{share:.0f}", class_=f"cell on{place}")
            roomy = right - left >= 20
            parts.append(tag("g", hint(f"{system}: {cause.value} {share:.1f}%"), bar, number if roomy else ""))
    return drawing(layout.width, bottom + 22, "what became of relevant documents, %", *parts, layout=layout.name)


def _filled(place: int, layout: Layout, **box: float) -> str:
    """A box in the colour and hatch of a cause."""
    hatch = tag("rect", **box, fill=f"url(#hatch-{layout.name}-{place})") if HATCHES[place] else ""
    return tag("rect", **box, class_=f"cause c{place}") + hatch


def _hatches(layout: Layout) -> str:
    """The patterns behind `HATCHES`, under names that differ between the layouts of a page."""
    made = []
    for place, hatch in enumerate(HATCHES[:CAUSES]):
        if hatch:
            shape = tag("path", d=_STROKES[hatch[0]], class_=f"stroke s{place}")
            name = f"hatch-{layout.name}-{place}"
            made.append(tag("pattern", shape, id=name, width=6, height=6, patternUnits="userSpaceOnUse"))
    return tag("defs", *made)
