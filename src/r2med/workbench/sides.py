"""One query in several runs: their lists, the relevant documents with their places, and the generated texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Generation
from r2med.data.run import Ranking
from r2med.diagnosis.attribution import run_query_causes
from r2med.diagnosis.causes import Placed, QueryCause
from r2med.encode.late_interaction import TokenMatch
from r2med.expand.agents import SearchO1, SearchR1
from r2med.expand.conversation import Turn, read_turns
from r2med.lexical.highlight import kinds_of
from r2med.pipeline.joins import usable
from r2med.runs.ledger import Entry
from r2med.web.library import Library
from r2med.workbench.cases import Case, CaseChoice, look
from r2med.workbench.state import LETTERS

_AGENTS = {SearchR1.name: SearchR1.tags, SearchO1.name: SearchO1.tags}


@dataclass(frozen=True)
class FoundDocument:
    """A document of a list."""

    document: str
    rank: int
    score: float
    relevant: bool | None = None
    text: str | None = None
    moved: int | None = None
    """By how many places it stands higher than in the whole of the first list; None where that has it not."""
    tokens: Sequence[TokenMatch] | None = None
    """The best match of each token of the query, where a late-interaction model scored it."""


@dataclass(frozen=True)
class Listed:
    """One run's part in the page."""

    letter: str
    entry: Entry
    value: float | None  # by the measure that is shown; None where it was not measured
    case: Case | None  # None if the data is not local: then only ids are known
    documents: Sequence[FoundDocument]
    kinds: Mapping[str, str]
    cause: QueryCause | None = None

    @property
    def written(self) -> list[tuple[Generation, list[Turn]]]:
        """Return the texts generated for the query, each with the turns of the conversation that led to it."""
        generations = self.case.side.generations if self.case else ()
        return [(generation, conversation(generation)) for generation in generations]


@dataclass(frozen=True)
class RelevantPlace:
    """Place of a relevant document in one list."""

    letter: str
    rank: int | None  # None where it is not in the list
    placed: Placed | None = None  # its cause; None if not diagnosed yet


@dataclass(frozen=True)
class RelevantDocument:
    """A document that should have been found."""

    document: str
    text: str
    places: Sequence[RelevantPlace]  # in each list

    @property
    def highest(self) -> float:
        """Return the highest place that it has in any list."""
        return min((place.rank for place in self.places if place.rank), default=float("inf"))


def conversation(written: Generation) -> list[Turn]:
    """Return the turns of an agent's conversation; none if it did not search."""
    tags = _AGENTS.get(written.method)
    return read_turns(written.reasoning, tags) if tags and written.reasoning else []


def listed(library: Library, entries: Sequence[Entry], query: str, measure: str, depth: int) -> list[Listed]:
    """Return the lists of some runs for a query, their places counted against the first."""
    sides: list[Listed] = []
    first: dict[str, int] = {}
    for letter, entry in zip(LETTERS, entries, strict=False):
        run = library.run(entry)
        ranking = run[query] if query in run else Ranking([], run.scores[:0])
        case = _case(library, entry, query, depth)
        sides.append(
            Listed(
                letter,
                entry,
                library.query_scores(entry, measure).get(query),
                case,
                _documents(ranking, case, first, depth),
                text_kinds([case] if case else []),
                run_query_causes(library, entry).get(query),
            )
        )
        first = first or {name: rank for rank, name in enumerate(ranking.documents, 1)}
    return sides


def _case(library: Library, entry: Entry, query: str, depth: int) -> Case | None:
    opened = library.loaded_run(entry)
    return look([(opened,)], CaseChoice(query=query, depth=depth))[0] if opened and query in opened.positives else None


def _documents(ranking: Ranking, case: Case | None, first: Mapping[str, int], depth: int) -> list[FoundDocument]:
    seen = {document.document: document for document in case.side.top} if case else {}
    documents = []
    rows = zip(ranking.documents[:depth], ranking.scores[:depth].tolist(), strict=True)
    for rank, (name, score) in enumerate(rows, 1):
        here, moved = seen.get(name), first[name] - rank if name in first else None
        relevant, text, tokens = (here.relevant, here.text, here.tokens) if here else (None, None, None)
        documents.append(FoundDocument(name, rank, score, relevant, text, moved, tokens))
    return documents


def relevant_documents(sides: Sequence[Listed]) -> list[RelevantDocument]:
    """Return the relevant documents with their places in every list, the highest first."""
    cases = [side.case for side in sides]
    ranks = [{seen.document: seen.rank for seen in case.side.positives} if case else {} for case in cases]
    causes = [
        {document.document: document for document in side.cause.positives} if side.cause else {} for side in sides
    ]
    texts = {seen.document: seen.text for case in cases if case is not None for seen in case.side.positives}
    documents = [
        RelevantDocument(
            name,
            text,
            [
                RelevantPlace(side.letter, ranks[n].get(name), causes[n].get(name))
                for n, side in enumerate(sides)
                if side.case is not None
            ],
        )
        for name, text in texts.items()
    ]
    return sorted(documents, key=lambda document: document.highest)


def text_kinds(cases: Sequence[Case]) -> dict[str, str]:
    """Return the terms of a query, of the texts generated for it in some runs, and of its answer."""
    if not cases:
        return {}
    written = [generation.text for case in cases for generation in usable(case.side.generations)]
    return kinds_of(query=[cases[0].text], generated=written, answer=[cases[0].answer])


def run_kinds(library: Library, entries: Sequence[Entry], query: str) -> dict[str, str]:
    """Return the same for runs by themselves."""
    cases = [_case(library, entry, query, 0) for entry in entries]
    return text_kinds([case for case in cases if case is not None])


@dataclass(frozen=True)
class QueryStandings:
    """Scores of every system on one query, the best first, oracles after all others."""

    entries: Sequence[Entry]
    values: Sequence[float]

    def place(self, entry: Entry) -> int | None:
        """Return a system's place, from 1; systems with the same score share the first of theirs."""
        for other, value in zip(self.entries, self.values, strict=True):
            if other.id == entry.id:
                return self.values.index(value) + 1
        return None


def standings(library: Library, task: str, query: str, measure: str) -> QueryStandings:
    """Rank every system's current run on a query, by a measure."""
    entries, places, scores = _task_scores(library, task, measure)
    if query not in places:
        return QueryStandings((), ())
    column = scores[:, places[query]]
    order = [place for place in np.argsort(-column, kind="stable").tolist() if not np.isnan(column[place])]
    order.sort(key=lambda place: entries[place].oracle)
    return QueryStandings([entries[place] for place in order], [float(column[place]) for place in order])


def _task_scores(library: Library, task: str, measure: str) -> tuple[list[Entry], dict[str, int], NDArray[np.float64]]:
    """Return the current runs on a task, the column of each query, and all their scores, a row per run."""

    def make() -> tuple[list[Entry], dict[str, int], NDArray[np.float64]]:
        entries = [row[task] for row in library.current_runs().values() if task in row]
        queries = list(dict.fromkeys(query for entry in entries for query in entry.queries))
        scores = np.full((len(entries), len(queries)), np.nan)
        places = {query: place for place, query in enumerate(queries)}
        for row, entry in enumerate(entries):
            values = library.ledger.scores(entry).get(measure)
            if values is not None:
                scores[row, [places[query] for query in entry.queries]] = values
        return entries, places, scores

    return library.current(("standings", task, measure), make)
