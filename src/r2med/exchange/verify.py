"""Verification of a submission: every byte against the manifest, every figure against the ranked lists.

A submission comes from strangers. Its specs are read and never built, which could run code; its tasks are looked up by
name among the registered ones, so it cannot point at files of this machine; nothing is written to the disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_files import FORMATS, assemble
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.exchange.submission import (
    DESCRIPTION,
    FORMAT,
    MANIFEST,
    RESULTS,
    VERSION,
    Results,
    SubmissionText,
    SubmittedResult,
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
from r2med.store.typed import Typed, parse_json, plain

_EXACT = 1e-9
"""How far a recomputed figure may be from the stated one: the last digits depend on the machine."""
Kind = TypeVar("Kind")


class Verified(Typed, frozen=True):
    """Checked content of a submission, and all faults found."""

    path: str
    description: SubmissionText = SubmissionText()
    results: tuple[SubmittedResult, ...] = ()
    figures: int = 0
    """How many figures were computed anew."""
    faults: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether there is no fault."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Return the findings for JSON."""
        return {"ok": self.ok, **plain(self)}


class CheckedRun(Typed, frozen=True):
    """A result of a submission whose figures are those of its lists, computed anew."""

    path: Path
    """The submission."""
    result: SubmittedResult
    run: Run
    scores: QueryScores
    data: DataIdentity
    """What it was measured on, as it is here."""


Keep = Callable[[CheckedRun], None]
"""Takes every result that is as stated, also of a submission that turns out to have a fault elsewhere."""


def printable(text: str) -> str:
    """Return a text from outside without control characters."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


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
            for result in check.tasks.get(name, ()):
                check.check_result(result, dataset, also, keep)
    return [check.verified() for check in checks]


class _Check:
    """A submission while it is being checked."""

    def __init__(self, path: Path) -> None:
        self.path, self.figures = path, 0
        self.faults: list[str] = []
        self.files: dict[str, bytes] = {}
        self.description = SubmissionText()
        self.results = Results((), {})
        self.tasks: dict[str, list[SubmittedResult]] = {}
        """The results by task."""
        try:
            self._open()
        except DataError as error:
            self.faults = [str(error)]

    def _open(self) -> None:
        files = read_archive(self.path)
        manifest = _parse(files, MANIFEST, dict[str, Any])
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
        results, description = _parse(files, RESULTS, Results), _parse(files, DESCRIPTION, SubmissionText)
        if not results.results:
            raise DataError(f"{RESULTS}: has no results")
        if sorted(result.file for result in results.results) != sorted(files.keys() - {MANIFEST, DESCRIPTION, RESULTS}):
            raise DataError(f"{RESULTS}: does not name every run file once")
        pairs = {(result.system, result.task) for result in results.results}
        if len(pairs) < len(results.results):
            raise DataError(f"{RESULTS}: has several results of a system on one task")
        if {described.system for described in description.systems} != {system for system, _ in pairs}:
            raise DataError(f"{DESCRIPTION}: does not describe exactly the systems of {RESULTS}")
        self.files, self.results, self.description = files, results, description
        for result in results.results:
            if result.task in registry() and registry()[result.task].group == result.group:
                self.tasks.setdefault(result.task, []).append(result)
            else:
                self.faults.append(f"{result}: no task of that name in the group {result.group!r}")

    def check_result(
        self, result: SubmittedResult, dataset: Dataset, also: Sequence[Measure], keep: Keep | None
    ) -> None:
        try:
            try:
                measures = [Measure.parse(name) for name in result.metrics]
            except R2medError as error:
                raise DataError(f"{result}: {error}") from error
            if not measures:
                raise DataError(f"{result}: no figures are stated")
            if list(map(str, measures)) != list(result.metrics):
                raise DataError(f"{result}: measures are not named as r2med names them")
            run = _check_run(result, self.files, dataset)
            asked = list(dict.fromkeys((*measures, *also)))
            scores = score(run, dataset.gold.qrels, asked, dataset.gold.aspects)
            counts = {
                "queries": (result.queries, len(scores.queries)),
                "documents": (result.documents, len(dataset.collection.documents)),
            }
            for fact, (claimed, counted) in counts.items():
                if claimed != counted:
                    raise DataError(f"{result}: {claimed} {fact} are stated, there are {counted}")
            if result.incomplete > result.queries:
                raise DataError(f"{result}: {result.incomplete} of {result.queries} queries cannot be incomplete")
            for measure in measures:
                stated, computed = result.metrics[str(measure)], scores.mean(measure)
                if abs(stated - computed) > _EXACT:
                    raise DataError(f"{result}: {measure} is stated as {stated:.6f}, its lists give {computed:.6f}")
        except DataError as error:
            self.faults.append(str(error))
            return
        self.figures += len(measures)
        if keep is not None:
            keep(CheckedRun(self.path, result, run, scores, identity_of(dataset)))

    def verified(self) -> Verified:
        """Return the findings, with those on the averages."""
        faults = (*self.faults, *(_average_faults(self.results) if self.results.results else ()))
        return Verified(str(self.path), self.description, self.results.results, self.figures, faults)


def _parse(files: Mapping[str, bytes], name: str, kind: type[Kind]) -> Kind:
    if name not in files:
        raise DataError(f"{name} is missing, so this is not a submission")
    return parse_json(files[name], kind, name)


def _check_run(result: SubmittedResult, files: Mapping[str, bytes], dataset: Dataset) -> Run:
    """Read the lists of a result; its system must be honest, and its data and ids those of the task."""
    try:
        calls = list(_call_names(parse(result.system)))
    except R2medError as error:
        raise DataError(str(error)) from error
    if any(name.startswith("oracle") for name in calls):
        raise DataError(f"{result.system}: is shown the answers (oracle) and is not a result")
    if result.data.get("fingerprint") != dataset.fingerprint:
        raise DataError(f"{result}: was measured on other data than the task has here")
    rows = FORMATS["jsonl"].read(unzipped(files[result.file], result.file), result.file)
    if not rows.lists:
        raise DataError(f"{result.file}: holds no query")
    run, warnings = assemble(rows)
    if warnings:
        raise DataError(f"{result.file}: {warnings[0]}")
    queries, documents = dataset.collection.queries.position, dataset.collection.documents.position
    strangers = [query for query in run.queries if query not in queries]
    strangers += [document for document in run.documents if document not in documents]
    if strangers:
        raise DataError(f"{result}: its lists hold {strangers[0]!r}, which the task does not have")
    return run


def _call_names(value: Value) -> Iterator[str]:
    """Yield the names of all calls in a spec, at any depth, without building anything of it."""
    if isinstance(value, Call):
        yield value.name
        value = (*value.args, *(option for _, option in value.options))
    if isinstance(value, Chain | tuple):
        for part in value.calls if isinstance(value, Chain) else value:
            yield from _call_names(part)
    elif isinstance(value, str):
        yield value


def _average_faults(results: Results) -> Iterator[str]:
    """Yield faults in the averages, which must be exactly those of the results."""
    try:
        expected, stated = _flat(averages(results.results)), _flat(results.averages)
    except KeyError:  # a group that does not exist
        expected, stated = {}, {("", "", ""): math.nan}
    if expected.keys() != stated.keys():
        yield f"{RESULTS}: the averages are not those of its results"
        return
    for key, value in expected.items():
        if abs(stated[key] - value) > _EXACT:
            yield f"{RESULTS}: the average {' '.join(key)} is not that of its results"


def _flat(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[tuple[str, str, str], float]:
    return {
        (group, system, measure): value
        for group, systems in table.items()
        for system, row in systems.items()
        for measure, value in row.items()
    }
