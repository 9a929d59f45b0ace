"""Diagnoses as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.data.task_names import task_names
from r2med.diagnosis.causes import LEVELS, Cause, changes, moves, overall
from r2med.diagnosis.complement import summed
from r2med.diagnosis.gap import PAIRS
from r2med.formatting import p_text, percent
from r2med.render.table import Cell, Column, Number, Table, key, numbers
from r2med.render.table import percent as percent_cell
from r2med.runs.report import failure_lines
from r2med.tuning.frontier import COSTS, frontier, left_out

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.diagnosis.causes import Diagnosis
    from r2med.diagnosis.complement import Complementarity
    from r2med.diagnosis.coverage import Coverage
    from r2med.diagnosis.gap import Ceiling, Climb, Gap
    from r2med.diagnosis.slices import Slice
    from r2med.diagnosis.truncation import LengthFigure, Sensitivity
    from r2med.measure.figure import Figure
    from r2med.measure.significance import Difference
    from r2med.tuning.frontier import Priced

_MOVES = 6
"""Changes between causes that are listed, the most frequent."""


def _grid(first: str, *others: str) -> Table:
    return Table(key(first), *numbers(*others))


def _texts(*headings: str) -> list[Column]:
    return [Column(heading, folds=True) for heading in headings]


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style)


def _between(found: Figure, sign: str = "") -> str:
    return " to ".join(f"{100 * end:{sign}.1f}" for end in found.ends)


def _no_interval(_: Figure, __: str = "") -> str:
    return "-"


def show_one(found: Diagnosis, console: Console) -> None:
    """Print the causes of one system on one task."""
    show_causes([found], console)


def show_causes(found: Sequence[Diagnosis], console: Console) -> None:
    """Print the shares of one system, of queries and of relevant documents: tasks down, causes across."""
    used = [cause for cause in Cause if any(each.shares("documents")[cause] for each in found)]
    names = task_names(each.task for each in found)
    for of, meaning in LEVELS.items():
        _say(console, f"{found[0].system}: causes in % {meaning}", "bold")
        table = _grid("task", "queries", "deep", *(cause.value for cause in used))
        for each in found:
            shares = each.shares(of)
            sizes = (str(len(each.queries)), str(each.deep))
            table.add(names[each.task], *sizes, *(percent(shares[cause], 1) for cause in used))
        if len(found) > 1:
            table.rule()
            total = overall(found, of)
            queries = str(sum(len(each.queries) for each in found))
            table.add("all tasks", queries, "", *(percent(total[cause].value, 1) for cause in used), style="bold")
            table.add("95% interval", "", "", *(_between(total[cause]) for cause in used), style="dim")
        table.show(console)
    _explain(found, used, console)


def _explain(found: Sequence[Diagnosis], used: Sequence[Cause], console: Console) -> None:
    for cause in used:
        _say(console, f"{cause.value}: {cause.meaning}", "dim")
    _say(
        console,
        "deep: what stands deeper counts as not found (100, a fifth of the documents where they are few)",
        "dim",
    )
    for sentence in dict.fromkeys(note for each in found for note in each.notes):
        _say(console, f"note: {sentence}", "yellow")
    oracles = [each.oracle for each in found if each.oracle]
    if oracles:
        _say(console, f"searches with gold answers, oracle runs in the ledger: {' '.join(oracles)}", "dim")


def show_changes(before: Sequence[Diagnosis], after: Sequence[Diagnosis], console: Console) -> None:
    """Print how two systems' shares differ, and which queries changed from what to what."""
    for of, meaning in LEVELS.items():
        _say(console, f"{after[0].system}  against  {before[0].system}: causes in % {meaning}", "bold")
        old, new, difference = overall(before, of), overall(after, of), changes(before, after, of)
        table = _grid("cause", "against", "here", "change", "95% interval")
        for cause in Cause:
            if old[cause].value or new[cause].value:
                change = difference[cause]
                shares = (percent(old[cause].value, 1), percent(new[cause].value, 1))
                table.add(cause.value, *shares, f"{100 * change.value:+.1f}", _between(change, "+"))
        table.show(console)
    changed = [(count, step) for step, count in moves(before, after).items() if step[0] is not step[1]]
    for count, (one, other) in changed[:_MOVES]:
        _say(console, f"{count} {'query' if count == 1 else 'queries'}: {one.value} -> {other.value}")


