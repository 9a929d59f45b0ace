"""The tables of a build: the funnel, what steps would cost, and everything about one question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from r2med.build.package import remarks
from r2med.render.consoles import say
from r2med.render.grid import Table, key, numbers
from r2med.runs.cost import money

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from r2med.build.build_progress import BuildProgress
    from r2med.build.step_pricing import Foreseen


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


PRICED = (
    "Steps are priced as if every question got through and every pool were as large as it can be; replies that are"
    " asked for again come on top. ? is a price that is not known."
)


def show_estimate(steps: Sequence[Foreseen], console: Console, note: str = PRICED) -> None:
    """Print what each step that asks a model would take."""
    headings = ("items", "requests", "answered already", "tokens read", "tokens written", "dollars", "at most")
    table = Table(key("step"), *numbers(*headings))
    for step in steps:
        guess = step.guess
        counts = (step.items, guess.requests, guess.cached, guess.prompt_tokens, guess.completion_tokens)
        table.add(step.step, *(f"{count:,}" for count in counts), money(guess.cost), money(guess.cost_limit))
    table.rule()
    table.add("sum", *[""] * 5, *(money(_total([getattr(s.guess, name) for s in steps])) for name in _MONEY))
    table.show(console)
    console.print(note, style="dim")
    if assumed := [step.step for step in steps if step.guess.is_default]:
        console.print(
            f"No reply to such requests is kept yet, so that tokens written are a default: {', '.join(assumed)}.",
            style="dim",
        )


_MONEY = ("cost", "cost_limit")


def _total(costs: Sequence[float | None]) -> float | None:
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def show_question(found: Mapping[str, Any], console: Console) -> None:
    """Print everything about one question."""
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
