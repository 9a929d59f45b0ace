"""Routing: a cheap system for most queries and an expensive one for those that seem to need it.

A signal that is known without judgements selects these queries. Both stages are retrievers like any other; the
strong systems are given, and bill, only the queries that are sent on to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.pipeline.registry import NamedStage, build_system
from r2med.pipeline.spec import Call, Condition, parse
from r2med.pipeline.stage import Context, Retriever, Signal, Stage
from r2med.pipeline.system import System, as_step, foreseeing
from r2med.retrieve.signals import ScoreGap, TextSignal

Part = System | Stage | str  # a system, in any form
SHARE = 0.3  # the default share of the queries that is sent on
ENDS = ("low", "high")
BY_GAP = System((ScoreGap(),))  # the default signal
_SIGNALS = (
    "score-gap, top-score, nqc, wig, clarity, query-length, agreement(SYSTEM), answer-agreement(LLM), confidence(LLM), "
    "random"
)


def hardest(values: NDArray[np.float64], names: Sequence[str], share: float, harder: str) -> list[int]:
    """Return the places of so large a share of the queries, the hardest; of equal ones the first by name.

    Queries without a signal (NaN) are hard.

    >>> hardest(np.array([3.0, 1.0, np.nan, 2.0]), ["a", "b", "c", "d"], 0.5, "low")
    [1, 2]
    """
    hardness = np.where(np.isnan(values), np.inf, values if harder == "high" else -values)
    order = sorted(range(len(names)), key=lambda place: (-hardness[place], names[place]))
    return sorted(order[: math.floor(share * len(names) + 0.5)])


def merged(collection: Collection, kept: Run, sent: Run) -> Run:
    """Merge the lists of some queries from one run with those of all others from another."""
    lists = {query: (sent if query in sent else kept)[query] for query in collection.queries.ids}
    return Run.from_lists({query: (ranking.documents, ranking.scores) for query, ranking in lists.items()})


@dataclass(frozen=True)
class Route(NamedStage, Retriever):
    """The cheap system for every query; for those that a signal calls hard, the strong one in its place."""

    cheap: System
    strong: System
    by: System = BY_GAP  # the signal
    share: float = SHARE  # the share of the queries that goes to the strong system: those that the signal calls hardest
    threshold: float | None = None
    """In place of the share: a query goes to the strong system if its signal is on the hard side of this number."""
    harder: str = ""  # which end of the signal's scale is the hard one, `low` or `high`; empty for the signal's own

    name = "route"

    def __post_init__(self) -> None:
        for name in ("cheap", "strong", "by"):
            object.__setattr__(self, name, build_system(getattr(self, name)))
        self.cheap.check()
        self.strong.check()
        signal_of(self.by, "route")
        if not 0 <= self.share <= 1:
            raise SpecError(f"route: share must lie between 0 and 1, not {self.share}")
        if self.threshold is not None and self.share != SHARE:
            raise SpecError("route: give share or threshold, not both")
        if self.harder not in ("", *ENDS):
            raise SpecError(f"route: harder must be low or high, not {self.harder!r}")

    @property
    def depth(self) -> int:  # type: ignore[override]  # what the lists have follows from the systems
        """Return the most documents of a list: as many as the shorter of the two lists."""
        return min(self.cheap.retriever.depth, self.strong.retriever.depth)

    @property
    def hard_end(self) -> str:
        """Return the hard end of the signal's scale."""
        return self.harder or signal_of(self.by, "route").harder

    def describe(self) -> Mapping[str, object]:
        """Return the rule by which queries are sent on."""
        rule = {"share": self.share} if self.threshold is None else {"threshold": self.threshold}
        return {"by": self.by.spec, **rule, "harder": self.hard_end}

    def passes(self, inner: System, collection: Collection) -> Collection:
        """Return the queries that a system is sent: for the strong one the share, or all with a threshold."""
        if inner is not self.strong:
            return collection
        signal, names = signal_of(self.by, "route"), collection.queries.ids
        if isinstance(signal, TextSignal):
            values = signal.of_queries(collection)
            return collection.select([names[place] for place in self._sent(values, names)])
        if self.threshold is not None:
            return collection
        count = math.floor(self.share * len(names) + 0.5)
        # Which queries these are shows only with the lists; some from all over stand for them.
        return collection.select([names[place * len(names) // count] for place in range(count)])

    def _sent(self, values: NDArray[np.float64], names: Sequence[str]) -> list[int]:
        if self.threshold is None:
            return hardest(values, names, self.share, self.hard_end)
        is_easy = values > self.threshold if self.hard_end == "low" else values < self.threshold
        return [place for place, easy in enumerate(is_easy.tolist()) if not easy]

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Search with the cheap system, compute the signal, and send the hard queries on."""
        run = self.cheap.run(collection, context)
        values = signal_values(self.by, collection, (self.cheap, run), context)
        names = collection.queries.ids
        places = self._sent(values, names)
        if self.threshold is None and len(names) == 1 and not places:
            context.warn(f"{self}: a share of one query is none; give a threshold for single questions")
        sent, signals = [names[place] for place in places], values[places]
        signals = signals[~np.isnan(signals)]
        # The signal of the easiest query that is sent on: the threshold that a share amounts to.
        edge = float(signals.max() if self.hard_end == "low" else signals.min()) if len(signals) else None
        context.notes.facts |= {"sent": len(sent), "of": len(names), "edge": edge}
        if not sent:
            return run
        return merged(collection, run, self.strong.run(collection.select(sent), context))


def signal_of(system: System, owner: str) -> Signal:
    """Return the signal of a spec's value."""
    stage = system.stages[0]
    if len(system.stages) != 1 or not isinstance(stage, Signal):
        raise SpecError(f"{owner}: {system} is not a signal; there are {_SIGNALS}")
    return stage


def signal_values(
    by: System, collection: Collection, searched: tuple[System, Run], context: Context
) -> NDArray[np.float64]:
    """Compute a signal of each query from a system's lists, as a step of its own with its own bill."""
    signal, (system, run) = signal_of(by, "route"), searched

    def work(context: Context) -> NDArray[np.float64]:
        return foreseeing(signal, collection, context, lambda: signal.values(collection, run, context))

    return as_step(signal, (collection.state, system.key(), signal.key()), context, work)


@dataclass(frozen=True, init=False)
class Cascade(NamedStage, Retriever):
    """Several systems in turn, each for the queries whose list by the one before was not good enough."""

    systems: tuple[System, ...] = field(metadata={"rest": True})
    until: Condition | tuple[Condition, ...] = field(kw_only=True)
    """When a list is good enough: one condition for all, or one for each system but the last."""
    signals: tuple[System, ...] = field(init=False, repr=False, compare=False)

    name = "cascade"

    def __init__(self, *systems: Part, until: Condition | str | Sequence[Condition | str]) -> None:
        built = tuple(build_system(system) for system in systems)
        if len(built) < 2:
            raise SpecError("cascade needs two systems or more, as in cascade(bm25, wordllama, until=score-gap>0.3)")
        for system in built:
            system.check()
        several = isinstance(until, tuple | list)
        conditions = tuple(map(_condition, until if isinstance(until, tuple | list) else (until,)))
        quantities = [condition.quantity for condition in conditions]
        calls = [quantity if isinstance(quantity, Call) else Call(quantity) for quantity in quantities]
        if several and len(conditions) != len(built) - 1:
            raise SpecError(f"cascade: {len(built)} systems need {len(built) - 1} conditions, not {len(conditions)}")
        object.__setattr__(self, "systems", built)
        object.__setattr__(self, "until", conditions if several else conditions[0])
        object.__setattr__(self, "signals", tuple(map(build_system, calls)))
        for signal in self.signals:
            signal_of(signal, "cascade")

    @property
    def depth(self) -> int:  # type: ignore[override]  # what the lists have follows from the systems
        """Return the most documents of a list: as many as the shortest of all lists."""
        return min(system.retriever.depth for system in self.systems)

    def describe(self) -> Mapping[str, object]:
        """Return the conditions for a list to be good enough."""
        return {"until": [str(condition) for condition in self._conditions]}

    @property
    def _conditions(self) -> tuple[Condition, ...]:
        return self.until if isinstance(self.until, tuple) else (self.until,)

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Search with one system after another until every list is good enough or no system is left."""
        run = self.systems[0].run(collection, context)
        left, asked = collection, [len(collection.queries)]
        for place, system in enumerate(self.systems[1:]):
            which = place if len(self.signals) > 1 else 0
            condition = self._conditions[which]
            values = signal_values(self.signals[which], left, (self.systems[place], run), context)
            good = values > condition.limit if condition.sign == ">" else values < condition.limit
            sent = [query for query, enough in zip(left.queries.ids, good, strict=True) if not enough]
            asked.append(len(sent))
            if not sent:
                break
            left = left.select(sent)
            run = merged(collection, run, system.run(left, context))
        context.notes.facts |= {"asked": asked}
        return run


def _condition(value: Condition | str) -> Condition:
    if isinstance(value, Condition):
        return value
    try:
        condition = parse(f"cascade(until={value})").calls[0].options[0][1]
    except SpecError:
        condition = None
    if not isinstance(condition, Condition):
        raise SpecError(f"cascade: until must be a condition such as score-gap>0.3, not {value}")
    return condition
