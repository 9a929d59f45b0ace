"""One query: what was asked, where the relevant documents are, and several systems' lists; and one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from r2med.data.run import Ranking
from r2med.diagnose.cases import Case, CaseChoice, look
from r2med.diagnose.loaded_runs import TOP
from r2med.errors import R2medError
from r2med.render.html import address
from r2med.retrieve.query_text import usable
from r2med.runs.ledger import Entry
from r2med.text.highlight import kinds_of
from r2med.web.addresses import PageContent
from r2med.web.library import Library
from r2med.web.rag_page import StudyAnswers, answers_to

if TYPE_CHECKING:
    from starlette.requests import Request

WORDS = 45
"""Of a document, before it is opened."""
DEEP = 100
"""As far as lists are shown when one asks for more."""
SIDES = 6
"""As many lists fit side by side."""
LONGEST = 8000
"""Characters of a question."""
LONGEST_TEXT = 200_000
"""Characters of a document that a page shows."""


@dataclass(frozen=True)
class FoundDocument:
    """A document of a list."""

    document: str
    rank: int
    score: float
    relevant: bool | None = None
    text: str | None = None
    moved: int | None = None
    """By how many places it stands higher than in the first list; None where that has it not."""


@dataclass(frozen=True)
class Listed:
    """One run's part in the page."""

    entry: Entry
    value: float
    case: Case | None
    """None where the data is not at hand: then only ids are known."""
    documents: Sequence[FoundDocument]
    kinds: Mapping[str, str]


@dataclass(frozen=True)
class Standing:
    """One system's score on the query."""

    entry: Entry
    value: float


@dataclass(frozen=True)
class Relevant:
    """A document that should have been found."""

    document: str
    text: str
    places: Sequence[int | None]
    """In each list; None where it is not in it."""


@dataclass(frozen=True)
class QueryPage:
    """Everything about one query."""

    task: str
    query: str
    text: str
    answer: str
    sides: Sequence[Listed]
    standings: Sequence[Standing]
    """Every system of the ledger on this query, the best first."""
    at_hand: bool
    kinds: Mapping[str, str] = field(default_factory=dict)
    relevant: Sequence[Relevant] = ()
    """The relevant documents, found or not, the highest first."""
    all_kinds: Mapping[str, str] = field(default_factory=dict)
    """By what the relevant documents are marked: the query, all that was written for it, the answer."""
    answers: Sequence[StudyAnswers] = ()
    """What models answered with and without passages."""


def query_page(library: Library, request: Request) -> PageContent:
    """One query with several systems' lists side by side."""
    asked = request.query_params
    deep = asked.get("depth") == str(DEEP)
    wanted = asked.get("task", ""), asked.get("query", ""), asked.getlist("run")
    page = gather_query(library, *wanted, DEEP if deep else TOP)
    facts = {"task": page.task, "query": page.query, "run": [side.entry.id for side in page.sides]}
    return "query.html", {
        "page": page,
        "words": WORDS,
        "deep": deep,
        "depth": DEEP,
        "other_depth": address("/query", **facts, depth="" if deep else DEEP),
    }


def document_page(library: Library, request: Request) -> PageContent:
    """One document, marked by a question or by a query of a run; alone, or in a page of its own."""
    asked = request.query_params
    task, name = asked.get("task", ""), asked.get("document", "")
    dataset = library.dataset(task) if task in library.tasks() else None
    if dataset is None or name not in dataset.collection.documents.position:
        raise R2medError(f"no document {name!r} of {task!r} is on this machine")
    text = dataset.collection.documents.text(name)
    question = asked.get("q", "")
    kinds = question_kinds(question) if question else {}
    if asked.get("query") and asked.getlist("run"):
        kinds = run_kinds(library, [library.entry(run) for run in asked.getlist("run")], asked["query"])
    template = "_text.html" if asked.get("part") else "document.html"
    values = {"task": task, "document": name, "text": text[:LONGEST_TEXT], "letters": len(text), "kinds": kinds}
    return template, {**values, "longest": LONGEST_TEXT}


