"""Parts of a static site that a server would compute on demand: marks against every baseline, and pairs of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

import orjson
from markupsafe import Markup

from r2med.comparison.study import compare_shared
from r2med.errors import R2medError
from r2med.formatting import p_words
from r2med.measure.significance import Difference
from r2med.render.scores.model import Board, BoardRow, line_labels
from r2med.render.scores.significance import BETTER, WORSE, Sample, significance
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Chosen, on_shared_tasks

MAX_BASELINES = 12
"""Baselines of a static board: with each, every system must be tested in every column."""
Marks = Mapping[str, Mapping[str, str]]
"""Baseline to system to a letter for each column: `b` better, `w` worse, `-` neither."""


def baseline_names(board: Board) -> list[str]:
    """Return the systems to offer: all local ones with a rank, or if these are too many the plain ones and the best."""
    ranked = [line for line in board.lines if line.own and line.rank is not None]
    plain = [line for line in ranked if line.parts.kind == "base"]
    several = ranked if len(ranked) <= MAX_BASELINES else [*plain[: MAX_BASELINES // 2], *ranked][:MAX_BASELINES]
    offered = set(map(id, several))
    return [line.name for line in ranked if id(line) in offered] if len(ranked) > 1 else []


def baseline_marks(ledger: Ledger, board: Board, runs: Mapping[str, Mapping[str, Entry]]) -> Marks:
    """Mark how every local system with all tasks compares with each baseline."""
    rows = {line.name: runs[line.name] for line in board.lines if line.own and line.average is not None}
    samples = {
        name: {task: Sample(row[task].queries, ledger.scores(row[task])[board.measure], row[task].data)
               for task in board.tasks}
        for name, row in rows.items()
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


def as_script(content: Mapping[str, Any]) -> Markup:
    """Write values as a page's script reads them; no text can end the element that holds them."""
    return Markup(orjson.dumps(content).decode().replace("<", "\\u003c"))


def best_ceiling(lines: Sequence[BoardRow]) -> BoardRow | None:
    """Return the oracle that stands for all of them, if there are other systems beside them."""
    oracles = [line for line in lines if line.oracle and line.average is not None]
    return oracles[0] if oracles and len(oracles) < len(lines) else None


MAX_SYSTEMS = 8
"""Own systems of which every pair is tested."""
Runs = Mapping[str, Mapping[str, Entry]]
"""System to task to its run."""


def pair_page(
    ledger: Ledger, board: Board, runs: Runs, hrefs: Mapping[tuple[bool, str], str], report: str, places: Sequence[str]
) -> dict[str, Any]:
    """Return what a page shows that compares any two lines of a board by itself.

    It links to the `report` with every query of the local systems, which are numbered there by their `places`.
    """
    labels = line_labels(board)
    lines = [
        {
            "name": line.name,
            "own": line.own,
            "oracle": line.oracle,
            "sources": list(line.sources),
            "href": hrefs[line.own, line.name],
            "values": [None if (value := line.value(task)) is None else round(value, 6) for task in board.tasks],
            "average": None if line.average is None else round(line.average, 6),
            "place": places.index(line.name) if line.own and line.name in places else None,
        }
        for line in board.lines
    ]
    pairs = _test_pairs(ledger, board, runs, labels)
    content = {"measure": board.measure, "tasks": list(board.tasks), "labels": labels, "lines": lines, "pairs": pairs}
    data = as_script(content | {"report": report})
    return {"board": board, "labels": labels, "tested": bool(pairs), "data": data}


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
    p = p_words(corrected, at_floor=difference.at_floor).removeprefix("p ").removeprefix("= ")
    figures = [round(value, 6) for value in (difference.mean, difference.low, difference.high)]
    return [*figures, p, difference.wins, difference.losses, difference.queries]
