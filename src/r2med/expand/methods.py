"""The expanders that ask one question: HyDE, Query2Doc, LameR, and a plain answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.errors import SpecError
from r2med.expand.prompts import numbered
from r2med.expand.writer import Writer
from r2med.llm.asking import foreseen
from r2med.registry import build_system
from r2med.retrieve.bm25 import BM25
from r2med.system import System

if TYPE_CHECKING:
    from r2med.data.model import Collection
    from r2med.stage import Context

PASSAGE_WORDS = 512
"""How much of a passage a model is shown, as published."""
BY_BM25 = System((BM25(),))
"""What finds passages for a model unless something else is asked for."""


@dataclass(frozen=True)
class HyDE(Writer):
    """A hypothetical document, asked for without examples (arXiv 2212.10496).

    >>> str(HyDE("gpt-4o", samples=3))
    'hyde(gpt-4o, samples=3)'
    """

    name = "hyde"


@dataclass(frozen=True)
class Query2Doc(Writer):
    """The same request with worked examples before it (arXiv 2303.07678)."""

    name = "query2doc"


@dataclass(frozen=True)
class Answer(Writer):
    """The question put to a model as it is; of a reasoning model only the final answer is used."""

    name = "answer"


@dataclass(frozen=True)
class LameR(Writer):
    """A passage written with the sight of what a first search found, most of it wrong (arXiv 2304.14233).

    >>> str(LameR("gpt-4o", depth=5))
    'lamer(gpt-4o, depth=5)'
    """

    first: System = BY_BM25
    """What finds the passages."""
    depth: int = 10
    """How many of them the model is shown."""
    words: int = PASSAGE_WORDS
    """How many words of each."""

    name = "lamer"
    needed = ("query", "passages")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "first", build_system(self.first))
        self.first.check()
        if self.depth < 1 or self.words < 1:
            raise SpecError(f"lamer: depth and words must be 1 or more, not {self.depth} and {self.words}")

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        return {**super().describe(), "first": self.first.spec, "depth": self.depth, "words": self.words}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """As if the first search had found the first documents: it is not made, so nothing can be answered already."""
        passages = numbered(collection.documents.texts[: self.depth], self.words)
        filled = [{**values, "passages": passages} for values in super().values(collection, context)]
        facts = foreseen(self.asked(collection.task, filled))
        del facts["answered already"]
        for values in filled[:1]:
            shown = {**values, "passages": f"({self.depth} passages by {self.first})"}
            facts["first prompt"] = self.template(collection.task).fill(shown)
        return facts

    def values(self, collection: Collection, context: Context) -> list[dict[str, str]]:
        """The query's own, and the passages of the first search."""
        own = context.for_stage()
        run = self.first.run(collection, own)
        context.notes.absorb("first", own.notes)
        documents, filled = collection.documents, super().values(collection, context)
        for query, values in zip(collection.queries.ids, filled, strict=True):
            found = [documents.text(document) for document in run[query].documents[: self.depth]]
            values["passages"] = numbered(found, self.words) or "(nothing was found)"
        return filled
