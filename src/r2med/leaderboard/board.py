"""Boards: published rows and the current local runs of a view, ranked together, with notes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from r2med.data.loader import present_fingerprints
from r2med.data.published import published, sources
from r2med.data.task_names import GROUP_NOTES
from r2med.data.tasks import AVERAGE, FOLDER_GROUPS, groups, registry
from r2med.errors import R2medError, suggest
from r2med.formatting import percent
from r2med.render.scores.model import (
    ABOVE,
    CONTAMINATION,
    DETAILS,
    FAR_APART,
    FIRST_STAGE,
    OTHER_DATA,
    OWN,
    RANKS,
    RECALL_LOST,
    Board,
    BoardRow,
    SystemParts,
    View,
)
from r2med.render.scores.report import local_row
from r2med.render.scores.significance import (
    Sample,
    Samples,
    about_marks,
    about_ranks,
    find_baseline,
    intervals,
    significance,
    unbeaten,
    with_ranks,
)
from r2med.runs.contamination import ContaminationFacts
from r2med.runs.ledger import Ledger
from r2med.runs.selection import Current, current_data, current_runs

FAMILY = "family:"
"""What stands before the name of a family where it is a column: the mean over the family's tasks."""
Families = Mapping[str, Sequence[str]]
"""The tasks of a board by family."""
INTERVAL = "interval"
ORDERS = ("rank", "name", "average", INTERVAL, "seconds", "dollars")
"""What lines can be sorted by beside tasks and families; intervals of the average by their lower ends."""


def families_of(tasks: Sequence[str]) -> dict[str, list[str]]:
    """Return the families of a board that has several, with their tasks; nothing for a board of one family."""
    families: dict[str, list[str]] = {}
    for name in tasks:
        families.setdefault(registry()[name].family if name in registry() else "", []).append(name)
    return families if len(families) > 1 and "" not in families else {}


def figure_of(line: BoardRow, column: str, families: Families) -> float | None:
    """Return the figure of a line in a column; a family's is the mean over its tasks, if it has all of them."""
    if not column.startswith(FAMILY):
        return line.value(column)
    tasks = families[column.removeprefix(FAMILY)]
    figures = [line.values[task] for task in tasks if task in line.values]
    return sum(figures) / len(figures) if len(figures) == len(tasks) else None


def ordered(
    lines: Sequence[BoardRow], sort: str, *, descending: bool = True, families: Families | None = None
) -> list[BoardRow]:
    """Sort lines by a column (`rank` for the board's own order, `name`, or a task), those without a figure last."""
    if sort == "rank":
        return list(lines) if descending else list(reversed(lines))
    if sort == "name":
        return sorted(lines, key=lambda line: line.name.casefold(), reverse=not descending)

    def value(line: BoardRow) -> float | None:
        if sort in ("seconds", "dollars"):  # the cheapest is the best
            cost = line.cost
            amount = None if cost is None else cost.seconds_per_query if sort == "seconds" else cost.dollars
            return None if amount is None else -amount
        if sort == INTERVAL:
            return line.intervals[AVERAGE].low if AVERAGE in line.intervals else None
        return figure_of(line, AVERAGE if sort == "average" else sort, families or {})

    figures = [(value(line), line) for line in lines]
    measured = [(figure, line) for figure, line in figures if figure is not None]
    measured.sort(key=lambda pair: pair[0], reverse=descending)
    return [line for _, line in measured] + [line for figure, line in figures if figure is None]


def containing(lines: Sequence[BoardRow], text: str) -> list[BoardRow]:
    """Return the lines in whose name, parts or sources every word of a text occurs."""
    words = text.casefold().split()

    def matches(line: BoardRow) -> bool:
        names = (line.name, line.system, line.parts.kind, *line.parts.names, *line.sources)
        return all(word in "\n".join(names).casefold() for word in words)

    return list(filter(matches, lines))


