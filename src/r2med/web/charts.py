"""The charts of boards and comparisons, as SVG: readable at a glance, without colour vision, and in print.

Nothing depends on colour alone: points differ in shape, cells and bars hold their figures, and colours come from the
style sheet, where light and dark have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from r2med.board.table import task_heading
from r2med.web.svg import Scale, axis, drawing, hint, shortened, span, tag, words

if TYPE_CHECKING:
    from r2med.board.model import Board, Line
    from r2med.compare import Comparison
    from r2med.diagnose.causes import Cause
    from r2med.diagnose.frontier import Priced
    from r2med.measure.bootstrap import Interval
    from r2med.measure.paired import Difference

_WIDTH, _LABEL, _ROW = 860, 300, 22
_CHARACTERS = 44
"""As many as the place for a label holds."""
SHADES = 9
"""How many steps the heat map's scale has."""


class Mark(NamedTuple):
    """One row of a chart of points: a name, a figure x 100 and how far it may be off."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    shape: str = "dot"
    """`dot` for one's own, `diamond` for published, `ring` for an oracle or a difference that may be 0."""


def mark_of(line: Line, column: str) -> Mark | None:
    """The row of a line of the board in one column."""
    value = line.value(column)
    if value is None:
        return None
    found: Interval | None = line.intervals.get(column)
    low, high = (None, None) if found is None else (100 * found.low, 100 * found.high)
    shape = "ring" if line.row.oracle else "dot" if line.row.own else "diamond"
    return Mark(line.row.name, 100 * value, low, high, shape)


def points(marks: Sequence[Mark], label: str, *, zero: bool = False) -> str:
    """Figures with their intervals, a row each."""
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high) if end is not None]
    low, high = span([*ends, 0.0] if zero else ends, from_zero=not zero)
    scale = Scale(low, high, _LABEL + 12, _WIDTH - 58)
    bottom = 8 + _ROW * len(marks)
    rows = [axis(scale, 4, bottom, zero=zero)]
    for place, mark in enumerate(marks):
        y = 8 + _ROW * (place + 0.5)
        ranges = "" if mark.low is None or mark.high is None else f", 95% interval {mark.low:.2f} to {mark.high:.2f}"
        parts = [hint(f"{mark.name}: {mark.value:.2f}{ranges}"), tag("rect", x=0, y=y - 11, width=_WIDTH, height=_ROW)]
        parts.append(words(_LABEL, y + 4, shortened(mark.name, _CHARACTERS), class_="name", text_anchor="end"))
        parts.append(_whisker(mark, scale, y))
        parts.append(words(_WIDTH - 4, y + 4, _figure(mark.value, signed=zero), class_="value", text_anchor="end"))
        rows.append(tag("g", *parts, class_="row"))
    return drawing(_WIDTH, bottom + 22, label, *rows)


def _figure(value: float, *, signed: bool) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") if signed else f"{value:.2f}"


def _whisker(mark: Mark, scale: Scale, y: float, radius: float = 4.5) -> str:
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
    mark = Mark("", found.mean, found.low, found.high)
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


def differences(found: Comparison) -> str:
    """B minus A by task, by family and over all tasks, filled where the interval leaves out 0."""
    from r2med.data.tasks import families

    rows = {task_heading(task): each for task, each in found.tasks.items()}
    rows |= {f"all {families().get(name, name)}": each for name, each in found.families.items()}
    if len(found.tasks) > 1:
        rows["all tasks"] = found.overall
    marks = [_difference_mark(name, each) for name, each in rows.items()]
    return points(marks, f"{found.b} minus {found.a}, with 95% intervals", zero=True)


def against(found: Sequence[Comparison]) -> str:
    """Several systems minus one and the same, over all tasks."""
    marks = [_difference_mark(each.b, each.overall) for each in found]
    return points(marks, f"differences from {found[0].a}, with 95% intervals", zero=True)


def _difference_mark(name: str, found: Difference) -> Mark:
    sure = found.low > 0 or found.high < 0
    return Mark(name, 100 * found.mean, 100 * found.low, 100 * found.high, "dot" if sure else "ring")


def heat_map(board: Board) -> str:
    """Systems x tasks, every cell with its figure and a shade of its column's range."""
    columns = [column for column in board.columns if any(line.value(column) is not None for line in board.lines)]
    wide = (_WIDTH - _LABEL - 8) / max(1, len(columns))
    systems = [line for line in board.lines if not line.row.oracle] or board.lines
    # What lies beyond the systems, such as a ceiling, has the shade of the end.
    ranges = {c: [v for line in systems if (v := line.value(c)) is not None] or [0.0, 1.0] for c in columns}
    parts = [
        words(_LABEL + 8 + wide * (place + 0.5), 14, task_heading(column) or "average", class_="tick head")
        for place, column in enumerate(columns)
    ]
    for row, line in enumerate(board.lines):
        y = 22 + 24 * row
        parts.append(words(_LABEL, y + 16, shortened(line.row.name, _CHARACTERS), class_="name", text_anchor="end"))
        for place, column in enumerate(columns):
            value = line.value(column)
            if value is None:
                continue
            shade = shade_of(value, min(ranges[column]), max(ranges[column]))
            x = _LABEL + 8 + wide * place
            cell = tag("rect", x=x, y=y, width=wide - 2, height=22, rx=3, class_=f"h{shade}")
            figure = words(x + wide / 2 - 1, y + 15, f"{100 * value:.1f}", class_=f"cell t{shade}")
            parts.append(tag("g", hint(f"{line.row.name}, {column or 'average'}: {100 * value:.2f}"), cell, figure))
    return drawing(_WIDTH, 26 + 24 * len(board.lines), "scores of systems by tasks", *parts)


