"""Reading a task's folder to a `Dataset`: find the parts, read them, check them against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from r2med.data.corpus import Corpus, read_corpus, recall_corpus
from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.layout import TaskFiles, listing, locate, splits
from r2med.data.problems import Findings, Spot
from r2med.data.qrels import Judgements, no_positive, read_judgements
from r2med.data.tasks import Task
from r2med.data.texts import EXTRAS, TextTable, read_queries


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
        Gold(qrels, answers, reasoning, synonyms),
        warnings=findings.warnings(folder),
        revision=revision,
    )
