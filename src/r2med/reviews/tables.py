"""Sections on the agreement of a review: the same on a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.audit.tables import (
    GRADED_ONLY,
    MEANINGS,
    NAMES,
    RARE,
    confusion_section,
    ends,
    grades_text,
    two_digits,
    why_low,
)
from r2med.formatting import counted, percent_range
from r2med.render.sections import Section, latex_sections, markdown_sections, show_sections
from r2med.render.table import Cell, Column, Table, key, numbers, say
from r2med.reviews.rows import ADJUDICATOR, CAUSES, PERSON

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.audit.study import SetPair
    from r2med.measure.figure import Figure
    from r2med.reviews.agreement import AgreementRow, ReviewAgreement
    from r2med.reviews.progress import HitCount, ReviewProgress

PAIR, SLICE, TIME = "pair", "slice", "time"
BREAKDOWNS = (PAIR, SLICE, TIME)
_RATES: Mapping[str, tuple[str, str]] = {
    "precision": ("labelled relevant, and are", "of the pairs that the task labels relevant, so many are."),
    "overlooked": ("not labelled, but relevant", "of all other pairs, so many are relevant all the same."),
    "missed": ("missed by the labels", "of all relevant pairs, so many have no such label."),
}


def agreement_sections(found: ReviewAgreement, by: Collection[str] = ()) -> list[Section]:
    """Return the sections, in order; `by` names the breakdowns to include."""
    people = [pair for pair in found.pairs if {pair.a, pair.b} <= set(found.reviewers)]
    parts = [_overall(found, people)]
    if len(found.pairs) == 1 or PAIR in by:
        parts += [confusion_section(pair) for pair in found.pairs]
    if PAIR in by or (len(found.pairs) > 1 and len(found.reviewers) > 2):
        parts.append(_by_pair(found))
    if SLICE in by:
        parts.append(_breakdown("Agreement by slice", _named(found.slices), "slice"))
    if TIME in by:
        parts.append(_breakdown("Agreement over time", found.periods, "items as they were decided"))
    if found.repeats:
        parts.append(_breakdown("Each with themselves, on items that came twice", found.repeats, "reviewer"))
    if found.gold:
        parts.append(_breakdown("Each against what is known to be right", found.gold, "reviewer"))
    return [*parts, _estimates(found)]


def _shown(found: ReviewAgreement) -> list[str]:
    return [name for name in NAMES if len(found.scale) > 2 or name not in GRADED_ONLY]


def _overall(found: ReviewAgreement, pairs: Sequence[SetPair]) -> Section:
    title = f"Agreement in {found.review}, with 95% intervals over questions"
    if not found.items:
        return Section(title, sentences=["No item was graded by two reviewers yet, so that there is no agreement."])
    shown, values = _shown(found), found.coefficients
    rows = [(NAMES[name], two_digits(values[name]), ends(values[name])) for name in shown]
    meanings = [f"{NAMES[name]}: {_meaning(name, values[name], found)}" for name in shown]
    why = [why_low(pair) for pair in pairs if pair.constant or pair.commonest[1] >= RARE]
    return Section(title, ("measure", "value", "95% interval"), rows, [_basis(found), *meanings, *why])


def _basis(found: ReviewAgreement) -> str:
    """Return a sentence on which reviewers and items the figures cover."""
    said = (
        f"{_several(found.reviewers)}, on {found.items:,} items of {found.questions:,} questions that two graded, with"
        f" the grades {grades_text(found.scale)} of the review."
    )
    if not found.at_random:
        return f"{said} None of them was drawn at random, so that the figures say nothing about other items."
    if found.set_aside:
        return f"{said} All were drawn at random; {found.set_aside:,} more that were not are left out."
    return f"{said} All were drawn at random."


def _several(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _meaning(name: str, coefficient: Figure | None, found: ReviewAgreement) -> str:
    """Explain a coefficient: its value here, and then in general."""
    if coefficient is None:
        return f"not defined here: one grade is all that was given. {_sentence(MEANINGS[name])}"
    value = coefficient.value
    if name == "raw":
        here = f"two reviewers give the same grade to {100 * value:.0f} of 100 items;"
        return f"{here} what chance would give is still in it."
    reached = f"{100 * value:.0f}% of what chance leaves open is reached" if value > 0 else "no more than chance gives"
    return f"{reached}; {MEANINGS[name]}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _by_pair(found: ReviewAgreement) -> Section:
    shown = _shown(found)
    rows: list[list[Cell]] = [
        [f"{pair.a}, {pair.b}", f"{pair.pairs:,}", *(two_digits(pair.coefficients[name]) for name in shown)]
        for pair in found.pairs
    ]
    heads = ("reviewers", "items", *(_SHORT[name] for name in shown))
    return Section("Agreement of each two reviewers", heads, rows)


_SHORT: Mapping[str, str] = {
    "raw": "raw",
    "kappa": "kappa",
    "weighted-kappa": "quadratic",
    "alpha-ordinal": "alpha",
    "ac1": "AC1",
    "ac2": "AC2",
}


def _named(slices: Mapping[str, Sequence[AgreementRow]]) -> list[tuple[str, AgreementRow]]:
    return [(f"{way}: {row.name}", row) for way, rows in slices.items() for row in rows]


def _breakdown(title: str, found: Sequence[AgreementRow | tuple[str, AgreementRow]], head: str) -> Section:
    """Return agreement in rows: of slices, of periods, of reviewers."""
    named = [each if isinstance(each, tuple) else (each.name, each) for each in found]
    if not named:
        return Section(title, sentences=["There is too little to say anything yet."])
    measures = list(named[0][1].coefficients)
    rows: list[list[Cell]] = [
        [
            name,
            f"{row.items:,}",
            two_digits(row.coefficients["raw"]),
            _around(row.coefficients["raw"]),
            *(two_digits(row.coefficients[measure]) for measure in measures[1:]),
        ]
        for name, row in named
    ]
    return Section(title, (head, "items", "raw", "95% interval", *(_SHORT[each] for each in measures[1:])), rows)


def _around(raw: Figure | None) -> str:
    """Return an interval; a dash if it has no width, as when all or none of a few items agree."""
    return "-" if raw is None or raw.low == raw.high else ends(raw, digits=2)


def _estimates(found: ReviewAgreement) -> Section:
    """Return the section on the quality of the task's own labels."""
    title = "How right are the labels?"
    rates = found.estimates
    known = {name: rate for name in _RATES if (rate := getattr(rates, name)) is not None}
    if not known:
        return Section(title, sentences=[_why_unknown(found)])
    rows = [
        (_RATES[name][0], f"{100 * rate.value:.1f}", percent_range(rate, 1), f"{rate.human:,}", f"{rate.predicted:,}")
        for name, rate in known.items()
    ]
    said = [f"{_RATES[name][0]}: {_RATES[name][1]}" for name in known]
    basis = (
        f"From the {rates.drawn:,} pairs that were drawn at random out of {rates.frame:,}. What an adjudicator decided"
        " goes first; otherwise an item is relevant by the share of people who say so."
    )
    powered = any(rate.predicted for rate in known.values())
    how = (
        "The interval rests on the people's labels; those of models on the further items only narrow it"
        " (prediction-powered)."
        if powered
        else "People's labels alone; a model that labels the other items would narrow the interval: r2med review judge."
    )
    heads = ("share of pairs", "%", "95% interval", "by people", "by models only")
    return Section(title, heads, rows, [*said, basis, how])


