"""Causes of failure, decided by checks: each relevant document of a query falls under the first that applies.

The checks, in this order: is it among the first 10? Among the first 100 (`deep_cutoff` for small collections)? Was
nothing usable generated for its query? Would the same retriever have found it with the gold answer, joined as it joins
any generated text? Does most of what it shares with the answer lie beyond what the encoder reads?

Only a system whose every retriever is an encoder with a limit can cut anything off; of several the one that reads
furthest counts. Diagnoses are cached: a run never changes, so neither do its causes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.diagnosis.causes import Cause, Diagnosis, Placed, QueryCause
from r2med.diagnosis.gap import Rarity, bare, measure, searches, with_answer
from r2med.encode.encoder import Encoder, Role
from r2med.errors import R2medError
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.joins import usable
from r2med.pipeline.loaded_runs import TOP, LoadedRun
from r2med.pipeline.stage import Expander, Retriever, own_documents
from r2med.pipeline.system import System
from r2med.retrieve.dense import Dense
from r2med.retrieve.fusion import Fusion, Views
from r2med.runs.ledger import Entry, Ledger
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key, is_unchanged
from r2med.store.typed import read_json, write_json

if TYPE_CHECKING:
    from r2med.web.library import Library

_NO_ANSWER = "the task has no answer to it"


@dataclass(frozen=True)
class _Facts:
    """Facts that decide a task's causes, beside the run itself."""

    failed: Mapping[str, str] = field(default_factory=dict)  # queries for which nothing usable was generated, and why
    oracle: Run | None = None  # what the search with gold answers found
    oracle_id: str = ""
    untried: str = ""  # why there is no search with gold answers
    beyond: Mapping[tuple[str, str], float] = field(default_factory=dict)


def diagnose(opened: LoadedRun, ledger: Ledger, executor: Executor | None = None) -> Diagnosis:
    """Return the cause of every query of a run. The search with gold answers is run if it is needed, and kept."""
    if (cached := load_cached_diagnosis(opened.entry, ledger)) is not None:
        return cached
    system = System.parse(opened.entry.system)
    failed: dict[str, str] = {}
    # A reranker's failures lose no document.
    if not system.oracle and any(isinstance(stage, Expander) for stage in system.walk()):
        texts = opened.generations
        failed = {query: why for query, why in opened.incomplete.items() if not usable(texts.get(query, ()))}
    missing: dict[str, list[str]] = {}
    for query, relevant in opened.positives.items():
        reached = set(opened.found(query, opened.deep))
        lost = [document for document in relevant if document not in reached]
        if lost and query not in failed:
            missing[query] = lost
    facts = replace(_facts(system, opened, missing, ledger, executor), failed=failed)
    queries, task = [_query(query, opened, facts) for query in opened.positives], opened.entry.task
    diagnosis = Diagnosis(opened.system, task, opened.deep, queries, facts.oracle_id, _notes(system, opened))
    return save_diagnosis(opened.entry, diagnosis)


def _facts(
    system: System, opened: LoadedRun, missing: Mapping[str, Sequence[str]], ledger: Ledger, executor: Executor | None
) -> _Facts:
    """Search with the gold answers, and see what of the documents still missing the encoder reads."""
    answered = {query: documents for query, documents in missing.items() if _answer(opened, query)}
    if not answered:
        return _Facts(untried=_NO_ANSWER)
    if not searches(system):
        return _Facts(untried="its lists are stored, and nothing else can be searched with")
    result = measure(with_answer(system), opened.dataset, executor)
    run = ledger.run(ledger.get(result.id))
    lost = {
        query: [document for document in documents if document not in run[query].documents[: opened.deep]]
        for query, documents in answered.items()
    }
    beyond = beyond_reach(system, opened.dataset, lost)
    return _Facts(oracle=run, oracle_id=result.id, untried=_NO_ANSWER, beyond=beyond)


def _answer(opened: LoadedRun, query: str) -> str:
    return opened.dataset.gold.answers.get(query, "").strip()


def _query(query: str, opened: LoadedRun, facts: _Facts) -> QueryCause:
    ranks = _ranks(opened.run, query)
    tried = facts.oracle if _answer(opened, query) else None
    oracle = _ranks(tried, query) if tried is not None else {}
    # Where the search itself failed, no document was looked for.
    unsearched = opened.incomplete.get(query, "") if query in opened.entry.record.unsearched else ""
    placed = []
    for document in opened.positives[query]:
        rank, beyond = ranks.get(document), facts.beyond.get((query, document))
        cause = Cause.UNDECIDED
        if rank is not None and rank <= opened.deep:
            cause = Cause.FOUND if rank <= TOP else Cause.LOW
        elif query in facts.failed:
            cause = Cause.LOST
        elif tried is not None and not unsearched:
            oracle_rank = oracle.get(document)
            if oracle_rank is not None and oracle_rank <= opened.deep:
                cause = Cause.BRIDGE
            else:
                cause = Cause.TRUNCATED if beyond is not None and beyond > MOST else Cause.UNREACHABLE
        placed.append(Placed(document, cause, rank, oracle.get(document), beyond))
    result = QueryCause(query, tuple(placed), facts.failed.get(query, ""))
    return replace(result, reason=unsearched or facts.untried) if result.cause is Cause.UNDECIDED else result


