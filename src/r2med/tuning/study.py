"""Options chosen on some queries and measured on others.

A candidate is the system with certain options; for every split the one that is best on the queries to choose by is
measured on the rest. A route is fitted in another way: for every share of the queries the threshold is taken from the
queries to choose by, so that what is sent on of the others is decided query by query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import product
from typing import Any

import numpy as np

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import R2medError, SpecError, require_extra
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.measure.significance import Difference, difference
from r2med.pipeline.executor.local import Executor, begin_command, quiet
from r2med.pipeline.loaded_runs import HEADLINE
from r2med.pipeline.spec import parse
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.routing import Route, signal_values
from r2med.store.cache import Cache
from r2med.tuning.routes import SHARES
from r2med.tuning.splits import (
    FixedCandidate,
    Floats,
    Places,
    QuerySplit,
    RouteCandidate,
    RouteParts,
    TuneCandidate,
    distinct_halves,
    folds,
    linked,
    split_warnings,
    split_words,
)

RANGE_STEPS = 5  # how many values a range has when all combinations are tried


@dataclass(frozen=True)
class TuneOptions:
    """Settings of how a system is tuned."""

    measure: Measure = HEADLINE
    folds: int = 5
    halves: int = 0  # in place of folds: so many random halves
    split_queries: bool = False  # whether queries that share a relevant document may be on both sides of a split
    budget: float = 1.0  # the largest share of the queries that a route may send to its strong system
    trials: int = 0  # in place of all combinations: so many that Optuna suggests, for every split
    seed: int = 20250514
    executor: Executor = field(default_factory=quiet)


class OptionRange(tuple[float, float]):
    """A span of numbers, written `0.2..3`."""

    def steps(self) -> list[float]:
        """Return evenly spaced values, both ends among them."""
        return [round(float(value), 6) for value in np.linspace(self[0], self[1], RANGE_STEPS)]


Values = Sequence[Any] | OptionRange


@dataclass(frozen=True)
class Fold:
    """One split: what was chosen, and how it did where it was not."""

    chosen: str
    weight: float
    """How much the split counts: by the queries that are measured on it; halves count the same."""
    by: float
    """Its mean on the queries it was chosen by."""
    on: float
    """Its mean on the others."""
    untuned: float
    """The mean of the system as it was written on the others."""
    sent: float | None = None
    """The share of the others that a route sent to its strong system."""
    random: float | None = None
    """What a random choice of as many would have given there."""


@dataclass(frozen=True, repr=False)
class Tuned:
    """Result of tuning a system."""

    system: str
    measure: str
    split: str  # how queries were split, in words
    candidates: int
    folds: tuple[Fold, ...]
    gain: Difference | None
    """Tuned minus as written on queries that were not chosen by, paired; None for halves, which overlap."""
    written: float  # the mean of the system as it was written, over all queries
    best: str  # what is chosen by all queries: the one to use
    idle: tuple[str, ...] = ()  # options that made no difference to any query
    over_random: Difference | None = None
    """A route minus a random choice of as many queries, paired; None for halves and for what is no route."""
    warnings: tuple[str, ...] = ()  # what makes the splits tell less than they seem to

    def mean(self, name: str, folds: Sequence[Fold] | None = None) -> float:
        """Return the mean of a figure over some splits or all, each with its weight."""
        rows = self.folds if folds is None else folds
        return float(np.average([getattr(row, name) for row in rows], weights=[row.weight for row in rows]))

    def __repr__(self) -> str:
        return f"Tuned({self.system!r}, {self.candidates} candidates: {self.best!r})"

    def __str__(self) -> str:
        from r2med.render.table import print_plainly
        from r2med.tuning.tables import show_tuned

        return print_plainly(show_tuned, self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @cached_property
    def gains(self) -> Floats:
        """Return tuned minus as written, a number per split."""
        return np.array([fold.on - fold.untuned for fold in self.folds])

    @cached_property
    def over_chance(self) -> Floats | None:
        """Return a route's score minus that of a random choice of as many queries, per split; None for others."""
        gaps = [fold.on - fold.random for fold in self.folds if fold.random is not None]
        return np.array(gaps) if len(gaps) == len(self.folds) else None

    @property
    def optimism(self) -> float:
        """Return how much better the chosen one looks on the queries it was chosen by."""
        return self.mean("by") - self.mean("on")

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        chance = self.over_chance
        return {
            **{name: getattr(self, name) for name in ("system", "measure", "split", "candidates")},
            "folds": list(self.folds),
            "gain": None if self.gain is None else self.gain.as_dict(),
            "gain_mean": self.mean("on") - self.mean("untuned"),
            "gain_spread": float(self.gains.std(ddof=1)) if len(self.gains) > 1 else None,
            "over_chance": None if self.over_random is None else self.over_random.as_dict(),
            "over_chance_mean": None if chance is None else self.mean("on") - self.mean("random"),
            "over_chance_spread": None if chance is None or len(chance) < 2 else float(chance.std(ddof=1)),
            **{name: getattr(self, name) for name in ("written", "optimism", "best")},
            "idle": list(self.idle),
            "warnings": list(self.warnings),
        }


