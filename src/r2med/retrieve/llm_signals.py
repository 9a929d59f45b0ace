"""Signals that ask a language model: the agreement of its sampled answers, and its stated confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.lexical.analyzer import analyze
from r2med.llm.client import current_client
from r2med.llm.stage import AskingStage, Exchange, estimate_requests
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import Template, bundled
from r2med.pipeline.registry import NamedStage, build_stage
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Signal, note_incomplete
from r2med.pipeline.system import System

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class AnswerAgreement(NamedStage, Signal):
    """Signal of the overlap of words among several answers of a model, sampled to one question."""

    llm: str  # the model, as an expander takes it
    _: KW_ONLY
    samples: int = 5  # how many answers are sampled
    temperature: float | None = 0.7  # without chance all answers would agree
    max_tokens: int | None = None  # in place of the model's own

    writer: System = field(init=False, repr=False, compare=False)
    """What writes the answers, as in `answer(LLM) >> bm25`."""

    name = "answer-agreement"

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise SpecError(f"{self.name}: samples must be 2 or more, not {self.samples}")
        options = {name: getattr(self, name) for name in ("samples", "temperature", "max_tokens")}
        writer = build_stage(Call("answer", (self.llm,), tuple(options.items())))
        object.__setattr__(self, "writer", System((writer,)))

    def values(self, collection: Collection, run: Run, context: Context) -> NDArray[np.float64]:
        """Return the mean overlap of words over pairs of answers, for each query."""
        before = collection.generations or ((),) * len(collection.queries)
        after = self.writer.work(collection, context).collection.generations
        new = (written[len(earlier) :] for earlier, written in zip(before, after, strict=True))
        return np.array([answers_agree([answer.text for answer in row if not answer.incomplete]) for row in new])


def answers_agree(texts: Sequence[str]) -> float:
    """Return the mean over pairs of texts of the share of common words; NaN for fewer than two texts.

    >>> answers_agree(["scurvy", "It is scurvy.", "rickets"]), answers_agree(["scurvy"])
    (0.3333333333333333, nan)
    """
    words = [set(analyze(text)) for text in texts]
    pairs = [len(one & other) / max(1, len(one | other)) for one, other in combinations(words, 2)]
    return sum(pairs) / len(pairs) if pairs else math.nan


@dataclass(frozen=True)
class Confidence(AskingStage, Signal):
    """Signal of a model's stated confidence in its own answer, from 0 to 100."""

    llm: str  # the model, as an expander takes it
    _: KW_ONLY
    temperature: float | None = None  # in place of the model's own
    max_tokens: int | None = None  # in place of the model's own

    name = "confidence"

    def __post_init__(self) -> None:
        self.check_asking()

    @property
    def template(self) -> Template:
        """Return the prompt."""
        return bundled("confidence", "r2med.retrieve")

    def prompt_hashes(self) -> list[str]:
        """Return the hash of the one prompt."""
        return [self.template.hash]

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {**self.asked_model(), "harder": self.harder}

    def requests(self, collection: Collection) -> list[Request]:
        """Build a request per query."""
        model, template = self.model, self.template
        return [model.request(template.fill({"query": text})) for text in collection.queries.texts]

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Estimate the requests, tokens and dollars, for a plan."""
        return estimate_requests(self.requests(collection))

    def values(self, collection: Collection, run: Run, context: Context) -> NDArray[np.float64]:
        """Ask for the confidence in each query's answer; NaN if the model gave none, which is counted."""
        requests, exchange = self.requests(collection), Exchange()
        with context.executor.progress(str(self), len(requests)) as bar:
            replies = exchange.ask(requests, bar)
        exchange.note_account(context)
        numbers = [_number_or_reason(reply) for reply in replies]
        rows = list(zip(collection.queries.ids, replies, numbers, strict=True))
        current_client().reject(reply for _, reply, number in rows if isinstance(number, str))
        reasons = {query: number for query, _, number in rows if isinstance(number, str)}
        note_incomplete(self, reasons, len(numbers), context, "have no signal and count as hard")
        return np.array([math.nan if isinstance(number, str) else number for number in numbers])


def _number_or_reason(reply: Reply | Failed) -> float | str:
    if reply.incomplete:
        return reply.incomplete
    number = read_percentage(reply.text)
    return "the reply has no number from 0 to 100" if number is None else number


def read_percentage(text: str) -> float | None:
    """Return the last number from 0 to 100 in a text.

    >>> read_percentage("Confidence: 85%"), read_percentage("I am 100 percent sure"), read_percentage("very")
    (85.0, 100.0, None)
    """
    fitting = [number for number in map(float, _NUMBER.findall(text)) if number <= 100]
    return fitting[-1] if fitting else None
