"""Diagnoses as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.data.task_names import task_names
from r2med.diagnosis.causes import LEVELS, Cause, changes, moves, overall
from r2med.diagnosis.complement import summed
from r2med.diagnosis.gap import PAIRS
from r2med.formatting import counted, p_text, percent, percent_range
from r2med.render.sections import Section
from r2med.render.table import (
    Cell,
    Column,
    Table,
    cells,
    column,
    key,
    numbers,
    signed_interval,
    signed_percent,
)
from r2med.render.table import percent as percent_cell
from r2med.runs.report import failure_lines
from r2med.tuning.frontier import COSTS, frontier, left_out

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.diagnosis.causes import Diagnosis
    from r2med.diagnosis.complement import Complementarity
    from r2med.diagnosis.coverage import Coverage
    from r2med.diagnosis.gap import Ceiling, Gap
    from r2med.diagnosis.slices import Slice
    from r2med.diagnosis.truncation import Sensitivity
    from r2med.diagnosis.verification import TaskVerification, VerificationStudy, VerifiedSystem
    from r2med.measure.figure import Figure
    from r2med.tuning.frontier import Priced

_MOVES = 6  # changes between causes that are listed, the most frequent


def _grid(first: str, *others: str) -> Table:
    return Table(key(first), *numbers(*others))


def _texts(*headings: str) -> list[Column]:
    return [Column(heading, folds=True) for heading in headings]


def show_causes(diagnoses: Sequence[Diagnosis], console: Console) -> None:
    """Print the shares of one system, of queries and of relevant documents: tasks down, causes across."""
    used = [cause for cause in Cause if any(diagnosis.shares("documents")[cause] for diagnosis in diagnoses)]
    names = task_names(diagnosis.task for diagnosis in diagnoses)
    for of, meaning in LEVELS.items():
        console.print(f"{diagnoses[0].system}: causes in % {meaning}", style="bold")
        table = _grid("task", "queries", "deep", *(cause.value for cause in used))
        for diagnosis in diagnoses:
            shares, queries = diagnosis.shares(of), len(diagnosis.queries)
            figures = (percent(shares[cause], 1) for cause in used)
            table.add(names[diagnosis.task], str(queries), str(diagnosis.deep), *figures)
        if len(diagnoses) > 1:
            table.rule()
            total = overall(diagnoses, of)
            every = str(sum(len(diagnosis.queries) for diagnosis in diagnoses))
            table.add("all tasks", every, "", *(percent(total[cause].value, 1) for cause in used), style="bold")
            table.add("95% interval", "", "", *(percent_range(total[cause], 1) for cause in used), style="dim")
        table.show(console)
    for cause in used:
        console.print(f"{cause.value}: {cause.meaning}", style="dim")
    console.print(
        "deep: what stands deeper counts as not found (100, a fifth of the documents where they are few)", style="dim"
    )
    for sentence in dict.fromkeys(note for diagnosis in diagnoses for note in diagnosis.notes):
        console.print(f"note: {sentence}", style="yellow")
    if oracles := [diagnosis.oracle for diagnosis in diagnoses if diagnosis.oracle]:
        console.print(f"searches with gold answers, oracle runs in the ledger: {' '.join(oracles)}", style="dim")


def show_changes(before: Sequence[Diagnosis], after: Sequence[Diagnosis], console: Console) -> None:
    """Print how two systems' shares differ, and which queries changed from what to what."""
    for of, meaning in LEVELS.items():
        console.print(f"{after[0].system}  against  {before[0].system}: causes in % {meaning}", style="bold")
        old, new, difference = overall(before, of), overall(after, of), changes(before, after, of)
        table = _grid("cause", "against", "here", "change", "95% interval")
        for cause, change in difference.items():
            if old[cause].value or new[cause].value:
                shares = (percent(old[cause].value, 1), percent(new[cause].value, 1))
                table.add(cause.value, *shares, percent(change.value, 1, "+"), percent_range(change, 1, "+"))
        table.show(console)
    changed = [(count, step) for step, count in moves(before, after).items() if step[0] is not step[1]]
    for count, (one, other) in changed[:_MOVES]:
        console.print(f"{count} {'query' if count == 1 else 'queries'}: {one.value} -> {other.value}")