def tune(
    spec: str, tasks: Sequence[str], over: Mapping[str, Values] | None = None, options: TuneOptions | None = None
) -> Tuned:
    """Choose options on some queries and measure on the others; a route without options is tuned by its share."""
    begin_command()
    system = System.parse(spec)
    if system.oracle:
        raise R2medError(f"{system} is shown the gold answers: it is not a system to tune")
    bench = Bench([load(task) for task in resolve(tasks or ("sample",))], options or TuneOptions())
    if over:
        for name in over.keys() - system.option_names:
            names = ", ".join(sorted(system.option_names))
            raise R2medError(f"no stage of {system} has an option {name!r}; they have {names}")
        if bench.options.trials:
            return _measured(system, bench, _suggested(system, over, bench), bench.options.trials)
        candidates = [FixedCandidate(variant, bench.scores(variant)) for variant in combinations_of(system, over)]
        idle = tuple(name for name in over if _is_idle(name, system, over, bench))
        return _measured(system, bench, best_of(candidates, bench), len(candidates), idle)
    if len(system.stages) == 1 and isinstance(system.retriever, Route):
        parts = bench.route_parts(system.retriever)
        shares = [share for share in SHARES if share <= bench.options.budget]
        routes = [RouteCandidate(system.retriever, share, parts) for share in shares]
        return _measured(system, bench, best_of(routes, bench), len(shares), parts=parts)
    raise R2medError(f"say which options of {system} to tune, as in --over k1=0.6,0.9,1.2")


