"""Base of the rerankers that ask a language model: options, prompts, prices, and what a result records of them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from r2med.data.dataset import Collection
from r2med.data.tasks import Task
from r2med.errors import SpecError
from r2med.llm.budget import Estimate
from r2med.llm.client import current_client
from r2med.llm.stage import AskingStage, Exchange, money_facts
from r2med.llm.types import Model, Request, Sampling
from r2med.models.templates import Template, bundled, cut_words, own_template
from r2med.pipeline.stage import Context, Reranker
from r2med.rerank.candidates import check_depth
from r2med.rerank.cards import ServedCard, served_card

_REFERENCE = re.compile(r"\[(\d+)\]")
_EXAMPLES, _EXAMPLE = 100, 200  # from how many queries, and from how many documents at the most, a price is reckoned


def _spread(texts: Sequence[str], most: int) -> list[str]:
    """Return so many texts, evenly spread."""
    count = min(most, len(texts))
    return [texts[place * len(texts) // count] for place in range(count)]


@dataclass(frozen=True)
class ModelReranker(AskingStage, Reranker):
    """A reranker with a model, a prompt and settings; subclasses decide what is asked."""

    llm: str  # the model, as `find_model` takes it
    _: KW_ONLY
    depth: int = 100  # how many documents of a list are reranked
    words: int = 300  # how many words of a passage the model is shown
    prompt: str = ""  # a file with the user's prompt; empty for the bundled one
    temperature: float | None = None  # in place of 0, or of a reasoning model's own
    max_tokens: int | None = None  # in place of the model's own
    format: str = ""  # the served reranker as which the model is asked and read; empty for its own card, if it has one

    needed: ClassVar[tuple[str, ...]] = ("query", "passages")  # what a prompt must have a place for

    def __post_init__(self) -> None:
        check_depth(self.name, self.depth)
        if self.words < 1:
            raise SpecError(f"{self.name}: words must be 1 or more, not {self.words}")
        self.check_asking()

    @property
    def served(self) -> ServedCard | None:
        """Return the format of a model that was trained to rerank; None for any other."""
        return served_card(self.name, self.llm, self.format)

    @property
    def answer(self) -> str:
        """Return the form of a trained model's answers; empty for any other."""
        return self.served.answer if self.served else ""

    def usual(self, model: Model) -> Sampling:
        """Return sampling at temperature 0, except for models that reason or take no temperature."""
        if model.sampling.temperature is None or model.reasoning:
            return model.sampling
        return replace(model.sampling, temperature=0.0, top_p=None)

    def templates(self) -> tuple[Template, ...]:
        """Return every prompt that may be used."""
        return (self.template(self.name),)

    def template(self, name: str) -> Template:
        """Return the bundled prompt of a name, or the user's own."""
        if self.prompt:
            return own_template(self.name, self.prompt, self.needed)
        return bundled(self.served.prompt if self.served else name, "r2med.rerank")

    def prompt_hashes(self) -> list[str]:
        """Return the hashes of the prompts, in the stage's order."""
        return [template.hash for template in self.templates()]

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        prompt = ", ".join(template.source for template in self.templates())
        answers = {"answers": f"{self.answer}, as {self.served.name} was trained to"} if self.served else {}
        return {**self.asked_model(), "prompt": prompt, "depth": self.depth, "words": self.words, **answers}

    @abstractmethod
    def requests_a_query(self, documents: int) -> int:
        """Return the number of requests for a list of so many documents."""

    @abstractmethod
    def example(self, task: Task, query: str, texts: Sequence[str]) -> Request:
        """Build a typical request for a query, to estimate the price before the lists are known."""

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the most requests that this may take, and their price; some may be answered already."""
        guess = self.foresee(collection)
        return {"requests at most": guess.requests, **money_facts(guess)}

    def foresee(self, collection: Collection) -> Estimate:
        """Estimate the cost of all lists, as if they held documents from all over the collection."""
        documents, queries = collection.documents.texts, collection.queries.texts
        total = self.requests_a_query(min(self.depth, len(documents))) * len(queries)
        examples, questions = _spread(documents, min(self.depth, _EXAMPLE)), _spread(queries, _EXAMPLES)
        requests = [self.example(collection.task, query, examples) for query in questions] if examples else []
        # Other documents will be shown, so that an answer to one of these is none to those.
        guess = current_client().estimate([replace(request, sample=-1) for request in requests])
        return replace(guess * (total / max(1, len(requests))), requests=total)

    def passage(self, text: str) -> str:
        """Format a passage for a prompt: cut, on one line, and without references that look like our own numbers."""
        return _REFERENCE.sub(r"(\1)", cut_words(text, self.words))

    def passages(self, texts: Sequence[str]) -> str:
        """Format passages for a prompt, numbered from 1."""
        return "\n\n".join(f"[{number}] {self.passage(text)}" for number, text in enumerate(texts, 1))

    def request(self, task: Task, query: str, template: Template, values: Mapping[str, str]) -> Request:
        """Build a request from a prompt for a query."""
        asked = self.model.request(template.fill({**task.words, "query": query, **values}))
        return replace(asked, kind=f"{asked.kind} of {values['count']}") if "count" in values else asked

    def group_request(self, task: Task, query: str, texts: Sequence[str]) -> Request:
        """Build a request about several passages."""
        values = {"passages": self.passages(texts), "count": str(len(texts))}
        return self.request(task, query, self.templates()[0], values)

    def note(self, exchange: Exchange, context: Context) -> None:
        """Record what was asked, what it took, and the first prompt as it was sent."""
        prompts = [{"source": template.source, "hash": template.hash} for template in self.templates()]
        context.notes.facts |= {**self.asked_model(), "prompts": prompts, "first_prompt": exchange.first_prompt}
        exchange.note_account(context)
