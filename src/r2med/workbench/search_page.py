"""Live search: any question over the documents of a task, by every system whose index is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from r2med.data.dataset import Dataset
from r2med.data.tasks import registry
from r2med.errors import R2medError
from r2med.lexical.highlight import kinds_of
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context, Expander, Retriever
from r2med.pipeline.system import System
from r2med.render.html import address
from r2med.store.cache import Cache
from r2med.web.addresses import Correction, NotFound, PageContent, UnknownName, one_of, same_task, several_like
from r2med.web.citation import Citation
from r2med.web.library import Library
from r2med.workbench.sides import FoundDocument, run_kinds

if TYPE_CHECKING:
    from starlette.requests import Request

WORDS = 45  # of a document, before it is opened
LONGEST = 8000  # characters of a question
LONGEST_TEXT = 200_000  # characters of a document that a page shows
_MOST_NAMES = 20_000  # ids that are looked at for the nearest


def document_page(library: Library, request: Request) -> PageContent:
    """Show one document, marked by a question or by a query of a run; alone, or in a page of its own."""
    asked = request.query_params
    task, name = asked.get("task", ""), asked.get("document", "")
    dataset = library.dataset(task) if task in library.tasks() else None
    if dataset is None or name not in dataset.collection.documents.position:
        raise NotFound(f"no document {name!r} of {task!r} is on this machine", _nearest(library, task, name))
    text = dataset.collection.documents.text(name)
    kinds = _kinds(asked.get("q", ""))
    if asked.get("query") and asked.getlist("run"):
        kinds = run_kinds(library, [library.entry(run) for run in asked.getlist("run")], asked["query"])
    template = "workbench/_text.html" if asked.get("part") else "workbench/document.html"
    values = {"task": task, "document": name, "text": text[:LONGEST_TEXT], "letters": len(text), "kinds": kinds}
    return template, {**values, "longest": LONGEST_TEXT, "cite": Citation(f"{name} of {task}")}


def _nearest(library: Library, task: str, name: str) -> list[tuple[str, str]]:
    near = task if task in library.tasks() else next(iter(several_like(task, library.tasks())), "")
    dataset = library.dataset(near) if near else None
    position = dataset.collection.documents.position if dataset else {}
    names = [name] if name in position else several_like(name, list(position)[:_MOST_NAMES])
    return [(f"{document} of {near}", address("/document", task=near, document=document)) for document in names]


SHOWN = 10
_ALWAYS = ("bm25", "bm25-classic")
_OFFERED, _BOXES, _EXAMPLES, _LISTS = 3, 8, 3, 6
"""Systems that are chosen at first, boxes before the fold, questions to begin with, and lists side by side."""


def search_page(library: Library, request: Request) -> PageContent:
    """Show a form for any question, and what systems return for it."""
    asked = request.query_params
    tasks = searchable_tasks(library)
    near = [name for name in tasks if name in registry() and registry()[name].group == asked.get("group", "")]
    named, first = asked.get("task", ""), next(iter((*near, *tasks)), "")
    wrong: list[Correction] = []
    if named and not same_task(named, tasks):
        error = UnknownName("task with data on this machine", named, tasks)
        wrong.append(Correction.of(error, "/search", dict(asked), "task"))
    task = same_task(named, tasks) or (wrong[0].nearest if wrong else "") or first
    dataset = library.dataset(task)
    systems = searchers(library, dataset) if dataset else {}
    ready = [system for system, is_ready in systems.items() if is_ready]
    selected = [name for name in asked.getlist("system") if name in ready] or unlike(ready)[:_OFFERED]
    answers = _answers(library, request, task, selected)
    # Of many systems those that are chosen, and as many as one sees at a glance, are shown before the rest.
    boxes, visible = list(dict.fromkeys((*selected, *unlike(ready), *ready))), max(_BOXES, len(selected))
    questions = sorted(dataset.collection.queries.texts, key=len) if dataset else []
    return "workbench/search.html", {
        **answers, "tasks": tasks, "task": task, "chosen": selected,
        "waiting": [system for system, is_ready in systems.items() if not is_ready],
        "first": boxes[:visible], "rest": boxes[visible:], "most": _LISTS,
        "examples": [text for text in questions if text.strip()][:_EXAMPLES],
        "job": library.jobs.newest("index", task), "cite": Citation("Search"),
        "wrong": wrong, "status": 404 if wrong else 200,
        "documents": len(dataset.collection.documents) if dataset else 0,
    }  # fmt: skip


def unlike(systems: Sequence[str]) -> list[str]:
    """Select systems that search differently, one of each kind: two kinds of BM25 give nearly the same list.

    >>> unlike(["bm25", "bm25-classic", "bm25(k1=1.2)", "rrf(bm25, bm25-classic)"])
    ['bm25', 'rrf(bm25, bm25-classic)']
    """
    kinds: dict[frozenset[str], str] = {}
    for spec in systems:
        system = _light(spec)
        names = [stage.spec.name.partition("-")[0] for stage in system.walk()] if system else [spec]
        kinds.setdefault(frozenset(names), spec)
    return list(kinds.values())


def _kinds(question: str) -> dict[str, str]:
    return kinds_of(query=[question[:LONGEST]])


def search_results(library: Library, request: Request) -> PageContent:
    """Show only what systems return, for a page that updates while the user types."""
    asked = request.query_params
    return "workbench/_results.html", _answers(library, request, asked.get("task", ""), asked.getlist("system"))


def _answers(library: Library, request: Request, task: str, systems: list[str]) -> dict[str, Any]:
    question = request.query_params.get("q", "").strip()
    values = {"question": question, "answers": [], "kinds": {}, "words": WORDS, "task": task, "chosen": systems}
    if not question or not task:
        return values
    dataset = library.dataset(one_of(task, searchable_tasks(library), "task with data on this machine"))
    if dataset is None:
        raise R2medError(f"the data of {task} is not on this machine")
    ready, text = searchers(library, dataset), dataset.collection.documents.text
    first: dict[str, int] = {}
    answers: list[dict[str, Any]] = []
    for spec in (name for name in systems[:_LISTS] if ready.get(name)):
        ranking = System.parse(spec).search(dataset.collection, question[:LONGEST], Context(Cache.default(), quiet()))
        rows = zip(ranking.documents[:SHOWN], ranking.scores[:SHOWN].tolist(), strict=True)
        documents = [
            FoundDocument(name, rank, score, None, text(name), first[name] - rank if name in first else None)
            for rank, (name, score) in enumerate(rows, 1)
        ]
        if not answers:
            first = {row.document: row.rank for row in documents}
        answers.append({"system": spec, "documents": documents})
    return values | {"answers": answers, "kinds": _kinds(question)}


def build_index(library: Library, form: Mapping[str, str]) -> str:
    """Start building the index of a search; return the address that shows it."""
    task, system = form.get("task", ""), form.get("system", "")
    one_of(task, searchable_tasks(library), "task with data on this machine")
    if _light(system) is None:
        raise R2medError(f"{system!r} is not a light system; run it in a terminal: r2med run {system!r}")
    title, page = f"Index of {system} for {task}", address("/search", task=task)
    # Searching once makes the index.
    command = ("r2med", "search", "--task", task, "--", system, "fever")
    library.jobs.submit(("index", task, system), title, page, command)
    return page


def searchable_tasks(library: Library) -> list[str]:
    """Return the tasks whose data is local: those with runs first, then the bundled ones."""
    with_runs = dict.fromkeys(entry.task for entry in library.entries())
    bundled = [task.name for task in registry().values() if task.folder is not None]
    order = {name: place for place, name in enumerate(registry())}
    ordered = sorted(with_runs, key=lambda name: order.get(name, len(order)))
    tasks = dict.fromkeys((*ordered, *bundled))
    return library.current("searchable", lambda: [task for task in tasks if library.has_data(task)])


def searchers(library: Library, dataset: Dataset) -> dict[str, bool]:
    """Return the light systems for a task, and whether the index of each is there; a page never builds one.

    They are BM25, and those run on the task that ask no model and download nothing.
    """
    with_runs = sorted({entry.system for entry in library.entries() if entry.task == dataset.name})
    context, light = Context(Cache.default(), quiet()), {}
    for spec in dict.fromkeys((*_ALWAYS, *with_runs)):
        system = _light(spec)
        if system is not None:
            with suppress(R2medError):  # its files are not there, or cannot be read
                light[spec] = all(stage.is_ready(dataset.collection, context) for stage in system.walk())
    return light


def _light(spec: str) -> System | None:
    """Parse a system that a page may run; None for one that is slow, or that this machine does not have."""
    try:
        system = System.parse(spec)
        stages = [(stage, stage.requirements) for stage in system.walk()]
    except R2medError:
        # A run of a system that this installation does not know, or of a folder that is gone.
        return None
    for stage, needs in stages:
        if isinstance(stage, Expander) or stage.kind == "reranker" or needs.key or needs.gpu or needs.hub:
            return None
        if isinstance(stage, Retriever) and not stage.searches:
            return None
    return system
