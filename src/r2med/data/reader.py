"""Reading a task's folder to a `Dataset`: find the parts, read them, check them against each other.

Large document files are recognised by their hashes: the result of reading them is cached, except for the texts.
Those are read again at the first access; a search in a cached index never needs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import orjson

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.layout import TaskFiles, listing, locate, splits
from r2med.data.problems import Findings, Problem, Spot
from r2med.data.qrels import Judgements, no_positive, read_judgements
from r2med.data.rows import Digests
from r2med.data.tasks import Task
from r2med.data.texts import TextTable, fill_documents, gold_extras, read_documents, read_queries
from r2med.errors import DataError
from r2med.settings import memory_limit
from r2med.store.cache import Cache
from r2med.store.files import draft_folder, sweep, unwritable
from r2med.store.hashes import FileHashes, Stamp, cache_key, stamp

FORMAT = 3
"""Format number, raised if what is cached, or what reading a file gives, changes: part of the cache key."""
_KIND = "documents"
_KEPT = "documents.json"
_STORED = "corpus"
_HASHES = "hashes"
_SHARE = 8
"""Files of more than this fraction of the memory that may be used are not held in it."""
_PACKED = 4
"""Ratio of the size of the texts to that of a packed file."""
_LARGE = 4_000_000
"""Bytes in all from which on files are worth caching; smaller ones are read in a few hundredths of a second."""


class Corpus(NamedTuple):
    """Documents of a task, and facts about the files they came from."""

    documents: Texts
    rows: int
    """Number of rows read, repeated ones included."""
    whole: bool
    """Whether every file was read to its end, so that an id that is not here does not exist."""


def read_corpus(files: Sequence[Path], found: Findings, digests: Digests | None = None) -> Corpus:
    """Read the files and note every problem; what is too large for memory is stored until the process ends."""
    if _large(files) and is_huge(files):
        return _stored(files, found, None)
    table = read_documents(files, found, digests)
    return Corpus(table.column(), table.rows, table.whole)


def recall_corpus(files: Sequence[Path], found: Findings) -> Corpus:
    """Read the files, or recall the result if these very bytes were read before; store what is too large for memory."""
    if not _large(files):
        return read_corpus(files, found)
    cache = Cache.default()
    if is_huge(files):
        return _stored_corpus(files, found, cache)
    key = (
        _key(files, _hashed(files, cache)) if (cache.root / _KIND).is_dir() else ""
    )  # nothing is known before the first
    if key and cache.has(_KIND, key):
        corpus = _recalled(cache.root / _KIND / key / _KEPT, files, found)
        if corpus is not None:
            return corpus
        cache.drop(_KIND, key)
    errors, start = found.errors, len(found.problems)
    digests, before = Digests(), [stamp(file) for file in files]
    corpus = read_corpus(files, found, digests)
    if found.errors == errors:
        _remember(files, before, digests, cache)
        # By the hash of the bytes that were read: the file may have been replaced since the lookup.
        kept = orjson.dumps(_kept(corpus, found.problems[start:]))
        cache.keep(_KIND, _key(files, [digests.of(file) for file in files]), lambda folder: _write(folder, kept))
    return corpus


def is_huge(files: Sequence[Path]) -> bool:
    """Return whether the texts of some files would take too much of the memory that may be used."""
    packed = sum(file.stat().st_size * (_PACKED if file.suffix in (".gz", ".parquet") else 1) for file in files)
    return packed > memory_limit() // _SHARE


def _stored_corpus(files: Sequence[Path], found: Findings, cache: Cache) -> Corpus:
    """Open the documents of huge files, stored before or stored now."""
    from r2med.data.large_corpus import open_corpus  # most corpora are not huge

    key = _key(files, _hashed(files, cache)) if (cache.root / _STORED).is_dir() else ""
    if key and cache.has(_STORED, key):
        stored = open_corpus(cache.root / _STORED / key, files)
        if stored is not None:
            for problem in stored.problems:
                found.add(problem.code, problem.file, problem.line, problem.message)
            return Corpus(stored.documents, stored.rows, whole=True)
        cache.drop(_STORED, key)
    return _stored(files, found, cache)


def _stored(files: Sequence[Path], found: Findings, keep: Cache | None) -> Corpus:
    """Read files into a folder, which is kept if there is a cache for it."""
    root = (keep or Cache.default()).root
    try:
        (root / _STORED).mkdir(parents=True, exist_ok=True)
        sweep(root, "*/.*")
        with draft_folder(root / _STORED, "reading") as draft:
            return _store(files, found, draft, keep)
    except OSError as error:
        raise unwritable(root / _STORED, error) from error


def _store(files: Sequence[Path], found: Findings, draft: Path, keep: Cache | None) -> Corpus:
    """Read files into a folder, which is cached by the bytes that were read, unless there are errors in them."""
    from r2med.data.large_corpus import StoredTable, open_corpus, seal, stored_documents

    errors, start, digests = found.errors, len(found.problems), Digests()
    before = [stamp(file) for file in files]
    table = fill_documents(StoredTable(draft, files), files, found, digests)
    noted = len(found.problems)
    table.finish(found)
    if len(found.problems) > noted:
        order = {str(file): place for place, file in enumerate(files)}
        found.problems[start:] = sorted(found.problems[start:], key=lambda each: (order[each.file], each.line))
    if keep is None or found.errors > errors:
        # Mapped files can be used after they are removed.
        return Corpus(stored_documents(draft, files), table.rows, table.whole)
    _remember(files, before, digests, keep)
    seal(draft, files, table.rows, found.problems[start:])
    key = _key(files, [digests.of(file) for file in files])
    stored = open_corpus(keep.entry(_STORED, key, lambda target: _move(draft, target)), files)
    if stored is None:
        raise DataError(f"{keep.root / _STORED / key}: cannot be read back as it was written; is the disk failing?")
    return Corpus(stored.documents, stored.rows, whole=True)


def _move(draft: Path, target: Path) -> None:
    for file in draft.iterdir():
        file.rename(target / file.name)


class LateTexts(Sequence[str]):
    """Texts of files that were read before, read again at the first access."""

    def __init__(self, files: Sequence[Path], ids: Sequence[str], fingerprint: str) -> None:
        self._files, self._ids, self._fingerprint = files, ids, fingerprint

    @cached_property
    def _texts(self) -> Sequence[str]:
        documents = read_corpus(self._files, Findings()).documents
        if documents.fingerprint != self._fingerprint:
            raise DataError(f"{self._files[0]}: changed or went away while it was in use; load it again")
        return documents.texts

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._ids)


def _large(files: Sequence[Path]) -> bool:
    try:
        return sum(file.stat().st_size for file in files) >= _LARGE
    except OSError:
        return False  # reading them will say what is wrong


def _key(files: Sequence[Path], digests: Sequence[str]) -> str:
    """Return the cache key of reading these files: their paths, as messages name them, and their bytes."""
    return cache_key(files=[(str(file), digest) for file, digest in zip(files, digests, strict=False)], format=FORMAT)


def _hashed(files: Sequence[Path], cache: Cache) -> list[str]:
    """Return the hash of each file; none if a file cannot be read, which reading it will report."""
    known = FileHashes(cache.root / _HASHES)
    found = []
    try:
        for file in files:
            before, value = stamp(file), known.recall(file)
            if not value:
                value = _digest(file)
                known.remember(file, before, value)
            found.append(value)
    except OSError:
        return []
    return found


def _remember(files: Sequence[Path], before: Sequence[Stamp], digests: Digests, cache: Cache) -> None:
    """Store the hashes of files that were read, with their stamps before."""
    known = FileHashes(cache.root / _HASHES)
    for file, was in zip(files, before, strict=True):
        known.remember(file, was, digests.of(file))


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _kept(corpus: Corpus, problems: Sequence[Problem]) -> dict[str, Any]:
    kept = {"ids": corpus.documents.ids, "fingerprint": corpus.documents.fingerprint, "rows": corpus.rows}
    kept["problems"] = [problem._asdict() for problem in problems]
    return kept | {"checksum": _checksum(kept)}


def _recalled(path: Path, files: Sequence[Path], found: Findings) -> Corpus | None:
    """Recall a cached corpus; return None if it is damaged."""
    try:
        kept = orjson.loads(path.read_bytes())
        if kept.pop("checksum") != _checksum(kept):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    for problem in kept["problems"]:
        found.add(problem["code"], problem["file"], problem["line"], problem["message"])
    ids, fingerprint = kept["ids"], kept["fingerprint"]
    return Corpus(Texts(ids, LateTexts(files, ids, fingerprint), fingerprint), kept["rows"], whole=True)


def _checksum(kept: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _write(folder: Path, content: bytes) -> None:
    (folder / _KEPT).write_bytes(content)


class Contents(NamedTuple):
    """Contents of a folder, before they are known to be usable."""

    corpus: Corpus
    queries: TextTable
    judgements: Judgements


def read_contents(
    folder: Path,
    split: str,
    found: Findings,
    corpus: Callable[[Sequence[Path], Findings], Corpus] = read_corpus,
    patterns: TaskFiles | None = None,
) -> Contents:
    """Read all that a folder holds of a task, noting every problem; `corpus` reads its documents."""
    parts = locate(folder, split, found, patterns)
    contents = Contents(
        corpus([folder / name for name in parts.documents], found),
        read_queries([folder / name for name in parts.queries], found),
        read_judgements([folder / name for name in parts.qrels], found),
    )
    several = patterns is None and len(splits(listing(folder))) > 1
    _check_references(contents, folder, found, several=several)
    return contents


def _check_references(contents: Contents, folder: Path, found: Findings, *, several: bool) -> None:
    """Check ids across parts, as far as they were read to their end: half a file would make many look unknown."""
    queries, judgements = contents.queries, contents.judgements
    if queries.whole:
        judgements.check_queries(queries.position, found)
    if contents.corpus.whole:
        judgements.leave_out_documents(contents.corpus.documents.position, found)
    if not (queries.whole and judgements.whole):
        return
    positive = judgements.positive()
    for query, position in queries.position.items():
        if query not in positive and queries.texts[position].strip():
            # If there are several splits, a query that this one does not mention belongs to another.
            code = "other-split" if several and query not in judgements.grades else "no-positive"
            Spot(*queries.origin(position), found).note(code, no_positive(query))
    if not any(queries.texts[place].strip() for query, place in queries.position.items() if query in positive):
        found.add("no-queries", folder, 0, "no query has a relevant document (a grade of 1 or more)")


def read_dataset(task: Task, folder: Path, revision: str = "", *, strict: bool = False) -> Dataset:
    """Read the dataset of a task in a folder; raise the first problem that makes it unusable as one line."""
    found = Findings()
    contents = read_contents(folder, task.split, found, recall_corpus, task.files)
    found.raise_errors(task.name, strict=strict)
    _compare_counts(task, contents, found)
    qrels = contents.judgements.positive()
    texts = contents.queries.texts
    kept = [place for place, query in enumerate(contents.queries.ids) if query in qrels and texts[place].strip()]
    ids = [contents.queries.ids[position] for position in kept]
    queries = Texts(ids, [contents.queries.texts[position] for position in kept])
    asked = frozenset(ids)
    qrels = {query: judged for query, judged in qrels.items() if query in asked}
    extras = gold_extras(contents.queries, ids)
    # A relevant document is an answer, and so never a copy of the query.
    copies = frozenset(query for query in ids if qrels[query].get(query, 0) < 1)
    return Dataset(
        Collection(task, contents.corpus.documents, queries, origin=folder, copies=copies),
        Gold(qrels, extras["answer"], extras["reasoning"], _synonyms(contents.queries, ids)),
        warnings=found.warnings(folder),
        revision=revision,
    )


def _synonyms(table: TextTable, queries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {query: table.synonyms[query] for query in queries if table.synonyms.get(query)}


def _compare_counts(task: Task, contents: Contents, found: Findings) -> None:
    """Warn of counts that differ from the published ones; it is unknown if those included repeated rows."""
    counts = (
        ("queries", task.queries, contents.queries.rows, len(contents.queries.ids)),
        ("documents", task.documents, contents.corpus.rows, len(contents.corpus.documents)),
        ("judgements", task.qrels, contents.judgements.rows, sum(map(len, contents.judgements.grades.values()))),
    )
    for what, published, rows, distinct in counts:
        if published is not None and published not in (rows, distinct):
            message = f"{rows:,} {what}, where {published:,} are published"
            found.add("unexpected-count", task.hub or task.name, 0, message)
