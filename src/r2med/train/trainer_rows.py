"""Training rows as trainers take them: one question text, its positives and negatives, with the judges' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from r2med.errors import R2medError
from r2med.train.judged_rows import pick_evenly

QUESTION, BRIDGE, BOTH = "question", "bridge", "both"
QUERIES = (QUESTION, BRIDGE, BOTH)
"""What is searched with: the question, the question with the bridge behind it, or each of the two."""


class ScoredText(NamedTuple):
    """A passage with what the judges gave it, from 0 to 1."""

    id: str
    text: str
    score: float


class TrainerRow(NamedTuple):
    """A question as one trainer sees it."""

    id: str
    query: str
    positives: Sequence[ScoredText]
    negatives: Sequence[ScoredText]


def trainer_rows(frame: pl.DataFrame, queries: str = QUESTION) -> list[TrainerRow]:
    """The rows of a file; one for the question and one with the bridge where both are wanted.

    A question without a bridge stands for itself.
    """
    return [row for values in frame.iter_rows(named=True) for row in _rows(values, queries)]


def _rows(values: Mapping[str, Any], queries: str) -> Iterator[TrainerRow]:
    positives, negatives = (
        [ScoredText(each["id"], each["text"], each["score"]) for each in values[name]]
        for name in ("positives", "negatives")
    )
    bridged = f"{values['query']}\n{values['bridge']}" if values["bridge"] else values["query"]
    if queries in (QUESTION, BOTH):
        yield TrainerRow(values["id"], values["query"], positives, negatives)
    if queries == BRIDGE or (queries == BOTH and values["bridge"]):
        name = values["id"] if queries == BRIDGE else f"{values['id']}+bridge"
        yield TrainerRow(name, bridged, positives, negatives)


def common_negatives(rows: Sequence[TrainerRow], wanted: int | None = None) -> int:
    """How many negatives every row gives a trainer that needs the same number of each."""
    if not rows:
        raise R2medError("no row to train on; every question is held out")
    return wanted if wanted is not None else min(len(row.negatives) for row in rows)


def triplets(rows: Sequence[TrainerRow], negatives: int) -> dict[str, list[str]]:
    """Columns anchor, positive, negative_1 and so on: a row for each positive; what has fewer negatives is left out."""
    found: dict[str, list[str]] = {"anchor": [], "positive": []}
    found |= {f"negative_{number}": [] for number in range(1, negatives + 1)}
    for row in rows:
        chosen = pick_evenly(row.negatives, negatives)
        if len(chosen) < negatives:
            continue
        for positive in row.positives:
            texts = [row.query, positive.text, *(each.text for each in chosen)]
            for name, text in zip(found, texts, strict=True):
                found[name].append(text)
    if not found["anchor"]:
        raise R2medError(f"no row has {negatives:,} negatives; ask for fewer")
    return found


def labelled_pairs(rows: Sequence[TrainerRow]) -> dict[str, list[Any]]:
    """Columns query, document and label, a row a pair: the judges' score, from 0 to 1."""
    pairs = [(row.query, each.text, each.score) for row in rows for each in (*row.positives, *row.negatives)]
    return {name: [pair[place] for pair in pairs] for place, name in enumerate(("query", "document", "label"))}


def labelled_lists(rows: Sequence[TrainerRow]) -> dict[str, list[Any]]:
    """Columns query, docs and labels, a row a question: positives 1, negatives 0."""
    return {
        "query": [row.query for row in rows],
        "docs": [[each.text for each in (*row.positives, *row.negatives)] for row in rows],
        "labels": [[1] * len(row.positives) + [0] * len(row.negatives) for row in rows],
    }


def passages_of_rows(rows: Sequence[TrainerRow]) -> dict[str, str]:
    """Every passage of some rows by its id."""
    return {each.id: each.text for row in rows for each in (*row.positives, *row.negatives)}
