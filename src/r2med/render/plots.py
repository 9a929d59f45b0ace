"""Figures for papers and slides, as PNG, SVG or PDF: readable at column width, in greyscale and without colour vision.

Colours are those of cividis, which differ in lightness as much as in hue; bars have hatches and points have shapes of
their own, so that nothing depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from r2med.data.task_names import task_headings
from r2med.data.tasks import families
from r2med.diagnose.causes import LEVELS, Cause, overall
from r2med.diagnose.frontier import COSTS, comparable, frontier
from r2med.errors import R2medError, require_extra
from r2med.storage.files import draft_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r2med.diagnose.causes import Diagnosis
    from r2med.diagnose.compare import Comparison
    from r2med.diagnose.frontier import Priced
    from r2med.diagnose.gap import Gap
    from r2med.diagnose.score_series import ScoreSeries
    from r2med.measure.bootstrap import Interval

WIDTH = 6.5
"""Inches: the text width of most papers."""
ENDINGS = (".png", ".svg", ".pdf")
INK = "#173a70"
"""The dark blue of points and lines, nearly black in greyscale."""
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
"""How the bars of several series are told apart without colour; the pages use the same."""
_SHAPES = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    # A spec may hold a dollar sign, which is no formula.
    "text.parse_math": False,
    # The same figure is the same file.
    "svg.hashsalt": "r2med",
}
_SMALL: Any = {"textcoords": "offset points", "fontsize": 6.5}
_GAP_STYLES: Any = {
    "query-other": {"marker": "|", "markersize": 9, "color": "0.2", "label": "query, other documents (chance)"},
    "query-positive": {
        "marker": "o",
        "markersize": 5.5,
        "color": INK,
        "markerfacecolor": "white",
        "label": "query, relevant documents",
    },
    "answer-positive": {"marker": "D", "markersize": 5.5, "color": INK, "label": "gold answer, relevant documents"},
}


@contextmanager
def _drawing(height: float, columns: int = 1, **options: Any) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """A figure with axes side by side, in the style of all figures."""
    require_extra("plots", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, **options)[0]
        yield figure, list(axes)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's ending."""
    import matplotlib

    if path.suffix.lower() not in ENDINGS:
        raise R2medError(f"{path}: a figure ends in {', '.join(ENDINGS)}")
    still = {"Date": None} if path.suffix.lower() == ".svg" else None
    with draft_file(path, parents=True) as draft, matplotlib.rc_context(_STYLE):
        figure.savefig(draft, format=path.suffix.lower()[1:], dpi=300, metadata=still)


def shades(count: int) -> list[str]:
    """So many colours from dark to light, all of them apart in greyscale."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    steps = [0.12 + 0.83 * place / max(1, count - 1) for place in range(count)]
    return [to_hex(colormaps["cividis"](step)) for step in steps]


def _label(system: str, *, oracle: bool = False, width: int = 34) -> str:
    return fill(system + (" (oracle)" if oracle else ""), width, break_on_hyphens=False)


def _errors(found: Sequence[Interval]) -> list[list[float]]:
    """How far the intervals reach below and above the means, x 100."""
    below = [100 * max(0.0, each.mean - each.low) for each in found]
    return [below, [100 * max(0.0, each.high - each.mean) for each in found]]


def _point(axes: Axes, x: float, y: float, shape: str, *, filled: bool = True, color: str = INK) -> None:
    axes.plot(x, y, shape, markersize=5.5, color=color, markerfacecolor=color if filled else "white", zorder=3)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a figure from the bottom up."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, len(labels) - 0.35)
    axes.grid(axis="y", visible=False)


def _bar_style(place: int, count: int) -> dict[str, Any]:
    """How the bars of one of several series are filled: light lines on dark ones, dark lines on light ones."""
    line = "white" if place < count / 2 else "0.25"
    return {"color": shades(count)[place], "hatch": HATCHES[place], "edgecolor": line, "linewidth": 0.3}


def board_plot(board: ScoreSeries) -> Figure:
    """Every system's average with its 95% interval, the best on top; oracles are hollow."""
    order = sorted(range(len(board.systems)), key=lambda place: board.average[place].mean)
    with _drawing(0.55 + 0.3 * len(order)) as (figure, (axes,)):
        for row, place in enumerate(order):
            mean, oracle = board.average[place], board.systems[place] in board.oracles
            color = "0.45" if oracle else INK
            below, above = _errors([mean])
            axes.errorbar(100 * mean.mean, row, xerr=[below, above], color=color, capsize=2.5, linewidth=1.2)
            _point(axes, 100 * mean.mean, row, "D" if oracle else "o", filled=not oracle, color=color)
            axes.annotate(f"{100 * mean.mean:.1f}", (100 * mean.mean, row), (0, 5), **_SMALL, ha="center")
        _rows(axes, [_label(board.systems[place], oracle=board.systems[place] in board.oracles) for place in order])
        axes.set_xlabel(f"{board.measure} x 100, mean over {len(board.tasks)} {board.group} tasks, 95% interval")
        return figure


