"""A static leaderboard site: boards, systems and sources as files with relative links, for any static host.

Its systems are chosen runs of the ledger, or those of a folder of submissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import orjson
from markupsafe import Markup

import r2med
from r2med.comparison.study import compare_shared, p_after_holm
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import AVERAGE, registry
from r2med.errors import R2medError
from r2med.exchange.submissions import Accepted, Submissions, read_submissions
from r2med.leaderboard.board import board
from r2med.leaderboard.page_table import Hrefs, line_point, sorted_table
from r2med.leaderboard.published_page import measured, published_citation, published_facts, source_facts
from r2med.leaderboard.report_file import ReportChoice, report
from r2med.measure.metrics import Measure
from r2med.measure.significance import Difference
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.named_runs import select
from r2med.render.charts.chart import responsive
from r2med.render.charts.dots import DotChart
from r2med.render.html import Frame, render, static
from r2med.render.scores.model import CONTAMINATION, RANKS, SUBMITTED, Board, BoardRow, View, line_labels
from r2med.render.scores.significance import BETTER, WORSE, Sample, significance
from r2med.render.scores.text import FORMATS
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Chosen, Shared, on_shared_tasks
from r2med.store.files import draft_folder, reason, write_file
from r2med.tuning.charts import frontier_panels
from r2med.web.citation import Citation, colophon, without_folders

Runs = Mapping[str, Mapping[str, Entry]]
"""System to task to its run."""
_FILES = {"full": "index.html", "nano": "nano.html", "sample": "sample.html"}
_COMPARISONS = {"full": "compare.html", "nano": "compare-nano.html", "sample": "compare-sample.html"}
_MANIFEST = ".r2med-site.json"  # the names of all files that a site is made of: what the next one may remove
_STATED_COSTS = "costs are as the submitters state them: they are not checked, and of different machines"
_WRITERS = 16  # files that are written at once
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'none'; "
    "form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Site:
    """Contents of the site."""

    systems: Sequence[str] = ()  # specs or ids of own runs
    measure: str = "nDCG@10"
    reports: bool = True  # whether each group of own runs gets a report with all queries
    command: str = ""  # the command that makes it
    submissions: Path | None = None  # a folder of archives, in place of own runs
    submit_to: str = ""  # where archives are to be sent
    url: str = ""  # where the site will be read

    def cite(self, title: str, file: str) -> Citation:
        """Return how to cite one of its pages."""
        return Citation(title, self.command, self.url and f"{self.url.rstrip('/')}/{file}")


def write_site(
    ledger: Ledger, site: Site, folder: Path, executor: Executor | None = None
) -> tuple[list[str], Submissions]:
    """Write a site of runs or submissions into a folder; return its files and the submissions it shows."""
    site = replace(site, command=without_folders(site.command))
    if site.submissions is None:
        systems = select(ledger, site.systems) if site.systems else ()
        entries = [(entry.name, task, entry) for system in systems for task, entry in system.runs.items()]
        runs = _by_group(row for row in entries if row[1] in registry())
        if systems and not runs:
            raise R2medError("a site shows runs on the full, nano or sample tasks, and none of these is one")
        return _write(_Pages(ledger, site, runs, Submissions()).write(executor), folder), Submissions()
    with TemporaryDirectory(prefix="r2med-site-") as place, Ledger(Path(place) / "ledger.sqlite") as aside:
        sent = read_submissions(site.submissions, aside, Measure.parse(site.measure))
        runs = _by_group((name, task, entry) for name, row in sent.runs.items() for task, entry in row.items())
        pages = _Pages(aside, site, runs, sent).write(executor)
        pages |= {_archive(one): one.path.read_bytes() for one in sent.accepted}
        return _write(pages, folder), sent


def _by_group(entries: Iterable[tuple[str, str, Entry]]) -> Mapping[str, Runs]:
    """Group runs, with their systems and tasks, by the boards of a site."""
    groups: dict[str, dict[str, dict[str, Entry]]] = {}
    for name, task, entry in entries:
        if entry.group in _FILES:
            groups.setdefault(entry.group, {}).setdefault(name, {})[task] = entry
    return groups


class _Pages:
    """The pages of a site, which link to each other."""

    def __init__(self, ledger: Ledger, site: Site, own: Mapping[str, Runs], sent: Submissions) -> None:
        self.ledger, self.site, self.own, self.sent = ledger, site, own, sent
        view = View(measure=site.measure, intervals=True, ties=True, details=(RANKS, CONTAMINATION))
        boards = [board(ledger, replace(view, group=group), own.get(group, {})) for group in _FILES]
        self.boards = {one.group: _submitted(one, sent) for one in boards if one.lines or one.group == "full"}
        self.compared = {group: _COMPARISONS[group] for group, one in self.boards.items() if len(one.lines) > 1}
        shared = {group: on_common_tasks(rows) for group, rows in own.items()} if site.reports else {}
        self.shared = {group: runs for group, runs in shared.items() if runs is not None}
        self.names = _file_names(self.boards)
        self.links = {GROUP_TITLES[group]: _FILES[group] for group in self.boards}
        self.links |= {"Compare": next(iter(self.compared.values()))} if self.compared else {}
        self.links |= {"Sources": "sources.html"}
        self.links |= {"How to submit": "submit.html"} if site.submissions is not None else {}

    def write(self, executor: Executor | None) -> dict[str, str | bytes]:
        """Return every file by its name."""
        pages: dict[str, str | bytes] = {
            name.partition("/")[2]: static(name)
            for name in ("render/style.css", "web/app.js", "leaderboard/compare.js", "render/icon.svg")
        }
        for one in self.boards.values():
            pages |= self._group(one)
        frame = Frame(self.links, "Sources", policy=_POLICY)
        cite = Citation("Sources")
        pages["sources.html"] = render("leaderboard/site_sources.html", frame, **source_facts(), cite=cite)
        if self.site.submissions is not None:
            pages["submit.html"] = render(
                "leaderboard/site_submit.html",
                replace(frame, current="How to submit"),
                sent=self.sent,
                files={(name, group): file for (group, own, name), file in self.names.items() if own},
                archive=_archive,
                submit_to=self.site.submit_to,
            )
        for group, shared in self.shared.items():
            title = f"{GROUP_TITLES[group]}: queries"
            choice = ReportChoice(shared, causes=False, title=title, command=self.site.command)
            pages[_report_file(group)] = report(self.ledger, choice, executor)
        return pages

    def _group(self, found: Board) -> dict[str, str]:
        """Return the files of a board: its page, figures for machines, and a page for each of its systems."""
        group, runs = found.group, self.own.get(found.group, {})
        links = {**self.links, **({"Compare": self.compared[group]} if group in self.compared else {})}
        frame = Frame(links, GROUP_TITLES[group], policy=_POLICY)
        stem = Path(_FILES[group]).stem
        pages = {
            _FILES[group]: self._board(found, frame, runs, {"CSV": f"{stem}.csv", "JSON": f"{stem}.json"}),
            f"{stem}.csv": FORMATS["csv"]([found]),
            f"{stem}.json": FORMATS["json"]([found]),
        }
        if group in self.compared:
            pages[self.compared[group]] = self._comparison(found, replace(frame, current="Compare"), runs)
        inner = replace(frame, links={name: f"../{href}" for name, href in links.items()}, root="../")
        for line in found.lines:
            file = self.names[group, line.own, line.name]
            write = self._system if line.own else self._published
            pages[file] = write(line, found, inner, runs, file)
        return pages

    def _board(self, found: Board, frame: Frame, runs: Runs, files: Mapping[str, str]) -> str:
        group, table = found.group, sorted_table(found, found.lines)
        marks = _baseline_marks(self.ledger, found, runs)
        oracles = [line for line in found.lines if line.oracle and line.average is not None]
        return render(
            "leaderboard/site_board.html",
            frame,
            table=table,
            panels=[] if table.costs_stated else frontier_panels(runs, found.lines, found.measure),
            files=files,
            reported=_report_file(group) if group in self.shared else "",
            comparison=frame.links.get("Compare", ""),
            cite=self.site.cite(f"{GROUP_TITLES[group]} leaderboard, {found.measure}", _FILES[group]),
            colophon=colophon((entry for row in runs.values() for entry in row.values()), self.site.command),
            baselines=list(marks),
            marks=_as_script({"columns": list(found.columns), "marks": marks}) if marks else "",
            ceiling=oracles[0] if 0 < len(oracles) < len(found.lines) else None,
            hrefs=Hrefs(
                own=lambda system: self.names[group, True, system],
                published=lambda system, group: self.names[group, False, system],
                source=lambda name: f"sources.html#{name}",
                submission=self.sent.of,
            ),
        )

    def _comparison(self, found: Board, frame: Frame, runs: Runs) -> str:
        """Render a page that compares any two lines of a board by itself, with links to the report of own runs."""
        group, report_file, places = found.group, "", []
        if group in self.shared:
            report_file, places = _report_file(group), list(ReportChoice(self.shared[group]).systems)
        labels, tasks = line_labels(found), found.tasks
        lines = [
            {
                "name": line.name,
                "own": line.own,
                "oracle": line.oracle,
                "sources": list(line.sources),
                "href": self.names[group, line.own, line.name],
                "values": [None if (value := line.value(task)) is None else round(value, 6) for task in tasks],
                "average": None if line.average is None else round(line.average, 6),
                "place": places.index(line.name) if line.own and line.name in places else None,
            }
            for line in found.lines
        ]
        pairs = _test_pairs(self.ledger, found, runs, labels)
        content = {"measure": found.measure, "tasks": list(tasks), "labels": labels, "lines": lines, "pairs": pairs}
        title = f"Two systems of the {GROUP_TITLES[group]} leaderboard, {found.measure}"
        return render(
            "leaderboard/site_compare.html",
            frame,
            board=found,
            labels=labels,
            tested=bool(pairs),
            data=_as_script(content | {"report": report_file}),
            most=MAX_SYSTEMS,
            boards={GROUP_TITLES[name]: "" if name == group else file for name, file in self.compared.items()},
            board_href=_FILES[group],
            cite=self.site.cite(title, self.compared[group]),
        )

    def _system(self, line: BoardRow, found: Board, frame: Frame, runs: Runs, file: str) -> str:
        sent, name = self.sent.of(line.name), line.title or line.name
        points = [line_point(line, task, task or "average") for task in (*found.tasks, AVERAGE)]
        dots = [point for point in points if point is not None]
        return render(
            "leaderboard/site_system.html",
            frame,
            line=line,
            board=found,
            entries=runs[line.name],
            cite=self.site.cite(f"{name}, {GROUP_TITLES[found.group]}, {found.measure}", file),
            sent=sent,
            archive=f"../{_archive(sent)}" if sent else "",
            comparison=_compare_link(frame, line.name),
            chart=responsive(DotChart(f"{found.measure} of {name}", f"{found.measure} x 100", dots)),
        )

    def _published(self, line: BoardRow, found: Board, frame: Frame, runs: Runs, file: str) -> str:
        """Render what each source reports of a published system, as the server's page of it does."""
        name, measure = line.name, found.measure
        facts = published_facts(name, found.group, measure)
        local = self.names.get((found.group, True, facts["system"]), "")
        return render(
            "leaderboard/published.html",
            frame,
            **facts,
            own_href=f"../{local}" if local else "",
            **measured(self.ledger, runs.get(facts["system"], {}), facts["rows"], measure),
            source_href="../sources.html#",
            comparison=_compare_link(frame, name),
            cite=replace(published_citation(name, found.group, measure), url=self.site.cite("", file).url),
            others=[other for other in facts["measures"] if other != measure],
        )