def local_rows(
    runs: Current, means: Mapping[str, Mapping[str, float]], measure: str, present: Mapping[str, str] | None = None
) -> list[BoardRow]:
    """Return a row for each system; `means` are the ledger's, `present` the fingerprints of the data of tasks now."""
    latest = sorted((entry for row in runs.values() for entry in row.values()), key=lambda entry: -entry.used)
    data = current_data(latest) | dict(present or {})
    rows = []
    for system, by_task in runs.items():
        entries = list(by_task.values())
        measured = {task: means.get(entry.id, {}) for task, entry in by_task.items()}
        values = {task: values[measure] for task, values in measured.items() if measure in values}
        other_data = tuple(task for task, entry in by_task.items() if entry.data != data[task])
        rows.append(local_row(system, entries, values, system=entries[0].system, other_data=other_data))
    return rows


_ABOUT_CONTAMINATION = (
    "contamination: what is known of the training data of a system's models; it changes no rank, and not known does not"
    " mean clean"
)
NO_AVERAGE = "These folders need not belong together, so there is no average and no rank: choose tasks (--tasks)"
"""The note under a board of all folders that were ever run."""


def board(ledger: Ledger, view: View, selected: Current | None = None) -> Board:
    """Build the board of a view, with the current runs of every system, or those that were selected.

    >>> with Ledger() as ledger:
    ...     best = board(ledger, View(kind="base", sources=("paper",))).lines[0]
    >>> best.rank, best.name, round(100 * best.average, 2)
    (1, 'base/nv', 31.43)
    """
    tasks = _tasks(view, ledger)
    averaged = view.group not in FOLDER_GROUPS or bool(view.tasks) or len(tasks) < 2
    columns = [*ORDERS, *tasks, *(FAMILY + name for name in families_of(tasks))]
    if view.sort not in columns:
        raise R2medError(f"no column {view.sort!r}{suggest(view.sort, columns)}")
    present: Mapping[str, str] = {}
    runs: Current = selected or {}
    if selected is None and view.own and (not view.sources or OWN in view.sources):
        present = present_fingerprints(tasks)
        current = current_runs([entry for entry in ledger.entries(group=view.group) if entry.task in tasks], present)
        # Systems and tasks in a fixed order.
        runs = {name: {task: row[task] for task in tasks if task in row} for name, row in sorted(current.items())}
    rows = local_rows(runs, ledger.means(view.measure), view.measure, present) if runs else []
    complete = {row.name: runs[row.name] for row in rows if row.values.keys() >= set(tasks)}
    rows = ranked(_filtered(rows + _published_rows(view, tasks), view), tasks, averaged=averaged)
    if RANKS in view.details:
        rows = with_ranks(rows, _samples(ledger, complete, view.measure, complete))
    if CONTAMINATION in view.details:
        facts = ContaminationFacts.read()
        rows = [replace(row, contamination=facts.of(row.parts.names, row.system, tasks)) for row in rows]
    matching = [row for row in containing(rows, view.find) if view.oracles or not row.oracle]
    lines = ordered(matching, view.sort, descending=not view.ascending, families=families_of(tasks))
    if view.sort == INTERVAL and averaged:
        lines = _decorated(ledger, lines, complete, View(measure=view.measure, intervals=True))
        lines = ordered(lines, INTERVAL, descending=not view.ascending)
    visible = _decorated(ledger, lines[: view.limit or None], complete, view)
    if not averaged:
        visible = [replace(row, intervals=_by_task(row.intervals), marks=_by_task(row.marks)) for row in visible]
    details = {*view.details, *[FIRST_STAGE] * (view.kind == "reranker"), *[ABOVE] * (RANKS in view.details)}
    return Board(
        view.group,
        view.measure,
        tasks,
        visible,
        _notes(view, lines, visible, runs) + ([] if averaged else [NO_AVERAGE]),
        left_out=len(lines) - len(visible),
        cost=view.cost,
        baseline=view.baseline,
        details=tuple(name for name in DETAILS if name in details),
        averaged=averaged,
    )


def _by_task(values: Mapping[str, Any]) -> dict[str, Any]:
    return {task: value for task, value in values.items() if task != AVERAGE}


