"""Export of runs of the ledger in the formats of other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.data.dataset import Dataset, Generation
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_files import FORMATS
from r2med.data.task_names import task_names
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.exchange import formats
from r2med.exchange.formats import Measured
from r2med.measure.score import score
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data, each_once, require_all
from r2med.store.files import file_name, write_file

GROUPS: Mapping[str, str] = {"trec": "", "jsonl": "", "hydoc": "", "mteb": "full", "r2med": "full", "hakari": "nano"}
"""Every format, and the only group of tasks that it knows; empty for any."""
_LISTS = ("trec", "jsonl")
"""The formats of ranked lists."""
_RESULTS = ("mteb", "r2med", "hakari")
"""The formats of results."""


@dataclass(frozen=True)
class Target:
    """Folder of the files, and the name and revision of the system in them."""

    folder: Path
    name: str = ""
    """What the model is called in them; empty for a name made of the system's spec."""
    revision: str = ""


def export(ledger: Ledger, names: Sequence[str], form: str, target: Target, tasks: Sequence[str] = ()) -> list[Path]:
    """Write the runs that are named by spec or id, and return the files; all of them or none."""
    group, tasks_by_name = GROUPS[form], registry()
    strange = [task for task in tasks if group and (task not in tasks_by_name or tasks_by_name[task].group != group)]
    if strange:
        raise R2medError(
            f"the format {form} is for {group} tasks only, not for {', '.join(strange)}; --format trec takes any"
        )
    selected = select(ledger, names, tasks)
    require_all(selected)
    files: dict[Path, bytes] = {}
    entries = [entry for entry in each_once(selected) if group in ("", entry.group)]
    if not entries:
        systems = ", ".join(dict.fromkeys(entry.system for entry in each_once(selected)))
        raise R2medError(
            f"the format {form} is for {group} tasks only, on which {systems} has no run; --format trec takes any"
        )
    for entry in entries:
        if form in _RESULTS and entry.oracle:
            raise R2medError(
                f"run {entry.id} was shown the answers (oracle): it is not a result, only its lists can be written"
            )
    for entry in entries:
        if form == "hydoc":
            files |= _generations(entry, ledger, files)
        else:
            files |= (_lists if form in _LISTS else _results)(entry, ledger.run(entry), form, target)
    for path, content in files.items():
        write_file(target.folder / path, content, parents=True)
    return [target.folder / path for path in files]


def _load_data(entry: Entry) -> Dataset:
    """Load the data of a run's task; refuse data that differs from that of the run."""
    dataset = load(entry.task)
    check_data(entry, dataset)
    return dataset


def _lists(entry: Entry, run: Run, form: str, target: Target) -> dict[Path, bytes]:
    """Return the ranked lists of a run as a file."""
    label = file_name(target.name or entry.system)
    path = Path(f"{file_name(task_names([entry.task])[entry.task])}.{label}.{entry.id}.{form}")
    try:
        return {path: FORMATS[form].write(run, label)}
    except DataError as error:
        raise R2medError(f"run {entry.id} on {entry.task}: {error}; nothing was written, use --format jsonl") from error


def _generations(entry: Entry, ledger: Ledger, written: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """Return the texts that expanders of a run wrote, in the layout of the benchmark."""
    from r2med.expand.replay import HYDOC, hydoc_rows  # brings the client of language models

    by_writer: dict[tuple[str, str], dict[str, list[Generation]]] = {}
    for query, texts in ledger.generations(entry).items():
        for text in texts:
            by_writer.setdefault((text.method, text.model), {}).setdefault(query, []).append(text)
    if not by_writer:
        raise R2medError(f"run {entry.id} of {entry.system}: no stage of it writes texts; nothing was written")
    files, dataset = {}, _load_data(entry)
    for writer, generations in by_writer.items():
        parts = [file_name(part) for part in (dataset.task.base, *writer) if part]
        path, rows = Path(*parts, HYDOC), hydoc_rows(dataset.collection.queries, generations)
        if written.get(path, rows) != rows:
            raise R2medError(f"two of these runs wrote different texts for {path.parent}; export one at a time")
        files[path] = rows
    return files


def _results(entry: Entry, run: Run, form: str, target: Target) -> dict[Path, bytes]:
    """Return the files in which another tool stores the results of a run."""
    longest = max((len(ranking.documents) for _, ranking in run), default=0)
    measures = {
        "mteb": formats.mteb_measures(longest), "r2med": formats.R2MED_MEASURES, "hakari": formats.HAKARI_MEASURES
    }  # fmt: skip
    dataset = _load_data(entry)
    qrels = dataset.gold.qrels
    scores = score(run, qrels, measures[form])
    name = target.name or (entry.system if form == "r2med" else f"r2med/{file_name(entry.system)}")
    values = {measure: scores.mean(measure) for measure in scores.measures}
    measured = Measured(entry, dataset.task, values, name, target.revision)
    if form == "hakari":
        files = formats.hakari(measured, run, qrels)
    else:
        files = formats.mteb(measured) if form == "mteb" else formats.r2med(measured)
    return {Path(path): content for path, content in files.items()}
