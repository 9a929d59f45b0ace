"""The study of `r2med audit`: agreement of label sets of a task, and how systems change under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.audit.label_sets import (
    LabelSet,
    ReviewedLabels,
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
from r2med.data.lint import KINDS as FLAWS
from r2med.data.lint import Flaw, find_flaws, unlabelled_copies
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.bootstrap import figure_of, resampled_means
from r2med.measure.correlation import kendall, kendall_columns
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.metrics import DEFAULT, Measure
from r2med.measure.score import Tertile, positive, score, tertiles
from r2med.measure.significance import ALPHA, Difference, difference, difference_interval, holm
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data, current_runs

Floats = NDArray[np.float64]
MOST_SYSTEMS = 10  # so many systems, the best, are looked at unless they are named: every pair of them is tested twice
OF_JUDGEMENTS = "judgements"
OF_PAIR = ("raw", "kappa", "weighted-kappa", "alpha-ordinal", "ac1", "ac2")


def figure_dicts(figures: Mapping[str, Figure | None]) -> dict[str, dict[str, float | None]]:
    """Return coefficients in the shape of `--json`."""
    return {name: figure_dict(figure) for name, figure in figures.items()}


@dataclass(frozen=True)
class AuditOptions:
    """Options for comparing labels."""

    measure: Measure = DEFAULT[0]
    systems: tuple[str, ...] = ()  # names of systems; the best ten of the ledger without any
    binary: bool = False  # whether only relevant or not counts, whatever the grade
    filled: bool = False  # whether a pair that one set judges and another does not counts as 0 in the other
    overlaid: bool = False  # whether systems are scored by the first set as corrected by the other
    holes: bool = False  # whether other sets only fill what the first does not judge
    near: float = 0.0  # from which similarity on texts are near-duplicates; 0 for the same words only


@dataclass(frozen=True)
class SetFacts:
    """Counts of a label set."""

    name: str
    queries: int
    judged: int
    relevant: int
    left_out: int  # Judgements of queries that the task does not have.


@dataclass(frozen=True)
class FlawCount:
    """Relevant documents of the task that look wrong in one way."""

    kind: str  # `one-word`, `links-only`, `cut-html`, `unlabelled-copy` or `near-copy`.
    positives: int  # Pairs of a query and such a document.
    queries: int
    copies: int  # Pairs of a query and a document that it does not judge, with the text of such a document.
    first: str  # A sentence about the first of them.

    @classmethod
    def of(cls, kind: str, flaws: Sequence[Flaw]) -> FlawCount:
        """Count the flaws of one kind."""
        copies = {(flaw.query, name) for flaw in flaws for name in flaw.copies}
        return cls(kind, len(flaws), len({flaw.query for flaw in flaws}), len(copies), flaws[0].message)


@dataclass(frozen=True)
class AgreementRow:
    """Agreement on some of the items, or of one reviewer with something."""

    name: str
    items: int
    coefficients: Mapping[str, Figure | None]

    def as_dict(self) -> dict[str, Any]:
        """Return the row in the shape of `--json`."""
        return {"name": self.name, "items": self.items, "agreement": figure_dicts(self.coefficients)}


@dataclass(frozen=True)
class SetPair:
    """Two label sets on the pairs that both judged."""

    a: str
    b: str
    pairs: int
    queries: int
    scale: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]  # How often A gave the grade of the row and B that of the column.
    coefficients: Mapping[str, Figure | None]
    slices: Mapping[str, Sequence[AgreementRow]]

    @classmethod
    def of(cls, a: str, b: str, ratings: Ratings, slices: Mapping[str, Sequence[AgreementRow]] = {}) -> SetPair:
        """Compare the first two raters of a table."""
        counts = len(ratings.grades), int(ratings.questions.max()) + 1
        confusion = tuple(map(tuple, ratings.confusion().tolist()))
        figures = coefficients(ratings, OF_PAIR)
        return cls(a, b, *counts, tuple(map(int, ratings.scale)), confusion, figures, slices)

    def as_dict(self) -> dict[str, Any]:
        """Return the pair in the shape of `--json`."""
        slices = {
            way: [{"slice": row.name, "pairs": row.items, **figure_dict(row.coefficients["raw"])} for row in rows]
            for way, rows in self.slices.items()
        }
        facts = {name: value for name, value in vars(self).items() if name != "coefficients"}
        agreement = figure_dicts(self.coefficients)
        return facts | {"chance": self.chance, "agreement": agreement, "slices": slices}

    @property
    def chance(self) -> float:
        """Return the share on which raters with these shares of grades agree by chance, which kappa corrects for."""
        counts = np.array(self.confusion, dtype=np.float64)
        return float((counts.sum(axis=1) * counts.sum(axis=0)).sum() / counts.sum() ** 2)


@dataclass(frozen=True)
class SystemChange:
    """A system under two label sets."""

    system: str
    a: float
    b: float
    change: Figure  # B minus A, paired by query.
    holes_a: float  # The mean share of its first documents that A does not judge.
    holes_b: float


@dataclass(frozen=True)
class Conclusion:
    """A comparison of two systems under two label sets."""

    first: str
    second: str
    a: Difference  # The second minus the first, under A.
    b: Difference
    corrected: tuple[float, float]  # The p-values under A and under B, after Holm over all pairs.
    stability: float  # The share of simulations with wrong labels in which the two stand as under A.

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

    def as_dict(self) -> dict[str, Any]:
        """Return the conclusion in the shape of `--json`."""
        facts = {name: getattr(self, name) for name in ("first", "second", "verdict", "stability")}
        sides = zip("ab", (self.a, self.b), self.corrected, strict=True)
        return facts | {side: change.as_dict() | {"holm": p} for side, change, p in sides}


@dataclass(frozen=True)
class LabelChange:
    """Effect on systems of replacing labels A by labels B."""

    a: str
    b: str
    queries: int  # Those with a relevant document under both, over which systems are compared.
    only_a: int  # Queries that have a relevant document under A alone, and are left out.
    only_b: int
    systems: Sequence[SystemChange]  # The best under A first.
    kendall: Figure | None  # Kendall's tau of the two orders.
    conclusions: Sequence[Conclusion]
    stability: Stability

    def as_dict(self) -> dict[str, Any]:
        """Return the change in the shape of `--json`."""
        return vars(self) | {
            **_tau_dict(self.kendall),
            "systems": [vars(system) | {"change": figure_dict(system.change, "mean")} for system in self.systems],
            "conclusions": [conclusion.as_dict() for conclusion in self.conclusions],
            "stability": {"simulations": self.stability.simulations, **_tau_dict(self.stability.kendall)},
        }


def _tau_dict(tau: Figure | None) -> dict[str, Any]:
    interval = tau.ends if tau and tau.low is not None else None
    return {"kendall": tau and tau.value, "kendall_interval": interval}


@dataclass(frozen=True)
class Audit:
    """Result of an audit of a task's labels."""

    task: str
    measure: str
    binary: bool
    filled: bool
    overlaid: bool
    holes: bool  # Whether other sets only fill what the first does not judge.
    sets: Sequence[SetFacts]
    pairs: int  # Pairs of a query and a document that two sets at least judged.
    queries: int
    scale: tuple[int, ...]  # The grades that agreement is measured on.
    scale_of: str  # Whose grades these are: `judgements`, where 0 is not relevant, or a review with a scale of its own.
    coefficients: Mapping[str, Figure | None]  # Over all sets.
    set_pairs: Sequence[SetPair]
    changes: Sequence[LabelChange]  # The first set against each other one; none where there is no run.
    flaws: Sequence[FlawCount]  # Relevant documents of the task that look wrong, by kind.
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the audit in the shape of `--json`."""
        facts = {name: value for name, value in vars(self).items() if name != "coefficients"}
        parts = {name: [part.as_dict() for part in getattr(self, name)] for name in ("set_pairs", "changes")}
        return facts | {"agreement": figure_dicts(self.coefficients)} | parts


def audit(
    ledger: Ledger,
    dataset: Dataset,
    sources: Sequence[str],
    options: AuditOptions,
    reviewed: Mapping[str, ReviewedLabels],
) -> Audit:
    """Compare label sets of a task, named as for `read_sets`, and the runs of the ledger under them."""
    if options.measure.of_aspects:
        raise R2medError(f"{options.measure}: an audit compares grades, which say nothing of aspects; choose another")
    flaws = find_flaws(dataset.collection.documents, dataset.gold.qrels, options.near)
    given = read_sets(sources, dataset, reviewed, unlabelled_copies(flaws, dataset.gold.qrels))
    plain = binary(given) if options.binary else given
    sets = beyond(plain) if options.holes else fill(plain) if options.filled else plain
    # Reviewers of one review are compared by the grades that they gave, as `r2med review agreement` does; what changes
    # judgements makes a scale of its own.
    compared, review = as_given(sets)
    scale = review.scale if review else None
    _, ratings = share_pairs(compared, scale)
    entries, missing = _entries(ledger, dataset, options)
    runs = {name: ledger.run(entry) for name, entry in entries.items()}
    judged = plain[0] if options.holes else sets[0]
    others = [other for one, other in _overlapping(sets) if one is sets[0]]
    changes = [_change(sets[0], other, runs, options, judged) for other in others] if runs else []
    unscored = [
        f"no query has a relevant document under both {change.a} and {change.b}, so that no system is scored"
        for change in changes
        if not change.queries
    ]
    return Audit(
        *(dataset.name, str(options.measure)),
        *(options.binary, options.filled, options.overlaid or options.holes, options.holes),
        sets=[SetFacts(s.name, len(s.qrels), s.judged, s.relevant, s.left_out) for s in given],
        pairs=len(ratings.grades),
        queries=int(ratings.questions.max()) + 1,
        scale=tuple(map(int, ratings.scale)),
        scale_of=f"review {review.review}" if review else OF_JUDGEMENTS,
        coefficients=coefficients(ratings),
        set_pairs=[_set_pair(one, other, dataset, scale) for one, other in _overlapping(compared)],
        changes=[change for change in changes if change.queries],
        flaws=[FlawCount.of(kind, some) for kind in FLAWS if (some := [flaw for flaw in flaws if flaw.kind == kind])],
        notes=[*_notes(plain, options), *missing, *unscored],
    )


def _notes(sets: Sequence[LabelSet], options: AuditOptions) -> list[str]:
    notes = [
        f"{labels.name}: {labels.left_out:,} judgements of queries that the task does not have are left out"
        for labels in sets
        if labels.left_out
    ]
    only = [labels.name for labels in sets if labels.relevant == labels.judged]
    if only and not options.filled and not options.holes:
        notes.append(f"{' and '.join(only)}: relevant documents only; --fill counts what a set does not list as 0")
    if len({labels.highest for labels in sets if labels.highest > 0}) > 1:
        highest = ", ".join(f"{labels.name} {labels.highest}" for labels in sets)
        notes.append(f"the highest grades differ ({highest}); --binary counts every grade from 1 on as 1")
    for other in sets[1:]:
        if other.judged < sets[0].judged / 2 and not options.overlaid and not options.holes:
            notes.append(
                f"{other.name} judges {other.judged:,} pairs where {sets[0].name} judges {sets[0].judged:,};"
                f" --overlay scores systems by {sets[0].name} as corrected by {other.name}"
            )
    return notes


def _overlapping(sets: Sequence[LabelSet]) -> list[tuple[LabelSet, LabelSet]]:
    return [
        (one, other)
        for one, other in combinations(sets, 2)
        if any(one.qrels.get(query, {}).keys() & judged.keys() for query, judged in other.qrels.items())
    ]


def _set_pair(one: LabelSet, other: LabelSet, dataset: Dataset, scale: Sequence[float] | None) -> SetPair:
    """Compare two sets, also by the grade of the first, and by the lengths of questions and documents."""
    pairs, ratings = share_pairs([one, other], scale)
    queries, documents = dataset.collection.queries, dataset.collection.documents
    asked = {query: len(queries.text(query).split()) for query, _ in pairs}
    texts = {document: len(documents.text(document).split()) for _, document in pairs}
    of_query = tertiles(list(asked.values()), "{:.0f} words")
    of_document = tertiles(list(texts.values()), "{:.0f} words")
    grades = ratings.grades[:, 0].astype(int).tolist()
    ways: dict[str, list[Tertile]] = {
        f"grade of {one.name}": [(grade, str(grade)) for grade in grades],
        "question": [of_query(asked[query]) for query, _ in pairs],
        "document": [of_document(texts[document]) for _, document in pairs],
    }
    slices: dict[str, list[AgreementRow]] = {way: [] for way in ways}
    for way, name, members in slice_members(ways):
        slices[way].append(AgreementRow(name, int(members.sum()), coefficients(ratings.select(members), ["raw"])))
    return SetPair.of(one.name, other.name, ratings, slices)


def slice_members(ways: Mapping[str, Sequence[Tertile]]) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield each slice of each way to cut items, with its name and a mask of its items, from the place of each item."""
    for way, places in ways.items():
        for place in sorted(set(places)):
            yield way, place[1], np.array([member == place for member in places])


