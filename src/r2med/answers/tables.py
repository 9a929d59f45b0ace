"""Reports of studies as tables, sentences and charts, the same on a terminal, in Markdown, LaTeX and pages.

A figure that `effects` declares with `shown` is a column here, a value of `--json` and a line of its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from r2med.answers.effects import Counts, Grounding, InView, NuggetRecall, Paired, Quadrants
from r2med.answers.nuggets import RECALLS
from r2med.data.task_names import task_headings
from r2med.formatting import counted, p_text, p_words
from r2med.measure.significance import ALPHA, Difference
from r2med.render.charts.bars import FlowChart, FlowRow
from r2med.render.charts.chart import Chart
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint
from r2med.render.charts.scatter import Level, TrendChart, TrendPoint
from r2med.render.sections import Section
from r2med.render.table import Cell, Column, Number, column, interval, key, percent, signed_interval
from r2med.usage import Usage

if TYPE_CHECKING:
    from r2med.answers.report import ArmReport, RagReport
    from r2med.measure.figure import Figure

_SIGNALS: Mapping[str, str] = {
    "score": "score of the first passage",
    "gap": "gap between the first two scores",
    "agreement": "agreement of samples without passages",
}
_ARM = key("arm", get=attrgetter("arm.title"))


def _declared(kind: type, part: str) -> list[Column]:
    """Return the columns that a class of figures declares, read from a part of an arm's report."""
    return [
        column(field.name, field.metadata["heading"], field.metadata["form"], attrgetter(f"{part}.{field.name}"))
        for field in fields(kind)
        if field.metadata
    ]


def rag_sections(report: RagReport) -> list[Section]:
    """Build all sections of a study, in order."""
    sections = [_accuracy(report), *([_by_task(report)] if len(report.tasks) > 1 else [])]
    if with_nuggets := [arm for arm in report.arms if arm.nuggets is not None]:
        sections += _nuggets(report, with_nuggets)
    sections.append(_kinds(report))
    if compared := [arm for arm in report.arms if arm.paired is not None]:
        sections.append(_paired(compared))
    if with_passages := [arm for arm in report.arms if arm.quadrants is not None]:
        meaning = "Means over questions; tokens are counted as four letters each."
        sections.append(Section.of("What was in view", [_ARM, *_declared(InView, "in_view")], with_passages, [meaning]))
        sections += [_quadrants(with_passages), _grounding(with_passages)]
    if any(arm.way is not None for arm in report.arms):
        sections.append(_way(report))
    sections.append(_slopes(report))
    if any(arm.harm for arm in report.arms):
        sections.append(_harm(report))
    return sections


def _accuracy(report: RagReport) -> Section:
    def right(arm: ArmReport) -> Number:
        return _starred(percent(arm.accuracy and arm.accuracy.value), arm.counts)

    columns = [
        _ARM,
        column("right", form=lambda cell: cell, get=right),
        column("accuracy", "95% interval", interval),
        column("retrieval", report.measure, percent),
    ]
    sentences = _how(report)
    if any(arm.counts.undecided for arm in report.arms):
        columns.insert(2, column("decided", form=percent, get=attrgetter("counts.decided_share")))
        sentences.append("*: not all answers could be decided, as a share in %; the figure is of those that were.")
    return Section.of(f"Right answers in %, {_over(report)}, with 95% intervals", columns, report.arms, sentences)


def _over(report: RagReport) -> str:
    return f"mean over {len(report.tasks)} tasks" if len(report.tasks) > 1 else report.tasks[0]


def _starred(figure: Number, counts: Counts | None) -> Number:
    """Return a figure with a star if some of its answers could not be decided."""
    return Number(f"{figure.wide}*", f"{figure.narrow}*", figure.style) if counts and counts.undecided else figure


