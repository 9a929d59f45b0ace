"""`stats`: the paper's table of a task, and what a person would want beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from r2med.data.model import Dataset


@dataclass(frozen=True)
class Lengths:
    """How long texts are, in words.

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
        """The lengths of these texts; a percentile is the smallest length that so many of them do not exceed."""
        if not texts:
            return cls(0.0, 0, 0, 0, 0)
        words = np.fromiter((len(text.split()) for text in texts), dtype=np.int64, count=len(texts))
        p5, p50, p95 = np.percentile(words, [5, 50, 95], method="inverted_cdf").tolist()
        return cls(float(words.mean()), p5, p50, p95, int(words.max()))


@dataclass(frozen=True)
class Stats:
    """The figures of a dataset."""

    task: str
    queries: int
    documents: int
    qrels: int
    """Judgements of grade 1 or more."""
    positives: float
    """Relevant documents a query, on average."""
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

    def as_dict(self) -> dict[str, object]:
        """The figures for JSON."""
        return asdict(self)


def stats(dataset: Dataset) -> Stats:
    """Count and measure a dataset.

    >>> from r2med.data import load
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