def _decorated(ledger: Ledger, lines: Sequence[BoardRow], complete: Current, view: View) -> list[BoardRow]:
    """Add intervals and marks of significance to the lines, if the view has them.

    The baseline need not be among the lines: any local system with all tasks will do.
    """
    if not (view.intervals or view.baseline or view.ties):
        return list(lines)
    baseline = find_baseline(complete, view.baseline) if view.baseline else ""
    names = {line.name for line in lines if line.own} | {baseline}
    samples = _samples(ledger, complete, view.measure, names)
    ranges = intervals(samples) if view.intervals else {}
    marks = significance(samples, baseline) if baseline else {}
    local = [line.name for line in lines if line.own and line.rank is not None]
    tied = unbeaten({name: samples[name] for name in local}, local[0]) if view.ties and local else set()
    return [
        replace(line, intervals=ranges.get(line.name, {}), marks=marks.get(line.name, {}), tied=line.name in tied)
        if line.own
        else line
        for line in lines
    ]


def _samples(ledger: Ledger, complete: Current, measure: str, names: Container[str]) -> Samples:
    """Return the scores of every query of some local systems that have all tasks."""
    return {
        name: {task: Sample(run.queries, ledger.scores(run)[measure], run.data) for task, run in by_task.items()}
        for name, by_task in complete.items()
        if name in names
    }


def _tasks(view: View, ledger: Ledger) -> list[str]:
    """Return the columns: the group's tasks, or for a group of folders all that were run."""
    families = {name: task.family for name, task in registry().items()}
    tasks = list(view.tasks) or [name for name, task in registry().items() if task.group == view.group]
    tasks = tasks or sorted({entry.task for entry in ledger.entries(group=view.group)})
    columns = [name for name in tasks if view.family in ("", families.get(name, ""))]
    if tasks and not columns:
        raise R2medError(f"no family {view.family!r}{suggest(view.family, set(families.values()))}")
    return columns


def _published_rows(view: View, tasks: Sequence[str]) -> list[BoardRow]:
    """Return the rows of published systems that have a figure by the measure on one of the tasks, or an average."""
    for name in view.sources:
        if name not in (OWN, *sources()):
            raise R2medError(f"no source {name!r}{suggest(name, (OWN, *sources()))}")
    rows = [
        BoardRow(
            name=system.name,
            sources=(system.source.name,),
            values={task: figures.tasks[task] for task in tasks if task in figures.tasks},
            system=system.system,
            parts=SystemParts(
                system.kind,
                (system.retriever,),
                # Named as the benchmark does and as r2med does.
                tuple(dict.fromkeys(filter(None, (system.llm, system.generate.partition("(")[2].partition(")")[0])))),
                (system.reranker,) if system.reranker else (),
            ),
            # A published average is over all tasks: it says nothing about some of them.
            stated=figures.average if len(tasks) == len(groups()[view.group]) else None,
            max_query=system.max_query,
            max_document=system.max_document,
            note=system.note,
        )
        for system in (published() if view.published else ())
        if system.source.group == view.group
        and (not view.sources or system.source.name in view.sources)
        and (figures := system.figures.get(view.measure)) is not None
    ]
    return joined([row for row in rows if row.values or row.stated is not None])


def _filtered(rows: Sequence[BoardRow], view: View) -> list[BoardRow]:
    """Select the rows with the parts of a view; a name that no row has is an error that suggests one."""
    matching = list(rows)
    filters: tuple[tuple[str, str, Callable[[BoardRow], Iterable[str]]], ...] = (
        ("kind", view.kind, lambda row: (row.parts.kind,)),
        ("retriever", view.retriever, lambda row: row.parts.retrievers),
        ("llm", view.llm, lambda row: row.parts.llms),
        ("reranker", view.reranker, lambda row: row.parts.rerankers),
    )
    for option, value, names in filters:
        every = {name for row in rows for name in names(row)}
        if value and option != "kind" and value.casefold() not in {name.casefold() for name in every}:
            raise R2medError(f"no system on this board has the {option} {value!r}{suggest(value, every)}")
        if value:
            matching = [row for row in matching if value.casefold() in {name.casefold() for name in names(row)}]
    return matching