def task_plot(board: ScoreSeries) -> Figure:
    """Bars for each task, one a system, with 95% intervals."""
    from matplotlib.patheffects import withStroke

    count = len(board.systems)
    if count > len(HATCHES):
        raise R2medError(f"{count} systems are too many for bars; name at most {len(HATCHES)}")
    whisker = {"elinewidth": 0.8, "ecolor": "black", "path_effects": [withStroke(linewidth=2, foreground="white")]}
    with _drawing(2.6 + 0.14 * count) as (figure, (axes,)):
        width, columns = 0.84 / count, {**board.tasks, "mean": board.average}
        for place, system in enumerate(board.systems):
            found = [column[place] for column in columns.values()]
            where = [group + (place - (count - 1) / 2) * width for group in range(len(columns))]
            label = _label(system, oracle=system in board.oracles, width=70)
            heights, style = [100 * each.mean for each in found], _bar_style(place, count)
            axes.bar(where, heights, width, yerr=_errors(found), error_kw=whisker, label=label, **style)
        axes.set_xticks(range(len(columns)), list(task_headings(list(columns)).values()))
        axes.axvline(len(board.tasks) - 0.5, color="0.6", linewidth=0.8, linestyle=":")
        axes.grid(axis="x", visible=False)
        axes.set_ylabel(f"{board.measure} x 100")
        figure.legend(loc="outside upper center", ncols=2 if count <= 4 else 1)
        return figure


def difference_plot(found: Comparison, measure: str) -> Figure:
    """B minus A by task, family and overall: filled where there is a difference after Holm."""
    headings = task_headings(list(found.tasks))
    names: Mapping[str, Callable[[str], str]]
    names = {"task": headings.__getitem__, "family": lambda name: f"all {families().get(name, name)}", "overall": str}
    shapes = {"task": "o", "family": "s", "overall": "D"}
    rows = found.looks()[::-1]
    with _drawing(0.9 + 0.21 * len(rows)) as (figure, (axes,)):
        axes.axvline(0, color="0.3", linewidth=0.9)
        for row, look in enumerate(rows):
            axes.plot([100 * look.found.low, 100 * look.found.high], [row, row], color=INK, linewidth=1.3)
            _point(axes, 100 * look.found.mean, row, shapes[look.kind], filled=look.sure)
        _rows(axes, [names[look.kind](look.name) for look in rows])
        axes.set_xlabel(f"difference in {measure} x 100, 95% interval; filled: shown after Holm")
        axes.set_title(_label(f"{found.b}  minus  {found.a}", width=90), loc="left")
        return figure


