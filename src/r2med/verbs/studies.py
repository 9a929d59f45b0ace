"""The verbs `compare`, `diagnose` and `board`, which read the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from r2med.board.leaderboard import View
from r2med.board.leaderboard import board as ranked_board
from r2med.board.model import Board
from r2med.data.published import KINDS
from r2med.data.task_names import GROUP_TITLES
from r2med.diagnose.attribution import diagnose as find_causes
from r2med.diagnose.causes import Diagnosis
from r2med.diagnose.compare import Comparison
from r2med.diagnose.compare import compare as compare_runs
from r2med.diagnose.loaded_runs import open_shared
from r2med.errors import R2medError, suggest
from r2med.measure.metrics import Measure
from r2med.pipeline.named_runs import name_here, select
from r2med.runs.ledger import Ledger
from r2med.runs.selection import in_any_group
from r2med.verbs.arguments import AnySystem, AnyTask, check_type, listed, run_name, task_names_of


def compare(*systems: AnySystem, tasks: AnyTask | Sequence[AnyTask] = (), measure: str = "nDCG@10") -> list[Comparison]:
    """Each pair of systems over the tasks that all were run on: by how much they differ, and how sure that is.

    >>> import r2med
    >>> report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    >>> [pair] = r2med.compare("bm25", "bm25-classic", tasks="sample/Biology")
    >>> pair.a, pair.b, pair.differs
    ('bm25', 'bm25-classic', False)
    """
    if len(systems) < 2:
        raise R2medError("name at least two systems to compare")
    with Ledger() as ledger:
        return compare_runs(ledger, [run_name(each) for each in systems], str(Measure(measure)), task_names_of(tasks))


def diagnose(system: AnySystem, tasks: AnyTask | Sequence[AnyTask] = ()) -> list[Diagnosis]:
    """Why a system fails, task by task: what became of every query of its newest runs.

    >>> import r2med
    >>> report = r2med.evaluate("bm25", "sample/Biology")
    >>> r2med.diagnose("bm25", "sample/Biology")
    [Diagnosis('bm25' on 'sample/Biology', 9 queries: 9 found)]
    """
    with Ledger() as ledger:
        shared = in_any_group(select(ledger, [run_name(system)], task_names_of(tasks)))
        return [find_causes(run, ledger) for (run,) in open_shared(ledger, shared)]


def board(group: str = "full", **view: Any) -> Board:
    """Published results and your own runs in one ranking; `view` are the fields of `View`, as `measure` and `limit`.

    >>> import r2med
    >>> best = r2med.board("full", kind="base", sources=["paper"], limit=3)
    >>> best
    Board('full' by nDCG@10, 3 systems on 8 tasks)
    >>> best.lines[0].row.name
    'base/nv'
    """
    known = [entry.name for entry in fields(View) if entry.name != "group"]
    for name in view:
        if name not in known:
            raise R2medError(f"board takes no {name!r}{suggest(name, known)}")
    check_type(group, (str,), "a group is a text such as 'full'")
    check_type(view.get("limit", 0), (int,), "limit is a whole number")
    if group not in GROUP_TITLES:
        raise R2medError(f"no group {group!r}{suggest(group, GROUP_TITLES)}")
    if view.get("kind") and view["kind"] not in KINDS:
        raise R2medError(f"no kind {view['kind']!r}{suggest(view['kind'], KINDS)}")
    if "measure" in view:
        view["measure"] = str(Measure(view["measure"]))
    if "tasks" in view:
        view["tasks"] = tuple(task_names_of(view["tasks"]))
    if "sources" in view:
        view["sources"] = tuple(listed(view["sources"]))
    with Ledger() as ledger:
        if view.get("baseline"):
            view["baseline"] = name_here(ledger, view["baseline"])
        return ranked_board(ledger, View(group, **view))