def _ranks(run: Run, query: str) -> dict[str, int]:
    return {document: rank for rank, document in enumerate(run[query].documents, 1)} if query in run else {}


def _notes(system: System, opened: LoadedRun) -> tuple[str, ...]:
    depth, task, notes = system.retriever.depth, opened.entry.task, []
    if depth < opened.deep:
        notes.append(f"{task}: lists of {depth} documents, so that nothing is found deeper")
    searching = [stage for stage in system.walk() if isinstance(stage, Retriever)]
    dropped = frozenset[str]().union(*(stage.dropped_copies(opened.dataset.collection) for stage in searching))
    if dropped:
        notes.append(f"{task}: {own_documents(len(dropped))} left out of its list")
    return tuple(notes)


MOST = 0.5
"""A document counts as truncated away when more than this share of what it has in common with the answer is cut."""
_WORD_END = re.compile(r"\S(?=\s|$)")


def beyond_reach(
    system: System, dataset: Dataset, missing: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], float]:
    """Measure how much of their overlap with the answer is cut off, for documents that an encoder reads in part.

    The share is of weight, each term counted once by its rarity; a term that also stands in what is read is not lost.
    Documents that are read whole, or have no term of the answer, are left out.
    """
    encoders, collection = _encoders(system, dataset), dataset.collection.documents
    names = list(dict.fromkeys(document for documents in missing.values() for document in documents))
    if not encoders or not names:
        return {}
    texts = [collection.text(name) for name in names]
    parts = [read_part(encoder, texts) for encoder in encoders]
    read = [max(prefixes, key=len) for prefixes in zip(*parts, strict=True)]
    cut = {name: (part, text) for name, part, text in zip(names, read, texts, strict=True) if len(part) < len(text)}
    if not cut:
        return {}
    rarity, shares = Rarity.of(collection), {}
    for query, documents in missing.items():
        answer = rarity.terms(dataset.gold.answers[query])
        for document in documents:
            if document in cut:
                part, text = map(rarity.terms, cut[document])
                share = rarity.share(answer & text, part)
                if share is not None:
                    shares[query, document] = 1 - share
    return shares


def _encoders(system: System, dataset: Dataset) -> list[Encoder]:
    """Return the encoders of a system that searches with nothing else, none if one of them reads everything."""
    searching = [stage for stage in bare(system).walk() if isinstance(stage, Retriever)]
    leaves = [stage for stage in searching if not isinstance(stage, Fusion | Views)]
    encoders = [stage.encoder(dataset.task) for stage in leaves if isinstance(stage, Dense)]
    limited = all(encoder.limit(Role.DOCUMENT) for encoder in encoders)
    return encoders if limited and len(encoders) == len(leaves) else []


def read_part(encoder: Encoder, texts: Sequence[str]) -> list[str]:
    """Return the longest start of each text, up to the end of a word, that the encoder reads as a document."""
    limit = encoder.limit(Role.DOCUMENT)
    if not limit:
        return list(texts)

    def start_of(text: str) -> str:
        ends = [match.end() for match in _WORD_END.finditer(text)]
        fit = bisect_right(ends, limit, key=lambda end: int(encoder.lengths([text[:end]], Role.DOCUMENT)[0]))
        return text[: ends[fit - 1]] if fit else ""

    tokens = encoder.lengths(texts, Role.DOCUMENT).tolist()
    return [start_of(text) if count > limit else text for text, count in zip(texts, tokens, strict=True)]


FORMAT = 2  # changes when causes are decided or written otherwise
_KIND = "causes"
_FILE = "diagnosis.json"


def load_cached_diagnosis(entry: Entry, ledger: Ledger) -> Diagnosis | None:
    """Return the cached diagnosis of a run; None if there is none, or if the search it rests on was removed."""
    cache, key = Cache.default(), _key(entry)
    folder = cache.root / _KIND / key
    if not cache.has(_KIND, key) or not is_unchanged(folder):
        return None
    try:
        diagnosis = read_json(folder / _FILE, Diagnosis)
        if diagnosis.oracle:
            ledger.get(diagnosis.oracle)
    except R2medError:
        return None
    return replace(diagnosis, system=entry.name)


def save_diagnosis(entry: Entry, diagnosis: Diagnosis) -> Diagnosis:
    """Remember a diagnosis, in place of one that can no longer be used."""

    cache, key = Cache.default(), _key(entry)
    cache.drop(_KIND, key)
    with suppress(R2medError):  # it only saves time
        cache.sound_entry(_KIND, key, lambda folder: write_json(folder / _FILE, diagnosis))
    return diagnosis


def _key(entry: Entry) -> str:
    # A run that was made again under the same key is another run.
    return cache_key(run=entry.key, created=(entry.created, entry.seconds), format=FORMAT)


def run_causes(library: Library, entry: Entry) -> Diagnosis | None:
    """Return why a run fails where it does; None if it was not diagnosed yet: a page searches for nothing."""
    return library.keep("causes", (entry.key, entry.created), lambda: load_cached_diagnosis(entry, library.ledger))


def run_query_causes(library: Library, entry: Entry) -> Mapping[str, QueryCause]:
    """Return what became of each query of a run; nothing if it was not diagnosed yet."""
    diagnosis = run_causes(library, entry)
    return {} if diagnosis is None else diagnosis.by_query