def _by_task(report: RagReport) -> Section:
    headings = task_headings(report.tasks)

    def cell(arm: ArmReport, task: str) -> Number:
        if (figure := arm.tasks.get(task)) is None:
            return _starred(Number("-", "-"), arm.task_counts.get(task))
        mean, low, high = figure.percents
        number = Number(f"{mean:.1f} ({low:.1f} to {high:.1f})", f"{mean:.0f} ({low:.0f}-{high:.0f})")
        return _starred(number, arm.task_counts.get(task))

    rows: list[list[Cell]] = [[arm.arm.title, *(cell(arm, task) for task in report.tasks)] for arm in report.arms]
    title = "Right answers in % by task, with 95% intervals"
    return Section(title, ("arm", *(headings[task] for task in report.tasks)), rows)


def _how(report: RagReport) -> list[str]:
    """Describe how the figures came about, in sentences."""
    facts, judge = report.settings, report.settings["judge"]
    samples = "1 sample" if facts["samples"] == 1 else f"{facts['samples']} samples"
    sentences = [
        f"{facts['llm']['name']}, {samples} a question, up to {facts['k']} passages cut to"
        f" {facts['budget']:,} tokens together, {facts['order']}.",
        f"Right: the answer has the words of the gold answer, or {judge['name']} says that it means the same."
        if judge
        else "Right: the answer has the words of the gold answer. Without --judge this is a lower bound.",
    ]
    if any(arm.arm.oracle for arm in report.arms):
        sentences.append(
            "Oracle arms are chosen by the judgements, which no system sees: they are limits, not systems."
        )
    if any(arm.accuracy and arm.accuracy.ends[1] - arm.accuracy.ends[0] < 1e-9 for arm in report.arms):
        sentences.append("An interval without width means that all answers fared alike, not that there is no doubt.")
    if judge:
        sentences.append("A judge errs: its errors make differences between arms look smaller than they are.")
    return sentences


_MAIN_RECALLS = ("strict_vital", "strict_all", "lenient_all")  # those with intervals in tables; JSON has all


def _nuggets(report: RagReport, arms: Sequence[ArmReport]) -> list[Section]:
    """Build the tables of nuggets: recall of every kind, then intervals and what passages changed."""

    def recall(arm: ArmReport, kind: str) -> Number:
        figure, lost = (arm.nuggets.recall[kind], arm.nuggets.unread) if arm.nuggets else (None, 0)
        number = percent(figure and figure.value)
        return Number(f"{number.wide}*", f"{number.narrow}*") if lost else number

    names = {kind: kind.replace("_", " ") for kind in RECALLS}
    columns = [
        _ARM,
        *(column(kind, name, lambda cell: cell, partial(recall, kind=kind)) for kind, name in names.items()),
    ]
    counts = [arm.nuggets for arm in arms if arm.nuggets]
    unread, answers = sum(part.unread for part in counts), sum(part.answers for part in counts)
    without = max(part.without for part in counts)
    sentences = [
        "Recall: the share of the facts of a good answer that an answer holds, the mean over questions.",
        "Strict: what is said in part counts 0; lenient: one half. Weighted: an okay fact counts half a vital one.",
    ]
    if unread:
        columns += _declared(NuggetRecall, "nuggets")
        share = f"{unread:,} of {answers:,} answers ({100 * unread / answers:.1f}%)"
        sentences.append(f"*: without the labels of {share} that could not be read; the figure is of the others.")
    if without:
        sentences.append(f"Left out: {counted(without, 'question')} without nuggets.")
    rows = [
        (f"{arm.arm.title}: {name}", percent(figure.value), interval(figure), *_changes(arm.nuggets.differences[kind]))
        for arm in arms
        for kind, name in names.items()
        if kind in _MAIN_RECALLS and arm.nuggets and (figure := arm.nuggets.recall[kind])
    ]
    headings = ("arm and nuggets", "recall", "95% interval", "change", "95% interval", "p")
    meaning = "Change: against the same questions without passages, where both have a recall (randomisation test)."
    return [
        Section.of(f"Nuggets in answers, recall in %, {_over(report)}", columns, arms, sentences),
        Section("Recall of nuggets in %, and what passages change", headings, rows, [meaning]),
    ]


