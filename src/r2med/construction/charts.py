"""Charts of a built task: its funnel, the members that found the positives, and scores on both axes with the cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r2med.construction.health import TaskHealth
from r2med.render.charts.bars import FunnelChart, FunnelStep, UpSetChart, UpSetColumn
from r2med.render.charts.bubbles import ScoreBubble, ScoreChart
from r2med.render.charts.chart import Chart
from r2med.render.charts.files import save_charts

_OF_QUESTIONS = ("read", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "select")
_MOST_OVERLAPS = 16


def funnel_chart(funnel: Sequence[Mapping[str, Any]]) -> FunnelChart:
    """Build the funnel of a build from its counts."""
    counts = [count for count in funnel if count["step"] in _OF_QUESTIONS]
    steps = [FunnelStep("questions", counts[0]["items"], "")] if counts else []
    for count in counts:
        why = max(count["dropped"].items(), key=lambda entry: entry[1], default=("", 0))
        steps.append(FunnelStep(count["step"], count["kept"], f"{why[1]:,} {why[0]}" if why[1] else ""))
    return FunnelChart("What is left of the questions after each step", steps)


def member_chart(health: TaskHealth) -> UpSetChart:
    """Build the chart of which members found the same positives."""
    coverage = health.coverage
    members = [member.name for member in coverage.members]
    columns = [
        UpSetColumn(tuple(n in overlap.members for n in members), overlap.positives, _label(overlap.members, members))
        for overlap in coverage.overlaps
    ]
    drawn = columns[:_MOST_OVERLAPS]
    totals = [member.found.part for member in coverage.members]
    rest = sum(column.positives for column in columns[_MOST_OVERLAPS:])
    return UpSetChart("Who found the positives", "positives found by just these", members, totals, drawn, rest)


def _label(finders: Sequence[str], members: Sequence[str]) -> str:
    if not finders:
        return "no member, but the known source"
    return "all" if len(finders) == len(members) > 1 else " and ".join(finders) + " alone" * (len(finders) == 1)


def score_chart(health: TaskHealth) -> ScoreChart:
    """Build the chart of the scores of all judged pairs."""
    bubbles = [ScoreBubble(score.answers, score.supports, score.pairs, score.verdict) for score in health.scores]
    cuts = health.cuts
    cut, band = (cuts["answers"], cuts["supports"]), (cuts["band_answers"], cuts["band_supports"])
    values = [value for bubble in bubbles for value in (bubble.x, bubble.y)] + [*cut, *band]
    axes = ("answers: states or establishes the answer", "supports: holds knowledge that it rests on")
    return ScoreChart("Scores of judged pairs", *axes, bubbles, cut, band, (min(values), max(values)))


def health_charts(health: TaskHealth, funnel: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """Return the charts by name."""
    return {"funnel": funnel_chart(funnel), "members": member_chart(health), "scores": score_chart(health)}


def save_health_plots(health: TaskHealth, funnel: Sequence[Mapping[str, Any]], place: Path) -> list[Path]:
    """Write the figures: DIR/funnel.svg and so on, or NAME-funnel.png and so on for NAME.png."""
    return save_charts(health_charts(health, funnel), place)
