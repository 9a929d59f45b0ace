"""The study of `r2med audit`: agreement of label sets of a task, and how systems change under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.audit.label_sets import (
    LabelSet,
    LookedUpLabels,
    SharedPairs,
    as_given,
    beyond,
    binary,
    fill,
    overlay,
    read_sets,
    share_pairs,
)
from r2med.audit.noise import ErrorModel, JudgedLists, Stability, simulate
from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.bootstrap import percentile_ends, resampled_means
from r2med.measure.correlation import kendall, kendalls
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.metrics import DEFAULT, Measure
from r2med.measure.score import positive, score, thirds
from r2med.measure.significance import ALPHA, Difference, difference, difference_interval, holm
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data, current_runs

Floats = NDArray[np.float64]
MOST_SYSTEMS = 10
"""So many systems, the best, are looked at unless they are named: every pair of them is tested twice."""
OF_JUDGEMENTS = "judgements"
_OF_PAIR = ("raw", "kappa", "weighted-kappa", "alpha-ordinal", "ac1", "ac2")


@dataclass(frozen=True)
class AuditOptions:
    """Options for comparing labels."""

    measure: Measure = DEFAULT[0]
    systems: tuple[str, ...] = ()
    """Names of systems; the best ten of the ledger without any."""
    binary: bool = False
    """Whether only relevant or not counts, whatever the grade."""
    filled: bool = False
    """Whether a pair that one set judges and another does not counts as 0 in the other."""
    overlaid: bool = False
    """Whether systems are scored by the first set as corrected by the other, instead of by the other alone."""
    holes: bool = False
    """Whether other sets only fill what the first does not judge."""


@dataclass(frozen=True)
class SetFacts:
    """Counts of a label set."""

    name: str
    queries: int
    judged: int
    relevant: int
    left_out: int
    """Judgements of queries that the task does not have."""


@dataclass(frozen=True)
class AgreementSlice:
    """A part of the pairs that both sets judged, and the share on which they agree."""

    name: str
    pairs: int
    raw: Figure | None


@dataclass(frozen=True)
class SetPair:
    """Two label sets on the pairs that both judged."""

    a: str
    b: str
    pairs: int
    queries: int
    scale: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    """How often A gave the grade of the row and B that of the column."""
    coefficients: Mapping[str, Figure | None]
    slices: Mapping[str, Sequence[AgreementSlice]]

    @property
    def chance(self) -> float:
        """Return the share on which raters with these shares of grades agree by chance, which kappa corrects for."""
        counts = np.array(self.confusion, dtype=np.float64)
        return float((counts.sum(axis=1) * counts.sum(axis=0)).sum() / counts.sum() ** 2)

    @property
    def constant(self) -> tuple[str, ...]:
        """Return the names of those sets of the two that give only one grade."""
        counts = np.array(self.confusion)
        given = {self.a: (counts.sum(axis=1) > 0).sum(), self.b: (counts.sum(axis=0) > 0).sum()}
        return tuple(name for name, grades in given.items() if grades == 1)

    @property
    def commonest(self) -> tuple[int, float]:
        """Return the most frequent grade and its share of all grades of both sets."""
        counts = np.array(self.confusion, dtype=np.float64)
        both = counts.sum(axis=0) + counts.sum(axis=1)
        return self.scale[int(both.argmax())], float(both.max() / both.sum())


@dataclass(frozen=True)
class SystemChange:
    """A system under two label sets."""

    system: str
    a: float
    b: float
    change: Figure
    """B minus A, paired by query."""
    holes_a: float
    """The mean share of its first documents that A does not judge."""
    holes_b: float


@dataclass(frozen=True)
class Conclusion:
    """A comparison of two systems under two label sets."""

    first: str
    second: str
    a: Difference
    """The second minus the first, under A."""
    b: Difference
    corrected: tuple[float, float]
    """The p-values under A and under B, after Holm over all pairs."""
    stability: float
    """The share of simulations with wrong labels in which the two stand as under A."""

    @property
    def verdict(self) -> str:
        """Return whether the conclusion stays: `kept`, `reversed`, `lost`, `gained`, or `none` if there is none."""
        under_a, under_b = (p < ALPHA for p in self.corrected)
        if under_a and under_b:
            return "kept" if self.a.mean * self.b.mean > 0 else "reversed"
        return {(True, False): "lost", (False, True): "gained"}.get((under_a, under_b), "none")

    @property
    def flips(self) -> bool:
        """Return whether the conclusion changes."""
        return self.verdict in ("reversed", "lost", "gained")


@dataclass(frozen=True)
class LabelChange:
    """Effect on systems of replacing labels A by labels B."""

    a: str
    b: str
    queries: int
    """Those with a relevant document under both, over which systems are compared."""
    only_a: int
    """Queries that have a relevant document under A alone, and are left out."""
    only_b: int
    systems: Sequence[SystemChange]
    """The best under A first."""
    kendall: float | None
    kendall_interval: tuple[float, float] | None
    conclusions: Sequence[Conclusion]
    stability: Stability


@dataclass(frozen=True)
class Audit:
    """Result of an audit of a task's labels."""

    task: str
    measure: str
    binary: bool
    filled: bool
    overlaid: bool
    holes: bool
    """Whether other sets only fill what the first does not judge."""
    sets: Sequence[SetFacts]
    pairs: int
    """Pairs of a query and a document that two sets at least judged."""
    queries: int
    scale: tuple[int, ...]
    """The grades that agreement is measured on."""
    scale_of: str
    """Whose grades these are: `judgements`, where 0 is not relevant, or a review with a scale of its own."""
    coefficients: Mapping[str, Figure | None]
    """Over all sets."""
    set_pairs: Sequence[SetPair]
    changes: Sequence[LabelChange]
    """The first set against each other one; none where there is no run."""
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the audit in the shape of `--json`."""
        names = ("task", "measure", "binary", "filled", "overlaid", "holes", "pairs", "queries", "scale_of")
        facts = {name: getattr(self, name) for name in names}
        return facts | {
            "scale": list(self.scale),
            "sets": [asdict(each) for each in self.sets],
            "agreement": by_name(self.coefficients),
            "set_pairs": [pair_dict(each) for each in self.set_pairs],
            "changes": [_change_dict(each) for each in self.changes],
            "notes": list(self.notes),
        }


def audit(
    ledger: Ledger,
    dataset: Dataset,
    sources: Sequence[str],
    options: AuditOptions,
    known: Mapping[str, LookedUpLabels] | None = None,
) -> Audit:
    """Compare label sets of a task, named as for `read_sets`, and the runs of the ledger under them."""
    given = read_sets(sources, dataset, known)
    plain = binary(given) if options.binary else given
    sets = beyond(plain) if options.holes else fill(plain) if options.filled else plain
    compared, scale, whose = _on_one_scale(sets, options)
    shared = share_pairs(compared, scale)
    notes = _notes(plain, options)
    entries, missing = _entries(ledger, dataset, options)
    runs = {name: ledger.run(entry) for name, entry in entries.items()}
    overlapping = _overlapping(sets)
    judged = plain[0] if options.holes else sets[0]
    changes = [_change(one, other, runs, options, judged) for one, other in overlapping if one is sets[0] and runs]
    return Audit(
        task=dataset.name,
        measure=str(options.measure),
        binary=options.binary,
        filled=options.filled,
        overlaid=options.overlaid or options.holes,
        holes=options.holes,
        sets=[SetFacts(each.name, len(each.qrels), each.judged, each.relevant, each.left_out) for each in given],
        pairs=len(shared.pairs),
        queries=int(shared.ratings.questions.max()) + 1,
        scale=tuple(map(int, shared.ratings.scale)),
        scale_of=whose,
        coefficients=coefficients(shared.ratings),
        set_pairs=[_set_pair(one, other, dataset, scale) for one, other in _overlapping(compared)],
        changes=[each for each in changes if each.queries],
        notes=[*notes, *missing, *(_nothing_scored(each) for each in changes if not each.queries)],
    )


def _on_one_scale(
    sets: Sequence[LabelSet], options: AuditOptions
) -> tuple[Sequence[LabelSet], tuple[int, ...] | None, str]:
    """Return the grades to measure agreement on, their scale if that is known, and whose scale it is.

    Reviewers of one review are compared by the grades that they gave, as `r2med review agreement` does; what changes
    judgements (binary, filled, holes) makes a scale of its own.
    """
    given = None if options.binary or options.filled or options.holes else as_given(sets)
    if given is None or sets[0].given is None:
        return sets, None, OF_JUDGEMENTS
    return given, sets[0].given.scale, f"review {sets[0].given.review}"


def _notes(sets: Sequence[LabelSet], options: AuditOptions) -> list[str]:
    """Return notes on the label sets for the reader of the audit."""
    notes = [
        f"{each.name}: {each.left_out:,} judgements of queries that the task does not have are left out"
        for each in sets
        if each.left_out
    ]
    only = [each.name for each in sets if each.relevant == each.judged]
    if only and not options.filled and not options.holes:
        notes.append(f"{' and '.join(only)}: relevant documents only; --fill counts what a set does not list as 0")
    if len({each.highest for each in sets if each.highest > 0}) > 1:
        highest = ", ".join(f"{each.name} {each.highest}" for each in sets)
        notes.append(f"the highest grades differ ({highest}); --binary counts every grade from 1 on as 1")
    for other in sets[1:]:
        if other.judged < sets[0].judged / 2 and not options.overlaid and not options.holes:
            notes.append(
                f"{other.name} judges {other.judged:,} pairs where {sets[0].name} judges {sets[0].judged:,};"
                f" --overlay scores systems by {sets[0].name} as corrected by {other.name}"
            )
    return notes


def _nothing_scored(change: LabelChange) -> str:
    return f"no query has a relevant document under both {change.a} and {change.b}, so that no system is scored"


def _overlapping(sets: Sequence[LabelSet]) -> list[tuple[LabelSet, LabelSet]]:
    return [
        (one, other)
        for one, other in combinations(sets, 2)
        if any(one.qrels.get(query, {}).keys() & judged.keys() for query, judged in other.qrels.items())
    ]


def _set_pair(one: LabelSet, other: LabelSet, dataset: Dataset, scale: Sequence[float] | None) -> SetPair:
    shared = share_pairs([one, other], scale)
    ratings = shared.ratings
    return SetPair(
        one.name,
        other.name,
        len(shared.pairs),
        int(ratings.questions.max()) + 1,
        tuple(map(int, ratings.scale)),
        tuple(map(tuple, ratings.confusion().tolist())),
        coefficients(ratings, _OF_PAIR),
        _slices(one.name, shared, dataset),
    )


def _slices(name: str, shared: SharedPairs, dataset: Dataset) -> dict[str, list[AgreementSlice]]:
    """Return agreement by the grade of the first set, and by the lengths of questions and documents."""
    queries, documents = dataset.collection.queries, dataset.collection.documents
    asked = {query: len(queries.text(query).split()) for query in {query for query, _ in shared.pairs}}
    texts = {document: len(documents.text(document).split()) for document in {document for _, document in shared.pairs}}
    of_query = thirds(list(asked.values()), "{:.0f} words")
    of_document = thirds(list(texts.values()), "{:.0f} words")
    grades = shared.ratings.grades[:, 0].astype(int).tolist()
    ways = {
        f"grade of {name}": [(grade, str(grade)) for grade in grades],
        "question": [of_query(asked[query]) for query, _ in shared.pairs],
        "document": [of_document(texts[document]) for _, document in shared.pairs],
    }
    return {way: _sliced(places, shared.ratings) for way, places in ways.items()}


def _sliced(places: Sequence[tuple[int, str]], ratings: Ratings) -> list[AgreementSlice]:
    found = []
    for place in sorted(set(places)):
        members = np.array([each == place for each in places])
        raw = coefficients(ratings.select(members), ["raw"])["raw"]
        found.append(AgreementSlice(place[1], int(members.sum()), raw))
    return found


def _entries(ledger: Ledger, dataset: Dataset, options: AuditOptions) -> tuple[dict[str, Entry], list[str]]:
    """Return the runs to score, and a note if there are none or too many."""
    task = dataset.name
    if options.systems:
        chosen = {each.label: each.runs[task] for each in select(ledger, options.systems, [task])}
        for entry in chosen.values():
            check_data(entry, dataset)
        return chosen, []
    current = {system: runs[task] for system, runs in current_runs(ledger.entries()).items() if task in runs}
    known = {name: entry for name, entry in current.items() if entry.data == dataset.fingerprint and not entry.oracle}
    if not known:
        return {}, [f"no run on {task} in the ledger, so that no system is scored: r2med run bm25 --tasks {task}"]
    means = ledger.means()
    best = sorted(known, key=lambda name: -means[known[name].id].get("nDCG@10", 0.0))
    beyond = len(best) - MOST_SYSTEMS
    notes = [f"the {MOST_SYSTEMS} best systems of {len(best)}; --systems names others"] if beyond > 0 else []
    return {name: known[name] for name in best[:MOST_SYSTEMS]}, notes


def _change(
    base: LabelSet, other: LabelSet, runs: Mapping[str, Run], options: AuditOptions, judged: LabelSet
) -> LabelChange:
    """Compare the systems under two label sets; holes are the pairs that `judged` does not judge."""
    after = overlay(base, other) if options.overlaid or options.holes else other
    with_a, with_b = positive(base.qrels), positive(after.qrels)
    queries = [query for query in with_a if query in with_b]
    counts = (len(queries), len(with_a) - len(queries), len(with_b) - len(queries))
    if not queries:
        return LabelChange(base.name, other.name, *counts, [], None, None, [], Stability.unknown())
    ranked, (one, two) = _ranked(runs, (base, after), queries, options.measure)
    lists = JudgedLists.of({query: base.qrels[query] for query in queries}, ranked, options.measure)
    stability = simulate(lists, ErrorModel.of(share_pairs([base, other]).ratings), options.measure)
    systems = [
        SystemChange(name, float(a.mean()), float(b.mean()), difference_interval([b - a]), *holes)
        for (name, run), a, b in zip(ranked.items(), one, two, strict=True)
        for holes in [[_holes(run, labels, queries) for labels in (judged, after)]]
    ]
    conclusions = _conclusions(list(ranked), one, two, stability)
    return LabelChange(base.name, other.name, *counts, systems, *_tau(one, two), conclusions, stability)


def _ranked(
    runs: Mapping[str, Run], sets: Sequence[LabelSet], queries: Sequence[str], measure: Measure
) -> tuple[dict[str, Run], list[Floats]]:
    """Return the runs, the best under the first set first, and a table of systems x queries for each set."""
    tables = []
    for labels in sets:
        qrels = {query: labels.qrels[query] for query in queries}
        tables.append(np.stack([score(run, qrels, [measure]).values(measure) for run in runs.values()]))
    order = np.argsort(-tables[0].mean(axis=1), kind="stable").tolist()
    names = list(runs)
    return {names[place]: runs[names[place]] for place in order}, [table[order] for table in tables]


def _holes(run: Run, labels: LabelSet, queries: Sequence[str], depth: int = 10) -> float:
    """Return the mean share of a system's first documents that are not judged; a query without a list counts as 0."""
    shares = []
    for query in queries:
        documents = run[query].documents[:depth] if query in run else ()
        shares.append(sum(labels.grade(query, document) is None for document in documents) / max(1, len(documents)))
    return float(np.mean(shares))


