"""The verbs and what they take: `load`, `search`, `evaluate`, `compare`, `diagnose`, `board`, `build`, `rag`, `tune`.

dataset = r2med.load("sample/MedQA-Diag")
r2med.search("bm25", dataset, "fatigue, golden-brown corneal rings")
r2med.evaluate(["bm25", "bm25-classic"], "sample")
r2med.compare("bm25", "bm25-classic")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from r2med.answers.arms import PromptRule, make_arms
from r2med.answers.report import RagReport, make_report
from r2med.answers.study import StudyOptions, run_study
from r2med.comparison.study import Comparison
from r2med.comparison.study import compare as compare_runs
from r2med.construction.builder import Builder, BuildProgress
from r2med.data.dataset import Dataset
from r2med.data.loader import load as load_task
from r2med.data.published import KINDS
from r2med.data.task_names import GROUP_TITLES
from r2med.data.tasks import Task, resolve
from r2med.diagnosis.attribution import diagnose as find_causes
from r2med.diagnosis.causes import Diagnosis
from r2med.encode.user import TwoMethods
from r2med.errors import R2medError, suggest
from r2med.leaderboard.board import board as ranked_board
from r2med.llm.budget import Limits
from r2med.llm.client import session
from r2med.measure.metrics import Measure
from r2med.pipeline.evaluate import Options
from r2med.pipeline.evaluate import evaluate as run_and_measure
from r2med.pipeline.loaded_runs import open_shared
from r2med.pipeline.named_runs import name_here, select
from r2med.pipeline.registry import build_system
from r2med.pipeline.search import Hits, find_documents
from r2med.pipeline.stage import Stage
from r2med.pipeline.system import System
from r2med.render.scores.model import Board, View
from r2med.runs.ledger import Ledger
from r2med.runs.report import Report
from r2med.runs.selection import in_any_group
from r2med.settings import RequestSettings, overriding
from r2med.store.files import expanded
from r2med.tuning.study import Tuned, TuneOptions
from r2med.tuning.study import tune as tune_system

AnySystem = System | Stage | TwoMethods | Callable[..., Any] | str
"""A system, a lone stage, or a spec. An object that encodes or searches works too: see docs/reference/encoders.md."""
AnyTask = Dataset | Task | Path | str
"""Data that was loaded, or what it is loaded by: the name of a task or a group, or a folder."""


def listed(value: Any) -> list[Any]:
    """Return one or several, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def check_type(value: object, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what is of another type than a person would be expected to give."""
    if not isinstance(value, kinds):
        raise R2medError(f"{what}, not {' '.join(repr(value).split())[:80]} ({type(value).__name__})")


def run_name(value: AnySystem) -> str:
    """Return the name of a run in the ledger: a spec or an id as it is typed, or the spec of a system."""
    return value if isinstance(value, str) else build_system(value).spec


def task_names_of(tasks: AnyTask | Iterable[AnyTask]) -> list[str]:
    """Return the names of tasks in the ledger, from names, folders and loaded data."""
    names = []
    for task in listed(tasks) if not isinstance(tasks, Dataset) else [tasks]:
        check_type(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
        names += [part.name for part in ([task] if isinstance(task, Dataset | Task) else resolve([task]))]
    return names


_RULE = ("k", "budget", "order", "prompt")
_ASKING = ("judge", "judge_prompt", "nuggets", "samples", "temperature", "answer_tokens", "measure")


def rag(
    *systems: AnySystem,
    llm: str,
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    arms: str | Sequence[str] = (),
    **how: Any,
) -> RagReport:
    """Answer the questions of tasks with and without passages; `how` are k, budget, order, prompt, judge, samples, ...

    >>> import r2med
    >>> from r2med.llm.cards import add_model
    >>> from r2med.llm.scripted import scripted
    >>> model = add_model(scripted(lambda request: "Answer: Kawasaki disease\\nSources: none", "always-kawasaki"))
    >>> report = r2med.rag("bm25", llm="always-kawasaki", tasks="sample/MedQA-Diag", arms=["closed", "system"])
    >>> report
    RagReport('always-kawasaki', 2 arms on 1 tasks)
    >>> report.arm("closed").counts.right, report.arm("bm25").paired.fixed
    (1, 0)
    """
    for name in how:
        if name not in (*_RULE, *_ASKING):
            raise R2medError(f"rag takes no {name!r}{suggest(name, (*_RULE, *_ASKING))}")
    check_type(llm, (str,), "llm is the name of a model")
    if "measure" in how:
        how["measure"] = str(Measure.parse(how["measure"]))
    rule = PromptRule(**{name: how.pop(name) for name in _RULE if name in how})
    study = make_arms([run_name(system) for system in systems], listed(arms))
    return make_report(*run_study(study, task_names_of(tasks), StudyOptions(llm, rule=rule, **how)))


def build(
    folder: str | Path,
    *,
    until: str = "",
    partial: bool = False,
    max_cost: float | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    rpm: float | None = None,
) -> BuildProgress:
    """Run the steps of the plan in a folder, or go on where they were stopped; `r2med build init` writes such a plan.

    It ends after the step named by `until`, and before more than `max_cost` dollars are spent. Where people judge, it
    ends when the pool is on the review desk, until they are done or, with `partial`, have begun. What is finished is
    kept item by item, as with `r2med build run`.

    >>> import r2med
    >>> try:
    ...     r2med.build("no-such-folder")
    ... except r2med.R2medError as error:
    ...     print(error)
    no-such-folder/plan.toml: no such file; make one with: r2med build init
    """
    check_type(folder, (str, Path), "a build is the folder of its plan")
    check_type(until, (str,), "until is the name of a step, such as 'read'")
    builder = Builder(expanded(folder))
    settings = RequestSettings(timeout, retries, rpm, concurrency)
    with overriding(settings), session(Limits.configured(max_cost=max_cost)):
        return builder.run(until, partial=partial)


def load(
    task: Task | Path | str, *, split: str | None = None, revision: str | None = None, strict: bool = False
) -> Dataset:
    """Load the data of a task: by its name, or from a folder of your own.

    Queries without text and judgements of documents that are not there are left out, with a counted warning; with
    `strict` they are an error.

    >>> import r2med
    >>> r2med.load("sample/Biology")
    Dataset('sample/Biology', 9 queries, 64 documents)
    """
    check_type(task, (Task, Path, str), "a task is its name or a folder")
    return load_task(task, split=split, revision=revision, strict=strict)


def search(system: AnySystem, data: AnyTask, query: str, *, k: int = 10) -> Hits:
    """Search a task for a query of your own; return the best documents with their texts.

    >>> import r2med
    >>> hits = r2med.search("bm25", "sample/MedQA-Diag", "fatigue, golden-brown corneal rings", k=3)
    >>> len(hits), "copper" in hits[0].text
    (3, True)
    """
    check_type(query, (str,), "a query is a text")
    return find_documents(build_system(system), data if isinstance(data, Dataset) else load(data), query, k)


def evaluate(
    systems: AnySystem | Sequence[AnySystem],
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    options: Options | None = None,
    *,
    measures: str | Measure | Sequence[str | Measure] = (),
    fresh: bool = False,
) -> Report:
    """Measure systems on tasks; what the ledger already has is taken from there unless `fresh` is asked for.

    `measures` are printed in place of the usual one, a table each. Rarer settings are in `Options`.

    >>> import r2med
    >>> report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology", measures="Recall@10")
    >>> report
    Report(2 systems on 1 task)
    >>> report.measures[0], report.per_query().height
    ('Recall@10', 18)
    """
    if options is not None:
        check_type(options, (Options,), "settings are written Options(...), measures measures=[...]")
    if not listed(systems):
        raise R2medError("name at least one system, such as 'bm25'")
    if not listed(tasks):
        raise R2medError("name at least one task, such as 'sample/Biology'")
    for task in listed(tasks):
        check_type(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
    asked = [Measure(measure) if isinstance(measure, str) else measure for measure in listed(measures)]
    for measure in asked:
        check_type(measure, (Measure,), "a measure is a text such as 'nDCG@10'")
    options = replace(options or Options(), fresh=True) if fresh else options
    report = run_and_measure(listed(systems), tasks, options, measures=asked)
    return replace(report, headline=tuple(map(str, asked)))


def compare(*systems: AnySystem, tasks: AnyTask | Sequence[AnyTask] = (), measure: str = "nDCG@10") -> list[Comparison]:
    """Compare each pair of systems over the tasks that all were run on: by how much they differ, and how sure that is.

    >>> import r2med
    >>> report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    >>> [pair] = r2med.compare("bm25", "bm25-classic", tasks="sample/Biology")
    >>> pair.a, pair.b, pair.differs
    ('bm25', 'bm25-classic', False)
    """
    if len(systems) < 2:
        raise R2medError("name at least two systems to compare")
    with Ledger() as ledger:
        return compare_runs(ledger, list(map(run_name, systems)), str(Measure(measure)), task_names_of(tasks))


def diagnose(system: AnySystem, tasks: AnyTask | Sequence[AnyTask] = ()) -> list[Diagnosis]:
    """Diagnose why a system fails, task by task: what became of every query of its newest runs.

    >>> import r2med
    >>> report = r2med.evaluate("bm25", "sample/Biology")
    >>> r2med.diagnose("bm25", "sample/Biology")
    [Diagnosis('bm25' on 'sample/Biology', 9 queries: 9 found)]
    """
    with Ledger() as ledger:
        shared = in_any_group(select(ledger, [run_name(system)], task_names_of(tasks)))
        return [find_causes(run, ledger) for (run,) in open_shared(ledger, shared)]


def board(group: str = "full", **view: Any) -> Board:
    """Rank published results and your own runs together; `view` are the fields of `View`, as `measure` and `limit`.

    >>> import r2med
    >>> best = r2med.board("full", kind="base", sources=["paper"], limit=3)
    >>> best
    Board('full' by nDCG@10, 3 systems on 8 tasks)
    >>> best.lines[0].name
    'base/nv'
    """
    names = [field.name for field in fields(View) if field.name != "group"]
    for name in view:
        if name not in names:
            raise R2medError(f"board takes no {name!r}{suggest(name, names)}")
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


def tune(
    system: AnySystem,
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    measure: str = "nDCG@10",
    folds: int = 5,
    halves: int = 0,
    split_queries: bool = False,
    budget: float = 1.0,
    trials: int = 0,
) -> Tuned:
    """Choose a system's options on some queries and measure it on the others; a route is tuned without `over`.

    >>> import r2med
    >>> tuned = r2med.tune("bm25", "sample/Biology", over={"k1": [0.6, 0.9, 1.2]}, folds=3)
    >>> len(tuned.folds), tuned.candidates
    (3, 3)
    """
    options = TuneOptions(Measure(measure), folds, halves, split_queries, budget, trials)
    return tune_system(run_name(system), task_names_of(tasks), over, options)
