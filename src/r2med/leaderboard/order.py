"""The order of a board's lines; families of tasks are columns too, with the mean over their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from r2med.data.tasks import AVERAGE, registry
from r2med.errors import R2medError, suggest
from r2med.render.scores.model import Line

FAMILY = "family:"
"""What stands before the name of a family where it is a column: the mean over the family's tasks."""
Families = Mapping[str, Sequence[str]]
"""The tasks of a board by family."""
INTERVAL = "interval"
ORDERS = ("rank", "name", "average", INTERVAL, "seconds", "dollars")
"""What lines can be sorted by beside tasks and families; intervals of the average by their lower ends."""


def families_of(tasks: Sequence[str]) -> dict[str, list[str]]:
    """Return the families of a board that has several, with their tasks; nothing for a board of one family."""
    found: dict[str, list[str]] = {}
    for name in tasks:
        task = registry().get(name)
        found.setdefault(task.family if task else "", []).append(name)
    return found if len(found) > 1 and "" not in found else {}


def figure_of(line: Line, column: str, families: Families) -> float | None:
    """Return the figure of a line in a column; a family's is the mean over its tasks, if it has all of them."""
    if not column.startswith(FAMILY):
        return line.value(column)
    values = [line.row.values.get(task) for task in families[column.removeprefix(FAMILY)]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def ordered(
    lines: Sequence[Line], sort: str, *, descending: bool = True, families: Families | None = None
) -> list[Line]:
    """Sort lines by a column (`rank` for the board's own order, `name`, or a task), those without a figure last."""
    if sort == "rank":
        return list(lines) if descending else list(reversed(lines))
    if sort == "name":
        return sorted(lines, key=lambda line: line.row.name.casefold(), reverse=not descending)
    column = AVERAGE if sort == "average" else sort
    if sort in ("seconds", "dollars"):
        figures = [(_saved(line, sort), line) for line in lines]
    elif sort == INTERVAL:
        figures = [(_lower_end(line), line) for line in lines]
    else:
        figures = [(figure_of(line, column, families or {}), line) for line in lines]
    have = [(value, line) for value, line in figures if value is not None]
    have.sort(key=lambda pair: -pair[0] if descending else pair[0])
    return [line for _, line in have] + [line for value, line in figures if value is None]


def _lower_end(line: Line) -> float | None:
    """Return the lower end of the interval of a system's average; None if there is no interval."""
    found = line.intervals.get(AVERAGE)
    return None if found is None else found.low


def _saved(line: Line, sort: str) -> float | None:
    """Return a system's cost as a negative number, so that the cheapest is the best; None if it is unknown."""
    cost = line.row.cost
    value = None if cost is None else cost.seconds_per_query if sort == "seconds" else cost.dollars
    return None if value is None else -value


def check_column(sort: str, tasks: Sequence[str]) -> str:
    """Return a column that a board of these tasks can be sorted by; any other is an error that suggests one."""
    known = [*ORDERS, *tasks, *(FAMILY + name for name in families_of(tasks))]
    if sort not in known:
        raise R2medError(f"no column {sort!r}{suggest(sort, known)}")
    return sort


def containing(lines: Sequence[Line], text: str) -> list[Line]:
    """Return the lines in whose name, parts or sources every word of a text occurs."""
    wanted = text.casefold().split()
    return [line for line in lines if all(word in _words(line) for word in wanted)] if wanted else list(lines)


def _words(line: Line) -> str:
    row = line.row
    parts = (row.name, row.system, row.parts.kind, *row.parts.retrievers, *row.parts.llms, *row.parts.rerankers)
    return "\n".join((*parts, *row.sources)).casefold()
