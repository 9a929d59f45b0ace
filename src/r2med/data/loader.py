"""Loading the data of a task, from the hub, a local copy, the bundled sample or a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from r2med.data.corpus import Corpus, read_corpus, recall_corpus
from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.formats import PATTERNS
from r2med.data.layout import TaskFiles, choose, config_files, folders_of, listing, locate, missing, splits
from r2med.data.problems import Findings, Spot
from r2med.data.qrels import Judgements, no_positive, read_judgements
from r2med.data.tasks import HUB_PREFIX, Task, other_tasks, registry, resolve
from r2med.data.texts import EXTRAS, TextTable, read_queries
from r2med.errors import DataError, R2medError, suggest
from r2med.settings import local_copies
from r2med.store.hashes import Stamp, stamp
from r2med.store.hub import Hub, Snapshot

HUB = Hub("dataset", DataError)


def fetch_task(task: Task) -> Snapshot:
    """Return the files of a task, downloaded unless they are on this machine already."""
    cached = cached_task(task)
    if cached is not None:
        return cached
    revision = revision_of(task)
    names = HUB.names(task.hub, revision)
    parts = choose(names, task.split, task.files)
    for part in PATTERNS:
        if not getattr(parts, part):
            raise DataError(f"{task.hub} at {revision}: {missing(part, names, task.split, task.files)}")
    return HUB.download(task.hub, revision, parts.files)


def revision_of(task: Task) -> str:
    """Return the revision to ask for. A branch is the commit it led to when this machine first fetched something of it,
    so that tasks of one repository never come from different states of it."""
    cached = HUB.cached(task.hub, task.revision)
    return task.revision if cached is None else cached.commit


def cached_task(task: Task) -> Snapshot | None:
    """Return the files of a task if this machine has all, first those of a copy in the settings; no request is made."""
    folders = local_copies()
    tasks = [other for other in (*registry().values(), *other_tasks().values()) if other.hub]
    names = {name for other in tasks for name in (other.name, other.group)}
    for name in folders:
        if name not in names and not name.startswith(HUB_PREFIX):
            raise DataError(f"[data] of the settings: no task or group {name!r}{suggest(name, names)}")
    folder = folders.get(task.name) or (folders[task.group] / task.base if task.group in folders else None)
    if folder is not None:
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; [data] of the settings names it for {task.name}")
        return Snapshot(folder, "local copy")
    cached = HUB.cached(task.hub, task.revision)
    if cached is None:
        return None
    parts = choose(listing(cached.folder, *folders_of(task.files)), task.split, task.files)
    return cached if all(parts) and all((cached.folder / name).is_file() for name in parts.files) else None


def fetch_config(task: Task, config: str) -> list[Path]:
    """Return the files of a further config of a task's repository, downloaded unless they are on this machine."""
    cached = HUB.cached(task.hub, task.revision)
    if cached is not None:
        names = config_files(config, listing(cached.folder, config), task.split)
        if names and all((cached.folder / name).is_file() for name in names):
            return [cached.folder / name for name in names]
    revision = revision_of(task)
    names = config_files(config, sorted(HUB.names(task.hub, revision)), task.split)
    if not names:
        raise DataError(f"{task.hub} at {revision} has no config {config!r} for {task.split}")
    folder = HUB.download(task.hub, revision, names).folder
    return [folder / name for name in names]


def load(
    task: str | Path | Task, *, split: str | None = None, revision: str | None = None, strict: bool = False
) -> Dataset:
    """Load the data of a task: from the hub by its pinned revision, from the bundled sample, or from a folder.

    `split` chooses among the splits of a folder (`test` unless it has only one), `revision` overrides a hub task's own.
    Queries without text and judgements of documents that are not there are left out, with a counted warning; with
    `strict` they are an error.

    >>> dataset = load("sample/Biology")
    >>> dataset.name, dataset.task.family, len(dataset.collection.queries) == len(dataset.gold.qrels)
    ('sample/Biology', 'qa-reference', True)
    """
    tasks = resolve([task], split=split)
    if len(tasks) != 1:
        raise DataError(f"{task} stands for {len(tasks)} tasks; load one of {', '.join(one.name for one in tasks)}")
    one = tasks[0]
    if one.folder is not None:
        if revision is not None:
            raise DataError(f"{one.name} is a folder and has no revision {revision}")
        return read_dataset(one, one.folder, strict=strict)

    one = replace(one, revision=revision or one.revision)
    snapshot = fetch_task(one)
    return read_dataset(one, snapshot.folder, snapshot.commit, strict=strict)


