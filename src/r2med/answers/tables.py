"""Reports of studies as tables and sentences, the same on a terminal, in Markdown, LaTeX and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from r2med import formatting
from r2med.data.task_names import task_headings
from r2med.formatting import p_text, p_words, percent_range
from r2med.measure.significance import ALPHA
from r2med.render.sections import Section, latex_sections, markdown_sections, show_sections
from r2med.render.table import Cell, Number, interval, percent

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.answers.effects import Counts
    from r2med.answers.report import ArmReport, RagReport
    from r2med.measure.correlation import Slope
    from r2med.measure.figure import Figure

_SIGNALS: Mapping[str, str] = {
    "score": "score of the first passage",
    "gap": "gap between the first two scores",
    "agreement": "agreement of samples without passages",
}


def rag_sections(report: RagReport) -> list[Section]:
    """Build all sections of a study, in order."""
    found = [_accuracy(report), *([_by_task(report)] if len(report.tasks) > 1 else []), _kinds(report)]
    compared = [arm for arm in report.arms if arm.paired is not None]
    if compared:
        found.append(_paired(compared))
    with_passages = [arm for arm in report.arms if arm.quadrants is not None]
    if with_passages:
        found += [_in_view(with_passages), _quadrants(with_passages), _grounding(with_passages)]
    if any(arm.way is not None for arm in report.arms):
        found.append(_way(report))
    found.append(_slopes(report))
    if any(arm.harm for arm in report.arms):
        found.append(_harm(report))
    return found


def _accuracy(report: RagReport) -> Section:
    lacking = any(arm.counts.undecided for arm in report.arms)
    rows: list[list[Cell]] = [
        [
            arm.arm.title,
            _starred(_mean(arm.accuracy), arm.counts),
            *([percent(arm.counts.decided_share)] if lacking else []),
            interval(arm.accuracy),
            percent(arm.retrieval),
        ]
        for arm in report.arms
    ]
    over = f"mean over {len(report.tasks)} tasks" if len(report.tasks) > 1 else report.tasks[0]
    title = f"Right answers in %, {over}, with 95% intervals"
    headings = ("arm", "right", *(["decided"] if lacking else []), "95% interval", report.measure)
    return Section(title, headings, rows, [*_how(report), *([_STAR] if lacking else [])])


_STAR = "*: not all answers could be decided, as a share in %; the figure is of those that were."


def _starred(figure: Number, counts: Counts | None) -> Number:
    """Return a figure with a star if some of its answers could not be decided."""
    return Number(f"{figure.wide}*", f"{figure.narrow}*", figure.style) if counts and counts.undecided else figure


def _by_task(report: RagReport) -> Section:
    headings = task_headings(report.tasks)
    rows: list[list[Cell]] = [
        [arm.arm.title, *(_starred(_with_ends(arm.tasks.get(t)), arm.task_counts.get(t)) for t in report.tasks)]
        for arm in report.arms
    ]
    title = "Right answers in % by task, with 95% intervals"
    return Section(title, ("arm", *(headings[task] for task in report.tasks)), rows)


def _with_ends(found: Figure | None) -> Number:
    if found is None:
        return Number("-", "-")
    mean, low, high = found.percents
    return Number(f"{mean:.1f} ({low:.1f} to {high:.1f})", f"{mean:.0f} ({low:.0f}-{high:.0f})")


def _how(report: RagReport) -> list[str]:
    """Describe how the figures came about, in sentences."""
    facts = report.settings
    judge = facts["judge"]
    decided = (
        f"Right: the answer has the words of the gold answer, or {judge['name']} says that it means the same."
        if judge
        else "Right: the answer has the words of the gold answer. Without --judge this is a lower bound."
    )
    oracles = any(arm.arm.oracle for arm in report.arms)
    flat = any(arm.accuracy and arm.accuracy.ends[1] - arm.accuracy.ends[0] < 1e-9 for arm in report.arms)
    further = {
        "Oracle arms are chosen by the judgements, which no system sees: they are limits, not systems.": oracles,
        "An interval without width means that all answers fared alike, not that there is no doubt.": flat,
        "A judge errs: its errors make differences between arms look smaller than they are.": bool(judge),
    }
    asked = (
        f"{facts['llm']['name']}, {_times(facts['samples'])} a question, up to {facts['k']} passages cut to"
        f" {facts['budget']:,} tokens together, {facts['order']}."
    )
    return [asked, decided, *(sentence for sentence, needed in further.items() if needed)]


def _times(samples: int) -> str:
    return "1 sample" if samples == 1 else f"{samples} samples"


def _kinds(report: RagReport) -> Section:
    headings = ("arm", "asked", "right", "wrong", "abstained", "unparsable", "unjudged", "failed", "exact", "contained")
    names = headings[1:]
    rows = [[arm.arm.title, *(f"{getattr(arm.counts, name):,}" for name in names)] for arm in report.arms]
    lost = sum(arm.counts.undecided for arm in report.arms)
    asked = sum(arm.counts.asked for arm in report.arms)
    said = [
        *([f"{lost:,} of {asked:,} answers could not be decided: the figures are of the rest."] if lost else []),
        "Unparsable replies, unread verdicts and failed requests count in no accuracy; whoever abstains is not right.",
        *_bill(report),
    ]
    return Section("What became of every answer", headings, rows, said)


def _in_view(arms: list[ArmReport]) -> Section:
    rows: list[list[Cell]] = [
        [arm.arm.title, f"{arm.passages:.1f}", f"{arm.tokens:,.0f}", f"{arm.cut:,}"] for arm in arms
    ]
    said = "Means over questions; tokens are counted as four letters each."
    return Section("What was in view", ("arm", "passages", "tokens", "cut by the budget"), rows, [said])


def _bill(report: RagReport) -> list[str]:
    accounts = [account for arm in report.arms for account in (arm.account, arm.judge_account)]
    tokens = sum(account.prompt_tokens + account.completion_tokens for account in accounts)
    costs = [account.cost for account in accounts]
    dollars = "?" if None in costs else f"${sum(cost for cost in costs if cost is not None):,.4f}"
    requests = sum(account.requests for account in accounts)
    return [f"It took {requests:,} requests, {tokens:,} tokens and {dollars} to make them, kept replies included."]


def _paired(arms: list[ArmReport]) -> Section:
    headings = ("arm", "fixed", "broken", "both right", "both wrong", "change", "95% interval", "p")
    rows: list[list[Cell]] = []
    for arm in arms:
        if arm.paired is not None:
            found, change = arm.paired, arm.paired.difference
            counts = [found.fixed, found.broken, found.both_right, found.both_wrong]
            ends = interval(change, "+")
            mean = _starred(percent(change.mean, sign="+"), arm.counts)
            rows.append([arm.arm.title, *(f"{n:,}" for n in counts), mean, ends, p_text(change.randomisation)])
    said = [_changed(arm) for arm in arms if arm.arm.retrieves]
    return Section("Against the same questions without passages", headings, rows, said)


def _changed(arm: ArmReport) -> str:
    """Describe what a system's passages did, in a sentence that says so if they did nothing."""
    if arm.paired is None:
        raise TypeError(f"{arm.arm.label} was compared with nothing")
    found, change = arm.paired, arm.paired.difference
    asked = found.fixed + found.broken + found.both_right + found.both_wrong
    fixed, broken = (f"{100 * count / asked:.1f}%" for count in (found.fixed, found.broken))
    sure = change.randomisation < ALPHA
    verdict = ("it helps" if change.mean > 0 else "it harms") if sure else "no difference is shown"
    return (
        f"{arm.arm.title} fixes {fixed} of answers and breaks {broken}: {verdict} ({p_words(change.randomisation)},"
        f" randomisation test); a perfect choice between with and without would add {100 * found.switch:.1f} points."
    )


