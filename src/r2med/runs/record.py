"""The record of a finished run: everything that could change its result, and what it took.

It is read from JSON and written to JSON here, its steps in `r2med.runs.usage`, and nowhere else. What a
submission does not state of a run is None: unknown, and not zero.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from functools import cache, lru_cache
from importlib import metadata
from typing import Any, Self

import r2med
from r2med.runs.usage import Account, Json, Spending, StepRecord, known_fields


@dataclass(frozen=True)
class DataIdentity:
    """The data that a run saw, by the hashes of its parts."""

    fingerprint: str | None = None
    """Of all of it."""
    documents: str | None = None
    queries: str | None = None
    gold: str | None = None
    """Of judgements and answers."""
    revision: str | None = None
    """The commit it was downloaded at; empty for files that were not."""


@dataclass(frozen=True)
class StageRecord:
    """One stage of the system, those inside other stages too."""

    spec: str
    kind: str = ""
    """expander, retriever or reranker."""
    settings: Json = field(default_factory=dict)
    """What it says of itself, and what its output depends on; free in form."""

    @property
    def name(self) -> str:
        """The stage without its arguments."""
        return self.spec.partition("(")[0]

    @property
    def imported(self) -> bool:
        """Whether it hands over lists that another tool made."""
        return bool(self.settings.get("imported", False))

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """A stage as a record has it."""
        settings = dict(content)
        return cls(str(settings.pop("spec")), settings.pop("kind", ""), settings)

    def as_json(self) -> dict[str, Any]:
        """The stage for a record."""
        return {"spec": self.spec, "kind": self.kind, **self.settings}


@dataclass(frozen=True)
class Machine:
    """Where a run was made."""

    platform: str | None = None
    architecture: str | None = None
    cores: int | None = None

    @property
    def name(self) -> str:
        """As far as it tells a machine from others.

        >>> Machine("linux", "x86_64", 2).name
        'linux x86_64 2'
        """
        return " ".join(str(value) for value in astuple(self) if value is not None)


@dataclass(frozen=True)
class Provenance:
    """With what, and where, a run was made."""

    r2med: str | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    """The versions of what computes the scores."""
    machine: Machine | None = None

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """The part of a record that says it."""
        known, machine = content.get, content.get("machine")
        return cls(
            known("r2med"), known("python"), known("packages"), machine and _machine(**known_fields(Machine, machine))
        )


@dataclass(frozen=True)
class RunRecord:
    """All that is remembered of a run beside its lists and scores."""

    data: DataIdentity = field(default_factory=DataIdentity)
    documents: int | None = None
    """How many there were to search."""
    stages: tuple[StageRecord, ...] | None = None
    oracle: bool = False
    """Whether the system was shown gold answers."""
    warnings: tuple[str, ...] = ()
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Queries for which the system did not do all it should have, and why."""
    notes: Json = field(default_factory=dict)
    """Stage to the facts that it noted while it worked; free in form."""
    work: tuple[StepRecord, ...] | None = None
    """Every step once, those that several branches share too."""
    provenance: Provenance = field(default_factory=Provenance)
    local: Mapping[str, str] = field(default_factory=dict)
    """The files, folders and code of the user's own that the spec names: where they were, and a hash of each."""

    @property
    def content(self) -> str:
        """A short name of what the user's own files held, wherever they were; empty for a system without any.

        >>> RunRecord(local={"/a/my-encoder": "12"}).content == RunRecord(local={"/b/copy": "12"}).content
        True
        """
        if not self.local:
            return ""
        return hashlib.blake2b("\n".join(sorted(self.local.values())).encode(), digest_size=4).hexdigest()[:6]

    @property
    def accounts(self) -> list[Account]:
        """The bills of all language models that were asked."""
        return [step.account for step in self.work or () if step.account is not None]

    @property
    def foreseen_and_used(self) -> tuple[Spending, Spending] | None:
        """What steps were foreseen to take and what they took; None where nothing was asked, or some was known."""
        steps = [(step.foreseen, step.account) for step in self.work or () if step.account is not None]
        foreseen, used = Spending(), Spending()
        for before, bill in steps:
            if before is None or bill.cached or not bill.whole or not bill.counted:
                return None
            foreseen = foreseen.plus(before)
            used = used.plus(Spending(bill.requests, bill.prompt_tokens + bill.completion_tokens, bill.cost))
        return (foreseen, used) if used.requests else None

    @property
    def recall_lost(self) -> float | None:
        """The share of the exact lists that an approximate search did not find, the worst of several; None of none.

        >>> RunRecord(notes={"rrf": {"minilm": {"recall_lost": 0.02}}}).recall_lost
        0.02
        """
        return max(map(float, _under("recall_lost", self.notes)), default=None)

    @property
    def latency(self) -> Mapping[str, float] | None:
        """Percentiles of how long an engine took to answer a query, in seconds, the slowest of several; None of none.

        >>> RunRecord(notes={"mine": {"latency": {"p50": 0.1, "p95": 0.2, "p99": 0.4}}}).latency["p99"]
        0.4
        """
        return max(_under("latency", self.notes), key=lambda times: float(times["p50"]), default=None)

    @property
    def failed_attempts(self) -> Mapping[str, int] | None:
        """How many requests to engines ended in an error or a time-out, of all engines; None where none was asked.

        >>> RunRecord(notes={"rrf": {"mine": {"errors": 2, "timeouts": 1}, "bm25": {}}}).failed_attempts
        {'errors': 2, 'timeouts': 1}
        """
        found = {name: list(_under(name, self.notes)) for name in ("errors", "timeouts")}
        return {name: sum(map(int, counts)) for name, counts in found.items()} if found["timeouts"] else None

    @property
    def unsearched(self) -> set[str]:
        """Queries that a retriever could not search with, as it noted."""
        noted = [facts.get("unsearched", ()) for facts in self.notes.values() if isinstance(facts, Mapping)]
        return {query for queries in noted for query in queries}

    @property
    def imported(self) -> bool:
        """Whether the lists are those of a file that another tool made, and nothing was computed."""
        return self.stages is not None and len(self.stages) == 1 and self.stages[0].imported

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Read a record from the ledger's JSON.

        >>> record = RunRecord.from_json({"r2med": "0.1.0", "stages": [{"spec": "bm25", "kind": "retriever"}]})
        >>> record.provenance.r2med, record.stages[0].spec, record.documents
        ('0.1.0', 'bm25', None)
        """
        stages, work = content.get("stages"), content.get("work")
        return cls(
            data=_data(**known_fields(DataIdentity, content.get("data", {}))),
            documents=content.get("documents"),
            stages=None if stages is None else tuple(map(StageRecord.from_json, stages)),
            oracle=bool(content.get("oracle", False)),
            warnings=tuple(content.get("warnings", ())),
            incomplete=content.get("incomplete", {}),
            notes=content.get("notes", {}),
            work=None if work is None else tuple(map(StepRecord.from_json, work)),
            provenance=Provenance.from_json(content),
            local=content.get("local", {}),
        )

    def as_json(self) -> dict[str, Any]:
        """The record for JSON; what is not known is left out."""
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


# A ledger holds thousands of runs on a few machines and data sets: equal ones are made once.
_machine = lru_cache(maxsize=64)(Machine)
_data = lru_cache(maxsize=256)(DataIdentity)


def _stated(content: Json) -> dict[str, Any]:
    """What is known, at every depth."""
    return {
        name: _stated(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
        if value is not None
    }


def _under(name: str, notes: Any) -> Iterator[Any]:
    """What stages noted under a name, however deep."""
    if isinstance(notes, dict):
        for each, value in notes.items():
            if each == name and value is not None:
                yield value
            else:
                yield from _under(name, value)


_WATCHED = (
    "numpy", "polars", "wordllama", "torch", "transformers", "sentence-transformers",
    "tokenizers", "onnxruntime", "aiohttp", "peft",
)  # fmt: skip


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def provenance() -> Provenance:
    """Versions of r2med, Python and what computes the scores, and the machine, for a result's record."""
    found = {package: version_of(package) for package in _WATCHED}
    return Provenance(
        r2med.__version__,
        platform.python_version(),
        {package: version for package, version in found.items() if version},
        Machine(sys.platform, platform.machine(), os.cpu_count()),
    )
