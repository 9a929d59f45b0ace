"""Validation and statistics of a task: every problem of its files, grouped and counted, and figures of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from r2med.data.corpus import read_corpus
from r2med.data.dataset import Dataset
from r2med.data.lint import find_flaws
from r2med.data.loader import fetch_task, read_contents
from r2med.data.problems import ERROR, KINDS, WARNING, Findings, Problem
from r2med.data.qrels import read_judgements
from r2med.data.tasks import Task, resolve
from r2med.data.texts import read_queries
from r2med.errors import DataError
from r2med.formatting import counted
from r2med.store.files import expanded


class Group(NamedTuple):
    """Problems of one kind."""

    severity: str
    summary: str
    code: str
    problems: Sequence[Problem]

    def __str__(self) -> str:
        left_out = ", which were left out" * (KINDS[self.code].strict and self.severity == WARNING)
        return f"{self.severity}: {self.summary}{left_out}: {len(self.problems):,}"


@dataclass(frozen=True)
class ValidationReport:
    """Result of `validate`.

    >>> report = validate("sample/Biology")
    >>> report.ok, report.problems
    (True, ())
    """

    source: str
    problems: tuple[Problem, ...]
    queries: int = 0
    """Number of rows of this part that could be read; the same for the other parts."""
    documents: int = 0
    judgements: int = 0
    strict: bool = False
    """Whether what `load` leaves out with a warning counts as an error."""

    @property
    def errors(self) -> int:
        """Return the number of problems that make the data unusable."""
        return sum(problem.is_error(strict=self.strict) for problem in self.problems)

    @property
    def warnings(self) -> int:
        """Return the number of problems that were fixed or can be tolerated."""
        return len(self.problems) - self.errors

    @property
    def ok(self) -> bool:
        """Return whether `load` accepts it."""
        return not self.errors

    def _severity(self, problem: Problem) -> str:
        return ERROR if problem.is_error(strict=self.strict) else WARNING

    def groups(self) -> list[Group]:
        """Group the problems by kind: errors first, in the order of the table of kinds."""
        by_code: dict[str, list[Problem]] = {}
        for problem in self.problems:
            by_code.setdefault(problem.code, []).append(problem)
        return [
            Group(self._severity(by_code[code][0]), KINDS[code].summary, code, by_code[code])
            for code in sorted(KINDS, key=lambda code: not self.strict or not KINDS[code].strict)
            if code in by_code
        ]

    def as_dict(self) -> dict[str, object]:
        """Return the report for JSON."""
        counts = {name: getattr(self, name) for name in ("errors", "warnings", "queries", "documents", "judgements")}
        problems = [{"severity": self._severity(problem), **problem._asdict()} for problem in self.problems]
        return {"source": self.source, "ok": self.ok, **counts, "problems": problems}


# Reader of a single file, by the beginning of its name or of its folder's name.
_READERS: Mapping[str, Callable[[Sequence[Path], Findings], object]] = {
    "corpus": read_corpus,
    "quer": read_queries,
    "qrels": read_judgements,
}
_SELF_RULES = {
    "none": "every system keeps them",
    "dense": "dense systems leave the others out",
    "all": "the others are left out",
}


def validate(
    source: str | Path | Task, *, split: str | None = None, strict: bool = False, near: float = 0.0
) -> ValidationReport:
    """Check a task, a group of tasks, a folder, or one file whose name says what it holds.

    `near` is the share of pairs of words from which two texts are near-duplicates; 0 finds the same words only.
    """
    findings = Findings()
    path = None if isinstance(source, Task) else expanded(source)
    if path is not None and path.is_file():
        names = (path.name, path.parent.name)
        readers = [read for name in names for start, read in _READERS.items() if name.startswith(start)]
        if not readers:
            expected = "corpus, query, queries or qrels"
            raise DataError(f"{path}: cannot tell what it holds; its name must begin with {expected}")
        readers[0]([path], findings)
        return ValidationReport(str(path), tuple(findings.problems), strict=strict)
    queries = documents = judgements = 0
    for task in resolve([source], split=split):
        contents = read_contents(task.folder or fetch_task(task).folder, task.split, findings)
        documents_of, positive = contents.corpus.documents.position, contents.judgements.positive()
        shared = [query for query in contents.queries.ids if query in positive and query in documents_of]
        if shared:
            relevant = sum(positive[query].get(query, 0) > 0 for query in shared)
            sharing = f"{counted(len(shared), 'query has', 'queries have')} a document of the same id"
            rule = f"{_SELF_RULES[task.drop_self]} (--drop-self, --keep-self)"
            findings.add("shared-id", task.folder or task.hub, 0, f"{sharing}, {relevant:,} of them relevant; {rule}")
        for flaw in find_flaws(contents.corpus.documents, contents.judgements.grades, near):
            findings.add(flaw.kind, *contents.judgements.place_of(flaw.query, flaw.document), flaw.message)
        queries += contents.queries.rows
        documents += contents.corpus.rows
        judgements += contents.judgements.rows
    name = source.name if isinstance(source, Task) else str(source)
    return ValidationReport(name, tuple(findings.problems), queries, documents, judgements, strict)


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts in words.

    >>> Lengths.of(["one", "one two three"])
    Lengths(mean=2.0, p5=1, p50=1, p95=3, max=3)
    """

    mean: float
    p5: int
    p50: int
    p95: int
    max: int

    @classmethod
    def of(cls, texts: Sequence[str]) -> Lengths:
        """Compute the lengths of these texts; a percentile is the smallest length that this share does not exceed."""
        if not texts:
            return cls(0.0, 0, 0, 0, 0)
        words = np.fromiter((len(text.split()) for text in texts), dtype=np.int64, count=len(texts))
        p5, p50, p95 = np.percentile(words, [5, 50, 95], method="inverted_cdf").tolist()
        return cls(float(words.mean()), p5, p50, p95, int(words.max()))


@dataclass(frozen=True)
class Stats:
    """Figures of a dataset."""

    task: str
    queries: int
    documents: int
    qrels: int
    """Judgements of grade 1 or more."""
    positives: float
    """Relevant documents per query, on average."""
    query_words: Lengths
    document_words: Lengths
    distinct_texts: int
    """Different texts among the documents."""
    empty_documents: int
    one_character_documents: int
    shared_ids: int
    """Documents whose id is also a query's."""
    fingerprint: str
    """The content hash of the dataset, which results carry."""


def stats(dataset: Dataset) -> Stats:
    """Count and measure a dataset.

    >>> from r2med.data.loader import load
    >>> figures = stats(load("sample/Biology"))
    >>> figures.documents >= figures.distinct_texts > 0, figures.empty_documents
    (True, 0)
    """
    documents, queries = dataset.collection.documents, dataset.collection.queries
    relevant = sum(grade > 0 for judged in dataset.gold.qrels.values() for grade in judged.values())
    return Stats(
        task=dataset.name,
        queries=len(queries),
        documents=len(documents),
        qrels=relevant,
        positives=relevant / len(queries) if len(queries) else 0.0,
        query_words=Lengths.of(queries.texts),
        document_words=Lengths.of(documents.texts),
        distinct_texts=len(set(documents.texts)),
        empty_documents=sum(not text or text.isspace() for text in documents.texts),
        one_character_documents=sum(len(text) == 1 for text in documents.texts),
        shared_ids=len(set(documents.ids).intersection(queries.ids)),
        fingerprint=dataset.fingerprint,
    )
