"""Run systems over tasks, measure them, and store every finished run in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.tasks import Task, resolve
from r2med.errors import Postponed, R2medError, debug
from r2med.formatting import one_line
from r2med.measure.metrics import DEFAULT, Measure
from r2med.measure.score import check_aspects, positive, score
from r2med.pipeline.executor.local import Executor, begin_command, quiet
from r2med.pipeline.registry import build_system
from r2med.pipeline.spec import parse
from r2med.pipeline.stage import Context, Stage
from r2med.pipeline.system import System
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import DataIdentity, RunRecord, StageRecord, provenance
from r2med.runs.report import Failure, Report
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key, steady_digests
from r2med.store.jobs import DONE, FAILED, KEPT, POSTPONED, reporter
from r2med.store.sqlite import DamagedError, StoreError, warn

ALGORITHM = 1
"""Part of the key of every run and answer. Raise it with any change after which a figure of ours may be another one
(a tokenizer, a score, a tie, a measure, how replies are read), so that no such result is taken from the ledger; a
release that changes no figure leaves it."""


def shallow_lists(measures: Iterable[Measure], depth: int, documents: int) -> list[str]:
    """Return the sentence about measures deeper than the lists; lists of all documents are as deep as possible.

    >>> shallow_lists([Measure("nDCG", 10), Measure("Recall", 1000)], depth=100, documents=5000)
    ['Recall@1000 measured on lists of 100 documents; give the retriever depth=...']
    """
    deeper = [str(measure) for measure in measures if measure.cutoff is None or measure.cutoff > depth]
    sentence = f"{', '.join(deeper)} measured on lists of {depth} documents; give the retriever depth=..."
    return [sentence] if deeper and documents > depth else []


def shallow_run(measure: Measure, entry: Entry) -> list[str]:
    """Return the same sentence for a run of the ledger; empty if it does not state its depth or number of documents."""
    outer = {str(call) for call in parse(entry.system).calls}
    stages = [stage for stage in entry.record.stages or () if stage.kind == "retriever" and stage.spec in outer]
    depth, documents = stages[-1].settings.get("depth") if stages else None, entry.record.documents
    return shallow_lists([measure], depth, documents) if isinstance(depth, int) and documents is not None else []


@dataclass(frozen=True)
class Options:
    """Options of an evaluation: what to measure, whether to recompute, and where the work runs.

    >>> evaluate("bm25", "sample/Biology", Options(measures=[Measure("MAP")], strict=True)).measures
    ['MAP']
    """

    measures: Sequence[Measure] = DEFAULT
    fresh: bool = False
    """Recompute what the ledger already has."""
    shown: Sequence[Measure] | None = None
    """Those among the measures that will be shown, to which warnings apply; None for all."""
    split: str | None = None
    """The judgements to use if data has several sets of them."""
    strict: bool = False
    """Whether it is an error if a stage fails for a query, or if a part of the data is left out."""
    executor: Executor = field(default_factory=quiet)


def evaluate(
    systems: System | Stage | str | Callable[..., Any] | Sequence[System | Stage | str | Callable[..., Any]],
    tasks: Dataset | Task | Path | str | Sequence[Dataset | Task | Path | str] = "sample",
    options: Options | None = None,
    *,
    measures: Sequence[str | Measure] = (),
) -> Report:
    """Measure systems on tasks; runs of the ledger are reused. `measures` come before the default ones.

    A system may also be a user's function, `search(queries, k)`, or an object with such a method.

    >>> report = evaluate("bm25", "sample/Biology")
    >>> report.results[0].metrics["nDCG@10"] > 0
    True
    """
    options = options or Options()
    asked = [Measure.parse(measure) if isinstance(measure, str) else measure for measure in _listed(measures)]
    options = replace(options, measures=tuple(dict.fromkeys([*asked, *options.measures])))
    begin_command()
    built = [build_system(system) for system in _listed(systems)]
    for system in built:
        system.check()
    report = Report([])
    named: list[Dataset | Task] = []
    for task in _listed(tasks):
        if isinstance(task, Dataset) and options.split not in (None, task.task.split):
            split = f"the split {task.task.split!r}; load it with {options.split!r}"
            raise R2medError(f"{task.name} was loaded with {split}")
        named += [task] if isinstance(task, Dataset) else resolve([task], split=options.split)
    specs, unread = [system.spec for system in built], 0
    with Ledger() as ledger, reporter.plan(specs, [task.name for task in named]):
        for task in named:
            try:
                dataset = task if isinstance(task, Dataset) else load(task, strict=options.strict)
            except (R2medError, MemoryError, OSError) as error:
                unread += 1
                if unread == len(named):
                    raise
                debug(error)
                assert isinstance(task, Task)
                report.asked.append((task.name, task.group))
                report.failures.append(Failure("", task.name, one_line(error), task.group))
                for spec in specs:
                    reporter.finish_cell(spec, task.name, FAILED, note=one_line(error))
                continue
            report.asked.append((dataset.name, dataset.task.group))
            memo: dict[Any, Any] = {}
            for system in built:
                try:
                    with steady_digests():
                        result = _measure(system, dataset, options, ledger, memo)
                    report.results.append(result)
                    figure = result.metrics.get("nDCG@10", next(iter(result.metrics.values()), None))
                    state, seconds = (KEPT, 0.0) if result.cached else (DONE, result.seconds)
                    reporter.finish_cell(system.spec, dataset.name, state, score=figure, run=result.id, seconds=seconds)
                except (R2medError, MemoryError, OSError) as error:
                    waits = isinstance(error, Postponed)
                    why = str(error) if waits else one_line(error)
                    failed = Failure(system.spec, dataset.name, why, dataset.task.group)
                    (report.postponed if waits else report.failures).append(failed)
                    reporter.finish_cell(system.spec, dataset.name, POSTPONED if waits else FAILED, note=why)
                    if not waits:
                        debug(error)
    return report


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def run_key(system: System, dataset: Dataset) -> str:
    """Return the key of a system's run on a dataset: a hash of everything the run depends on."""
    task = dataset.task
    return cache_key(
        system=system.key(),
        task_name=task.name,
        data=dataset.fingerprint,
        # Prompts are made of the task's words.
        task=(task.family, *task.words.values()),
        # Figures of tasks in which a query and a document share an id depend on which of them may be left out.
        **({"copies": [task.drop_self, sorted(shared)]} if (shared := dataset.collection.shared_ids) else {}),
        inputs=[sorted(stage.inputs(dataset.collection).items()) for stage in system.walk()],
        algorithm=ALGORITHM,
    )


