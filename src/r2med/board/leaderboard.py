"""The board: published figures and one's own runs in one ranking, for one group of tasks and one measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from r2med.board.cells import OTHER_DATA, percent
from r2med.board.chances import BETTER, WORSE, Sample, find_baseline, intervals, significance
from r2med.board.model import OWN, Board, Line, Row
from r2med.board.own import newest_runs, own_rows
from r2med.board.published import published, sources
from r2med.board.sources import dispute, disputed, mean_of, published_rows
from r2med.board.table import GROUP_NOTES
from r2med.data.tasks import registry
from r2med.errors import R2medError, suggest
from r2med.store.ledger import Entry, Ledger
from r2med.store.selection import Current


@dataclass(frozen=True)
class View:
    """Which part of the board to show, and how."""

    group: str = "full"
    tasks: tuple[str, ...] = ()
    """Only these tasks of the group, and the average over them."""
    measure: str = "nDCG@10"
    family: str = ""
    """Only the tasks of this family, and the average over them."""
    kind: str = ""
    retriever: str = ""
    llm: str = ""
    reranker: str = ""
    own: bool = True
    published: bool = True
    sources: tuple[str, ...] = ()
    """Only what these published, and one's own runs under the name "own"; empty for all."""
    limit: int = 0
    """How many lines; 0 for all."""
    intervals: bool = False
    cost: bool = False
    baseline: str = ""
    """The own system that marks of significance are against."""


def board(ledger: Ledger, view: View) -> Board:
    """The board of a view.

    >>> with Ledger() as ledger:
    ...     best = board(ledger, View(kind="base", sources=("paper",))).lines[0]
    >>> best.rank, best.row.name, round(100 * best.average, 2)
    (1, 'base/nv', 31.43)
    """
    tasks = _tasks(view, ledger)
    own = view.own and (not view.sources or OWN in view.sources)
    runs = newest_runs(ledger, view.group, tasks) if own else {}
    rows = own_rows(runs, ledger.means(), view.measure) if runs else []
    rows += _published(view, tasks)
    chosen = _filtered(rows, view)
    lines = ranked(chosen, tasks)
    shown = lines[: view.limit] if view.limit else lines
    complete = {row.name: runs[row.name] for row in rows if row.own and average(row, tasks) is not None}
    shown = _decorated(ledger, shown, complete, view)
    notes = [*_disputes(lines, shown), *_notes(view, shown, runs)]
    return Board(view.group, view.measure, tasks, shown, notes, len(lines) - len(shown), view.cost)


def _decorated(ledger: Ledger, lines: Sequence[Line], complete: Current, view: View) -> list[Line]:
    """The lines with intervals and marks of significance, where these are asked for.

    The baseline need not be among the lines: any system of one's own with all tasks will do.
    """
    if not (view.intervals or view.baseline):
        return list(lines)
    baseline = find_baseline(complete, view.baseline) if view.baseline else ""
    shown = {line.row.name for line in lines if line.row.own}
    samples = {
        name: {task: _sample(ledger, entry, view.measure) for task, entry in entries.items()}
        for name, entries in complete.items()
        if name in shown or name == baseline
    }
    ranges = intervals(samples) if view.intervals else {}
    marks = significance(samples, baseline) if baseline else {}
    return [
        replace(line, intervals=ranges.get(line.row.name, {}), marks=marks.get(line.row.name, {}))
        if line.row.own
        else line
        for line in lines
    ]


def _sample(ledger: Ledger, entry: Entry, measure: str) -> Sample:
    return Sample(entry.queries, ledger.scores(entry)[measure], entry.data)


def _tasks(view: View, ledger: Ledger) -> list[str]:
    """The columns: the group's tasks, or for a group of folders all that were run."""
    known = registry()
    found = [task.name for task in known.values() if task.group == view.group]
    if not found:
        found = sorted({entry.task for entry in ledger.entries(group=view.group)})
    found = list(view.tasks) or found
    chosen = [name for name in found if view.family in ("", known[name].family if name in known else "")]
    if found and not chosen:
        families = {task.family for task in known.values()}
        raise R2medError(f"no family {view.family!r}{suggest(view.family, families)}")
    return chosen


def _published(view: View, tasks: Sequence[str]) -> list[Row]:
    for name in view.sources:
        if name not in (OWN, *sources()):
            raise R2medError(f"no source {name!r}{suggest(name, (OWN, *sources()))}")
    if not view.published:
        return []
    chosen = [
        system
        for system in published()
        if system.source.group == view.group and (not view.sources or system.source.name in view.sources)
    ]
    return published_rows(chosen, view.measure, tasks)


