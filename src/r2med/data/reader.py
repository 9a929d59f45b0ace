"""A task's folder to a `Dataset`: find the parts, read them, check them against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.data.corpus import Corpus, read_corpus, recall_corpus
from r2med.data.layout import listing, locate, splits
from r2med.data.model import Collection, Dataset, Gold, Texts
from r2med.data.problems import Findings, Spot
from r2med.data.qrels import Judgements, no_positive, read_judgements
from r2med.data.tasks import Task
from r2med.data.texts import TextTable, gold_extras, read_queries


@dataclass(frozen=True)
class Contents:
    """What was read from a folder, before it is known to be usable."""

    corpus: Corpus
    queries: TextTable
    judgements: Judgements


def read_contents(
    folder: Path,
    split: str,
    found: Findings,
    corpus: Callable[[Sequence[Path], Findings], Corpus] = read_corpus,
) -> Contents:
    """Read all that a folder holds of a task, noting every problem; `corpus` says how its documents are read."""
    parts = locate(folder, split, found)
    contents = Contents(
        corpus([folder / name for name in parts.documents], found),
        read_queries([folder / name for name in parts.queries], found),
        read_judgements([folder / name for name in parts.qrels], found),
    )
    several = len(splits(listing(folder))) > 1
    _check_references(contents, folder, found, several=several)
    return contents


def _check_references(contents: Contents, folder: Path, found: Findings, *, several: bool) -> None:
    """Check ids across parts, as far as they were read to their end: half a file would make much look unknown."""
    queries, judgements = contents.queries, contents.judgements
    if queries.whole:
        judgements.check_ids("query", queries.position, found)
    if contents.corpus.whole:
        judgements.check_ids("document", contents.corpus.documents.position, found)
    if not (queries.whole and judgements.whole):
        return
    positive = judgements.positive()
    for query, position in queries.position.items():
        if query not in positive:
            # Where there are several splits, a query that this one does not mention is another's.
            code = "other-split" if several and query not in judgements.grades else "no-positive"
            Spot(*queries.origin(position), found).note(code, no_positive(query))
    if not positive.keys() & queries.position.keys():
        found.add("no-queries", folder, 0, "no query has a relevant document (a grade of 1 or more)")


def read_dataset(task: Task, folder: Path, revision: str = "") -> Dataset:
    """The dataset of a task in a folder; the first problem that makes it unusable is raised as one line."""
    found = Findings()
    contents = read_contents(folder, task.split, found, recall_corpus)
    found.raise_errors(task.name)
    _compare_counts(task, contents, found)
    qrels = contents.judgements.positive()
    kept = [position for position, query in enumerate(contents.queries.ids) if query in qrels]
    ids = [contents.queries.ids[position] for position in kept]
    queries = Texts(ids, [contents.queries.texts[position] for position in kept])
    extras = gold_extras(contents.queries, ids)
    return Dataset(
        Collection(task, contents.corpus.documents, queries, origin=folder),
        Gold(qrels, extras["answer"], extras["reasoning"]),
        warnings=found.warnings(folder),
        revision=revision,
    )


def _compare_counts(task: Task, contents: Contents, found: Findings) -> None:
    """Warn where there is more or less than was published; whether that counted repeated rows is not known."""
    counts = (
        ("queries", task.queries, contents.queries.rows, len(contents.queries.ids)),
        ("documents", task.documents, contents.corpus.rows, len(contents.corpus.documents)),
        ("judgements", task.qrels, contents.judgements.rows, sum(map(len, contents.judgements.grades.values()))),
    )
    for what, published, rows, distinct in counts:
        if published is not None and published not in (rows, distinct):
            message = f"{rows:,} {what}, where {published:,} are published"
            found.add("unexpected-count", task.hub or task.name, 0, message)
