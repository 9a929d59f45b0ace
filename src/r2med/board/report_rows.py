"""The boards of an evaluation: its systems in the order they were asked for, a board for each group and measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from r2med.board.board_significance import Sample, about_marks, intervals, significance
from r2med.board.local_rows import mean_recall_lost, parts_of
from r2med.board.model import OWN, RECALL_LOST, Board, BoardRow, Line
from r2med.data.task_names import GROUP_NOTES
from r2med.runs.report import Report, Result, failure_lines


@dataclass(frozen=True)
class Shown:
    """What the boards of an evaluation show beside the means."""

    intervals: bool = False
    cost: bool = False
    baseline: str = ""
    """The system that marks of significance are against."""


def boards_from_report(report: Report, measures: Sequence[str] = (), shown: Shown | None = None) -> list[Board]:
    """A board for each group and measure, the headline alone when no measure is named."""
    wanted = list(measures) or report.measures[:1]
    boards = [_board(report, group, measure, shown or Shown()) for group in report.groups for measure in wanted]
    return [board for board in boards if board.lines]


def _board(report: Report, group: str, measure: str, shown: Shown) -> Board:
    tasks = report.tasks(group)
    found = {
        system: [result for task in tasks if (result := report.result(system, task)) is not None]
        for system in report.systems
    }
    averages = {system: report.average(system, group, measure) for system in found}
    samples = {
        system: {result.task: _sample(result, measure) for result in results}
        for system, results in found.items()
        if averages[system] is not None
    }
    ranges = intervals(samples) if shown.intervals else {}
    marks = significance(samples, shown.baseline) if shown.baseline else {}
    lines = [
        Line(
            replace(_report_row(system, results, measure), system=report.specs.get(system, system)),
            averages[system],
            intervals=ranges.get(system, {}),
            marks=marks.get(system, {}),
        )
        for system, results in found.items()
        if results
    ]
    return Board(group, measure, tasks, lines, _notes(report, group, shown, lines), 0, shown.cost, shown.baseline)


def _sample(result: Result, measure: str) -> Sample:
    return Sample(result.query_ids, result.scores[measure], result.record.data.fingerprint or "")


def _report_row(system: str, results: Sequence[Result], measure: str) -> BoardRow:
    oracle = any(result.oracle for result in results)
    return BoardRow(
        name=system,
        sources=(OWN,),
        values={result.task: result.metrics[measure] for result in results if measure in result.metrics},
        parts=parts_of(results[0].record.stages or (), oracle=oracle),
        oracle=oracle,
        incomplete=sum(len(result.incomplete) for result in results),
        runs={result.task: result.run_id for result in results if result.run_id},
        cost=reduce(add, [result.cost for result in results]),
        recall_lost=mean_recall_lost([result.record for result in results]),
    )


def _notes(report: Report, group: str, shown: Shown, lines: Sequence[Line]) -> list[str]:
    notes = [f"{line.row.name}: {line.row.incomplete} queries incomplete" for line in lines if line.row.incomplete]
    if any(line.row.recall_lost is not None for line in lines):
        notes.append(RECALL_LOST)
    notes += failure_lines(report.failures, report.names)
    notes += [about_marks(shown.baseline)] if shown.baseline else []
    return [*notes, *([GROUP_NOTES[group]] if group in GROUP_NOTES else [])]
