"""A report: chosen systems as one HTML file that loads nothing else.

Beside its page it holds queries, documents and lists, which a browser unpacks on demand.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from r2med.comparison.charts import against_chart
from r2med.comparison.study import compare_shared
from r2med.data.task_names import GROUP_NOTES, GROUP_TITLES
from r2med.diagnosis.attribution import diagnose
from r2med.diagnosis.causes import Cause, Diagnosis
from r2med.diagnosis.charts import system_causes
from r2med.errors import R2medError
from r2med.formatting import harmless
from r2med.leaderboard.board import local_rows, ranked
from r2med.leaderboard.page_table import Hrefs, decorated, line_point, sorted_table
from r2med.lexical.highlight import word_forms
from r2med.measure.metrics import Measure
from r2med.measure.significance import holm
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import TOP, LoadedRun, open_shared
from r2med.render.charts.chart import CHARTED, Panel, responsive
from r2med.render.charts.dots import DotChart
from r2med.render.html import inlined, render
from r2med.render.scores.model import Board
from r2med.render.scores.significance import Sample, intervals
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Chosen, Shared
from r2med.tuning.charts import frontier_panels
from r2med.web.citation import Citation, colophon

_SECTIONS = {"Board": "#board-section", "Charts": "#charts", "Tasks": "#tasks", "Queries": "#browse"}


@dataclass(frozen=True)
class ReportChoice:
    """Contents of a report."""

    runs: Shared  # differences are against the first system
    measure: Measure = field(default_factory=lambda: Measure("nDCG", 10))
    causes: bool = True  # whether to find out causes of failure, which may search with gold answers
    title: str = "R2MED report"
    command: str = ""  # the command that makes it

    @cached_property
    def systems(self) -> Mapping[str, Chosen]:
        """Return each system once by its spec; by the label that distinguishes it if two have one spec."""
        distinct = {tuple(one.runs[task].id for task in self.runs.tasks): one for one in self.runs.systems}
        specs = [one.system for one in distinct.values()]
        return {one.label if specs.count(one.system) > 1 else one.system: one for one in distinct.values()}


@dataclass
class Gathered:
    """Data of the ledger and the tasks, read one task after another."""

    runs: dict[str, dict[str, Entry]] = field(default_factory=dict)
    samples: dict[str, dict[str, Sample]] = field(default_factory=dict)
    blocks: list[TaskBlock] = field(default_factory=list)
    lists: dict[str, Any] = field(default_factory=dict)  # run blocks by the id under which the page finds them
    causes: dict[str, list[Diagnosis]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def report(ledger: Ledger, choice: ReportChoice, executor: Executor | None = None) -> str:
    """Write the whole page."""
    gathered = gather(ledger, choice, executor)
    board, systems = _board(gathered, str(choice.measure)), list(gathered.runs)
    blocks, length = pack_all(gathered.blocks, gathered.lists)
    return render(
        "leaderboard/report.html",
        inlined(_SECTIONS, "workbench/workbench.css", "web/app.js", "workbench/slopes.js", "leaderboard/report.js"),
        title=choice.title,
        cite=Citation(choice.title, choice.command),
        table=sorted_table(board, board.lines),
        panels=[
            *_differences(ledger, choice),
            *frontier_panels(gathered.runs, board.lines, str(choice.measure)),
            *system_causes(gathered.causes),
        ],
        task_panels=_task_panels(board) if len(board.tasks) > 1 else [],
        systems=systems,
        tasks=board.tasks,
        causes=[cause.value for cause in Cause] if gathered.causes else [],
        blocks=blocks,
        colophon=colophon((entry for row in gathered.runs.values() for entry in row.values()), choice.command),
        length=length,
        groups_title=GROUP_TITLES.get(board.group, board.group),
        hrefs=Hrefs(lambda name: f"#system-{systems.index(name)}"),
    )


def gather(ledger: Ledger, choice: ReportChoice, executor: Executor | None = None) -> Gathered:
    """Read all that the report shows; one task's data is in memory at a time."""
    gathered = Gathered()
    shared = replace(choice.runs, systems=tuple(choice.systems.values()))
    for number, several in enumerate(open_shared(ledger, shared, choice.measure)):
        block = task_block(several[0])
        gathered.blocks.append(block)
        for place, (name, opened) in enumerate(zip(choice.systems, several, strict=True)):
            entry, diagnosis = opened.entry, None
            gathered.runs.setdefault(name, {})[entry.task] = entry
            values = Sample(entry.queries, np.array([opened.values[query] for query in entry.queries]), entry.data)
            gathered.samples.setdefault(name, {})[entry.task] = values
            if choice.causes:
                try:
                    diagnosis = diagnose(opened, ledger, executor)
                    gathered.causes.setdefault(name, []).append(diagnosis)
                except R2medError as error:
                    gathered.notes.append(f"no causes of failure for {name} on {entry.task}: {error}")
            gathered.lists[f"run-{place}-{number}"] = run_block(opened, block, several[0].entry.queries, diagnosis)
    gathered.causes = {name: row for name, row in gathered.causes.items() if len(row) == len(gathered.blocks)}
    return gathered


