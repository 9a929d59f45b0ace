"""Base of the stages that ask a chat model: the model, its sampling, its prompts and its account."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from r2med.errors import SpecError
from r2med.llm.budget import Estimate, account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.types import Failed, Model, Reply, Request, Sampling
from r2med.pipeline.executor.local import Progress
from r2med.pipeline.registry import NamedStage
from r2med.pipeline.stage import Context, Requirements
from r2med.store.files import expanded, spelled
from r2med.store.hashes import file_digest

_FILES = ("scripted", "local")  # the kinds of models whose names hold a path


class AskingStage(NamedStage):
    """Stage with a model and prompts. Subclasses are dataclasses with their fields in the order of their specs."""

    llm: str  # the model, as `find_model` takes it
    temperature: float | None  # in place of `usual`'s
    max_tokens: int | None  # in place of the model's own

    billed = True

    @abstractmethod
    def prompt_hashes(self) -> Sequence[str]:
        """Return a hash of every prompt that may be used."""

    def usual(self, model: Model) -> Sampling:
        """Return the sampling if the spec does not set it: as the model's card states."""
        return model.sampling

    def check_asking(self) -> None:
        """Refuse invalid settings, unknown models and unusable prompts before anything runs."""
        if self.temperature is not None and self.temperature < 0:
            raise SpecError(f"{self.name}: temperature must not be negative, not {self.temperature}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise SpecError(f"{self.name}: max_tokens must be 1 or more, not {self.max_tokens}")
        kind, _, file = self.llm.partition(":")
        if file and kind in _FILES:
            object.__setattr__(self, "llm", f"{kind}:{spelled(file)}")
        if hasattr(self, "prompt"):
            object.__setattr__(self, "prompt", spelled(self.prompt))
        find_model(self.llm)
        self.prompt_hashes()

    @property
    def model(self) -> Model:
        """Return the model, with this stage's sampling."""
        model = find_model(self.llm)
        sampling = self.usual(model)
        if self.temperature is not None:
            sampling = replace(model.sampling, temperature=self.temperature)
        if self.max_tokens is not None:
            sampling = replace(sampling, max_tokens=self.max_tokens)
        return replace(model, sampling=sampling)

    @property
    def requirements(self) -> Requirements:
        """Return the requirements of the model."""
        return find_model(self.llm).requirements()

    def fingerprint(self) -> Mapping[str, object]:
        """Return the model, its sampling and the hash of every prompt."""
        model = self.model
        return {
            "model": model.id,
            "server": model.server,
            "model_extra": sorted(model.extra.items()),
            "trace": model.trace,
            "sampling": settings(model.sampling),
            "prompts": list(self.prompt_hashes()),
        }

    def local_content(self) -> dict[str, str]:
        """Return the files of a user's prompt and of a local or scripted model, each with a hash."""
        prompt = expanded(getattr(self, "prompt", ""))
        kind, _, file = self.llm.partition(":")
        prompts = {str(prompt.resolve()): file_digest(prompt)} if prompt.is_file() else {}
        models = {str(expanded(file).resolve()): self.model.id} if file and kind in _FILES else {}
        return prompts | models

    def asked_model(self) -> dict[str, object]:
        """Return the model and its sampling, which plans and results show first."""
        model = self.model
        server = {"server": model.server} if model.server else {}
        return {"model": model.id, **server, "sampling": settings(model.sampling)}


def settings(sampling: Sampling) -> dict[str, float | int]:
    """Return the settings of a sampling that are set, as a result records them.

    >>> settings(Sampling(temperature=0.7))
    {'temperature': 0.7}
    """
    return {name: value for name, value in vars(sampling).items() if value is not None}


def estimate_requests(requests: Sequence[Request]) -> dict[str, object]:
    """Estimate the cost of requests for a plan; nothing is asked."""
    guess = current_client().estimate(requests)
    return {
        "requests": guess.requests,
        "answered already": guess.cached,
        **money_facts(guess),
        "first prompt": requests[0].messages[-1].content if requests else "",
    }


def money_facts(guess: Estimate) -> dict[str, object]:
    """Return the tokens and dollars of an estimate, for a plan."""
    return {
        "prompt tokens": guess.prompt_tokens,
        "completion tokens": guess.completion_tokens,
        **({"length": guess.basis} if guess.basis else {}),
        "dollars": guess.cost,
        "dollars at most": guess.cost_limit,
    }


@dataclass
class Exchange:
    """Exchange of a stage with a model: the first prompt, all replies, and the seconds they took on the clock."""

    first_prompt: str = ""
    replies: list[Reply | Failed] = field(default_factory=list)
    seconds: float = 0.0

    def ask(self, requests: Sequence[Request], bar: Progress | None = None) -> list[Reply | Failed]:
        """Return the replies to requests."""
        if requests and not self.replies:
            self.first_prompt = requests[0].messages[-1].content
        started = time.perf_counter()
        replies = current_client().ask_all(requests, bar)
        self.seconds += time.perf_counter() - started
        self.replies += replies
        return replies

    def note_account(self, context: Context) -> None:
        """Record what the replies took, and how many were cut by the token limit and used as they are."""
        context.asked_for(self.seconds)
        bill, cut = account(self.replies).as_json(), sum(map(was_cut, self.replies))
        context.notes.facts |= {"account": bill, "seconds": self.seconds, "cut_by_limit": cut}


def was_cut(reply: Reply | Failed) -> bool:
    """Return whether a text was cut by the limit on its length, and can be used as far as it goes."""
    return reply.finish == "length" and not reply.incomplete
