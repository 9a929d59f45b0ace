"""Runs of the ledger loaded with the data they were made on, one task in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from r2med.data.dataset import Dataset, Generation
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.measure.metrics import Measure
from r2med.measure.score import positive, score
from r2med.pipeline.named_runs import share
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Shared, check_data


def query_values(ledger: Ledger, entry: Entry, measure: str, dataset: Dataset | None = None) -> dict[str, float]:
    """Return a run's values of a measure by query, computed from its ranked lists if they are not stored."""
    values = ledger.scores(entry).get(measure)
    if values is None:
        dataset = load(entry.task) if dataset is None else dataset
        check_data(entry, dataset)
        kind, gold = Measure.parse(measure), dataset.gold
        values = score(ledger.run(entry), gold.qrels, [kind], gold.aspects).values(kind)
    return dict(zip(entry.queries, values.tolist(), strict=True))


TOP = 10
"""Rank down to which a document counts as found."""
HEADLINE = Measure("nDCG", 10)


def deep_cutoff(documents: int) -> int:
    """Return the rank down to which a document counts as reached: 100, or a fifth of a small collection.

    The first 100 of 64 documents contain everything, which would be meaningless.

    >>> deep_cutoff(57_359), deep_cutoff(300), deep_cutoff(64), deep_cutoff(3)
    (100, 60, 12, 10)
    """
    return max(TOP, min(100, documents // 5))


@dataclass(frozen=True)
class LoadedRun:
    """Run with its data, its scores by query and its generations."""

    entry: Entry
    dataset: Dataset
    run: Run
    values: Mapping[str, float]
    """The measure that was asked for, by query."""
    generations: Mapping[str, Sequence[Generation]]

    @property
    def system(self) -> str:
        """Return the name of the system: its spec, and the mark that distinguishes it from others of that spec."""
        return self.entry.name

    @property
    def incomplete(self) -> Mapping[str, str]:
        """Return the queries that a stage did not fully process, with the reasons."""
        return self.entry.incomplete

    @cached_property
    def positives(self) -> Mapping[str, Mapping[str, int]]:
        """Return the relevant documents of every query that has any."""
        return positive(self.dataset.gold.qrels)

    @property
    def deep(self) -> int:
        """Return the deep cutoff of this task."""
        return deep_cutoff(len(self.dataset.collection.documents))

    def found(self, query: str, depth: int) -> Sequence[str]:
        """Return the first documents of a query's list; none for a query that the run lacks."""
        return self.run[query].documents[:depth] if query in self.run else ()


def load_runs(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = (), measure: Measure = HEADLINE
) -> Iterator[tuple[LoadedRun, ...]]:
    """Yield, for each task that all the named systems were run on, their runs in the order of the names.

    Names are those of `selection.select`. Tasks of one group only, and only runs made on the data as it is now.
    """
    yield from open_shared(ledger, share(ledger, names, tasks), measure)


def open_shared(ledger: Ledger, shared: Shared, measure: Measure = HEADLINE) -> Iterator[tuple[LoadedRun, ...]]:
    """Yield the same for systems that were already selected."""
    for task in shared.tasks:
        dataset, loaded = load(task), []
        for entry in shared.on(task):
            check_data(entry, dataset)
            values = query_values(ledger, entry, str(measure), dataset)
            loaded.append(LoadedRun(entry, dataset, ledger.run(entry), values, ledger.generations(entry)))
        yield tuple(loaded)
