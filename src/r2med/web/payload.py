"""What a report carries beside its page: queries, documents and lists, which a browser unpacks on demand."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from r2med.diagnose.causes import Diagnosis
from r2med.diagnose.opened import TOP, Opened
from r2med.diagnose.screen import harmless

BUDGET = 24_000_000
"""Bytes that all blocks together may take, so that a file stays well below 30 MB."""
_LENGTHS = (6000, 3000, 1800, 1200, 800, 500, 300)
"""Characters of a document that are carried: the most that the budget has room for."""


def packed(value: Any) -> str:
    """A value as text that a browser unpacks: JSON, deflated, in base 64.

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
    documents: dict[str, int] = field(default_factory=dict)
    """Id to number."""
    texts: list[str] = field(default_factory=list)

    def number(self, document: str, opened: Opened) -> int:
        """The number of a document, which is taken in when it is new."""
        if document not in self.documents:
            self.documents[document] = len(self.documents)
            texts = opened.dataset.collection.documents
            self.texts.append(harmless(texts.text(document)) if document in texts.position else "")
        return self.documents[document]

    def cut(self, length: int) -> dict[str, Any]:
        """The block with texts of at most so many characters."""
        texts = [text if len(text) <= length else f"{text[:length]} …" for text in self.texts]
        return {"queries": self.queries, "ids": [harmless(name) for name in self.documents], "texts": texts}


def task_block(opened: Opened) -> TaskBlock:
    """The queries of a task."""
    block = TaskBlock(opened.entry.task)
    collection, answers = opened.dataset.collection, opened.dataset.gold.answers
    for query in opened.entry.queries:
        relevant = [block.number(document, opened) for document in opened.positives.get(query, ())]
        facts = {"id": harmless(query), "text": harmless(collection.queries.text(query)), "relevant": relevant}
        block.queries.append({**facts, "answer": harmless(answers.get(query, ""))})
    return block


def run_block(opened: Opened, block: TaskBlock, order: Sequence[str], found: Diagnosis | None) -> dict[str, Any]:
    """One system on a task, its queries in the task's order."""
    causes = {query.query: query.summary for query in found.queries} if found else {}
    return {
        "values": [round(opened.values.get(query, 0.0), 4) for query in order],
        "lists": [_list(opened, block, query) for query in order],
        "causes": [causes.get(query, "") for query in order],
        "written": [_written(opened, query) for query in order] if opened.generations else [],
    }


def _list(opened: Opened, block: TaskBlock, query: str) -> list[list[float]]:
    if query not in opened.run:
        return [[], []]
    ranking = opened.run[query]
    numbers = [block.number(document, opened) for document in ranking.documents[:TOP]]
    return [list(map(float, numbers)), [float(f"{score:.5g}") for score in ranking.scores[:TOP].tolist()]]


def _written(opened: Opened, query: str) -> list[dict[str, str]]:
    return [
        {
            "method": each.method,
            "model": each.model,
            "text": harmless(each.text),
            "reasoning": harmless(each.reasoning[:4000]),
            "incomplete": harmless(each.incomplete),
        }
        for each in opened.generations.get(query, ())
    ]


@dataclass(frozen=True)
class Packed:
    """All blocks of a report."""

    blocks: Mapping[str, str]
    """By the id that the page finds them under."""
    length: int
    """Characters of a document, at the most."""


def pack_all(tasks: Sequence[TaskBlock], runs: Mapping[str, Any], budget: int = BUDGET) -> Packed:
    """Pack everything, with as much of the documents as there is room for."""
    blocks = {name: packed(value) for name, value in runs.items()}
    left = budget - sum(map(len, blocks.values()))
    for length in _LENGTHS:
        found = {f"task-{place}": packed(block.cut(length)) for place, block in enumerate(tasks)}
        if sum(map(len, found.values())) <= left or length == _LENGTHS[-1]:
            break
    return Packed({**blocks, **found}, length)
