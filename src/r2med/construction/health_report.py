"""The health of a task in sentences and tables, the same on a terminal, as Markdown and in the dataset card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from r2med.construction.coverage import Finder
from r2med.construction.health import (
    DOUBTFUL,
    GOOD,
    MEASURE,
    POOR,
    RESERVED,
    SOUND,
    UNKNOWN,
    UNREADY,
    Baseline,
    HealthFigure,
    HealthFinding,
    PoolBias,
    TaskHealth,
)
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, UNJUDGED
from r2med.diagnosis.gap import PAIRS
from r2med.formatting import counted, percent, percent_range
from r2med.measure.population import CaughtShare
from r2med.render.sections import Section, markdown_blocks
from r2med.store.files import write_file

CARD, HEADING = "README.md", "## Health"
_WORST = (POOR, DOUBTFUL, UNKNOWN)
"""Verdicts that are spoken of, the worst first."""
_OPENINGS: Mapping[str, str] = {
    SOUND: "Sound: every check passes.",
    RESERVED: "Usable with reservations, which a paper about it should state: {}.",
    UNREADY: "Not ready: {}.",
}


def health_sections(health: TaskHealth) -> list[Section]:
    """Return all sections on a task's health, the verdict first."""
    found = [_verdict(health), _finders(health), _labels(health), _questions(health)]
    if health.bias:
        found.insert(2, _bias(health.bias))
    if health.second:
        found.insert(-1, _second(health))
    if health.gap:
        found.append(_gap(health))
    if health.baselines:
        found.append(_baselines(health.baselines))
    return found


def _verdict(health: TaskHealth) -> Section:
    rows = [
        (each.rule.name, _figure_text(each, each.figure), _ends(each), each.verdict.upper(), each.rule.asks)
        for each in health.findings
    ]
    flaws = [each for name in _WORST for each in health.findings if each.verdict == name]
    listed = ", ".join(f"{each.rule.name} ({each.verdict})" for each in flaws)
    said = [_OPENINGS[health.verdict].format(listed)]
    said += [f"{each.rule.name}: {each.rule.why}." for each in health.findings if each.verdict != GOOD]
    said.append("Labels were proposed by language models; no expert has checked them.")
    if not health.measured:
        said.append("What needs systems to be run or judges to be asked is unknown before: r2med build check")
    return Section(
        f"Is {health.task} any good?",
        ("check", "figure", "95% interval", "verdict", "asks"),
        rows,
        said,
        words=("verdict", "asks"),
    )


def _figure_text(finding: HealthFinding, figure: HealthFigure | None) -> str:
    if figure is None:
        return "?"
    return f"{finding.rule.bound} {_written(figure.value, finding.rule.unit)}".lstrip()


def _written(value: float, unit: str) -> str:
    # Nothing is not less than nothing: a minus before 0.0 would be read as one.
    shown = round(value, 0 if unit == "count" else 3) + 0.0
    return f"{shown:,.0f}" if unit == "count" else f"{100 * shown:.1f}{'%' if unit == 'percent' else ''}"


def _ends(finding: HealthFinding) -> str:
    figure, unit = finding.figure, finding.rule.unit
    if figure is None or figure.low is None or figure.high is None:
        return "-"
    return f"{_written(figure.low, unit)} to {_written(figure.high, unit)}"


def _finders(health: TaskHealth) -> Section:
    coverage = health.coverage
    rows = [(each.name, *_found(each)) for each in coverage.members]
    rows += [(f"view: {each.name}", *_found(each)) for each in coverage.views]
    said = [
        f"Of {counted(coverage.positives, 'positive')}: what each member of the committee, and each view, would have"
        " found alone, and what no other member or view found.",
        *_missed(health),
    ]
    if coverage.sources:
        known = coverage.sources
        said.append(
            f"Of {known.whole:,} positives from the known sources of questions the committee found {known.part:,}:"
            f" {_percent(known)}. This needs no assumption about its members."
        )
    return Section("Who found the positives", ("member or view", "found", "%", "alone"), rows, said)


def _found(each: Finder) -> tuple[str, str, str]:
    return f"{each.found.part:,}", percent(each.found.figure.value, 1), f"{each.alone:,}"


def _percent(found: CaughtShare) -> str:
    return f"{percent(found.figure.value, 1)}% ({percent_range(found.figure, 1)})"


def _missed(health: TaskHealth) -> Iterator[str]:
    """Yield sentences on the capture-recapture estimate and its assumptions."""
    missed, by = health.coverage.missed, health.coverage.by
    if missed.searchers < 2:
        yield f"How many were missed cannot be told: fewer than two {by} found a positive."
        return
    if missed.total is None or missed.low is None:
        yield f"How many were missed cannot be told: no two {by} found the same positive."
        return
    ends = f"{missed.low:,} to {missed.high:,}" if missed.high else f"{missed.low:,} at the least"
    yield (
        f"The {missed.searchers} {by} found {missed.seen:,} positives; if they find independently of each other, there"
        f" are about {missed.total:,.0f} in all (95% interval {ends}), so that about"
        f" {max(0.0, missed.total - missed.seen):,.0f} were missed."
    )
    how = "Chapman's estimator" if missed.searchers == 2 else "the independence model"
    views = " Views of one system are not independent." if by == "views" else ""
    yield (
        f"This is {how} with a profile-likelihood interval. {by.capitalize()} that find the same easy passages make it"
        f" too low: read it as a lower bound.{views}"
    )
    if missed.lower_bound is not None:
        yield (
            f"Chao's lower bound, which allows for passages that are hard for all: {missed.lower_bound:,.0f}"
            f" ({missed.once:,} found once, {missed.twice:,} twice)."
        )