def gather_query(library: Library, task: str, query: str, runs: Sequence[str], depth: int = TOP) -> QueryPage:
    """The page of a query with the lists of some runs, those of the two best systems unless runs are named."""
    standings = _standings(library, task, query)
    answers = answers_to(library, task, query)
    if not standings and answers:
        return _only_answered(library, task, query, answers)
    if not standings:
        raise R2medError(f"no run on {task} has the query {query!r}")
    chosen = [library.entry(run) for run in runs[:SIDES]] or [each.entry for each in standings[:2]]
    wrong = [entry.id for entry in chosen if entry.task != task or query not in entry.queries]
    if wrong:
        raise R2medError(f"run {wrong[0]} has no query {query!r} of {task}")
    values = {each.entry.id: each.value for each in standings}
    sides: list[Listed] = []
    for entry in chosen:
        first = {each.document: each.rank for each in sides[0].documents} if sides else {}
        value = values.get(entry.id, _value(library, entry, query))
        sides.append(_side(library, entry, query, value, first, depth))
    case = next((side.case for side in sides if side.case is not None), None)
    text, answer = (case.text, case.answer) if case else ("", "")
    return QueryPage(
        task,
        query,
        text,
        answer,
        sides,
        standings,
        case is not None,
        kinds_of(query=[text]),
        _relevant(sides),
        _kinds([side.case for side in sides if side.case is not None]),
        answers,
    )


def _only_answered(library: Library, task: str, query: str, answers: Sequence[StudyAnswers]) -> QueryPage:
    """The page of a query that no system was run on, but that models answered."""
    dataset = library.dataset(task)
    text = library.query_text(task, query)
    gold = "" if dataset is None else dataset.gold.answers.get(query, "")
    return QueryPage(task, query, text, gold, (), (), bool(text), kinds_of(query=[text]), answers=answers)


def _relevant(sides: Sequence[Listed]) -> list[Relevant]:
    cases = [side.case for side in sides]
    ranks = [{seen.document: seen.rank for seen in case.side.positives} if case else {} for case in cases]
    known = {seen.document: seen.text for case in cases if case is not None for seen in case.side.positives}
    found = [Relevant(name, text, [each.get(name) for each in ranks]) for name, text in known.items()]
    return sorted(found, key=lambda each: min((place for place in each.places if place), default=1 << 30))


def run_kinds(library: Library, entries: Sequence[Entry], query: str) -> dict[str, str]:
    """The terms of a query, of what was written for it in some runs, and of its answer."""
    opened = [found for entry in entries if (found := library.opened(entry)) is not None and query in found.positives]
    return _kinds([look([(found,)], CaseChoice(query=query, depth=0))[0] for found in opened])


def _kinds(cases: Sequence[Case]) -> dict[str, str]:
    if not cases:
        return {}
    written = [each.text for case in cases for each in usable(case.side.generations)]
    return kinds_of(query=[cases[0].text], generated=written, answer=[cases[0].answer])


def _standings(library: Library, task: str, query: str) -> list[Standing]:
    runs = [row[task] for row in library.current_runs().values() if task in row]
    found = [Standing(each, _value(library, each, query)) for each in runs if query in each.queries]
    return sorted(found, key=lambda each: (each.entry.oracle, -each.value))


def _value(library: Library, entry: Entry, query: str) -> float:
    return library.headline(entry).get(query, 0.0)


def _side(library: Library, entry: Entry, query: str, value: float, first: Mapping[str, int], depth: int) -> Listed:
    opened = library.opened(entry)
    run = library.run(entry)
    case = look([(opened,)], CaseChoice(query=query, depth=depth))[0] if opened and query in opened.positives else None
    ranking = run[query] if query in run else Ranking([], run.scores[:0])
    seen = {each.document: each for each in case.side.top} if case else {}
    documents = []
    rows = zip(ranking.documents[:depth], ranking.scores[:depth].tolist(), strict=True)
    for rank, (name, score) in enumerate(rows, 1):
        here, moved = seen.get(name), first[name] - rank if name in first else None
        relevant, text = (here.relevant, here.text) if here else (None, None)
        documents.append(FoundDocument(name, rank, score, relevant, text, moved))
    return Listed(entry, value, case, documents, _kinds([case] if case else []))


def question_kinds(question: str) -> Mapping[str, str]:
    """The terms of a question, for marking."""
    return kinds_of(query=[question[:LONGEST]])