def _entries(ledger: Ledger, dataset: Dataset, options: AuditOptions) -> tuple[dict[str, Entry], list[str]]:
    """Return the runs to score, and a note if there are none or too many."""
    task = dataset.name
    if options.systems:
        named = {system.label: system.runs[task] for system in select(ledger, options.systems, [task])}
        for entry in named.values():
            check_data(entry, dataset)
        return named, []
    current = {system: runs[task] for system, runs in current_runs(ledger.entries()).items() if task in runs}
    usable = {name: entry for name, entry in current.items() if entry.data == dataset.fingerprint and not entry.oracle}
    if not usable:
        return {}, [f"no run on {task} in the ledger, so that no system is scored: r2med run bm25 --tasks {task}"]
    means = ledger.means()
    best = sorted(usable, key=lambda name: -means[usable[name].id].get("nDCG@10", 0.0))
    beyond = len(best) - MOST_SYSTEMS
    notes = [f"the {MOST_SYSTEMS} best systems of {len(best)}; --systems names others"] if beyond > 0 else []
    return {name: usable[name] for name in best[:MOST_SYSTEMS]}, notes


def _change(
    base: LabelSet, other: LabelSet, runs: Mapping[str, Run], options: AuditOptions, judged: LabelSet
) -> LabelChange:
    """Compare the systems under two label sets; holes are the pairs that `judged` does not judge."""
    after = overlay(base, other) if options.overlaid or options.holes else other
    with_a, with_b = positive(base.qrels), positive(after.qrels)
    queries = [query for query in with_a if query in with_b]
    counts = (len(queries), len(with_a) - len(queries), len(with_b) - len(queries))
    if not queries:
        return LabelChange(base.name, other.name, *counts, [], None, [], Stability(0, np.empty((0, 0)), None))
    ranked, one, two = _ranked(runs, (base, after), queries, options.measure)
    lists = JudgedLists.of({query: base.qrels[query] for query in queries}, ranked, options.measure)
    stability = simulate(lists, ErrorModel.of(share_pairs([base, other])[1]), options.measure)
    systems = []
    for (name, run), a, b in zip(ranked.items(), one, two, strict=True):
        holes = (_holes(run, labels, queries) for labels in (judged, after))
        systems.append(SystemChange(name, float(a.mean()), float(b.mean()), difference_interval([b - a]), *holes))
    conclusions = _conclusions(list(ranked), one, two, stability)
    return LabelChange(base.name, other.name, *counts, systems, _tau(one, two), conclusions, stability)


