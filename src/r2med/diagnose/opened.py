"""Runs of the ledger opened beside the data they were made on, one task in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from r2med.compare import find_runs
from r2med.data import load
from r2med.data.model import Dataset, Generation
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.measure.score import positive, score
from r2med.ranking import Run
from r2med.store.ledger import Entry, Ledger

TOP = 10
"""A document counts as found when it is among so many."""
HEADLINE = Measure("nDCG", 10)


def deep_cutoff(documents: int) -> int:
    """How deep a document may stand and still count as reached: 100, or a fifth of a collection that is small.

    Among the first 100 of 64 documents there is everything, which would say nothing.

    >>> deep_cutoff(57_359), deep_cutoff(300), deep_cutoff(64), deep_cutoff(3)
    (100, 60, 12, 10)
    """
    return max(TOP, min(100, documents // 5))


@dataclass(frozen=True)
class Opened:
    """A run with its data, its scores by query and what was generated."""

    entry: Entry
    dataset: Dataset
    run: Run
    values: Mapping[str, float]
    """The measure that was asked for, by query."""
    generations: Mapping[str, Sequence[Generation]]

    @property
    def system(self) -> str:
        """The system's spec."""
        return self.entry.system

    @property
    def incomplete(self) -> Mapping[str, str]:
        """Queries for which a stage did not do what it should have, and why."""
        found: Mapping[str, str] = self.entry.record.get("incomplete", {})
        return found

    @cached_property
    def positives(self) -> Mapping[str, Mapping[str, int]]:
        """The relevant documents of every query that has any."""
        return positive(self.dataset.gold.qrels)

    @property
    def deep(self) -> int:
        """The deep cutoff of this task."""
        return deep_cutoff(len(self.dataset.collection.documents))

    def found(self, query: str, depth: int) -> Sequence[str]:
        """The first documents of a query's list; none for a query that the run lacks."""
        return self.run[query].documents[:depth] if query in self.run else ()


def open_tasks(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = (), measure: Measure = HEADLINE
) -> Iterator[tuple[Opened, ...]]:
    """For each task that all the named systems were run on, their runs, in the order of the names.

    A name is a spec or the id of a run. Tasks of one group only, and only runs made on the data as it is now.
    """
    found = {name: find_runs(ledger, name, tasks=tasks) for name in dict.fromkeys(names)}
    first = found[names[0]]
    shared = [task for task in first if all(task in runs for runs in found.values())]
    if not shared:
        raise R2medError(f"{' and '.join(names)} have no task in common in the ledger")
    groups = {first[task].group for task in shared}
    if len(groups) > 1:
        raise R2medError(f"these runs are of several groups ({', '.join(sorted(groups))}); choose with --tasks")
    for task in shared:
        dataset = load(task)
        yield tuple(_open(ledger, found[name][task], dataset, measure) for name in names)


def _open(ledger: Ledger, entry: Entry, dataset: Dataset, measure: Measure) -> Opened:
    if entry.record["data"]["fingerprint"] != dataset.fingerprint:
        again = f"r2med run {entry.system!r} --tasks {entry.task}"
        raise R2medError(f"the data of {entry.task} has changed since run {entry.id} of {entry.system}; {again}")
    run = ledger.run(entry)
    known = ledger.scores(entry).get(str(measure))
    if known is None:
        known = score(run, dataset.gold.qrels, [measure]).values(measure)
    values = dict(zip(entry.queries, known.tolist(), strict=True))
    return Opened(entry, dataset, run, values, ledger.generations(entry))
