"""Results of an evaluation: by system and task, their averages, and what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from r2med.data.task_names import task_names
from r2med.errors import Postponed
from r2med.formatting import counted
from r2med.measure.bootstrap import board_intervals
from r2med.measure.figure import Figure
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Failure:
    """Failure of a system on a task: missing from the table, never a zero."""

    system: str
    task: str
    message: str
    group: str = ""  # the group of the task

    def as_dict(self) -> dict[str, str]:
        """Return the failure for `--json`."""
        return {"system": self.system, "task": self.task, "error": self.message}


def failure_lines(failures: Sequence[Failure], names: Mapping[str, str] | None = None) -> list[str]:
    """Describe failures, a line each; the same failure on several tasks is one line. Tasks may have names.

    >>> failure_lines([Failure("hyde(x) >> bm25", task, "no such model") for task in ("Biology", "MedQA-Diag")])
    ['failed: hyde(x) >> bm25 on Biology, MedQA-Diag: no such model']
    """
    tasks: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        tasks.setdefault((failure.system, failure.message), []).append((names or {}).get(failure.task, failure.task))
    return [
        f"failed: {system and f'{system} on '}{', '.join(several)}: {message}"
        for (system, message), several in tasks.items()
    ]


Row = TypeVar("Row", Entry, Failure)


@dataclass(frozen=True, repr=False)
class Report:
    """Results of one evaluation.

    Prints as a table; `per_query()` is a data frame; `average(system, group, measure)` is the headline number.

    >>> import r2med
    >>> report = r2med.evaluate("bm25", "sample/Biology")
    >>> report, report.systems, round(100 * report.average("bm25", "sample", "nDCG@10"), 2)
    (Report(1 system on 1 task), ['bm25'], 37.16)
    """

    results: list[Entry]
    failures: list[Failure] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)  # all tasks asked for and their groups, in that order
    headline: Sequence[str] = ()  # the measures asked for, which it prints and `per_query` has; empty for the defaults
    postponed: list[Failure] = field(default_factory=list)  # parts that other commands of the batch do
    specs: Mapping[str, str] = field(default_factory=dict)  # the spec of each system that is shown under another name

    def whole(self) -> Report:
        """Return this report; raise `Postponed` if other commands of the batch have to do something first."""
        if self.postponed:
            lines = (f"{part.task}: {line}" for part in self.postponed for line in part.message.splitlines())
            raise Postponed("\n".join(dict.fromkeys(lines)))
        return self

    def named(self, systems: Mapping[str, str], tasks: Mapping[str, str] | None = None) -> Report:
        """Return the same with names in place of some specs and tasks, for tables and files that others read."""

        def rename(row: Row) -> Row:
            system, task = systems.get(row.system, row.system), (tasks or {}).get(row.task, row.task)
            return replace(row, system=system, task=task)

        return replace(
            self,
            results=list(map(rename, self.results)),
            failures=list(map(rename, self.failures)),
            asked=[((tasks or {}).get(task, task), group) for task, group in self.asked],
            specs={name: spec for spec, name in systems.items()},
        )

    @cached_property
    def systems(self) -> list[str]:
        """Return the systems, in the order they were asked for."""
        failed = (failure.system for failure in self.failures if failure.system)
        return list(dict.fromkeys([*(result.system for result in self.results), *failed]))

    @cached_property
    def groups(self) -> list[str]:
        """Return the groups of the tasks: each has its own averages and its own table."""
        return list(dict.fromkeys(group for _, group in self._columns))

    @cached_property
    def _columns(self) -> list[tuple[str, str]]:
        """Return every task and its group, even if all systems failed on it: without it, averages would change."""
        failed = [(failure.task, failure.group) for failure in self.failures if failure.group]
        return list(dict.fromkeys([*self.asked, *((result.task, result.group) for result in self.results), *failed]))

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the tasks as sentences name them, folders by as much of their path as distinguishes them."""
        return task_names(task for task, _ in self._columns)

    def tasks(self, group: str) -> list[str]:
        """Return the tasks of a group, in the order they were asked for."""
        return [task for task, column in self._columns if column == group]

    @cached_property
    def measures(self) -> list[str]:
        """Return the measures, the headline first."""
        return list(dict.fromkeys(measure for result in self.results for measure in result.scores))

    def result(self, system: str, task: str) -> Entry | None:
        """Return the result of a system on a task, or None if it is missing."""
        return next((r for r in self.results if r.system == system and r.task == task), None)

    def average(self, system: str, group: str, measure: str) -> float | None:
        """Return the mean over the group's tasks; None if the system lacks one of them."""
        results = [self.result(system, task) for task in self.tasks(group)]
        values = [result.metrics[measure] for result in results if result is not None and measure in result.metrics]
        return float(np.mean(values)) if values and len(values) == len(results) else None

    def cost(self, system: str, group: str) -> Cost:
        """Return the costs of a system on a group's tasks, together."""
        costs = [result.cost for result in self.results if result.system == system and result.group == group]
        return sum(costs, Cost())

    def averages(self, group: str) -> dict[str, dict[str, float]]:
        """Return every complete system's averages over a group."""
        table: dict[str, dict[str, float]] = defaultdict(dict)
        for system, measure in product(self.systems, self.measures):
            if (value := self.average(system, group, measure)) is not None:
                table[system][measure] = value
        return dict(table)

    def intervals(self, group: str, measure: str) -> dict[str, dict[str, Figure]]:
        """Return each complete system's 95% intervals in a group, by task, with the average's under an empty name."""
        tasks = self.tasks(group)
        complete = [system for system in self.systems if self.average(system, group, measure) is not None]
        if not complete:
            return {}
        scores = {(result.system, result.task): result.scores for result in self.results}
        board = {task: np.array([scores[system, task][measure] for system in complete]) for task in tasks}
        by_task, average = board_intervals(board)
        return {
            system: {**{task: by_task[task][place] for task in tasks}, "": average[place]}
            for place, system in enumerate(complete)
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the report for `--json`. Tasks of several groups have no common average: `averages` is then empty."""
        groups = {group: self.averages(group) for group in self.groups}
        content: dict[str, Any] = {
            "results": [result.as_dict() for result in self.results],
            "averages": next(iter(groups.values())) if len(groups) == 1 else {},
            "groups": groups,
            "intervals": {
                group: {
                    system: {task or "average": [interval.low, interval.high] for task, interval in row.items()}
                    for measure in self.measures[:1]
                    for system, row in self.intervals(group, measure).items()
                }
                for group in self.groups
            },
        }
        if self.failures:
            content["failures"] = [failure.as_dict() for failure in self.failures]
        return content

    def per_query(self) -> pl.DataFrame:
        """Return a table of one row per system, task and query, and one column per measure."""
        import polars as pl

        frames = []
        for result in self.results:
            names = [name for name in result.scores if not self.headline or name in self.headline]
            frame = pl.DataFrame({"query": result.queries, **{name: result.scores[name] for name in names}})
            place = (pl.lit(result.system).alias("system"), pl.lit(result.task).alias("task"))
            frames.append(frame.select(*place, pl.all()))
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()

    def __repr__(self) -> str:
        tasks = len({result.task for result in self.results})
        failed = f", {counted(len(self.failures), 'failure')}" if self.failures else ""
        return f"Report({counted(len(self.systems), 'system')} on {counted(tasks, 'task')}{failed})"

    def __str__(self) -> str:
        from r2med.render.scores.report import show_report
        from r2med.render.table import print_plainly

        return print_plainly(lambda report, console: show_report(report, console, report.headline), self)

    def _repr_html_(self) -> str:
        from r2med.render.scores.report import boards_from_report
        from r2med.render.scores.text import tables_html

        return tables_html(boards_from_report(self, self.headline), failure_lines(self.failures))