def shade_of(value: float, low: float, high: float) -> int:
    """The step of the heat map's scale, from the lowest figure of a column to its highest.

    >>> shade_of(0.1, 0.1, 0.5), shade_of(0.5, 0.1, 0.5), shade_of(0.3, 0.3, 0.3)
    (0, 8, 4)
    """
    if high <= low:
        return SHADES // 2
    return max(0, min(SHADES - 1, int(SHADES * (value - low) / (high - low))))


def frontier_chart(systems: Sequence[Priced], by: str, measure: str) -> str:
    """Score against cost a query; what nothing beats for as little is filled and joined by a stair."""
    from r2med.diagnose.frontier import COSTS, comparable, frontier

    known = sorted(comparable(systems, by), key=lambda pair: -pair[1].score)
    if not known:
        return ""
    best = frontier([each for _, each in known], by)
    costs = [cost for cost, _ in known if cost > 0] or [1.0]
    free = len(costs) < len(known)
    x = Scale(min(costs) / 1.6, max(costs) * 1.6, 110 if free else 60, 500, logarithmic=True)
    low, high = span([100 * each.score for _, each in known], from_zero=False)
    y = Scale(low, high, 270, 12)

    def place(cost: float) -> float:
        return x(cost) if cost > 0 else 70.0

    parts = [axis(x, 12, 270), words(280, 304, COSTS[by], class_="tick", text_anchor="middle")]
    parts += [words(70, 285, "free", class_="tick", text_anchor="middle")] if free else []
    for tick in y.ticks():
        parts.append(tag("line", x1=50, x2=500, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(44, y(tick) + 4, f"{tick:g}", class_="tick", text_anchor="end"))
    path = ""
    for each in best:
        here, there = place(each.cost(by) or 0.0), y(100 * each.score)
        path += f"M{here:.1f} {there:.1f}" if not path else f"H{here:.1f}V{there:.1f}"
    parts.append(tag("path", d=f"{path}H500", class_="stair"))
    row = min(19.0, 258 / len(known))
    for number, (cost, each) in enumerate(known, 1):
        shape = "dot" if each in best else "ring"
        cx, cy = place(cost), y(100 * each.score)
        label = f"{each.system}: {measure} {100 * each.score:.2f}, {cost:.4g} {COSTS[by]}"
        parts.append(tag("g", hint(label), tag("circle", cx=cx, cy=cy, r=5, class_=shape),
                         words(cx + 8, cy - 5, str(number), class_="tick")))  # fmt: skip
        legend = f"{number}  {shortened(each.system, 46)}"
        parts.append(words(522, 12 + row * number, legend, class_="name best" if each in best else "name"))
    return drawing(_WIDTH, 312, f"{measure} against {COSTS[by]}", *parts)


def cause_chart(shares: Mapping[str, Mapping[Cause, float]]) -> str:
    """The shares of causes, a bar a system."""
    from r2med.diagnose.causes import Cause

    used = [cause for cause in Cause if any(row.get(cause, 0.0) for row in shares.values())]
    scale = Scale(0, 100, _LABEL + 12, _WIDTH - 20)
    top, parts = 28, []
    width = (_WIDTH - 20) / max(1, len(used))
    for place, cause in enumerate(used):
        x = 10 + width * place
        parts.append(tag("rect", x=x, y=4, width=13, height=13, class_=f"cause c{list(Cause).index(cause)}"))
        parts.append(words(x + 18, 15, cause.value, class_="name"))
    bottom = top + 26 * len(shares)
    parts.append(axis(scale, top, bottom))
    for row, (system, found) in enumerate(shares.items()):
        y, done = top + 3 + 26 * row, 0.0
        parts.append(words(_LABEL, y + 14, shortened(system, _CHARACTERS), class_="name", text_anchor="end"))
        for cause in used:
            share = 100 * found.get(cause, 0.0)
            left, right = scale(done), scale(done + share)
            done += share
            bar = tag("rect", x=left, y=y, width=max(0.0, right - left - 1), height=20,
                      class_=f"cause c{list(Cause).index(cause)}")  # fmt: skip
            number = words((left + right) / 2, y + 14, f"{share:.0f}", class_=f"cell on{list(Cause).index(cause)}")
            parts.append(tag("g", hint(f"{system}: {cause.value} {share:.1f}%"), bar, number if share >= 4 else ""))
    return drawing(_WIDTH, bottom + 22, "what became of relevant documents, %", *parts)
