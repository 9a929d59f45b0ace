"""Rows of data files: JSON lines, plain or gzipped, and parquet, with every defect noted and stepped over."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import orjson

from r2med.data.problems import Findings
from r2med.formatting import describe, first_line, shorten
from r2med.settings import memory_limit
from r2med.store.hashes import stamp

if TYPE_CHECKING:
    import polars

Row = Mapping[str, object]
Rows = Iterator[tuple[int, Row]]
"""Rows with their numbers, counted from 1."""
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 20
_LONGEST = 64 << 20
"""The bytes of the longest line that is read."""
_DEEPEST = 250
"""Brackets in a line from which on a parser may give up for their depth."""
_SHARE = 64
"""Fraction of the memory that may be used for the rows of a table at a time."""
_FIRST_ROWS = 256
_MOST_ROWS = 65_536


class Digests:
    """Hashes of files, taken of the very bytes that were read."""

    def __init__(self) -> None:
        self._hashes: dict[Path, hashlib._Hash] = {}

    def begin(self, path: Path) -> hashlib._Hash:
        """Return the hash object for the bytes of a file, from its beginning."""
        self._hashes[path] = hashlib.sha256()
        return self._hashes[path]

    def take(self, path: Path) -> None:
        """Read a file for its hash."""
        digest = self.begin(path)
        with path.open("rb") as stream:
            while block := stream.read(_BUFFER):
                digest.update(block)

    def of(self, path: Path) -> str:
        """Return the hash of a file that was read; empty for one that was not."""
        return self._hashes[path].hexdigest() if path in self._hashes else ""


class Cursor:
    """Position of a reader in a file of lines: the line that was read last, and its start."""

    def __init__(self) -> None:
        self.rewind()

    @property
    def end(self) -> int:
        """Return where the line ends, and the next one starts."""
        return self.start + len(self.line)

    def rewind(self) -> None:
        """Go to the beginning of a file."""
        self.start, self.line = 0, b""

    def advance(self, line: bytes) -> None:
        """Advance to the next line."""
        self.start, self.line = self.end, line


class _HashedFile(io.RawIOBase):
    """File whose bytes go into a hash as they are read."""

    def __init__(self, path: Path, digest: hashlib._Hash) -> None:
        self._file, self._digest = io.FileIO(path), digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def read_rows(path: Path, found: Findings, digests: Digests | None = None, cursor: Cursor | None = None) -> Rows:
    """Read the rows of a file by its format; `digests` receives its hash, and `cursor` is moved on the way."""
    if path.suffix == ".parquet":
        return parquet_rows(path, found, digests)
    return json_rows(path, found, digests, cursor)


def is_plain(path: Path) -> bool:
    """Return whether a file holds its rows as lines that can be read in place: neither packed nor a table."""
    try:
        with path.open("rb") as stream:
            return path.suffix not in (".parquet", ".gz") and stream.read(len(_GZIP)) != _GZIP
    except OSError:
        return False  # reading it will say what is wrong


def lines(
    path: Path, found: Findings, digests: Digests | None = None, cursor: Cursor | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file with their numbers, unzipped and without a byte order mark."""
    number = 0
    crlf = False
    if cursor is not None:
        cursor.rewind()
    try:
        with opened(path, digests) as stream:
            first = stream.readline(_LONGEST + 1)
            if first.startswith(_UTF16):
                found.add("bad-encoding", path, 1, "the file is UTF-16; save it as UTF-8")
                return
            if first.startswith(_BOM):
                found.add("bom", path, 1, "starts with a byte order mark, which was skipped")
                first = first.removeprefix(_BOM)
                if cursor is not None:
                    cursor.advance(_BOM)
            rest = iter(partial(stream.readline, _LONGEST + 1), b"")
            for number, line in enumerate(chain([first] if first else [], rest), 1):
                if len(line) > _LONGEST:
                    message = f"longer than {_LONGEST >> 20} MB without an end of line; a row is a line"
                    found.add("damaged-file", path, number, message)
                    return
                if not crlf and line.endswith(b"\r\n"):
                    crlf = True
                    found.add("crlf", path, number, "Windows line ends (CRLF), which were accepted")
                if cursor is not None:
                    cursor.advance(line)
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found.add("damaged-file", path, number + 1, f"the gzip data is cut short or damaged ({first_line(error)})")
    except OSError as error:
        found.add("unreadable-file", path, 0, f"cannot be read: {error.strerror or first_line(error)}")


def json_rows(path: Path, found: Findings, digests: Digests | None = None, cursor: Cursor | None = None) -> Rows:
    """Read the objects of a file of JSON lines; blank lines are skipped."""
    return parsed(lines(path, found, digests, cursor), path, found)


