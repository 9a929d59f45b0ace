"""The board: what its address asks for, and the lines that answer it; the page and its downloads share both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from r2med.board.leaderboard import View
from r2med.board.model import OWN, Board, Line
from r2med.data.published import KINDS, published, sources
from r2med.data.tasks import registry
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.render.board_text import FORMATS
from r2med.render.html import address
from r2med.runs.selection import Chosen, on_shared_tasks
from r2med.web.addresses import PageContent, Pages, SortLinks, one_of, page_number, system_address
from r2med.web.library import Library
from r2med.web.page_table import (
    FAMILY,
    Hrefs,
    Standings,
    containing,
    decorated,
    families_of,
    ordered,
    sorted_table,
    with_ties,
)
from r2med.web.panels import frontier_panels, known_causes, system_causes
from r2med.web.report_file import ReportChoice, report

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request

BOARDS = ("full", "nano", "sample")
"""The groups that always have a board, the most wanted first; folders have one once something was run on them."""
ORIGINS = ("", "own", "published")
FILES = {"CSV": "csv", "JSON": "json", "LaTeX": "tex"}
"""As what a board can be downloaded, with the ending of the file."""
PARTS = ("retriever", "llm", "reranker")
"""The parts of systems that a board can be narrowed down to."""
_EXPLAINED = 12
"""Systems whose causes a board shows."""


@dataclass(frozen=True)
class BoardQuery:
    """A board as it was asked for."""

    view: View
    tasks: Sequence[str]
    """All tasks of the group."""
    task: str
    sort: str
    ascending: bool
    text: str
    origin: str
    oracles: bool
    board: Board
    lines: Sequence[Line]
    """In the order that was asked for, all pages of them."""
    hidden: Sequence[Line]
    """Oracles that would be there if they had been asked for, the best first."""
    baselines: Sequence[str]
    """The systems that marks of significance can be against."""
    choices: Mapping[str, Sequence[str]]
    """What else the board can be narrowed down to: families of tasks, and parts of systems."""
    dropped: Sequence[str]
    """What was asked for and is not on this board, a sentence each."""

    @property
    def filters(self) -> list[str]:
        """What narrows the board down, in words."""
        found = [f"every word of “{self.text}”"] if self.text else []
        found += [f"kind {self.view.kind}"] if self.view.kind else []
        found += [f"{part} {getattr(self.view, part)}" for part in PARTS if getattr(self.view, part)]
        found += [f"source {name}" for name in self.view.sources]
        return found + ([f"origin {self.origin}"] if self.origin else [])


def board_page(library: Library, request: Request) -> PageContent:
    """Published figures and own runs in one ranking."""
    asked = request.query_params
    found = read_board(library, asked)
    view, board = found.view, found.board
    links = SortLinks(request.url.path, dict(asked), found.sort, found.ascending)
    pages = Pages.of(len(found.lines), page_number(asked, "page"))
    shown = found.lines[pages.cut()]
    sure = [line for line in shown if line.row.own and line.average is not None]
    shown = decorated(shown, library.intervals(sure, view.measure))
    by_id = library.by_id()
    runs = {line.row.name: {task: by_id[run] for task, run in line.row.runs.items()} for line in sure}
    values = {
        "asked": found,
        "table": sorted_table(
            board, shown, links.sort, library.current(("standings", view), lambda: Standings.of(board))
        ),
        "links": links,
        "pages": pages,
        "panels": [
            *frontier_panels(runs, shown, view.measure),
            *system_causes(known_causes(library, dict(list(runs.items())[:_EXPLAINED]))),
        ],
        "view": view,
        "kinds": KINDS,
        "sources": _sources(view.group),
        "source": view.sources[0] if view.sources else "",
        "boards": board_groups(library),
        "measures": board_measures(library, view),
        "hrefs": Hrefs(lambda name: system_address(name, view.group), _published_address, _source_address),
        "files": {name: address(f"/board.{ending}", **{**links.asked, "page": ""}) for name, ending in FILES.items()},
        "cleared": address("/", group=view.group, task=found.task, metric=asked.get("metric", "")),
    }
    return "board.html", values


def board_file(library: Library, request: Request) -> tuple[str, str]:
    """The whole board as text in one of `FILES`, as it is filtered and sorted, and the kind of the text."""
    found = read_board(library, request.query_params)
    wanted = request.query_params.getlist("system")
    lines = [line for line in found.lines if not wanted or line.row.name in wanted]
    if wanted and not lines:
        raise R2medError(f"this board has no {' and no '.join(map(repr, wanted))}")
    sure = [line for line in lines if line.row.own and line.average is not None]
    lines = decorated(lines, library.intervals(sure, found.view.measure))
    ending = request.url.path.rpartition(".")[2]
    name = next(name for name, each in FILES.items() if each == ending)
    kind = "application/json" if ending == "json" else "text/csv" if ending == "csv" else "text/plain"
    return FORMATS[name.lower()]([replace(found.board, lines=lines)]), kind


def report_file(library: Library, request: Request) -> tuple[str, str]:
    """Chosen systems as a report in one file, over the tasks of a board that all of them were run on."""
    asked = request.query_params
    group, names = asked.get("group", ""), asked.getlist("system")
    measure = Measure.parse(asked.get("metric", "") or "nDCG@10")
    runs = [Chosen(name, name, library.newest(name, group)) for name in names]
    if not runs or not all(each.runs for each in runs):
        lacking = [each.label for each in runs if not each.runs]
        raise R2medError(f"no own run of {', '.join(lacking)} on this board" if lacking else "name a system to report")
    command = f"r2med report {' '.join(map(repr, names))} --tasks {group} --out report.html"
    choice = ReportChoice(on_shared_tasks(runs), measure, causes=False, command=command)
    return report(library.ledger, choice), "text/html"


def read_board(library: Library, asked: QueryParams) -> BoardQuery:
    """The board that an address asks for."""
    group = one_of(asked.get("group", "") or first_group(library), board_groups(library), "board")
    kind = one_of(asked.get("kind", ""), ("", *KINDS), "kind")
    origin = one_of(asked.get("origin", ""), ORIGINS, "origin")
    measure = str(Measure.parse(asked.get("metric", "") or "nDCG@10"))
    source = one_of(asked.get("source", ""), ("", *_sources(group)), "source")
    view = View(group=group, measure=measure, own=origin != "published", published=origin != "own", cost=True)
    view = replace(view, sources=(source,) if source else ())
    tasks = library.board(view).tasks
    task = same_task(asked.get("task", ""), tasks)
    choices = {"family": sorted({known.family for name in tasks if (known := registry().get(name)) and known.family})}
    view = replace(view, tasks=(task,) if task else (), family="" if task else _known(asked, "family", choices))
    whole = library.board(view)
    choices |= {part: _parts(whole, part) for part in PARTS}
    baselines = [line.row.name for line in whole.lines if line.row.own and line.rank is not None]
    baseline = asked.get("baseline", "") if asked.get("baseline", "") in baselines else ""
    retriever, llm, reranker = (_known(asked, part, choices) for part in PARTS)
    view = replace(view, baseline=baseline, kind=kind, retriever=retriever, llm=llm, reranker=reranker)
    board = tied_board(library, view)
    text, oracles = asked.get("q", "").strip(), asked.get("oracles") == "1" or kind == "oracle"
    matching = containing(board.lines, text)
    hidden = [] if oracles else [line for line in matching if line.row.oracle]
    sort, ascending = _column(asked.get("sort", ""), board.tasks), asked.get("order") == "up"
    kept = [line for line in matching if oracles or not line.row.oracle]
    lines = ordered(kept, sort, descending=not ascending, families=families_of(board.tasks))
    dropped = []
    if asked.get("task") and not task:
        dropped.append(f"This board has no task {asked['task']}; all tasks are shown.")
    if asked.get("baseline") and not baseline:
        dropped.append(f"{asked['baseline']} has no rank here and cannot be the baseline.")
    dropped += [
        f"This board has no {name} {asked[name]}."
        for name, known in choices.items()
        if asked.get(name) and asked[name] not in known
    ]
    order = (task, sort, ascending, text, origin, oracles)
    return BoardQuery(view, tasks, *order, board, lines, hidden, baselines, choices, dropped)


def tied_board(library: Library, view: View) -> Board:
    """A board with the systems marked that the best own one does not beat."""

    def make() -> Board:
        board = library.board(view)
        return with_ties(board, library.unbeaten(board.lines, view.measure))

    return library.current(("tied", view), make)


def _sources(group: str) -> list[str]:
    """Where the figures of a group's board may come from."""
    return [OWN, *(name for name, source in sources().items() if source.group == group)]


