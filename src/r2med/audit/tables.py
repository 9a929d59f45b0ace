"""Sections and charts of an audit of labels: the same on a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from r2med.audit.label_sets import COPIES
from r2med.errors import R2medError
from r2med.formatting import p_text
from r2med.measure.correlation import flipped_pairs
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.render.sections import Section
from r2med.render.table import Column, Number, column, key, percent, signed_interval, signed_percent

if TYPE_CHECKING:
    from r2med.audit.study import Audit, LabelChange, SetPair
    from r2med.measure.figure import Figure

NAMES: Mapping[str, str] = {
    "raw": "raw agreement",
    "kappa": "Cohen's kappa",
    "weighted-kappa": "quadratic kappa",
    "alpha-ordinal": "Krippendorff's alpha",
    "ac1": "Gwet's AC1",
    "ac2": "Gwet's AC2",
}
"""The coefficients that are shown, in order."""
MEANINGS: Mapping[str, str] = {
    "raw": "the share of pairs that got the same grade; what chance would give is still in it.",
    "kappa": "0 is what two raters reach who give their grades by chance, 1 is full agreement.",
    "weighted-kappa": "as kappa, but grades two steps apart disagree four times as much as neighbours.",
    "alpha-ordinal": "as kappa, for several raters and with gaps, grades as an order; 0.8 is good, 0.67 tentative.",
    "ac1": "agreement beyond chance, where chance is met only on pairs that are hard to judge; few relevant ones do not"
    " pull it down.",
    "ac2": "as AC1, with grades far apart counting as more of a disagreement.",
}
_GRADED_ONLY = ("weighted-kappa", "ac2")  # those that say nothing new if there are only two grades
_RARE = 0.8  # the share of one grade from which kappa needs an explanation
_VERDICTS: Mapping[str, str] = {
    "kept": "stays",
    "reversed": "REVERSED",
    "lost": "no longer shown",
    "gained": "newly shown",
    "none": "shown by neither",
}
_FLAWS: Mapping[str, str] = {
    "one-word": "one word",
    "links-only": "links only",
    "cut-html": "cut HTML",
    "unlabelled-copy": "the words of an unjudged document",
    "near-copy": "nearly the words of one",
}
_COUNT = "{:,}".format


def sections(audit: Audit) -> list[Section]:
    """Return all sections of an audit, in order; slices of several pairs of sets are in the JSON only."""
    # What is derived from one set has nothing to agree about with it.
    pairs = [pair for pair in audit.set_pairs if COPIES not in (pair.a, pair.b)]
    graded = any(len(pair.scale) > 2 for pair in pairs)
    parts = [_sets(audit), *([_agreement(audit, graded)] if pairs else [])]
    if len(pairs) > 1:
        parts.append(pair_section("Agreement of each two sets", "label sets", "pairs", pairs, NAMES, graded))
        parts += map(confusion_section, pairs)
    else:
        parts += [part for pair in pairs for part in (confusion_section(pair), _slices(pair))]
    if audit.flaws:
        parts.append(_flaws(audit))
    for change in audit.changes:
        parts += [_systems(change, audit), *([_conclusions(change)] if change.conclusions else [])]
    return parts


def _sets(audit: Audit) -> Section:
    judged = "Both judged" if len(audit.sets) == 2 else "Two sets at least judged"
    further = " What a set does not list counts as 0." if audit.filled else ""
    if audit.holes:
        further = f" These are the holes that {audit.sets[0].name} leaves and others fill: it counts them as 0."
        judged = "The others judged"
    sentence = f"{judged} {audit.pairs:,} pairs of a question and a document, of {audit.queries:,} questions.{further}"
    columns = [
        key("label set", "name"),
        *(column(name, form=_COUNT) for name in ("queries", "judged", "relevant")),
        column("not", form=_COUNT, get=lambda labels: labels.judged - labels.relevant),
    ]
    return Section.of(f"Labels of {audit.task}", columns, audit.sets, [sentence])


def _flaws(audit: Audit) -> Section:
    columns = [
        key("flaw", get=lambda flaw: _FLAWS[flaw.kind]),
        column("positives", form=_COUNT),
        column("queries", form=_COUNT),
        column("copies", form=lambda count: f"{count:,}" if count else "-"),
    ]
    sentences = [f"{flaw.first[:1].upper()}{flaw.first[1:]}." for flaw in audit.flaws]
    if any(flaw.copies for flaw in audit.flaws):
        sentences.append(
            "copies: documents without a judgement that repeat one. --labels task duplicates --holes scores as if they"
            " were judged as what they repeat."
        )
    return Section.of(f"Relevant documents of {audit.task} that look wrong", columns, audit.flaws, sentences)


def shown_names(graded: bool) -> list[str]:
    """Return the names of the coefficients that are informative on a scale of two grades, or of more."""
    return [name for name in NAMES if graded or name not in _GRADED_ONLY]


def coefficient_section(
    title: str, figures: Mapping[str, Figure | None], names: Sequence[str], sentences: Sequence[str]
) -> Section:
    """Return a table of coefficients: name, value and interval."""
    rows = [(NAMES[name], two_digits(figures[name]), ends(figures[name])) for name in names]
    return Section(title, ("measure", "value", "95% interval"), rows, sentences)


def _agreement(audit: Audit, graded: bool) -> Section:
    names = shown_names(graded)
    meanings = [f"{NAMES[name]}: {MEANINGS[name]}" for name in names]
    if len(audit.sets) > 2:
        meanings.append(
            "Of several sets, raw agreement counts each two labels of a pair; a kappa is the mean over each two sets."
        )
    is_of_review = audit.scale_of != "judgements"
    whose = f"the {audit.scale_of}" if is_of_review else "judgements, where everything below relevant is 0"
    sentences = [f"On the grades {enumerate_words(audit.scale)} of {whose}.", *meanings, *why_low(audit.set_pairs)]
    return coefficient_section("Agreement, with 95% intervals over questions", audit.coefficients, names, sentences)


def enumerate_words(words: Sequence[object]) -> str:
    """Join words as a sentence does.

    >>> enumerate_words([0, 1, 2]), enumerate_words([1])
    ('0, 1 and 2', '1')
    """
    *before, last = map(str, words)
    return f"{', '.join(before)} and {last}" if before else last


def pair_section(
    title: str, names: str, counted: str, pairs: Sequence[SetPair], headings: Mapping[str, str], graded: bool
) -> Section:
    """Return a table of the coefficients of each two sets or reviewers."""

    def coefficient(name: str) -> Column:
        return column(name, headings[name], two_digits, lambda pair: pair.coefficients[name])

    first = [key(names, get=lambda pair: f"{pair.a}, {pair.b}"), column("pairs", counted, form=_COUNT)]
    return Section.of(title, [*first, *map(coefficient, shown_names(graded))], pairs)


def why_low(pairs: Sequence[SetPair]) -> list[str]:
    """Explain why kappa is low, for each pair of sets of which nearly all grades are one."""
    sentences = []
    for pair in pairs:
        rows, columns = (np.array(pair.confusion).sum(axis=axis) for axis in (1, 0))
        constant = [name for name, counts in ((pair.a, rows), (pair.b, columns)) if (counts > 0).sum() == 1]
        both = rows + columns
        grade, share = pair.scale[int(both.argmax())], both.max() / both.sum()
        if constant:
            sentences.append(
                f"{constant[0]} gives one grade only to the pairs that both judged, so that kappa and alpha cannot"
                " tell agreement from chance: they are 0 or below however well the two agree. Raw agreement and AC1 can"
                " be read."
            )
        elif share >= _RARE:
            sentences.append(
                f"{100 * share:.0f}% of the grades of {pair.a} and {pair.b} are {grade}, so that two people who knew"
                f" nothing but this share would agree on {100 * pair.chance:.0f}% of the pairs. Kappa and alpha count"
                " only what goes beyond that: a few disagreements about the rare grades pull them far down although"
                " nearly all labels agree. AC1 and the rows by grade say more here."
            )
    return sentences


def confusion_section(pair: SetPair) -> Section:
    """Return a table of the grades that two raters give to the same pairs."""
    rows = [
        (f"{pair.a}: {grade}", *map(_COUNT, counts), f"{sum(counts):,}")
        for grade, counts in zip(pair.scale, pair.confusion, strict=True)
    ]
    headings = ("grade", *(f"{pair.b}: {grade}" for grade in pair.scale), "all")
    off = pair.pairs - sum(counts[place] for place, counts in enumerate(pair.confusion))
    raw, rate = pair.coefficients["raw"], "100.0%"
    if raw is not None:
        around = "" if raw.low is None else " ({:.1f} to {:.1f})".format(*(100 * (1 - end) for end in raw.ends[::-1]))
        rate = f"{100 * (1 - raw.value):.1f}%{around}"
    sentence = f"They differ on {off:,} of {pair.pairs:,} pairs: {rate}."
    return Section(f"{pair.a} and {pair.b}: which grades they give", headings, rows, [sentence])


def _slices(pair: SetPair) -> Section:
    rows = []
    for way, row in ((way, row) for way, slices in pair.slices.items() for row in slices):
        raw = row.coefficients["raw"]
        rows.append((f"{way}: {row.name}", f"{row.items:,}", percent(raw and raw.value), ends(raw, 100, 1)))
    return Section(f"{pair.a} and {pair.b}: where they agree", ("slice", "pairs", "agree %", "95% interval"), rows)


def _systems(change: LabelChange, audit: Audit) -> Section:
    after = f"{change.a} + {change.b}" if audit.overlaid else change.b
    columns = [
        key("system"),
        column("a", change.a, percent),
        column("b", after, percent),
        column("change", form=signed_percent, get=lambda row: row.change.value),
        column("interval", "95% interval", signed_interval, get=lambda row: row.change),
        column("holes", "holes %", get=lambda row: f"{100 * row.holes_a:.0f} / {100 * row.holes_b:.0f}"),
    ]
    left_out = [
        f"{count:,} question{' has' if count == 1 else 's have'} a relevant document under {name} alone and"
        f" {'is' if count == 1 else 'are'} left out."
        for count, name in ((change.only_a, change.a), (change.only_b, after))
        if count
    ]
    judge = "no set judges" if audit.filled else f"{change.a} / {after} does not judge"
    holes = f"holes: the share of a system's first ten documents that {judge}."
    title = f"{audit.measure} x 100 under {change.a} and {after}, {change.queries:,} questions"
    return Section.of(title, columns, change.systems, [*_order(change), *left_out, holes])


def _order(change: LabelChange) -> list[str]:
    """Return a sentence on how the order of systems changes."""
    if change.kendall is None:
        return []
    within = "" if change.kendall.low is None else f" (95% interval {ends(change.kendall, digits=2)})"
    names, values = [row.system for row in change.systems], [[row.a, row.b] for row in change.systems]
    swaps = [f"{names[one]} and {names[other]}" for one, other in flipped_pairs(*zip(*values, strict=True))]
    moved = f"Who changes places: {'; '.join(swaps)}." if swaps else "No two systems change places."
    return [f"Kendall's tau of the two orders of {len(names)} systems: {change.kendall.value:.2f}{within}. {moved}"]


def _conclusions(change: LabelChange) -> Section:
    columns = [
        key("systems", get=lambda pair: f"{pair.second} - {pair.first}"),
        column("a", f"under {change.a}", signed_percent, get=lambda pair: pair.a.mean),
        column("p_a", "p", p_text, get=lambda pair: pair.corrected[0]),
        column("b", f"under {change.b}", signed_percent, get=lambda pair: pair.b.mean),
        column("p_b", "p", p_text, get=lambda pair: pair.corrected[1]),
        column("verdict", "conclusion", _VERDICTS.__getitem__),
        column("stability", "order kept %", lambda share: f"{100 * share:.0f}"),
    ]
    title = f"{change.a} and {change.b}: which conclusions change"
    flips = [conclusion.verdict for conclusion in change.conclusions if conclusion.flips]
    count, opposite = len(change.conclusions), flips.count("reversed")
    changed = f"{len(flips)} of {count} conclusions change, {opposite} of them into their opposite"
    changed = changed if flips else f"None of the {count} conclusions changes"
    sentence = f"{changed} (randomisation test, 5%, after Holm)."
    return Section.of(title, columns, change.conclusions, [sentence, *_stability(change)])


def _stability(change: LabelChange) -> list[str]:
    stability = change.stability
    if stability.kendall is None:
        return []
    weakest = min(change.conclusions, key=lambda conclusion: conclusion.stability)
    within = "" if stability.kendall.low is None else f" ({ends(stability.kendall, digits=2)} in 95% of them)"
    return [
        f"order kept: if the labels of {change.a} were wrong as often as {change.b} says, the share of"
        f" {stability.simulations:,} simulations in which the two systems stand as under {change.a}.",
        f"Kendall's tau with the order under {change.a} is then {stability.kendall.value:.2f} on average{within}; the"
        f" least sure pair, {weakest.first} and {weakest.second}, keeps its order in {100 * weakest.stability:.0f}%.",
    ]


def two_digits(figure: Figure | None) -> Number:
    """Format a coefficient; a dash if it is not defined."""
    return Number("-", "-") if figure is None else Number(f"{figure.value:.3f}", f"{figure.value:.2f}")


def ends(figure: Figure | None, times: float = 1, digits: int = 3) -> str:
    """Format the ends of an interval; a dash if there is none."""
    if figure is None or figure.low is None:
        return "-"
    return " to ".join(f"{times * end:.{digits}f}" for end in figure.ends)


def stability_chart(audit: Audit) -> DotChart:
    """Return a chart of how often each two systems keep their order if labels were as wrong as two sets disagree."""
    change = next((change for change in audit.changes if change.conclusions), None)
    if change is None:
        raise R2medError("there is no pair of systems whose order could be drawn; run two systems first")
    points = [
        ChartPoint(f"{pair.first} over {pair.second}", 100 * pair.stability, filled=not pair.flips)
        for pair in sorted(change.conclusions, key=lambda pair: -pair.stability)
    ]
    axis = f"order kept in % of {change.stability.simulations:,} simulations; filled: the same conclusion under both"
    heading = f"If labels were as wrong as {change.a} and {change.b} disagree"
    return DotChart("How stable the order of systems is", axis, points, heading=heading)