def show_gap(gaps: Sequence[Gap], console: Console) -> None:
    """Print the nearness of queries, answers and documents: tasks down, pairs across."""
    names = task_names(gap.task for gap in gaps)
    sides = (("lexical overlap x 100, by rarity", "overlap"), (f"cosine x 100 by {gaps[0].encoder}", "similarity"))
    for title, side in sides:
        console.print(title, style="bold")
        table = _grid("task", "queries", *PAIRS)
        rows: list[Mapping[str, Figure]] = [getattr(gap, side) for gap in gaps]
        for gap, row in zip(gaps, rows, strict=True):
            table.add(names[gap.task], str(gap.queries), *(_mean([row], pair) for pair in PAIRS))
        if len(gaps) > 1:
            table.rule()
            table.add("all tasks", "", *(_mean(rows, pair) for pair in PAIRS), style="bold")
        table.show(console)
    for pair, meaning in PAIRS.items():
        console.print(f"{pair}: {meaning}", style="dim")


def _mean(rows: Sequence[Mapping[str, Figure]], pair: str) -> str:
    values = [row[pair].value for row in rows if pair in row]
    return percent(sum(values) / len(values) if values else None, 1)


def show_ceiling(ceilings: Sequence[Ceiling], console: Console) -> None:
    """Print how far systems get from the plain search to the search with the gold answer."""
    for ceiling in ceilings:
        alone = ceiling.system == ceiling.base
        whose = f"{ceiling.system}  between  {ceiling.base}" if not alone else ceiling.base
        console.print(f"{ceiling.measure} x 100, {whose}  and  {ceiling.oracle} (oracle)", style="bold")
        columns = _ENDS if alone else (*_ENDS, *_CLIMB)
        table = Table(key("task"), *columns)
        for task, name in task_names(ceiling.tasks).items():
            table.add(name, *cells(columns, ceiling.tasks[task]))
        if len(ceiling.tasks) > 1:
            table.rule()
            table.add("all tasks", *cells(columns, ceiling.overall), style="bold")
        table.show(console)


_ENDS = (column("plain", form=percent), column("oracle", form=percent))
_CLIMB = (
    column("system", form=percent),
    column("", "gap closed %", get=lambda climb: "-" if climb.low is None else percent(climb.closed, 1)),
    column("", "95% interval", get=lambda climb: "" if climb.low is None else percent_range(climb, 1)),
)
_SHARES = {"recall_a": "recall A", "recall_b": "recall B", "union": "union", "overlap": "overlap@10"}
_COMPLEMENT = (
    column("only_a", "only A"),
    column("only_b", "only B"),
    column("both"),
    column("neither"),
    *(column(name, heading, lambda share: percent(share, 1)) for name, heading in _SHARES.items()),
)


def show_complement(tasks: Sequence[Complementarity], console: Console) -> None:
    """Print who finds what, pair by pair."""
    names, total = task_names(task.task for task in tasks), summed(tasks)
    for place, pair in enumerate(tasks[0].pairs):
        console.print(f"relevant documents found:  A = {pair.a}  B = {pair.b}", style="bold")
        table = Table(key("task"), *numbers("deep"), *_COMPLEMENT)
        for task in tasks:
            table.add(names[task.task], str(task.deep_cutoff), *cells(_COMPLEMENT, task.pairs[place]))
        if len(tasks) > 1:
            table.rule()
            table.add("all tasks", "", *cells(_COMPLEMENT, total.pairs[place]), style="bold")
        table.show(console)
    if len(tasks[0].pairs) > 1:
        console.print(f"recall of what any of them finds: {percent(total.union, 1)}")
    console.print("documents at `deep` or above count as found; union: the most that a fusion can reach", style="dim")


