"""A static leaderboard site: boards, systems and sources as files with relative links, for any static host.

Its systems are chosen runs of the ledger, or those of a folder of submissions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import orjson

import r2med
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import AVERAGE, registry
from r2med.errors import R2medError
from r2med.exchange.submissions import Accepted, Submissions, read_submissions
from r2med.leaderboard.board import board
from r2med.leaderboard.charts import line_point
from r2med.leaderboard.page_table import Hrefs, sorted_table
from r2med.leaderboard.published_page import own_figures, published_citation, published_facts, source_facts, verdicts
from r2med.leaderboard.report_file import ReportChoice, report
from r2med.leaderboard.site_pages import (
    MAX_SYSTEMS,
    Marks,
    PairPage,
    ReportPlaces,
    as_script,
    baseline_marks,
    best_ceiling,
    pair_page,
)
from r2med.measure.metrics import Measure
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.named_runs import select
from r2med.render.charts.chart import responsive
from r2med.render.charts.dots import DotChart
from r2med.render.html import Frame, render, static
from r2med.render.scores.model import SUBMITTED, Board, BoardRow, View
from r2med.render.scores.text import FORMATS
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Chosen, Shared, on_shared_tasks
from r2med.store.files import draft_folder, reason, write_file
from r2med.tuning.charts import frontier_panels
from r2med.web.citation import Citation, Colophon, colophon, without_folders

Runs = Mapping[str, Mapping[str, Entry]]
"""System to task to its run."""
Grouped = Mapping[str, Runs]
"""Group to its runs."""
Names = Mapping[tuple[str, bool, str], str]
"""Group, whether it is an own run, and the system's name to the file of its page."""
_FILES = {"full": "index.html", "nano": "nano.html", "sample": "sample.html"}
_COMPARISONS = {"full": "compare.html", "nano": "compare-nano.html", "sample": "compare-sample.html"}
_MANIFEST = ".r2med-site.json"
"""The names of all files that a site is made of: what the next one may remove."""
_STATED_COSTS = "costs are as the submitters state them: they are not checked, and of different machines"
_WRITERS = 16
"""Files that are written at once."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'none'; "
    "form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Site:
    """Contents of the site."""

    systems: Sequence[str] = ()
    """Specs or ids of own runs."""
    measure: str = "nDCG@10"
    reports: bool = True
    """Whether each group of own runs gets a report with all queries."""
    command: str = ""
    """The command that makes it."""
    submissions: Path | None = None
    """A folder of archives, in place of own runs."""
    submit_to: str = ""
    """Where archives are to be sent."""
    url: str = ""
    """Where the site will be read."""

    def cite(self, title: str, file: str) -> Citation:
        """Return how to cite one of its pages."""
        return Citation(title, self.command, self.url and f"{self.url.rstrip('/')}/{file}")


@dataclass(frozen=True)
class WrittenSite:
    """Result of writing a site."""

    files: Sequence[str]
    submissions: Submissions = field(default_factory=Submissions)


def write_site(ledger: Ledger, site: Site, folder: Path, executor: Executor | None = None) -> WrittenSite:
    """Write the site into a folder, of runs of the ledger or of submissions, which need no ledger."""
    site = replace(site, command=without_folders(site.command))
    if site.submissions is None:
        return WrittenSite(_write(_pages(ledger, site, _own(ledger, site.systems), Submissions(), executor), folder))
    with TemporaryDirectory(prefix="r2med-site-") as place, Ledger(Path(place) / "ledger.sqlite") as aside:
        found = read_submissions(site.submissions, aside, Measure.parse(site.measure))
        pages = _pages(aside, site, _by_group(found.runs), found, executor)
        pages |= {_archive(each): each.path.read_bytes() for each in found.accepted}
        return WrittenSite(_write(pages, folder), found)


def _pages(
    ledger: Ledger, site: Site, own: Grouped, sent: Submissions, executor: Executor | None
) -> dict[str, str | bytes]:
    pages: dict[str, str | bytes] = {
        name.partition("/")[2]: static(name)
        for name in ("render/style.css", "web/app.js", "leaderboard/compare.js", "render/icon.svg")
    }
    view = View(measure=site.measure, intervals=True, ties=True)
    shown = {group: board(ledger, replace(view, group=group), own.get(group, {})) for group in _FILES}
    shown = {group: _submitted(found, sent) for group, found in shown.items() if found.lines or group == "full"}
    links = {GROUP_TITLES[group]: _FILES[group] for group in shown}
    compared = {group: _COMPARISONS[group] for group, found in shown.items() if len(found.lines) > 1}
    links |= {"Compare": next(iter(compared.values()))} if compared else {}
    links |= {"Sources": "sources.html"}
    links |= {"How to submit": "submit.html"} if site.submissions is not None else {}
    found_shared = {group: on_common_tasks(rows) for group, rows in own.items()} if site.reports else {}
    shared = {group: runs for group, runs in found_shared.items() if runs is not None}
    reports = {group: f"report-{group}.html" for group in shared}
    names = _file_names(shown)
    for group, found in shown.items():
        here = {**links, **({"Compare": compared[group]} if group in compared else {})}
        frame = Frame(here, GROUP_TITLES[group], policy=_POLICY)
        made = colophon((entry for row in own.get(group, {}).values() for entry in row.values()), site.command)
        runs = own.get(group, {})
        marks = baseline_marks(ledger, found, runs)
        title = f"{GROUP_TITLES[group]} leaderboard, {found.measure}"
        cite = site.cite(title, _FILES[group])
        pages |= _board_files(found, frame, reports.get(group, ""), names, runs, made, marks, cite, sent)
        if group in compared:
            places = ReportPlaces()
            if group in reports:
                systems = ReportChoice(shared[group]).systems
                places = ReportPlaces(reports[group], {name: place for place, name in enumerate(systems)})
            hrefs = {(line.own, line.name): names[group, line.own, line.name] for line in found.lines}
            pair = pair_page(ledger, found, runs, hrefs, places)
            pages[compared[group]] = _comparison(pair, replace(frame, current="Compare"), compared, site)
        inner = Frame({k: f"../{v}" for k, v in here.items()}, GROUP_TITLES[group], "../", policy=_POLICY)
        for line in found.lines:
            name = line.name
            file = names[group, line.own, name]
            if line.own:
                cite = site.cite(f"{line.title or name}, {GROUP_TITLES[group]}, {found.measure}", file)
                pages[file] = _system(line, found, inner, runs[name], sent.of(name), cite)
            else:
                cite = replace(published_citation(name, group, found.measure), url=site.cite("", file).url)
                pages[file] = _published(name, found, inner, names, ledger, runs, cite)
    around = Frame(links, "Sources", policy=_POLICY)
    pages["sources.html"] = render("leaderboard/site_sources.html", around, **source_facts(), cite=Citation("Sources"))
    if site.submissions is not None:
        pages["submit.html"] = _how_to_submit(site, sent, Frame(links, "How to submit", policy=_POLICY), names)
    for group, name in reports.items():
        title = f"{GROUP_TITLES[group]}: queries"
        choice = ReportChoice(shared[group], causes=False, title=title, command=site.command)
        pages[name] = report(ledger, choice, executor)
    return pages


def _comparison(pair: PairPage, frame: Frame, compared: Mapping[str, str], site: Site) -> str:
    """Render a page that compares any two lines of a board."""
    group = pair.board.group
    title = f"Two systems of the {GROUP_TITLES[group]} leaderboard, {pair.board.measure}"
    return render(
        "leaderboard/site_compare.html",
        frame,
        pair=pair,
        most=MAX_SYSTEMS,
        boards={GROUP_TITLES[each]: "" if each == group else file for each, file in compared.items()},
        board_href=_FILES[group],
        cite=site.cite(title, compared[group]),
    )


def on_common_tasks(rows: Runs) -> Shared | None:
    """Return the systems of a group on the tasks they share; if they share none, those that have every task."""
    every = {task for row in rows.values() for task in row}
    for several in (rows, {name: row for name, row in rows.items() if row.keys() == every}):
        if several:
            with suppress(R2medError):
                return on_shared_tasks([Chosen(name, name, row) for name, row in several.items()])
    return None


def _submitted(found: Board, sent: Submissions) -> Board:
    """Mark a board's local lines as submitted, with the system and the title of each."""
    titles, lines = sent.titles(), []
    for row in found.lines:
        known = sent.of(row.name) if row.own else None
        if known is not None:
            row = replace(row, sources=(SUBMITTED,), system=known.systems[row.name], title=titles[row.name])
        lines.append(row)
    stated = any(SUBMITTED in line.sources for line in lines)
    return replace(found, lines=lines, notes=[*found.notes, *[_STATED_COSTS] * stated])


