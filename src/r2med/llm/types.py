"""Requests and replies: plain values, with one hash for everything an answer depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import orjson

from r2med.errors import R2medError
from r2med.pipeline.stage import Requirements
from r2med.store.hashes import cache_key
from r2med.usage import Usage

SYSTEM = "You are a helpful assistant."  # the system prompt of the published protocol: nothing in particular


class LimitReached(R2medError):
    """A spending limit would be passed by the next request; everything answered so far is kept."""


class Message(NamedTuple):
    """A turn of a conversation."""

    role: str  # system, user or assistant
    content: str


def chat(user: str, system: str = SYSTEM) -> tuple[Message, ...]:
    """Build the usual conversation: a system prompt (left out if empty) and one question.

    >>> chat("Why?", system="")
    (Message(role='user', content='Why?'),)
    """
    opening = (Message("system", system),) if system else ()
    return (*opening, Message("user", user))


@dataclass(frozen=True)
class Sampling:
    """Settings by which the next token is sampled; None leaves a setting to the server."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Model:
    """A chat model and its connection: a card of `cards.toml`, or one built from an address."""

    name: str  # as in a spec: `gpt-4o`, `qwen@http://localhost:8000/v1`, `local`
    id: str  # the name the server knows it by
    url: str = ""  # the server's base URL; empty for a model that answers in this process or is started by it
    servers: str = ""  # the name of a set of equal servers, which share their answers; empty for this address alone
    key_env: str = ""  # the environment variable with the key; empty when none is needed
    needs_key: bool = False  # whether the server is known to refuse requests without a key
    trace: str = "auto"  # the format of its reasoning: a name of `reasoning.FORMATS`, or `auto`
    reasoning: bool = False  # whether it thinks before it answers
    system: bool = True  # whether it takes a system message; if not, that text opens the first message of the user
    sampling: Sampling = field(default_factory=Sampling)
    price: tuple[float, float] | None = None  # US dollars per million tokens, prompt and completion; None if unknown
    continues: bool = False  # whether a conversation that ends with an assistant message makes it continue that message
    token_field: str = "max_tokens"  # what this server calls the limit on written tokens
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further fields of the request's body, for example a switch that turns thinking on."""
    parallel: int | None = None  # the most requests this server takes at a time
    answer: Callable[[Request], str | RawAnswer] | None = field(default=None, compare=False, repr=False)
    gguf: str = ""

    @property
    def server(self) -> str:
        """Return the name of its server in stored answers: a set of servers, or the address; empty if there is none."""
        return self.servers or self.url

    def request(self, user: str, system: str = SYSTEM, *, stop: tuple[str, ...] = (), logprobs: int = 0) -> Request:
        """Build a request with this model's own sampling; use `Request` itself or `replace` for anything else."""
        return Request(self, chat(str(user), system), self.sampling, stop, logprobs, kind=getattr(user, "kind", ""))

    def requirements(self) -> Requirements:
        """Return the requirements of a stage that uses this model."""
        if self.answer is not None:
            return Requirements()
        return Requirements(extra="local-llm" if self.gguf else "llm", key=self.key_env if self.needs_key else "")

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost of a reply in US dollars, or None if no price is known.

        >>> Model("m", "m", price=(2.0, 8.0)).cost(500_000, 250_000)
        3.0
        """
        if self.price is None:
            return None
        return (prompt_tokens * self.price[0] + completion_tokens * self.price[1]) / 1e6


@dataclass(frozen=True)
class Request:
    """A question to one model, with everything its answer depends on."""

    model: Model
    messages: tuple[Message, ...]
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()  # strings that end the answer; some servers leave the string in, most take it out
    logprobs: int = 0  # how many alternatives to report for each token; 0 for none
    sample: int = 0  # which of several answers to the same question this is
    kind: str = field(default="", compare=False)  # shared by requests with answers of about one length; not in the key

    @property
    def seed(self) -> int | None:
        """Return the seed that is sent: each sample has its own, or a seeded server would repeat itself."""
        return None if self.sampling.seed is None else self.sampling.seed + self.sample

    @property
    def continuing(self) -> bool:
        """Return whether the model shall continue the last message instead of answering it."""
        return self.model.continues and bool(self.messages) and self.messages[-1].role == "assistant"

    def key(self) -> str:
        """Hash everything the answer depends on, the server included; keys, limits and prices are not."""
        return cache_key(
            version=2,
            model=self.model.id,
            server=self.model.server,
            extra=orjson.dumps(dict(self.model.extra), option=orjson.OPT_SORT_KEYS),
            messages=[tuple(message) for message in self.messages],
            sampling=[(name, value) for name, value in vars(self.sampling).items() if value is not None],
            stop=self.stop,
            logprobs=self.logprobs,
            sample=self.sample,
            continuing=self.continuing,
        )

    def samples(self, count: int) -> list[Request]:
        """Return the same question `count` times, each answer stored on its own."""
        return [replace(self, sample=index) for index in range(count)]


class Token(NamedTuple):
    """A written token with its log probability and the likeliest alternatives."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class RawAnswer:
    """Answer of a server, before the reasoning is split off: this is what is stored."""

    text: str
    reasoning: str = ""  # the separate reasoning field, if the server has one
    finish: str = "stop"  # stop, length, content_filter, ...
    usage: Usage = field(default_factory=Usage)
    refusal: str = ""
    logprobs: tuple[Token, ...] = ()
    seconds: float = 0.0
    unread: bool = field(default=False, compare=False)  # whether no decision was found in it; not part of the answer


@dataclass(frozen=True)
class Reply:
    """An answer ready for use."""

    request: Request
    text: str  # the final answer, without the reasoning; empty when `incomplete` says why
    reasoning: str  # the reasoning trace, for users to read and never to search with
    raw: str
    finish: str
    usage: Usage  # of this request. The seconds are those of the attempt that was answered.
    incomplete: str = ""  # why there is no usable answer (trace never closed, empty, refused); empty when all is well
    logprobs: tuple[Token, ...] = ()

    @property
    def cached(self) -> bool:
        """Return whether it was taken from the kept answers."""
        return self.usage.cached > 0


@dataclass(frozen=True)
class Failed:
    """A request that got no answer in any attempt: an empty reply, which is not stored, so a later run asks again."""

    request: Request
    incomplete: str  # the reason
    text = reasoning = raw = finish = ""
    logprobs: ClassVar[tuple[Token, ...]] = ()
    usage = Usage(requests=1, failed=1)
