"""Rows of one's own: the current run of each system on each task of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from r2med.board.model import OWN, BoardRow, SystemParts
from r2med.errors import R2medError, SpecError
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord, StageRecord
from r2med.runs.selection import Current, current_data, current_runs

_AGENTS = ("search-o1", "search-r1")
_ASKING = ("answer-agreement", "confidence")
"""Signals that ask a language model."""
_FUSIONS = ("rrf", "wsum", "combmnz", "views", "route", "cascade")


def newest_runs(ledger: Ledger, group: str, tasks: Sequence[str], present: Mapping[str, str] | None = None) -> Current:
    """The current run of each system on each of these tasks, systems and tasks in a fixed order."""
    current = current_runs([entry for entry in ledger.entries(group=group) if entry.task in tasks], present)
    return {
        system: {task: current[system][task] for task in tasks if task in current[system]} for system in sorted(current)
    }


def local_rows(
    runs: Current,
    means: Mapping[str, Mapping[str, float]],
    measure: str,
    present: Mapping[str, str] | None = None,
) -> list[BoardRow]:
    """Return a row for each system; `means` are the ledger's, `present` the fingerprints of the data of tasks now."""
    latest = sorted((entry for row in runs.values() for entry in row.values()), key=lambda entry: -entry.used)
    data = current_data(latest) | dict(present or {})
    return [
        replace(
            _row(system, entries, means, measure),
            other_data=tuple(task for task, entry in entries.items() if entry.data != data[task]),
        )
        for system, entries in runs.items()
    ]


def _row(system: str, entries: Mapping[str, Entry], means: Mapping[str, Mapping[str, float]], measure: str) -> BoardRow:
    measured = {task: means.get(entry.id, {}) for task, entry in entries.items()}
    stages = next(iter(entries.values())).record.stages
    oracle = any(entry.oracle for entry in entries.values())
    return BoardRow(
        name=system,
        sources=(OWN,),
        values={task: values[measure] for task, values in measured.items() if measure in values},
        system=next(iter(entries.values())).system,
        parts=parts_of(stages or (), oracle=oracle),
        oracle=oracle,
        queries=sum(len(entry.queries) for entry in entries.values()),
        incomplete=sum(len(entry.incomplete) for entry in entries.values()),
        runs={task: entry.id for task, entry in entries.items()},
        cost=Cost.of_runs(list(entries.values())),
        recall_lost=mean_recall_lost([entry.record for entry in entries.values()]),
    )


def mean_recall_lost(records: Sequence[RunRecord]) -> float | None:
    """What approximate searches lost of the exact lists, on the average over tasks; None where all were exact."""
    lost = [record.recall_lost for record in records if record.recall_lost is not None]
    return sum(lost) / len(lost) if lost else None


def parts_of(stages: Sequence[StageRecord], *, oracle: bool = False) -> SystemParts:
    """What a system is made of, from the stages that its record names.

    >>> parts_of([StageRecord("hyde(gpt-4o)", "expander"), StageRecord("bm25", "retriever")])
    SystemParts(kind='gar', retrievers=('bm25',), llms=('gpt-4o',), rerankers=())
    """
    calls: dict[str, list[Call]] = {"expander": [], "retriever": [], "reranker": []}
    for stage in stages:
        calls.setdefault(stage.kind, []).append(_call(stage.spec))
    asking = [
        *calls["expander"],
        *calls["reranker"],
        *(call for call in calls.get("signal", ()) if call.name in _ASKING),
    ]
    llms = tuple(dict.fromkeys(llm for call in asking if (llm := _llm(call))))
    return SystemParts(
        "oracle" if oracle else _kind(calls, llms),
        tuple(dict.fromkeys(call.name for call in calls["retriever"])),
        llms,
        tuple(dict.fromkeys(call.name for call in calls["reranker"])),
    )


def _call(spec: str) -> Call:
    try:
        return parse(spec).calls[0]
    except SpecError:
        # What a submission calls a stage need not be a spec.
        return Call(spec)


def _llm(call: Call) -> str:
    """The language model of a stage: its `llm`, or the first thing it is told where that is how models are named."""
    named = dict(call.options).get("llm")
    first: Value = call.args[0] if call.args and call.name != "replay" else ""
    return str(named or first) if not isinstance(named or first, Call | Chain | tuple) else ""


def _kind(calls: Mapping[str, Sequence[Call]], llms: Sequence[str]) -> str:
    if calls["reranker"]:
        return "reranker"
    methods = {call.name for call in calls["expander"]}
    methods |= {str(dict(call.options).get("method", "")) for call in calls["expander"]}
    if methods.intersection(_AGENTS):
        return "agent"
    if calls["expander"]:
        return "reasoning" if any(map(_reasons, llms)) else "gar"
    return "fusion" if any(call.name in _FUSIONS for call in calls["retriever"]) else "base"


@cache
def _reasons(llm: str) -> bool:
    from r2med.llm.llm_cards import find_model  # with the client of models, which few boards need

    try:
        return find_model(llm).reasoning
    except R2medError:
        # A published name, or a model whose card is gone.
        return False
