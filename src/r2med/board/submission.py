"""Submissions: runs with their results, a description and a manifest, in one file that a leaderboard keeper can check.

    manifest.json      the sha256 and size of every other file, and of itself
    submission.json    who submits what: title, authors, link, notes, and every system with its settings and versions
    results.json       every figure, by system and task, and the averages over whole groups
    runs/*.jsonl.gz    the ranked lists that the figures were measured on

Nothing in it proves who made a run: it proves that the figures are those of the lists, and that nothing was changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

import r2med
from r2med.board.archive import archive_bytes, zipped
from r2med.data.tasks import groups, registry
from r2med.errors import R2medError
from r2med.export import file_name
from r2med.runfiles import FORMATS
from r2med.store.cost import Cost
from r2med.store.files import write_file
from r2med.store.ledger import Entry, Ledger
from r2med.store.selection import each_once, require_all, select

FORMAT = "r2med submission"
VERSION = 1
MANIFEST, DESCRIPTION, RESULTS = "manifest.json", "submission.json", "results.json"


@dataclass(frozen=True)
class About:
    """What the submitter says."""

    title: str = ""
    authors: str = ""
    link: str = ""
    notes: str = ""


def submit(ledger: Ledger, names: Sequence[str], out: Path, about: About, tasks: Sequence[str] = ()) -> list[Entry]:
    """Pack the runs that are named by spec or id; returns them."""
    chosen = select(ledger, names, tasks)
    require_all(chosen)
    entries = each_once(chosen)
    for entry in entries:
        _check(entry)
    content = archive_bytes(packed(ledger, entries, about))
    write_file(out, content, parents=True)
    return entries


def _check(entry: Entry) -> None:
    if entry.task not in registry():
        raise R2medError(f"run {entry.id} is on {entry.task}, which nobody else has; choose with --tasks")
    if entry.oracle:
        raise R2medError(f"run {entry.id} of {entry.system} was shown the answers (oracle) and cannot be submitted")


def packed(ledger: Ledger, entries: Sequence[Entry], about: About) -> dict[str, bytes]:
    """The files of a submission, the manifest first."""
    files: dict[str, bytes] = {}
    results = []
    for entry in entries:
        name = f"runs/{file_name(entry.task)}.{file_name(entry.system)[:80]}.{entry.id}.jsonl.gz"
        files[name] = zipped(FORMATS["jsonl"].write(ledger.run(entry), ""))
        results.append(_result(ledger, entry, name))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    description = {"created": created, **asdict(about), "systems": _systems(entries)}
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
        "documents": entry.record["documents"],
        "metrics": {measure: float(scores[measure].mean()) for measure in sorted(scores)},
        "incomplete": len(entry.incomplete),
        "cost": Cost.of_runs([entry]).as_dict(),
        "data": entry.record["data"],
    }


def averages(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Group to system to measure to the mean over tasks, of systems that have all tasks of the group.

    >>> averages([{"group": "nano", "system": "bm25", "task": "nano/Biology", "metrics": {"nDCG@10": 0.5}}])
    {}
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for group in dict.fromkeys(result["group"] for result in results):
        wanted = {task.name for task in groups()[group]}
        for system in dict.fromkeys(result["system"] for result in results):
            rows = {r["task"]: r["metrics"] for r in results if (r["group"], r["system"]) == (group, system)}
            if rows.keys() != wanted:
                continue
            shared = [name for name in next(iter(rows.values())) if all(name in row for row in rows.values())]
            means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in shared}
            found.setdefault(group, {})[system] = means
    return found


def _systems(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every system once, with what its newest run recorded of it."""
    newest: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.used):
        newest[entry.system] = entry
    return [
        {
            "system": system,
            "stages": entry.record.get("stages", []),
            "versions": {name: entry.record.get(name) for name in ("r2med", "python", "packages", "machine")},
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
    """The digest of a manifest's content, its own digest left out."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS))


def sha256(content: bytes) -> str:
    """The hex digest of content."""
    return hashlib.sha256(content).hexdigest()


def _json(content: Mapping[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"
