"""Base of the expanders that ask a model: options, prompts, requests, and what a result records of them.

`attach_generations` ends every expander: it adds the texts to the collection and counts the missing ones.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from r2med.data.dataset import Generation
from r2med.errors import R2medError, SpecError
from r2med.llm.client import current_client
from r2med.llm.stage import AskingStage, estimate_requests, note_account, was_cut
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import FAMILIES, Template, own_template, templates
from r2med.pipeline.joins import check_join
from r2med.pipeline.stage import Context, Expander

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.tasks import Task
    from r2med.pipeline.stage import Stage


@dataclass(frozen=True)
class ModelExpander(AskingStage, Expander):
    """An expander with a model, a prompt and settings; subclasses decide what is asked."""

    llm: str
    """The model, as `find_model` takes it."""
    _: KW_ONLY
    prompt: str = ""
    """A file with the user's prompt; empty for the one of the task's family."""
    join: str = ""
    """How the text joins the query: replace, concat, mean, "repeat(n)"; empty for the retriever's published way."""
    samples: int = 1
    """How many texts are written for a query."""
    temperature: float | None = None
    """In place of the model's own."""
    max_tokens: int | None = None
    """In place of the model's own."""

    needed: ClassVar[tuple[str, ...]] = ("query",)
    """What a prompt must have a place for."""

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

    def generation(self, text: str, reasoning: str = "", incomplete: str = "") -> Generation:
        """Build a generation of this stage."""
        return Generation(text, self.name, self.model.id, reasoning, self.join, incomplete)

    def note(self, collection: Collection, first: Request | None, context: Context) -> None:
        """Record what was asked: the settings, the prompt's hash, and the first prompt as it was sent."""
        template = self.template(collection.task)
        context.notes.facts |= {
            **self.asked_model(),
            "prompt": {"source": template.source, "hash": template.hash},
            "first_prompt": first.messages[-1].content if first else "",
        }


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
        requests = self.requests(collection, context)
        self.note(collection, requests[0] if requests else None, context)
        started = time.perf_counter()
        with context.executor.progress(str(self), len(requests)) as bar:
            replies = current_client().ask_all(requests, bar)
        note_account(replies, time.perf_counter() - started, context)
        written = [self._read(reply) for reply in replies]
        places = range(0, len(written), self.samples)
        rows = [written[start : start + self.samples] for start in places]
        cut = [sum(map(was_cut, replies[start : start + self.samples])) for start in places]
        return attach_generations(self, collection, rows, context, cut)

    def _read(self, reply: Reply | Failed) -> Generation:
        if isinstance(reply, Failed):
            return self.generation("", incomplete=reply.reason)
        return self.generation(reply.text, reply.reasoning, reply.incomplete)


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
    reasons = {query: _reason(row) for query, row in zip(ids, rows, strict=True)}
    for query, row, count in zip(ids, rows, cut or [0] * len(ids), strict=True):
        if count and not reasons[query]:
            reasons[query] = CUT if len(row) == 1 else f"{count} of {len(row)} samples: {CUT}"
    if any(cut):
        total = sum(map(len, rows))
        context.warn(f"{stage}: {sum(cut)} of {total} texts were cut by max_tokens; give the stage a larger one")
    incomplete = {query: reason for query, reason in reasons.items() if reason}
    context.notes.incomplete |= incomplete
    if incomplete and context.strict:
        query, reason = next(iter(incomplete.items()))
        raise R2medError(
            f"{stage}: {len(incomplete)} of {len(ids)} queries are incomplete, and strict was asked for;"
            f" the first is {query}: {reason}"
        )
    return collection.expanded(rows)


def _reason(row: Sequence[Generation]) -> str:
    """Return the reason why a query is incomplete; for several samples, with their number."""
    reasons = [generation.incomplete for generation in row if generation.incomplete]
    if not reasons or len(row) == 1:
        return reasons[0] if reasons else ""
    return f"{len(reasons)} of {len(row)} samples: {reasons[0]}"
