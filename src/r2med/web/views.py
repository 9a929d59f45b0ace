"""What each page of the server shows, from what its address asks for."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from r2med.data.published import KINDS
from r2med.diagnose.causes import Cause, QueryCause
from r2med.diagnose.loaded_runs import HEADLINE, TOP
from r2med.errors import R2medError
from r2med.render.board_text import FORMATS
from r2med.render.chart_svg import responsive
from r2med.render.charts import DotChart, difference_chart, interval_point
from r2med.render.html import address
from r2med.runs.cost import Cost
from r2med.storage.progress import in_progress
from r2med.web import boards, comparing, searching
from r2med.web.board_query import board_groups, board_measures, one_of, read_board
from r2med.web.boards import Pages
from r2med.web.library import Library
from r2med.web.query_page import DEEP, WORDS, query_page, run_kinds

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request

Shown = tuple[str, dict[str, Any]]
"""A template and its values."""
FILES = {"CSV": "csv", "JSON": "json", "LaTeX": "tex"}
"""As what a board can be downloaded, with the ending of the file."""
_EXPLAINED = 12
"""Systems whose causes a board shows."""
LONGEST_TEXT = 200_000
"""Characters of a document that a page shows."""
_REMEMBERED = 3600.0
"""Seconds for which a finished job is shown."""


@dataclass(frozen=True)
class SortLinks:
    """The addresses behind a table's headings: a second click turns the order round."""

    path: str
    asked: dict[str, str]
    sort: str
    ascending: bool

    def of(self, sort: str) -> str:
        """The address that sorts by a column."""
        turned = "up" if sort == self.sort and not self.ascending else ""
        return address(self.path, **{**self.asked, "sort": "" if sort == "rank" else sort, "order": turned, "page": ""})

    def page(self, number: int) -> str:
        """The address of another page of the list."""
        return address(self.path, **{**self.asked, "page": number if number > 1 else ""})


def _links(request: Request, default: str) -> SortLinks:
    asked = dict(request.query_params)
    return SortLinks(request.url.path, asked, asked.get("sort", "") or default, asked.get("order") == "up")