def _by_group(runs: Runs) -> Grouped:
    found: dict[str, dict[str, dict[str, Entry]]] = {}
    for name, row in runs.items():
        for task, entry in row.items():
            found.setdefault(entry.group, {}).setdefault(name, {})[task] = entry
    return {group: rows for group, rows in found.items() if group in _FILES}


def _archive(sent: Accepted) -> str:
    """Return the place of an archive on a site, for anyone to check."""
    return f"submissions/{sent.digest[:16]}.zip"


def _how_to_submit(site: Site, sent: Submissions, frame: Frame, names: Names) -> str:
    lines = {
        line: [(group, file) for (group, own, name), file in names.items() if own and name == line]
        for each in sent.accepted
        for line in each.systems
    }
    archives = {each.name: _archive(each) for each in sent.accepted}
    return render(
        "leaderboard/site_submit.html", frame, sent=sent, lines=lines, archives=archives, submit_to=site.submit_to
    )


def _own(ledger: Ledger, names: Sequence[str]) -> Grouped:
    """Return the chosen runs by group and system."""
    found: dict[str, dict[str, dict[str, Entry]]] = {}
    for chosen in select(ledger, names) if names else ():
        for task, entry in chosen.runs.items():
            if entry.group in _FILES and task in registry():
                found.setdefault(entry.group, {}).setdefault(entry.name, {})[task] = entry
    if names and not found:
        raise R2medError("a site shows runs on the full, nano or sample tasks, and none of these is one")
    return found


