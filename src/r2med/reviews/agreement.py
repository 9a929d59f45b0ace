"""Agreement of the reviewers of a project: with each other, with themselves, and with known grades.

The figures are over items that were drawn at random, since only these stand for the rest: on items that were chosen
because something is odd about them, people agree less. If people have judged, the figures are those of people; models
and imports are compared with them in pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.audit.study import SetPair, by_name, pair_dict
from r2med.data.labels import Labels
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.figure import Figure
from r2med.measure.score import Place, thirds
from r2med.reviews.estimates import LabelEstimates, estimate_labels
from r2med.reviews.pool import DEPTH
from r2med.reviews.rows import ANSWER, GRADED, PERSON, RANDOM, UNSURE, Decision, Reviewer, ReviewItem, ReviewQuestion
from r2med.reviews.store import ReviewStore

Mask = NDArray[np.bool_]
OF_PAIR = ("raw", "kappa", "weighted-kappa", "alpha-ordinal", "ac1", "ac2")
OF_SLICE = ("raw", "kappa", "ac1")
OF_PERSON = ("raw", "kappa")
_NEAR = DEPTH // 2
"""So many places about the tenth are near the cut."""


@dataclass(frozen=True)
class AgreementRow:
    """Agreement on some of the items, or of one reviewer with something."""

    name: str
    items: int
    coefficients: Mapping[str, Figure | None]

    def as_dict(self) -> dict[str, Any]:
        """Return the row in the shape of `--json`."""
        return {"name": self.name, "items": self.items, "agreement": by_name(self.coefficients)}


@dataclass(frozen=True)
class ReviewAgreement:
    """Agreement of a project's reviewers, and estimates of the quality of the labels under review."""

    review: str
    scale: tuple[int, ...]
    reviewers: Sequence[str]
    """Those whose agreement the figures are: people, or everybody where fewer than two people have judged."""
    items: int
    """Items that two of them at least graded, and that the figures are over."""
    questions: int
    at_random: bool
    """Whether these were drawn at random; otherwise no item that two graded was."""
    set_aside: int
    """Items that two graded and that the figures leave out, since they were not drawn at random."""
    coefficients: Mapping[str, Figure | None]
    pairs: Sequence[SetPair]
    """Every two reviewers, models and imports included."""
    slices: Mapping[str, Sequence[AgreementRow]]
    periods: Sequence[AgreementRow]
    """In the order in which items were decided, by thirds."""
    repeats: Sequence[AgreementRow]
    """Each person's second look against the first."""
    gold: Sequence[AgreementRow]
    """Each reviewer against what is known to be right."""
    estimates: LabelEstimates
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement in the shape of `--json`."""
        names = ("review", "items", "questions", "at_random", "set_aside")
        return {name: getattr(self, name) for name in names} | {
            "scale": list(self.scale),
            "reviewers": list(self.reviewers),
            "agreement": by_name(self.coefficients),
            "pairs": [pair_dict(each) for each in self.pairs],
            "slices": {way: [row.as_dict() for row in rows] for way, rows in self.slices.items()},
            "periods": [row.as_dict() for row in self.periods],
            "repeats": [row.as_dict() for row in self.repeats],
            "gold": [row.as_dict() for row in self.gold],
            "estimates": self.estimates.as_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class _Grades:
    """The first looks of a project as a table: a row an item, a column a reviewer."""

    items: Sequence[ReviewItem]
    questions: Mapping[int, ReviewQuestion]
    reviewers: Sequence[Reviewer]
    table: NDArray[np.float64]
    decided: NDArray[np.int64]
    """When: the number of each decision, as the table has them."""
    scale: Sequence[float]

    @classmethod
    def of(cls, store: ReviewStore, held: Sequence[Decision]) -> _Grades:
        items = store.items()
        heard = {row.reviewer for row in held if row.verdict == GRADED and not row.again}
        reviewers = [each for each in store.reviewers() if each.id in heard]
        rows = {item.number: place for place, item in enumerate(items)}
        columns = {each.id: place for place, each in enumerate(reviewers)}
        table = np.full((len(items), len(reviewers)), np.nan)
        decided = np.zeros(table.shape, dtype=np.int64)
        for row in held:
            if row.verdict == GRADED and not row.again:
                place = rows[row.item], columns[row.reviewer]
                table[place], decided[place] = row.grade, row.id
        questions = {each.number: each for each in store.questions()}
        return cls(items, questions, reviewers, table, decided, list(map(float, store.project.scale.values)))

    @property
    def random(self) -> Mask:
        return np.array([item.drawn == RANDOM for item in self.items], dtype=bool)

    def people(self) -> list[int]:
        """Return the columns of people, or all columns if fewer than two people have judged."""
        found = [place for place, each in enumerate(self.reviewers) if each.kind == PERSON]
        return found if len(found) > 1 else list(range(len(self.reviewers)))

    def by_two(self, columns: Sequence[int]) -> Mask:
        """Return the items that at least two of these reviewers have graded."""
        return np.asarray((~np.isnan(self.table[:, columns])).sum(axis=1) > 1)

    def ratings(self, columns: Sequence[int], items: Mask) -> Ratings:
        """Return the ratings of some reviewers on some items."""
        asked = [item.question for item, chosen in zip(self.items, items, strict=True) if chosen]
        return Ratings.of(self.table[items][:, columns], asked, self.scale)

    def row(self, name: str, columns: Sequence[int], items: Mask) -> AgreementRow:
        """Return the agreement of some reviewers on some items."""
        return AgreementRow(name, int(items.sum()), coefficients(self.ratings(columns, items), OF_SLICE))


def review_agreement(store: ReviewStore, labels: Labels | None = None) -> ReviewAgreement:
    """Measure a project as it stands; `labels` sort its questions, by body system for example."""
    held = store.standing()
    grades = _Grades.of(store, held)
    columns = grades.people()
    both = grades.by_two(columns) if len(columns) > 1 else np.zeros(len(grades.items), dtype=bool)
    random = both & grades.random
    chosen = random if random.any() else both
    found = coefficients(grades.ratings(columns, chosen), OF_PAIR) if chosen.any() else {}
    asked = {item.question for item, used in zip(grades.items, chosen, strict=True) if used}
    return ReviewAgreement(
        store.project.name,
        store.project.scale.values,
        [grades.reviewers[place].name for place in columns],
        int(chosen.sum()),
        len(asked),
        bool(random.any()),
        int((both & ~chosen).sum()),
        found or dict.fromkeys(OF_PAIR),
        list(_pairs(grades, bool(random.any()))),
        _slices(grades, columns, both, chosen, labels),
        _periods(grades, columns, chosen),
        _repeats(grades, held),
        _against_gold(grades),
        estimate_labels(store, grades.items, held),
        _notes(held, [grades.reviewers[place] for place in columns]),
    )


def _notes(held: Sequence[Decision], compared: Sequence[Reviewer]) -> list[str]:
    people = {each.id for each in compared if each.kind == PERSON}
    others = [each.name for each in compared if each.kind != PERSON]
    notes = []
    if others and len(compared) > 1:
        notes.append(
            f"fewer than two people have judged: the figures are those of {' and '.join(others)} (not a person) and"
            " others, and say nothing about how far people agree"
        )
    known = {row.reviewer for row in held if row.position is not None or row.revealed} & people
    given = [row for row in held if row.verdict == GRADED and not row.again and row.reviewer in known]
    informed = sum(any(each.what == ANSWER for each in row.revealed) for row in given)
    if informed:
        notes.append(f"{informed:,} of {len(given):,} grades were given with the gold answer in view")
    unsure = len({(row.reviewer, row.item) for row in held if row.verdict == UNSURE and not row.again})
    if unsure:
        said = "1 answer is" if unsure == 1 else f"{unsure:,} answers are"
        notes.append(
            f"{said} `unsure` and counted nowhere; the harder items are among them, so agreement looks a little better"
        )
    return notes


def _pairs(grades: _Grades, at_random: bool) -> list[SetPair]:
    """Return each two reviewers who graded an item in common, on the random part if there is one."""
    found = []
    for one, other in combinations(range(len(grades.reviewers)), 2):
        both = grades.by_two([one, other]) & (grades.random if at_random else True)
        if both.any():
            found.append(_pair(grades, one, other, both))
    return found


def _pair(grades: _Grades, one: int, other: int, items: Mask) -> SetPair:
    ratings = grades.ratings([one, other], items)
    return SetPair(
        grades.reviewers[one].name,
        grades.reviewers[other].name,
        int(items.sum()),
        int(ratings.questions.max()) + 1,
        tuple(map(int, ratings.scale)),
        tuple(map(tuple, ratings.confusion().tolist())),
        coefficients(ratings, OF_PAIR),
        {},
    )


def _slices(
    grades: _Grades, columns: Sequence[int], both: Mask, chosen: Mask, labels: Labels | None
) -> Mapping[str, Sequence[AgreementRow]]:
    """Return agreement by facts on items; slices by how items were drawn cover all items."""
    if not chosen.any():
        return {}
    found = {"drawn": _sliced(grades, columns, both, lambda item: (0, item.drawn))}
    for way, place in _ways(grades, chosen, labels).items():
        found[way] = _sliced(grades, columns, chosen, place)
    return found


def _ways(grades: _Grades, chosen: Mask, labels: Labels | None) -> dict[str, Callable[[ReviewItem], Place]]:
    items = [item for item, used in zip(grades.items, chosen, strict=True) if used]
    asked = grades.questions
    of_question = thirds([len(asked[item.question].text.split()) for item in items], "{:.0f} words")
    of_passage = thirds([len(item.text.split()) for item in items], "{:.0f} words")
    ways: dict[str, Callable[[ReviewItem], Place]] = {
        "task": lambda item: (0, asked[item.question].task),
        "place": _standing,
        "question": lambda item: of_question(len(asked[item.question].text.split())),
        "passage": lambda item: of_passage(len(item.text.split())),
    }
    if labels is not None:
        ways["label"] = lambda item: _labelled(labels, asked[item.question])
    return ways


def _labelled(labels: Labels, question: ReviewQuestion) -> Place:
    found = labels.of(question.task, question.query)
    return (0, found) if found else (1, "(no label)")


def _standing(item: ReviewItem) -> Place:
    """Return the position of an item in the lists of runs."""
    ranks = list(item.facts.get("ranks", {}).values())
    if not ranks:
        return 2, "in no list"
    near = abs(sum(ranks) / len(ranks) - DEPTH - 0.5) <= _NEAR
    return (1, f"near the cut, places {DEPTH - _NEAR + 1} to {DEPTH + _NEAR}") if near else (0, "at the top of lists")


def _sliced(
    grades: _Grades, columns: Sequence[int], items: Mask, place: Callable[[ReviewItem], Place]
) -> list[AgreementRow]:
    members: dict[Place, list[int]] = defaultdict(list)
    for number, (item, used) in enumerate(zip(grades.items, items, strict=True)):
        if used:
            members[place(item)].append(number)
    return [grades.row(each[1], columns, _mask(len(items), members[each])) for each in sorted(members)]


def _mask(size: int, places: Sequence[int] | NDArray[np.intp]) -> Mask:
    found = np.zeros(size, dtype=bool)
    found[places] = True
    return found


def _periods(grades: _Grades, columns: Sequence[int], chosen: Mask) -> list[AgreementRow]:
    """Return agreement by thirds of the items in the order of their last decision, by row number rather than time."""
    if chosen.sum() < 3:
        return []
    last = grades.decided[:, columns].max(axis=1)
    order = [place for place in np.argsort(last, kind="stable") if chosen[place]]
    names = ("first third", "middle third", "last third")
    parts = zip(names, np.array_split(np.array(order), 3), strict=True)
    return [grades.row(name, columns, _mask(len(chosen), part)) for name, part in parts]


def _repeats(grades: _Grades, held: Sequence[Decision]) -> list[AgreementRow]:
    graded = [row for row in held if row.verdict == GRADED and row.grade is not None]
    first = {(row.reviewer, row.item): row.grade for row in graded if not row.again}
    second = {(row.reviewer, row.item): row.grade for row in graded if row.again}
    found = []
    for each in grades.reviewers:
        pairs = {
            item: (first[who, item], grade)
            for (who, item), grade in second.items()
            if who == each.id and (who, item) in first
        }
        if pairs:
            found.append(_with_self(grades, each.name, pairs))
    return found


def _against_gold(grades: _Grades) -> list[AgreementRow]:
    found = []
    for column, each in enumerate(grades.reviewers):
        pairs = {
            item.number: (grade, item.gold)
            for item, grade in zip(grades.items, grades.table[:, column].tolist(), strict=True)
            if item.gold is not None and not np.isnan(grade)
        }
        if pairs:
            found.append(_with_self(grades, each.name, pairs))
    return found


def _with_self(grades: _Grades, name: str, pairs: Mapping[int, tuple[float | None, float | None]]) -> AgreementRow:
    """Return the agreement of one reviewer's grades with others for the same items."""
    asked = {item.number: item.question for item in grades.items}
    ratings = Ratings.of(
        np.array(list(pairs.values()), dtype=np.float64), [asked[item] for item in pairs], grades.scale
    )
    return AgreementRow(name, len(pairs), coefficients(ratings, OF_PERSON))