def _report_file(group: str) -> str:
    return f"report-{group}.html"


def _compare_link(frame: Frame, name: str) -> str:
    """Return the link to compare a system with others; empty if there is no other."""
    place = frame.links.get("Compare", "")
    return place and f"{place}#{urlencode({'a': name})}"


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
        submission = sent.of(row.name) if row.own else None
        if submission is not None:
            row = replace(row, sources=(SUBMITTED,), system=submission.systems[row.name], title=titles[row.name])
        lines.append(row)
    stated = any(SUBMITTED in line.sources for line in lines)
    return replace(found, lines=lines, notes=[*found.notes, *[_STATED_COSTS] * stated])


def _archive(sent: Accepted) -> str:
    """Return the place of an archive on a site, for anyone to check."""
    return f"submissions/{sent.digest[:16]}.zip"


def _file_names(boards: Mapping[str, Board]) -> Mapping[tuple[str, bool, str], str]:
    """Name a file for each system, by its group, whether it is an own run, and its name.

    Files have letters that every host takes, and are numbered if two would be alike.
    """
    files: dict[tuple[str, bool, str], str] = {}
    for group, one in boards.items():
        for row in {(line.own, line.name): line for line in one.lines}.values():
            base = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:60] or "system"
            name = f"{'systems' if row.own else 'published'}/{group}-{base}"
            while f"{name}.html" in files.values():
                name += "-2"
            files[group, row.own, row.name] = f"{name}.html"
    return files


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


