"""Sections and charts of corrected scores: the same on a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from r2med.formatting import counted
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.render.sections import Section
from r2med.render.table import Column, column, interval, key, percent, signed_interval

if TYPE_CHECKING:
    from r2med.audit.corrected_scores import CorrectedScores, PlannedWidth

NAMES = ("published", "filled", "corrected")


def columns_of(scores: CorrectedScores) -> list[str]:
    """Return the names of the scores that there are."""
    return [name for name in NAMES if getattr(scores.systems[0], name) is not None]


def corrected_sections(scores: CorrectedScores) -> list[Section]:
    """Return all sections of corrected scores, in order."""
    names = columns_of(scores)
    columns = [key("system"), column("holes", "holes %", lambda share: f"{100 * share:.0f}")]
    for name in names:
        columns += [
            column(name, form=lambda figure: percent(figure.value)),
            column(name, "95% interval", interval),
        ]
    cutoff = scores.measure.partition("@")[2]
    meanings = {
        "published": "published: documents that the task does not judge count as not relevant.",
        "filled": f"filled: {scores.judges[0].judge if scores.judges else ''} says which of them are relevant.",
        "corrected": "corrected: what the score would be if people had judged them all; its interval allows for how few"
        " they judged.",
    }
    sentences = [
        f"The pool: {scores.pool:,} pairs, {scores.holes:,} of which the task does not judge (holes)."
        f" holes %: of a system's first {cutoff} documents.",
        *(meanings[name] for name in names),
    ]
    if scores.sampled:
        share = f"{counted(scores.sampled, 'hole')} drawn at random"
        sentences.append(f"People judged {share} and call {scores.relevant:,} of them relevant.")
    title = f"{scores.measure} x 100 on {scores.task}, {counted(scores.questions, 'question')}"
    parts = [Section.of(title, columns, scores.systems, sentences)]
    if len(scores.systems) > 1:
        parts.append(_order(scores, names))
    if scores.judges:
        parts.append(_judges(scores))
    if any(system.interaction for system in scores.systems):
        parts.append(_interaction(scores))
    return parts


def _order(scores: CorrectedScores, names: Sequence[str]) -> Section:
    def places(name: str) -> Column:
        return column(name, f"{name}: place", "{0[0]}-{0[1]}".format, lambda row: row.places[name])

    columns = [key("system"), *map(places, names)]
    if scores.sampled:
        columns.append(column("labels", "corrected, interval of labels alone", interval))
    tied = ["Places that differences at 5% (after Holm) leave open; systems whose places overlap may be tied."]
    tied += [
        f"Kendall's tau between the orders as published and as {name}: {tau:.2f}."
        for name, tau in scores.kendall.items()
        if tau is not None
    ]
    if scores.sampled:
        tied.append("Labels alone: for these questions; the interval vanishes once people have judged every hole.")
    return Section.of("The order", columns, scores.systems, tied)


def _judges(scores: CorrectedScores) -> Section:
    columns = [
        key("judge"),
        column("relevant", "calls relevant %", percent),
        column("sampled", "people judged", "{:,}".format),
        column("both", "both relevant"),
        column("judge_alone", "judge alone"),
        column("people_alone", "people alone"),
    ]
    if any(judge.repeats > 1 for judge in scores.judges):
        columns.append(column("changes", "changes its mind %", percent))
        columns.append(column("spread", "moves a score by", percent))
    related = [
        f"{system.system} and the judge are of one family of models ({system.family}): judges favour what their own"
        " family ranks high, so that its filled score may be too high."
        for system in scores.systems
        if system.family
    ]
    return Section.of("The judge, on holes", columns, scores.judges, related)


def _interaction(scores: CorrectedScores) -> Section:
    one, other = (judge.judge for judge in scores.judges[:2])
    columns = [
        key("system"),
        column("interaction", f"{one} - {other}", lambda figure: percent(figure and figure.value, sign="+")),
        column("interval", "95% interval", signed_interval, lambda row: row.interaction),
    ]
    sentence = "How much more the first judge lifts a system than the second, beside the mean over all systems."
    return Section.of("Judge and system", columns, scores.systems, [sentence])


def score_chart(scores: CorrectedScores) -> DotChart:
    """Return a chart of each system's scores with their intervals."""
    tones = {"published": "pub", "filled": "soft", "corrected": "own"}
    points = [
        ChartPoint(f"{system.system}: {name}", *getattr(system, name).percents)._replace(tone=tones[name])
        for system in scores.systems
        for name in columns_of(scores)
    ]
    return DotChart("Scores under three sets of labels", f"{scores.measure} x 100, with 95% intervals", points)


def planned_section(widths: Sequence[PlannedWidth], measure: str) -> Section:
    """Return the table of `--plan`."""
    columns = [
        key("judge"),
        column("humans", "human labels", "{:,}".format),
        column("score", "score", percent),
        column("difference", "difference", percent),
    ]
    sentences = [
        "Mean width of the 95% interval, from labels alone, over 20 simulated samples of so many holes: of a system's"
        " score, and of the difference of two systems.",
    ]
    return Section.of(f"How wide intervals of {measure} x 100 would be", columns, widths, sentences)