def _file_names(shown: Mapping[str, Board]) -> Names:
    """Name a file for each system: its name in letters that every host takes, numbered if two would be alike."""
    found: dict[tuple[str, bool, str], str] = {}
    for group, board_ in shown.items():
        for row in {(line.own, line.name): line for line in board_.lines}.values():
            base = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:60] or "system"
            name = f"{'systems' if row.own else 'published'}/{group}-{base}"
            while f"{name}.html" in found.values():
                name += "-2"
            found[group, row.own, row.name] = f"{name}.html"
    return found


def _board_files(
    found: Board,
    frame: Frame,
    reported: str,
    names: Names,
    own: Runs,
    made: Colophon,
    marks: Marks,
    cite: Citation,
    sent: Submissions,
) -> dict[str, str]:
    """Write a board's page, and its figures for machines."""
    name = _FILES[found.group]
    stem = Path(name).stem
    table = sorted_table(found, found.lines)
    panels = [] if table.costs_stated else frontier_panels(own, found.lines, found.measure)
    page = render(
        "leaderboard/site_board.html",
        frame,
        table=table,
        panels=panels,
        files={"CSV": f"{stem}.csv", "JSON": f"{stem}.json"},
        reported=reported,
        comparison=frame.links.get("Compare", ""),
        cite=cite,
        colophon=made,
        baselines=list(marks),
        marks=as_script({"columns": list(found.columns), "marks": marks}) if marks else "",
        ceiling=best_ceiling(found.lines),
        hrefs=Hrefs(
            own=lambda system: names[found.group, True, system],
            published=lambda system, group: names[group, False, system],
            source=lambda name: f"sources.html#{name}",
            submission=sent.of,
        ),
    )
    return {name: page, f"{stem}.csv": FORMATS["csv"]([found]), f"{stem}.json": FORMATS["json"]([found])}


def _system(
    line: BoardRow, found: Board, frame: Frame, entries: Mapping[str, Entry], sent: Accepted | None, cite: Citation
) -> str:
    points = [
        point for task in (*found.tasks, AVERAGE) if (point := line_point(line, task, task or "average")) is not None
    ]
    return render(
        "leaderboard/site_system.html",
        frame,
        line=line,
        board=found,
        entries=entries,
        cite=cite,
        sent=sent,
        archive=f"../{_archive(sent)}" if sent else "",
        comparison=_chosen(frame, line.name),
        chart=responsive(DotChart(f"{found.measure} of {line.title or line.name}", f"{found.measure} x 100", points)),
    )


def _chosen(frame: Frame, name: str) -> str:
    """Return the link to compare a system with others; empty if there is no other."""
    place = frame.links.get("Compare", "")
    return place and f"{place}#{urlencode({'a': name})}"


def _published(name: str, found: Board, frame: Frame, names: Names, ledger: Ledger, runs: Runs, cite: Citation) -> str:
    """Render what each source reports of a published system, as the server's page of it does."""
    facts = published_facts(name, found.group, found.measure)
    own = names.get((found.group, True, facts["system"]), "")
    figures = own_figures(ledger, runs.get(facts["system"], {}), found.measure)
    return render(
        "leaderboard/published.html",
        frame,
        **facts,
        own_href=f"../{own}" if own else "",
        own=figures,
        verdicts=verdicts(facts["rows"], figures, found.measure),
        source_href="../sources.html#",
        comparison=_chosen(frame, name),
        cite=cite,
        others=[measure for measure in facts["measures"] if measure != found.measure],
    )


def _write(pages: Mapping[str, str | bytes], folder: Path) -> list[str]:
    """Put all pages in place once all are written, and remove those of the last time that there are no more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder, "site") as draft:
            listed = orjson.dumps(sorted(pages), option=orjson.OPT_INDENT_2)
            texts = {**pages, _MANIFEST: listed.decode()}
            with ThreadPoolExecutor(_WRITERS) as writers:  # mostly they wait for the disk
                list(writers.map(lambda name: write_file(draft / name, texts[name], parents=True), texts))
            outdated = _listed(folder) - pages.keys()
            for name in (*pages, _MANIFEST):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).replace(folder / name)
            for name in outdated:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise R2medError(f"{folder}: cannot be written ({reason(error)})") from error
    return sorted(pages)


def _listed(folder: Path) -> set[str]:
    """Return the pages that a site was written with before; a name that leads out of the folder is ignored."""
    try:
        names = orjson.loads((folder / _MANIFEST).read_bytes())
        return {name for name in names if (folder / name).resolve().is_relative_to(folder.resolve())}
    except (OSError, ValueError, TypeError):
        return set()


def workflow() -> str:
    """Return the workflow by which GitHub Actions updates a site of submissions, for this version of r2med."""
    return static("leaderboard/leaderboard.yml").replace("VERSION", r2med.__version__)