def show_coverage(tasks: Sequence[Coverage], console: Console, limit: int | None) -> None:
    """Print how much is judged, what many systems return unjudged, and what looks wrongly unjudged."""
    names = task_names(task.task for task in tasks)
    table = _grid("judged@10 in %", *tasks[0].judged, "holes", "near-duplicates")
    for task in tasks:
        counts = (f"{len(task.holes):,}", f"{len(task.twins):,}")
        table.add(names[task.task], *(percent(share, 1) for share in task.judged.values()), *counts)
    table.show(console)
    if all(task.positives_only for task in tasks):
        console.print("only relevant documents are judged here, so that judged means relevant", style="dim")
    if holes := [(names[task.task], hole) for task in tasks for hole in task.holes]:
        console.print("holes: not judged, and among the first 10 of most systems", style="bold")
        table = Table(*_texts("task", "query", "document"), *numbers("systems", "best rank"))
        for name, hole in sorted(holes, key=lambda row: (-row[1].systems, row[1].best))[:limit]:
            table.add(name, hole.query, hole.document, str(hole.systems), str(hole.best))
        table.show(console)
    if twins := [(names[task.task], twin) for task in tasks for twin in task.twins]:
        console.print("nearly the same as a relevant document, and not judged relevant: review these", style="bold")
        table = Table(*_texts("task", "query", "relevant", "document"), *numbers("Jaccard", "best rank"))
        for name, twin in sorted(twins, key=lambda row: -row[1].jaccard)[:limit]:
            best = "" if twin.best is None else str(twin.best)
            table.add(name, twin.query, twin.positive, twin.document, f"{twin.jaccard:.2f}", best)
        table.show(console)


def show_slices(ways: Mapping[str, Sequence[Slice]], systems: Sequence[str], console: Console) -> None:
    """Print the means of each slice."""
    for way, slices in ways.items():
        console.print(f"nDCG@10 x 100 by {way}", style="bold")
        headings = [heading for system in systems for heading in (system, "95% interval")]
        table = _grid(way, "queries", *headings, *(["difference", "95% interval"] if len(systems) == 2 else []))
        names = task_names(part.name for part in slices) if way == "task" else {}
        for part in slices:
            figures = [(mean, "") for mean in part.means] + ([(part.difference, "+")] if part.difference else [])
            row = [names.get(part.name, part.name), str(part.queries)]
            for figure, sign in figures:
                row += [percent(figure.value, 2, sign), percent_range(figure if part.sure else None, 1, sign)]
            table.add(*row)
        table.show(console)


def show_costs(systems: Sequence[Priced], console: Console) -> None:
    """Print every system with its score and bill, and which are on the frontier of each kind of cost."""
    best = {by: {one.system for one in frontier(systems, by)} for by in COSTS}
    table = Table(key("system"), *numbers("nDCG@10", *(f"{by}/query" for by in COSTS)), *_texts("on the frontier of"))
    for one in systems:
        money, tokens, seconds = one.bill.money, one.bill.tokens, one.bill.seconds
        table.add(
            f"{one.system} (oracle)" if one.oracle else one.system,
            percent(one.score),
            "?" if money is None else f"${money:.6f}" if money else "$0",
            "?" if tokens is None else f"{tokens:,.0f}",
            "?" if seconds is None else f"{seconds:.4f}",
            ", ".join(by for by in COSTS if one.system in best[by]),
        )
    table.show(console)
    console.print(
        "?: the records do not say (generations made elsewhere, servers without prices, kept vectors)", style="dim"
    )
    console.print("seconds: to search, without loading models and indexing documents", style="dim")
    for by in COSTS:
        if reason := left_out(systems, by):
            console.print(f"frontier of {by}: {reason[0].lower()}{reason[1:]}", style="dim")


