"""Training data as blocks of texts: JSON lines, plain text and parquet of any size, gzipped or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from r2med.data.formats import lines, not_utf8, parse_lines
from r2med.data.problems import ERROR, Findings
from r2med.errors import DataError, suggest
from r2med.formatting import first_line
from r2med.lexical.arrays import Places, by_size

BLOCK = 2_000_000  # how many characters of text are worked on at a time; a row with more is looked at in parts
LONGEST = 1_000_000  # a longer text is looked at in slices of so many characters
_SHARED = 2_000  # how many characters two slices share: more than 13 words have
_ROWS_AT_ONCE = 4096
Item = TypeVar("Item")


class TrainingRow(NamedTuple):
    """The texts of a row of training data."""

    number: int  # the line in the file, or the row of a parquet file, counted from 1
    texts: list[str]
    size: float  # the bytes of the file that it takes
    part: int = 0  # which part of a row of enormous texts this is


@dataclass(frozen=True)
class Block:
    """The texts of some rows, with the row of each."""

    texts: list[str]
    rows: Places
    count: int  # number of rows that begin here, those without any text included
    size: float  # the bytes of the file that they take

    @classmethod
    def of(cls, rows: list[TrainingRow]) -> Block:
        """Build the block of some successive rows."""
        texts, counts = [text for row in rows for text in row.texts], [len(row.texts) for row in rows]
        numbers = np.repeat([row.number for row in rows], counts).astype(np.int64)
        return cls(texts, numbers, sum(row.part == 0 for row in rows), sum(row.size for row in rows))


def blocks(path: Path, fields: tuple[str, ...] = ()) -> Iterator[Block]:
    """Yield the texts of a file, block by block: all strings of a row, or those in the named fields, however deep.

    The first line that cannot be read ends it with an error: what was not looked at cannot be called clean.
    """
    rows = FORMATS[format_of(path)](path, fields)
    empty = True
    for block in by_size(chain.from_iterable(map(_parts, rows)), lambda row: sum(map(len, row.texts)) + 1, BLOCK):
        empty = False
        yield Block.of(block)
    if empty:
        raise DataError(f"{path}: holds no rows")


def format_of(path: Path) -> str:
    """Return the format of a file, by its name.

    >>> format_of(Path("train.jsonl.gz"))
    '.jsonl'
    """
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix not in FORMATS or (suffix == ".parquet" and path.suffix == ".gz"):
        endings = f"training data ends in {', '.join(FORMATS)}, with .gz behind (not parquet)"
        raise DataError(f"{path}: the format is not known; {endings}")
    return suffix


def check_files(paths: Iterable[Path]) -> None:
    """Raise an error for the first file that is not there or has a format that is not known."""
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        format_of(path)


def size_of(path: Path) -> int:
    """Return the number of bytes to read, unzipped; for a gzipped file of 4 GB and more, an estimate."""
    size = path.stat().st_size
    if path.suffix != ".gz" or size < _TRAILER:
        return size
    with path.open("rb") as stream:
        stream.seek(-_TRAILER, 2)
        return max(size, int.from_bytes(stream.read(_TRAILER), "little"))


_TRAILER = 4  # A gzip file ends with its unzipped size in so many bytes


def strings(value: object) -> list[str]:
    """Return all strings in a JSON value, in their order.

    >>> strings({"query": "a", "n": 1, "pos": ["b", {"title": "c"}], "none": None})
    ['a', 'b', 'c']
    """
    if type(value) is str:
        return [value]
    texts = []
    waiting = [value]
    while waiting:  # no recursion: JSON may be nested deeper than Python's stack
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
    return texts


def _parts(row: TrainingRow) -> Iterator[TrainingRow]:
    """Yield a row as it is, or one of enormous texts in parts."""
    if sum(map(len, row.texts)) <= LONGEST:
        yield row
        return
    step = LONGEST - _SHARED
    slices = [text[at : at + LONGEST] for text in row.texts for at in range(0, max(1, len(text) - _SHARED), step)]
    for number, part in enumerate(by_size(slices, len, BLOCK)):
        yield TrainingRow(row.number, part, 0 if number else row.size, number)


def _json(path: Path, fields: tuple[str, ...]) -> Iterator[TrainingRow]:
    findings, seen, size = Findings(), set[str](), 0

    def measured() -> Iterator[tuple[int, bytes]]:
        nonlocal size
        for number, line in lines(path, findings):
            size += len(line)
            yield number, line

    for number, row in _sound(parse_lines(measured(), path, findings), findings):
        seen.update(row)
        texts = strings([row[name] for name in fields if name in row] if fields else row)
        yield TrainingRow(number, texts, size)
        size = 0
    _require(path, fields, seen)


def _text(path: Path, fields: tuple[str, ...]) -> Iterator[TrainingRow]:
    if fields:
        raise DataError(f"{path}: lines of text have no fields; leave --fields away")
    findings = Findings()
    for number, line in _sound(lines(path, findings), findings):
        try:
            yield TrainingRow(number, [line.decode("utf-8").rstrip("\r\n")], len(line))
        except UnicodeDecodeError as bad:
            raise DataError(f"{path}:{number}: {not_utf8(line, bad)}") from bad


def _parquet(path: Path, fields: tuple[str, ...]) -> Iterator[TrainingRow]:
    import polars as pl

    try:
        frame = pl.scan_parquet(path)
        schema = frame.collect_schema()
        _require(path, fields, schema)
        columns = [name for name, kind in schema.items() if _has_text(kind) and (not fields or name in fields)]
        total = frame.select(pl.len()).collect().item()
        if not columns:
            raise DataError(f"{path}: no column holds text; the columns are {', '.join(schema)}")
        number = 0
        for batch in frame.select(columns).collect_batches(chunk_size=_ROWS_AT_ONCE, maintain_order=True, lazy=True):
            for row in batch.iter_rows():
                number += 1
                yield TrainingRow(number, strings(list(row)), path.stat().st_size / total)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path}: is not a whole parquet file ({first_line(error)})") from error


FORMATS: Mapping[str, Callable[[Path, tuple[str, ...]], Iterator[TrainingRow]]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json),
    ".txt": _text,
    ".parquet": _parquet,
}
"""How the rows of a file are read, by its suffix."""


def _sound(items: Iterable[Item], findings: Findings) -> Iterator[Item]:
    """Yield the items, until the reader meets an error, which is raised."""
    for item in items:
        if findings.errors:
            break
        yield item
    if findings.errors:
        raise DataError(str(next(findings.of(ERROR))))


def _require(path: Path, fields: tuple[str, ...], seen: Iterable[str]) -> None:
    names = set(seen)
    for name in fields:
        if name not in names:
            raise DataError(f"{path}: no row has the field {name!r}{suggest(name, names)}")


def _has_text(kind: object) -> bool:
    import polars as pl

    if isinstance(kind, pl.List | pl.Array):
        return _has_text(kind.inner)
    if isinstance(kind, pl.Struct):
        return any(_has_text(field.dtype) for field in kind.fields)
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)