def _quadrants(arms: list[ArmReport]) -> Section:
    headings = (
        "arm",
        "evidence, right",
        "evidence, wrong",
        "none, right",
        "none, wrong",
        "right with %",
        "right without %",
    )
    rows: list[list[Cell]] = []
    for arm in arms:
        if arm.quadrants is not None:
            q = arm.quadrants
            shares = (_share(q.evidence_right, q.evidence_wrong), _share(q.no_evidence_right, q.no_evidence_wrong))
            counts = (q.evidence_right, q.evidence_wrong, q.no_evidence_right, q.no_evidence_wrong)
            rows.append([arm.arm.title, *(f"{n:,}" for n in counts), *shares])
    said = ["Evidence: a passage in view is relevant by the judgements."]
    return Section("Was the evidence in view, and was the answer right?", headings, rows, said)


def _share(part: int, rest: int) -> Number:
    return percent(part / (part + rest) if part + rest else None)


def _grounding(arms: list[ArmReport]) -> Section:
    headings = (
        "arm",
        "answers",
        "cite",
        "cite relevant",
        "right and cite relevant",
        "no evidence in view",
        "cite unseen",
    )
    rows: list[list[Cell]] = []
    for arm in arms:
        g = arm.grounding
        counts = (g.answers, g.cited, g.cited_relevant, g.right_cited_relevant, g.no_evidence, g.not_shown)
        rows.append([arm.arm.title, *(f"{n:,}" for n in counts)])
    cited, relevant, unseen = (
        sum(getattr(arm.grounding, name) for arm in arms) for name in ("citations", "relevant_citations", "not_shown")
    )
    said = [
        f"Of {cited:,} citations, {relevant:,} are of relevant passages and {unseen:,} of passages that were not shown."
    ]
    return Section("What the answers rest on", headings, rows, said)


