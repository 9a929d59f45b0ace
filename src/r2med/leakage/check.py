"""Check training files against tasks: index the tasks, stream the files, gather what is found."""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import orjson

from r2med.data.formats import open_file
from r2med.data.loader import load
from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.formatting import first_line
from r2med.leakage.findings import LeakageReport, Tally, pairs_of
from r2med.leakage.index import Settings, index_task
from r2med.leakage.match import LeakHits, Matcher
from r2med.leakage.training import Block, blocks, check_files, format_of, size_of
from r2med.lexical.arrays import Places, by_size
from r2med.pipeline.executor.local import Executor, quiet
from r2med.store.cache import Cache
from r2med.store.files import draft_file

_MEGABYTE = 1_000_000
_Piece = tuple[int, LeakHits]  # the place of a task, and pairs with its texts
_WORKERS = 2
"""Reading JSON needs Python, hashing hardly does: two threads at work on blocks beside the reader keep cores busy."""


def check(
    files: Sequence[str | Path],
    tasks: Sequence[str | Path | Task],
    settings: Settings | None = None,
    executor: Executor | None = None,
    out: Path | None = None,
    limit: int = 20,
) -> LeakageReport:
    """Check what training files hold of tasks; every pair goes to the file `out`, the strongest into the report.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "train.txt"
    ...     _ = file.write_text(load("sample/Biology").collection.queries.texts[0].upper())
    ...     report = check([file], ["sample/Biology"], Settings(methods=("exact", "normalised")))
    >>> report.leaks(), report.tasks[0].queries.affected, report.strongest[0].method
    (True, 1, 'normalised')
    """
    settings, executor = settings or Settings(), executor or quiet()
    paths = list(dict.fromkeys(map(Path, files)))
    check_files(paths)
    if out is not None and out.resolve() in {path.resolve() for path in paths}:
        raise R2medError(f"{out}: is training data; give another --out")
    subjects = resolve(tasks)
    if not subjects:
        raise R2medError("name at least one task to check against")
    # The texts of a task are freed before the next task is read.
    tally = Tally([index_task(load(task), settings, executor, Cache.default()) for task in subjects], limit)
    with ExitStack() as stack:
        # The file gets its name when all is done.
        draft = stack.enter_context(draft_file(out, parents=True)) if out is not None else None
        sink = stack.enter_context(draft.open("wb")) if draft is not None else None
        matcher = Matcher(tally.subjects, settings)
        total = max(1, sum(map(size_of, paths)) // _MEGABYTE)
        bar = stack.enter_context(executor.progress("read training data, MB", total, "MB"))
        for path in paths:
            for block, pieces in _matched(matcher, blocks(path, settings.fields)):
                for place, hits in pieces:
                    tally.add(path, place, hits)
                    if sink is not None:
                        pairs = pairs_of(path, tally.subjects[place], hits)
                        sink.writelines(orjson.dumps(pair._asdict()) + b"\n" for pair in pairs)
                tally.end_block(block.count)
                bar.advance(block.size / _MEGABYTE)
            tally.end_file(path)
    return tally.report(settings)


def _matched(matcher: Matcher, training: Iterator[Block]) -> Iterator[tuple[Block, Iterable[_Piece]]]:
    """Yield blocks with what they hold, in order; few blocks and few pairs are in memory at a time."""
    waiting: deque[tuple[Block, _Ahead]] = deque()
    with ThreadPoolExecutor(_WORKERS) as workers:
        for block in training:
            waiting.append((block, _Ahead(matcher, block, workers)))
            if len(waiting) > _WORKERS:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()


class _Ahead:
    """Hits of a block, found in a worker; it is at most `at_once` pairs, and a piece, ahead of its consumer."""

    def __init__(self, matcher: Matcher, block: Block, workers: ThreadPoolExecutor) -> None:
        portions = by_size(matcher.match(block), lambda piece: len(piece[1]), matcher.at_once)
        self._begin = partial(workers.submit, next, portions, [])
        self._next: Future[list[_Piece]] = self._begin()

    def __iter__(self) -> Iterator[_Piece]:
        while pieces := self._next.result():
            self._next = self._begin()
            yield from pieces


def targets(files: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Return the path of each file's clean copy: `out` itself for one file, a file in the folder `out` for several.

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
    if twice := [name for name in names if names.count(name) > 1]:
        raise R2medError(f"{out}: two of the files are called {twice[0]}; clean them one at a time")
    return {file: out / file.name for file in files}


def _storage(path: Path) -> tuple[str, str]:
    """Return the format of a file, and its ending if it is zipped."""
    return format_of(path), ".gz" if path.suffix == ".gz" else ""


def exclude(report: LeakageReport, places: Mapping[Path, Path], documents: bool = False) -> dict[Path, int]:
    """Write files without the rows of queries and positives, or with `documents` of any text; return their numbers."""
    lost = {}
    for source, target in places.items():
        affected = report.files[source]
        rows = affected.any if documents else affected.judged
        with draft_file(target, parents=True) as draft:
            (_without_rows if format_of(source) == ".parquet" else _without_lines)(source, draft, rows)
        lost[target] = len(rows)
    return lost


def _without_lines(source: Path, target: Path, rows: Places) -> None:
    unwanted, zipped = set(rows.tolist()), source.suffix == ".gz"
    with open_file(source) as stream, target.open("wb") as plain:
        # No time stamp and no name: the same lines are the same bytes.
        sink = cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=plain, mtime=0)) if zipped else plain
        sink.writelines(line for number, line in enumerate(stream, 1) if number not in unwanted)
        if zipped:
            sink.close()


def _without_rows(source: Path, target: Path, rows: Places) -> None:
    import polars as pl

    number, unwanted = "\0row", pl.Series(rows.astype(np.uint32))
    frame = pl.scan_parquet(source).with_row_index(number, offset=1)
    try:
        frame.filter(~pl.col(number).is_in(unwanted.implode())).drop(number).sink_parquet(target)
    except pl.exceptions.ComputeError as error:
        # So polars calls a full disk.
        raise OSError(first_line(error)) from error