def _number(asked: QueryParams, name: str) -> int:
    text = asked.get(name, "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def board_page(library: Library, request: Request) -> Shown:
    """Published figures and own runs in one ranking."""
    asked = request.query_params
    found = read_board(library, asked)
    view, board = found.view, found.board
    links = SortLinks(request.url.path, dict(asked), found.sort, found.ascending)
    pages = Pages.of(len(found.lines), _number(asked, "page"))
    shown = found.lines[pages.cut()]
    sure = [line for line in shown if line.row.own and line.average is not None]
    shown = boards.decorated(shown, library.intervals(sure, view.measure))
    by_id = library.by_id()
    runs = {line.row.name: {task: by_id[run] for task, run in line.row.runs.items()} for line in sure}
    values = {
        "asked": found,
        "table": boards.sorted_table(board, shown, links.sort),
        "links": links,
        "pages": pages,
        "panels": [
            *boards.board_panels(board, shown),
            *boards.frontier_panels(runs, shown, view.measure),
            *boards.panels(boards.known(library, dict(list(runs.items())[:_EXPLAINED]))),
        ],
        "view": view,
        "kinds": KINDS,
        "boards": board_groups(library),
        "measures": board_measures(library, view),
        "hrefs": boards.Hrefs(lambda name: system_address(name, view.group), _published_address, _source_address),
        "files": {name: address(f"/board.{ending}", **{**links.asked, "page": ""}) for name, ending in FILES.items()},
        "cleared": address("/", group=view.group, task=found.task, metric=asked.get("metric", "")),
    }
    return "board.html", values


def board_file(library: Library, request: Request) -> tuple[str, str]:
    """The whole board as text in one of `FILES`, as it is filtered and sorted, and the kind of the text."""
    found = read_board(library, request.query_params)
    sure = [line for line in found.lines if line.row.own and line.average is not None]
    lines = boards.decorated(found.lines, library.intervals(sure, found.view.measure))
    ending = request.url.path.rpartition(".")[2]
    name = next(name for name, each in FILES.items() if each == ending)
    kind = "application/json" if ending == "json" else "text/csv" if ending == "csv" else "text/plain"
    return FORMATS[name.lower()]([replace(found.board, lines=lines)]), kind


def _published_address(name: str, group: str) -> str:
    return address("/published", name=name, group=group)


def _source_address(name: str) -> str:
    return f"/sources#{name}"


def system_page(library: Library, request: Request) -> Shown:
    """One own system: figures by task with intervals, runs and cost."""
    asked = request.query_params
    system, group = asked.get("system", ""), asked.get("group", "")
    runs = library.newest(system, group)
    if not runs:
        raise R2medError(f"no run of {system!r} in the group {group!r}")
    means = library.means()
    points = []
    for task, entry in runs.items():
        found = library.interval(entry, "nDCG@10")
        if found is not None:
            points.append(interval_point(task, found))
    there = {measure for entry in runs.values() for measure in means.get(entry.id, {})}
    measures = [measure for measure in library.measures() if measure in there]
    cost = Cost.of_runs(list(runs.values()))
    others = [name for name in library.systems(group) if name != system]
    causes = {task: library.causes(entry) for task, entry in runs.items()}
    values = {
        "system": system, "group": group, "runs": runs, "means": means, "measures": measures, "cost": cost,
        "others": others,
        "chart": responsive(DotChart(f"nDCG@10 of {system} by task", "nDCG@10 x 100", points)) if points else "",
        "oracle": any(entry.oracle for entry in runs.values()),
        "panels": boards.cause_panels([each for each in causes.values() if each is not None]),
        "unexplained": [task for task, each in causes.items() if each is None],
        "job": library.jobs.newest("causes", system, group),
    }  # fmt: skip
    return "system.html", values


def compare_page(library: Library, request: Request) -> Shown:
    """Two systems: overall, by task, and query by query."""
    asked = request.query_params
    groups = library.groups()
    group = one_of(asked.get("group", "") or (groups[0] if groups else ""), groups or ("",), "group")
    systems, oracles = library.systems(group), library.oracles(group)
    # Whoever changed the group sees its systems, and is not told that those of another group are not there.
    elsewhere = {name for other in groups if other != group for name in library.systems(other)} - set(systems)
    a, b = ("" if name in elsewhere else name for name in (asked.get("a", ""), asked.get("b", "")))
    values: dict[str, Any] = {
        "group": group, "groups_there": groups, "systems": [name for name in systems if name not in oracles],
        "oracles": oracles, "a": a, "b": b, "found": None,
    }  # fmt: skip
    if not (a and b):
        return "compare.html", values
    for name in (a, b):
        one_of(name, systems, "system")
    found = comparing.contest(library, a, b, group)
    links = _links(request, "b won")
    task = one_of(asked.get("task", ""), ("", *found.found.tasks), "task")
    pairs = found.ordered(one_of(links.sort, comparing.SORTS, "order"), task)
    pages = Pages.of(len(pairs), _number(asked, "page"))
    shown = pairs[pages.cut()]
    values |= {
        "found": found, "lacking": sorted(library.newest(a, group).keys() ^ library.newest(b, group).keys()),
        "pairs": shown, "pages": pages, "links": links, "task": task, "sorts": comparing.SORTS,
        "texts": {(p.task, p.query): _query_text(library, p.task, p.query) for p in shown},
        "chart": responsive(difference_chart(found.found, found.measure)),
    }  # fmt: skip
    return "compare.html", values


def _query_text(library: Library, task: str, query: str) -> str:
    dataset = library.dataset(task)
    if dataset is None or query not in dataset.collection.queries.position:
        return ""
    return dataset.collection.queries.text(query)


def query_view(library: Library, request: Request) -> Shown:
    """One query with several systems' lists side by side."""
    asked = request.query_params
    deep = asked.get("depth") == str(DEEP)
    wanted = asked.get("task", ""), asked.get("query", ""), asked.getlist("run")
    page = query_page(library, *wanted, DEEP if deep else TOP)
    facts = {"task": page.task, "query": page.query, "run": [side.entry.id for side in page.sides]}
    return "query.html", {
        "page": page,
        "words": WORDS,
        "deep": deep,
        "depth": DEEP,
        "other_depth": address("/query", **facts, depth="" if deep else DEEP),
    }


def document_view(library: Library, request: Request) -> Shown:
    """One document, marked by a question or by a query of a run; alone, or in a page of its own."""
    asked = request.query_params
    task, name = asked.get("task", ""), asked.get("document", "")
    dataset = library.dataset(task) if task in library.tasks() else None
    if dataset is None or name not in dataset.collection.documents.position:
        raise R2medError(f"no document {name!r} of {task!r} is on this machine")
    text = dataset.collection.documents.text(name)
    question = asked.get("q", "")
    kinds = searching.question_kinds(question) if question else {}
    if asked.get("query") and asked.getlist("run"):
        kinds = run_kinds(library, [library.entry(run) for run in asked.getlist("run")], asked["query"])
    template = "_text.html" if asked.get("part") else "document.html"
    values = {"task": task, "document": name, "text": text[:LONGEST_TEXT], "letters": len(text), "kinds": kinds}
    return template, {**values, "longest": LONGEST_TEXT}


def runs_page(library: Library, request: Request) -> Shown:
    """Every run of the ledger, newest first."""
    asked = request.query_params
    wanted, oracles = asked.get("q", "").casefold().split(), asked.get("oracles") == "1"
    matching = [
        e for e in library.entries() if all(word in f"{e.id}\n{e.system}\n{e.task}".casefold() for word in wanted)
    ]
    entries = [e for e in matching if oracles or not e.oracle]
    pages = Pages.of(len(entries), _number(asked, "page"))
    values = {
        "entries": entries[pages.cut()],
        "pages": pages,
        "links": _links(request, "rank"),
        "means": library.means(),
    }
    hidden = len(matching) - len(entries)
    return "runs.html", {**values, "text": asked.get("q", ""), "oracles": oracles, "hidden": hidden}


def run_page(library: Library, request: Request) -> Shown:
    """A run with everything that was recorded, and its queries."""
    entry = library.entry(request.path_params["id"])
    asked = request.query_params
    values, found = library.headline(entry), library.causes(entry)
    causes = {each.query: each for each in found.queries} if found else {}
    rows = [(query, values.get(query, 0.0), _query_text(library, entry.task, query)) for query in entry.queries]
    wanted, cause = asked.get("q", "").casefold().strip(), asked.get("cause", "")
    rows = [row for row in rows if wanted in f"{row[0]}\n{row[2]}".casefold() and _has_cause(causes.get(row[0]), cause)]
    links = _links(request, "lowest")
    if links.sort in ("lowest", "highest"):
        rows.sort(key=lambda row: row[1], reverse=links.sort == "highest")
    pages = Pages.of(len(rows), _number(asked, "page"))
    record = orjson.dumps(entry.record.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return "run.html", {
        "entry": entry, "means": _headline_first(library.means().get(entry.id, {})),
        "rows": rows[pages.cut()], "pages": pages,
        "links": links, "record": record.decode("utf-8", "replace"), "cost": Cost.of_runs([entry]),
        "text": asked.get("q", ""), "causes": causes, "cause": cause,
        "known_causes": [each.value for each in Cause if any(_has_cause(row, each.value) for row in causes.values())],
    }  # fmt: skip


def _headline_first(means: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(means.items(), key=lambda pair: pair[0] != str(HEADLINE)))


def _has_cause(found: QueryCause | None, cause: str) -> bool:
    """Whether one of a query's relevant documents has a cause; with no cause asked for, always."""
    return not cause or (found is not None and any(each.cause.value == cause for each in found.positives))


def search_page(library: Library, request: Request) -> Shown:
    """A form for any question, and what systems return for it."""
    asked = request.query_params
    tasks = searching.searchable_tasks(library)
    task = asked.get("task", "") or next(iter(tasks), "")
    one_of(task, tasks, "task with data on this machine")
    dataset = library.dataset(task)
    found = searching.searchers(library, dataset) if dataset else []
    ready = [each.system for each in found if each.ready]
    chosen = [name for name in asked.getlist("system") if name in ready] or ready[:3]
    values = {**_answers(library, request, chosen), "tasks": tasks, "task": task, "searchers": found, "chosen": chosen}
    values["job"] = library.jobs.newest("index", task)
    return "search.html", {**values, "documents": len(dataset.collection.documents) if dataset else 0}


def search_results(library: Library, request: Request) -> Shown:
    """Only what systems return, for a page that asks while one types."""
    return "_results.html", _answers(library, request, request.query_params.getlist("system"))


def _answers(library: Library, request: Request, systems: list[str]) -> dict[str, Any]:
    question, task = request.query_params.get("q", "").strip(), request.query_params.get("task", "")
    if not question or not task:
        return {"question": question, "answers": [], "kinds": {}, "words": WORDS, "task": task, "chosen": systems}
    dataset = library.dataset(one_of(task, searching.searchable_tasks(library), "task with data on this machine"))
    if dataset is None:
        raise R2medError(f"the data of {task} is not on this machine")
    answers = searching.search(library, question, dataset, systems[:6])
    first = {each.document: each.rank for each in answers[0].documents} if answers else {}
    moved = [
        replace(each, documents=[_moved(found, first) for found in each.documents]) if place else each
        for place, each in enumerate(answers)
    ]
    kinds = searching.question_kinds(question)
    return {"question": question, "answers": moved, "kinds": kinds, "words": WORDS, "task": task, "chosen": systems}


def _moved(found: Any, first: dict[str, int]) -> Any:
    return replace(found, moved=first[found.document] - found.rank if found.document in first else None)


def start_index(library: Library, task: str, system: str) -> None:
    """Have what a search needs built."""
    dataset = library.dataset(one_of(task, searching.searchable_tasks(library), "task with data on this machine"))
    if dataset is None:
        raise R2medError(f"the data of {task} is not on this machine")
    searching.check_light(system)
    title = f"Index of {system} for {task}"
    library.jobs.submit(
        ("index", task, system), title, search_address(task), lambda _: searching.build(system, dataset)
    )


def search_address(task: str) -> str:
    """Where one searches a task."""
    return address("/search", task=task)


def system_address(system: str, group: str) -> str:
    """Where one reads about a system."""
    return address("/system", system=system, group=group)


def progress_page(library: Library, request: Request) -> Shown:
    """What runs right now, and what was finished last."""
    return "progress.html", progress_bars(library, request)[1]


def progress_bars(library: Library, request: Request) -> Shown:
    """Only what changes."""
    jobs = [job for job in reversed(library.jobs.all()) if job.active or time.time() - job.ended < _REMEMBERED]
    values = {"works": in_progress(), "jobs": jobs, "own": os.getpid(), "now": time.time()}
    return "_bars.html", {**values, "entries": library.entries()[:10]}
