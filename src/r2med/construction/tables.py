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
    from collections.abc import Mapping

    from rich.console import Console

    from r2med.construction.health import TaskHealth
    from r2med.construction.progress import BuildProgress


def show_funnel(built: BuildProgress, console: Console) -> None:
    """Print how many items each step kept and what it took, and below why items were dropped, failed or are marked."""
    table = Table(key("step"), *numbers("items", "kept", "requests", "dollars"))
    for count in built.counts:
        asked = [f"{count.spent.requests:,}", money(count.spent.cost)] if count.spent.requests else ["", ""]
        table.add(count.step, f"{count.items:,}", f"{count.kept:,}", *asked)
    table.show(console)
    for count in built.counts:
        for remark in remarks(count):
            say(console, f"{count.step}: {remark}")


def show_question(found: Mapping[str, Any], console: Console) -> None:
    """Print the history of one question."""
    console.print(found["id"], style="bold")
    for step, value in found["steps"].items():
        for name, content in value.items():
            told = name == "id" or (step == "read" and name == "text")
            if not told and content not in ("", [], None):
                console.print(f"{step}: {name}: {_line(content)}")
    if found["dropped"]:
        console.print(f"dropped: {found['dropped']}", style="bold")
    for number, candidate in enumerate(found["candidates"], 1):
        _show_candidate(number, candidate, console)


def _show_candidate(number: int, candidate: Mapping[str, Any], console: Console) -> None:
    grades = f"answers {candidate['answers']:g}, supports {candidate['supports']:g}" if "answers" in candidate else "?"
    console.print(
        f"\n{number}. {candidate['passage']}: {candidate['verdict'] or 'not selected yet'} ({grades})", style="bold"
    )
    ways = (
        f"{way['system']} by {way['view']} at {way['rank']}" if way["rank"] else "source" for way in candidate["found"]
    )
    console.print(f"   found: {'; '.join(ways)}")
    for opinion in candidate.get("opinions", ()):
        mark = " (not in the passage)" if opinion["quote_state"] == "invented" else ""
        quote = f' "{opinion["quote"]}"{mark}' if opinion["quote"] else ""
        console.print(
            f"   {opinion['judge']}: {opinion['answers']:g}, {opinion['supports']:g}: {opinion['reason']}{quote}"
        )
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