def parsed(numbered: Iterable[tuple[int, bytes]], path: Path, found: Findings) -> Rows:
    """Yield the objects that lines of a file hold."""
    for number, line in numbered:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if "memory" in error.msg.lower() and line.count(b"[") + line.count(b"{") > _DEEPEST:
                found.add("broken-json", path, number, "not JSON: brackets are nested too deeply, or not closed")
                continue
            if "memory" in error.msg.lower():
                # orjson reports it so when memory cannot be allocated.
                raise MemoryError(f"while {path} was read") from error
            if line.strip():
                code, message = _broken(line, error)
                found.add(code, path, number, message)
            continue
        if type(row) is not dict:
            found.add("broken-json", path, number, f"expected a JSON object, found {describe(row)}")
        elif line.count(b'"') == 2 * (len(row) + list(map(type, row.values())).count(str)):
            # Quotes surround keys and texts, and escaped ones only add to them: without more of them, no further key.
            yield number, row
        elif repeated := repeated_key(line, row):
            found.add("repeated-key", path, number, f"the key {shorten(repeated)!r} is given twice")
        else:
            yield number, row


def repeated_key(text: bytes, value: object) -> str:
    """Return a key that an object in JSON text gives twice, of which a parser keeps the last; else empty."""
    # A quote and a colon are nearly always a key. Only if their number differs is the text parsed with care.
    if text.count(b'":') == _count_keys(value):
        return ""
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)

    try:
        json.loads(text, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return ""
    return twice[0] if twice else ""


def _count_keys(value: object) -> int:
    if type(value) is dict:
        return len(value) + sum(_count_keys(each) for each in value.values() if type(each) in (dict, list))
    if type(value) is list:
        return sum(_count_keys(each) for each in value if type(each) in (dict, list))
    return 0


def parquet_rows(path: Path, found: Findings, digests: Digests | None = None) -> Rows:
    """Yield the rows of a parquet file, a slice of them in memory at a time."""
    import polars

    before = stamp(path)
    number, problem = 0, ("", "")
    try:
        if digests is not None:
            digests.take(path)
        for rows in parquet_slices(path, max(_BUFFER, memory_limit() // _SHARE)):
            yield from enumerate(rows.iter_rows(named=True), number + 1)
            number += len(rows)
    except OSError as error:
        problem = "unreadable-file", f"cannot be read: {error.strerror or first_line(error)}"
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        problem = "damaged-file", f"is not a whole parquet file ({first_line(error)})"
    if stamp(path) != before:
        problem = "unreadable-file", "changed while it was read; read it again"
    if problem[0]:
        found.add(problem[0], path, 0, problem[1])


def parquet_slices(path: Path, size: int) -> Iterator[polars.DataFrame]:
    """Yield the table of a parquet file in slices of about this many bytes; other slices are not held."""
    import polars

    # Batches of the streaming engine do not help: it reads ahead of its consumer.
    table = polars.scan_parquet(path, glob=False)
    total, start, rows = table.select(polars.len()).collect().item(), 0, _FIRST_ROWS
    while start < total:
        part = table.slice(start, rows).collect()
        yield part
        start += rows
        rows = max(1, min(_MOST_ROWS, size * len(part) // max(1, int(part.estimated_size()))))


def opened(path: Path, digests: Digests | None = None) -> BinaryIO:
    """Open the bytes of a file, unzipped if it is gzipped."""
    raw = io.FileIO(path) if digests is None else _HashedFile(path, digests.begin(path))
    stream = io.BufferedReader(raw, _BUFFER)
    if path.suffix == ".gz" or stream.peek(len(_GZIP)).startswith(_GZIP):
        # The outer buffer finds line ends in C; a GzipFile on its own does it in Python.
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=stream)), _BUFFER)
    return stream


def _broken(line: bytes, error: orjson.JSONDecodeError) -> tuple[str, str]:
    """Return the code and message of a line that does not parse."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return "bad-encoding", not_utf8(line, bad)
    if b"\0" in line:
        return "broken-json", f"not JSON: a null byte at position {line.index(0) + 1}"
    # JSON that ends too early ends before the line break, not on the next line.
    column = min(error.pos, len(error.doc.rstrip())) + 1
    return "broken-json", f"not JSON: {error.msg.partition(':')[0]} at column {column}"


def not_utf8(line: bytes, bad: UnicodeDecodeError) -> str:
    """Return the message about a line that does not decode."""
    return f"not UTF-8: byte 0x{line[bad.start]:02x} at position {bad.start + 1}; save it as UTF-8"
