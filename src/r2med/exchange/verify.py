"""Verification of a submission: every byte against the manifest, every figure against the ranked lists.

A submission comes from strangers. Its specs are read and never built, which could run code; its tasks are looked up by
name among the registered ones, so it cannot point at files of this machine; nothing is written to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_files import FORMATS
from r2med.data.run_formats.rows import assemble
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.exchange.submission import (
    DESCRIPTION,
    FORMAT,
    MANIFEST,
    RESULTS,
    VERSION,
    Description,
    StatedResults,
    averages,
    own_digest,
    read_archive,
    sha256,
    unzipped,
)
from r2med.measure.metrics import Measure
from r2med.measure.score import QueryScores, score
from r2med.pipeline.evaluate import identity_of
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.runs.record import DataIdentity
from r2med.store.typed import convert, parse_json

_EXACT = 1e-9
"""How far a recomputed figure may be from the stated one: the last digits depend on the machine."""


@dataclass(frozen=True)
class Verified:
    """Checked content of a submission, and all faults found."""

    path: str
    description: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[Mapping[str, Any]] = ()
    figures: int = 0
    """How many figures were computed anew."""
    faults: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Return whether there is no fault."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Return the findings for JSON."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True)
class CheckedRun:
    """A result of a submission whose figures are those of its lists, computed anew."""

    path: Path
    """The submission."""
    result: Mapping[str, Any]
    run: Run
    scores: QueryScores
    data: DataIdentity
    """What it was measured on, as it is here."""


Keep = Callable[[CheckedRun], None]
"""Takes every result that is as stated, also of a submission that turns out to have a fault elsewhere."""


def verify(path: Path) -> Verified:
    """Check a submission. Data that cannot be fetched is an error; what is wrong with the submission is a fault."""
    return verify_all([path])[0]


def verify_all(paths: Sequence[Path], also: Sequence[Measure] = (), keep: Keep | None = None) -> list[Verified]:
    """Check submissions, in their order; results are handed over with their own measures and `also` these."""
    checks = [_Check(path) for path in paths]
    # One task after another, so that one is in memory at a time and each is read once.
    for name in sorted({name for check in checks for name in check.tasks}):
        dataset = load(registry()[name])
        for check in checks:
            for row in check.tasks.get(name, ()):
                check.check_result(row, dataset, also, keep)
    return [check.verified() for check in checks]


class _Check:
    """A submission while it is being checked."""

    def __init__(self, path: Path) -> None:
        self.path, self.figures = path, 0
        self.faults: list[str] = []
        self.files: dict[str, bytes] = {}
        self.stated: dict[str, Any] = {}
        self.description: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []
        self.tasks: dict[str, list[dict[str, Any]]] = {}
        """The results by task."""
        try:
            self._open()
        except DataError as error:
            self.faults = [str(error)]

    def _open(self) -> None:
        files = read_archive(self.path)
        if MANIFEST not in files:
            raise DataError(f"{MANIFEST} is missing, so this is not a submission")
        _check_manifest(files)
        stated, description = (parse_json(files[name], dict[str, Any], name) for name in (RESULTS, DESCRIPTION))
        rows = convert(stated, StatedResults, RESULTS).results
        named = sorted(row.file for row in rows)
        if named != sorted(files.keys() - {MANIFEST, DESCRIPTION, RESULTS}):
            raise DataError(f"{RESULTS}: does not name every run file once")
        pairs = [(row.system, row.task) for row in rows]
        if len(set(pairs)) != len(pairs):
            raise DataError(f"{RESULTS}: has several results of a system on one task")
        described = {row.system for row in convert(description, Description, DESCRIPTION).systems}
        if described != {system for system, _ in pairs}:
            raise DataError(f"{DESCRIPTION}: does not describe exactly the systems of {RESULTS}")
        self.files, self.stated, self.description, self.results = files, stated, description, stated["results"]
        for row in self.results:
            name, group = row["task"], row["group"]
            if name in registry() and registry()[name].group == group:
                self.tasks.setdefault(name, []).append(row)
            else:
                self.faults.append(f"{row['system']} on {name}: no task of that name in the group {group!r}")

    def check_result(
        self, row: Mapping[str, Any], dataset: Dataset, also: Sequence[Measure], keep: Keep | None
    ) -> None:
        """Compute a result's figures from its lists."""
        try:
            run, scores, count = _check_result(row, self.files, dataset, also)
        except DataError as error:
            self.faults.append(str(error))
            return
        self.figures += count
        if keep is not None:
            keep(CheckedRun(self.path, row, run, scores, identity_of(dataset)))

    def verified(self) -> Verified:
        """Return the findings, with those on the averages."""
        faults = [*self.faults, *(_check_averages(self.stated, self.results) if self.results else ())]
        return Verified(str(self.path), self.description, self.results, self.figures, faults)


