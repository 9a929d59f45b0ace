"""One document of a task, as a page of its own or for a page that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from r2med.render.html import address
from r2med.text.highlight import kinds_of
from r2med.web.addresses import NotThere, PageContent, several_like
from r2med.web.citing import Citation
from r2med.web.library import Library
from r2med.web.query_sides import run_kinds

if TYPE_CHECKING:
    from starlette.requests import Request

WORDS = 45
"""Of a document, before it is opened."""
LONGEST = 8000
"""Characters of a question."""
LONGEST_TEXT = 200_000
"""Characters of a document that a page shows."""
_MOST_NAMES = 20_000
"""Ids that are looked at for the nearest."""


def document_page(library: Library, request: Request) -> PageContent:
    """One document, marked by a question or by a query of a run; alone, or in a page of its own."""
    asked = request.query_params
    task, name = asked.get("task", ""), asked.get("document", "")
    dataset = library.dataset(task) if task in library.tasks() else None
    if dataset is None or name not in dataset.collection.documents.position:
        raise NotThere(f"no document {name!r} of {task!r} is on this machine", _nearest(library, task, name))
    text = dataset.collection.documents.text(name)
    question = asked.get("q", "")
    kinds = question_kinds(question) if question else {}
    if asked.get("query") and asked.getlist("run"):
        kinds = run_kinds(library, [library.entry(run) for run in asked.getlist("run")], asked["query"])
    template = "_text.html" if asked.get("part") else "document.html"
    values = {"task": task, "document": name, "text": text[:LONGEST_TEXT], "letters": len(text), "kinds": kinds}
    return template, {**values, "longest": LONGEST_TEXT, "cite": Citation(f"{name} of {task}")}


def _nearest(library: Library, task: str, name: str) -> list[tuple[str, str]]:
    """Documents that were perhaps meant: of the task, or of the one that is most like it."""
    near = task if task in library.tasks() else next(iter(several_like(task, library.tasks())), "")
    dataset = library.dataset(near) if near else None
    known = dataset.collection.documents.position if dataset else {}
    names = [name] if name in known else several_like(name, list(known)[:_MOST_NAMES])
    return [(f"{each} of {near}", address("/document", task=near, document=each)) for each in names]


def question_kinds(question: str) -> Mapping[str, str]:
    """The terms of a question, for marking."""
    return kinds_of(query=[question[:LONGEST]])