def _way(report: RagReport) -> Section:
    rows: list[list[Cell]] = []
    reasons: dict[str, None] = {}
    for arm in report.arms:
        if arm.way is not None:
            way = arm.way
            rows.append([arm.arm.title, formatting.percent(way.share, 0), percent_range(way, 0)])
            if way.undefined:
                reasons[f"Not defined: {way.undefined}."] = None
    meaning = "0 is closed, 100 is gold; below 0, passages make it worse than none."
    return Section(
        "Share of the way from closed to gold, in %", ("arm", "share", "95% interval"), rows, [meaning, *reasons]
    )


def _slopes(report: RagReport) -> Section:
    systems = sum(arm.arm.retrieves and not arm.arm.oracle for arm in report.arms)
    rows: list[list[Cell]] = [
        ["over systems", f"{report.over_systems.points}", *_slope_cells(report.over_systems)],
        ["within questions", f"{report.within_queries.points}", *_slope_cells(report.within_queries)],
    ]
    title = f"Points of right answers for 10 points of {report.measure}"
    said = "The slope of accuracy on retrieval: over the means of systems, and over systems within each question."
    few = [] if systems > 1 else ["It takes two systems at least; name more of them."]
    return Section(title, ("slope", "points", "rise", "95% interval"), rows, [said, *few])


def _slope_cells(slope: Slope) -> list[Cell]:
    if slope.rise is None:
        return ["-", "-"]
    ends = "-" if slope.rise.low is None else " to ".join(f"{10 * end:+.2f}" for end in slope.rise.ends)
    return [f"{10 * slope.rise.value:+.2f}", ends]


def _harm(report: RagReport) -> Section:
    rows: list[list[Cell]] = []
    for arm in report.arms:
        for signal, found in arm.harm.items():
            auc = "-" if found.auc is None else f"{found.auc.value:.2f}"
            known = found.auc and found.auc.low is not None
            ends = " to ".join(f"{end:.2f}" for end in found.auc.ends) if found.auc and known else "-"
            rows.append([f"{arm.arm.title}: {_SIGNALS[signal]}", f"{found.events:,}", f"{found.others:,}", auc, ends])
    said = [
        "AUC: how often the value is lower for a broken answer than for one that stays right; 0.50 tells nothing.",
        "Counted over questions that are right without passages; pairs are formed within tasks.",
    ]
    title = "Can one know beforehand that passages will break an answer?"
    return Section(title, ("arm and signal", "broken", "kept", "AUC", "95% interval"), rows, said)


def _mean(found: Figure | None) -> Number:
    return percent(None if found is None else found.value)


def show_rag(report: RagReport, console: Console) -> None:
    """Print a study."""
    show_sections(rag_sections(report), console)


def _markdown(report: RagReport) -> str:
    title = f"Answers of {report.settings['llm']['name']} with and without passages"
    return markdown_sections(title, rag_sections(report), report.notes)


RAG_FORMATS: Mapping[str, Callable[[RagReport], str]] = {
    "md": _markdown,
    "latex": lambda report: latex_sections(rag_sections(report)),
}
"""How a study is written but on a terminal."""
