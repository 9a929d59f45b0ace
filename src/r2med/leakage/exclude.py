"""Clean training files: what is left when the affected rows are taken out, everything else as it was."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from r2med.data.rows import opened
from r2med.errors import R2medError, first_line
from r2med.leakage.findings import LeakageReport
from r2med.leakage.training import format_of
from r2med.storage.files import draft_file
from r2med.text.hash_table import Places


def targets(files: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where the clean copy of each file goes: `out` itself for one file, the folder `out` for several.

    Nothing that exists is written over, least of all the training data itself.

    >>> targets([Path("a/train.jsonl")], Path("clean.jsonl"))
    {PosixPath('a/train.jsonl'): PosixPath('clean.jsonl')}
    """
    files = list(dict.fromkeys(files))
    if out.exists() or out.is_symlink():
        raise R2medError(f"{out}: exists already; give another --exclude or remove it")
    if len(files) == 1:
        if _storage(out) != _storage(files[0]):
            raise R2medError(f"{out}: must end in {''.join(_storage(files[0]))} as {files[0]} does")
        if not out.parent.is_dir():
            raise R2medError(f"{out.parent}: no such folder")
        return {files[0]: out}
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise R2medError(f"{out}: two of the files are called {twice}; clean them one at a time")
    return {file: out / file.name for file in files}


def _storage(path: Path) -> tuple[str, str]:
    """How a file is stored: its format, and whether it is zipped."""
    return format_of(path), ".gz" if path.suffix == ".gz" else ""


def exclude(report: LeakageReport, places: Mapping[Path, Path], documents: bool = False) -> dict[Path, int]:
    """Write each file without its affected rows; how many rows each lost.

    A row is affected when it holds a query or a positive; or, if `documents` count as well, any text of a task.
    """
    lost = {}
    for source, target in places.items():
        found = report.files[source]
        rows = found.any if documents else found.judged
        with draft_file(target, parents=True) as draft:
            (_without_rows if format_of(source) == ".parquet" else _without_lines)(source, draft, rows)
        lost[target] = len(rows)
    return lost


def _without_lines(source: Path, target: Path, rows: Places) -> None:
    """Copy lines byte for byte, but these."""
    unwanted = set(rows.tolist())
    zipped = source.suffix == ".gz"
    with opened(source) as stream, target.open("wb") as plain:
        # No time stamp and no name: the same lines are the same bytes.
        sink = cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=plain, mtime=0)) if zipped else plain
        sink.writelines(line for number, line in enumerate(stream, 1) if number not in unwanted)
        if zipped:
            sink.close()


def _without_rows(source: Path, target: Path, rows: Places) -> None:
    """Copy the rows of a parquet file, but these."""
    import polars as pl

    number = "\0row"
    unwanted = pl.Series(rows.astype(np.uint32))
    frame = pl.scan_parquet(source).with_row_index(number, offset=1)
    try:
        frame.filter(~pl.col(number).is_in(unwanted.implode())).drop(number).sink_parquet(target)
    except pl.exceptions.ComputeError as error:
        # So polars calls a full disk.
        raise OSError(first_line(error)) from error
