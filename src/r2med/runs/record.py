"""The record of a finished run: everything that could change its result, and its costs.

Facts that a submission does not state are None: unknown, not zero.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from importlib import metadata
from typing import Any, Self

import msgspec

import r2med
from r2med.usage import Usage

Json = Mapping[str, Any]
PHASES = ("load", "index", "search", "ask")  # phases of a step whose time is recorded


@dataclass(frozen=True)
class StepRecord:
    """Usage of one step of the system, in seconds by phase."""

    stage: str = ""
    load: float = 0.0  # seconds to load models
    index: float = 0.0  # seconds to encode or index the documents
    search: float = 0.0  # seconds to answer the queries, without waiting for other models
    ask: float = 0.0  # wall-clock seconds to ask a language model
    account: Usage | None = None  # usage of the language model that it asked, if any
    reused: tuple[str, ...] = ()  # parts that were taken from an earlier run's cache, so that their time is missing
    foreseen: Usage | None = None  # the forecast, made before anything was asked

    @property
    def seconds(self) -> float:
        """Return the seconds of all phases."""
        return self.load + self.index + self.search + self.ask

    def as_json(self) -> dict[str, Any]:
        """Return the step for a record."""
        bills = {"account": self.account, "foreseen": self.foreseen}
        facts = {name: bill.as_json() for name, bill in bills.items() if bill is not None}
        return {name: value for name, value in vars(self).items() if name not in bills and value != ()} | facts


@dataclass(frozen=True)
class DataIdentity:
    """Fingerprints of the data of a run, by part."""

    fingerprint: str | None = None
    """Fingerprint of all of it."""
    documents: str | None = None
    queries: str | None = None
    gold: str | None = None
    """Fingerprint of judgements and answers."""
    revision: str | None = None
    """The commit it was downloaded at; empty for local files."""


@dataclass(frozen=True)
class StageRecord:
    """Stage of the system, including those inside other stages."""

    spec: str
    kind: str = ""  # `expander`, `retriever` or `reranker`
    settings: Json = field(default_factory=dict)  # its description and what its output depends on; free in form

    @property
    def name(self) -> str:
        """Return the stage without its arguments."""
        return self.spec.partition("(")[0]

    @property
    def imported(self) -> bool:
        """Return whether its lists are those of another tool."""
        return bool(self.settings.get("imported", False))

    def as_json(self) -> dict[str, Any]:
        """Return the stage for a record."""
        return {"spec": self.spec, "kind": self.kind, **self.settings}


@dataclass(frozen=True)
class Machine:
    """Machine on which a run was made."""

    platform: str | None = None
    architecture: str | None = None
    cores: int | None = None

    @property
    def name(self) -> str:
        """Return its facts as far as they distinguish machines.

        >>> Machine("linux", "x86_64", 2).name
        'linux x86_64 2'
        """
        return " ".join(str(value) for value in astuple(self) if value is not None)


@dataclass(frozen=True)
class Provenance:
    """Versions and machine with which a run was made."""

    r2med: str | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    """The versions of the packages that compute the scores."""
    machine: Machine | None = None


@dataclass(frozen=True)
class RunRecord:
    """Facts about a run beside its lists and scores."""

    data: DataIdentity = field(default_factory=DataIdentity)
    documents: int | None = None  # number of documents searched
    stages: tuple[StageRecord, ...] | None = None
    oracle: bool = False  # whether the system was shown gold answers
    warnings: tuple[str, ...] = ()
    incomplete: Mapping[str, str] = field(default_factory=dict)  # by query, why the system did not fully process it
    notes: Json = field(default_factory=dict)  # facts noted while working, by stage; free in form
    work: tuple[StepRecord, ...] | None = None  # every step once, including those that several branches share
    provenance: Provenance = field(default_factory=Provenance)
    local: Mapping[str, str] = field(default_factory=dict)  # paths of the user's files and code in the spec, hashed

    @property
    def content(self) -> str:
        """Return a short name of the content of the user's files, at any path; empty for a system without any.

        >>> RunRecord(local={"/a/my-encoder": "12"}).content == RunRecord(local={"/b/copy": "12"}).content
        True
        """
        if not self.local:
            return ""
        return hashlib.blake2b("\n".join(sorted(self.local.values())).encode(), digest_size=4).hexdigest()[:6]

    @property
    def foreseen_and_used(self) -> tuple[Usage, Usage] | None:
        """Return the forecast and the actual spending of the steps; None if nothing was asked or some are unknown."""
        steps = [(step.foreseen, step.account) for step in self.work or () if step.account is not None]
        foreseen, used = Usage(), Usage()
        for before, bill in steps:
            if before is None or bill.cached or not bill.whole or not bill.counted:
                return None
            foreseen, used = foreseen + before, used + bill
        return (foreseen, used) if used.requests else None

    @property
    def recall_lost(self) -> float | None:
        """Return the share of the exact lists that an approximate search missed, the worst of several; None if exact.

        >>> RunRecord(notes={"rrf": {"minilm": {"recall_lost": 0.02}}}).recall_lost
        0.02
        """
        return max(map(float, _under("recall_lost", self.notes)), default=None)

    @property
    def latency(self) -> Mapping[str, float] | None:
        """Return percentiles of an engine's seconds per query, the slowest of several; None without engines.

        >>> RunRecord(notes={"mine": {"latency": {"p50": 0.1, "p95": 0.2, "p99": 0.4}}}).latency["p99"]
        0.4
        """
        return max(_under("latency", self.notes), key=lambda times: float(times["p50"]), default=None)

    @property
    def failed_attempts(self) -> Mapping[str, int] | None:
        """Count requests to engines that ended in an error or a time-out, of all engines; None if none was asked.

        >>> RunRecord(notes={"rrf": {"mine": {"errors": 2, "timeouts": 1}, "bm25": {}}}).failed_attempts
        {'errors': 2, 'timeouts': 1}
        """
        noted = {name: list(_under(name, self.notes)) for name in ("errors", "timeouts")}
        return {name: sum(map(int, counts)) for name, counts in noted.items()} if noted["timeouts"] else None

    @property
    def unsearched(self) -> set[str]:
        """Return the queries that a retriever could not search with, as it noted."""
        noted = [facts.get("unsearched", ()) for facts in self.notes.values() if isinstance(facts, Mapping)]
        return {query for queries in noted for query in queries}

    @property
    def imported(self) -> bool:
        """Return whether the lists are those of a file of another tool, and nothing was computed."""
        return self.stages is not None and len(self.stages) == 1 and self.stages[0].imported

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Read a record from the ledger's JSON.

        >>> record = RunRecord.from_json({"r2med": "0.1.0", "stages": [{"spec": "bm25", "kind": "retriever"}]})
        >>> record.provenance.r2med, record.stages[0].spec, record.documents
        ('0.1.0', 'bm25', None)
        """
        record = msgspec.convert({**content, "stages": None, "provenance": content}, cls)
        if content.get("stages") is None:
            return record
        stages = [{"kind": "", **stage} for stage in content["stages"]]
        return replace(record, stages=tuple(StageRecord(one.pop("spec"), one.pop("kind"), one) for one in stages))

    def as_json(self) -> dict[str, Any]:
        """Return the record for JSON, without what is unknown."""
        return {
            **_stated(asdict(self.provenance)),
            "data": _stated(asdict(self.data)),
            **_stated({"documents": self.documents}),
            **({} if self.stages is None else {"stages": [stage.as_json() for stage in self.stages]}),
            "oracle": self.oracle,
            "warnings": list(self.warnings),
            "incomplete": dict(self.incomplete),
            "notes": dict(self.notes),
            **({} if self.work is None else {"work": [step.as_json() for step in self.work]}),
            "local": dict(self.local),
        }


def _stated(content: Json) -> dict[str, Any]:
    """Return what is known, at every depth."""
    return {
        name: _stated(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
        if value is not None
    }


def _under(name: str, notes: Any) -> Iterator[Any]:
    """Yield the facts that stages noted under a name, at any depth."""
    if isinstance(notes, dict):
        for key, value in notes.items():
            if key == name and value is not None:
                yield value
            else:
                yield from _under(name, value)


_WATCHED = (
    "numpy", "polars", "wordllama", "torch", "transformers", "sentence-transformers",
    "tokenizers", "onnxruntime", "httpx2", "peft",
)  # fmt: skip


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def provenance() -> Provenance:
    """Return the versions of r2med, Python and the packages that compute the scores, and the machine."""
    versions = {package: version_of(package) for package in _WATCHED}
    return Provenance(
        r2med.__version__,
        platform.python_version(),
        {package: version for package, version in versions.items() if version},
        Machine(sys.platform, platform.machine(), os.cpu_count()),
    )
