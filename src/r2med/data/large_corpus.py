"""A corpus too large for memory: its rows are read in a stream, and its ids and the places of its texts go to files.

The files hold the result of reading, repeated ids folded: ids, and the place of each document's line in the files that
were read. Only the texts of packed files are copied. It is cached by the hash of the bytes read, like the description
of smaller files. Nothing of it is held in memory.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.dataset import Texts, text_fingerprint
from r2med.data.problems import Findings, Problem, Spot, place
from r2med.data.rows import Cursor, is_plain
from r2med.data.stored_texts import StoredIds, StoredTexts, alphabetical
from r2med.data.text_sources import DAMAGED, MappedFile, RowFiles, TextSource, encode
from r2med.data.texts import EXTRAS, document_text
from r2med.formatting import shorten
from r2med.store.hashes import is_unchanged, write_checksums

TEXTS = "texts.utf8"
_IDS = "ids.utf8"
_BOUNDS = "bounds.npy"
"""Start of each of the files that were read, as if they were one; present only if their texts stay in them."""
_FACTS = "facts.json"
_ROWS_AT_ONCE = 1 << 17


class _Column:
    """Column of numbers that go to a file as they come."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._file, self._rows = path, path.open("wb"), array(kind)
        self.append = self._rows.append

    def flush(self) -> None:
        """Write what has gathered to the file."""
        self._rows.tofile(self._file)
        del self._rows[:]

    def take(self) -> NDArray[Any]:
        """Return all numbers, and remove the file."""
        self.flush()
        self._file.close()
        found = np.fromfile(self._path, dtype=np.dtype(self._rows.typecode))
        self._path.unlink()
        return found


class _CopiedTexts:
    """Texts that cannot be read in place, copied one after the other to a file."""

    def __init__(self, folder: Path) -> None:
        self.cursor = None
        self._file, self._end = (folder / TEXTS).open("wb"), 0

    def begin(self) -> None:
        """Do nothing: there is one file for all."""

    def keep(self, text: str) -> tuple[int, bytes]:
        """Store a text; return its place, and the bytes that stand there."""
        content, start = encode(text), self._end
        self._end += self._file.write(content)
        return start, content

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _TextsInPlace:
    """Texts that stay in the lines of plain files."""

    def __init__(self, folder: Path) -> None:
        self.cursor = Cursor()
        self._file = folder / _BOUNDS
        self._bounds: list[int] = []

    def begin(self) -> None:
        """Begin the next file where the one before it ends."""
        before = self._bounds[-1] if self._bounds else 0
        self._bounds.append(before + self.cursor.end)

    def keep(self, text: str) -> tuple[int, bytes]:
        """Return the place of the line that a text was just read from, and its bytes."""
        return self._bounds[-1] + self.cursor.start, self.cursor.line

    def close(self) -> None:
        """Write the start of each file."""
        np.save(self._file, np.array(self._bounds, dtype=np.int64), allow_pickle=False)


def _source(folder: Path, files: Sequence[Path]) -> TextSource:
    """Return the source of the texts whose places a folder has."""
    if (folder / _BOUNDS).exists():
        return RowFiles(files, np.load(folder / _BOUNDS).tolist(), document_text)
    return MappedFile(folder / TEXTS)


