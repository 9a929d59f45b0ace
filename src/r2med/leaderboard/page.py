"""The board that a URL asks for, as a page and as downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from starlette.datastructures import QueryParams
from starlette.requests import Request

from r2med.data.published import KINDS, published, sources
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import registry
from r2med.diagnosis.charts import known_causes, system_causes
from r2med.errors import R2medError, nearest
from r2med.leaderboard.board import FAMILY, INTERVAL, ORDERS, containing, families_of, ordered
from r2med.leaderboard.page_table import Hrefs, Standings, decorated, sorted_table, with_queries
from r2med.leaderboard.report_file import ReportChoice, report
from r2med.measure.metrics import Measure
from r2med.render.html import address
from r2med.render.scores.model import CONTAMINATION, OWN, RANKS, Board, BoardRow, View
from r2med.render.scores.text import FORMATS
from r2med.runs.selection import Chosen, on_shared_tasks
from r2med.tuning.charts import frontier_panels
from r2med.web.addresses import SIZE, Correction, PageContent, Pages, SortLinks, page_number, same_task, system_address
from r2med.web.citation import Citation, citation, options
from r2med.web.library import Library

BOARDS = ("full", "nano", "sample")
"""The groups that always have a board, the most wanted first; folders have one once something was run on them."""
ORIGINS = ("own", "published")
FILES = {"CSV": "csv", "JSON": "json", "LaTeX": "tex"}
"""As what a board can be downloaded, with the ending of the file."""
PARTS = ("retriever", "llm", "reranker")
"""The parts of systems that a board can be narrowed down to."""
_HEADLINE = "nDCG@10"
_EXPLAINED = 12  # systems whose causes a board shows


@dataclass(frozen=True)
class BoardQuery:
    """A board as it was asked for."""

    view: View
    tasks: Sequence[str]  # all tasks of the group
    task: str
    sort: str
    ascending: bool
    text: str
    origin: str
    oracles: bool
    board: Board
    lines: Sequence[BoardRow]  # in the order that was asked for, all pages of them
    hidden: Sequence[BoardRow]  # oracles that would be there if they had been asked for, the best first
    baselines: Sequence[str]  # the systems that marks of significance can be against
    choices: Mapping[str, Sequence[str]]
    """What else the board can be narrowed down to: families of tasks, and parts of systems."""
    dropped: Sequence[Correction]  # what was asked for and is not on this board
    unknown: bool  # whether any of that is on no board

    @property
    def filters(self) -> list[str]:
        """Return what narrows the board down, in words."""
        filters = [f"every word of “{self.text}”"] if self.text else []
        filters += [f"kind {self.view.kind}"] if self.view.kind else []
        filters += [f"{part} {getattr(self.view, part)}" for part in PARTS if getattr(self.view, part)]
        filters += [f"source {name}" for name in self.view.sources]
        return filters + ([f"origin {self.origin}"] if self.origin else [])


def board_page(library: Library, request: Request) -> PageContent:
    """Show published figures and local runs in one ranking."""
    asked = request.query_params
    query = read_board(library, asked)
    view, board = query.view, query.board
    plain = {name: value for name, value in asked.items() if name != "tick"}
    links = SortLinks(request.url.path, plain, query.sort, query.ascending)
    pages = Pages.of(len(query.lines), page_number(asked, "page"))
    lines = query.lines[pages.cut()]
    sure = with_queries(lines)
    lines = decorated(lines, library.intervals(sure, view.measure))
    by_id = library.by_id()
    runs = {line.name: {task: by_id[run] for task, run in line.runs.items()} for line in sure}
    standings = library.current(("standings", view), lambda: Standings.of(board))
    page = (view, query.sort, query.ascending, query.text, query.oracles, pages.number)
    table = library.current(("table", page), lambda: sorted_table(board, lines, links.sort, standings))
    costs = library.current(("costs", page), lambda: frontier_panels(runs, lines, view.measure))
    names, local = set(asked.getlist("tick")), {line.name for line in board.lines if line.own}
    values = {
        "asked": query,
        "table": table,
        "ticked": {line.name: line.name in local for line in board.lines if line.name in names},
        "links": links,
        "pages": pages,
        "panels": costs + system_causes(known_causes(library, dict(list(runs.items())[:_EXPLAINED]))),
        "view": view,
        "kinds": KINDS,
        "sources": _sources(view.group),
        "source": view.sources[0] if view.sources else "",
        "boards": board_groups(library),
        "measures": board_measures(library, view),
        "hrefs": Hrefs(
            own=lambda name: system_address(name, view.group),
            published=lambda name, group: address("/published", name=name, group=group),
            source=lambda name: f"/sources#{name}",
        ),
        "files": {name: address(f"/board.{ending}", **{**links.asked, "page": ""}) for name, ending in FILES.items()},
        "cite": _cite(query),
        "status": 404 if query.unknown else 200,
        "cleared": address("/", group=view.group, task=query.task, metric=asked.get("metric", "")),
    }
    return "leaderboard/board.html", values


def board_file(library: Library, request: Request) -> tuple[str, str]:
    """Write the whole board as text in one of `FILES`, as it is filtered and sorted, and the kind of the text."""
    query = read_board(library, request.query_params)
    systems = request.query_params.getlist("system")
    lines = [line for line in query.lines if not systems or line.name in systems]
    if systems and not lines:
        raise R2medError(f"this board has no {' and no '.join(map(repr, systems))}")
    lines = decorated(lines, library.intervals(with_queries(lines), query.view.measure))
    ending = request.url.path.rpartition(".")[2]
    name = next(name for name, file_ending in FILES.items() if file_ending == ending)
    kind = {"json": "application/json", "csv": "text/csv"}.get(ending, "text/plain")
    return FORMATS[name.lower()]([replace(query.board, lines=lines)]), kind


def report_file(library: Library, request: Request) -> tuple[str, str]:
    """Write chosen systems as a report in one file, over the tasks of a board that all of them were run on."""
    asked = request.query_params
    group, names = asked.get("group", ""), asked.getlist("system")
    measure = Measure.parse(asked.get("metric", "") or "nDCG@10")
    runs = [Chosen(name, name, library.newest(name, group)) for name in names]
    if not runs:
        raise R2medError("name a system to report")
    if lacking := [system.label for system in runs if not system.runs]:
        raise R2medError(f"no own run of {', '.join(lacking)} on this board")
    command = f"r2med report {' '.join(map(repr, names))} --tasks {group} --out report.html"
    choice = ReportChoice(on_shared_tasks(runs), measure, causes=False, command=command)
    return report(library.ledger, choice), "text/html"


def read_board(library: Library, asked: QueryParams) -> BoardQuery:
    """Read the board that a URL asks for; what it does not have is dropped and noted."""
    values = _BoardValues(asked)
    group = values.one("group", board_groups(library), "board") or first_group(library)
    kind, origin = values.one("kind", KINDS, "kind"), values.one("origin", ORIGINS, "origin")
    source = values.one("source", _sources(group), "source")
    view = View(group=group, own=origin != "published", published=origin != "own", cost=True)
    view = replace(view, measure=values.measure(board_measures(library, view)), sources=(source,) if source else ())
    tasks = library.board(view).tasks
    task = values.task(tasks)
    families = {registry()[name].family for name in tasks if name in registry()}
    choices = {"family": sorted(families - {""})}
    family = values.one("family", choices["family"], "family", elsewhere=True)
    view = replace(view, tasks=(task,) if task else (), family="" if task else family)
    whole = library.board(view)
    for part in PARTS:
        choices[part] = sorted({name for line in whole.lines for name in getattr(line.parts, f"{part}s")})
    baselines = [line.name for line in whole.lines if line.own and line.rank is not None]
    baseline = values.one("baseline", baselines, "baseline", elsewhere=True)
    retriever, llm, reranker = (values.one(part, choices[part], part, elsewhere=True) for part in PARTS)
    details = tuple(name for name in (RANKS, CONTAMINATION) if asked.get(name) == "1")
    view = replace(view, baseline=baseline, kind=kind, retriever=retriever, llm=llm, reranker=reranker, details=details)
    ranked = library.board(view)
    tied = library.current(
        ("tied", view),
        lambda: replace(ranked, lines=decorated(ranked.lines, {}, library.unbeaten(ranked.lines, view.measure))),
    )
    text, oracles = asked.get("q", "").strip(), asked.get("oracles") == "1" or kind == "oracle"
    matching = containing(tied.lines, text)
    hidden = [] if oracles else [line for line in matching if line.oracle]
    sort, ascending = values.column(tied.tasks), asked.get("order") == "up"
    kept = [line for line in matching if oracles or not line.oracle]
    kept = decorated(kept, library.intervals(with_queries(kept), view.measure)) if sort == INTERVAL else kept
    lines = ordered(kept, sort, descending=not ascending, families=families_of(tied.tasks))
    return BoardQuery(
        view, tasks, task, sort, ascending, text, origin, oracles, tied, lines, hidden, baselines, choices,
        values.dropped, values.unknown,
    )  # fmt: skip


class _BoardValues:
    """Values of a URL's query, read one by one; unknown ones are noted."""

    def __init__(self, asked: QueryParams) -> None:
        self.asked = asked
        self.dropped: list[Correction] = []
        self.unknown = False

    def drop(self, name: str, sentence: str, known: Sequence[str], *, elsewhere: bool = False) -> None:
        """Note a value that this board does not have, and that none has unless it is `elsewhere`."""
        near = nearest(self.asked[name], known)
        self.dropped.append(Correction(sentence, near, address("/", **{**dict(self.asked), name: near})))
        self.unknown |= not elsewhere

    def one(self, name: str, known: Sequence[str], what: str, *, elsewhere: bool = False) -> str:
        """Return a value that must be one of some; nothing if it is none of them."""
        value = self.asked.get(name, "")
        if not value or value in known:
            return value
        sentence = f"This board has no {what} {value}." if elsewhere else f"There is no {what} {value}."
        if name == "baseline":
            sentence = f"{value} has no rank here and cannot be the baseline."
        self.drop(name, sentence, known, elsewhere=elsewhere)
        return ""

    def measure(self, known: Sequence[str]) -> str:
        """Return the measure to rank by."""
        value = self.asked.get("metric", "") or _HEADLINE
        try:
            return str(Measure.parse(value))
        except R2medError as error:
            reason = str(error).partition(";")[0]
            self.drop("metric", f"{reason[:1].upper()}{reason[1:]}.", known)
            return _HEADLINE

    def task(self, tasks: Sequence[str]) -> str:
        """Return the task to show alone, also by the name that it has on another board."""
        value = self.asked.get("task", "")
        task = same_task(value, tasks)
        if value and not task:
            self.drop("task", f"This board has no task {value}; all tasks are shown.", tasks, elsewhere=True)
        return task

    def column(self, tasks: Sequence[str]) -> str:
        """Return the column to sort by; one of another board's tasks is that task here, or else the rank."""
        value = self.asked.get("sort", "")
        if value in ORDERS or (value.startswith(FAMILY) and value.removeprefix(FAMILY) in families_of(tasks)):
            return value
        task = same_task(value, tasks)
        if value and not (task or "/" in value or value.startswith(FAMILY)):
            self.drop("sort", f"There is no column {value} to sort by.", [*ORDERS, *tasks])
        return task or ORDERS[0]