def _ranked(
    runs: Mapping[str, Run], sets: Sequence[LabelSet], queries: Sequence[str], measure: Measure
) -> tuple[dict[str, Run], Floats, Floats]:
    """Return the runs, the best under the first set first, and a table of systems x queries for each of two sets."""
    tables = []
    for labels in sets:
        qrels = {query: labels.qrels[query] for query in queries}
        tables.append(np.stack([score(run, qrels, [measure]).values(measure) for run in runs.values()]))
    order = np.argsort(-tables[0].mean(axis=1), kind="stable").tolist()
    one, two = (table[order] for table in tables)
    return dict(list(runs.items())[place] for place in order), one, two


def _holes(run: Run, labels: LabelSet, queries: Sequence[str]) -> float:
    """Return the mean share of a system's first ten documents not judged; a query without a list counts as 0."""
    tops = ((query, run[query].documents[:10] if query in run else ()) for query in queries)
    missing = ([labels.grade(query, document) is None for document in top] for query, top in tops)
    return float(np.mean([sum(holes) / max(1, len(holes)) for holes in missing]))


def _tau(one: Floats, two: Floats) -> Figure | None:
    """Return Kendall's tau of the order of systems under both sets, with its interval over queries."""
    if len(one) < 2:
        return None
    drawn = kendall_columns(resampled_means(one), resampled_means(two)) if one.shape[1] > 1 else np.empty(0)
    return figure_of(kendall(one.mean(axis=1), two.mean(axis=1)), drawn, [one.shape[1]])


def _conclusions(systems: Sequence[str], one: Floats, two: Floats, stability: Stability) -> list[Conclusion]:
    pairs = list(combinations(range(len(systems)), 2))
    under = [[difference([table[b] - table[a]]) for a, b in pairs] for table in (one, two)]
    corrected = [holm([test.randomisation for test in side]) for side in under]
    return [
        Conclusion(systems[a], systems[b], in_a, in_b, (p_a, p_b), float(stability.kept[a, b]))
        for (a, b), in_a, in_b, p_a, p_b in zip(pairs, *under, *corrected, strict=True)
    ]
