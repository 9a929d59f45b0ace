"""Small collections and scripted models for the tests of expanders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from r2med.data.dataset import Collection, Texts
from r2med.data.tasks import task
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.types import RawAnswer, Request

DOCUMENTS = {
    "scurvy": "Scurvy is a deficiency of vitamin C; collagen fails, gums bleed and wounds heal badly.",
    "rickets": "Rickets is a deficiency of vitamin D in children; bones soften and legs bow.",
    "gout": "Gout is caused by crystals of uric acid in a joint, often of the big toe.",
    "gums": "Gums bleed when plaque inflames them; brushing helps gums.",
    "sailors": "Sailors of old ate biscuit and salt meat for months at sea.",
}
QUERIES = {"q1": "Why did the sailors bleed from their gums?", "q2": "Why is my toe hot at night?"}


def tiny(name: str = "Biology", queries: dict[str, str] | None = None) -> Collection:
    asked = QUERIES if queries is None else queries
    return Collection(
        task(name),
        Texts(list(DOCUMENTS), list(DOCUMENTS.values())),
        Texts(list(asked), list(asked.values())),
    )


def with_texts(collection: Collection, texts: list[str]) -> Collection:
    """The same documents, asked for with these texts as they are."""
    return replace(collection, queries=Texts(collection.queries.ids, texts), generations=())


@dataclass
class Script:
    """A model that answers by a function and remembers what it was asked."""

    answer: Callable[[Request], str | RawAnswer]
    name: str = "m"
    trace: str = "auto"
    continues: bool = True
    max_tokens: int | None = 10240
    asked: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        def recorded(request: Request) -> str | RawAnswer:
            self.asked.append(request)
            return self.answer(request)

        model = scripted(recorded, self.name, trace=self.trace)
        sampling = replace(model.sampling, max_tokens=self.max_tokens)
        add_model(replace(model, continues=self.continues, sampling=sampling))

    @property
    def prompts(self) -> list[str]:
        return [request.messages[-1].content for request in self.asked]


def about(request: Request) -> str:
    """Which of the two queries a request is about."""
    return "q1" if QUERIES["q1"] in "\n".join(message.content for message in request.messages) else "q2"


def says(q1: str | RawAnswer, q2: str | RawAnswer = "Crystals of uric acid.") -> Callable[[Request], str | RawAnswer]:
    """One answer for each query."""
    return lambda request: q1 if about(request) == "q1" else q2