def _board(gathered: Gathered, measure: str) -> Board:
    tasks = [block.task for block in gathered.blocks]
    # Means come from the values just read, so that a measure that is not in the ledger is there too.
    means = {
        gathered.runs[name][task].id: {measure: float(sample.values.mean()) if len(sample.values) else 0.0}
        for name, row in gathered.samples.items()
        for task, sample in row.items()
    }
    lines = decorated(ranked(local_rows(gathered.runs, means, measure), tasks), intervals(gathered.samples))
    group = next(iter(next(iter(gathered.runs.values())).values())).group
    notes = [*gathered.notes, *([GROUP_NOTES[group]] if group in GROUP_NOTES else [])]
    return Board(group, measure, tasks, lines, notes, cost=True)


def _differences(ledger: Ledger, choice: ReportChoice) -> list[Panel]:
    """Chart the differences from the first system, if its values are in the ledger."""
    measure = str(choice.measure)
    first, *others = [replace(system, label=name) for name, system in choice.systems.items()]
    if not others or measure not in ledger.scores(first.runs[choice.runs.tasks[0]]):
        return []
    pairs = [compare_shared(ledger, replace(choice.runs, systems=(first, other)), measure)[0] for other in others]
    corrected = holm([pair.overall.randomisation for pair in pairs])
    pairs = [replace(pair, corrected=p) for pair, p in zip(pairs, corrected, strict=True)]
    note = (
        f"Minus {pairs[0].a}, {measure} × 100, paired by query, with 95% intervals; filled where they differ. "
        f"{sum(pair.differs for pair in pairs)} of {len(pairs)} differ at the 5% level"
        " (randomisation test, after Holm)."
    )
    return [Panel("Paired differences", note, responsive(against_chart(pairs, measure)), "differences")]


def _task_panels(board: Board) -> list[Panel]:
    """Chart the best lines of each task."""
    panels = []
    for task in board.tasks:
        points = [point for line in board.lines if (point := line_point(line, task)) is not None]
        if best := sorted(points, key=lambda point: -point.value)[:CHARTED]:
            chart = DotChart(f"{board.measure} on {task}", f"{board.measure} x 100", best)
            panels.append(Panel(task, "", responsive(chart)))
    return panels


BUDGET = 24_000_000
"""Bytes that all blocks together may take, so that a file stays well below 30 MB."""
_LENGTHS = (6000, 3000, 1800, 1200, 800, 500, 300)
"""Characters of a document that are carried: the most that the budget has room for."""


def packed(value: Any) -> str:
    """Pack a value as text that a browser unpacks: JSON, deflated, in base 64.

    >>> zlib.decompress(base64.b64decode(packed([1, 2])), -15)
    b'[1,2]'
    """
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(press.compress(orjson.dumps(value)) + press.flush()).decode("ascii")


