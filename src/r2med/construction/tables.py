"""The tables and charts of a build: its funnel, the history of one question, and the health of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from r2med.construction.health import TaskHealth
from r2med.construction.health_report import health_sections
from r2med.construction.package import remarks
from r2med.formatting import money
from r2med.llm.items import Count
from r2med.render.charts.bars import FunnelChart, FunnelStep, UpSetChart, UpSetColumn
from r2med.render.charts.files import save_charts
from r2med.render.charts.scatter import ScoreBubble, ScoreChart
from r2med.render.sections import show_sections
from r2med.render.table import Table, key, numbers, say

_OF_QUESTIONS = ("read", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "select")
_MOST_OVERLAPS = 16


def show_funnel(counts: Sequence[Count], console: Console) -> None:
    """Print how many items each step kept and what it took, and below why items were dropped, failed or are marked."""
    table = Table(key("step"), *numbers("items", "kept", "requests", "dollars"))
    for count in counts:
        asked = [f"{count.spent.requests:,}", money(count.spent.cost)] if count.spent.requests else ["", ""]
        table.add(count.step, f"{count.items:,}", f"{count.kept:,}", *asked)
    table.show(console)
    for count in counts:
        for remark in remarks(count):
            say(console, f"{count.step}: {remark}")


def show_question(history: Mapping[str, Any], console: Console) -> None:
    """Print the history of one question."""

    def line(content: object) -> str:
        if isinstance(content, dict):
            content = "; ".join(f"{name}: {value}" for name, value in content.items())
        return " | ".join(map(str, content)) if isinstance(content, list | tuple) else str(content)

    console.print(history["id"], style="bold")
    for step, value in history["steps"].items():
        for name, content in value.items():
            repeated = name == "id" or (step == "read" and name == "text")
            if not repeated and content not in ("", [], None):
                console.print(f"{step}: {name}: {line(content)}")
    if history["dropped"]:
        console.print(f"dropped: {history['dropped']}", style="bold")
    for number, candidate in enumerate(history["candidates"], 1):
        grades = "?"
        if "answers" in candidate:
            grades = f"answers {candidate['answers']:g}, supports {candidate['supports']:g}"
        verdict = candidate["verdict"] or "not selected yet"
        console.print(f"\n{number}. {candidate['passage']}: {verdict} ({grades})", style="bold")
        ways = (f"{w['system']} by {w['view']} at {w['rank']}" if w["rank"] else "source" for w in candidate["found"])
        console.print(f"   found: {'; '.join(ways)}")
        for opinion in candidate.get("opinions", ()):
            mark = " (not in the passage)" if opinion["quote_state"] == "invented" else ""
            quote = f' "{opinion["quote"]}"{mark}' if opinion["quote"] else ""
            scores = f"{opinion['answers']:g}, {opinion['supports']:g}"
            console.print(f"   {opinion['judge']}: {scores}: {opinion['reason']}{quote}")
        for name in ("dropped", "failed"):
            if candidate.get(name):
                console.print(f"   {candidate[name]}")


def show_health(health: TaskHealth, console: Console) -> None:
    """Print the report on a task's health."""
    # The question that a check asks is for pages: on a terminal its name and figure have to do.
    verdict, *others = health_sections(health)
    short = replace(verdict, headings=verdict.headings[:-1], rows=[row[:-1] for row in verdict.rows])
    show_sections([short, *others], console)


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

    def label(finders: Sequence[str]) -> str:
        if not finders:
            return "no member, but the known source"
        return "all" if len(finders) == len(members) > 1 else " and ".join(finders) + " alone" * (len(finders) == 1)

    columns = [
        UpSetColumn(tuple(n in overlap.members for n in members), overlap.positives, label(overlap.members))
        for overlap in coverage.overlaps
    ]
    drawn = columns[:_MOST_OVERLAPS]
    totals = [member.found.part for member in coverage.members]
    rest = sum(column.positives for column in columns[_MOST_OVERLAPS:])
    return UpSetChart("Who found the positives", "positives found by just these", members, totals, drawn, rest)


def score_chart(health: TaskHealth) -> ScoreChart:
    """Build the chart of the scores of all judged pairs."""
    bubbles = [ScoreBubble(score.answers, score.supports, score.pairs, score.verdict) for score in health.scores]
    cuts = health.cuts
    cut, band = (cuts["answers"], cuts["supports"]), (cuts["band_answers"], cuts["band_supports"])
    values = [value for bubble in bubbles for value in (bubble.x, bubble.y)] + [*cut, *band]
    axes = ("answers: states or establishes the answer", "supports: holds knowledge that it rests on")
    return ScoreChart("Scores of judged pairs", *axes, bubbles, cut, band, (min(values), max(values)))


def save_health_plots(health: TaskHealth, funnel: Sequence[Mapping[str, Any]], place: Path) -> list[Path]:
    """Write the figures: DIR/funnel.svg and so on, or NAME-funnel.png and so on for NAME.png."""
    charts = {"funnel": funnel_chart(funnel), "members": member_chart(health), "scores": score_chart(health)}
    return save_charts(charts, place)
