"""Results as files: what a colleague, a script or a paper needs, in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from r2med.errors import R2medError
from r2med.results import Report
from r2med.runfiles import write_run
from r2med.store.ledger import Ledger


def file_name(text: str) -> str:
    """A system or task as part of a file name.

    >>> file_name("bm25(k1=1.2) >> x"), file_name("sample/Biology")
    ('bm25-k1-1.2-x', 'sample-Biology')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "run"


def write_results(report: Report, folder: Path) -> None:
    """Write results.json, per_query.csv and a run file for each system and task."""
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise R2medError(f"{folder}: cannot be made ({error.strerror})") from error
    (folder / "results.json").write_bytes(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2))
    report.per_query().write_csv(folder / "per_query.csv")
    with Ledger() as ledger:
        for result in report.results:
            if result.run_id:
                run = ledger.run(ledger.get(result.run_id))
                plain = not any(re.search(r"\s", name) for name in (*run.queries, *run.documents))
                name = f"{file_name(result.task)}.{file_name(result.system)}.{result.run_id}"
                tag = file_name(result.system)
                write_run(run, folder / "runs" / (name + (".trec" if plain else ".jsonl")), tag=tag)
