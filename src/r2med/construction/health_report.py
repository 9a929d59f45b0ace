"""The health of a task in sentences and tables, the same on a terminal, as Markdown and in the dataset card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from r2med.construction.health import DOUBTFUL, GOOD, MEASURE, POOR, RESERVED, SOUND, UNKNOWN, UNREADY, TaskHealth
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, UNJUDGED
from r2med.diagnosis.gap import PAIRS
from r2med.formatting import counted, percent, percent_range
from r2med.measure.population import CaughtShare
from r2med.render.sections import Section, markdown_blocks
from r2med.store.files import write_file

CARD, HEADING = "README.md", "## Health"
_VERDICTS = (POSITIVE, BAND, NEGATIVE)
_OPENINGS: Mapping[str, str] = {
    SOUND: "Sound: every check passes.",
    RESERVED: "Usable with reservations, which a paper about it should state: {}.",
    UNREADY: "Not ready: {}.",
}


def health_sections(health: TaskHealth) -> list[Section]:
    """Return all sections on a task's health, the verdict first."""
    return [_verdict(health), *_pool_sections(health), *_label_sections(health), *_task_sections(health)]


def _verdict(health: TaskHealth) -> Section:
    rows = []
    for finding in health.findings:
        rule, figure = finding.rule, finding.figure
        value, ends = "?", "-"
        if figure is not None:
            value = f"{rule.bound} {_written(figure.value, rule.unit)}".lstrip()
            if figure.low is not None and figure.high is not None:
                ends = f"{_written(figure.low, rule.unit)} to {_written(figure.high, rule.unit)}"
        rows.append((rule.name, value, ends, finding.verdict.upper(), rule.asks))
    flaws = [
        finding for verdict in (POOR, DOUBTFUL, UNKNOWN) for finding in health.findings if finding.verdict == verdict
    ]
    listed = ", ".join(f"{flaw.rule.name} ({flaw.verdict})" for flaw in flaws)
    sentences = [_OPENINGS[health.verdict].format(listed)]
    sentences += [f"{f.rule.name}: {f.rule.why}." for f in health.findings if f.verdict != GOOD]
    sentences.append(describe_judges(health))
    if not health.measured:
        sentences.append("What needs systems to be run or judges to be asked is unknown before: r2med build check")
    headings = ("check", "figure", "95% interval", "verdict", "asks")
    return Section(f"Is {health.task} any good?", headings, rows, sentences, words=("verdict", "asks"))


def describe_judges(health: TaskHealth) -> str:
    """Return a sentence on who gave the labels, and how far people agree."""
    if not health.people:
        return "Labels were proposed by language models; no expert has checked them."
    pairs = sum(health.verdicts.values())
    twice = f"{health.by_two:,} of them by two or more"
    if (alpha := min(health.judges.values(), default=None)) is not None:
        twice += f" (Krippendorff's alpha {alpha:.2f})"
    labelled = f"{pairs - health.verdicts.get(UNJUDGED, 0):,} of {counted(pairs, 'pair')}"
    who = f"{counted(len(health.people), 'person', 'people')} ({', '.join(health.people)})"
    return f"Labels were given by {who}, who read the gold answer: {labelled}, {twice}."


def _written(value: float, unit: str) -> str:
    # Nothing is not less than nothing: a minus before 0.0 would be read as one.
    rounded = round(value, 0 if unit == "count" else 3) + 0.0
    return f"{rounded:,.0f}" if unit == "count" else f"{100 * rounded:.1f}{'%' if unit == 'percent' else ''}"


def _percent(caught: CaughtShare) -> str:
    return f"{percent(caught.figure.value, 1)}% ({percent_range(caught.figure, 1)})"


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


def _pool_sections(health: TaskHealth) -> Iterator[Section]:
    coverage, biases = health.coverage, health.bias
    finders = [(member.name, member) for member in coverage.members]
    finders += [(f"view: {view.name}", view) for view in coverage.views]
    rows = [(name, f"{f.found.part:,}", percent(f.found.figure.value, 1), f"{f.alone:,}") for name, f in finders]
    sentences = [
        f"Of {counted(coverage.positives, 'positive')}: what each member of the committee, and each view, would have"
        " found alone, and what no other member or view found.",
        *_missed(health),
    ]
    if sources := coverage.sources:
        sentences.append(
            f"Of {sources.whole:,} positives from the known sources of questions the committee found {sources.part:,}:"
            f" {_percent(sources)}. This needs no assumption about its members."
        )
    yield Section("Who found the positives", ("member or view", "found", "%", "alone"), rows, sentences)
    if biases:
        sentences = [
            f"{MEASURE} x 100 of each member by all labels, and by those that would be there had it not been asked:"
            " what a new system has against it. Questions that lose all their positives are left out of both.",
        ]
        headings = ("member", "found alone", "all labels", "left out", "change", "95% interval")
        scores = [(percent(bias.whole), percent(bias.left_out)) for bias in biases]
        changes = [(percent(bias.change.value, sign="+"), percent_range(bias.change, sign="+")) for bias in biases]
        lost = zip(biases, scores, changes, strict=True)
        cells = [(bias.system, f"{bias.lost:,}", *pair, *change) for bias, pair, change in lost]
        yield Section("Pool bias", headings, cells, sentences)


