"""Expanders that ask a model for a text: HyDE, Query2Doc, LameR and a plain answer; and the gold answer as a ceiling.

`attach_generations` ends every expander: it adds the texts to the collection and counts the missing ones. The ceiling
is not a system, and is marked as such in all results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from r2med.data.dataset import Generation
from r2med.errors import R2medError, SpecError
from r2med.llm.stage import AskingStage, Exchange, estimate_requests, was_cut
from r2med.llm.types import Request
from r2med.models.templates import FAMILIES, Template, numbered, own_template, templates
from r2med.pipeline.joins import check_join
from r2med.pipeline.registry import NamedStage, build_stage, build_system
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Expander, Oracle, Stage
from r2med.pipeline.system import System

if TYPE_CHECKING:
    from r2med.data.dataset import Collection, Gold
    from r2med.data.tasks import Task


@dataclass(frozen=True)
class ModelExpander(AskingStage, Expander):
    """An expander with a model, a prompt and settings; subclasses decide what is asked."""

    llm: str  # the model, as `find_model` takes it
    _: KW_ONLY
    prompt: str = ""  # a file with the user's prompt; empty for the one of the task's family
    join: str = ""
    """How the text joins the query: replace, concat, mean, "repeat(n)"; empty for the retriever's published way."""
    samples: int = 1  # how many texts are written for a query
    temperature: float | None = None  # in place of the model's own
    max_tokens: int | None = None  # in place of the model's own

    needed: ClassVar[tuple[str, ...]] = ("query",)  # what a prompt must have a place for

    def __post_init__(self) -> None:
        check_join(self.name, self.join)
        if self.samples < 1:
            raise SpecError(f"{self.name}: samples must be 1 or more, not {self.samples}")
        self.check_asking()

    def template(self, task: Task) -> Template:
        """Return the prompt for a task."""
        by_family = self._templates()
        return by_family.get(task.family, by_family["custom"])

    def _templates(self) -> Mapping[str, Template]:
        """Return the prompts by family; a user's prompt serves all of them."""
        if self.prompt:
            return dict.fromkeys(FAMILIES, own_template(self.name, self.prompt, self.needed))
        return templates("r2med.expand", self.name)

    def prompt_hashes(self) -> list[str]:
        """Return the hashes for all families: a stage does not know yet which tasks it will run on."""
        return sorted({template.hash for template in self._templates().values()})

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {
            **self.asked_model(),
            "prompt": self.prompt or f"{self.name}.<family>.txt",
            "samples": self.samples,
            "join": self.join or "as published",
        }

    def values(self, collection: Collection, context: Context) -> list[dict[str, str]]:
        """Return the values that fill in the prompt of each query."""
        return [{**collection.task.words, "query": text} for text in collection.queries.texts]

    @abstractmethod
    def requests(self, collection: Collection, context: Context) -> list[Request]:
        """Build the first requests, sample by sample for each query: what a dry run shows and counts."""

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Estimate the requests, tokens and dollars, with the first prompt."""
        return estimate_requests(self.requests(collection, context))

    def generation(self, text: str, reasoning: str, incomplete: str) -> Generation:
        """Build a generation of this stage."""
        return Generation(text, self.name, self.model.id, reasoning, self.join, incomplete)

    def note(self, task: Task, exchange: Exchange, context: Context) -> None:
        """Record what was asked: the settings, the prompt's hash, the first prompt as it was sent, and the account."""
        template = self.template(task)
        prompt = {"source": template.source, "hash": template.hash}
        context.notes.facts |= {**self.asked_model(), "prompt": prompt, "first_prompt": exchange.first_prompt}
        exchange.note_account(context)


@dataclass(frozen=True)
class Writer(ModelExpander):
    """Expander with one request per sample: the answer is the text."""

    def requests(self, collection: Collection, context: Context) -> list[Request]:
        """Build each query's request, once for each sample."""
        return self.asked(collection.task, self.values(collection, context))

    def asked(self, task: Task, filled: Sequence[Mapping[str, str]]) -> list[Request]:
        """Build the requests for prompts filled in with these values."""
        model, template = self.model, self.template(task)
        prompts = [model.request(template.fill(values)) for values in filled]
        return [sample for request in prompts for sample in request.samples(self.samples)]

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Ask for every query and add the replies."""
        requests, exchange = self.requests(collection, context), Exchange()
        with context.executor.progress(str(self), len(requests)) as bar:
            replies = exchange.ask(requests, bar)
        self.note(collection.task, exchange, context)
        written = [self.generation(reply.text, reply.reasoning, reply.incomplete) for reply in replies]
        places = range(0, len(written), self.samples)
        rows = [written[start : start + self.samples] for start in places]
        cut = [sum(map(was_cut, replies[start : start + self.samples])) for start in places]
        return attach_generations(self, collection, rows, context, cut)


CUT = "the text was cut by max_tokens"


def attach_generations(
    stage: Stage,
    collection: Collection,
    rows: Sequence[Sequence[Generation]],
    context: Context,
    cut: Sequence[int] = (),
) -> Collection:
    """Return the collection with these generations, one row per query.

    A query without a usable text is searched with its own; one whose text was cut by the limit on its length is
    searched with the part that there is (`cut` counts such texts per query). Both are incomplete: they are counted, and
    an error if the context is strict.
    """
    ids = collection.queries.ids
    incomplete = {}
    for query, row, count in zip(ids, rows, cut or [0] * len(ids), strict=True):
        reasons = [generation.incomplete for generation in row if generation.incomplete] or [CUT] * count
        if reasons:
            incomplete[query] = reasons[0] if len(row) == 1 else f"{len(reasons)} of {len(row)} samples: {reasons[0]}"
    if any(cut):
        total = sum(map(len, rows))
        context.warn(f"{stage}: {sum(cut)} of {total} texts were cut by max_tokens; give the stage a larger one")
    context.notes.incomplete |= incomplete
    if incomplete and context.strict:
        query, reason = next(iter(incomplete.items()))
        raise R2medError(
            f"{stage}: {len(incomplete)} of {len(ids)} queries are incomplete, and strict was asked for;"
            f" the first is {query}: {reason}"
        )
    return collection.expanded(rows)


PASSAGE_WORDS = 512  # how much of a passage a model is shown, as published
BY_BM25 = System((build_stage(Call("bm25")),))  # what finds passages for a model unless something else is asked for


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

    first: System = BY_BM25  # what finds the passages
    depth: int = 10  # how many of them the model is shown
    words: int = PASSAGE_WORDS  # how many words of each

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
class OracleAnswer(NamedStage, Oracle):
    """Expansion by the gold answer as if a model had written it.

    >>> str(OracleAnswer(join="concat"))
    'oracle-answer(join=concat)'
    """

    join: str = ""  # how the answer joins the query; empty for the retriever's own way

    name = "oracle-answer"

    def __post_init__(self) -> None:
        check_join(self.name, self.join)

    def expand_with(self, collection: Collection, gold: Gold, context: Context) -> Collection:
        """Add each query's gold answer; a query without one is counted."""
        if not any(answer.strip() for answer in gold.answers.values()):
            raise R2medError(f"{collection.task.name} has no gold answers, which {self} searches with")
        answers = [gold.answers.get(query, "").strip() for query in collection.queries.ids]
        empty = Generation("", "oracle-answer", "gold", join=self.join, incomplete="the task has no answer to it")
        rows = [[replace(empty, text=answer, incomplete="") if answer else empty] for answer in answers]
        return attach_generations(self, collection, rows, context)
