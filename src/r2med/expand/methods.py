"""Expanders with one request per text: HyDE, Query2Doc, LameR and a plain answer; and the gold answer as a ceiling.

The ceiling is not a system, and is marked as such in all results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.data.dataset import Generation
from r2med.errors import R2medError, SpecError
from r2med.expand.expander import Writer, attach_generations
from r2med.llm.stage import estimate_requests
from r2med.models.templates import numbered
from r2med.pipeline.joins import check_join
from r2med.pipeline.registry import build_stage, build_system, spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Oracle
from r2med.pipeline.system import System

if TYPE_CHECKING:
    from r2med.data.dataset import Collection, Gold

PASSAGE_WORDS = 512
"""How much of a passage a model is shown, as published."""
BY_BM25 = System((build_stage(Call("bm25")),))
"""What finds passages for a model unless something else is asked for."""


@dataclass(frozen=True)
class HyDE(Writer):
    """Expansion by a hypothetical document, without examples (arXiv 2212.10496).

    >>> str(HyDE("gpt-4o", samples=3))
    'hyde(gpt-4o, samples=3)'
    """

    name = "hyde"


@dataclass(frozen=True)
class Query2Doc(Writer):
    """Expansion by a hypothetical document, with worked examples in the prompt (arXiv 2303.07678).

    >>> str(Query2Doc("gpt-4o", join="concat"))
    'query2doc(gpt-4o, join=concat)'
    """

    name = "query2doc"


@dataclass(frozen=True)
class Answer(Writer):
    """Expansion by a model's answer to the question; of a reasoning model only the final answer is used.

    >>> str(Answer("gpt-4o", max_tokens=512))
    'answer(gpt-4o, max_tokens=512)'
    """

    name = "answer"


@dataclass(frozen=True)
class LameR(Writer):
    """Expansion by a passage written after reading a first search's results, most of them wrong (arXiv 2304.14233).

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
        """Return the settings that a plan shows."""
        return {**super().describe(), "first": self.first.spec, "depth": self.depth, "words": self.words}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Estimate as if the first search had found the first documents, for it is not run."""
        passages = numbered(collection.documents.texts[: self.depth], self.words)
        filled = [{**values, "passages": passages} for values in super().values(collection, context)]
        facts = estimate_requests(self.asked(collection.task, filled))
        del facts["answered already"]
        for values in filled[:1]:
            described = {**values, "passages": f"({self.depth} passages by {self.first})"}
            facts["first prompt"] = self.template(collection.task).fill(described)
        return facts

    def values(self, collection: Collection, context: Context) -> list[dict[str, str]]:
        """Return the query's own values, and the passages of the first search."""
        inner = context.for_stage()
        run = self.first.run(collection, inner)
        context.notes.absorb("first", inner.notes)
        documents, filled = collection.documents, super().values(collection, context)
        for query, values in zip(collection.queries.ids, filled, strict=True):
            passages = [documents.text(document) for document in run[query].documents[: self.depth]]
            values["passages"] = numbered(passages, self.words) or "(nothing was found)"
        return filled


@dataclass(frozen=True)
class OracleAnswer(Oracle):
    """Expansion by the gold answer as if a model had written it.

    >>> str(OracleAnswer(join="concat"))
    'oracle-answer(join=concat)'
    """

    join: str = ""
    """How the answer joins the query; empty for the retriever's own way."""

    def __post_init__(self) -> None:
        check_join("oracle-answer", self.join)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        return spec_of(self, "oracle-answer")

    def expand_with(self, collection: Collection, gold: Gold, context: Context) -> Collection:
        """Add each query's gold answer; a query without one is counted."""
        if not any(answer.strip() for answer in gold.answers.values()):
            raise R2medError(f"{collection.task.name} has no gold answers, which {self} searches with")
        rows = [(self._generation(gold.answers.get(query, "").strip()),) for query in collection.queries.ids]
        return attach_generations(self, collection, rows, context)

    def _generation(self, answer: str) -> Generation:
        missing = "" if answer else "the task has no answer to it"
        return Generation(answer, "oracle-answer", "gold", join=self.join, incomplete=missing)
