"""What an effect costs: money, tokens and seconds a query of every system, and which systems are worth their price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from r2med.compare import find_runs
from r2med.errors import R2medError
from r2med.store.ledger import Entry, Ledger

COSTS: Mapping[str, str] = {
    "money": "US dollars a query",
    "tokens": "tokens read and written a query",
    "seconds": "seconds a query",
}
"""By what a price can be counted."""


@dataclass(frozen=True)
class Bill:
    """What a query costs with a system; None where the records do not say."""

    money: float | None
    tokens: float | None
    seconds: float | None
    """The time of the run, with each request counted as long as it took when it was first answered."""


@dataclass(frozen=True)
class Priced:
    """A system with its score and its bill, averaged over the same tasks."""

    system: str
    score: float
    bill: Bill
    oracle: bool = False

    def cost(self, by: str) -> float | None:
        """What a query costs, counted one way."""
        value: float | None = getattr(self.bill, by)
        return value

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {"system": self.system, "score": self.score, **asdict(self.bill), "oracle": self.oracle}


def frontier(systems: Sequence[Priced], by: str) -> list[Priced]:
    """The systems that no other beats in score at the same cost or less, cheapest first.

    Oracles are no systems and never on it; a system of unknown cost is neither.

    >>> cheap, dear = Priced("a", 0.2, Bill(0.0, 0, 1)), Priced("b", 0.1, Bill(1.0, 9, 1))
    >>> [each.system for each in frontier([dear, cheap], "money")]
    ['a']
    """
    known = [(cost, each) for each in systems if not each.oracle and (cost := each.cost(by)) is not None]
    best, found = -np.inf, []
    for _, each in sorted(known, key=lambda pair: (pair[0], -pair[1].score)):
        if each.score > best:
            best = each.score
            found.append(each)
    return found


def price(
    ledger: Ledger, names: Sequence[str] = (), tasks: Sequence[str] = (), measure: str = "nDCG@10"
) -> list[Priced]:
    """Every system of the ledger, or those named, that was run on all of the tasks; the best first."""
    known = dict.fromkeys(entry.system for entry in ledger.entries() if not tasks or entry.task in tasks)
    chosen = names or list(known)
    runs = {name: find_runs(ledger, name, tasks=tasks) for name in chosen}
    wanted = set(tasks) or {task for found in runs.values() for task in found}
    groups = {entry.group for found in runs.values() for entry in found.values()}
    if len(groups) > 1:
        raise R2medError(f"these runs are of several groups ({', '.join(sorted(groups))}); choose with --tasks")
    means = ledger.means()
    complete = [list(found.values()) for found in runs.values() if set(found) == wanted]
    priced = [_priced(entries, means, measure) for entries in complete]
    if not priced:
        raise R2medError("no system of the ledger was run on all of these tasks; r2med run makes runs")
    return sorted(priced, key=lambda each: -each.score)


def _priced(entries: Sequence[Entry], means: Mapping[str, Mapping[str, float]], measure: str) -> Priced:
    lacking = [entry for entry in entries if measure not in means[entry.id]]
    if lacking:
        advice = f"r2med run {lacking[0].system!r} --tasks {lacking[0].task} --metrics {measure}"
        raise R2medError(f"{lacking[0].system} on {lacking[0].task} was not measured by {measure}; {advice}")
    score = float(np.mean([means[entry.id][measure] for entry in entries]))
    return Priced(entries[0].system, score, bill(entries), any(entry.record.get("oracle") for entry in entries))


def bill(entries: Sequence[Entry]) -> Bill:
    """What a query costs, over all queries of some runs. What texts that were made elsewhere cost is not known."""
    accounts = [note for entry in entries for note in _accounts(entry.record.get("notes", {}))]
    queries = sum(len(entry.queries) for entry in entries)
    costs = [note["account"]["cost"] for note in accounts]
    money = None if None in costs else sum(costs) / queries
    tokens = sum(note["account"]["prompt_tokens"] + note["account"]["completion_tokens"] for note in accounts) / queries
    # Asking is counted by the requests' own time, which is the same whether answers were kept or not.
    asking = sum(note["account"]["seconds"] for note in accounts)
    waited = sum(note.get("seconds", 0.0) for note in accounts)
    seconds = (asking + max(0.0, sum(entry.seconds for entry in entries) - waited)) / queries
    stages = [stage for entry in entries for stage in entry.record.get("stages", ())]
    if any(_is(stage, "replay") for stage in stages):
        return Bill(None, None, None)
    return Bill(None, None, seconds) if any(_served(stage) for stage in stages) else Bill(money, tokens, seconds)


def _accounts(notes: Any) -> Iterator[Mapping[str, Any]]:
    """Every note that holds an account, however deep: a stage may have used other stages."""
    if isinstance(notes, dict):
        if isinstance(notes.get("account"), dict):
            yield notes
        for value in notes.values():
            yield from _accounts(value)


def _is(stage: Mapping[str, Any], name: str) -> bool:
    spec: str = stage["spec"]
    return spec.partition("(")[0] == name


def _served(stage: Mapping[str, Any]) -> bool:
    """Whether a stage asks a server that sells vectors or scores, whose prices no record has."""
    encoder = stage.get("encoder")
    return _is(stage, "api-rerank") or (isinstance(encoder, dict) and encoder.get("backend") == "api")
