"""The tables of a build: the funnel, the estimated cost of steps, and the history of one question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from r2med.construction.health_report import health_sections
from r2med.construction.package import remarks
from r2med.formatting import money
from r2med.render.sections import show_sections
from r2med.render.table import Table, key, numbers, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from r2med.construction.health import TaskHealth
    from r2med.llm.items import Count


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
    console.print(history["id"], style="bold")
    for step, value in history["steps"].items():
        for name, content in value.items():
            repeated = name == "id" or (step == "read" and name == "text")
            if not repeated and content not in ("", [], None):
                console.print(f"{step}: {name}: {_line(content)}")
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


def _line(content: object) -> str:
    if isinstance(content, list | tuple):
        return " | ".join(map(str, content))
    if isinstance(content, dict):
        return "; ".join(f"{name}: {value}" for name, value in content.items())
    return str(content)


def show_health(health: TaskHealth, console: Console) -> None:
    """Print the report on a task's health."""
    # The question that a check asks is for pages: on a terminal its name and figure have to do.
    verdict, *others = health_sections(health)
    shown = replace(verdict, headings=verdict.headings[:-1], rows=[row[:-1] for row in verdict.rows])
    show_sections([shown, *others], console)
