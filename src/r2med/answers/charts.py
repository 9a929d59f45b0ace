"""The charts of a study of answers: arms with intervals, what passages fix and break, accuracy against retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.render.charts.chart import Chart
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.render.charts.flows import FlowChart, FlowRow
from r2med.render.charts.scatter import Level, TrendChart, TrendPoint

if TYPE_CHECKING:
    from r2med.answers.report import ArmReport, RagReport


def rag_charts(report: RagReport) -> dict[str, Chart]:
    """Return the charts of a study by name, those that can be drawn."""
    found = {"arms": arms_chart(report), "flows": flow_chart(report), "retrieval": trend_chart(report)}
    return {name: chart for name, chart in found.items() if chart is not None}


def arms_chart(report: RagReport) -> DotChart:
    """Chart every arm's accuracy with its 95% interval; oracles are hollow."""
    points = [_point(arm) for arm in report.arms if arm.accuracy is not None]
    over = f"mean over {len(report.tasks)} tasks" if len(report.tasks) > 1 else report.tasks[0]
    return DotChart("Right answers by arm", f"right answers in %, {over}, 95% interval; hollow: oracle", points)


def _point(arm: ArmReport) -> ChartPoint:
    if arm.accuracy is None:
        raise TypeError(f"{arm.arm.label} has no accuracy")
    mean, low, high = arm.accuracy.percents
    if arm.arm.oracle:
        return ChartPoint(arm.arm.title, mean, low, high, "diamond", False, "soft")
    return ChartPoint(arm.arm.title, mean, low, high, "square" if arm.arm.kind == "closed" else "disc")


def flow_chart(report: RagReport) -> FlowChart | None:
    """Chart what passages fix and break, for every arm that was compared with closed; None if none was."""
    rows = [
        FlowRow(arm.arm.title, (arm.paired.both_right, arm.paired.broken, arm.paired.fixed, arm.paired.both_wrong))
        for arm in report.arms
        if arm.paired is not None
    ]
    axis = "left: answers without passages, right: with them"
    return FlowChart("What passages fix and break", axis, rows) if rows else None


def trend_chart(report: RagReport) -> TrendChart | None:
    """Chart accuracy against retrieval over systems; None if fewer than two can be placed."""
    arms = [arm for arm in report.arms if arm.arm.retrieves and not arm.arm.oracle and arm.accuracy]
    points = [
        TrendPoint(
            arm.arm.title,
            number,
            100 * (arm.retrieval or 0.0),
            *arm.accuracy.percents,
        )
        for number, arm in enumerate(arms, 1)
        if arm.accuracy is not None
    ]
    if len(points) < 2:
        return None
    limits = [arm for arm in report.arms if arm.arm.kind in ("closed", "gold")]
    levels = [Level(arm.arm.title, 100 * arm.accuracy.value) for arm in limits if arm.accuracy]
    title = f"Right answers against {report.measure}"
    rise = report.over_systems.rise
    return TrendChart(
        title, f"{report.measure} x 100", "right answers in %", points, levels, rise.value if rise else None
    )