def _labels(health: TaskHealth) -> Section:
    pairs = sum(health.verdicts.values())
    rows = [
        (name, f"{health.verdicts[name]:,}", percent(health.verdicts[name] / pairs, 1))
        for name in (POSITIVE, BAND, NEGATIVE, UNJUDGED)
        if name in health.verdicts
    ]
    cuts = health.cuts
    said = [
        f"Positive from {cuts['answers']:g} on the axis answers and {cuts['supports']:g} on supports; band from"
        f" {cuts['band_answers']:g} and {cuts['band_supports']:g}."
    ]
    quoted = sum(health.quotes.values())
    if quoted:
        states = ", ".join(f"{number:,} {name}" for name, number in health.quotes.items())
        said.append(f"Quotes of the opinions on positives: {states}.")
    if health.judges:
        alphas = ", ".join(f"{axis} {value:.2f}" for axis, value in health.judges.items())
        said.append(f"Krippendorff's alpha between opinions on one pair: {alphas} (0.8 is good, 0.67 tentative).")
    return Section("Labels", ("verdict", "pairs", "%"), rows, said)


def _second(health: TaskHealth) -> Section:
    second = health.second
    if second is None:
        return Section("")
    headings = ("first", *(f"then {name}" for name in (POSITIVE, BAND, NEGATIVE)))
    rows = [
        (first, *(f"{row[name]:,}" for name in (POSITIVE, BAND, NEGATIVE))) for first, row in second.confusion.items()
    ]
    said = [f"{100 * second.share:g}% of the pairs of each verdict were put to the same judges again."]
    if second.unread:
        said.append(f"{counted(second.unread, 'pair')} could not be judged again and are left out.")
    if second.stays:
        said.append(f"Of {second.stays.whole:,} positives {_percent(second.stays)} were positive again.")
    if second.joins:
        said.append(f"Of {second.joins.whole:,} others {_percent(second.joins)} were positive now.")
    known = {name: found.value for name, found in second.agreement.items() if found}
    names = {"raw": "raw agreement", "kappa": "kappa", "alpha-ordinal": "Krippendorff's alpha", "ac1": "Gwet's AC1"}
    if known:
        said.append("; ".join(f"{names[name]} {value:.2f}" for name, value in known.items()) + ".")
    return Section("Labels asked for again", headings, rows, said)


def _bias(found: Sequence[PoolBias]) -> Section:
    rows = [
        (
            each.system,
            f"{each.lost:,}",
            percent(each.whole),
            percent(each.left_out),
            percent(each.change.value, sign="+"),
            percent_range(each.change, sign="+"),
        )
        for each in found
    ]
    said = [
        f"{MEASURE} x 100 of each member by all labels, and by those that would be there had it not been asked: what a"
        " new system has against it. Questions that lose all their positives are left out of both.",
    ]
    headings = ("member", "found alone", "all labels", "left out", "change", "95% interval")
    return Section("Pool bias", headings, rows, said)


def _questions(health: TaskHealth) -> Section:
    leakage = health.leakage
    rows = [
        ("questions", f"{leakage.questions:,}"),
        ("repeat another", f"{len(leakage.repeated):,}"),
        ("share a positive with another", f"{leakage.sharing:,}"),
    ]
    rows += [("shared between dev and test", f"{len(leakage.across):,}")] if health.split else []
    said = [f"{later} repeats {earlier} ({how})." for later, earlier, how in leakage.repeated[:_LISTED]]
    said += [
        f"{one} and {other} lie in different splits and share a {what}." for one, other, what in leakage.across[:5]
    ]
    return Section("Leakage between questions", ("what", "number"), rows, said)


_LISTED = 5
"""So many questions that repeat others are named."""


def _gap(health: TaskHealth) -> Section:
    gap = health.gap
    if gap is None:
        return Section("")
    rows = []
    for pair in PAIRS:
        found = [side.get(pair) for side in (gap.overlap, gap.similarity)]
        texts = [(percent(each.value if each else None, 1), percent_range(each, 1)) for each in found]
        rows.append((pair, *chain.from_iterable(texts)))
    headings = ("compared", "overlap %", "95% interval", "cosine x 100", "its 95% interval")
    said = [f"{pair}: {meaning}." for pair, meaning in PAIRS.items()]
    return Section("Reasoning gap", headings, rows, said)


def _baselines(found: Sequence[Baseline]) -> Section:
    rows = [(each.system, _kind(each), percent(each.score.value), percent_range(each.score)) for each in found]
    said = ["Members of the committee are favoured: what they found was judged. The oracle searches with gold answers."]
    return Section(
        f"Baselines, {MEASURE} x 100", ("system", "kind", "score", "95% interval"), rows, said, words=("kind",)
    )


def _kind(each: Baseline) -> str:
    return "oracle" if each.oracle else "member" if each.member else "other"


def health_markdown(health: TaskHealth, level: int = 2) -> str:
    """Write the report as Markdown, a section below each heading of this level."""
    blocks = markdown_blocks(health_sections(health), [f"{note}." for note in health.notes], level)
    return "\n\n".join(blocks) + "\n"


def card_section(health: TaskHealth) -> str:
    """Write the section of the dataset card."""
    return f"{HEADING}\n\n{health_markdown(health, 3)}"


def refresh_card(folder: Path, health: TaskHealth) -> Path | None:
    """Replace the report's section of the card; None if the card no longer has such a section."""
    card = folder / CARD
    text = card.read_text("utf-8") if card.is_file() else ""
    before, found, rest = text.partition(f"\n{HEADING}\n")
    if not found:
        return None
    after = rest.partition("\n## ")
    new = "\n".join([before, card_section(health)]).rstrip() + "\n\n" + (f"## {after[2]}" if after[1] else "")
    write_file(card, new.encode("utf-8", "replace"))
    return card
