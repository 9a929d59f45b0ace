"""Marks of significance against every baseline that a static board offers, computed beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from markupsafe import Markup

from r2med.board.board_significance import BETTER, Sample, significance
from r2med.board.model import Board, Line
from r2med.runs.ledger import Entry, Ledger

MOST = 12
"""Baselines of a static board: with each, every system must be tested in every column."""
Marks = Mapping[str, Mapping[str, str]]
"""Baseline to system to a letter for each column: `b` better, `w` worse, `-` neither."""


def baseline_names(board: Board) -> list[str]:
    """The systems to offer: all own ones with a rank, or where these are too many the plain ones and the best."""
    ranked = [line for line in board.lines if line.row.own and line.rank is not None]
    plain = [line for line in ranked if line.row.parts.kind == "base"]
    chosen = (
        {id(line) for line in [*plain[: MOST // 2], *ranked][:MOST]} if len(ranked) > MOST else set(map(id, ranked))
    )
    return [line.row.name for line in ranked if id(line) in chosen] if len(ranked) > 1 else []


def baseline_marks(ledger: Ledger, board: Board, runs: Mapping[str, Mapping[str, Entry]]) -> Marks:
    """How every own system with all tasks stands to each baseline."""
    whole = [line for line in board.lines if line.row.own and line.average is not None]
    samples = {line.row.name: _samples(ledger, board, runs[line.row.name]) for line in whole}
    found = {}
    for name in baseline_names(board):
        marks = significance(samples, name)
        found[name] = {system: _letters(board, row) for system, row in marks.items() if row}
    return found


def _samples(ledger: Ledger, board: Board, entries: Mapping[str, Entry]) -> dict[str, Sample]:
    return {
        task: Sample(entries[task].queries, ledger.scores(entries[task])[board.measure], entries[task].data)
        for task in board.tasks
    }


def _letters(board: Board, marks: Mapping[str, str]) -> str:
    signs = [marks.get(column, "") for column in board.columns]
    return "".join("-" if not sign else "b" if sign == BETTER else "w" for sign in signs)


def as_script(board: Board, marks: Marks) -> Markup:
    """The marks as a page's script reads them; no text can end the element that holds them."""
    content = orjson.dumps({"columns": list(board.columns), "marks": marks}).decode()
    return Markup(content.replace("<", "\\u003c"))


def best_ceiling(lines: Sequence[Line]) -> Line | None:
    """The oracle that stands for all of them, where there are other systems beside them."""
    oracles = [line for line in lines if line.row.oracle and line.average is not None]
    return oracles[0] if oracles and len(oracles) < len(lines) else None
