"""The tables of translations: the drop of systems in other languages, and the outcome of translating questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.data.task_names import task_names
from r2med.formatting import counted, money, p_text
from r2med.render.table import Column, Table, interval, key, numbers, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from r2med.translation.drop import LanguageDrop
    from r2med.translation.translator import TranslatedTask

_LISTED = 10
"""So many questions that were stopped are named, of each language."""


def show_drops(drops: Sequence[LanguageDrop], measure: str, console: Console) -> None:
    """Print the loss of each system in each language."""
    names = task_names([drop.source for drop in drops])
    console.print(f"{measure} x 100 in other languages, paired by question", style="bold")
    columns = numbers("source", "there", "change", "95% interval", "p (Holm)", "questions")
    table = Table(key("system"), Column("task", folds=True), Column("language"), *columns)
    for drop in drops:
        table.add(
            drop.system,
            names[drop.source],
            drop.language,
            percent(drop.before),
            percent(drop.after),
            percent(drop.found.mean, sign="+"),
            interval(drop.found, "+"),
            p_text(drop.corrected),
            str(drop.found.queries),
        )
    table.show(console)
    lost = {(names[drop.source], drop.language): drop.left_out for drop in drops if drop.left_out}
    for (task, spoken), number in lost.items():
        console.print(f"{task}, {spoken}: left out are {counted(number, 'question')} that only one of the two has.")


def show_translations(made: Sequence[TranslatedTask], console: Console) -> None:
    """Print how many questions passed in each language, and which gates stopped the others."""
    table = Table(key("language"), *numbers("questions", "passed", "in the task", "requests", "dollars"))
    for each in made:
        facts = (len(each.questions), sum(not question.problems for question in each.questions), len(each.kept))
        table.add(each.spoken.name, *(f"{n:,}" for n in (*facts, each.spent.requests)), money(each.spent.cost))
    table.show(console)
    for each in made:
        stopped = [question for question in each.questions if question.problems]
        for question in stopped[:_LISTED]:
            gate, what = question.problems[0]
            console.print(f"{each.spoken.code}: {question.id} stopped by {gate}: {what}")
        if len(stopped) > _LISTED:
            console.print(f"{each.spoken.code}: {len(stopped) - _LISTED:,} more are in translations.jsonl")