def _known(asked: QueryParams, name: str, choices: Mapping[str, Sequence[str]]) -> str:
    """What an address asks for, where this board has it."""
    return asked.get(name, "") if asked.get(name, "") in choices[name] else ""


def _parts(board: Board, part: str) -> list[str]:
    """The retrievers, language models or rerankers of a board's systems."""
    return sorted({name for line in board.lines for name in getattr(line.row.parts, f"{part}s")})


def _column(sort: str, tasks: Sequence[str]) -> str:
    """The column to sort by; one of another board's tasks is that task here, or else the rank."""
    if sort in ("", "rank", "name", "average"):
        return sort or "rank"
    if sort.startswith(FAMILY):
        return sort if sort.removeprefix(FAMILY) in families_of(tasks) else "rank"
    found = same_task(sort, tasks)
    if not found and "/" not in sort:
        one_of(sort, ["rank", "name", "average", *tasks], "column")
    return found or "rank"


def same_task(task: str, tasks: Sequence[str]) -> str:
    """The task of a group that another group calls otherwise; nothing where it has no such task.

    >>> same_task("sample/Biology", ["Bioinformatics", "Biology"]), same_task("none", ["Biology"])
    ('Biology', '')
    """
    if task in tasks:
        return task
    return next((name for name in tasks if name.rpartition("/")[2] == task.rpartition("/")[2]), "")


def board_groups(library: Library) -> list[str]:
    """The groups that have a board."""
    return list(dict.fromkeys((*BOARDS, *sorted(library.groups()))))


def first_group(library: Library) -> str:
    """The board to open with."""
    there = library.groups()
    return next((name for name in board_groups(library) if name in there), "full")


def board_measures(library: Library, view: View) -> list[str]:
    """The measures that a board can be ranked by: those of own runs, those published, and the present one."""
    found = [name for system in published() if system.source.group == view.group for name in system.figures]
    return list(dict.fromkeys((*library.measures(), *found, view.measure)))


def _published_address(name: str, group: str) -> str:
    return address("/published", name=name, group=group)


def _source_address(name: str) -> str:
    return f"/sources#{name}"