def ranked(rows: Sequence[BoardRow], tasks: Sequence[str], *, averaged: bool = True) -> list[BoardRow]:
    """Order the rows by their averages, with ranks; what cannot be ranked comes last.

    A system that lacks a task has no average; an oracle, a system that saw other data on a task and one that did no
    query completely have one, and no rank. Equal averages share a rank. Tasks that do not belong together have no
    average (`averaged`), so that no system has a rank.
    """
    gaps = {id(row): apart(several) for several in disputed(rows).values() for row in several}
    able: list[BoardRow] = []
    rest: list[BoardRow] = []
    for row in rows:
        average = mean_of(row, tasks) if averaged and row.values.keys() >= set(tasks) else None
        row = replace(row, average=average, disputed=id(row) in gaps, apart=gaps.get(id(row), 0.0))
        (rest if average is None or row.oracle or row.unmeasured or row.other_data else able).append(row)
    able.sort(key=lambda row: -(row.average or 0))
    rest.sort(key=lambda row: -(row.stated or 0.0 if row.average is None else row.average))
    values = [row.average for row in able]
    return [replace(row, rank=values.index(row.average) + 1) for row in able] + rest


def _notes(view: View, lines: Sequence[BoardRow], visible: Sequence[BoardRow], runs: Current) -> list[str]:
    """Return what a reader must know about the visible lines."""
    marked = {(line.name, line.sources) for line in visible if line.disputed}
    notes = [
        dispute(system, rows)
        for system, rows in disputed(lines).items()
        if any((row.name, row.sources) in marked for row in rows)
    ]
    notes += [
        f"{line.name}: an average of {percent(line.stated)} was published"
        + (", without figures by task" if line.average is None else ", which is not the mean of its tasks")
        for line in visible
        if line.stated is not None and line.stated != line.average
    ]
    notes += [incomplete_note(row) for row in visible if row.incomplete]
    notes += [RECALL_LOST] if any(row.recall_lost is not None for row in visible) else []
    notes += _about_runs(view, visible, runs)
    notes += [about_marks(view.baseline)] if view.baseline else []
    notes += about_ranks(visible) if RANKS in view.details else []
    notes += [_ABOUT_CONTAMINATION] if CONTAMINATION in view.details else []
    return [*notes, *([GROUP_NOTES[view.group]] if view.group in GROUP_NOTES else [])]


def incomplete_note(row: BoardRow) -> str:
    """Describe the queries for which a system did not do all it should have.

    >>> incomplete_note(BoardRow("hyde(x) >> bm25", ("own",), {}, queries=9, incomplete=9))
    'hyde(x) >> bm25: all 9 queries incomplete, so it has no rank'
    """
    if row.unmeasured:
        return f"{row.name}: all {row.incomplete} queries incomplete, so it has no rank"
    count = f"{row.incomplete} of {row.queries}" if row.queries else str(row.incomplete)
    return f"{row.name}: {count} queries incomplete"


def _about_runs(view: View, rows: Sequence[BoardRow], runs: Current) -> list[str]:
    """Return remarks on what is wrong with local runs."""
    notes = []
    local: Mapping[str, Mapping[str, object]] = {row.name: row.values for row in rows if row.own}
    unmeasured = [name for name, values in local.items() if any(task not in values for task in runs[name])]
    if unmeasured:
        notes.append(
            f"not measured by {view.measure} everywhere: {', '.join(unmeasured)};"
            f" r2med run SYSTEM --measures {view.measure} adds it"
        )
    for name in local:
        entry = next(iter(runs[name].values()))
        if entry.variant:
            # Only the ends of paths: a board may be published.
            places = " and ".join("/".join(PurePath(place).parts[-2:]) for place in entry.record.local)
            notes.append(f"{name}: run of {entry.created[:10]} with {places}")
    stale: dict[str, list[str]] = {}
    for row in rows:
        for task in row.other_data:
            stale.setdefault(task, []).append(row.name)
    notes += [
        f"{OTHER_DATA} on {task} measured on other data than it has now, so without a rank: {', '.join(names)};"
        f" r2med run {' '.join(map(repr, names))} --tasks {task} measures it on the present data"
        for task, names in stale.items()
    ]
    return notes