def _changes(change: Difference | None) -> tuple[Cell, Cell, Cell]:
    if change is None:
        return "-", "-", "-"
    return percent(change.mean, sign="+"), signed_interval(change), p_text(change.randomisation)


def _kinds(report: RagReport) -> Section:
    lost, asked = (sum(getattr(arm.counts, name) for arm in report.arms) for name in ("undecided", "asked"))
    used = sum((usage for arm in report.arms for usage in (arm.account, arm.judge_account)), Usage())
    price = "?" if used.cost is None else f"${used.cost:,.4f}"
    sentences = [
        *([f"{lost:,} of {asked:,} answers could not be decided: the figures are of the rest."] if lost else []),
        "Unparsable replies, unread verdicts and failed requests count in no accuracy; whoever abstains is not right.",
        f"It took {used.requests:,} requests, {used.tokens:,} tokens and {price} to make them, kept replies included.",
    ]
    total = column("asked", form="{:,}".format, get=attrgetter("counts.asked"))
    columns = [_ARM, total, *_declared(Counts, "counts")]
    return Section.of("What became of every answer", columns, report.arms, sentences)


def _paired(arms: Sequence[ArmReport]) -> Section:
    def change(arm: ArmReport) -> Number:
        return _starred(percent(arm.paired.difference.mean if arm.paired else None, sign="+"), arm.counts)

    columns = [
        _ARM,
        *_declared(Paired, "paired"),
        column("change", form=lambda cell: cell, get=change),
        column("interval", "95% interval", signed_interval, attrgetter("paired.difference")),
        column("p", form=p_text, get=attrgetter("paired.difference.randomisation")),
    ]
    sentences = [_describe_change(arm.arm.title, arm.paired) for arm in arms if arm.arm.retrieves and arm.paired]
    return Section.of("Against the same questions without passages", columns, arms, sentences)


def _describe_change(title: str, paired: Paired) -> str:
    """Describe what a system's passages did, in a sentence that says so if they did nothing."""
    change = paired.difference
    asked = paired.fixed + paired.broken + paired.both_right + paired.both_wrong
    fixed, broken = (f"{100 * count / asked:.1f}%" for count in (paired.fixed, paired.broken))
    verdict = "it helps" if change.mean > 0 else "it harms"
    verdict = verdict if change.randomisation < ALPHA else "no difference is shown"
    return (
        f"{title} fixes {fixed} of answers and breaks {broken}: {verdict} ({p_words(change.randomisation)},"
        f" randomisation test); a perfect choice between with and without would add {100 * paired.switch:.1f} points."
    )


def _quadrants(arms: Sequence[ArmReport]) -> Section:
    def share_right(side: str) -> Callable[[ArmReport], float | None]:
        counts = attrgetter(f"quadrants.{side}_right", f"quadrants.{side}_wrong")
        return lambda arm: counts(arm)[0] / sum(counts(arm)) if sum(counts(arm)) else None

    columns = [
        _ARM,
        *_declared(Quadrants, "quadrants"),
        column("with", "right with %", percent, share_right("evidence")),
        column("without", "right without %", percent, share_right("no_evidence")),
    ]
    sentence = "Evidence: a passage in view is relevant by the judgements."
    return Section.of("Was the evidence in view, and was the answer right?", columns, arms, [sentence])


def _grounding(arms: Sequence[ArmReport]) -> Section:
    cited = sum(arm.grounding.citations for arm in arms)
    relevant = sum(arm.grounding.relevant_citations for arm in arms)
    unseen = f"{sum(arm.grounding.not_shown for arm in arms):,} of passages that were not shown"
    sentence = f"Of {cited:,} citations, {relevant:,} are of relevant passages and {unseen}."
    return Section.of("What the answers rest on", [_ARM, *_declared(Grounding, "grounding")], arms, [sentence])


