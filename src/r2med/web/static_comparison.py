"""Two systems of a static board side by side: every figure, and tests of pairs that were made beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import orjson
from markupsafe import Markup

from r2med.board.model import Board, Line
from r2med.diagnose.compare import Comparison, compare_shared
from r2med.errors import R2medError
from r2med.measure.significance import Difference, p_words
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Chosen, on_shared_tasks
from r2med.web.static_baselines import baseline_names

MOST = 8
"""Own systems of which every pair is tested."""
Runs = Mapping[str, Mapping[str, Entry]]
"""System to task to its run."""


@dataclass(frozen=True)
class ReportPlaces:
    """The report with every query of a board's own systems."""

    file: str = ""
    """Empty where there is none."""
    places: Mapping[str, int] = field(default_factory=dict)
    """System to its number there."""


@dataclass(frozen=True)
class PairPage:
    """All that a page needs to compare any two lines of a board by itself."""

    board: Board
    labels: list[str]
    """What each line is called, no two alike."""
    tested: bool
    """Whether any pair was."""
    data: Markup
    """As the page's script reads it."""


def pair_page(
    ledger: Ledger, board: Board, runs: Runs, href: Callable[[Line], str], reported: ReportPlaces
) -> PairPage:
    """The page of a board, with links to its report where there is one."""
    labels = line_labels(board)
    lines = [_line(line, board, href(line), reported.places) for line in board.lines]
    pairs = _tested(ledger, board, runs, labels)
    content = {"measure": board.measure, "tasks": list(board.tasks), "labels": labels, "lines": lines, "pairs": pairs}
    content["report"] = reported.file
    # No text can end the element that holds it.
    return PairPage(board, labels, bool(pairs), Markup(orjson.dumps(content).decode().replace("<", "\\u003c")))


def line_labels(board: Board) -> list[str]:
    """Names of lines; one that is there several times is told apart by its sources, an own one has it alone."""
    counts = Counter(line.row.name for line in board.lines)
    found: list[str] = []
    for line in board.lines:
        several = counts[line.row.name] > 1 and not line.row.own
        label = f"{line.row.name} ({', '.join(line.row.sources)})" if several else line.row.title or line.row.name
        while label in found:
            label += "'"
        found.append(label)
    return found


def _line(line: Line, board: Board, href: str, places: Mapping[str, int]) -> dict[str, Any]:
    values = [line.value(task) for task in board.tasks]
    return {
        "name": line.row.name,
        "own": line.row.own,
        "oracle": line.row.oracle,
        "sources": list(line.row.sources),
        "href": href,
        "values": [None if value is None else round(value, 6) for value in values],
        "average": None if line.average is None else round(line.average, 6),
        "place": places.get(line.row.name) if line.row.own else None,
    }


def _tested(ledger: Ledger, board: Board, runs: Runs, labels: list[str]) -> list[dict[str, Any]]:
    """What the tests say of each pair of the best own systems; pairs without a task in common are not there."""
    own = {line.row.name: place for place, line in enumerate(board.lines) if line.row.own}
    found = []
    for a, b in combinations(baseline_names(board)[:MOST], 2):
        with suppress(R2medError):
            shared = on_shared_tasks([Chosen(name, name, runs[name]) for name in (a, b)])
            made = compare_shared(ledger, shared, board.measure)[0]
            found.append({"a": labels[own[a]], "b": labels[own[b]], **_pair(made)})
    return found


def _pair(made: Comparison) -> dict[str, Any]:
    rows = {task: _row(each, made.corrected_tasks[task]) for task, each in made.tasks.items()}
    return {"verdict": made.verdict, "differs": made.differs, "rows": rows, "all": _row(made.overall, made.corrected)}


def _row(found: Difference, corrected: float) -> list[Any]:
    """Difference, interval, p after Holm, and queries that B won, that A won, and all."""
    p = p_words(corrected, at_floor=found.at_floor).removeprefix("p ").removeprefix("= ")
    figures = [round(value, 6) for value in (found.mean, found.low, found.high)]
    return [*figures, p, found.wins, found.losses, found.queries]