def _measure(system: System, dataset: Dataset, options: Options, ledger: Ledger, memo: dict[Any, Any]) -> Entry:
    """Run one system on one dataset, or take the run from the ledger."""
    key = run_key(system, dataset)
    entry = None if options.fresh else ledger.find(key)
    # Failed queries may succeed now, and replies are cached: a run that is not complete is tried again.
    if entry is not None and not entry.incomplete:
        try:
            return _remembered(entry, system, dataset, options, ledger)
        except DamagedError as error:
            warn(f"{error}; it is made again now")
    check_aspects(options.measures, positive(dataset.gold.qrels), dataset.gold.aspects)
    context = Context(Cache.default(), options.executor, memo=memo, strict=options.strict, fresh=options.fresh)
    with options.executor.working(system.spec, dataset.name):
        state = system.work(dataset.collection, context, dataset.gold)
    scores = score(state.ranked, dataset.gold.qrels, options.measures, dataset.gold.aspects)
    notes, walk = context.notes, list(system.walk())
    record = RunRecord(
        data=identity_of(dataset),
        documents=len(dataset.collection.documents),
        stages=tuple(StageRecord(str(s), s.kind, {**s.describe(), **s.fingerprint()}) for s in walk),
        oracle=system.oracle,
        warnings=(*dataset.warnings, *notes.warnings),
        incomplete=notes.incomplete,
        notes=notes.facts,
        work=tuple(notes.work.values()),
        provenance=provenance(),
        local=system.local_content(),
    )
    seconds = sum(step.seconds for step in notes.work.values())
    by_measure = {str(measure): scores.values(measure) for measure in options.measures}
    facts = (system.spec, dataset.name, dataset.task.group, tuple(scores.queries), seconds, record)
    result = Entry(key, *facts, scores=by_measure, notes=_shallow(system, dataset, options))
    try:
        return ledger.add(result, state.ranked, notes.written)
    except StoreError as error:
        # The result is returned all the same; only its place in the ledger is missing.
        return replace(result, key="", notes=(*result.notes, f"not kept in the ledger: {error}"))


def _remembered(entry: Entry, system: System, dataset: Dataset, options: Options, ledger: Ledger) -> Entry:
    """Return a run of the ledger, with missing measures computed from its ranked lists."""
    values = ledger.scores(entry)
    added: dict[str, Any] = {}
    if missing := [measure for measure in options.measures if str(measure) not in values]:
        scores = score(ledger.run(entry), dataset.gold.qrels, missing, dataset.gold.aspects)
        added = {str(measure): scores.values(measure) for measure in missing}
        values |= added
    with suppress(StoreError):
        # A ledger that can only be read still answers.
        ledger.use(entry)
        if added:
            ledger.add_scores(entry, added)
    asked = {str(measure): values[str(measure)] for measure in options.measures}
    return replace(entry, scores=asked, notes=_shallow(system, dataset, options), cached=True)


def identity_of(dataset: Dataset) -> DataIdentity:
    """Return the fingerprints of the data that a run on a dataset sees."""
    documents, queries = dataset.collection.documents, dataset.collection.queries
    parts = (documents.fingerprint, queries.fingerprint, dataset.gold.fingerprint)
    return DataIdentity(dataset.fingerprint, *parts, dataset.revision)


def _shallow(system: System, dataset: Dataset, options: Options) -> tuple[str, ...]:
    measures = options.measures if options.shown is None else options.shown
    return tuple(shallow_lists(measures, system.retriever.depth, len(dataset.collection.documents)))
