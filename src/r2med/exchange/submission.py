"""Submissions: runs, results, a description and a manifest, in one reproducible zip file that a leaderboard can check.

    manifest.json      the sha256 and size of every other file, and of itself
    submission.json    title, authors, link, notes, and every system with its settings and versions
    results.json       every figure, by system and task, and the averages over whole groups
    runs/*.jsonl.gz    the ranked lists that the figures were measured on

A submission does not prove who made a run: it proves that the figures are those of the lists, and that nothing was
changed. Members are stored as they are, in order, with a fixed date: the archive of given files is one sequence of
bytes. A file is read by taking it apart, making it again and comparing, so a changed byte anywhere is found, in the
container too. Nothing is ever unpacked onto the disk, and nothing is decompressed beyond a limit.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import orjson

import r2med
from r2med.data.run_files import FORMATS
from r2med.data.tasks import groups, registry
from r2med.errors import DataError, R2medError
from r2med.pipeline.named_runs import select
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import Provenance
from r2med.runs.selection import each_once, require_all
from r2med.store.files import file_name, write_file
from r2med.store.typed import Typed, json_bytes, plain

FORMAT = "r2med submission"
VERSION = 1
MANIFEST, DESCRIPTION, RESULTS = "manifest.json", "submission.json", "results.json"
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Stated: TypeAlias = Annotated[str, msgspec.Meta(max_length=10_000)]
"""A text of a submitter, as long as pages can show."""


class About(Typed, frozen=True):
    """Statements of the submitter."""

    title: Stated = ""
    authors: Stated = ""
    link: Stated = ""
    notes: Stated = ""


class DescribedStage(msgspec.Struct, frozen=True):
    """Stage of a system, as far as boards read it."""

    spec: str
    kind: str = ""


class DescribedSystem(Typed, frozen=True, omit_defaults=True):
    """System of a submission, with its settings and versions."""

    system: str
    stages: tuple[DescribedStage, ...]
    versions: Provenance
    name: Stated = ""
    """Its name on a board; empty if it is called by its spec."""


class SubmissionText(About, frozen=True):
    """Content of `submission.json`."""

    created: Annotated[str, msgspec.Meta(max_length=40)] = ""
    systems: tuple[DescribedSystem, ...] = ()


class SubmittedResult(Typed, frozen=True):
    """Figures of a system on a task."""

    system: str
    task: str
    group: str
    run: str
    created: str
    file: str
    """The member of the archive with the ranked lists."""
    queries: int
    documents: int | None
    metrics: dict[str, float]
    incomplete: Annotated[int, msgspec.Meta(ge=0)]
    cost: dict[str, Amount | dict[str, Amount | None] | None]
    data: dict[str, str | None]

    def __str__(self) -> str:
        return f"{self.system} on {self.task}"


class Results(Typed, frozen=True):
    """Content of `results.json`."""

    results: tuple[SubmittedResult, ...]
    averages: dict[str, dict[str, dict[str, float]]]


def submit(
    ledger: Ledger, names: Sequence[str], out: Path, about: About, tasks: Sequence[str] = (), name: str = ""
) -> tuple[list[Entry], list[str]]:
    """Pack the runs that are given by spec or id; `name` is the name of their system on a board.

    Returns the runs, and the tasks with runs that are not packed: the data of a folder is on this machine only.
    """
    selected = select(ledger, names, tasks)
    require_all(selected)
    entries = [entry for entry in each_once(selected) if entry.task in registry()]
    left_out = list(dict.fromkeys(entry.task for entry in each_once(selected) if entry.task not in registry()))
    if not entries or (tasks and left_out):
        raise R2medError(f"{left_out[0]} is on this machine only, so runs on it cannot be submitted; name another task")
    for entry in entries:
        if entry.oracle:
            raise R2medError(f"run {entry.id} of {entry.system} was shown the answers (oracle) and cannot be submitted")
    # Runs that are chosen by id are labelled with these, which only tells them apart here.
    labels = {runs.system: runs.label for runs in selected if not runs.label.startswith(runs.system)}
    if name:
        specs = sorted({entry.system for entry in entries})
        if len(specs) > 1:
            raise R2medError(f"one name cannot stand for {len(specs)} systems ({', '.join(specs)}); submit one of them")
        labels = {specs[0]: name}
    write_file(out, archive_bytes(packed(ledger, entries, about, labels)), parents=True)
    return entries, left_out


def packed(
    ledger: Ledger, entries: Sequence[Entry], about: About, labels: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """Return the files of a submission, the manifest first; `labels` are the names of systems, by spec."""
    runs: dict[str, bytes] = {}
    results = []
    for entry in entries:
        name = f"runs/{file_name(entry.task)}.{file_name(entry.system)[:80]}.{entry.id}.jsonl.gz"
        runs[name] = zipped(FORMATS["jsonl"].write(ledger.run(entry), ""))
        scores = ledger.scores(entry)
        results.append(
            SubmittedResult(
                **{field: getattr(entry, field) for field in ("system", "task", "group", "created")},
                run=entry.id,
                file=name,
                queries=len(entry.queries),
                documents=entry.record.documents,
                metrics={measure: float(scores[measure].mean()) for measure in sorted(scores)},
                incomplete=len(entry.incomplete),
                cost=Cost.of_runs([entry]).as_dict(),
                data=entry.record.as_json()["data"],
            )
        )
    newest = {entry.system: entry for entry in sorted(entries, key=lambda entry: entry.used)}
    systems = [
        {
            "system": system,
            **({"name": labels[system]} if labels and system in labels else {}),
            "stages": [stage.as_json() for stage in entry.record.stages or ()],
            "versions": entry.record.provenance,
        }
        for system, entry in sorted(newest.items())
    ]
    created = datetime.now(UTC).isoformat(timespec="seconds")
    files = {
        DESCRIPTION: json_bytes({"created": created, **plain(about), "systems": systems}, indent=2),
        RESULTS: json_bytes(Results(tuple(results), averages(results)), indent=2),
        **runs,
    }
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "created": created,
        "r2med": r2med.__version__,
        "files": {name: {"sha256": sha256(content), "bytes": len(content)} for name, content in files.items()},
    }
    return {MANIFEST: json_bytes({**manifest, "sha256": own_digest(manifest)}, indent=2), **files}


def averages(results: Sequence[SubmittedResult]) -> dict[str, dict[str, dict[str, float]]]:
    """Map group to system to measure to the mean over tasks, of systems that have all tasks of the group."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for group, system in dict.fromkeys((result.group, result.system) for result in results):
        rows = {r.task: r.metrics for r in results if (r.group, r.system) == (group, system)}
        if rows.keys() == {task.name for task in groups()[group]}:
            shared = [name for name in next(iter(rows.values())) if all(name in row for row in rows.values())]
            means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in shared}
            table.setdefault(group, {})[system] = means
    return table


