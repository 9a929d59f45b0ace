"""The tables of a review: its projects, and how far one of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.errors import counted
from r2med.render.consoles import say
from r2med.render.grid import Column, Table, key, numbers
from r2med.review.review_rows import ADJUDICATOR, CAUSES, PERSON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from r2med.review.review_progress import HitCount, ReviewProgress


def show_reviews(found: Sequence[ReviewProgress], console: Console) -> None:
    """Print a line for each project."""
    table = Table(
        key("review"), Column("from", folds=True), *numbers("items", "judged", "people", "models"), Column("made (UTC)")
    )
    for each in found:
        people = sum(person.kind == PERSON for person in each.people)
        counts = (f"{each.items:,}", f"{each.judged:,}", str(people), str(len(each.people) - people))
        table.add(each.project.name, " ".join(each.project.sources), *counts, each.project.created[:10])
    table.show(console)


def show_progress(progress: ReviewProgress, console: Console) -> None:
    """Print how far a project is: its items, its people, and what is unclear."""
    project = progress.project
    console.print(project.name, style="bold", highlight=False)
    drawn = ", ".join(f"{count:,} {name}" for name, count in progress.drawn.items())
    say(console, f"{counted(progress.items, 'item')} of {counted(progress.questions, 'question')} ({drawn})")
    say(console, f"drawn from {' '.join(project.sources)}; everybody judges {project.overlap:.0%}")
    if project.open_answer:
        say(console, "the gold answer is in view of everybody from the start")
    if progress.people:
        _people(progress, console)
        by_two = f"{progress.by_two:,} by two or more, {progress.disagreements:,} of them differently"
        models = f"; models and imports: {counted(progress.by_models, 'item')}" if progress.by_models else ""
        say(console, f"judged: {counted(progress.judged, 'item')}, {by_two}; {progress.ruled:,} ruled on{models}")
    for cause, count in progress.causes.items():
        say(console, f"{CAUSES[cause].lower()}: {counted(count, 'time')}")
    for each in progress.trouble:
        say(console, f"unclear {counted(each.count, 'time')}: sentence {each.number + 1}, {each.text!r}")


def _people(progress: ReviewProgress, console: Console) -> None:
    with_models = any(each.kind != PERSON for each in progress.people)
    heads = ("judged", "unsure", "skipped", "seconds", "agree", *(["models"] if with_models else []), "again", "gold")
    table = Table(key("reviewer"), Column("kind"), *numbers(*heads))
    for each in progress.people:
        seconds = "-" if each.seconds is None else f"{each.seconds:.1f}"
        kind = each.role if each.role == ADJUDICATOR else each.kind
        counts = (f"{each.graded or each.ruled:,}", f"{each.unsure:,}", f"{each.skipped:,}", seconds)
        hits = (each.agreement, *([each.models] if with_models else []), each.repeats, each.gold)
        table.add(each.name, kind, *counts, *map(_share, hits))
    table.show(console)
    models = " models: as a model or an import;" if with_models else ""
    meanings = f"agree: same grade as another person;{models} again: as the first time; gold: as is known to be right"
    say(console, meanings)


def _share(share: HitCount) -> str:
    return "-" if share.value is None else f"{share.value:.0%}"
