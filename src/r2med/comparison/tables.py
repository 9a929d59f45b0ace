"""Comparisons as tables: all pairs at a glance, and each pair by task."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from string import ascii_letters

from rich.console import Console

from r2med.comparison.study import Comparison, PowerPlan
from r2med.data.task_names import GROUP_TITLES, task_names
from r2med.formatting import counted, p_text
from r2med.measure.significance import POWER
from r2med.render.sections import Section, show_sections
from r2med.render.table import Cell, cells, column, percent, signed_interval, signed_percent

_COLUMNS = (
    column("mean", "diff", signed_percent),
    column("", "95% interval", signed_interval, get=lambda change: change),
    column("randomisation", "p (rand)", p_text),
    column("t_test", "p (t)", p_text),
    column("", "win/tie/loss", get=lambda change: f"{change.wins}/{change.ties}/{change.losses}"),
    column("effect", form="{:+.2f}".format),
    column("detectable", form=percent),
    column("queries"),
)
"""The columns of a difference."""


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def show_pair(pair: Comparison, console: Console) -> None:
    """Print one comparison."""
    show_sections(comparison_sections([pair], pair.measure), console)


def comparison_sections(comparisons: Sequence[Comparison], measure: str, *, by_task: bool = False) -> list[Section]:
    """Return one pair by task; of several pairs all at a glance, and each by task if that is asked for.

    Every group of tasks stands by itself.
    """
    groups = list(dict.fromkeys(one.group for one in comparisons))
    sections: list[Section] = []
    for group in groups:
        pairs = [one for one in comparisons if one.group == group]
        whose = f", {GROUP_TITLES.get(group, group)}" if len(groups) > 1 else ""
        if len(pairs) > 1:
            sections += _all_pairs(pairs, measure, whose)
        if len(pairs) == 1 or by_task:
            sections += [_pair(one, measure, whose) for one in pairs]
    return sections


def _all_pairs(comparisons: Sequence[Comparison], measure: str, whose: str) -> list[Section]:
    """Return a matrix of the systems, and a row with interval and p-value for each pair."""
    systems = list(dict.fromkeys(name for one in comparisons for name in (one.a, one.b)))
    many = len(systems) > len(ascii_letters)
    letter = {name: str(place + 1) if many else ascii_letters[place] for place, name in enumerate(systems)}
    oracles = frozenset[str]().union(*(one.oracles for one in comparisons))
    cells = {(row, column): "" for row in systems for column in systems}
    rows: list[list[Cell]] = []
    for one in comparisons:
        overall, star = one.overall, "*" if one.differs else ""
        cells[one.b, one.a] = signed_percent(overall.mean).wide + star
        cells[one.a, one.b] = signed_percent(-overall.mean).wide + star
        wins = f"{overall.wins}/{overall.ties}/{overall.losses}"
        pair = f"{letter[one.b]} - {letter[one.a]}"
        rows.append([pair, signed_percent(overall.mean), signed_interval(overall), p_text(one.corrected), wins])
    tasks = counted(len(comparisons[0].tasks), "task")
    matrix = [
        [f"{letter[row]}  {row}{' (oracle)' * (row in oracles)}", *(cells[row, column] for column in systems)]
        for row in systems
    ]
    return [
        Section(
            f"{measure} x 100, row minus column, {tasks}, {comparisons[0].overall.queries} queries{whose}",
            ("system", *letter.values()),
            matrix,
            [
                f"*: a difference at the 5% level, after Holm over {len(comparisons)} pairs",
                *dict.fromkeys(sentence for one in comparisons for sentence in _incomplete(one)),
            ],
        ),
        Section(
            f"{measure} x 100, pair by pair{whose}",
            ("pair", "diff", "95% interval", "p (Holm)", "win/tie/loss"),
            rows,
            ["The intervals are of single pairs, not corrected for the number of pairs."],
        ),
    ]


def _pair(one: Comparison, measure: str, whose: str) -> Section:
    """Return a pair by task, by family and overall, with what follows from it."""
    names = task_names(one.tasks)
    rows = [[names[task], *cells(_COLUMNS, value)] for task, value in one.tasks.items()]
    rows += [[f"all {family}", *cells(_COLUMNS, value)] for family, value in one.families.items()]
    if len(one.tasks) > 1:
        rows.append(["all tasks", *cells(_COLUMNS, one.overall)])
    sentences = [one.verdict]
    if len(one.tasks) > 1:
        differing = ", ".join(names[task] for task in one.differing_tasks) or "none of them"
        sentences.append(f"By task, after Holm over {len(one.tasks)} tasks, a difference is shown on: {differing}.")
    sentences += _incomplete(one)
    alone = "Intervals and p of a line are of that line alone; the sentences are corrected after Holm. "
    power = f"detectable: the smallest difference that so many queries show with {POWER:.0%} power."
    sentences.append(power if len(one.tasks) == 1 else alone + power)
    headings = (f"{measure} x 100", *(column.heading for column in _COLUMNS))
    return Section(f"{one.b}  minus  {one.a}{whose}", headings, rows, sentences, total=len(one.tasks) > 1)


def _incomplete(one: Comparison) -> list[str]:
    """Return what a reader must know before the verdict is quoted."""
    return [
        f"{count} of {one.overall.queries} queries of {name} were incomplete: it was not fully measured."
        for name, count in zip((one.a, one.b), one.incomplete, strict=True)
        if count
    ]


_PLANNED = (column("queries"), column("detectable", form=percent), column("needed", form=_count))


def plan_sections(plans: Sequence[PowerPlan]) -> list[Section]:
    """Return the queries that a difference needs, task by task and over all tasks, a section per pair."""
    sections = []
    for plan in plans:
        names, points = task_names(plan.tasks), f"{100 * plan.difference:g} points"
        rows = [[names[task], *cells(_PLANNED, one)] for task, one in plan.tasks.items()]
        rows += [["all tasks", *cells(_PLANNED, plan.overall)]] * (len(plan.tasks) > 1)
        overall = plan.overall
        if overall.needed is None:
            verdict = "All differences are equal: they say nothing about how many queries are needed."
        elif overall.needed <= overall.queries:
            verdict = f"The {overall.queries:,} queries are enough to show {points}: {overall.needed:,} are needed."
        else:
            verdict = f"To show {points}, {overall.needed:,} queries are needed, and there are {overall.queries:,}."
        power = f"needed: queries that show {points} with {POWER:.0%} power at the 5% level, by the paired test;"
        power += " over all tasks, in the present proportions."
        headings = (f"{plan.measure} x 100", *(one.heading for one in _PLANNED))
        title = f"Queries for a difference of {points}: {plan.b}  minus  {plan.a}"
        sections.append(Section(title, headings, rows, [verdict, power], total=len(plan.tasks) > 1))
    return sections


def comparison_csv(comparisons: Sequence[Comparison]) -> str:
    """Return a row for each pair and task, and for each pair over all tasks."""
    rows = [
        {"a": one.a, "b": one.b, "task": task, **value.as_dict(), "holm": p}
        for one in comparisons
        for task, value, p in (
            *((task, value, one.corrected_tasks[task]) for task, value in one.tasks.items()),
            ("all", one.overall, one.corrected),
        )
    ]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
