"""The query workbench: the queries of a task, one of them with its relevant documents, and several systems' lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from r2med.answers.page import answers_to, studies
from r2med.lexical.highlight import kinds_of
from r2med.pipeline.loaded_runs import HEADLINE, TOP
from r2med.render.charts.drawing import tag
from r2med.render.charts.scale import Scale
from r2med.runs.ledger import Entry
from r2med.web.addresses import Correction, PageContent, UnknownName
from r2med.web.citation import Citation, citation, options
from r2med.web.library import Library
from r2med.workbench.bench import (
    DEEP,
    MIDDLE_TABS,
    ORDERS,
    SIDES,
    WINNERS,
    BenchRow,
    BenchState,
    bench_rows,
    is_place,
    occurring_causes,
    query_list,
)
from r2med.workbench.search_page import WORDS
from r2med.workbench.sides import listed, relevant_documents, standings, text_kinds

if TYPE_CHECKING:
    from starlette.requests import Request

_DEPTH = 100  # the lowest place that a slope has room for


@lru_cache(maxsize=8192)
def place_slope(a: int | None, b: int | None) -> Markup:
    """Draw a line from the place in A to the place in B, high places above; dashed if one list lacks the document."""
    width, height = 40, 20
    scale = Scale(1, _DEPTH, 3, height - 3, logarithmic=True)
    left, right = (scale(rank or _DEPTH) for rank in (a, b))
    look = "slope" if a and b else "slope open"
    line = tag("line", x1=4, x2=width - 4, y1=left, y2=right, class_=look)
    ends = [
        tag("circle", cx=x, cy=y, r=2.6, class_="mark" if rank else "mark hollow")
        for x, y, rank in ((4, left, a), (width - 4, right, b))
    ]
    return Markup(tag("svg", line, *ends, class_="places", viewBox=f"0 0 {width} {height}", aria_hidden="true"))


_BRIEF = 24  # words of a document in a list, where it has less room than a relevant one
_BEST = 10  # so many of the best systems on a query are named


@dataclass(frozen=True)
class Workbench:
    """Runs of A and the others, and the queries of the list, resolved from an address."""

    state: BenchState
    entries: Sequence[Entry]  # on the task of the query that is shown, A first
    rows: Sequence[BenchRow]
    tasks: Sequence[str]  # those that the list could be over
    pairs: Sequence[tuple[Entry, Entry | None]]  # the runs of A and of B that the list is over
    measures: Sequence[str]
    wrong: Sequence[Correction] = ()


def query_page(library: Library, request: Request) -> PageContent:
    """Show the workbench as its address describes it; unknown names are reported, and the rest is shown."""
    state, unknown = BenchState.read(request.query_params)
    bench = resolve(library, state, [corrected(state, name, error) for name, error in unknown.items()])
    state = bench.state
    entries = bench.entries if state.query else []
    sides = listed(library, entries, state.query, state.measure, DEEP if state.deep else TOP)
    cases = [side.case for side in sides if side.case is not None]
    answers = answers_to(library, state.task, state.query) if state.query else []
    text = cases[0].text if cases else library.query_text(state.task, state.query)
    dataset = library.dataset(state.task) if text else None
    systems = library.systems(state.group, "" if state.over == "all" else state.task)
    oracles = set(library.oracles(state.group))
    tabs = {"written": any(side.written for side in sides), "answers": bool(answers)}
    return "workbench/query.html", {
        "state": state, "bench": bench, "sides": sides, "wrong": bench.wrong, "text": text,
        "answer": dataset.gold.answers.get(state.query, "") if dataset else "",
        "at_hand": bool(cases) or bool(text and not sides),
        "list": query_list(library, bench.rows, state),
        "relevant": relevant_documents(sides), "kinds": kinds_of(query=[text]), "all_kinds": text_kinds(cases),
        "answers": answers, "runs": [side.entry.id for side in sides],
        "words": WORDS, "brief": _BRIEF, "deep": DEEP, "top": TOP,
        "hidden": set(state.hidden.split(",")), "best": _BEST,
        "standings": standings(library, state.task, state.query, state.measure) if sides else [],
        "tabs": {tab: name for tab, name in MIDDLE_TABS.items() if tabs.get(tab)},
        "systems": [name for name in systems if name not in oracles],
        "oracles": [name for name in systems if name in oracles],
        "causes": {"before": occurring_causes(library, [one for one, _ in bench.pairs]),
                   "after": occurring_causes(library, [other for _, other in bench.pairs])},
        "pages_of": lambda number: replace(state, page=str(number)).address(),
        "orders": ORDERS, "winners": WINNERS, "most": SIDES, "place_slope": place_slope,
        "cite": _citation(state, bench.entries),
        "status": 404 if bench.wrong else 200,
    }  # fmt: skip


def corrected(state: BenchState, name: str, error: UnknownName, value: object = None) -> Correction:
    """Return an error, and the same address with the nearest name in place of the wrong one."""
    link = state.link(**{name: value or error.nearest}) if error.nearest else ""
    return Correction(str(error), error.nearest, link)


def resolve(library: Library, state: BenchState, wrong: Sequence[Correction] = ()) -> Workbench:
    """Resolve an address. Unknown names are left out, each with the nearest known one."""
    corrections = list(wrong)

    def check(name: str, value: str, choices: Sequence[str], what: str) -> str:
        """Return a value that must be one of some, or nothing if it is not."""
        if not value or value in choices:
            return value
        corrections.append(corrected(state, name, UnknownName(what, value, choices)))
        return ""

    group_of = _groups(library)
    task = check("task", state.task, list(group_of), "task with runs or answers")
    groups = library.groups()
    group = check("group", state.group, groups, "group") or group_of.get(task) or next(iter(groups), "")
    state = replace(state, task=task, group=group, over=state.over if task else "all")
    if state.at and not is_place(state.at):
        corrections.append(Correction(f"no place {state.at!r} of the scatter; it is two numbers, such as 12,30"))
        state = replace(state, at="")
    state = _with_systems(library, state, corrections)
    runs = [_by_task(library, name, group) for name in state.systems]
    first, second = (*runs, {}, {})[:2]
    over = [name for name in first if len(runs) < 2 or name in second] if state.over == "all" else [task]
    pairs = [(first[name], second.get(name)) for name in over if name in first]
    means, entries = library.means(), [entry for pair in pairs for entry in pair if entry is not None]
    measures = [name for name in library.measures() if all(name in means.get(entry.id, {}) for entry in entries)]
    measure = check("measure", state.measure, measures, "measure of these runs") or str(HEADLINE)
    state = replace(state, measure=measure)
    rows = bench_rows(library, pairs, measure) if pairs else _answered(library, over)
    state = _with_query(library, state, rows, corrections)
    entries = [row[state.task] for row in runs if state.task in row]
    tasks = [name for name in group_of if group_of[name] == group]
    return Workbench(state, entries, rows, tasks, pairs, measures, corrections)


def _groups(library: Library) -> dict[str, str]:
    """Return every task that has runs or answers, in the order of the ledger, and its group."""

    def make() -> dict[str, str]:
        answered = {task: report.answers[0].group for report in studies(library).values() for task in report.tasks}
        ran = {entry.task: entry.group for entry in library.entries()}
        return ran | {task: group for task, group in answered.items() if task not in ran}

    return library.current("groups of tasks", make)


def _by_task(library: Library, name: str, group: str) -> dict[str, Entry]:
    """Return the runs of a name: those of a system in a group, with one given by its id in the place of its task's."""
    entry = library.by_id().get(name)
    return {**library.newest(entry.name, group), entry.task: entry} if entry else library.newest(name, group)


