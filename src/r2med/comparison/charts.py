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
from r2med.render.charts.bubbles import PairDot, PairScatter
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.runs.ledger import Entry
from r2med.web.library import Library
from r2med.workbench.rows import BenchRow, place_scores


def difference_chart(found: Comparison, measure: str) -> DotChart:
    """Chart B minus A by task, family and overall: filled if there is a difference after Holm."""
    headings = task_headings(list(found.tasks))
    names: Mapping[str, Callable[[str], str]]
    names = {"task": headings.__getitem__, "family": lambda name: f"all {families().get(name, name)}", "overall": str}
    shapes = {"task": "disc", "family": "square", "overall": "diamond"}
    points = [
        _difference_point(names[look.kind](look.name), look.found, shapes[look.kind], filled=look.sure)
        for look in found.looks()
    ]
    axis = f"difference in {measure} x 100, 95% interval; filled: shown after Holm"
    return DotChart(f"{found.b} minus {found.a}", axis, points, True, f"{found.b}  minus  {found.a}")


def against_chart(found: Sequence[Comparison], measure: str) -> DotChart:
    """Chart several systems minus one and the same, over all tasks."""
    points = [_difference_point(each.b, each.overall, filled=each.differs) for each in found]
    return DotChart(f"Differences from {found[0].a}", f"difference in {measure} x 100, 95% interval", points, True)


def _difference_point(name: str, found: Difference, shape: str = "disc", *, filled: bool) -> ChartPoint:
    return ChartPoint(name, 100 * found.mean, 100 * found.low, 100 * found.high, shape, filled)


Link = Callable[..., str]
"""Makes the address of the workbench with some values changed."""


@dataclass(frozen=True)
class Transitions:
    """Counts of relevant documents by their cause in A, as rows, and in B, as columns."""

    before: Sequence[Cause]
    after: Sequence[Cause]
    counts: Mapping[tuple[Cause, Cause], int]
    tasks: Sequence[str]
    """Those on which the causes of both are known."""
    unknown: Mapping[str, Sequence[str]]
    """The systems whose causes are unknown on some tasks, with these tasks."""

    @property
    def documents(self) -> int:
        """Return the number of relevant documents."""
        return sum(self.counts.values())

    def count(self, before: Cause | None = None, after: Cause | None = None) -> int:
        """Count the documents with one cause in A and another in B, as far as these are given."""
        return sum(n for (a, b), n in self.counts.items() if before in (None, a) and after in (None, b))

    def shade(self, before: Cause, after: Cause) -> int:
        """Return the shade of a cell, from 0 to 4: by its share of the largest one."""
        most = max(self.counts.values(), default=0)
        return round(4 * (self.counts.get((before, after), 0) / most) ** 0.5) if most else 0


def transitions(library: Library, pairs: Sequence[tuple[Entry, Entry]]) -> Transitions:
    """Count the changes of causes from A's runs to B's, on the tasks where both are known."""
    both = []
    unknown: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        found = [run_causes(library, entry) for entry in pair]
        for entry, diagnosis in zip(pair, found, strict=True):
            if diagnosis is None:
                unknown[entry.name].append(entry.task)
        if found[0] is not None and found[1] is not None:
            both.append((found[0], found[1]))
    counts = moves([a for a, _ in both], [b for _, b in both], of="documents")
    return Transitions(
        [cause for cause in Cause if any(a is cause for a, _ in counts)],
        [cause for cause in Cause if any(b is cause for _, b in counts)],
        counts,
        [a.task for a, _ in both],
        unknown,
    )


def pair_scatter(rows: Sequence[BenchRow], a: str, b: str, measure: str, link: Link) -> PairScatter:
    """Plot every query by its two scores; each mark links to its query, or to the list of those at its place."""
    places: dict[str, list[BenchRow]] = defaultdict(list)
    for row in rows:
        if row.place:
            places[row.place].append(row)
    dots = [_dot(place, found, link) for place, found in places.items()]
    return PairScatter(f"{b} against {a}, query by query", f"A: {a}, {measure} x 100", f"B: {b}", dots)


def _dot(place: str, rows: Sequence[BenchRow], link: Link) -> PairDot:
    first = rows[0]
    if len(rows) == 1:
        said = f"{first.task} · {first.query}: A {percent(first.a or 0.0)}, B {percent(first.b or 0.0)}"
        return PairDot(first.a or 0.0, first.b or 0.0, 1, said, link(task=first.task, query=first.query))
    a, b = place_scores(place)
    said = f"{len(rows)} queries: A about {100 * a:.0f}, B about {100 * b:.0f}"
    return PairDot(a, b, len(rows), said, link(at=place))