@dataclass
class TaskBlock:
    """One task: its queries, and every document that some list or judgement names, once."""

    task: str
    queries: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[str, int] = field(default_factory=dict)  # id to number
    texts: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # what systems wrote for its queries

    def number(self, document: str, opened: LoadedRun) -> int:
        """Return the number of a document, which is added if it is new."""
        if document not in self.documents:
            self.documents[document] = len(self.documents)
            texts = opened.dataset.collection.documents
            self.texts.append(harmless(texts.text(document)) if document in texts.position else "")
        return self.documents[document]

    def cut(self, length: int) -> dict[str, Any]:
        """Return the block with texts of at most so many characters."""
        texts = [text if len(text) <= length else f"{text[:length]} …" for text in self.texts]
        ids = [harmless(name) for name in self.documents]
        return {"queries": self.queries, "ids": ids, "texts": texts, **self.forms}

    @cached_property
    def forms(self) -> dict[str, list[str]]:
        """Group the words of its texts that are marked as one, by the stemmer of every other output."""
        asked = (text for query in self.queries for text in (query["text"], query["answer"]))
        return word_forms((*self.texts, *asked, *self.written))._asdict()


def task_block(opened: LoadedRun) -> TaskBlock:
    """Collect the queries of a task with their relevant documents."""
    block = TaskBlock(opened.entry.task)
    collection, answers = opened.dataset.collection, opened.dataset.gold.answers
    for query in opened.entry.queries:
        relevant = [block.number(document, opened) for document in opened.positives.get(query, ())]
        facts = {"id": harmless(query), "text": harmless(collection.queries.text(query)), "relevant": relevant}
        block.queries.append({**facts, "answer": harmless(answers.get(query, ""))})
    return block


def run_block(opened: LoadedRun, block: TaskBlock, order: Sequence[str], diagnosis: Diagnosis | None) -> dict[str, Any]:
    """Collect one system on a task, its queries in the task's order."""
    causes = diagnosis.by_query if diagnosis else {}
    block.written += [generation.text for several in opened.generations.values() for generation in several]
    lists: list[list[list[float]]] = []
    places: list[list[list[int | str]]] = []
    for query in order:
        # The rank of each relevant document in the whole list, 0 for none, and its cause if it is known.
        ranks = {name: rank for rank, name in enumerate(opened.found(query, len(opened.run.documents)), 1)}
        why = {placed.document: placed.cause.value for placed in causes[query].positives} if query in causes else {}
        places.append([[ranks.get(name, 0), why.get(name, "")] for name in opened.positives.get(query, ())])
        lists.append([[], []])
        if query in opened.run:
            ranking = opened.run[query]
            numbers = [float(block.number(document, opened)) for document in ranking.documents[:TOP]]
            lists[-1] = [numbers, [float(f"{score:.5g}") for score in ranking.scores[:TOP].tolist()]]
    return {
        "values": [round(opened.values.get(query, 0.0), 4) for query in order],
        "lists": lists,
        "causes": [causes[query].summary if query in causes else "" for query in order],
        "places": places,
        "written": [_written(opened, query) for query in order] if opened.generations else [],
    }


def _written(opened: LoadedRun, query: str) -> list[dict[str, str]]:
    return [
        {
            "method": text.method,
            "model": text.model,
            "text": harmless(text.text),
            "reasoning": harmless(text.reasoning[:4000]),
            "incomplete": harmless(text.incomplete),
        }
        for text in opened.generations.get(query, ())
    ]


def pack_all(
    tasks: Sequence[TaskBlock], runs: Mapping[str, Any], budget: int = BUDGET
) -> tuple[Mapping[str, str], int]:
    """Pack all blocks by their ids, with so many characters of each document as there is room for."""
    blocks = {name: packed(value) for name, value in runs.items()}
    left = budget - sum(map(len, blocks.values()))
    for length in _LENGTHS:
        documents = {f"task-{place}": packed(block.cut(length)) for place, block in enumerate(tasks)}
        if sum(map(len, documents.values())) <= left or length == _LENGTHS[-1]:
            break
    return {**blocks, **documents}, length
