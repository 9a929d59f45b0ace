"""Runs of the ledger written in the formats of other tools: which runs, measured how, into which files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from r2med.board import result_files
from r2med.board.result_files import Measured, Named
from r2med.compare import find_runs
from r2med.data.model import Dataset
from r2med.errors import DataError, R2medError
from r2med.export import file_name
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.ranking import Run
from r2med.runfiles import write_run
from r2med.store.files import write_file
from r2med.store.ledger import Entry, Ledger

GROUPS: Mapping[str, str] = {"trec": "", "mteb": "full", "r2med": "full", "hakari": "nano"}
"""Every format, and the only group of tasks that it knows; empty for any."""


@dataclass(frozen=True)
class Target:
    """Where the files go, and under which name."""

    folder: Path
    name: str = ""
    """What the model is called in them; empty for a name made of the system's spec."""
    revision: str = ""


def export(ledger: Ledger, names: Sequence[str], form: str, target: Target, tasks: Sequence[str] = ()) -> list[Path]:
    """Write the runs that are named by spec or id, and return the files."""
    written: list[Path] = []
    for entry in chosen_runs(ledger, names, GROUPS[form], tasks):
        _check(entry, form)
        found = Exported(entry, ledger.run(entry))
        written += _write_lists(found, target) if form == "trec" else _write_results(found, form, target)
    return list(dict.fromkeys(written))


def chosen_runs(ledger: Ledger, names: Sequence[str], group: str = "", tasks: Sequence[str] = ()) -> list[Entry]:
    """The newest runs of systems by spec, and single runs by id, each once."""
    found: dict[str, Entry] = {}
    for name in names:
        for entry in find_runs(ledger, name, group, tasks).values():
            found[entry.id] = entry
    return list(found.values())


def _check(entry: Entry, form: str) -> None:
    """Refuse runs that a format has no place for."""
    if GROUPS[form] and entry.group != GROUPS[form]:
        raise R2medError(f"run {entry.id} is on {entry.task}: the format {form} is for {GROUPS[form]} tasks only")
    if form != "trec" and entry.record.get("oracle"):
        raise R2medError(
            f"run {entry.id} was shown the answers (oracle): it is no result, only its lists can be written"
        )


@dataclass(frozen=True)
class Exported:
    """A run on its way into a file."""

    entry: Entry
    run: Run

    @cached_property
    def dataset(self) -> Dataset:
        """The data that it was made on."""
        return data_of_run(self.entry)

    def measured(self, measures: Iterable[Measure]) -> Measured:
        """What a result file says of it."""
        scores = score(self.run, self.dataset.gold.qrels, measures)
        values = {measure: scores.mean(measure) for measure in scores.measures}
        return Measured(self.entry, self.dataset.task, values, len(scores.queries))


def data_of_run(entry: Entry) -> Dataset:
    """The data of a run's task, refused when it is not what the run was made on."""
    from r2med.data import load

    dataset = load(entry.task)
    if dataset.fingerprint != entry.record["data"]["fingerprint"]:
        raise DataError(f"{entry.task} has changed since run {entry.id} was made; run {entry.system!r} again")
    return dataset


def _write_lists(found: Exported, target: Target) -> list[Path]:
    entry, label = found.entry, file_name(target.name or found.entry.system)
    path = target.folder / f"{file_name(entry.task)}.{label}.{entry.id}.trec"
    write_run(found.run, path, tag=label)
    return [path]


def _write_results(found: Exported, form: str, target: Target) -> list[Path]:
    longest = max((len(ranking.documents) for _, ranking in found.run), default=0)
    named = Named(target.name or f"r2med/{file_name(found.entry.system)}", target.revision)
    if form == "mteb":
        files = result_files.mteb(found.measured(result_files.mteb_measures(longest)), named)
    elif form == "r2med":
        named = Named(target.name or found.entry.system)
        files = result_files.r2med(found.measured(result_files.R2MED_MEASURES), named)
    else:
        measured = found.measured(result_files.HAKARI_MEASURES)
        files = result_files.hakari(measured, named, found.run, found.dataset.gold.qrels)
    for path, content in files.items():
        write_file(target.folder / path, content, parents=True)
    return [target.folder / path for path in files]
