"""The health of a task in sentences and tables, the same on a terminal, as Markdown and in the dataset card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from r2med.formatting import counted
from r2med.measure.figure import Figure
from r2med.measure.population import CaughtShare
from r2med.store.files import write_file

CARD, HEADING = "README.md", "## Health"
_WORST = (POOR, DOUBTFUL, UNKNOWN)
"""Verdicts that are spoken of, the worst first."""
_OPENINGS: Mapping[str, str] = {
    SOUND: "Sound: every check passes.",
    RESERVED: "Usable with reservations, which a paper about it should state: {}.",
    UNREADY: "Not ready: {}.",
}


@dataclass(frozen=True)
class HealthSection:
    """A heading, a table below it and sentences below that."""

    title: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    sentences: Sequence[str] = ()

    @property
    def figures(self) -> list[bool]:
        """Return for each column whether it holds figures rather than words."""
        return [heading not in (self.headings[0], *_WORDS) for heading in self.headings]


_WORDS = ("verdict", "kind", "asks")
"""Columns that hold words."""


def health_sections(health: TaskHealth) -> list[HealthSection]:
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


def _verdict(health: TaskHealth) -> HealthSection:
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
    return HealthSection(
        f"Is {health.task} any good?", ("check", "figure", "95% interval", "verdict", "asks"), rows, said
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


def _finders(health: TaskHealth) -> HealthSection:
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
    return HealthSection("Who found the positives", ("member or view", "found", "%", "alone"), rows, said)


def _found(each: Finder) -> tuple[str, str, str]:
    return f"{each.found.part:,}", f"{100 * each.found.figure.value:.1f}", f"{each.alone:,}"


def _percent(found: CaughtShare) -> str:
    value, low, high = found.figure.percents
    return f"{value:.1f}% ({low:.1f} to {high:.1f})"


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


def _labels(health: TaskHealth) -> HealthSection:
    pairs = sum(health.verdicts.values())
    rows = [
        (name, f"{health.verdicts[name]:,}", f"{100 * health.verdicts[name] / pairs:.1f}")
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
    return HealthSection("Labels", ("verdict", "pairs", "%"), rows, said)


def _second(health: TaskHealth) -> HealthSection:
    second = health.second
    if second is None:
        return HealthSection("")
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
    return HealthSection("Labels asked for again", headings, rows, said)


def _bias(found: Sequence[PoolBias]) -> HealthSection:
    rows = [
        (
            each.system,
            f"{each.lost:,}",
            f"{100 * each.whole:.2f}",
            f"{100 * each.left_out:.2f}",
            _signed(each.change.value),
            " to ".join(_signed(end) for end in each.change.ends),
        )
        for each in found
    ]
    said = [
        f"{MEASURE} x 100 of each member by all labels, and by those that would be there had it not been asked: what a"
        " new system has against it. Questions that lose all their positives are left out of both.",
    ]
    headings = ("member", "found alone", "all labels", "left out", "change", "95% interval")
    return HealthSection("Pool bias", headings, rows, said)


def _signed(change: float) -> str:
    return f"{round(100 * change, 2) + 0.0:+.2f}"


def _questions(health: TaskHealth) -> HealthSection:
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
    return HealthSection("Leakage between questions", ("what", "number"), rows, said)


_LISTED = 5
"""So many questions that repeat others are named."""


def _gap(health: TaskHealth) -> HealthSection:
    gap = health.gap
    if gap is None:
        return HealthSection("")
    rows = [
        (pair, *(text for side in (gap.overlap, gap.similarity) for text in _mean(side.get(pair)))) for pair in PAIRS
    ]
    headings = ("compared", "overlap %", "95% interval", "cosine x 100", "its 95% interval")
    said = [f"{pair}: {meaning}." for pair, meaning in PAIRS.items()]
    return HealthSection("Reasoning gap", headings, rows, said)


def _mean(found: Figure | None) -> tuple[str, str]:
    if found is None:
        return "-", "-"
    return f"{100 * found.value:.1f}", " to ".join(f"{100 * end:.1f}" for end in found.ends)


def _baselines(found: Sequence[Baseline]) -> HealthSection:
    rows = [(each.system, _kind(each), f"{100 * each.score.value:.2f}", _interval(each.score)) for each in found]
    said = ["Members of the committee are favoured: what they found was judged. The oracle searches with gold answers."]
    return HealthSection(f"Baselines, {MEASURE} x 100", ("system", "kind", "score", "95% interval"), rows, said)


def _kind(each: Baseline) -> str:
    return "oracle" if each.oracle else "member" if each.member else "other"


def _interval(found: Figure) -> str:
    return " to ".join(f"{100 * end:.2f}" for end in found.ends)


def markdown_lines(health: TaskHealth, level: int = 2) -> Iterator[str]:
    """Yield the report as Markdown, a section below each heading of this level."""
    for section in health_sections(health):
        yield from (f"{'#' * level} {_plain(section.title)}", "")
        if section.rows:
            yield _row(section.headings)
            yield _row(["---:" if right else "---" for right in section.figures])
            yield from (_row([_plain(cell) for cell in row]) for row in section.rows)
            yield ""
        for sentence in section.sentences:
            yield from (_plain(sentence), "")
    for note in health.notes:
        yield from (f"Note: {_plain(note)}.", "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    for sign in "\\|*_<`":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def card_lines(health: TaskHealth) -> Iterator[str]:
    """Yield the section of the dataset card."""
    yield from (HEADING, "")
    yield from markdown_lines(health, 3)


def refresh_card(folder: Path, health: TaskHealth) -> Path | None:
    """Replace the report's section of the card; None if the card no longer has such a section."""
    card = folder / CARD
    text = card.read_text("utf-8") if card.is_file() else ""
    before, found, rest = text.partition(f"\n{HEADING}\n")
    if not found:
        return None
    after = rest.partition("\n## ")
    new = "\n".join([before, *card_lines(health)]).rstrip() + "\n\n" + (f"## {after[2]}" if after[1] else "")
    write_file(card, new.encode("utf-8", "replace"))
    return card
