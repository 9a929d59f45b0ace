"""Deciding causes from what can be checked, and not from guesses.

Each relevant document of a query is asked, in this order: is it among the first 10? Among the first 100 (`deep_cutoff`
for small collections)? Was nothing usable generated for its query? Would the same retriever have found it with the gold
answer, joined as it joins any generated text? Does most of what it shares with the answer lie beyond what the
encoder reads?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from r2med.diagnose.causes import Cause, Diagnosis, Placed, QueryCause
from r2med.diagnose.kept import keep, recalled
from r2med.diagnose.opened import TOP, Opened
from r2med.diagnose.oracle import measured, searches, with_answer
from r2med.diagnose.truncation import MOST, beyond_reach
from r2med.engine import Engine
from r2med.ranking import Run
from r2med.retrieve.joining import usable
from r2med.stage import Expander
from r2med.store.ledger import Ledger
from r2med.system import System

Wanted = Mapping[str, Sequence[str]]
"""Query id to documents."""
_NO_ANSWER = "the task has no answer to it"


@dataclass(frozen=True)
class _Facts:
    """All that decides a task's causes, beside the run itself."""

    failed: Mapping[str, str] = field(default_factory=dict)
    """Queries for which nothing usable was generated, and why."""
    oracle: Run | None = None
    """What the search with gold answers found."""
    oracle_id: str = ""
    untried: str = ""
    """Why there is no search with gold answers."""
    beyond: Mapping[tuple[str, str], float] = field(default_factory=dict)


def diagnose(opened: Opened, ledger: Ledger, engine: Engine | None = None) -> Diagnosis:
    """The cause of every query of a run. The search with gold answers is made when it is needed, and kept."""
    return recalled(opened.entry, ledger) or keep(opened.entry, _decided(opened, ledger, engine))


def _decided(opened: Opened, ledger: Ledger, engine: Engine | None) -> Diagnosis:
    system = System.parse(opened.system)
    failed = _failed(system, opened)
    missing = {query: documents for query, documents in _missing(opened).items() if query not in failed}
    facts = replace(_facts(system, opened, missing, ledger, engine), failed=failed)
    queries = [_query(query, opened, facts) for query in opened.positives]
    return Diagnosis(opened.system, opened.entry.task, opened.deep, queries, facts.oracle_id, _notes(system, opened))


def _failed(system: System, opened: Opened) -> dict[str, str]:
    """Queries that an expander left without a usable text. A reranker's failures lose no document."""
    if system.oracle or not any(isinstance(stage, Expander) for stage in system.walk()):
        return {}
    return {
        query: reason for query, reason in opened.incomplete.items() if not usable(opened.generations.get(query, ()))
    }


def _missing(opened: Opened) -> dict[str, list[str]]:
    """The relevant documents that are not found at all, of each query that has such."""
    found: dict[str, list[str]] = {}
    for query in opened.positives:
        reached = set(opened.found(query, opened.deep))
        missing = [document for document in opened.positives[query] if document not in reached]
        if missing:
            found[query] = missing
    return found


def _facts(system: System, opened: Opened, missing: Wanted, ledger: Ledger, engine: Engine | None) -> _Facts:
    """Search with the gold answers, and see what of the documents still missing the encoder reads."""
    answered = {query: documents for query, documents in missing.items() if _answer(opened, query)}
    if not answered:
        return _Facts(untried=_NO_ANSWER)
    if not searches(system):
        return _Facts(untried="its lists are stored, and nothing else can be searched with")
    result = measured(with_answer(system), opened.dataset, engine)
    run = ledger.run(ledger.get(result.run_id))
    lost = {
        query: [document for document in documents if document not in run[query].documents[: opened.deep]]
        for query, documents in answered.items()
    }
    beyond = beyond_reach(system, opened.dataset, lost)
    return _Facts(oracle=run, oracle_id=result.run_id, untried=_NO_ANSWER, beyond=beyond)


def _answer(opened: Opened, query: str) -> str:
    return opened.dataset.gold.answers.get(query, "").strip()


def _query(query: str, opened: Opened, facts: _Facts) -> QueryCause:
    ranks = _ranks(opened.run, query)
    tried = facts.oracle if _answer(opened, query) else None
    oracle = _ranks(tried, query) if tried is not None else {}
    placed = []
    for document in opened.positives[query]:
        rank, beyond = ranks.get(document), facts.beyond.get((query, document))
        cause = Cause.UNDECIDED
        if rank is not None and rank <= opened.deep:
            cause = Cause.FOUND if rank <= TOP else Cause.LOW
        elif query in facts.failed:
            cause = Cause.LOST
        elif tried is not None:
            cause = _beyond_this_run(oracle.get(document), beyond, opened.deep)
        placed.append(Placed(document, cause, rank, oracle.get(document), beyond))
    made = QueryCause(query, tuple(placed), facts.failed.get(query, ""))
    return QueryCause(query, made.positives, facts.untried) if made.cause is Cause.UNDECIDED else made


def _beyond_this_run(oracle_rank: int | None, beyond: float | None, deep: int) -> Cause:
    if oracle_rank is not None and oracle_rank <= deep:
        return Cause.BRIDGE
    return Cause.TRUNCATED if beyond is not None and beyond > MOST else Cause.UNREACHABLE


def _ranks(run: Run, query: str) -> dict[str, int]:
    return {document: rank for rank, document in enumerate(run[query].documents, 1)} if query in run else {}


def _notes(system: System, opened: Opened) -> tuple[str, ...]:
    depth = system.retriever.depth
    if depth >= opened.deep:
        return ()
    return (f"{opened.entry.task}: lists of {depth} documents, so that nothing is found deeper",)