def _way(report: RagReport) -> Section:
    ways = [(arm.arm.title, arm.way) for arm in report.arms if arm.way is not None]
    rows = [(title, *_cells(way.share, "{:.0f}", 100)) for title, way in ways]
    reasons = dict.fromkeys(f"Not defined: {way.undefined}." for _, way in ways if way.undefined)
    meaning = "0 is closed, 100 is gold; below 0, passages make it worse than none."
    title = "Share of the way from closed to gold, in %"
    return Section(title, ("arm", "share", "95% interval"), rows, [meaning, *reasons])


def _slopes(report: RagReport) -> Section:
    slopes = {"over systems": report.over_systems, "within questions": report.within_queries}
    rows = [(name, f"{slope.points}", *_cells(slope.rise, "{:+.2f}", 10)) for name, slope in slopes.items()]
    title = f"Points of right answers for 10 points of {report.measure}"
    meaning = "The slope of accuracy on retrieval: over the means of systems, and over systems within each question."
    few = "It takes two systems at least; name more of them."
    sentences = [meaning] if sum(arm.arm.is_system for arm in report.arms) > 1 else [meaning, few]
    return Section(title, ("slope", "points", "rise", "95% interval"), rows, sentences)


def _harm(report: RagReport) -> Section:
    named = [(f"{a.arm.title}: {_SIGNALS[signal]}", harm) for a in report.arms for signal, harm in a.harm.items()]
    rows = [(name, f"{harm.events:,}", f"{harm.others:,}", *_cells(harm.auc, "{:.2f}")) for name, harm in named]
    sentences = [
        "AUC: how often the value is lower for a broken answer than for one that stays right; 0.50 tells nothing.",
        "Counted over questions that are right without passages; pairs are formed within tasks.",
    ]
    title = "Can one know beforehand that passages will break an answer?"
    return Section(title, ("arm and signal", "broken", "kept", "AUC", "95% interval"), rows, sentences)


def _cells(figure: Figure | None, form: str, times: int = 1) -> tuple[str, str]:
    """Format a figure and the ends of its interval; dashes for what is missing."""
    if figure is None:
        return "-", "-"
    ends = "-" if figure.low is None else " to ".join(form.format(times * end) for end in figure.ends)
    return form.format(times * figure.value), ends


def rag_charts(report: RagReport) -> dict[str, Chart]:
    """Return the charts of a study by name, those that can be drawn; oracles are hollow."""
    points = []
    for arm in report.arms:
        if arm.accuracy is not None:
            form = ("diamond", False, "soft") if arm.arm.oracle else ("square" if arm.arm.kind == "closed" else "disc",)
            points.append(ChartPoint(arm.arm.title, *arm.accuracy.percents, *form))
    axis = f"right answers in %, {_over(report)}, 95% interval; hollow: oracle"
    charts: dict[str, Chart] = {"arms": DotChart("Right answers by arm", axis, points)}
    flows = [
        FlowRow(arm.arm.title, (arm.paired.both_right, arm.paired.broken, arm.paired.fixed, arm.paired.both_wrong))
        for arm in report.arms
        if arm.paired is not None
    ]
    if flows:
        axis = "left: answers without passages, right: with them"
        charts["flows"] = FlowChart("What passages fix and break", axis, flows)
    placed = [(arm, arm.accuracy.percents) for arm in report.arms if arm.arm.is_system and arm.accuracy]
    if len(placed) > 1:
        trend = [
            TrendPoint(arm.arm.title, number, 100 * (arm.retrieval or 0.0), *accuracy)
            for number, (arm, accuracy) in enumerate(placed, 1)
        ]
        limits = [arm for arm in report.arms if arm.arm.kind in ("closed", "gold")]
        levels = [Level(arm.arm.title, 100 * arm.accuracy.value) for arm in limits if arm.accuracy]
        title, rise = f"Right answers against {report.measure}", report.over_systems.rise
        axes = (f"{report.measure} x 100", "right answers in %")
        charts["retrieval"] = TrendChart(title, *axes, trend, levels, rise.value if rise else None)
    return charts