class Bench:
    """The tasks of a tuning: runs systems on them, and splits their queries."""

    def __init__(self, datasets: Sequence[Dataset], options: TuneOptions) -> None:
        self.datasets, self.options = datasets, options
        self._contexts = [Context(Cache.default(), options.executor) for _ in datasets]
        self._scores: dict[str, list[Floats]] = {}

    def scores(self, system: System) -> list[Floats]:
        """Return the measure of every query, task by task."""
        if system.spec not in self._scores:
            measure = self.options.measure
            pairs = zip(self.datasets, self._contexts, strict=True)
            runs = [(system.run(data.collection, context), data.gold) for data, context in pairs]
            self._scores[system.spec] = [
                score(run, gold.qrels, [measure], gold.aspects).values(measure) for run, gold in runs
            ]
        return self._scores[system.spec]

    def route_parts(self, route: Route) -> list[RouteParts]:
        """Return a route's systems and its signal on every task."""
        parts = []
        sides = zip(self.scores(route.cheap), self.scores(route.strong), self.datasets, self._contexts, strict=True)
        for cheap, strong, dataset, context in sides:
            names = self.queries(dataset)
            collection = dataset.collection.select(names)
            run = route.cheap.run(collection, context)
            values = signal_values(route.by, collection, (route.cheap, run), context)
            parts.append(RouteParts(names, cheap, strong, values if route.hard_end == "high" else -values))
        return parts

    def queries(self, dataset: Dataset) -> list[str]:
        """Return the queries that are measured, in the order of their scores."""
        qrels = dataset.gold.qrels
        return [query for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())]

    @cached_property
    def _groups(self) -> list[list[list[int]]]:
        return [linked(self.queries(dataset), dataset.gold.qrels) for dataset in self.datasets]

    @cached_property
    def splits(self) -> list[list[QuerySplit]]:
        """Return for every split that of each task."""
        options = self.options
        groups = self._groups
        if options.split_queries:
            groups = [[[place] for place in range(sum(map(len, parts)))] for parts in groups]
        if options.halves:
            return distinct_halves(groups, options.halves, options.seed)
        by_task = [folds(parts, options.folds, options.seed) for parts in groups]
        return list(map(list, zip(*by_task, strict=True)))

    @property
    def words(self) -> str:
        """Describe how the queries are split."""
        how = "random halves" if self.options.halves else "folds"
        return split_words(how, len(self.splits), self._groups, apart=self.options.split_queries)

    @property
    def warnings(self) -> list[str]:
        """Return what makes the splits less informative than they seem."""
        tasks = dict(zip((dataset.name for dataset in self.datasets), self._groups, strict=True))
        warnings = [] if self.options.split_queries else split_warnings(tasks)
        if (count := len(self.splits)) < self.options.halves:
            warnings.append(f"Of {self.options.halves} halves that were asked for only {count} are different.")
        return warnings

    def mean(self, values: Sequence[Floats], places: Sequence[Places]) -> float:
        """Return the mean over some queries, each with its weight in the mean over tasks of all queries."""
        rows = list(zip(values, places, strict=True))
        total = sum(row[queries].sum() / len(row) for row, queries in rows)
        return float(total / sum(len(queries) / len(row) for row, queries in rows))

    def weight(self, split: Sequence[QuerySplit]) -> float:
        """Return how much a split counts: of folds the share of the queries measured on it, of halves all the same."""
        if self.options.halves:
            return 1 / len(self.splits)
        return float(np.mean([len(task_split.measured_on) / sum(map(len, task_split)) for task_split in split]))


Chooser = Callable[[Sequence[Places]], TuneCandidate]  # function from the queries to choose by to the best candidate


def combinations_of(system: System, over: Mapping[str, Values]) -> list[System]:
    """Return the system with every combination of values."""
    columns = [values.steps() if isinstance(values, OptionRange) else values for values in over.values()]
    return [_with(system, dict(zip(over, row, strict=True))) for row in product(*columns)]


def _with(system: System, options: Mapping[str, Any]) -> System:
    for name, value in options.items():
        system = system.with_option(name, value)
    system.check()
    return system


def _is_idle(name: str, system: System, over: Mapping[str, Values], bench: Bench) -> bool:
    """Return whether no query's measure ever depends on an option."""
    rest = {other: values for other, values in over.items() if other != name}
    for fixed in combinations_of(system, rest):
        by_value = [bench.scores(combination) for combination in combinations_of(fixed, {name: over[name]})]
        if any(not np.array_equal(a, b) for scores in by_value for a, b in zip(by_value[0], scores, strict=True)):
            return False
    return True


def best_of(candidates: Sequence[TuneCandidate], bench: Bench) -> Chooser:
    """Choose the best of some candidates; of equals the first."""
    return lambda places: max(candidates, key=lambda candidate: bench.mean(candidate.scores(places), places))