def _with_systems(library: Library, state: BenchState, wrong: list[Correction]) -> BenchState:
    """Replace the systems of a state with those that were run here; the two best on the task if none was named."""
    systems = library.systems(state.group, state.task if state.over != "all" else "")
    kept = []
    for name in state.systems:
        runs = _by_task(library, name, state.group)
        if runs and (state.over == "all" or state.task in runs):
            entry = library.by_id().get(name)
            current = entry is None or library.current_runs()[entry.name].get(entry.task) == entry
            kept.append(name if entry is None else entry.name if current else name)
            continue
        error = UnknownName("system" if not runs else f"run on {state.task} of", name, systems)
        named = tuple(error.nearest if system == name else system for system in state.systems)
        wrong.append(corrected(state, "systems", error, named))
    if kept:
        return replace(state, systems=tuple(dict.fromkeys(kept)))
    means, measure = library.means(), state.measure or str(HEADLINE)
    task = state.task or next((entry.task for entry in library.entries() if entry.group == state.group), "")
    best = {name: row[task] for name in systems if task in (row := library.current_runs()[name])}
    scores = {name: means.get(run.id, {}).get(measure, -1.0) for name, run in best.items() if not run.oracle}
    return replace(state, systems=tuple(sorted(scores, key=lambda name: -scores[name])[:2]))


def _answered(library: Library, tasks: Sequence[str]) -> list[BenchRow]:
    arms = [answers for report in studies(library).values() for answers in report.by_arm.values()]
    questions = dict.fromkeys((task, query) for arm in arms for task in tasks for query in arm.get(task, {}))
    return [BenchRow(task, query) for task, query in questions]


def _with_query(library: Library, state: BenchState, rows: Sequence[BenchRow], wrong: list[Correction]) -> BenchState:
    """Replace an unknown query of a state; the first of the list if none was named."""
    task = state.task or next((row.task for row in rows if state.query in ("", row.query)), "")
    queries = {row.query for row in rows if row.task == task}
    if state.query and state.query not in queries:
        error = UnknownName(f"query of {task}" if task else "query", state.query, sorted(queries))
        wrong.append(corrected(state, "query", error))
        return replace(state, query="")
    if state.query or not rows:
        return replace(state, task=task)
    first = query_list(library, rows, replace(state, task="", page="")).following or rows[0]
    return replace(state, task=first.task, query=first.query)


def _citation(state: BenchState, entries: Sequence[Entry]) -> Citation:
    """Return the command that shows the same query with the lists of A and B; none if nothing was run on it."""
    title = f"Query {state.query} of {state.task}"
    if not state.query or not entries:
        return Citation(title)
    against = options(("--against", state.systems[1] if len(entries) > 1 else ""))
    docs = options(("--docs", str(DEEP) if state.deep else ""))
    return citation(title, "inspect", state.systems[0], *against, "--tasks", state.task, "--query", state.query, *docs)