def _label_sections(health: TaskHealth) -> Iterator[Section]:
    pairs, cuts, second = sum(health.verdicts.values()), health.cuts, health.second
    counts = [(name, health.verdicts[name]) for name in (*_VERDICTS, UNJUDGED) if name in health.verdicts]
    sentences = [
        f"Positive from {cuts['answers']:g} on the axis answers and {cuts['supports']:g} on supports; band from"
        f" {cuts['band_answers']:g} and {cuts['band_supports']:g}."
    ]
    if health.people:
        sentences = [f"Positive from a mean grade of {cuts['answers']:g} on; band from {cuts['band_answers']:g}."]
    if sum(health.quotes.values()):
        states = ", ".join(f"{number:,} {name}" for name, number in health.quotes.items())
        sentences.append(f"Quotes of the opinions on positives: {states}.")
    if health.judges and not health.people:
        alphas = ", ".join(f"{axis} {value:.2f}" for axis, value in health.judges.items())
        sentences.append(f"Krippendorff's alpha between opinions on one pair: {alphas} (0.8 is good, 0.67 tentative).")
    rows = [(name, f"{count:,}", percent(count / pairs, 1)) for name, count in counts]
    yield Section("Labels", ("verdict", "pairs", "%"), rows, sentences)
    if second is None:
        return
    sentences = [f"{100 * second.share:g}% of the pairs of each verdict were put to the same judges again."]
    if second.unread:
        sentences.append(f"{counted(second.unread, 'pair')} could not be judged again and are left out.")
    if stays := second.kept_positive:
        sentences.append(f"Of {stays.whole:,} positives {_percent(stays)} were positive again.")
    if others := second.became_positive:
        sentences.append(f"Of {others.whole:,} others {_percent(others)} were positive now.")
    names = {"raw": "raw agreement", "kappa": "kappa", "alpha-ordinal": "Krippendorff's alpha", "ac1": "Gwet's AC1"}
    agreement = [f"{names[name]} {figure.value:.2f}" for name, figure in second.agreement.items() if figure]
    sentences += ["; ".join(agreement) + "."] if agreement else []
    headings = ("first", *(f"then {name}" for name in _VERDICTS))
    confusion = [(first, *(f"{row[name]:,}" for name in _VERDICTS)) for first, row in second.confusion.items()]
    yield Section("Labels asked for again", headings, confusion, sentences)


def _task_sections(health: TaskHealth) -> Iterator[Section]:
    leakage, gap = health.leakage, health.gap
    numbers = {
        "questions": leakage.questions,
        "repeat another": len(leakage.repeated),
        "share a positive with another": leakage.sharing,
        **({"shared between dev and test": len(leakage.across)} if health.split else {}),
    }
    sentences = [f"{later} repeats {earlier} ({how})." for later, earlier, how in leakage.repeated[:5]]
    shared = leakage.across[:5]
    sentences += [f"{one} and {other} lie in different splits and share a {what}." for one, other, what in shared]
    rows = [(what, f"{number:,}") for what, number in numbers.items()]
    yield Section("Leakage between questions", ("what", "number"), rows, sentences)
    if gap:
        figures = {pair: [side.get(pair) for side in (gap.overlap, gap.similarity)] for pair in PAIRS}
        texts = {p: [(percent(f.value if f else None, 1), percent_range(f, 1)) for f in figures[p]] for p in PAIRS}
        headings = ("compared", "overlap %", "95% interval", "cosine x 100", "its 95% interval")
        sentences = [f"{pair}: {meaning}." for pair, meaning in PAIRS.items()]
        yield Section("Reasoning gap", headings, [(p, *chain(*texts[p])) for p in PAIRS], sentences)
    if health.baselines:
        kinds = ["oracle" if base.oracle else "member" if base.member else "other" for base in health.baselines]
        cells = [
            (base.system, kind, percent(base.score.value), percent_range(base.score))
            for base, kind in zip(health.baselines, kinds, strict=True)
        ]
        sentences = [
            "Members of the committee are favoured: what they found was judged. The oracle searches with gold answers."
        ]
        columns = ("system", "kind", "score", "95% interval")
        yield Section(f"Baselines, {MEASURE} x 100", columns, cells, sentences, words=("kind",))


def health_markdown(health: TaskHealth, level: int = 2) -> str:
    """Write the report as Markdown, a section below each heading of this level."""
    return "\n\n".join(markdown_blocks(health_sections(health), [f"{n}." for n in health.notes], level)) + "\n"


def card_section(health: TaskHealth) -> str:
    """Write the section of the dataset card."""
    return f"{HEADING}\n\n{health_markdown(health, 3)}"


def refresh_card(folder: Path, health: TaskHealth) -> Path | None:
    """Replace the report's section of the card; None if the card no longer has such a section."""
    card = folder / CARD
    text = card.read_text("utf-8") if card.is_file() else ""
    before, heading, rest = text.partition(f"\n{HEADING}\n")
    if not heading:
        return None
    _, mark, after = rest.partition("\n## ")
    new = f"{before}\n{card_section(health)}".rstrip() + "\n\n" + (f"## {after}" if mark else "")
    write_file(card, new.encode("utf-8", "replace"))
    return card
