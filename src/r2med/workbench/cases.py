"""Queries looked at one by one: what was asked, what was written, what came back, and where the right documents are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from r2med.data.dataset import Generation, Texts
from r2med.data.run import Run
from r2med.encode.late_interaction import LateInteraction, TokenMatch, align
from r2med.errors import R2medError
from r2med.lexical.highlight import kinds_of
from r2med.pipeline.joins import joined_text, usable
from r2med.pipeline.loaded_runs import TOP, LoadedRun
from r2med.pipeline.registry import build_system
from r2med.retrieve.colbert import ColBERT
from r2med.retrieve.sparse import MatchedTerm, Splade


@lru_cache(maxsize=16)
def _matching_stages(spec: str) -> tuple[Splade | None, LateInteraction | None]:
    """Return the first learned sparse encoder and the last late-interaction model of a system, if it has them."""
    try:
        stages = list(build_system(spec).walk())
    except R2medError:
        return None, None
    late = (stage for stage in reversed(stages) if isinstance(stage, LateInteraction))
    return next((stage for stage in stages if isinstance(stage, Splade)), None), next(late, None)


def _matches(
    opened: LoadedRun, query: str, documents: Sequence[str]
) -> tuple[Mapping[str, Sequence[MatchedTerm]], Mapping[str, Sequence[TokenMatch]]]:
    """Return the terms that a query shares with documents, and its tokens' matches; none without cached vectors."""
    sparse, late = _matching_stages(opened.entry.system)
    collection, generations = opened.dataset.collection, tuple(opened.generations.get(query, ()))
    text = collection.queries.text(query)
    terms: Mapping[str, Sequence[MatchedTerm]] = {}
    tokens: Mapping[str, Sequence[TokenMatch]] = {}
    if sparse is not None:
        with suppress(R2medError):
            asked = replace(collection, queries=Texts([query], [text]), generations=(generations,))
            terms = sparse.matches(asked, query, documents)
    if late is not None:
        text = joined_text(text, generations, late.join) if isinstance(late, ColBERT) else text
        texts = {name: collection.documents.text(name) for name in documents}
        with suppress(R2medError):
            tokens = align(late.encoder, text, texts, late.store)
    return terms, tokens


@dataclass(frozen=True)
class CaseDocument:
    """A document as a run has it for a query."""

    document: str
    text: str
    relevant: bool
    rank: int | None
    """Its place, from 1; None when it is not in the list."""
    score: float | None
    other: int | None = None
    """Its place in the run that is compared with."""
    terms: Sequence[MatchedTerm] | None = None
    """The terms by which a learned sparse encoder found it; None where it did not, or its vectors are gone."""
    tokens: Sequence[TokenMatch] | None = None
    """The best match of each of the query's tokens by a late-interaction model; None without one, or its vectors."""


@dataclass(frozen=True)
class Side:
    """One run's part in a case."""

    system: str
    value: float
    """The headline."""
    length: int
    """How many documents its list holds."""
    generations: Sequence[Generation]
    incomplete: str
    top: Sequence[CaseDocument]
    positives: Sequence[CaseDocument]


@dataclass(frozen=True)
class Case:
    """A query with everything a person needs to see why it went as it did."""

    task: str
    query: str
    text: str
    answer: str
    documents: int
    """How many the task has."""
    side: Side
    other: Side | None = None

    @property
    def lost(self) -> float:
        """Return how much less than the other run this one has; below 0 if it has more."""
        return self.other.value - self.side.value if self.other else 0.0

    @property
    def left(self) -> list[CaseDocument]:
        """Return the documents of the other run's top that are not in this one's."""
        here = {seen.document for seen in self.side.top}
        return [seen for seen in self.other.top if seen.document not in here] if self.other else []

    def kinds(self) -> dict[str, str]:
        """Return the terms of the query, of its generated texts, and of the gold answer, each by the first it is in."""
        return kinds_of(query=[self.text], generated=self._written, answer=[self.answer])

    def kinds_in_answer(self) -> dict[str, str]:
        """Return the terms to mark in the gold answer: of the query, and of the texts generated for it."""
        return kinds_of(query=[self.text], generated=self._written)

    def kinds_in_generated(self) -> dict[str, str]:
        """Return the terms to mark in a generated text: of the query, and of the gold answer."""
        return kinds_of(query=[self.text], answer=[self.answer])

    @property
    def _written(self) -> list[str]:
        sides = [self.side, *([self.other] if self.other else [])]
        return [generation.text for side in sides for generation in usable(side.generations)]


