"""Published rows: one for each system and source, joined where sources agree and kept apart where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from r2med.board.model import Parts, Row
from r2med.board.published import Figures, PublishedSystem, sources
from r2med.data.tasks import groups


def published_rows(systems: Sequence[PublishedSystem], measure: str, tasks: Sequence[str]) -> list[Row]:
    """The rows of these systems that have a figure by the measure on one of the tasks, or an average at least."""
    rows = [_row(system, system.figures[measure], tasks) for system in systems if measure in system.figures]
    return joined([row for row in rows if row.values or row.stated is not None])


def _row(system: PublishedSystem, figures: Figures, tasks: Sequence[str]) -> Row:
    values = {task: figures.tasks[task] for task in tasks if task in figures.tasks}
    return Row(
        name=system.name,
        sources=(system.source.name,),
        values=values,
        system=system.system,
        parts=published_parts(system),
        # A published average is over all tasks: it says nothing about some of them.
        stated=figures.average if len(tasks) == len(groups()[system.source.group]) else None,
        max_query=system.max_query,
        max_document=system.max_document,
        note=system.note,
    )


def published_parts(system: PublishedSystem) -> Parts:
    """What a published system is made of, by the benchmark's names and by r2med's."""
    asked = system.generate.partition("(")[2].partition(")")[0] if system.generate else ""
    return Parts(
        system.kind,
        (system.retriever,),
        tuple(dict.fromkeys(name for name in (system.llm, asked) if name)),
        (system.reranker,) if system.reranker else (),
    )


def joined(rows: Sequence[Row]) -> list[Row]:
    """The rows, with those of the same system made one where all figures that they share are the same but for rounding.

    The one with more digits stays and names all its sources. What differs is never averaged: both rows stay.
    """
    kept: list[Row] = []
    for row in rows:
        same = [place for place, other in enumerate(kept) if _identity(row) == _identity(other) and agree(row, other)]
        place = same[0] if same else None
        if place is None:
            kept.append(row)
        else:
            finer, other = sorted((kept[place], row), key=rounding)
            kept[place] = replace(
                finer,
                sources=(*kept[place].sources, *row.sources),
                max_query=finer.max_query or other.max_query,
                max_document=finer.max_document or other.max_document,
                note=finer.note or other.note,
            )
    return kept


def _identity(row: Row) -> str:
    """What says that two published rows are of one system: its spec, or its name where there is no spec."""
    return row.system or row.name


def agree(one: Row, other: Row) -> bool:
    """Whether two rows have the same tasks and the same figures, as far as their digits go."""
    slack = rounding(one) + rounding(other) + 1e-12
    return one.values.keys() == other.values.keys() and all(
        abs(value - other.values[task]) <= slack for task, value in one.values.items()
    )


def rounding(row: Row) -> float:
    """How far a published row's figures may be from what was measured, by being rounded."""
    return min(sources()[name].rounding for name in row.sources)


def disputed(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The systems that several published rows still speak of, with these rows: their sources disagree."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if not row.own:
            found.setdefault(_identity(row), []).append(row)
    return {system: several for system, several in found.items() if len(several) > 1}


def dispute(system: str, rows: Sequence[Row]) -> str:
    """A sentence about what sources say of a system.

    >>> paper = Row("base/x", ("paper",), {"A": 0.1, "B": 0.2}, max_query=512, max_document=512)
    >>> dispute("x", [paper, Row("base/x", ("page",), {"A": 0.1, "B": 0.25})])
    'sources disagree about x: paper 15.00 at 512 tokens, page 17.50 (1 of 2 tasks differ, by 5.00 at the most)'
    """
    shown = ", ".join(f"{'+'.join(row.sources)} {_mean(row)}{_limits(row)}" for row in rows)
    shared = [task for task in rows[0].values if all(task in row.values for row in rows)]
    spans = [_span(rows, task) for task in shared]
    slack = sum(map(rounding, rows)) + 1e-12
    differing = sum(span > slack for span in spans)
    tail = f" ({differing} of {len(shared)} tasks differ, by {100 * max(spans):.2f} at the most)" if spans else ""
    return f"sources disagree about {system}: {shown}{tail}"


def _limits(row: Row) -> str:
    """How much of a text was read, which moves a figure more than most settings; nothing where nobody said."""
    if row.max_query is None or row.max_document is None:
        return ""
    limits = dict.fromkeys((row.max_query, row.max_document))
    return f" at {'/'.join(f'{limit:,}' for limit in limits)} tokens"


def _span(rows: Sequence[Row], task: str) -> float:
    values = [row.values[task] for row in rows]
    return max(values) - min(values)


def _mean(row: Row) -> str:
    return f"{100 * mean_of(row, list(row.values)):.2f}" if row.values else "-"


def mean_of(row: Row, tasks: Sequence[str]) -> float:
    """The mean over tasks that a row has; where an average was published that agrees, that one."""
    mean = sum(row.values[task] for task in tasks) / len(tasks)
    # An average that lies halfway between two digits may have been rounded either way.
    return row.stated if row.stated is not None and abs(mean - row.stated) <= 1.02 * rounding(row) else mean
