"""The documents of a task: read to memory, or from large files copied once to mapped columns and recalled from there.

What is recalled is the result of reading, problems included, by the hashes of the files. Of files that are too large
for memory nothing is held in it.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts, text_fingerprint
from r2med.data.problems import Findings, Problem, Spot
from r2med.data.stored_texts import DAMAGED, StoredIds, StoredTexts, encode
from r2med.data.texts import TextTable, fill_table, read_documents
from r2med.errors import DataError
from r2med.settings import memory_limit
from r2med.store.cache import Cache
from r2med.store.files import draft_folder, sweep, unwritable
from r2med.store.hashes import FileHashes, cache_key, is_unchanged, stamp, write_checksums
from r2med.store.typed import Typed, read_json, write_json

FORMAT = 4  # format number, raised if what is cached, or what reading a file gives, changes: part of the cache key
_KIND = "corpus"
_SHARE = 8  # files of more than this fraction of the memory that may be used are not held in it
_PACKED = 4  # ratio of the size of the texts to that of a packed file
_LARGE = 4_000_000  # bytes from which on files are worth caching; fewer are read in a few hundredths of a second
_BLOCK = 256  # rows that are written at a time
_IDS, _TEXTS, _FACTS = "ids.utf8", "texts.utf8", "facts.json"


class Corpus(NamedTuple):
    """Documents of a task, and facts about the files they came from."""

    documents: Texts
    rows: int  # number of rows read, repeated ones included
    whole: bool  # whether every file was read to its end, so that an id that is not here does not exist


class _Facts(Typed, frozen=True):
    fingerprint: str
    rows: int
    problems: tuple[Problem, ...]


def read_corpus(files: Sequence[Path], findings: Findings) -> Corpus:
    """Read the files and note every problem; what is too large for memory is stored until the process ends."""
    return _stored(files, findings, "") if _is_large(files) and _is_huge(files) else _read(files, findings)


def recall_corpus(files: Sequence[Path], findings: Findings) -> Corpus:
    """Read the files, or recall the result if these very bytes were read before."""
    if not _is_large(files):
        return read_corpus(files, findings)
    cache = Cache.default()
    key = _key(files, cache)
    if cache.has(_KIND, key):
        if corpus := _open(cache.root / _KIND / key, files, findings):
            return corpus
        cache.drop(_KIND, key)
    return _stored(files, findings, key)


def _read(files: Sequence[Path], findings: Findings) -> Corpus:
    table = read_documents(files, findings)
    return Corpus(Texts(table.ids, table.texts), table.rows, table.whole)


def _is_large(files: Sequence[Path]) -> bool:
    try:
        return sum(file.stat().st_size for file in files) >= _LARGE
    except OSError:
        return False  # reading them will say what is wrong


def _is_huge(files: Sequence[Path]) -> bool:
    """Return whether the texts of some files would take too much of the memory that may be used."""
    packed = sum(file.stat().st_size * (_PACKED if file.suffix in (".gz", ".parquet") else 1) for file in files)
    return packed > memory_limit() // _SHARE


def _stored(files: Sequence[Path], findings: Findings, key: str) -> Corpus:
    """Read files into a folder, which is kept if there is a key for it."""
    folder, noted = Cache.default().root / _KIND, Findings()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent, "*/.*")
        with draft_folder(folder, "reading") as draft:
            corpus = _store(files, noted, draft, key)
    except OSError as error:
        if _is_huge(files):
            raise unwritable(folder, error) from error
        corpus = _read(files, noted := Findings())
    findings.extend(noted)
    return corpus


def _store(files: Sequence[Path], findings: Findings, draft: Path, key: str) -> Corpus:
    """Read files into a folder, which is cached unless there are errors in them, or they changed meanwhile."""
    cache, table = Cache.default(), fill_table(StoredTable(draft), files, findings, "documents")
    table.finish(findings)
    order = {str(file): place for place, file in enumerate(files)}
    findings.problems.sort(key=lambda problem: (order[problem.file], problem.line))
    if not key or findings.errors or _key(files, cache) != key:
        # Mapped files can be used after they are removed.
        return Corpus(_documents(draft, files), table.rows, table.whole)
    documents = _documents(draft, files)
    fingerprint = text_fingerprint(documents.ids, documents.texts)
    write_json(draft / _FACTS, _Facts(fingerprint, table.rows, tuple(findings.problems)))
    write_checksums(draft, by_size=(_TEXTS,))  # texts have checksums of their own

    def move(target: Path) -> None:
        for file in draft.iterdir():
            file.rename(target / file.name)

    corpus = _open(cache.entry(_KIND, key, move), files, Findings())
    if corpus is None:
        raise DataError(f"{cache.root / _KIND / key}: cannot be read back as it was written; is the disk failing?")
    return corpus


def _key(files: Sequence[Path], cache: Cache) -> str:
    """Return the cache key of reading files, by their paths and bytes; empty if one cannot be read."""
    remembered, hashes = FileHashes(cache.root / "hashes"), []
    try:
        for file in files:
            before, value = stamp(file), remembered.recall(file)
            if not value:
                value = _digest(file)
                remembered.remember(file, before, value)
            hashes.append((str(file), value))
    except OSError:
        return ""
    return cache_key(files=hashes, format=FORMAT)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _open(folder: Path, files: Sequence[Path], findings: Findings) -> Corpus | None:
    """Open the corpus that a folder holds of some files; return None if it is damaged."""
    if (folder / DAMAGED).exists() or not is_unchanged(folder, by_size=(_TEXTS,)):
        return None
    facts = read_json(folder / _FACTS, _Facts)
    for problem in facts.problems:
        findings.add(*problem)
    return Corpus(_documents(folder, files, facts.fingerprint), facts.rows, whole=True)


def _documents(folder: Path, files: Sequence[Path], fingerprint: str = "") -> Texts:
    """Return the documents in a folder; ids are held in memory unless the files are too large for it."""

    def column(name: str) -> NDArray[Any]:
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))

    ids = StoredIds(folder / _IDS, column("id_starts"), column("id_lengths"), column("order"))
    texts = StoredTexts(folder / _TEXTS, column("text_starts"), column("text_lengths"), column("checks"))
    return Texts(ids if _is_huge(files) else list(ids), texts, fingerprint)


class StoredTable(TextTable):
    """Table whose ids and texts go to files of a folder; repeated ids are folded at the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._id_file, self._text_file = (folder / _IDS).open("wb"), (folder / _TEXTS).open("wb")
        self._names: list[bytes] = []
        self._contents: list[bytes] = []
        """Ids and texts that are not yet written."""
        self._hashes = array("q")
        self._id_lengths, self._text_lengths, self._checks = array("I"), array("I"), array("I")

    def begin(self, file: Path) -> None:
        """Set the file that the next rows come from."""
        self._files.append((self.rows, file))

    def add(self, identifier: str, text: str, line: int, findings: Findings) -> None:
        """Append a row; repeated ids are looked for at the end."""
        self._names.append(encode(identifier))
        self._contents.append(encode(text))
        self._hashes.append(hash(identifier))
        self._lines.append(line)
        self.rows += 1
        if len(self._names) == _BLOCK:
            self._write_block()

    def _write_block(self) -> None:
        self._id_file.write(b"".join(self._names))
        self._text_file.write(b"".join(self._contents))
        self._id_lengths.extend(map(len, self._names))
        self._text_lengths.extend(map(len, self._contents))
        self._checks.extend(map(zlib.crc32, self._contents))
        self._names, self._contents = [], []

    def finish(self, findings: Findings) -> None:
        """Fold repeated ids, note them, and write the place of every id and text."""
        self._write_block()
        self._id_file.close()
        self._text_file.close()
        columns: dict[str, NDArray[Any]] = {"checks": np.asarray(self._checks)}
        for kind, lengths in (("id", np.asarray(self._id_lengths)), ("text", np.asarray(self._text_lengths))):
            columns |= {f"{kind}_starts": np.cumsum(lengths, dtype=np.int64) - lengths, f"{kind}_lengths": lengths}
        ids = StoredTexts(self._folder / _IDS, columns["id_starts"], columns["id_lengths"])
        places = columns["text_starts"], columns["text_lengths"], columns["checks"]
        if repeated := self._fold(ids, StoredTexts(self._folder / _TEXTS, *places), findings):
            ids, columns = ids.without(repeated), {name: np.delete(one, repeated) for name, one in columns.items()}
        columns["order"] = ids.alphabetical()
        for name, column in columns.items():
            np.save(self._folder / f"{name}.npy", column, allow_pickle=False)

    def _fold(self, ids: StoredTexts, texts: StoredTexts, findings: Findings) -> list[int]:
        hashes = np.asarray(self._hashes)
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        first: dict[str, int] = {}
        repeated = []
        for row in np.unique(np.concatenate([order[same], order[same + 1]])).tolist():
            identifier = ids[row]
            before = first.setdefault(identifier, row)
            if before != row:
                repeated.append(row)
                self.note_repeat(identifier, before, texts[before] == texts[row], Spot(*self.origin(row), findings))
        return repeated