def present_fingerprints(tasks: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each folder among some tasks; one that is gone or cannot be read has none."""
    fingerprints = {}
    for name in tasks:
        if not Path(name).is_absolute():
            continue
        try:
            [task] = resolve([name])
            folder = task.folder or Path(name)
            files = choose(listing(folder), task.split).files
            fingerprints[name] = _fingerprint(name, tuple(stamp(folder / file) for file in files))
        except (R2medError, OSError, ValueError):
            continue
    return fingerprints


@lru_cache(maxsize=64)
def _fingerprint(name: str, _stamps: tuple[Stamp, ...]) -> str:
    return load(name).fingerprint


class Contents(NamedTuple):
    """Contents of a folder, before they are known to be usable."""

    corpus: Corpus
    queries: TextTable
    judgements: Judgements


def read_contents(
    folder: Path,
    split: str,
    findings: Findings,
    corpus: Callable[[Sequence[Path], Findings], Corpus] = read_corpus,
    patterns: TaskFiles | None = None,
) -> Contents:
    """Read all that a folder holds of a task, noting every problem; `corpus` reads its documents."""
    parts = locate(folder, split, findings, patterns)
    documents = corpus([folder / name for name in parts.documents], findings)
    queries = read_queries([folder / name for name in parts.queries], findings)
    judgements = read_judgements([folder / name for name in parts.qrels], findings)
    # Ids are checked as far as the parts were read to their end: half a file would make many look unknown.
    if queries.whole:
        judgements.check_queries(queries.position, findings)
    if documents.whole:
        judgements.leave_out_documents(documents.documents.position, findings)
    if queries.whole and judgements.whole:
        several = patterns is None and len(splits(listing(folder))) > 1
        positive = judgements.positive()
        for query, position in queries.position.items():
            if query not in positive and queries.texts[position].strip():
                # If there are several splits, a query that this one does not mention belongs to another.
                code = "other-split" if several and query not in judgements.grades else "no-positive"
                Spot(*queries.origin(position), findings).note(code, no_positive(query))
        if not any(queries.texts[place].strip() for query, place in queries.position.items() if query in positive):
            findings.add("no-queries", folder, 0, "no query has a relevant document (a grade of 1 or more)")
    return Contents(documents, queries, judgements)


def read_dataset(task: Task, folder: Path, revision: str = "", *, strict: bool = False) -> Dataset:
    """Read the dataset of a task in a folder; raise the first problem that makes it unusable as one line."""
    findings = Findings()
    contents = read_contents(folder, task.split, findings, recall_corpus, task.files)
    findings.raise_errors(task.name, strict=strict)
    # It is unknown if the published counts included repeated rows.
    counts = (
        ("queries", task.queries, contents.queries.rows, len(contents.queries.ids)),
        ("documents", task.documents, contents.corpus.rows, len(contents.corpus.documents)),
        ("judgements", task.qrels, contents.judgements.rows, sum(map(len, contents.judgements.grades.values()))),
    )
    for what, published, rows, distinct in counts:
        if published is not None and published not in (rows, distinct):
            message = f"{rows:,} {what}, where {published:,} are published"
            findings.add("unexpected-count", task.hub or task.name, 0, message)
    qrels, table = contents.judgements.positive(), contents.queries
    kept = [place for place, query in enumerate(table.ids) if query in qrels and table.texts[place].strip()]
    queries = Texts([table.ids[place] for place in kept], [table.texts[place] for place in kept])
    qrels = {query: judged for query, judged in qrels.items() if query in queries.position}
    answers, reasoning = (
        {query: table.extras[name][query] for query in queries.ids if query in table.extras[name]} for name in EXTRAS
    )
    synonyms = {query: table.synonyms[query] for query in queries.ids if table.synonyms.get(query)}
    # A relevant document is an answer, and so never a copy of the query.
    copies = frozenset(query for query in queries.ids if qrels[query].get(query, 0) < 1)
    return Dataset(
        Collection(task, contents.corpus.documents, queries, origin=folder, copies=copies),
        Gold(qrels, answers, reasoning, synonyms, contents.judgements.aspects(qrels)),
        warnings=findings.warnings(folder),
        revision=revision,
    )
