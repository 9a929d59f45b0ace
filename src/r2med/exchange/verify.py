"""Verification of a submission: every byte against the manifest, every figure against the ranked lists.

A submission comes from strangers. Its specs are read and never built, which could run code; its tasks are looked up by
name among the registered ones, so it cannot point at files of this machine; nothing is written to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_formats import FORMATS, assemble
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.exchange.submission import (
    DESCRIPTION,
    FORMAT,
    MANIFEST,
    RESULTS,
    VERSION,
    About,
    averages,
    own_digest,
    read_archive,
    sha256,
    unzipped,
)
from r2med.formatting import describe
from r2med.measure.metrics import Measure
from r2med.measure.score import QueryScores, score
from r2med.pipeline.evaluate import identity_of
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.runs.record import DataIdentity

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
        _check_manifest(files)
        stated, description = _object(files, RESULTS), _object(files, DESCRIPTION)
        results = _rows(stated, "results", RESULTS)
        _check_complete(files, results, description)
        _check_about(description)
        self.files, self.stated, self.description, self.results = files, stated, description, results
        for row in results:
            try:
                self.tasks.setdefault(_task_name(row), []).append(row)
            except DataError as error:
                self.faults.append(str(error))

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
    manifest = _object(files, MANIFEST)
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


def _check_complete(
    files: Mapping[str, bytes], results: Sequence[Mapping[str, Any]], description: Mapping[str, Any]
) -> None:
    """Check that run files and results match one to one, and that exactly their systems are described."""
    named = sorted(str(row.get("file")) for row in results)
    if named != sorted(files.keys() - {MANIFEST, DESCRIPTION, RESULTS}):
        raise DataError(f"{RESULTS}: does not name every run file once")
    pairs = [(str(row.get("system")), str(row.get("task"))) for row in results]
    if len(set(pairs)) != len(pairs):
        raise DataError(f"{RESULTS}: has several results of a system on one task")
    described = {str(row.get("system")) for row in _rows(description, "systems", DESCRIPTION)}
    if described != {system for system, _ in pairs}:
        raise DataError(f"{DESCRIPTION}: does not describe exactly the systems of {RESULTS}")
    for row in results:
        _check_types(row, RESULTS, _RESULT_TYPES)
        _check_cost(row)
    for row in _rows(description, "systems", DESCRIPTION):
        _check_types(row, DESCRIPTION, _SYSTEM_TYPES)
        if not all(map(_is_stage, row["stages"])):
            raise DataError(f"{DESCRIPTION}: a stage of {row['system']} is not described as r2med describes one")


_LONGEST_TEXT = 10_000
"""Characters of what submitters say of themselves."""


def _check_about(description: Mapping[str, Any]) -> None:
    """Check that what pages show of the submitter is a text of limited length; all of it is optional."""
    for each in fields(About):
        name, value = each.name, description.get(each.name, "")
        if not isinstance(value, str):
            raise DataError(f"{DESCRIPTION}: {name} is {describe(value)}, not a text")
        if len(value) > _LONGEST_TEXT:
            raise DataError(f"{DESCRIPTION}: {name} has {len(value):,} characters, more than {_LONGEST_TEXT:,}")


def _is_stage(stage: object) -> bool:
    """Return whether a stage has the fields that are read, of the right types."""
    return isinstance(stage, dict) and isinstance(stage.get("spec"), str) and isinstance(stage.get("kind", ""), str)


_RESULT_TYPES = {"system": str, "task": str, "file": str, "incomplete": int, "cost": dict, "data": dict}
_SYSTEM_TYPES = {"system": str, "stages": list, "versions": dict}


def _check_types(row: Mapping[str, Any], name: str, types: Mapping[str, type]) -> None:
    """Check that the fields of a row have the types that a board shows."""
    for field_name, kind in types.items():
        value = row.get(field_name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(f"{name}: {field_name} of {row.get('system')} is {describe(value)}, not {_CALLED[kind]}")


_CALLED = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}


def _check_cost(row: Mapping[str, Any]) -> None:
    """Check that every part of a cost is a valid number, or unknown."""
    for part, value in row["cost"].items():
        known = value is None or (type(value) in (int, float) and 0 <= value < float("inf"))
        if not known and not isinstance(value, dict):
            raise DataError(f"{RESULTS}: {part} of the cost of {row['system']} is {describe(value)}")


def _task_name(row: Mapping[str, Any]) -> str:
    name, group = str(row.get("task")), row.get("group")
    if name not in registry() or registry()[name].group != group:
        raise DataError(f"{_where(row)}: no task of that name in the group {group!r}")
    return name


def _where(row: Mapping[str, Any]) -> str:
    return f"{row.get('system')} on {row.get('task')}"


def _check_result(
    row: Mapping[str, Any], files: Mapping[str, bytes], dataset: Dataset, also: Sequence[Measure]
) -> tuple[Run, QueryScores, int]:
    """Return a result's lists, the figures computed from them, and how many of these were stated."""
    where = _where(row)
    _check_system(str(row.get("system")))
    stated = row.get("data")
    if not isinstance(stated, dict) or stated.get("fingerprint") != dataset.fingerprint:
        raise DataError(f"{where}: was measured on other data than the task has here")
    run = _run(str(row["file"]), files)
    _check_run(run, dataset, where)
    measures = _measures(row, where)
    scores = score(run, dataset.gold.qrels, list(dict.fromkeys((*measures, *also))))
    counts = {"queries": len(scores.queries), "documents": len(dataset.collection.documents)}
    for fact, count in counts.items():
        if row.get(fact) != count:
            raise DataError(f"{where}: {row.get(fact)} {fact} are stated, there are {count}")
    if not 0 <= row["incomplete"] <= counts["queries"]:
        raise DataError(f"{where}: {row['incomplete']} of {counts['queries']} queries cannot be incomplete")
    for measure in measures:
        claimed, found = row["metrics"][str(measure)], scores.mean(measure)
        if abs(claimed - found) > _EXACT:
            raise DataError(f"{where}: {measure} is stated as {claimed:.6f}, its lists give {found:.6f}")
    return run, scores, len(measures)


