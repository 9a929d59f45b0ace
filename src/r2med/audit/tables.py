"""Sections and charts of an audit of labels: the same on a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.audit.study import Audit
from r2med.errors import R2medError
from r2med.formatting import p_text
from r2med.measure.correlation import flipped
from r2med.render.charts.kinds import ChartPoint, DotChart
from r2med.render.sections import Section, latex_sections, markdown_sections, show_sections
from r2med.render.table import Cell, Number, interval, percent

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.audit.study import Conclusion, LabelChange, SetPair
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
GRADED_ONLY = ("weighted-kappa", "ac2")
"""Those that say nothing new where there are only two grades."""
RARE = 0.8
"""The share of one grade from which kappa needs an explanation."""
_VERDICTS: Mapping[str, str] = {
    "kept": "stays",
    "reversed": "REVERSED",
    "lost": "no longer shown",
    "gained": "newly shown",
    "none": "shown by neither",
}


def sections(audit: Audit) -> list[Section]:
    """Return all sections of an audit, in order; slices of several pairs of sets are in the JSON only."""
    several = len(audit.set_pairs) > 1
    found = [_sets(audit), _agreement(audit), *([_by_pair(audit)] if several else [])]
    for pair in audit.set_pairs:
        found += [confusion_section(pair), *([] if several else [_slices(pair)])]
    for change in audit.changes:
        found += [_systems(change, audit), *([_conclusions(change)] if change.conclusions else [])]
    return found


def _sets(audit: Audit) -> Section:
    rows = [
        (each.name, f"{each.queries:,}", f"{each.judged:,}", f"{each.relevant:,}", f"{each.judged - each.relevant:,}")
        for each in audit.sets
    ]
    both = "Both judged" if len(audit.sets) == 2 else "Two sets at least judged"
    filled = " What a set does not list counts as 0." if audit.filled else ""
    if audit.holes:
        filled = f" These are the holes that {audit.sets[0].name} leaves and others fill: it counts them as 0."
        both = "The others judged"
    said = f"{both} {audit.pairs:,} pairs of a question and a document, of {audit.queries:,} questions.{filled}"
    return Section(f"Labels of {audit.task}", ("label set", "queries", "judged", "relevant", "not"), rows, [said])


def _shown(audit: Audit) -> list[str]:
    """Return the names of the coefficients that are informative on this scale."""
    graded = any(len(pair.scale) > 2 for pair in audit.set_pairs)
    return [name for name in NAMES if graded or name not in GRADED_ONLY]


def _agreement(audit: Audit) -> Section:
    shown = _shown(audit)
    found = audit.coefficients
    rows = [(NAMES[name], two_digits(found[name]), ends(found[name])) for name in shown]
    meanings = [f"{NAMES[name]}: {MEANINGS[name]}" for name in shown]
    if len(audit.sets) > 2:
        meanings.append(
            "Of several sets, raw agreement counts each two labels of a pair; a kappa is the mean over each two sets."
        )
    title = "Agreement, with 95% intervals over questions"
    scale = f"On the grades {grades_text(audit.scale)} {_whose(audit)}."
    why = [why_low(pair) for pair in audit.set_pairs if pair.constant or pair.commonest[1] >= RARE]
    return Section(title, ("measure", "value", "95% interval"), rows, [scale, *meanings, *why])


def grades_text(scale: Sequence[int]) -> str:
    """Return the grades of a scale in words.

    >>> grades_text([0, 1, 2]), grades_text([1])
    ('0, 1 and 2', '1')
    """
    *before, last = map(str, scale)
    return f"{', '.join(before)} and {last}" if before else last


def _whose(audit: Audit) -> str:
    if audit.scale_of != "judgements":
        return f"of the {audit.scale_of}"
    return "of judgements, where everything below relevant is 0"


def _by_pair(audit: Audit) -> Section:
    shown = _shown(audit)
    rows: list[list[Cell]] = [
        [f"{pair.a}, {pair.b}", f"{pair.pairs:,}", *(two_digits(pair.coefficients[name]) for name in shown)]
        for pair in audit.set_pairs
    ]
    return Section("Agreement of each two sets", ("label sets", "pairs", *(NAMES[name] for name in shown)), rows)


def why_low(pair: SetPair) -> str:
    """Explain why kappa is low if nearly all pairs have one grade."""
    grade, share = pair.commonest
    for name in pair.constant:
        return (
            f"{name} gives one grade only to the pairs that both judged, so that kappa and alpha cannot tell agreement"
            " from chance: they are 0 or below however well the two agree. Raw agreement and AC1 can be read."
        )
    return (
        f"{100 * share:.0f}% of the grades of {pair.a} and {pair.b} are {grade}, so that two people who knew nothing"
        f" but this share would agree on {100 * pair.chance:.0f}% of the pairs. Kappa and alpha count only what goes"
        f" beyond that: a few disagreements about the rare grades pull them far down although nearly all labels agree."
        f" AC1 and the rows by grade say more here."
    )


def confusion_section(pair: SetPair) -> Section:
    """Return a table of the grades that two raters give to the same pairs."""
    rows = [
        (f"{pair.a}: {grade}", *(f"{count:,}" for count in row), f"{sum(row):,}")
        for grade, row in zip(pair.scale, pair.confusion, strict=True)
    ]
    columns = [f"{pair.b}: {grade}" for grade in pair.scale]
    off = pair.pairs - sum(row[place] for place, row in enumerate(pair.confusion))
    rate = _rate(pair.coefficients["raw"])
    said = f"They differ on {off:,} of {pair.pairs:,} pairs: {rate}."
    return Section(f"{pair.a} and {pair.b}: which grades they give", ("grade", *columns, "all"), rows, [said])


def _rate(raw: Figure | None) -> str:
    """Return the share of pairs on which two sets differ, with its interval."""
    if raw is None:
        return "100.0%"
    low, high = raw.ends
    around = "" if raw.low is None else f" ({100 * (1 - high):.1f} to {100 * (1 - low):.1f})"
    return f"{100 * (1 - raw.value):.1f}%{around}"


def _slices(pair: SetPair) -> Section:
    rows = [
        (
            f"{way}: {each.name}",
            f"{each.pairs:,}",
            percent(each.raw and each.raw.value),
            ends(each.raw, 100, 1),
        )
        for way, members in pair.slices.items()
        for each in members
    ]
    return Section(f"{pair.a} and {pair.b}: where they agree", ("slice", "pairs", "agree %", "95% interval"), rows)


def _systems(change: LabelChange, audit: Audit) -> Section:
    after = f"{change.a} + {change.b}" if audit.overlaid else change.b
    headings = ("system", change.a, after, "change", "95% interval", "holes %")
    rows = [
        (
            each.system,
            percent(each.a),
            percent(each.b),
            percent(each.change.value, sign="+"),
            interval(each.change, "+"),
            f"{100 * each.holes_a:.0f} / {100 * each.holes_b:.0f}",
        )
        for each in change.systems
    ]
    left = [
        f"{_questions(count)} a relevant document under {name} alone and {'is' if count == 1 else 'are'} left out."
        for count, name in ((change.only_a, change.a), (change.only_b, after))
        if count
    ]
    judge = "no set judges" if audit.filled else f"{change.a} / {after} does not judge"
    holes = f"holes: the share of a system's first ten documents that {judge}."
    title = f"{audit.measure} x 100 under {change.a} and {after}, {change.queries:,} questions"
    return Section(title, headings, rows, [*_order(change), *left, holes])


def _questions(count: int) -> str:
    return f"{count:,} question has" if count == 1 else f"{count:,} questions have"


def _order(change: LabelChange) -> list[str]:
    """Return a sentence on how the order of systems changes."""
    if change.kendall is None:
        return []
    around = change.kendall_interval
    within = f" (95% interval {around[0]:.2f} to {around[1]:.2f})" if around else ""
    names, places = [each.system for each in change.systems], [[each.a, each.b] for each in change.systems]
    swaps = [f"{names[one]} and {names[other]}" for one, other in flipped(*zip(*places, strict=True))]
    moved = f"Who changes places: {'; '.join(swaps)}." if swaps else "No two systems change places."
    return [f"Kendall's tau of the two orders of {len(names)} systems: {change.kendall:.2f}{within}. {moved}"]


def _conclusions(change: LabelChange) -> Section:
    headings = ("systems", f"under {change.a}", "p", f"under {change.b}", "p", "conclusion", "order kept %")
    rows = [
        (
            f"{each.second} - {each.first}",
            percent(each.a.mean, sign="+"),
            p_text(each.corrected[0]),
            percent(each.b.mean, sign="+"),
            p_text(each.corrected[1]),
            _VERDICTS[each.verdict],
            f"{100 * each.stability:.0f}",
        )
        for each in change.conclusions
    ]
    return Section(
        f"{change.a} and {change.b}: which conclusions change",
        headings,
        rows,
        [_flips(change.conclusions), *_stability(change)],
    )


def _flips(conclusions: Sequence[Conclusion]) -> str:
    flips = [each for each in conclusions if each.flips]
    if not flips:
        return f"None of the {len(conclusions)} conclusions changes (randomisation test, 5%, after Holm)."
    reversed_ones = sum(each.verdict == "reversed" for each in flips)
    return (
        f"{len(flips)} of {len(conclusions)} conclusions change, {reversed_ones} of them into their opposite"
        " (randomisation test, 5%, after Holm)."
    )


def _stability(change: LabelChange) -> list[str]:
    found = change.stability
    if found.kendall is None:
        return []
    weakest = min(change.conclusions, key=lambda each: each.stability)
    around = found.kendall_interval
    within = f" ({around[0]:.2f} to {around[1]:.2f} in 95% of them)" if around else ""
    return [
        f"order kept: if the labels of {change.a} were wrong as often as {change.b} says, the share of"
        f" {found.simulations:,} simulations in which the two systems stand as under {change.a}.",
        f"Kendall's tau with the order under {change.a} is then {found.kendall:.2f} on average{within}; the least"
        f" sure pair, {weakest.first} and {weakest.second}, keeps its order in {100 * weakest.stability:.0f}%.",
    ]


def two_digits(figure: Figure | None) -> Number:
    """Format a coefficient; a dash if it is not defined."""
    return Number("-", "-") if figure is None else Number(f"{figure.value:.3f}", f"{figure.value:.2f}")


def ends(found: Figure | None, times: float = 1, digits: int = 3) -> str:
    """Format the ends of an interval; a dash if there is none."""
    if found is None or found.low is None:
        return "-"
    return " to ".join(f"{times * end:.{digits}f}" for end in found.ends)


def show_audit(audit: Audit, console: Console) -> None:
    """Print an audit."""
    show_sections(sections(audit), console)


def markdown(audit: Audit) -> str:
    """Return an audit as Markdown, for a page or an issue."""
    return markdown_sections(f"Audit of the labels of {audit.task}", sections(audit), audit.notes)


def latex(audit: Audit) -> str:
    """Return an audit as tables for a paper, with booktabs."""
    return latex_sections(sections(audit))


FORMATS: Mapping[str, Callable[[Audit], str]] = {"md": markdown, "latex": latex}
"""How an audit is written but on a terminal."""


def stability_chart(found: Audit) -> DotChart:
    """Return a chart of how often each two systems keep their order if labels were as wrong as two sets disagree."""
    change = next((each for each in found.changes if each.conclusions), None)
    if change is None:
        raise R2medError("there is no pair of systems whose order could be drawn; run two systems first")
    pairs = sorted(change.conclusions, key=lambda each: -each.stability)
    points = [
        ChartPoint(f"{each.first} over {each.second}", 100 * each.stability, filled=not each.flips) for each in pairs
    ]
    axis = f"order kept in % of {change.stability.simulations:,} simulations; filled: the same conclusion under both"
    heading = f"If labels were as wrong as {change.a} and {change.b} disagree"
    return DotChart("How stable the order of systems is", axis, points, heading=heading)
