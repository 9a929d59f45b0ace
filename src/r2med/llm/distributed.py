"""Requests to a local model answered by workers: blocks of requests, and the workers that hold the weights."""

from __future__ import annotations

import atexit
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import orjson

from r2med.errors import R2medError
from r2med.formatting import replace_surrogates
from r2med.llm.budget import Limits
from r2med.llm.local import local_model
from r2med.llm.reply_cache import ReplyCache, decode_answer, encode_answer
from r2med.llm.types import Failed, Message, Model, RawAnswer, Request, Sampling
from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, block_key, grouped

if TYPE_CHECKING:
    from r2med.llm.client import Client

_BLOCK_TOKENS = 4096  # tokens of a block's requests at the most: a minute of a small model on a processor
_LEAST = 2  # requests of fewer blocks are answered here: there is nothing to share
_CHARACTERS = 4  # of a token, about
_WRITTEN = 512  # tokens that are counted for an answer without a limit
Answered = RawAnswer | str  # an answer, or why there is none


class _KeyedRequest(NamedTuple):
    """A request and the key of its answer."""

    key: str
    request: Request

    @property
    def cost(self) -> int:
        """Return the tokens that it may take."""
        read = sum(len(message.content) for message in self.request.messages) // _CHARACTERS
        return read + (self.request.sampling.max_tokens or _WRITTEN)


def can_be_sent(request: Request, limits: Limits) -> bool:
    """Return whether other workers could answer: the model's weights are a file, and no budget is counted."""
    return bool(request.model.gguf) and limits.max_cost is None and limits.max_tokens is None


def worth_sending(asked: Mapping[str, Request], limits: Limits) -> list[dict[str, Request]]:
    """Group the requests by model and return the groups that are large enough to share among workers."""
    by_weights: dict[tuple[str, str], dict[str, Request]] = {}
    for key, request in asked.items():
        if can_be_sent(request, limits):
            by_weights.setdefault((request.model.id, request.model.gguf), {})[key] = request
    least = _LEAST * _BLOCK_TOKENS
    return [group for group in by_weights.values() if sum(_KeyedRequest(*pair).cost for pair in group.items()) >= least]


def spread_answers(
    asked: Mapping[str, Request],
    wanted: Collection[str],
    limits: Limits,
    spread: Spread,
    advance: Callable[[int], None],
) -> Iterator[tuple[str, Answered]]:
    """Yield the key and the answer of each wanted request once all exist; `advance` is called with the number done.

    The requests are to one local model. The plan is made of all of them, so that every command of a batch has the same.
    Failures are not stored anywhere else, so blocks stay until a batch is merged; one result is in memory at a time.
    """
    model = next(iter(asked.values())).model
    job = SpreadJob(f"prompts to {model.name}", AnswerWorker(model, limits), keeps=True)
    plan: dict[str, list[str]] = {block.key: block.about for block in _blocks(asked, wanted)}
    done = set()
    for block, _ in spread.run(job, _blocks(asked, wanted)):
        done.add(block.key)
        advance(len(block.about))
    missing = len(plan.keys() - done)
    if missing:
        raise spread.unfinished(f"blocks of {job.name}", missing, len(plan))
    for name, keys in plan.items():
        result = spread.store.get(name)
        if result is None:
            raise spread.unfinished(f"blocks of {job.name}", 1, len(plan))
        for key, (text, problem) in zip(keys, orjson.loads(result), strict=True):
            if key in wanted:
                yield key, problem or decode_answer(text)
    if spread.merges:
        for block in _blocks(asked, asked):
            spread.store.remove(block.key)


def _blocks(asked: Mapping[str, Request], wanted: Collection[str]) -> Iterator[WorkBlock]:
    for group in grouped((_KeyedRequest(*keyed) for keyed in asked.items()), _BLOCK_TOKENS):
        keys = [keyed.key for keyed in group]
        if any(key in wanted for key in keys):
            payload = orjson.dumps([
                (
                    [[message.role, replace_surrogates(message.content)] for message in request.messages],
                    vars(request.sampling), request.stop, request.logprobs, request.sample,
                )
                for _, request in group
            ])  # fmt: skip
            yield WorkBlock(block_key(b"answers", *map(str.encode, keys)), payload, keys)


@dataclass(frozen=True)
class AnswerWorker:
    """Worker that answers blocks of requests; a process holds the weights once."""

    model: Model
    limits: Limits

    def load(self) -> None:
        """Refuse weights that differ from those of the caller."""
        path = "" if self.model.name == "local" else self.model.gguf
        if local_model(path).id != self.model.id:
            raise R2medError(f"{self.model.gguf} on {socket.gethostname()} are other weights than {self.model.id}")

    def run(self, payload: bytes) -> bytes:
        """Answer each request of a block, or give the reason of its failure."""
        client, answers = _client(self.model.gguf, self.limits)
        requests = []
        for messages, sampling, stop, logprobs, sample in orjson.loads(payload):
            turns = tuple(Message(role, content) for role, content in messages)
            requests.append(Request(self.model, turns, Sampling(**sampling), tuple(stop), logprobs, sample))
        replies = client.ask_all(requests, probing=True)
        stored = answers.find([request.key() for request in requests])
        results = []
        for request, reply in zip(requests, replies, strict=True):
            answer = stored.get(request.key())
            if isinstance(reply, Failed) or answer is None:
                results.append(("", reply.incomplete if isinstance(reply, Failed) else "the answer was lost"))
            else:
                results.append((encode_answer(answer), ""))
        return orjson.dumps(results)


@cache
def _client(weights: str, limits: Limits) -> tuple[Client, ReplyCache]:
    """Open a client of this process for some weights, with a file of answers of its own."""
    from r2med.llm.client import Client  # it uses this module

    folder = TemporaryDirectory(prefix="r2med-answers-")
    place = Path(folder.name) / "answers.sqlite"
    client, answers = Client(limits, place, alone=True), ReplyCache(place)

    def close() -> None:
        client.close()
        answers.close()
        folder.cleanup()

    atexit.register(close)
    return client, answers
