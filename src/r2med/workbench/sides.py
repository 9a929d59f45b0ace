"""One query in several runs: their lists, the relevant documents with their places, and the generated texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
from r2med.workbench.bench import LETTERS
from r2med.workbench.cases import Case, CaseChoice, look

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
        seen = {document.document: document for document in case.side.top} if case else {}
        documents = []
        for rank, (name, score) in enumerate(zip(ranking.documents[:depth], ranking.scores.tolist(), strict=False), 1):
            moved = first[name] - rank if name in first else None
            here = seen.get(name)
            relevant, text, tokens = (here.relevant, here.text, here.tokens) if here else (None, None, None)
            documents.append(FoundDocument(name, rank, score, relevant, text, moved, tokens))
        value, kinds = library.query_scores(entry, measure).get(query), text_kinds([case] if case else [])
        sides.append(Listed(letter, entry, value, case, documents, kinds, run_query_causes(library, entry).get(query)))
        first = first or {name: rank for rank, name in enumerate(ranking.documents, 1)}
    return sides


def _case(library: Library, entry: Entry, query: str, depth: int) -> Case | None:
    opened = library.loaded_run(entry)
    return look([(opened,)], CaseChoice(query=query, depth=depth))[0] if opened and query in opened.positives else None


def relevant_documents(sides: Sequence[Listed]) -> list[RelevantDocument]:
    """Return the relevant documents with their places in every list, the highest first."""
    cases = [side.case for side in sides]
    ranks = [{seen.document: seen.rank for seen in case.side.positives} if case else {} for case in cases]
    causes = [{placed.document: placed for placed in side.cause.positives} if side.cause else {} for side in sides]
    local = [row for row in zip(sides, ranks, causes, strict=True) if row[0].case is not None]
    texts = {seen.document: seen.text for case in cases if case is not None for seen in case.side.positives}
    documents = [
        RelevantDocument(name, text, [RelevantPlace(side.letter, r.get(name), c.get(name)) for side, r, c in local])
        for name, text in texts.items()
    ]
    highest = {row.document: min((p.rank for p in row.places if p.rank), default=math.inf) for row in documents}
    return sorted(documents, key=lambda row: highest[row.document])


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


class Standing(NamedTuple):
    """Score of a system on one query."""

    entry: Entry
    value: float
    place: int  # from 1; systems with the same score share the first of theirs


def standings(library: Library, task: str, query: str, measure: str) -> list[Standing]:
    """Rank every system's current run on a query by a measure, the best first, oracles after all others."""
    entries = (row[task] for row in library.current_runs().values() if task in row)
    scores = [(entry, library.query_scores(entry, measure).get(query)) for entry in entries]
    scored = [(entry, value) for entry, value in scores if value is not None]
    scored.sort(key=lambda pair: (pair[0].oracle, -pair[1]))
    values = [value for _, value in scored]
    return [Standing(entry, value, values.index(value) + 1) for entry, value in scored]