def joined(rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Merge rows of the same system if all figures that they share are the same but for rounding.

    The one with more digits stays and names all its sources. What differs is never averaged: both rows stay.
    """
    merged: dict[int, BoardRow] = {}
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        same = places.setdefault(row.system or row.name, [])
        place = next((place for place in same if agree(row, merged[place])), None)
        if place is None:
            merged[number] = row
            same.append(number)
            continue
        finer, other = sorted((merged[place], row), key=rounding)
        merged[place] = replace(
            finer,
            sources=(*merged[place].sources, *row.sources),
            max_query=finer.max_query or other.max_query,
            max_document=finer.max_document or other.max_document,
            note=finer.note or other.note,
        )
    return list(merged.values())


def agree(one: BoardRow, other: BoardRow) -> bool:
    """Return whether two rows have the same tasks and the same figures, as far as their digits go."""
    slack = rounding(one) + rounding(other) + 1e-12
    return one.values.keys() == other.values.keys() and all(
        abs(value - other.values[task]) <= slack for task, value in one.values.items()
    )


def rounding(row: BoardRow) -> float:
    """Return how far a published row's figures may be from what was measured, by being rounded."""
    return min(sources()[name].rounding for name in row.sources)


def disputed(rows: Sequence[BoardRow]) -> dict[str, list[BoardRow]]:
    """Return the systems that several published rows still name, with these rows: their sources disagree."""
    systems: dict[str, list[BoardRow]] = {}
    for row in rows:
        if not row.own:
            systems.setdefault(row.system or row.name, []).append(row)
    return {system: several for system, several in systems.items() if len(several) > 1}


def dispute(system: str, rows: Sequence[BoardRow]) -> str:
    """Describe in a sentence what sources report about a system.

    >>> paper = BoardRow("base/x", ("paper",), {"A": 0.1, "B": 0.2}, max_query=512, max_document=512)
    >>> dispute("x", [paper, BoardRow("base/x", ("page",), {"A": 0.1, "B": 0.25})])
    'sources disagree about x: paper 15.00 at 512 tokens, page 17.50 (1 of 2 tasks differ, by 5.00 at the most)'
    """
    # The token limit moves a figure more than most settings.
    figures = [
        f"{'+'.join(row.sources)} {percent(mean_of(row, list(row.values)) if row.values else None)}"
        + (f" at {row.token_limit} tokens" if row.token_limit else "")
        for row in rows
    ]
    shared = _shared_tasks(rows)
    columns = [[row.values[task] for row in rows] for task in shared]
    spans = [max(values) - min(values) for values in columns]
    slack = sum(map(rounding, rows)) + 1e-12
    differing = sum(span > slack for span in spans)
    far = f"; averages {percent(apart(rows))} apart" if apart(rows) >= FAR_APART else ""
    tail = f" ({differing} of {len(shared)} tasks differ, by {percent(max(spans))} at the most{far})" if spans else ""
    return f"sources disagree about {system}: {', '.join(figures)}{tail}"


def _shared_tasks(rows: Sequence[BoardRow]) -> list[str]:
    return [task for task in rows[0].values if all(task in row.values for row in rows)]


def apart(rows: Sequence[BoardRow]) -> float:
    """Return the difference between the highest and the lowest mean, over the tasks that all rows have.

    >>> round(apart([BoardRow("x", ("paper",), {"A": 0.4}), BoardRow("x", ("page",), {"A": 0.25, "B": 0.9})]), 4)
    0.15
    """
    shared = _shared_tasks(rows)
    if not shared:
        return 0.0
    # A published average is over all tasks of its row.
    means = [mean_of(row if len(shared) == len(row.values) else replace(row, stated=None), shared) for row in rows]
    return max(means) - min(means)


def mean_of(row: BoardRow, tasks: Sequence[str]) -> float:
    """Average over tasks that a row has; if an average was published that agrees, return that one."""
    mean = sum(row.values[task] for task in tasks) / len(tasks)
    # An average that lies halfway between two digits may have been rounded either way.
    return row.stated if row.stated is not None and abs(mean - row.stated) <= 1.02 * rounding(row) else mean