def _tau(one: Floats, two: Floats) -> tuple[float | None, tuple[float, float] | None]:
    """Return Kendall's tau of the order of systems under both sets, with its interval over queries."""
    if len(one) < 2:
        return None, None
    value = float(kendall(one.mean(axis=1), two.mean(axis=1)))
    drawn = [resampled_means(table) for table in (one, two)]
    around = percentile_ends(kendalls(*drawn), [one.shape[1]]) if one.shape[1] > 1 else None
    return None if np.isnan(value) else value, around


def _conclusions(systems: Sequence[str], one: Floats, two: Floats, stability: Stability) -> list[Conclusion]:
    pairs = list(combinations(range(len(systems)), 2))
    under = [[difference([table[b] - table[a]]) for a, b in pairs] for table in (one, two)]
    corrected = [holm([each.randomisation for each in side]) for side in under]
    return [
        Conclusion(systems[a], systems[b], in_a, in_b, (p_a, p_b), float(stability.kept[a, b]))
        for (a, b), in_a, in_b, p_a, p_b in zip(pairs, *under, *corrected, strict=True)
    ]


def by_name(found: Mapping[str, Figure | None]) -> dict[str, dict[str, float | None]]:
    """Return coefficients in the shape of `--json`."""
    return {name: figure_dict(figure) for name, figure in found.items()}