MAX_BASELINES = 12
"""Baselines of a static board: with each, every system must be tested in every column."""


def baseline_names(board: Board) -> list[str]:
    """Return the systems to offer: all local ones with a rank, or if these are too many the plain ones and the best."""
    ranked = [line for line in board.lines if line.own and line.rank is not None]
    plain = [line for line in ranked if line.parts.kind == "base"]
    several = ranked if len(ranked) <= MAX_BASELINES else [*plain[: MAX_BASELINES // 2], *ranked][:MAX_BASELINES]
    offered = set(map(id, several))
    return [line.name for line in ranked if id(line) in offered] if len(ranked) > 1 else []


def _baseline_marks(ledger: Ledger, board: Board, runs: Runs) -> Mapping[str, Mapping[str, str]]:
    """Map baseline and system, if it has all tasks, to a letter per column: `b` better, `w` worse, `-` neither."""
    whole = {line.name: runs[line.name] for line in board.lines if line.own and line.average is not None}
    samples = {
        name: {task: Sample(row[task].queries, ledger.scores(row[task])[board.measure], row[task].data)
               for task in board.tasks}
        for name, row in whole.items()
    }  # fmt: skip
    letters = {"": "-", BETTER: "b", WORSE: "w"}
    return {
        name: {
            system: "".join(letters[marks.get(column, "")] for column in board.columns)
            for system, marks in significance(samples, name).items()
            if marks
        }
        for name in baseline_names(board)
    }


def _as_script(content: Mapping[str, Any]) -> Markup:
    """Write values as a page's script reads them; no text can end the element that holds them."""
    return Markup(orjson.dumps(content).decode().replace("<", "\\u003c"))


MAX_SYSTEMS = 8
"""Own systems of which every pair is tested."""


def _test_pairs(ledger: Ledger, board: Board, runs: Runs, labels: list[str]) -> list[dict[str, Any]]:
    """Test each pair of the best local systems; pairs without a task in common are left out."""
    names = {line.name: label for line, label in zip(board.lines, labels, strict=True) if line.own}
    tests = []
    for a, b in combinations(baseline_names(board)[:MAX_SYSTEMS], 2):
        with suppress(R2medError):
            shared = on_shared_tasks([Chosen(name, name, runs[name]) for name in (a, b)])
            pair = compare_shared(ledger, shared, board.measure)[0]
            rows = {task: _test(difference, pair.corrected_tasks[task]) for task, difference in pair.tasks.items()}
            facts = {"a": names[a], "b": names[b], "verdict": pair.verdict, "differs": pair.differs, "rows": rows}
            tests.append(facts | {"all": _test(pair.overall, pair.corrected)})
    return tests


def _test(difference: Difference, corrected: float) -> list[Any]:
    """Return difference, interval, p after Holm, and queries that B won, that A won, and all."""
    figures = [round(value, 6) for value in (difference.mean, difference.low, difference.high)]
    p = p_after_holm(difference, corrected)
    return [*figures, p, difference.wins, difference.losses, difference.queries]


def workflow() -> str:
    """Return the workflow by which GitHub Actions updates a site of submissions, for this version of r2med."""
    return static("leaderboard/leaderboard.yml").replace("VERSION", r2med.__version__)
