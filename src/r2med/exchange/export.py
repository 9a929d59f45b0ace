"""Results as files: what a colleague, a script or a paper needs, in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from r2med.data import load
from r2med.data.run import Run
from r2med.data.run_files import write_run
from r2med.errors import DataError
from r2med.expand.generation_files import HYDOC, hydoc_rows
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report, Result
from r2med.storage.files import write_file


def file_name(text: str) -> str:
    """A system or task as part of a file name.

    >>> file_name("bm25(k1=1.2) >> x"), file_name("sample/Biology")
    ('bm25-k1-1.2-x', 'sample-Biology')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "run"


def write_results(report: Report, folder: Path) -> None:
    """Write results.json, per_query.csv, and for each system and task a run file and what its expanders wrote.

    Folders have short names in all of them: the files are for others, who do not have them at the same place.
    """
    report = report.with_task_names()
    write_file(folder / "results.json", orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2), parents=True)
    write_file(folder / "per_query.csv", report.per_query().write_csv())
    with Ledger() as ledger:
        for result in report.results:
            if result.run_id:
                entry = ledger.get(result.run_id)
                _write_run_lists(ledger.run(entry), result, folder / "runs")
                if generations := ledger.generations(entry):
                    place = folder / "generations" / _name(result) / HYDOC
                    queries = load(entry.task).collection.queries
                    write_file(place, hydoc_rows(queries, generations), parents=True)


def _name(result: Result) -> str:
    """Return the name of a result's files."""
    return f"{file_name(result.task)}.{file_name(result.system)}.{result.run_id}"


def _write_run_lists(run: Run, result: Result, folder: Path) -> None:
    """A TREC file, or jsonl where an id cannot be written in one."""
    name = _name(result)
    try:
        write_run(run, folder / f"{name}.trec", tag=file_name(result.system))
    except DataError:
        write_run(run, folder / f"{name}.jsonl")
