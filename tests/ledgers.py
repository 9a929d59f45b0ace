"""Ledgers with made-up runs, for what would take hours to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from r2med.data.run import Run
from r2med.data.tasks import registry
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord
from r2med.store.hashes import cache_key

BM25 = ({"spec": "bm25", "kind": "retriever"},)


def add_run(
    ledger: Ledger,
    system: str,
    task: str,
    values: Sequence[float] | Mapping[str, Sequence[float]],
    *,
    stages: Sequence[Mapping[str, Any]] = BM25,
    **record: Any,
) -> Entry:
    """A run with these per-query scores, of nDCG@10 where no measure is named."""
    scores = values if isinstance(values, Mapping) else {"nDCG@10": values}
    count = len(next(iter(scores.values())))
    queries = tuple(f"q{place}" for place in range(count))
    content = {
        "r2med": "0.0",
        "data": {"fingerprint": f"data of {task}", "revision": ""},
        "documents": 3,
        "stages": list(stages),
        "warnings": [],
        **record,
    }
    seconds = content.pop("seconds", 1.0)
    key = cache_key(system=system, task=task, values=repr(values), record=repr(record))
    group, created = registry()[task].group, record.get("created", "")
    arrays = {measure: np.array(column, dtype=np.float64) for measure, column in scores.items()}
    entry = Entry(key, system, task, group, queries, seconds, RunRecord.from_json(content), created, scores=arrays)
    lists = {query: (["d1", "d2"], [2.0, 1.0]) for query in queries}
    return ledger.add(entry, Run.from_lists(lists))


def add_everywhere(ledger: Ledger, system: str, group: str, value: float | Sequence[float], **more: Any) -> list[Entry]:
    """A run on every task of a group, with the same scores."""
    values = [value, value] if isinstance(value, float) else value
    return [add_run(ledger, system, task.name, values, **more) for task in registry().values() if task.group == group]


def commands(calls: Sequence[Sequence[str]]) -> str:
    """Code for a process of its own that gives these commands one after another, and ends with the first that fails."""
    return f"""
import sys
from r2med.cli.main import main
for arguments in {calls!r}:
    sys.argv = ["r2med", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
