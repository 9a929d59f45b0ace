"""Sections on the agreement of a review, the same on a terminal, as Markdown and as LaTeX; and its progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.audit.tables import (
    MEANINGS,
    NAMES,
    coefficient_section,
    confusion_section,
    ends,
    enumerate_words,
    pair_section,
    shown_names,
    two_digits,
    why_low,
)
from r2med.formatting import counted
from r2med.measure.figure import Figure
from r2med.render.sections import Section
from r2med.render.table import Cell, Column, Table, column, key, say
from r2med.reviews.rows import ADJUDICATOR, CAUSES, PERSON

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.audit.study import AgreementRow, SetPair
    from r2med.reviews.agreement import ReviewAgreement
    from r2med.reviews.progress import HitCount, ReviewProgress
    from r2med.reviews.rows import ReviewDecision

PAIR, SLICE, TIME = "pair", "slice", "time"
BREAKDOWNS = (PAIR, SLICE, TIME)
_RATES: Mapping[str, tuple[str, str]] = {
    "precision": ("labelled relevant, and are", "of the pairs that the task labels relevant, so many are."),
    "overlooked": ("not labelled, but relevant", "of all other pairs, so many are relevant all the same."),
    "missed": ("missed by the labels", "of all relevant pairs, so many have no such label."),
}
_SHORT: Mapping[str, str] = dict(zip(NAMES, ("raw", "kappa", "quadratic", "alpha", "AC1", "AC2"), strict=True))


def agreement_sections(agreement: ReviewAgreement, by: Collection[str] = ()) -> list[Section]:
    """Return the sections, in order; `by` names the breakdowns to include."""
    pairs = agreement.pairs
    parts = [_overall(agreement, [pair for pair in pairs if {pair.a, pair.b} <= set(agreement.reviewers)])]
    if len(pairs) == 1 or PAIR in by:
        parts += map(confusion_section, pairs)
    if PAIR in by or (len(pairs) > 1 and len(agreement.reviewers) > 2):
        graded = len(agreement.scale) > 2
        parts.append(pair_section("Agreement of each two reviewers", "reviewers", "items", pairs, _SHORT, graded))
    if SLICE in by:
        slices = [(f"{way}: {row.name}", row) for way, rows in agreement.slices.items() for row in rows]
        parts.append(_breakdown("Agreement by slice", slices, "slice"))
    for title, rows, heading, is_shown in (
        ("Agreement over time", agreement.periods, "items as they were decided", TIME in by),
        ("Each with themselves, on items that came twice", agreement.repeats, "reviewer", bool(agreement.repeats)),
        ("Each against what is known to be right", agreement.gold, "reviewer", bool(agreement.gold)),
    ):
        if is_shown:
            parts.append(_breakdown(title, [(row.name, row) for row in rows], heading))
    return [*parts, _estimates(agreement)]


def _overall(agreement: ReviewAgreement, pairs: Sequence[SetPair]) -> Section:
    title = f"Agreement in {agreement.review}, with 95% intervals over questions"
    if not agreement.items:
        return Section(title, sentences=["No item was graded by two reviewers yet, so that there is no agreement."])
    names, figures = shown_names(len(agreement.scale) > 2), agreement.coefficients
    meanings = [f"{NAMES[name]}: {_meaning(name, figures[name])}" for name in names]
    basis = (
        f"{enumerate_words(agreement.reviewers)}, on {agreement.items:,} items of {agreement.questions:,} questions"
        f" that two graded, with the grades {enumerate_words(agreement.scale)} of the review."
    )
    if not agreement.at_random:
        basis += " None of them was drawn at random, so that the figures say nothing about other items."
    elif agreement.set_aside:
        basis += f" All were drawn at random; {agreement.set_aside:,} more that were not are left out."
    else:
        basis += " All were drawn at random."
    return coefficient_section(title, figures, names, [basis, *meanings, *why_low(pairs)])


def _meaning(name: str, figure: Figure | None) -> str:
    """Explain a coefficient: its value here, and then in general."""
    meaning = MEANINGS[name]
    if figure is None:
        return f"not defined here: one grade is all that was given. {meaning[:1].upper()}{meaning[1:]}"
    if name == "raw":
        here = f"two reviewers give the same grade to {100 * figure.value:.0f} of 100 items;"
        return f"{here} what chance would give is still in it."
    reached = f"{100 * figure.value:.0f}% of what chance leaves open is reached"
    return f"{reached if figure.value > 0 else 'no more than chance gives'}; {meaning}"


def _breakdown(title: str, named: Sequence[tuple[str, AgreementRow]], heading: str) -> Section:
    if not named:
        return Section(title, sentences=["There is too little to say anything yet."])
    _, *measures = named[0][1].coefficients
    rows: list[list[Cell]] = []
    for name, row in named:
        raw, *further = row.coefficients.values()
        # An interval has no width when all or none of a few items agree.
        around = "-" if raw is None or raw.low == raw.high else ends(raw, digits=2)
        rows.append([name, f"{row.items:,}", two_digits(raw), around, *map(two_digits, further)])
    return Section(title, (heading, "items", "raw", "95% interval", *(_SHORT[name] for name in measures)), rows)


def _estimates(agreement: ReviewAgreement) -> Section:
    title, estimates = "How right are the labels?", agreement.estimates
    rates = {name: rate for name in _RATES if (rate := getattr(estimates, name)) is not None}
    if not rates:
        why = "Fewer than two items of the random part were judged by people, so that nothing can be said yet."
        if not estimates.drawn:
            why = "No item was drawn at random, so that nothing can be said about the labels of the task."
        return Section(title, sentences=[why])
    rows = []
    for name, rate in rates.items():
        figures = (f"{100 * rate.value:.1f}", ends(Figure(rate.value, rate.low, rate.high), 100, 1))
        rows.append((_RATES[name][0], *figures, f"{rate.human:,}", f"{rate.predicted:,}"))
    basis = (
        f"From the {estimates.drawn:,} pairs that were drawn at random out of {estimates.frame:,}. What an adjudicator"
        " decided goes first; otherwise an item is relevant by the share of people who say so."
    )
    how = "People's labels alone; a model that labels the other items would narrow the interval: r2med review judge."
    if any(rate.predicted for rate in rates.values()):
        how = "The interval rests on the people's labels; those of models on the further items only narrow it"
        how += " (prediction-powered)."
    headings = ("share of pairs", "%", "95% interval", "by people", "by models only")
    return Section(title, headings, rows, [*(": ".join(_RATES[name]) for name in rates), basis, how])


def show_reviews(reviews: Sequence[ReviewProgress], console: Console) -> None:
    """Print a line for each project."""
    columns = [
        key("review", get=lambda review: review.project.name),
        Column("from", folds=True, get=lambda review: " ".join(review.project.sources)),
        column("items", form="{:,}".format),
        column("judged", form="{:,}".format),
        column("people", get=lambda review: sum(person.kind == PERSON for person in review.people)),
        column("models", get=lambda review: sum(person.kind != PERSON for person in review.people)),
        Column("made (UTC)", get=lambda review: review.project.created[:10]),
    ]
    Table.of(columns, reviews).show(console)


def show_progress(progress: ReviewProgress, console: Console) -> None:
    """Print the progress of a project: its items, its reviewers, and unclear sentences."""
    project = progress.project
    console.print(project.name, style="bold", highlight=False)
    drawn = ", ".join(f"{count:,} {name}" for name, count in progress.drawn.items())
    say(console, f"{counted(progress.items, 'item')} of {counted(progress.questions, 'question')} ({drawn})")
    say(console, f"drawn from {' '.join(project.sources)}; everybody judges {project.overlap:.0%}")
    if project.open_answer:
        say(console, "the gold answer is in view of everybody from the start")
    if progress.decision:
        show_decision(progress.decision, console)
    if progress.people:
        with_models = any(person.kind != PERSON for person in progress.people)
        columns = [
            key("reviewer", "name"),
            Column("kind", get=lambda person: person.role if person.role == ADJUDICATOR else person.kind),
            column("judged", form="{:,}".format, get=lambda person: person.graded or person.ruled),
            column("unsure", form="{:,}".format),
            column("skipped", form="{:,}".format),
            column("seconds", form=lambda seconds: "-" if seconds is None else f"{seconds:.1f}"),
            column("agreement", "agree", _share),
            *([column("models", form=_share)] if with_models else []),
            column("repeats", "again", _share),
            column("gold", form=_share),
        ]
        Table.of(columns, progress.people).show(console)
        models = " models: as a model or an import;" if with_models else ""
        hits = "again: as the first time; gold: as is known to be right"
        say(console, f"agree: same grade as another person;{models} {hits}")
        by_two = f"{progress.by_two:,} by two or more, {progress.disagreements:,} of them differently"
        models = f"; models and imports: {counted(progress.by_models, 'item')}" if progress.by_models else ""
        say(console, f"judged: {counted(progress.judged, 'item')}, {by_two}; {progress.ruled:,} ruled on{models}")
    for cause, count in progress.causes.items():
        say(console, f"{CAUSES[cause].lower()}: {counted(count, 'time')}")
    for sentence in progress.trouble:
        say(console, f"unclear {counted(sentence.count, 'time')}: sentence {sentence.number + 1}, {sentence.text!r}")


def show_decision(decision: ReviewDecision, console: Console) -> None:
    """Print who leads in the comparison of a review, how sure that is, and what it took or would take."""
    pairs = Table.of(
        [
            key("systems", get=lambda pair: f"{pair.a} - {pair.b}"),
            column("difference", form="{:+.2f}".format, get=lambda pair: 100 * pair.difference),
            column("+/-", form="{:.2f}".format, get=lambda pair: 196 * pair.deviation),
            column("P ahead", form="{:.1%}".format, get=lambda pair: pair.ahead),
            column("P alike", form="{:.1%}".format, get=lambda pair: pair.alike),
        ],
        decision.pairs,
    )
    pairs.show(console)
    say(console, f"{decision.measure} x 100 on what these systems rank high; alike: less than half a point apart")
    say(console, decision.summary)


def _share(hits: HitCount) -> str:
    return "-" if hits.value is None else f"{hits.value:.0%}"
