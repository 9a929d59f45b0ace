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
from dataclasses import asdict
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
from msgspec import Meta, Struct
from msgspec.structs import asdict as as_values

import r2med
from r2med.data.run_files import FORMATS
from r2med.data.tasks import groups, registry
from r2med.errors import DataError, R2medError
from r2med.pipeline.named_runs import select
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import each_once, require_all
from r2med.store.files import file_name, write_file

FORMAT = "r2med submission"
VERSION = 1
MANIFEST, DESCRIPTION, RESULTS = "manifest.json", "submission.json", "results.json"


Text = Annotated[str, Meta(max_length=10_000)]
"""A text about a submission, as long as a page can show."""
Amount = Annotated[float, Meta(ge=0)]


class About(Struct, frozen=True):
    """Statements of the submitter."""

    title: Text = ""
    authors: Text = ""
    link: Text = ""
    notes: Text = ""


class StatedMachine(Struct, frozen=True):
    """Machine as a submission states it."""

    platform: str | None = None
    architecture: str | None = None
    cores: int | None = None


class StatedVersions(Struct, frozen=True):
    """Versions and machine as a submission states them."""

    r2med: str | None = None
    python: str | None = None
    packages: dict[str, str] | None = None
    machine: StatedMachine | None = None


class StatedStage(Struct, frozen=True):
    """Stage as a submission describes it; its settings are free in form."""

    spec: str
    kind: str = ""


class StatedSystem(Struct, frozen=True):
    """System as a submission describes it."""

    system: str
    stages: tuple[StatedStage, ...]
    versions: StatedVersions
    name: str = ""


class Description(About, frozen=True):
    """Content of `submission.json`."""

    systems: Annotated[tuple[StatedSystem, ...], Meta(min_length=1)] = ()
    created: str = ""


class StatedResult(Struct, frozen=True):
    """Result as a submission states it; its figures are computed again."""

    system: str
    task: str
    group: str
    file: str
    metrics: Annotated[dict[str, float], Meta(min_length=1)]
    incomplete: Annotated[int, Meta(ge=0)]
    cost: dict[str, Amount | None]
    data: dict[str, Any]
    created: str = ""
    documents: int | None = None


class StatedResults(Struct, frozen=True):
    """Content of `results.json`, without the averages."""

    results: Annotated[tuple[StatedResult, ...], Meta(min_length=1)]


class Submitted(NamedTuple):
    """Runs that were packed, and tasks that were left out."""

    entries: Sequence[Entry]
    left_out: Sequence[str] = ()
    """Tasks with runs that were not packed: the data of a folder is on this machine only."""


def submit(
    ledger: Ledger, names: Sequence[str], out: Path, about: About, tasks: Sequence[str] = (), name: str = ""
) -> Submitted:
    """Pack the runs that are given by spec or id; `name` is the name of their system on a board."""
    selected = select(ledger, names, tasks)
    require_all(selected)
    every = each_once(selected)
    entries = [entry for entry in every if entry.task in registry()]
    left_out = tuple(dict.fromkeys(entry.task for entry in every if entry.task not in registry()))
    if not entries or (tasks and left_out):
        raise R2medError(f"{left_out[0]} is on this machine only, so runs on it cannot be submitted; name another task")
    for entry in entries:
        if entry.oracle:
            raise R2medError(f"run {entry.id} of {entry.system} was shown the answers (oracle) and cannot be submitted")
    # Runs that are chosen by id are labelled with these, which only tells them apart here.
    labels = {
        selection.system: selection.label for selection in selected if not selection.label.startswith(selection.system)
    }
    if name:
        specs = sorted({entry.system for entry in entries})
        if len(specs) > 1:
            raise R2medError(f"one name cannot stand for {len(specs)} systems ({', '.join(specs)}); submit one of them")
        labels = {specs[0]: name}
    content = archive_bytes(packed(ledger, entries, about, labels))
    write_file(out, content, parents=True)
    return Submitted(entries, left_out)