def _suggested(system: System, over: Mapping[str, Values], bench: Bench) -> Chooser:
    """Search ranges for the best with Optuna, by the queries to choose by alone."""
    require_extra("tune", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def choose(places: Sequence[Places]) -> TuneCandidate:
        def suggest(trial: Any) -> System:
            values_of = {
                name: round(trial.suggest_float(name, *values), 6)
                if isinstance(values, OptionRange)
                else values[trial.suggest_int(name, 0, len(values) - 1)]
                for name, values in over.items()
            }
            return _with(system, values_of)

        sampler = optuna.samplers.TPESampler(seed=bench.options.seed % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(lambda trial: bench.mean(bench.scores(suggest(trial)), places), n_trials=bench.options.trials)
        best = suggest(optuna.trial.FixedTrial(study.best_params))
        return FixedCandidate(best, bench.scores(best))

    return choose


def _measured(
    system: System,
    bench: Bench,
    choose: Chooser,
    candidates: int,
    idle: tuple[str, ...] = (),
    parts: Sequence[RouteParts] = (),
) -> Tuned:
    """Choose and measure on every split, and choose once more by everything."""
    untuned = bench.scores(system)
    results: list[Fold] = []
    gains: list[list[Floats]] = [[] for _ in bench.datasets]
    over_random: list[list[Floats]] = [[] for _ in bench.datasets]
    for split in bench.splits:
        by, on = [task_split.chosen_by for task_split in split], [task_split.measured_on for task_split in split]
        candidate = choose(by)
        values = candidate.scores(by)
        means = (bench.mean(values, by), bench.mean(values, on), bench.mean(untuned, on))
        fold = Fold(candidate.label(by), bench.weight(split), *means)
        _append_gaps(gains, values, untuned, on)
        if isinstance(candidate, RouteCandidate):
            sent = [part.sent(candidate.share, queries) for part, queries in zip(parts, by, strict=True)]
            chance = [part.random(row[places].mean()) for part, row, places in zip(parts, sent, on, strict=True)]
            share = bench.mean([row.astype(float) for row in sent], on)
            fold = replace(fold, sent=share, random=bench.mean(chance, on))
            _append_gaps(over_random, values, chance, on)
        results.append(fold)
    everything = [np.arange(len(values)) for values in untuned]
    return Tuned(
        system.spec,
        str(bench.options.measure),
        bench.words,
        candidates,
        tuple(results),
        None if bench.options.halves else difference([np.concatenate(row) for row in gains]),
        bench.mean(untuned, everything),
        choose(everything).label(everything),
        idle,
        None if bench.options.halves or not parts else difference([np.concatenate(row) for row in over_random]),
        tuple(bench.warnings),
    )


def _append_gaps(
    gaps: Sequence[list[Floats]], values: Sequence[Floats], others: Sequence[Floats], on: Sequence[Places]
) -> None:
    """Add how far values lie above others on some queries, task by task."""
    for row, one, other, places in zip(gaps, values, others, on, strict=True):
        row.append(one[places] - other[places])


def read_over(texts: Sequence[str]) -> dict[str, Values]:
    """Parse the options to try.

    >>> read_over(["k1=0.6,0.9", "b=0..1", "weights=[1, 2],[2, 1]"])
    {'k1': (0.6, 0.9), 'b': (0.0, 1.0), 'weights': ((1, 2), (2, 1))}
    """
    values_of: dict[str, Values] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not name.strip() or not values.strip():
            raise R2medError(f"--over takes NAME=VALUES, as in k1=0.6,0.9,1.2 or b=0..1, not {text!r}")
        low, dots, high = values.partition("..")
        with suppress(ValueError):
            if dots:
                ends = OptionRange((float(low), float(high)))
                if ends[0] >= ends[1]:
                    raise R2medError(f"the range {values} runs backwards")
                values_of[name.strip()] = ends
                continue
        try:
            values_of[name.strip()] = parse(f"x({values})").calls[0].args
        except SpecError as error:
            raise R2medError(f"--over {text}: {error}") from error
    return values_of