def _filtered(rows: Sequence[Row], view: View) -> list[Row]:
    """The rows with the parts that were asked for; a name that no row has is an error that suggests one."""
    chosen = list(rows)
    filters: tuple[tuple[str, str, Callable[[Row], Iterable[str]]], ...] = (
        ("kind", view.kind, lambda row: (row.parts.kind,)),
        ("retriever", view.retriever, lambda row: row.parts.retrievers),
        ("llm", view.llm, lambda row: row.parts.llms),
        ("reranker", view.reranker, lambda row: row.parts.rerankers),
    )
    for option, wanted, names in filters:
        if not wanted:
            continue
        known = {name for row in rows for name in names(row)}
        if option != "kind" and wanted.casefold() not in {name.casefold() for name in known}:
            raise R2medError(f"no system on this board has the {option} {wanted!r}{suggest(wanted, known)}")
        chosen = [row for row in chosen if wanted.casefold() in {name.casefold() for name in names(row)}]
    return chosen


def ranked(rows: Sequence[Row], tasks: Sequence[str]) -> list[Line]:
    """The rows in the order of their averages, with ranks; what cannot be ranked comes last.

    A system that lacks a task has no average; an oracle, a system that saw other data on a task and one that did no
    query completely have one, and no rank. Equal averages share a rank.
    """
    averages = [average(row, tasks) for row in rows]
    disputes = {id(row) for several in disputed(rows).values() for row in several}
    able = [(value, row) for value, row in zip(averages, rows, strict=True) if value is not None and row.rankable]
    rest = [(value, row) for value, row in zip(averages, rows, strict=True) if value is None or not row.rankable]
    able.sort(key=lambda pair: -pair[0])
    rest.sort(key=lambda pair: -(pair[0] if pair[0] is not None else pair[1].stated or 0.0))
    values = [value for value, _ in able]
    lines = [Line(row, value, values.index(value) + 1, id(row) in disputes) for value, row in able]
    return lines + [Line(row, value, None, id(row) in disputes) for value, row in rest]


def average(row: Row, tasks: Sequence[str]) -> float | None:
    """The mean over the tasks, None when one is missing; where an average was published that agrees, that one."""
    if any(task not in row.values for task in tasks):
        return None
    return mean_of(row, tasks)


def _disputes(lines: Sequence[Line], shown: Sequence[Line]) -> list[str]:
    """A sentence about each disputed system of which a line is shown, with what the lines say that are not."""
    marked = {id(line.row) for line in shown if line.disputed}
    every = disputed([line.row for line in lines])
    return [dispute(system, rows) for system, rows in every.items() if any(id(row) in marked for row in rows)]


def _notes(view: View, lines: Sequence[Line], runs: Current) -> list[str]:
    """What a reader must know about these lines."""
    rows = [line.row for line in lines]
    notes = [
        f"{line.row.name}: an average of {percent(line.row.stated)} was published"
        + (", without figures by task" if line.average is None else ", which is not the mean of its tasks")
        for line in lines
        if line.row.stated is not None and line.row.stated != line.average
    ]
    notes += [incomplete_note(row) for row in rows if row.incomplete]
    notes += _about_runs(view, rows, runs)
    if view.baseline:
        notes.append(about_marks(view.baseline))
    return [*notes, *([GROUP_NOTES[view.group]] if view.group in GROUP_NOTES else [])]


def incomplete_note(row: Row) -> str:
    """The sentence about queries for which a system did not do all it should have.

    >>> incomplete_note(Row("hyde(x) >> bm25", ("own",), {}, queries=9, incomplete=9))
    'hyde(x) >> bm25: all 9 queries incomplete, so it has no rank'
    """
    if row.unmeasured:
        return f"{row.name}: all {row.incomplete} queries incomplete, so it has no rank"
    count = f"{row.incomplete} of {row.queries}" if row.queries else str(row.incomplete)
    return f"{row.name}: {count} queries incomplete"


def about_marks(baseline: str) -> str:
    """The sentence that explains marks of significance."""
    return f"{BETTER} better, {WORSE} worse than {baseline}: paired randomisation test at 5%, after Holm"


def _about_runs(view: View, rows: Sequence[Row], runs: Current) -> list[str]:
    """What is not as it should be with one's own runs."""
    notes = []
    shown: Mapping[str, Mapping[str, object]] = {row.name: row.values for row in rows if row.own}
    unmeasured = [name for name, values in shown.items() if any(task not in values for task in runs[name])]
    if unmeasured:
        notes.append(
            f"not measured by {view.measure} everywhere: {', '.join(unmeasured)};"
            f" r2med run SYSTEM --metrics {view.measure} adds it"
        )
    stale: dict[str, list[str]] = {}
    for row in rows:
        for task in row.other_data:
            stale.setdefault(task, []).append(row.name)
    notes += [
        f"{OTHER_DATA} on {task} measured on other data than the rest, so without a rank: {', '.join(names)};"
        f" r2med run {' '.join(map(repr, names))} --tasks {task} measures it on the present data"
        for task, names in stale.items()
    ]
    return notes
