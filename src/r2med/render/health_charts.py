"""What the charts of a built task show: its funnel, who found which positives, and scores on both axes with the cuts.

Like all charts they are described once, drawn as SVG by `chart_svg` and for papers by `plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from r2med.build.health import TaskHealth
from r2med.build.select_questions import BAND, NEGATIVE, POSITIVE
from r2med.errors import counted

_OF_QUESTIONS = ("read", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "select")
_MOST_OVERLAPS = 16
"""So many combinations of members are drawn; smaller ones are summed up."""


class FunnelStep(NamedTuple):
    """What is left after a step."""

    name: str
    left: int
    why: str
    """What most of the others were dropped for; empty where none was."""


@dataclass(frozen=True)
class FunnelChart:
    """How many questions are left after each step, the first on top."""

    title: str
    steps: Sequence[FunnelStep]

    @property
    def most(self) -> int:
        """The widest bar."""
        return max((step.left for step in self.steps), default=1) or 1

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        return "Questions left: " + ", ".join(f"{step.name} {step.left:,}" for step in self.steps) + "."


def funnel_chart(funnel: Sequence[Mapping[str, Any]]) -> FunnelChart:
    """The funnel of a build, from the counts that its result says."""
    counts = [count for count in funnel if count["step"] in _OF_QUESTIONS]
    steps = [FunnelStep("questions", counts[0]["items"], "")] if counts else []
    for count in counts:
        why = max(count["dropped"].items(), key=lambda entry: entry[1], default=("", 0))
        steps.append(FunnelStep(count["step"], count["kept"], f"{why[1]:,} {why[0]}" if why[1] else ""))
    return FunnelChart("What is left of the questions after each step", steps)


class UpSetColumn(NamedTuple):
    """Positives that exactly these members found."""

    members: tuple[bool, ...]
    """For each member of the chart whether it is one of them."""
    positives: int
    said: str


@dataclass(frozen=True)
class UpSetChart:
    """How the findings of members overlap: a column for each combination, with dots for who is in it."""

    title: str
    axis: str
    members: Sequence[str]
    totals: Sequence[int]
    """How many each member found."""
    columns: Sequence[UpSetColumn]
    """The largest first."""
    rest: int
    """Positives of combinations that are not drawn."""

    @property
    def most(self) -> int:
        """The highest column."""
        return max((column.positives for column in self.columns), default=1) or 1

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        return f"{self.axis}. " + "; ".join(f"{column.said}: {column.positives:,}" for column in self.columns[:5]) + "."


def member_chart(health: TaskHealth) -> UpSetChart:
    """Which members found the same positives."""
    coverage = health.coverage
    members = [member.name for member in coverage.members]
    columns = [
        UpSetColumn(tuple(name in each.members for name in members), each.positives, _said(each.members, members))
        for each in coverage.overlaps
    ]
    drawn = columns[:_MOST_OVERLAPS]
    totals = [member.found.part for member in coverage.members]
    rest = sum(column.positives for column in columns[_MOST_OVERLAPS:])
    return UpSetChart("Who found the positives", "positives found by just these", members, totals, drawn, rest)


def _said(found: Sequence[str], members: Sequence[str]) -> str:
    if not found:
        return "no member, but the known source"
    return "all" if len(found) == len(members) > 1 else " and ".join(found) + " alone" * (len(found) == 1)


class ScoreBubble(NamedTuple):
    """Pairs with the same scores on both axes."""

    x: float
    y: float
    pairs: int
    verdict: str


@dataclass(frozen=True)
class ScoreChart:
    """Judged pairs by their scores on two axes, larger the more they are, with the cuts as lines."""

    title: str
    x_axis: str
    y_axis: str
    bubbles: Sequence[ScoreBubble]
    cut: tuple[float, float]
    """Where positives begin."""
    band: tuple[float, float]
    """Where the band begins."""
    ends: tuple[float, float]
    """The lowest and the highest score there is, or that the cuts are at."""

    @property
    def most(self) -> int:
        """The largest bubble."""
        return max((bubble.pairs for bubble in self.bubbles), default=1)

    @property
    def counts(self) -> dict[str, int]:
        """Pairs by verdict."""
        names = (POSITIVE, BAND, NEGATIVE)
        return {name: sum(each.pairs for each in self.bubbles if each.verdict == name) for name in names}

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items())
        return f"{counted(sum(self.counts.values()), 'pair')} by both scores: {counts}."


def score_chart(health: TaskHealth) -> ScoreChart:
    """The scores of all judged pairs."""
    bubbles = [ScoreBubble(each.answers, each.supports, each.pairs, each.verdict) for each in health.scores]
    cuts = health.cuts
    cut, band = (cuts["answers"], cuts["supports"]), (cuts["band_answers"], cuts["band_supports"])
    values = [value for bubble in bubbles for value in (bubble.x, bubble.y)] + [*cut, *band]
    axes = ("answers: states or establishes the answer", "supports: holds knowledge that it rests on")
    return ScoreChart("Scores of judged pairs", *axes, bubbles, cut, band, (min(values), max(values)))


HealthChart = FunnelChart | UpSetChart | ScoreChart