def _cite(query: BoardQuery) -> Citation:
    """Return the command that shows the same board in a terminal."""
    view = query.view
    folder = view.group not in BOARDS
    words = options(
        ("--group", "" if query.task and folder else view.group),
        ("--tasks", view.tasks),
        ("--family", view.family),
        ("--kind", view.kind),
        *((f"--{part}", getattr(view, part)) for part in PARTS),
        ("--measure", "" if view.measure == _HEADLINE else view.measure),
        ("--source", view.sources),
        ("--baseline", view.baseline),
        ("--find", query.text),
        ("--sort", "" if query.sort == ORDERS[0] else query.sort),
    )
    words += [f"--{query.origin}"] * bool(query.origin) + ["--ascending"] * query.ascending
    words += ["--no-oracles"] * (not query.oracles) + ["--ci", "--columns", "cost", *view.details]
    title = f"{GROUP_TITLES.get(view.group, view.group)} board{f', {query.task}' if query.task else ''}, {view.measure}"
    return citation(title, "board", *words)


def _sources(group: str) -> list[str]:
    """Return the sources that the figures of a group's board may have."""
    return [OWN, *(name for name, source in sources().items() if source.group == group)]


def board_groups(library: Library) -> list[str]:
    """Return the groups that have a board."""
    return list(dict.fromkeys((*BOARDS, *sorted(library.groups()))))


def first_group(library: Library) -> str:
    """Return the board to open with."""
    there = library.groups()
    return next((name for name in board_groups(library) if name in there), "full")


def board_measures(library: Library, view: View) -> list[str]:
    """Return the measures that a board can be ranked by: those of local runs, those published, and the present one."""
    stated = [name for system in published() if system.source.group == view.group for name in system.figures]
    return list(dict.fromkeys((*library.measures(), *stated, view.measure)))


def read_ahead(library: Library) -> None:
    """Compute the intervals of the board's further pages."""
    with suppress(R2medError):  # which a reader of the board sees
        board = library.board(View(group=first_group(library), cost=True))
        local = with_queries(board.lines)
        for start in range(0, len(local), SIZE):
            library.intervals(local[start : start + SIZE], board.measure)