def show_gap(found: Sequence[Gap], console: Console) -> None:
    """Print the nearness of queries, answers and documents: tasks down, pairs across."""
    names = task_names(each.task for each in found)
    sides = (("lexical overlap x 100, by rarity", "overlap"), (f"cosine x 100 by {found[0].encoder}", "similarity"))
    for title, side in sides:
        _say(console, title, "bold")
        table = _grid("task", "queries", *PAIRS)
        rows: list[Mapping[str, Figure]] = [getattr(each, side) for each in found]
        for each, row in zip(found, rows, strict=True):
            table.add(names[each.task], str(each.queries), *(_mean([row], pair) for pair in PAIRS))
        if len(found) > 1:
            table.rule()
            table.add("all tasks", "", *(_mean(rows, pair) for pair in PAIRS), style="bold")
        table.show(console)
    for pair, meaning in PAIRS.items():
        _say(console, f"{pair}: {meaning}", "dim")


def _mean(rows: Sequence[Mapping[str, Figure]], pair: str) -> str:
    values = [row[pair].value for row in rows if pair in row]
    return percent(sum(values) / len(values), 1) if values else "-"


def show_ceiling(found: Sequence[Ceiling], console: Console) -> None:
    """Print how far systems get from the plain search to the search with the gold answer."""
    for each in found:
        alone = each.system == each.base
        whose = f"{each.system}  between  {each.base}" if not alone else each.base
        _say(console, f"{each.measure} x 100, {whose}  and  {each.oracle} (oracle)", "bold")
        table = _grid("task", "plain", "oracle", *([] if alone else ["system", "gap closed %", "95% interval"]))
        names = task_names(each.tasks)
        for task, climb in each.tasks.items():
            table.add(names[task], *_climb(climb, alone=alone))
        if len(each.tasks) > 1:
            table.rule()
            table.add("all tasks", *_climb(each.overall, alone=alone), style="bold")
        table.show(console)


def _climb(climb: Climb, *, alone: bool) -> list[str]:
    ends = [f"{100 * climb.plain:.2f}", f"{100 * climb.oracle:.2f}"]
    if alone:
        return ends
    closed = ["-", ""]
    if climb.closed is not None and climb.low is not None and climb.high is not None:
        closed = [percent(climb.closed, 1), f"{100 * climb.low:.1f} to {100 * climb.high:.1f}"]
    return [*ends, f"{100 * climb.system:.2f}", *closed]


def show_complement(found: Sequence[Complementarity], console: Console) -> None:
    """Print who finds what, pair by pair."""
    rows = [*found, summed(found)] if len(found) > 1 else list(found)
    names = task_names(each.task for each in found)
    for place, pair in enumerate(found[0].pairs):
        _say(console, f"relevant documents found:  A = {pair.a}  B = {pair.b}", "bold")
        headings = ("only A", "only B", "both", "neither", "recall A", "recall B", "union", "overlap@10")
        table = _grid("task", "deep", *headings)
        for each in rows:
            own = each.pairs[place]
            counts = [str(count) for count in (own.only_a, own.only_b, own.both, own.neither)]
            shares = [percent(share, 1) for share in (own.recall_a, own.recall_b, own.union, own.overlap)]
            last = each is rows[-1] and len(rows) > 1
            if last:
                table.rule()
            task, deep = (each.task, "") if last else (names[each.task], str(each.deep))
            table.add(task, deep, *counts, *shares, style="bold" if last else "")
        table.show(console)
    if len(found[0].pairs) > 1:
        _say(console, f"recall of what any of them finds: {percent(rows[-1].union, 1)}")
    _say(console, "documents at `deep` or above count as found; union: the most that a fusion can reach", "dim")


def show_coverage(found: Sequence[Coverage], console: Console, limit: int | None) -> None:
    """Print how much is judged, what many systems return unjudged, and what looks wrongly unjudged."""
    names = task_names(each.task for each in found)
    table = _grid("judged@10 in %", *found[0].judged, "holes", "near-duplicates")
    for each in found:
        counts = [f"{len(each.holes):,}", f"{len(each.twins):,}"]
        table.add(names[each.task], *(percent(share, 1) for share in each.judged.values()), *counts)
    table.show(console)
    if all(each.positives_only for each in found):
        _say(console, "only relevant documents are judged here, so that judged means relevant", "dim")
    holes = [(names[each.task], hole) for each in found for hole in each.holes]
    if holes:
        _say(console, "holes: not judged, and among the first 10 of most systems", "bold")
        table = Table(*_texts("task", "query", "document"), *numbers("systems", "best rank"))
        for task, hole in sorted(holes, key=lambda row: (-row[1].systems, row[1].best))[:limit]:
            table.add(task, hole.query, hole.document, str(hole.systems), str(hole.best))
        table.show(console)
    twins = [(names[each.task], twin) for each in found for twin in each.twins]
    if twins:
        _say(console, "nearly the same as a relevant document, and not judged relevant: review these", "bold")
        table = Table(*_texts("task", "query", "relevant", "document"), *numbers("Jaccard", "best rank"))
        for task, twin in sorted(twins, key=lambda row: -row[1].jaccard)[:limit]:
            best = "" if twin.best is None else str(twin.best)
            table.add(task, twin.query, twin.positive, twin.document, f"{twin.jaccard:.2f}", best)
        table.show(console)