def pair_dict(pair: SetPair) -> dict[str, Any]:
    """Return two label sets in the shape of `--json`."""
    slices = {
        way: [{"slice": each.name, "pairs": each.pairs, **by_name({"raw": each.raw})["raw"]} for each in members]
        for way, members in pair.slices.items()
    }
    return {
        "a": pair.a,
        "b": pair.b,
        "pairs": pair.pairs,
        "queries": pair.queries,
        "scale": list(pair.scale),
        "confusion": [list(row) for row in pair.confusion],
        "chance": pair.chance,
        "agreement": by_name(pair.coefficients),
        "slices": slices,
    }


def _change_dict(change: LabelChange) -> dict[str, Any]:
    return {
        "a": change.a,
        "b": change.b,
        "queries": change.queries,
        "only_a": change.only_a,
        "only_b": change.only_b,
        "systems": [asdict(each) | {"change": figure_dict(each.change, "mean")} for each in change.systems],
        "kendall": change.kendall,
        "kendall_interval": change.kendall_interval,
        "conclusions": [_conclusion_dict(each) for each in change.conclusions],
        "stability": {
            "simulations": change.stability.simulations,
            "kendall": change.stability.kendall,
            "kendall_interval": change.stability.kendall_interval,
        },
    }


def _conclusion_dict(found: Conclusion) -> dict[str, Any]:
    return {
        "first": found.first,
        "second": found.second,
        "verdict": found.verdict,
        "a": found.a.as_dict() | {"holm": found.corrected[0]},
        "b": found.b.as_dict() | {"holm": found.corrected[1]},
        "stability": found.stability,
    }
