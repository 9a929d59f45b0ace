"""The charts of a study of answers: arms with intervals, what passages fix and break, accuracy against retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from r2med.render.charts import ChartPoint, DotChart
from r2med.render.palette import Fill, fills
from r2med.render.scale import Scale, span

if TYPE_CHECKING:
    from r2med.rag.rag_report import ArmReport, RagReport

FLOWS = ("both right", "broken", "fixed", "both wrong")
"""Every way from an answer without passages to the one with them."""


class Band(NamedTuple):
    """One flow of an alluvial chart: where it starts and ends from the top, and how wide it is, in shares of all."""

    name: str
    answers: int
    start: float
    end: float
    width: float


@dataclass(frozen=True)
class FlowRow:
    """An arm: how many answers went which way, in the order of `FLOWS`."""

    name: str
    counts: tuple[int, int, int, int]

    @property
    def total(self) -> int:
        """All questions."""
        return sum(self.counts)

    @property
    def bands(self) -> list[Band]:
        """The flows from top to bottom: right above wrong on either side."""
        shares = dict(zip(FLOWS, (count / max(1, self.total) for count in self.counts), strict=True))
        counts = dict(zip(FLOWS, self.counts, strict=True))
        starts = _stacked(["both right", "broken", "fixed", "both wrong"], shares)
        ends = _stacked(["both right", "fixed", "broken", "both wrong"], shares)
        return [Band(name, counts[name], starts[name], ends[name], shares[name]) for name in FLOWS]


def _stacked(order: Sequence[str], shares: dict[str, float]) -> dict[str, float]:
    """Where each flow begins when they are put below each other."""
    return {name: sum(shares[other] for other in order[:place]) for place, name in enumerate(order)}


@dataclass(frozen=True)
class FlowChart:
    """What became of right and wrong answers when passages were shown, an alluvial diagram for each arm."""

    title: str
    axis: str
    rows: Sequence[FlowRow]

    @property
    def looks(self) -> dict[str, Fill]:
        """How each flow is filled."""
        return dict(zip(FLOWS, fills(len(FLOWS)), strict=True))

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        said = [f"{row.name}: {', '.join(f'{b.answers} {b.name}' for b in row.bands)}" for row in self.rows[:5]]
        return f"{self.axis}. {'; '.join(said)}."


class TrendPoint(NamedTuple):
    """A system by its retrieval and its right answers, with the interval of these."""

    name: str
    number: int
    x: float
    y: float
    low: float
    high: float


class Level(NamedTuple):
    """A line across, for what has no place along the axis."""

    name: str
    y: float


@dataclass(frozen=True)
class TrendChart:
    """Right answers against retrieval, a mark a system, with the fitted line."""

    title: str
    x_axis: str
    y_axis: str
    points: Sequence[TrendPoint]
    levels: Sequence[Level]
    slope: float | None
    """The rise of y for a rise of x by 1."""

    @property
    def x_scale(self) -> Scale:
        """A scale that holds every mark."""
        return Scale(*span([point.x for point in self.points], from_zero=False))

    @property
    def y_scale(self) -> Scale:
        """A scale that holds every interval and line."""
        ends = [end for point in self.points for end in (point.low, point.high)]
        return Scale(*span([*ends, *(level.y for level in self.levels)], from_zero=False))

    @property
    def line(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The ends of the fitted line, over the points' own range."""
        if self.slope is None or len(self.points) < 2:
            return None
        x, y = (sum(getattr(point, side) for point in self.points) / len(self.points) for side in "xy")
        ends = [min(point.x for point in self.points), max(point.x for point in self.points)]
        first, last = ((end, y + self.slope * (end - x)) for end in ends)
        return first, last

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        said = "; ".join(f"{point.name} {point.y:.1f} at {point.x:.1f}" for point in self.points)
        return f"{self.y_axis} against {self.x_axis}. {said}."


RagChart = DotChart | FlowChart | TrendChart


def rag_charts(report: RagReport) -> dict[str, RagChart]:
    """The charts of a study by name, those that can be drawn."""
    found = {"arms": arms_chart(report), "flows": flow_chart(report), "retrieval": trend_chart(report)}
    return {name: chart for name, chart in found.items() if chart is not None}


def arms_chart(report: RagReport) -> DotChart:
    """Every arm's accuracy with its 95% interval; oracles are hollow."""
    points = [_point(arm) for arm in report.arms if arm.accuracy is not None]
    over = f"mean over {len(report.tasks)} tasks" if len(report.tasks) > 1 else report.tasks[0]
    return DotChart("Right answers by arm", f"right answers in %, {over}, 95% interval; hollow: oracle", points)


def _point(arm: ArmReport) -> ChartPoint:
    if arm.accuracy is None:
        raise TypeError(f"{arm.arm.label} has no accuracy")
    mean, low, high = (100 * value for value in arm.accuracy)
    if arm.arm.oracle:
        return ChartPoint(arm.arm.title, mean, low, high, "diamond", False, "soft")
    return ChartPoint(arm.arm.title, mean, low, high, "square" if arm.arm.kind == "closed" else "disc")


def flow_chart(report: RagReport) -> FlowChart | None:
    """What passages fix and break, for every arm that was compared with closed; None where none was."""
    rows = [
        FlowRow(arm.arm.title, (arm.paired.both_right, arm.paired.broken, arm.paired.fixed, arm.paired.both_wrong))
        for arm in report.arms
        if arm.paired is not None
    ]
    axis = "left: answers without passages, right: with them"
    return FlowChart("What passages fix and break", axis, rows) if rows else None


def trend_chart(report: RagReport) -> TrendChart | None:
    """Accuracy against retrieval over systems; None where fewer than two can be placed."""
    arms = [arm for arm in report.arms if arm.arm.retrieves and not arm.arm.oracle and arm.accuracy]
    points = [
        TrendPoint(arm.arm.title, number, 100 * (arm.retrieval or 0.0), *(100 * value for value in arm.accuracy))
        for number, arm in enumerate(arms, 1)
        if arm.accuracy is not None
    ]
    if len(points) < 2:
        return None
    limits = [arm for arm in report.arms if arm.arm.kind in ("closed", "gold")]
    levels = [Level(arm.arm.title, 100 * arm.accuracy.mean) for arm in limits if arm.accuracy]
    title = f"Right answers against {report.measure}"
    return TrendChart(title, f"{report.measure} x 100", "right answers in %", points, levels, report.over_systems.slope)
