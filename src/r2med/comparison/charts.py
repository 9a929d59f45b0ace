"""Charts of comparisons: differences with intervals, changes of causes, and every query by its two scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from r2med.comparison.study import Comparison
from r2med.data.task_names import task_headings
from r2med.data.tasks import families
from r2med.diagnosis.attribution import run_causes
from r2med.diagnosis.causes import Cause, moves
from r2med.formatting import percent
from r2med.measure.significance import Difference
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.render.charts.scatter import PairDot, PairScatter
from r2med.runs.ledger import Entry
from r2med.web.library import Library
from r2med.workbench.bench import BenchRow, place_scores


def difference_chart(comparison: Comparison, measure: str) -> DotChart:
    """Chart B minus A by task, family and overall: filled if there is a difference after Holm."""
    headings, sure = task_headings(list(comparison.tasks)), comparison.differing_tasks
    points = [_difference_point(headings[task], one, filled=task in sure) for task, one in comparison.tasks.items()]
    sure = comparison.differing_families
    points += [
        _difference_point(f"all {families().get(name, name)}", change, "square", filled=name in sure)
        for name, change in comparison.families.items()
    ]
    if len(comparison.tasks) > 1:
        points.append(_difference_point("all tasks", comparison.overall, "diamond", filled=comparison.differs))
    axis = f"difference in {measure} x 100, 95% interval; filled: shown after Holm"
    title, heading = f"{comparison.b} minus {comparison.a}", f"{comparison.b}  minus  {comparison.a}"
    return DotChart(title, axis, points, True, heading)


def against_chart(comparisons: Sequence[Comparison], measure: str) -> DotChart:
    """Chart several systems minus one and the same, over all tasks."""
    points = [_difference_point(one.b, one.overall, filled=one.differs) for one in comparisons]
    return DotChart(
        f"Differences from {comparisons[0].a}", f"difference in {measure} x 100, 95% interval", points, True
    )


def _difference_point(name: str, change: Difference, shape: str = "disc", *, filled: bool) -> ChartPoint:
    return ChartPoint(name, 100 * change.mean, 100 * change.low, 100 * change.high, shape, filled)


@dataclass(frozen=True)
class Transitions:
    """Counts of relevant documents by their cause in A, as rows, and in B, as columns."""

    before: Sequence[Cause]
    after: Sequence[Cause]
    counts: Mapping[tuple[Cause, Cause], int]
    tasks: Sequence[str]  # those on which the causes of both are known
    unknown: Mapping[str, Sequence[str]]  # the systems whose causes are unknown on some tasks, with these tasks

    def count(self, before: Cause | None = None, after: Cause | None = None) -> int:
        """Count the documents with one cause in A and another in B, as far as these are given."""
        return sum(n for (a, b), n in self.counts.items() if before in (None, a) and after in (None, b))

    def shade(self, before: Cause, after: Cause) -> int:
        """Return the shade of a cell, from 0 to 4: by its share of the largest one."""
        most = max(self.counts.values(), default=0)
        return round(4 * (self.counts.get((before, after), 0) / most) ** 0.5) if most else 0


def transitions(library: Library, pairs: Sequence[tuple[Entry, Entry]]) -> Transitions:
    """Count the changes of causes from A's runs to B's, on the tasks where both are known."""
    before, after = [], []
    unknown: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        a, b = (run_causes(library, entry) for entry in pair)
        for entry, diagnosis in zip(pair, (a, b), strict=True):
            if diagnosis is None:
                unknown[entry.name].append(entry.task)
        if a is not None and b is not None:
            before.append(a)
            after.append(b)
    counts = moves(before, after, of="documents")
    causes = ([cause for cause in Cause if any(step[side] is cause for step in counts)] for side in (0, 1))
    return Transitions(next(causes), next(causes), counts, [diagnosis.task for diagnosis in before], unknown)


def pair_scatter(rows: Sequence[BenchRow], a: str, b: str, measure: str, link: Callable[..., str]) -> PairScatter:
    """Plot every query by its two scores; each mark has a link to its query, or to the list of those at its place."""
    places: dict[str, list[BenchRow]] = defaultdict(list)
    for row in rows:
        if row.place:
            places[row.place].append(row)
    dots = []
    for place, several in places.items():
        if len(several) == 1:
            first = several[0]
            left, right = first.a or 0.0, first.b or 0.0
            text = f"{first.task} · {first.query}: A {percent(left)}, B {percent(right)}"
            dots.append(PairDot(left, right, 1, text, link(task=first.task, query=first.query)))
        else:
            left, right = place_scores(place)
            text = f"{len(several)} queries: A about {100 * left:.0f}, B about {100 * right:.0f}"
            dots.append(PairDot(left, right, len(several), text, link(at=place)))
    return PairScatter(f"{b} against {a}, query by query", f"A: {a}, {measure} x 100", f"B: {b}", dots)
