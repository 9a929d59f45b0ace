"""The verbs that `import r2med` offers, with strings wherever a person would type a string.

dataset = r2med.load("sample/MedQA-Diag")
r2med.search("bm25", dataset, "fatigue, golden-brown corneal rings")
r2med.evaluate(["bm25", "bm25-classic"], "sample")
r2med.compare("bm25", "bm25-classic")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, overload

from r2med.board.leaderboard import View
from r2med.board.leaderboard import board as ranked_board
from r2med.board.model import Board
from r2med.data import load as load_task
from r2med.data.dataset import Dataset
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import Task, resolve
from r2med.diagnose.attribution import diagnose as find_causes
from r2med.diagnose.causes import Diagnosis
from r2med.diagnose.compare import Comparison
from r2med.diagnose.compare import compare as compare_runs
from r2med.diagnose.loaded_runs import load_runs
from r2med.encode.user_encoder import TwoMethods
from r2med.errors import R2medError, suggest
from r2med.measure.metrics import Measure
from r2med.pipeline.engine import quiet
from r2med.pipeline.evaluate import Options
from r2med.pipeline.evaluate import evaluate as run_and_measure
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context, Stage
from r2med.pipeline.system import System
from r2med.render.notebook import set_views
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report
from r2med.storage.cache import Cache

AnySystem = System | Stage | TwoMethods | Callable[..., Any] | str
"""A system, a lone stage, or a spec. An object that encodes or searches is taken, too: see docs/own-models.md."""
AnyTask = Dataset | Task | Path | str
"""Data that was loaded, or what it is loaded by: the name of a task or a group, or a folder."""

_BEGINNING = 70  # characters of a text in a printed list

set_views()


def load(task: Task | Path | str, *, split: str | None = None, revision: str | None = None) -> Dataset:
    """The data of a task: by its name, or from a folder of your own.

    >>> import r2med
    >>> r2med.load("sample/Biology")
    Dataset('sample/Biology', 9 queries, 64 documents)
    """
    _check(task, (Task, Path, str), "a task is its name or a folder")
    return load_task(task, split=split, revision=revision)


@dataclass(frozen=True)
class Hit:
    """A document of a ranked list."""

    rank: int
    document: str
    """Its id."""
    score: float
    text: str

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        shown = text if len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…"
        return f"{self.rank:3}  {self.score:8.3f}  {self.document}  {shown}"


@dataclass(frozen=True, repr=False)
class Hits(Sequence[Hit]):
    """What a search found, best first: a sequence of `Hit`, which prints as a list."""

    system: str
    query: str
    hits: tuple[Hit, ...]

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __repr__(self) -> str:
        best = f", the first {self.hits[0].document!r}" if self.hits else ""
        return f"Hits({self.system!r}, {len(self.hits)} documents{best})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits)) or "nothing was found"


def search(system: AnySystem, data: AnyTask, query: str, *, k: int = 10) -> Hits:
    """The best documents of a task for a query of your own, with their texts.

    >>> import r2med
    >>> hits = r2med.search("bm25", "sample/MedQA-Diag", "fatigue, golden-brown corneal rings", k=3)
    >>> len(hits), "copper" in hits[0].text
    (3, True)
    """
    _check(query, (str,), "a query is a text")
    if not query.strip():
        raise R2medError("the query is empty")
    if not isinstance(k, int) or k < 1:
        raise R2medError(f"k must be a whole number from 1 on, not {k!r}")
    chosen = build_system(system)
    chosen.check()
    dataset = data if isinstance(data, Dataset) else load(data)
    ranking = chosen.search(dataset.collection, query, Context(Cache.default(), quiet()))
    documents = dataset.collection.documents
    rows = zip(ranking.documents[:k], ranking.scores[:k].tolist(), strict=True)
    hits = tuple(Hit(rank, name, score, documents.text(name)) for rank, (name, score) in enumerate(rows, 1))
    return Hits(chosen.spec, query, hits)


def evaluate(
    systems: AnySystem | Sequence[AnySystem],
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    options: Options | None = None,
    *,
    measures: str | Measure | Sequence[str | Measure] = (),
    metrics: str | Measure | Sequence[str | Measure] = (),
    fresh: bool = False,
) -> Report:
    """Measure systems on tasks; what the ledger already has is taken from there unless `fresh` is asked for.

    `measures` (or `metrics`, which is the same) come before the usual ones. Rarer settings are in `Options`.

    >>> import r2med
    >>> report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology", measures="Recall@10")
    >>> report
    Report(2 systems on 1 task)
    >>> report.measures[0], report.per_query().height
    ('Recall@10', 18)
    """
    if options is not None:
        _check(options, (Options,), "settings are written Options(...), measures measures=[...]")
    listed = _listed(systems)
    if not listed:
        raise R2medError("name at least one system, such as 'bm25'")
    for task in _listed(tasks):
        _check(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
    chosen = replace(options or Options(), fresh=True) if fresh else options
    asked = [Measure(each) if isinstance(each, str) else each for each in (*_listed(measures), *_listed(metrics))]
    for measure in asked:
        _check(measure, (Measure,), "a measure is a text such as 'nDCG@10'")
    return run_and_measure(listed, tasks, chosen, measures=asked)


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
        return compare_runs(ledger, [_run_name(each) for each in systems], str(Measure(measure)), _task_names(tasks))


def diagnose(system: AnySystem, tasks: AnyTask | Sequence[AnyTask] = ()) -> list[Diagnosis]:
    """Why a system fails, task by task: what became of every query of its newest runs.

    >>> import r2med
    >>> report = r2med.evaluate("bm25", "sample/Biology")
    >>> r2med.diagnose("bm25", "sample/Biology")
    [Diagnosis('bm25' on 'sample/Biology', 9 queries: 9 found)]
    """
    with Ledger() as ledger:
        loaded = load_runs(ledger, [_run_name(system)], _task_names(tasks))
        return [find_causes(run, ledger) for (run,) in loaded]


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
    _check(group, (str,), "a group is a text such as 'full'")
    _check(view.get("limit", 0), (int,), "limit is a whole number")
    if group not in GROUP_TITLES:
        raise R2medError(f"no group {group!r}{suggest(group, GROUP_TITLES)}")
    if "measure" in view:
        view["measure"] = str(Measure(view["measure"]))
    if "tasks" in view:
        view["tasks"] = tuple(_task_names(view["tasks"]))
    if "sources" in view:
        view["sources"] = tuple(_listed(view["sources"]))
    with Ledger() as ledger:
        return ranked_board(ledger, View(group, **view))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _check(value: object, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what is of another type than a person would be expected to give."""
    if not isinstance(value, kinds):
        shown = " ".join(repr(value).split())
        raise R2medError(f"{what}, not {shown[:80]} ({type(value).__name__})")


def _run_name(value: AnySystem) -> str:
    """What a run is known by in the ledger: a spec or an id as it is typed, or the spec of a system."""
    return value if isinstance(value, str) else build_system(value).spec


def _task_names(tasks: AnyTask | Iterable[AnyTask]) -> list[str]:
    names = []
    for task in _listed(tasks) if not isinstance(tasks, Dataset) else [tasks]:
        _check(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
        names += [task.name] if isinstance(task, Dataset | Task) else [each.name for each in resolve([task])]
    return names