def _why_unknown(found: ReviewAgreement) -> str:
    if not found.estimates.drawn:
        return "No item was drawn at random, so that nothing can be said about the labels of the task."
    return "Fewer than two items of the random part were judged by people, so that nothing can be said yet."


def show_agreement(found: ReviewAgreement, console: Console, by: Collection[str] = ()) -> None:
    """Print the agreement of a review."""
    show_sections(agreement_sections(found, by), console)


def _markdown(found: ReviewAgreement, by: Collection[str]) -> str:
    return markdown_sections(f"Agreement in {found.review}", agreement_sections(found, by), found.notes)


def _latex(found: ReviewAgreement, by: Collection[str]) -> str:
    return latex_sections(agreement_sections(found, by))


AGREEMENT_FORMATS: Mapping[str, Callable[[ReviewAgreement, Collection[str]], str]] = {"md": _markdown, "latex": _latex}
"""How an agreement is written but on a terminal."""


def show_reviews(found: Sequence[ReviewProgress], console: Console) -> None:
    """Print a line for each project."""
    table = Table(
        key("review"), Column("from", folds=True), *numbers("items", "judged", "people", "models"), Column("made (UTC)")
    )
    for each in found:
        people = sum(person.kind == PERSON for person in each.people)
        counts = (f"{each.items:,}", f"{each.judged:,}", str(people), str(len(each.people) - people))
        table.add(each.project.name, " ".join(each.project.sources), *counts, each.project.created[:10])
    table.show(console)


def show_progress(progress: ReviewProgress, console: Console) -> None:
    """Print the progress of a project: its items, its reviewers, and unclear sentences."""
    project = progress.project
    console.print(project.name, style="bold", highlight=False)
    drawn = ", ".join(f"{count:,} {name}" for name, count in progress.drawn.items())
    say(console, f"{counted(progress.items, 'item')} of {counted(progress.questions, 'question')} ({drawn})")
    say(console, f"drawn from {' '.join(project.sources)}; everybody judges {project.overlap:.0%}")
    if project.open_answer:
        say(console, "the gold answer is in view of everybody from the start")
    if progress.people:
        _people(progress, console)
        by_two = f"{progress.by_two:,} by two or more, {progress.disagreements:,} of them differently"
        models = f"; models and imports: {counted(progress.by_models, 'item')}" if progress.by_models else ""
        say(console, f"judged: {counted(progress.judged, 'item')}, {by_two}; {progress.ruled:,} ruled on{models}")
    for cause, count in progress.causes.items():
        say(console, f"{CAUSES[cause].lower()}: {counted(count, 'time')}")
    for each in progress.trouble:
        say(console, f"unclear {counted(each.count, 'time')}: sentence {each.number + 1}, {each.text!r}")


def _people(progress: ReviewProgress, console: Console) -> None:
    with_models = any(each.kind != PERSON for each in progress.people)
    heads = ("judged", "unsure", "skipped", "seconds", "agree", *(["models"] if with_models else []), "again", "gold")
    table = Table(key("reviewer"), Column("kind"), *numbers(*heads))
    for each in progress.people:
        seconds = "-" if each.seconds is None else f"{each.seconds:.1f}"
        kind = each.role if each.role == ADJUDICATOR else each.kind
        counts = (f"{each.graded or each.ruled:,}", f"{each.unsure:,}", f"{each.skipped:,}", seconds)
        hits = (each.agreement, *([each.models] if with_models else []), each.repeats, each.gold)
        table.add(each.name, kind, *counts, *map(_share, hits))
    table.show(console)
    models = " models: as a model or an import;" if with_models else ""
    meanings = f"agree: same grade as another person;{models} again: as the first time; gold: as is known to be right"
    say(console, meanings)


def _share(share: HitCount) -> str:
    return "-" if share.value is None else f"{share.value:.0%}"