def frontier_plot(systems: Sequence[Priced], by: str, measure: str) -> Figure:
    """Score against cost: the frontier as a stair, systems on it filled; oracles and unknown costs left out."""
    known = comparable(systems, by)
    if not known:
        raise R2medError(f"no system has a known cost in {by}; try one of {', '.join(COSTS)}")
    best = frontier([each for _, each in known], by)
    with _drawing(3.1) as (figure, (axes,)):
        right = _cost_axis(axes, [cost for cost, _ in known])
        stair = [(cost, 100 * each.score) for cost, each in sorted(known, key=lambda pair: pair[0]) if each in best]
        stair.append((right, stair[-1][1]))
        axes.step(*zip(*stair, strict=True), where="post", color="0.6", linewidth=1.1, linestyle="--", zorder=1)
        labels = []
        for number, (cost, each) in enumerate(sorted(known, key=lambda pair: -pair[1].score), 1):
            _point(axes, cost, 100 * each.score, _SHAPES[(number - 1) % len(_SHAPES)], filled=each in best)
            axes.annotate(str(number), (cost, 100 * each.score), (5, 3), **_SMALL)
            labels.append(f"{number}  {_label(each.system, width=28)}")
        axes.set_xlabel(f"{COSTS[by]}; filled: nothing better for as little")
        axes.set_ylabel(f"{measure} x 100")
        axes.margins(y=0.12)
        marks = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
        figure.legend(marks, labels, loc="outside right upper")
        return figure


def _cost_axis(axes: Axes, costs: Sequence[float]) -> float:
    """A logarithmic axis with room for what is free; returns its right end."""
    positive = [cost for cost in costs if cost > 0]
    if not positive:
        axes.set_xlim(-0.05, 1.0)
        axes.set_xticks([0])
        return 1.0
    left, right = min(positive) / 1.8, max(positive) * 1.8
    ticks = _ticks(left, right)
    if len(positive) == len(costs):
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=left, linscale=0.5)
        left, ticks = -0.3 * left, [0.0, *ticks]
    axes.set_xlim(left, right)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    return right


def _ticks(left: float, right: float) -> list[float]:
    """Powers of ten, and 2 and 5 times them where there is room.

    >>> _ticks(0.8, 12), _ticks(0.8, 12_000)
    ([1.0, 2.0, 5.0, 10.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    powers = range(math.floor(math.log10(left)), math.ceil(math.log10(right)) + 1)
    digits = (1, 2, 5) if right / left < 200 else (1,)
    found = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return [tick for tick in found if left <= tick <= right]


def gap_plot(found: Sequence[Gap]) -> Figure:
    """For each task how near the query and the gold answer are to the relevant documents, by words and by meaning."""
    gaps = list(reversed(found))
    sides = {"overlap": "lexical overlap x 100", "similarity": f"cosine x 100 ({found[0].encoder})"}
    with _drawing(1.3 + 0.24 * len(gaps), 2, sharey=True) as (figure, axes):
        for panel, (side, title) in zip(axes, sides.items(), strict=True):
            for row, gap in enumerate(gaps):
                near = getattr(gap, side)
                ends = [100 * near[pair].mean for pair in ("query-positive", "answer-positive")]
                panel.plot(ends, [row, row], color="0.7", linewidth=1.6, zorder=1)
            for pair, style in _GAP_STYLES.items():
                rows = [(getattr(gap, side)[pair], row) for row, gap in enumerate(gaps) if pair in getattr(gap, side)]
                means, places = [100 * near.mean for near, _ in rows], [row for _, row in rows]
                panel.plot(means, places, linestyle="None", zorder=2, **style)
            _rows(panel, list(task_headings([gap.task for gap in gaps]).values()))
            panel.set_xlabel(title)
            panel.set_xlim(left=0)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        return figure


def cause_plot(found: Sequence[Sequence[Diagnosis]], of: str = "documents") -> Figure:
    """The shares of causes, a bar a system, over all its tasks."""
    systems = list(reversed(found))
    totals = [overall(each, of) for each in systems]
    used = [cause for cause in Cause if any(total[cause].mean for total in totals)]
    with _drawing(1.1 + 0.32 * len(systems)) as (figure, (axes,)):
        left = [0.0] * len(systems)
        for cause in used:
            shares = [100 * total[cause].mean for total in totals]
            # A cause has the same fill in every figure, and on the pages.
            style = _bar_style(list(Cause).index(cause), len(Cause))
            axes.barh(range(len(systems)), shares, 0.68, left=left, label=cause.value, **style)
            left = [one + other for one, other in zip(left, shares, strict=True)]
        _rows(axes, [_label(each[0].system) for each in systems])
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"% {LEVELS[of]}, mean over {len(found[0])} tasks")
        figure.legend(loc="outside upper center", ncols=5 if len(used) <= 5 else 4)
        return figure
