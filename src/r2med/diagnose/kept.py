"""Diagnoses that were made before: a run never changes, so neither do its causes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from r2med.diagnose.causes import Cause, Diagnosis, Placed, QueryCause
from r2med.errors import R2medError
from r2med.store.cache import Cache, cache_key
from r2med.store.checksums import is_unchanged
from r2med.store.ledger import Entry, Ledger

FORMAT = 1
"""Changes when causes are decided or written otherwise."""
_KIND = "causes"
_FILE = "diagnosis.json"


def recalled(entry: Entry, ledger: Ledger) -> Diagnosis | None:
    """What was found out about a run before; None when nothing was, or the search it rests on was forgotten."""
    folder = Cache.default().root / _KIND / _key(entry)
    if not is_unchanged(folder):
        return None
    try:
        found = _diagnosis(orjson.loads((folder / _FILE).read_bytes()))
        if found.oracle:
            ledger.get(found.oracle)
    except (OSError, ValueError, KeyError, TypeError, R2medError):
        return None
    return found


def keep(entry: Entry, found: Diagnosis) -> Diagnosis:
    """Remember a diagnosis, in place of one that can no longer be used."""
    content = orjson.dumps(found.as_dict())

    def write(folder: Path) -> None:
        (folder / _FILE).write_bytes(content)

    cache, key = Cache.default(), _key(entry)
    cache.drop(_KIND, key)
    cache.keep(_KIND, key, write)
    return found


def _key(entry: Entry) -> str:
    # A run that was made again under the same key is another run.
    return cache_key(run=entry.key, created=(entry.created, entry.seconds), format=FORMAT)


def _diagnosis(made: Mapping[str, Any]) -> Diagnosis:
    """The inverse of `Diagnosis.as_dict`."""
    queries = [
        QueryCause(row["query"], tuple(map(_placed, row["positives"])), row["reason"]) for row in made["queries"]
    ]
    notes = tuple(made["notes"])
    return Diagnosis(made["system"], made["task"], made["deep_cutoff"], queries, made["oracle_run"], notes)


def _placed(row: Mapping[str, Any]) -> Placed:
    return Placed(**{**row, "cause": Cause(row["cause"])})