def show_slices(found: Mapping[str, Sequence[Slice]], systems: Sequence[str], console: Console) -> None:
    """Print the means of each slice."""
    for way, slices in found.items():
        _say(console, f"nDCG@10 x 100 by {way}", "bold")
        headings = [heading for system in systems for heading in (system, "95% interval")]
        table = _grid(way, "queries", *headings, *(["difference", "95% interval"] if len(systems) == 2 else []))
        names = task_names(each.name for each in slices) if way == "task" else {}
        for each in slices:
            shown = _between if each.sure else _no_interval
            cells = [cell for mean in each.means for cell in (f"{100 * mean.value:.2f}", shown(mean))]
            if each.difference is not None:
                cells += [f"{100 * each.difference.value:+.2f}", shown(each.difference, "+")]
            table.add(names.get(each.name, each.name), str(each.queries), *cells)
        table.show(console)


def show_costs(found: Sequence[Priced], console: Console) -> None:
    """Print every system with its score and bill, and which are on the frontier of each kind of cost."""
    best = {by: {each.system for each in frontier(found, by)} for by in COSTS}
    table = Table(key("system"), *numbers("nDCG@10", *(f"{by}/query" for by in COSTS)), *_texts("on the frontier of"))
    for each in found:
        bill = each.bill
        money = "?" if bill.money is None else f"${bill.money:.6f}" if bill.money else "$0"
        tokens = "?" if bill.tokens is None else f"{bill.tokens:,.0f}"
        seconds = "?" if bill.seconds is None else f"{bill.seconds:.4f}"
        name = f"{each.system} (oracle)" if each.oracle else each.system
        on = ", ".join(by for by in COSTS if each.system in best[by])
        table.add(name, f"{100 * each.score:.2f}", money, tokens, seconds, on)
    table.show(console)
    _say(console, "?: the records do not say (generations made elsewhere, servers without prices, kept vectors)", "dim")
    _say(console, "seconds: to search, without loading models and indexing documents", "dim")
    for by in COSTS:
        reason = left_out(found, by)
        if reason:
            _say(console, f"frontier of {by}: {reason[0].lower()}{reason[1:]}", "dim")


_UNKNOWN = "?"


def show_sensitivity(found: Sensitivity, console: Console) -> None:
    """Print the averages with their differences from the longest limit, then those of each task."""
    several = len(found.longest.tasks) > 1
    title = f"{found.system}, {found.measure} x 100{', mean over tasks' if several else ''}"
    console.print(title, style="bold", markup=False, highlight=False)
    _averages(found).show(console)
    if several:
        _by_task(found).show(console)
    for sentence in [*found.sentences, *failure_lines(found.failures)]:
        console.print(sentence, markup=False, highlight=False)


def _averages(found: Sensitivity) -> Table:
    table = Table(key("tokens"), *numbers(found.measure, "difference", "95% interval", "p (Holm)", *_CUT))
    for figure in found.figures:
        cells = [percent_cell(figure.score), *_compared(figure.difference, figure.holm)]
        table.add(f"{figure.max_length:,}", *cells, *map(_share, (figure.documents_cut, figure.queries_cut)))
    return table


_CUT = ("% docs cut", "% queries cut")


def _compared(found: Difference | None, corrected: float | None) -> list[Cell]:
    if found is None or corrected is None:
        return ["longest", "", ""]
    low, high = percent_cell(found.low, sign="+"), percent_cell(found.high, sign="+")
    spread = Number(f"{low.wide} to {high.wide}", f"{low.narrow} to {high.narrow}")
    return [percent_cell(found.mean, sign="+"), spread, p_text(corrected)]


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{100 * value:.1f}"


def _by_task(found: Sensitivity) -> Table:
    """Build a row per task: the figure at each limit, with the difference from the longest below."""
    names = task_names(found.longest.tasks)
    table = Table(key("task"), *numbers(*(f"{figure.max_length:,}" for figure in found.figures)))
    for task, name in names.items():
        table.add(name, *(percent_cell(figure.tasks[task]) for figure in found.figures))
        table.add("", *(_spread(figure, task) for figure in found.figures), style="dim")
    return table


def _spread(figure: LengthFigure, task: str) -> Cell:
    each = (figure.by_task or {}).get(task)
    if each is None:
        return ""
    low, high = percent_cell(each.low, sign="+"), percent_cell(each.high, sign="+")
    return Number(f"{low.wide} to {high.wide}", f"{low.narrow} to {high.narrow}")