def own_digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's content, its own digest left out."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS))


def sha256(content: bytes) -> str:
    """Return the hex digest of content."""
    return hashlib.sha256(content).hexdigest()


MOST_BYTES = 1 << 29
"""What an archive may hold, and what a member may become when it is unzipped."""
MOST_MEMBERS = 5_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_DATE = (1980, 1, 1, 0, 0, 0)


def archive_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files, in their order.

    >>> archive_bytes({"a.txt": b"x"}) == archive_bytes({"a.txt": b"x"})
    True
    """
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, _DATE)
            member.create_system = 3  # the same on every system
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return stream.getvalue()


def read_archive(path: Path) -> dict[str, bytes]:
    """Read the files of an archive made by `archive_bytes`; refuse any other with the reason."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: more than {MOST_BYTES >> 20} MB, which no submission needs")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise DataError(f"{path}: {len(members):,} files in it, more than any submission has")
            for member in members:
                name = member.filename
                if not _NAME.fullmatch(name):
                    raise DataError(f"{path}: refused for the name {name[:80]!r} in it")
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
                    raise DataError(f"{path}: {name} is compressed or encrypted, which r2med submit never does")
            if len({member.filename for member in members}) != len(members):
                raise DataError(f"{path}: a name appears twice in it")
            if sum(member.file_size for member in members) > len(data):
                raise DataError(f"{path}: claims to hold more than it is long")
            files = {member.filename: archive.read(member) for member in members}
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: not a whole zip file ({error})") from error
    if archive_bytes(files) != data:
        raise DataError(f"{path}: changed since it was packed, or packed by something else than r2med submit")
    return files


def zipped(content: bytes) -> bytes:
    """Return content compressed by gzip."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def unzipped(data: bytes, name: str) -> bytes:
    """Return the content given to `zipped`; refuse data that grows beyond the limit.

    >>> unzipped(zipped(b"x" * 1000), "x") == b"x" * 1000
    True
    """
    inflater = zlib.decompressobj(wbits=31)
    try:
        content = inflater.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise DataError(f"{name}: not gzip data ({error})") from error
    if inflater.unconsumed_tail:
        raise DataError(f"{name}: more than {MOST_BYTES >> 20} MB when unzipped, which no run needs")
    if not inflater.eof or inflater.unused_data:
        raise DataError(f"{name}: the gzip data is cut short or followed by something")
    return content
