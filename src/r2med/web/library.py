"""The ledger as a server reads it: what was read once is kept until the ledger changes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from r2med.data.dataset import Dataset
from r2med.data.loader import cached_task, load, present_fingerprints
from r2med.data.run import Run
from r2med.data.tasks import Task, registry, resolve
from r2med.errors import R2medError
from r2med.measure.bootstrap import task_intervals
from r2med.measure.figure import Figure
from r2med.pipeline.loaded_runs import HEADLINE, LoadedRun
from r2med.pipeline.registry import named
from r2med.render.scores.model import Board, BoardRow, View
from r2med.render.scores.significance import Sample, intervals, unbeaten
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Current, current_runs, made_on
from r2med.store.cache import home
from r2med.web.jobs import Jobs

Value = TypeVar("Value")
_BOARD = "r2med.leaderboard.board:board"  # ranks the lines of a view
_KEPT = {"version": 256, "run": 128, "data": 10, "interval": 4096, "scores": 4096, "causes": 2048}
_KEPT |= {"comparison": 64, "scatter": 32, "ties": 64, "opened": 64}
"""How many of each sort are kept."""


class Library:
    """Boards, runs and data, safe for several threads; each has its own connection to the ledger."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "ledger.sqlite"
        self._local = threading.local()
        self._lock = threading.Lock()
        self.jobs = Jobs()  # what pages have asked to be done
        self._kept: dict[str, OrderedDict[Hashable, Any]] = {sort: OrderedDict() for sort in _KEPT}

    @property
    def ledger(self) -> Ledger:
        """Return this thread's ledger."""
        if not hasattr(self._local, "ledger"):
            self._local.ledger, self._local.file = Ledger(self.path), self._file()
        return self._local.ledger  # type: ignore[no-any-return]  # of this thread

    def _file(self) -> tuple[int, int]:
        """Identify the ledger's file, whatever its name; zeros if there is none."""
        return next(((facts.st_dev, facts.st_ino) for facts in _facts(self.path)), (0, 0))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold the ledger as it was at one moment, for everything that one page reads."""
        # A file that was removed or replaced would be shown for ever.
        if hasattr(self._local, "ledger") and self._local.file != self._file():
            self._local.ledger.close()
            del self._local.ledger
        with self.ledger.snapshot() as state:
            self._local.version = (*self._stamp(), *state)
            try:
                yield
            finally:
                del self._local.version

    def version(self) -> tuple[int, ...]:
        """Return a value that differs whenever the ledger was written to; the same all through a page."""
        return getattr(self._local, "version", None) or (*self._stamp(), *self.ledger.state())

    def _stamp(self) -> tuple[int, ...]:
        """Return the dates and sizes of the ledger's files."""
        files = _facts(self.path, self.path.with_name(self.path.name + "-wal"))
        return tuple(number for facts in files for number in (facts.st_mtime_ns, facts.st_size))

    def keep(self, sort: str, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a value by its key, computed if it is missing; the newest of each sort are kept, but never None."""
        with self._lock:
            if key in self._kept[sort]:
                self._kept[sort].move_to_end(key)
                return self._kept[sort][key]  # type: ignore[no-any-return]  # what `make` gave before
        value = make()
        if value is not None:
            self.put(sort, key, value)
        return value

    def kept(self, sort: str, key: Hashable) -> Any:
        """Return a value that is kept; None otherwise."""
        with self._lock:
            return self._kept[sort].get(key)

    def put(self, sort: str, key: Hashable, value: object) -> None:
        """Keep a value, in place of the oldest of its sort."""
        shelf = self._kept[sort]
        with self._lock:
            shelf[key] = value
            while len(shelf) > _KEPT[sort]:
                shelf.popitem(last=False)

    def current(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a value that is valid as long as the ledger does not change."""
        return self.keep("version", (self.version(), key), make)

    def entries(self) -> Sequence[Entry]:
        """Return every run, newest first."""
        return self.current("entries", self.ledger.entries)

    def groups(self) -> list[str]:
        """Return the groups of all runs."""
        return self.current("groups", lambda: list(dict.fromkeys(entry.group for entry in self.entries())))

    def newest(self, system: str, group: str) -> dict[str, Entry]:
        """Return the current run of a system on each task of a group, in the order of the tasks."""
        runs = self.current_runs().get(system, {})
        return {task: entry for task, entry in runs.items() if entry.group == group}

    def current_runs(self) -> Current:
        """Return the current run of each system on each task."""
        return self.current("runs", lambda: current_runs(self.entries()))

    def systems(self, group: str, task: str = "") -> list[str]:
        """Return the systems with a run in a group, or on one task of it."""
        entries = (entry for entry in self.entries() if entry.group == group and task in ("", entry.task))
        return self.current(("systems", group, task), lambda: sorted({entry.name for entry in entries}))

    def oracles(self, group: str) -> list[str]:
        """Return those of a group's systems that were shown the gold answers."""
        entries = (entry for entry in self.entries() if entry.group == group and entry.oracle)
        return self.current(("oracles", group), lambda: sorted({entry.name for entry in entries}))

    def tasks(self) -> set[str]:
        """Return every task that a page may show documents of: those of runs, and those that come with the package."""
        bundled = {task.name for task in registry().values() if task.folder is not None}
        return self.current("tasks", lambda: bundled | {entry.task for entry in self.entries()})

    def means(self) -> Mapping[str, Mapping[str, float]]:
        """Return every run's means."""
        return self.current("means", self.ledger.means)

    def measures(self) -> list[str]:
        """Return every measure by which a run was measured, the headline first."""
        names = (measure for means in self.means().values() for measure in means)
        return self.current("measures", lambda: list(dict.fromkeys([str(HEADLINE), *names])))

    def board(self, view: View) -> Board:
        """Return a whole board without intervals."""
        folders = sorted({entry.task for entry in self.entries() if entry.group == view.group})
        present = tuple(present_fingerprints(folders).items())
        make: Callable[[Ledger, View], Board] = named(_BOARD)
        return self.current((view, present), lambda: make(self.ledger, view))

    def intervals(self, lines: Sequence[BoardRow], measure: str) -> dict[str, Mapping[str, Figure]]:
        """Return the intervals of local lines, cached by their runs; missing ones are computed together."""
        keys = {line.name: (measure, *sorted(line.runs.values())) for line in lines}
        cached = {name: self.kept("interval", key) for name, key in keys.items()}
        missing = [line for line in lines if cached[line.name] is None]
        computed = intervals(self._samples(missing, measure))
        for name, by_task in computed.items():
            self.put("interval", keys[name], by_task)
        return {name: by_task for name, by_task in cached.items() if by_task is not None} | computed

    def unbeaten(self, lines: Sequence[BoardRow], measure: str) -> set[str]:
        """Return the local systems of a board that the best of them does not beat, cached by their runs."""
        local = [line for line in lines if line.own and line.rank is not None]
        if len(local) < 2:
            return set()
        best, runs = local[0].name, sorted(tuple(line.runs.values()) for line in local)
        return self.keep("ties", (measure, best, *runs), lambda: unbeaten(self._samples(local, measure), best))

    def _samples(self, lines: Sequence[BoardRow], measure: str) -> dict[str, dict[str, Sample]]:
        """Return the values of the runs of local lines by system and task."""
        entries = self.by_id()

        def sample(entry: Entry) -> Sample:
            return Sample(entry.queries, self.ledger.scores(entry)[measure], entry.data)

        return {line.name: {task: sample(entries[run]) for task, run in line.runs.items()} for line in lines}

    def by_id(self) -> Mapping[str, Entry]:
        """Return every run by its id."""
        return self.current("by id", lambda: {entry.id: entry for entry in self.entries()})

    def entry(self, name: str) -> Entry:
        """Return a run by its whole id."""
        if (entry := self.by_id().get(name)) is None:
            raise R2medError(f"no run {name!r} in the ledger")
        return entry

    def query_scores(self, entry: Entry, measure: str = str(HEADLINE)) -> Mapping[str, float]:
        """Return a run's values of a measure by query; empty if it was not measured by it."""

        def make() -> dict[str, float]:
            values = self.ledger.scores(entry).get(measure)
            return {} if values is None else dict(zip(entry.queries, values.tolist(), strict=True))

        return self.keep("scores", (entry.key, entry.created, measure), make)

    def interval(self, entry: Entry, measure: str) -> Figure | None:
        """Return the interval of one run; None if it was not measured."""

        def make() -> Figure | None:
            values = self.ledger.scores(entry).get(measure)
            return task_intervals(values)[0] if values is not None and len(values) else None

        return self.keep("interval", ("run", measure, entry.key), make)

    def run(self, entry: Entry) -> Run:
        """Return the ranked lists of a run."""
        return self.keep("run", entry.key, lambda: self.ledger.run(entry))

    def has_data(self, task: str) -> bool:
        """Return whether a task's data is on this machine, without reading it."""
        return self.kept("data", task) is not None or _place_of(task) is not None

    def dataset(self, task: str) -> Dataset | None:
        """Return the data of a task if it is on this machine: a page never downloads anything."""
        return self.keep("data", task, lambda: _load_if_local(task))

    def query_text(self, task: str, query: str) -> str:
        """Return the text of a query; empty if the data is not local."""
        dataset = self.dataset(task)
        queries = dataset.collection.queries if dataset else None
        return queries.text(query) if queries and query in queries.position else ""

    def loaded_run(self, entry: Entry) -> LoadedRun | None:
        """Return a run with its data; None if that is not local or has changed since."""
        dataset = self.dataset(entry.task)
        if dataset is None or not made_on(entry, dataset):
            return None

        def make() -> LoadedRun:
            values = self.query_scores(entry) or dict.fromkeys(entry.queries, 0.0)
            return LoadedRun(entry, dataset, self.run(entry), values, self.ledger.generations(entry))

        return self.keep("opened", (entry.key, entry.created, dataset.fingerprint), make)


def _facts(*paths: Path) -> Iterator[os.stat_result]:
    for path in paths:
        with suppress(OSError):
            yield path.stat()


def _place_of(name: str) -> Task | None:
    """Return a task whose files are on this machine; None for any other."""
    try:
        task = resolve([name])[0]
        return task if task.folder is not None or cached_task(task) is not None else None
    except R2medError:
        # A folder that was moved away since.
        return None


def _load_if_local(name: str) -> Dataset | None:
    """Return the data of a task if it needs no download; None otherwise."""
    try:
        return load(task) if (task := _place_of(name)) else None
    except R2medError:
        # Files that were damaged since: the page then shows ids only.
        return None