def show_sensitivity(study: Sensitivity, console: Console) -> None:
    """Print the averages with their differences from the longest limit, then those of each task."""
    tasks, figures = study.longest.tasks, study.figures
    over = ", mean over tasks" if len(tasks) > 1 else ""
    console.print(f"{study.system}, {study.measure} x 100{over}", style="bold", markup=False, highlight=False)
    headings = (study.measure, "difference", "95% interval", "p (Holm)", "% docs cut", "% queries cut")
    table = _grid("tokens", *headings)
    for figure in figures:
        change = figure.difference
        compared: list[Cell] = ["longest", "", ""]
        if change is not None and figure.holm is not None:
            compared = [signed_percent(change.mean), signed_interval(change), p_text(figure.holm)]
        cuts = (percent(cut, 1).replace("-", "?") for cut in (figure.documents_cut, figure.queries_cut))
        table.add(f"{figure.max_length:,}", percent_cell(figure.score), *compared, *cuts)
    table.show(console)
    if len(tasks) > 1:
        # The figure of each task at each limit, with the difference from the longest below.
        table = _grid("task", *(f"{figure.max_length:,}" for figure in figures))
        for task, name in task_names(tasks).items():
            table.add(name, *(percent_cell(figure.tasks[task]) for figure in figures))
            gains = [(figure.by_task or {}).get(task) for figure in figures]
            table.add("", *("" if gain is None else signed_interval(gain) for gain in gains), style="dim")
        table.show(console)
    for sentence in [*study.sentences, *failure_lines(study.failures)]:
        console.print(sentence, markup=False, highlight=False)


_LEGEND = (
    "retrieval: relevant documents that are not in the list down to `deep`; verification: those that are, and that the"
    " verifier ranks higher than the system. Below each figure its 95% interval. A ceiling, not a system."
)
_WAY = ("score", "ceiling", "distance", "retrieval", "verification")


def verification_sections(study: VerificationStudy, limit: int | None) -> list[Section]:
    """Return the way to each verifier's ceiling with its parts, and the relevant documents that all rank last."""
    names = task_names(task.task for task in study.tasks)
    sections, headings = [], ("task", "queries", "deep", "distractors", *_WAY)
    for place, one in enumerate(study.overall):
        lines = [_way(names[task.task], task, task.systems[place]) for task in study.tasks]
        lines += [_way("all tasks", None, one)] if len(lines) > 1 else []
        title = f"{one.system} below the ceiling of {one.verifier} (oracle): {study.measure} x 100"
        rows = [row for pair in lines for row in pair]
        sections.append(Section(title, headings, rows, _explain_way(study, place)))
    pairs = [(names[task.task], pair) for task in study.tasks for pair in task.unverified]
    advice = f"{counted(len(pairs), 'document')}; r2med review new --queue unverified has them judged"
    return [
        *sections,
        Section(
            "Relevant documents that every verifier ranks last: are they?",
            ("task", "query", "document", "distractors above %"),
            [(name, pair.query, pair.document, percent(pair.above, 1)) for name, pair in pairs][:limit],
            [advice if pairs else "None."],
            words=("query", "document"),
        ),
    ]


def _way(name: str, task: TaskVerification | None, row: VerifiedSystem) -> list[Sequence[Cell]]:
    """Return the line of a row and, below it, that of its intervals."""
    figures = [getattr(row, part) for part in _WAY]
    facts = (str(task.deep_cutoff), str(task.distractors)) if task else ("", "")
    return [
        (name, f"{row.queries:,}", *facts, *(percent_cell(figure.value) for figure in figures)),
        ("", "", "", "", *(percent_range(figure, 1) for figure in figures)),
    ]


def _explain_way(study: VerificationStudy, place: int) -> list[str]:
    """Return what the table of a system and a verifier says, what was left out, and what its columns mean."""
    sentences = study.sentences[place :: len(study.overall)]
    for task in study.tasks:
        if reasons := task.left_out[task.systems[place].verifier]:
            query, reason = next(iter(reasons.items()))
            few = counted(len(reasons), "query", "queries")
            sentences.append(f"{task.task}: {few} left out, which the verifier could not order; {query}: {reason}")
    return [*sentences, *([_LEGEND] if place == len(study.overall) - 1 else [])]