def packed(
    ledger: Ledger, entries: Sequence[Entry], about: About, labels: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """Return the files of a submission, the manifest first; `labels` are the names of systems, by spec."""
    files: dict[str, bytes] = {}
    results = []
    for entry in entries:
        name = f"runs/{file_name(entry.task)}.{file_name(entry.system)[:80]}.{entry.id}.jsonl.gz"
        files[name] = zipped(FORMATS["jsonl"].write(ledger.run(entry), ""))
        results.append(_result(ledger, entry, name))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    description = {"created": created, **as_values(about), "systems": _systems(entries, labels or {})}
    files = {
        DESCRIPTION: _json(description),
        RESULTS: _json({"results": results, "averages": averages(results)}),
        **files,
    }
    return {MANIFEST: _json(_manifest(files, created)), **files}


def _result(ledger: Ledger, entry: Entry, file: str) -> dict[str, Any]:
    scores = ledger.scores(entry)
    return {
        "system": entry.system,
        "task": entry.task,
        "group": entry.group,
        "run": entry.id,
        "created": entry.created,
        "file": file,
        "queries": len(entry.queries),
        "documents": entry.record.documents,
        "metrics": {measure: float(scores[measure].mean()) for measure in sorted(scores)},
        "incomplete": len(entry.incomplete),
        "cost": Cost.of_runs([entry]).as_dict(),
        "data": entry.record.as_json()["data"],
    }


def averages(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Group to system to measure to the mean over tasks, of systems that have all tasks of the group.

    >>> averages([{"group": "nano", "system": "bm25", "task": "nano/Biology", "metrics": {"nDCG@10": 0.5}}])
    {}
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for group in dict.fromkeys(result["group"] for result in results):
        needed = {task.name for task in groups()[group]}
        for system in dict.fromkeys(result["system"] for result in results):
            rows = {r["task"]: r["metrics"] for r in results if (r["group"], r["system"]) == (group, system)}
            if rows.keys() != needed:
                continue
            shared = [name for name in next(iter(rows.values())) if all(name in row for row in rows.values())]
            means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in shared}
            table.setdefault(group, {})[system] = means
    return table


def _systems(entries: Sequence[Entry], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all systems once, with the record of their newest run."""
    newest: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.used):
        newest[entry.system] = entry
    return [
        {
            "system": system,
            **({"name": labels[system]} if system in labels else {}),
            "stages": [stage.as_json() for stage in entry.record.stages or ()],
            "versions": asdict(entry.record.provenance),
        }
        for system, entry in sorted(newest.items())
    ]


def _manifest(files: Mapping[str, bytes], created: str) -> dict[str, Any]:
    listed = {name: {"sha256": sha256(content), "bytes": len(content)} for name, content in files.items()}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "created": created,
        "r2med": r2med.__version__,
        "files": listed,
    }
    return {**content, "sha256": own_digest(content)}


def own_digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's content, its own digest left out."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS))


def sha256(content: bytes) -> str:
    """Return the hex digest of content."""
    return hashlib.sha256(content).hexdigest()


def _json(content: Mapping[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"


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
            _check_archive(path, archive.infolist(), len(data))
            files = {member.filename: archive.read(member) for member in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: not a whole zip file ({error})") from error
    if archive_bytes(files) != data:
        raise DataError(f"{path}: changed since it was packed, or packed by something else than r2med submit")
    return files


def _check_archive(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse names outside of the archive, and impossible sizes."""
    if len(members) > MOST_MEMBERS:
        raise DataError(f"{path}: {len(members):,} files in it, more than any submission has")
    names = [member.filename for member in members]
    for member in members:
        if not _NAME.fullmatch(member.filename):
            raise DataError(f"{path}: refused for the name {member.filename[:80]!r} in it")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise DataError(f"{path}: {member.filename} is compressed or encrypted, which r2med submit never does")
    if len(set(names)) != len(names):
        raise DataError(f"{path}: a name appears twice in it")
    if sum(member.file_size for member in members) > size:
        raise DataError(f"{path}: claims to hold more than it is long")


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