class StoredTable:
    """Table that takes rows as `TextTable` does, and writes them to a folder."""

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self._texts = _TextsInPlace(folder) if all(map(is_plain, files)) else _CopiedTexts(folder)
        self.cursor: Cursor | None = self._texts.cursor
        self.rows = 0
        self.whole = True
        self.extras: dict[str, dict[str, str]] = {name: {} for name in EXTRAS}
        self.synonyms: dict[str, tuple[str, ...]] = {}
        self._folder, self._paths = folder, files
        self._ids: BinaryIO = (folder / _IDS).open("wb")
        kinds = {"hash": "q", "line": "I", "id_length": "I", "start": "q", "length": "I", "check": "I"}
        self._columns = {name: _Column(folder / f"{name}.part", kind) for name, kind in kinds.items()}
        self._hash, self._line, self._id_length, self._text_start, self._text_length, self._check = (
            self._columns.values()
        )
        self._files: list[tuple[int, Path]] = []

    def begin(self, file: Path) -> None:
        """Set the file that the next rows come from."""
        self._files.append((self.rows, file))
        self._texts.begin()

    def add(self, identifier: str, text: str, line: int, found: Findings) -> None:
        """Append a row; repeated ids are looked for at the end."""
        name = encode(identifier)
        start, content = self._texts.keep(text)
        self._ids.write(name)
        self._hash.append(hash(identifier))
        self._line.append(line)
        self._id_length.append(len(name))
        self._text_start.append(start)
        self._text_length.append(len(content))
        self._check.append(zlib.crc32(content))
        self.rows += 1
        if not self.rows % _ROWS_AT_ONCE:
            for column in self._columns.values():
                column.flush()

    def finish(self, found: Findings) -> None:
        """Fold repeated ids, note them, and write the place of every id and text."""
        self._ids.close()
        self._texts.close()
        hashes, lines, id_lengths, starts, lengths, checks = (column.take() for column in self._columns.values())
        columns = {
            "id_starts": np.cumsum(id_lengths, dtype=np.int64) - id_lengths,
            "id_lengths": id_lengths,
            "text_starts": starts,
            "text_lengths": lengths,
            "checks": checks,
        }
        repeated = self._fold(hashes, lines, columns, found)
        if len(repeated):
            columns = {name: np.delete(column, repeated) for name, column in columns.items()}
        columns["order"] = alphabetical(MappedFile(self._folder / _IDS), columns["id_starts"], columns["id_lengths"])
        for name, column in columns.items():
            np.save(self._folder / f"{name}.npy", column, allow_pickle=False)

    def _fold(
        self, hashes: NDArray[np.int64], lines: NDArray[Any], columns: dict[str, NDArray[Any]], found: Findings
    ) -> NDArray[np.intp]:
        """Return the rows whose id an earlier row has."""
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        suspects = np.unique(np.concatenate([order[same], order[same + 1]]))
        ids = StoredTexts(MappedFile(self._folder / _IDS), columns["id_starts"], columns["id_lengths"])
        source = _source(self._folder, self._paths)
        texts = StoredTexts(source, columns["text_starts"], columns["text_lengths"], columns["checks"])
        first: dict[str, int] = {}
        repeated = []
        for row in suspects.tolist():
            before = first.setdefault(ids[row], row)
            if before != row:
                repeated.append(row)
                self._note(ids[row], (before, row), lines, texts[before] == texts[row], found)
        return np.array(repeated, dtype=np.intp)

    def _note(self, name: str, rows: tuple[int, int], lines: NDArray[Any], same: bool, found: Findings) -> None:
        (file, line), (other, number) = ((self._file(row), int(lines[row])) for row in rows)
        repeats = f"repeats the id {shorten(name)!r} of {place(file, line)}"
        spot = Spot(other, number, found)
        if same:
            spot.note("repeated-id", f"{repeats} with the same text, folded")
        else:
            spot.note("conflicting-id", f"{repeats} with another text")

    def _file(self, row: int) -> Path:
        return next(file for start, file in reversed(self._files) if start <= row)


@dataclass(frozen=True)
class StoredCorpus:
    """Content of a folder that holds a corpus."""

    documents: Texts
    rows: int
    problems: Sequence[Problem]


def seal(folder: Path, files: Sequence[Path], rows: int, problems: Sequence[Problem]) -> None:
    """Write the problems, the fingerprint and the checksums; texts have checksums of their own."""
    ids, texts = _columns(folder, files)
    noted = [each._asdict() for each in problems]
    facts = {"fingerprint": text_fingerprint(ids, texts), "rows": rows, "problems": noted}
    (folder / _FACTS).write_bytes(orjson.dumps(facts))
    write_checksums(folder, by_size=(TEXTS,))


def open_corpus(folder: Path, files: Sequence[Path]) -> StoredCorpus | None:
    """Open the corpus that a folder holds of some files; return None if it is damaged."""
    if (folder / DAMAGED).exists() or not is_unchanged(folder, by_size=(TEXTS,)):
        return None
    facts = orjson.loads((folder / _FACTS).read_bytes())
    problems = [Problem(**problem) for problem in facts["problems"]]
    return StoredCorpus(Texts(*_columns(folder, files), facts["fingerprint"]), facts["rows"], problems)


def stored_documents(folder: Path, files: Sequence[Path]) -> Texts:
    """Return the documents in a folder that was not sealed."""
    return Texts(*_columns(folder, files))


def _columns(folder: Path, files: Sequence[Path]) -> tuple[StoredIds, StoredTexts]:
    def column(name: str) -> NDArray[Any]:
        mapped: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray)
        return mapped

    ids = StoredIds(MappedFile(folder / _IDS), column("id_starts"), column("id_lengths"), column("order"))
    source = _source(folder, files)
    return ids, StoredTexts(source, column("text_starts"), column("text_lengths"), column("checks"))
