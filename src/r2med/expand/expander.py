"""What every expander that asks a model has in common: its options, its account, and what a result remembers of it.

The end of every expander: its texts go to the collection, and what is missing is counted.
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
from r2med.models.templates import FAMILIES, Template, own_template, task_values, templates
from r2med.pipeline.joins import check_join
from r2med.pipeline.stage import Context, Expander

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.tasks import Task
    from r2med.pipeline.stage import Stage


@dataclass(frozen=True)
class ModelExpander(AskingStage, Expander):
    """An expander with a model, a prompt and settings; what is asked is the business of its kinds."""

    llm: str
    """The model, as `find_model` takes it."""
    _: KW_ONLY
    prompt: str = ""
    """A file with a prompt of one's own; empty for the one of the task's family."""
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
        """The prompt for a task."""
        found = self._templates()
        return found.get(task.family, found["custom"])

    def _templates(self) -> Mapping[str, Template]:
        """The prompts by family; one of the user's own serves all of them."""
        if self.prompt:
            return dict.fromkeys(FAMILIES, own_template(self.name, self.prompt, self.needed))
        return templates("r2med.expand", self.name)

    def prompt_hashes(self) -> list[str]:
        """Those of all families: a stage does not know yet which tasks it will meet."""
        return sorted({template.hash for template in self._templates().values()})

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        return {
            **self.asked_model(),
            "prompt": self.prompt or f"{self.name}.<family>.txt",
            "samples": self.samples,
            "join": self.join or "as published",
        }

    def values(self, collection: Collection, context: Context) -> list[dict[str, str]]:
        """What is filled into the prompt of each query."""
        task = task_values(collection.task)
        return [{**task, "query": text} for text in collection.queries.texts]

    @abstractmethod
    def requests(self, collection: Collection, context: Context) -> list[Request]:
        """What is asked first, sample by sample for each query: what a dry run shows and counts."""

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """How many requests, tokens and dollars it would take, and the first prompt."""
        return estimate_requests(self.requests(collection, context))

    def generation(self, text: str, reasoning: str = "", incomplete: str = "") -> Generation:
        """A text of this stage."""
        return Generation(text, self.name, self.model.id, reasoning, self.join, incomplete)

    def note(self, collection: Collection, first: Request | None, context: Context) -> None:
        """Remember what was asked: the settings, the prompt's hash, and the first prompt as it was sent."""
        template = self.template(collection.task)
        context.notes.facts |= {
            **self.asked_model(),
            "prompt": {"source": template.source, "hash": template.hash},
            "first_prompt": first.messages[-1].content if first else "",
        }


@dataclass(frozen=True)
class Writer(ModelExpander):
    """One request a sample: the answer is the text."""

    def requests(self, collection: Collection, context: Context) -> list[Request]:
        """Each query's prompt, once for each sample."""
        return self.asked(collection.task, self.values(collection, context))

    def asked(self, task: Task, filled: Sequence[Mapping[str, str]]) -> list[Request]:
        """The requests for prompts filled in with these values."""
        model, template = self.model, self.template(task)
        prompts = [model.request(template.fill(values)) for values in filled]
        return [sample for request in prompts for sample in request.samples(self.samples)]

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Ask for every query and add what comes back."""
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
    """The collection with these generations, one row a query.

    A query without a usable text is searched with its own; one whose text was cut by the limit on its length is
    searched with what there is of it (`cut` counts such texts a query). Both are incomplete: they are counted, and an
    error where the context is strict.
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
    """Why a query is incomplete; with several samples, how many of them."""
    reasons = [generation.incomplete for generation in row if generation.incomplete]
    if not reasons or len(row) == 1:
        return reasons[0] if reasons else ""
    return f"{len(reasons)} of {len(row)} samples: {reasons[0]}"