def _check_system(spec: str) -> None:
    """Check a spec without building anything of it; refuse a system that is shown the gold."""
    try:
        chain = parse(spec)
    except R2medError as error:
        raise DataError(str(error)) from error
    if any(name.startswith("oracle") for name in _names(chain)):
        raise DataError(f"{spec}: is shown the answers (oracle) and is not a result")


def _names(value: Value) -> list[str]:
    """Return the names of all calls in a spec, at any depth."""
    if isinstance(value, Chain):
        return [name for call in value.calls for name in _names(call)]
    if isinstance(value, Call):
        inner = [*value.args, *(option for _, option in value.options)]
        return [value.name, *(name for each in inner for name in _names(each))]
    if isinstance(value, tuple):
        return [name for each in value for name in _names(each)]
    return [value] if isinstance(value, str) else []


def _run(name: str, files: Mapping[str, bytes]) -> Run:
    found = FORMATS["jsonl"].read(unzipped(files[name], name), name)
    if not found.lists:
        raise DataError(f"{name}: holds no query")
    run, warnings = assemble(found)
    if warnings:
        raise DataError(f"{name}: {warnings[0]}")
    return run


def _check_run(run: Run, dataset: Dataset, where: str) -> None:
    """Check that all queries and documents of a run belong to the task."""
    known = dataset.collection
    strangers = [query for query in run.queries if query not in known.queries.position]
    strangers += [document for document in run.documents if document not in known.documents.position]
    if strangers:
        raise DataError(f"{where}: its lists hold {strangers[0]!r}, which the task does not have")


def _measures(row: Mapping[str, Any], where: str) -> list[Measure]:
    metrics = row.get("metrics")
    numbers = isinstance(metrics, dict) and all(type(value) in (int, float) for value in metrics.values())
    if not metrics or not numbers:
        raise DataError(f"{where}: no figures are stated")
    try:
        found = [Measure.parse(name) for name in metrics]
    except R2medError as error:
        raise DataError(f"{where}: {error}") from error
    if [str(measure) for measure in found] != list(metrics):
        raise DataError(f"{where}: measures are not named as r2med names them")
    return found


def _check_averages(stated: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return faults in the averages, which must be exactly those of the results."""
    try:
        wanted = averages(results)
        claimed = stated["averages"]
        same = _flat(wanted).keys() == _flat(claimed).keys()
        wrong = [key for key, value in _flat(wanted).items() if same and abs(_flat(claimed)[key] - value) > _EXACT]
    except (KeyError, TypeError, AttributeError):
        return [f"{RESULTS}: the averages cannot be made out"]
    if not same:
        return [f"{RESULTS}: the averages are not those of its results"]
    return [f"{RESULTS}: the average {' '.join(key)} is not that of its results" for key in wrong]


def _flat(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[tuple[str, str, str], float]:
    return {
        (group, system, measure): value
        for group, systems in table.items()
        for system, row in systems.items()
        for measure, value in row.items()
    }


def _object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in files:
        raise DataError(f"{name} is missing, so this is not a submission")
    try:
        found = orjson.loads(files[name])
    except orjson.JSONDecodeError as error:
        raise DataError(f"{name}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{name}: not an object")
    return found


def _rows(content: Mapping[str, Any], key: str, name: str) -> list[dict[str, Any]]:
    rows = content.get(key)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{name}: no list of {key}")
    return rows