@dataclass(frozen=True)
class CaseChoice:
    """Selection of queries to look at, and their number."""

    query: str = ""  # a query's id; empty for any
    kind: str = "all"  # `all`, `failures` (nothing relevant in the first 10), `worst`, or `sample`
    count: int | None = None
    depth: int = TOP  # how many documents of a list are shown


def look(tasks: Iterable[Sequence[LoadedRun]], choice: CaseChoice) -> list[Case]:
    """Return the chosen queries of a run, and of one that it is compared with, the lowest score first.

    With `worst` and a second run, those come first in which the first run has most to gain from the second. Of each
    task only what may be chosen is kept, so that one task is in memory at a time.
    """
    order = _ORDERS.get(choice.kind, lambda case: case.side.value)
    kept: list[Case] = []
    for opened in tasks:
        queries = (query for query in opened[0].positives if not choice.query or query == choice.query)
        failures = choice.kind == "failures"
        cases = [_case(name, opened, choice.depth) for name in queries if not failures or not opened[0].values[name]]
        kept = sorted([*kept, *cases], key=order)[: choice.count]
    if choice.query and not kept:
        raise R2medError(f"no query {choice.query!r} in these tasks; r2med inspect RUN --json lists all")
    return kept if choice.kind == "worst" else sorted(kept, key=lambda case: case.side.value)


_ORDERS: dict[str, Callable[[Case], Any]] = {
    "worst": lambda case: (-case.lost, case.side.value),
    # By nothing but the ids: the same sample every time, for every system.
    "sample": lambda case: hashlib.sha256(f"{case.task}\t{case.query}".encode("utf-8", "surrogatepass")).digest(),
}


def _case(query: str, opened: Sequence[LoadedRun], depth: int) -> Case:
    dataset, runs = opened[0].dataset, [one.run for one in opened]
    others = runs[::-1] if len(runs) == 2 else [None]
    sides = [_side(query, one, other, depth) for one, other in zip(opened, others, strict=True)]
    return Case(
        task=opened[0].entry.task,
        query=query,
        text=dataset.collection.queries.text(query),
        answer=dataset.gold.answers.get(query, ""),
        documents=len(dataset.collection.documents),
        side=sides[0],
        other=sides[1] if len(sides) == 2 else None,
    )


def _side(query: str, opened: LoadedRun, other: Run | None, depth: int) -> Side:
    documents, relevant = opened.dataset.collection.documents, opened.positives[query]
    ranking = opened.run.select([query])[query]
    names = list(ranking.documents)
    places = {name: place for place, name in enumerate(names)}
    compared = other.select([query])[query].documents if other is not None else ()
    others = {name: rank for rank, name in enumerate(compared, 1)}

    def seen(name: str) -> CaseDocument:
        place = places.get(name)
        rank, score = (None, None) if place is None else (place + 1, float(ranking.scores[place]))
        matches = terms.get(name), tokens.get(name)
        return CaseDocument(name, documents.text(name), name in relevant, rank, score, others.get(name), *matches)

    positives = sorted(relevant, key=lambda name: places.get(name, len(names)))
    named = list(dict.fromkeys([*names[:depth], *positives]))
    terms, tokens = _matches(opened, query, named)
    return Side(
        system=opened.system,
        value=opened.values[query],
        length=len(names),
        generations=opened.generations.get(query, ()),
        incomplete=opened.incomplete.get(query, ""),
        top=[seen(name) for name in names[:depth]],
        positives=[seen(name) for name in positives],
    )