def _check_manifest(files: Mapping[str, bytes]) -> None:
    manifest = parse_json(files[MANIFEST], dict[str, Any], MANIFEST)
    if manifest.get("format") != FORMAT:
        raise DataError(f"{MANIFEST}: not that of a {FORMAT}")
    if manifest.get("version") != VERSION:
        numbers = f"format {manifest.get('version')}, this version has {VERSION}"
        raise DataError(f"{MANIFEST}: made by another version of r2med ({numbers}); pack it again: r2med submit")
    if manifest.get("sha256") != own_digest(manifest):
        raise DataError(f"{MANIFEST}: was changed (its own digest is another)")
    listed = manifest.get("files")
    if not isinstance(listed, dict) or listed.keys() != files.keys() - {MANIFEST}:
        raise DataError(f"{MANIFEST}: does not list exactly the files that are there")
    for name, content in files.items():
        if name != MANIFEST and listed[name] != {"sha256": sha256(content), "bytes": len(content)}:
            raise DataError(f"{name}: was changed (its digest is not the manifest's)")


def _check_result(
    row: Mapping[str, Any], files: Mapping[str, bytes], dataset: Dataset, also: Sequence[Measure]
) -> tuple[Run, QueryScores, int]:
    """Return a result's lists, the figures computed from them, and how many of these were stated."""
    spec = row["system"]
    where = f"{spec} on {row['task']}"
    try:
        chain = parse(spec)
    except R2medError as error:
        raise DataError(str(error)) from error
    if any(name.startswith("oracle") for name in _names(chain)):
        raise DataError(f"{spec}: is shown the answers (oracle) and is not a result")
    if row["data"].get("fingerprint") != dataset.fingerprint:
        raise DataError(f"{where}: was measured on other data than the task has here")
    run = _run(row["file"], files)
    collection = dataset.collection
    strangers = [query for query in run.queries if query not in collection.queries.position]
    strangers += [document for document in run.documents if document not in collection.documents.position]
    if strangers:
        raise DataError(f"{where}: its lists hold {strangers[0]!r}, which the task does not have")
    measures = _measures(row, where)
    scores = score(run, dataset.gold.qrels, list(dict.fromkeys((*measures, *also))))
    counts = {"queries": len(scores.queries), "documents": len(dataset.collection.documents)}
    for fact, count in counts.items():
        if row.get(fact) != count:
            raise DataError(f"{where}: {row.get(fact)} {fact} are stated, there are {count}")
    if not 0 <= row["incomplete"] <= counts["queries"]:
        raise DataError(f"{where}: {row['incomplete']} of {counts['queries']} queries cannot be incomplete")
    for measure in measures:
        claimed, computed = row["metrics"][str(measure)], scores.mean(measure)
        if abs(claimed - computed) > _EXACT:
            raise DataError(f"{where}: {measure} is stated as {claimed:.6f}, its lists give {computed:.6f}")
    return run, scores, len(measures)


def _names(value: Value) -> list[str]:
    """Return the names of all calls in a spec, at any depth."""
    if isinstance(value, Chain):
        return [name for call in value.calls for name in _names(call)]
    if isinstance(value, Call):
        inner = [*value.args, *(option for _, option in value.options)]
        return [value.name, *(name for part in inner for name in _names(part))]
    if isinstance(value, tuple):
        return [name for part in value for name in _names(part)]
    return [value] if isinstance(value, str) else []


def _run(name: str, files: Mapping[str, bytes]) -> Run:
    rows = FORMATS["jsonl"].read(unzipped(files[name], name), name)
    if not rows.lists:
        raise DataError(f"{name}: holds no query")
    run, warnings = assemble(rows)
    if warnings:
        raise DataError(f"{name}: {warnings[0]}")
    return run


def _measures(row: Mapping[str, Any], where: str) -> list[Measure]:
    try:
        measures = [Measure.parse(name) for name in row["metrics"]]
    except R2medError as error:
        raise DataError(f"{where}: {error}") from error
    if [str(measure) for measure in measures] != list(row["metrics"]):
        raise DataError(f"{where}: measures are not named as r2med names them")
    return measures


def _check_averages(stated: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return faults in the averages, which must be exactly those of the results."""
    try:
        claimed = convert(stated.get("averages"), dict[str, dict[str, dict[str, float]]])
    except DataError:
        return [f"{RESULTS}: the averages cannot be made out"]
    expected, stated_values = _flat(averages(results)), _flat(claimed)
    if expected.keys() != stated_values.keys():
        return [f"{RESULTS}: the averages are not those of its results"]
    wrong = [key for key, value in expected.items() if abs(stated_values[key] - value) > _EXACT]
    return [f"{RESULTS}: the average {' '.join(key)} is not that of its results" for key in wrong]


def _flat(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[tuple[str, str, str], float]:
    return {
        (group, system, measure): value
        for group, systems in table.items()
        for system, row in systems.items()
        for measure, value in row.items()
    }
