"""Running a step over items: what is kept is not made again, what is finished is kept at once.

An item that needs a model is a generator: it yields requests, is sent their replies, and returns its outcome. Many
are under way at a time, each at its own pace, as far as the client's limits allow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from r2med.build.build_plan import BuildPlan
from r2med.build.item_store import Count, ItemStore, Outcome, Spent, count_outcomes
from r2med.errors import R2medError
from r2med.llm import Failed, Model, Reply, Request, Sampling, current_client
from r2med.pipeline.engine import Engine, Progress
from r2med.storage.cache import cache_key

Asking = Generator[Sequence[Request], Sequence[Reply | Failed], Outcome]
"""An item being worked on: requests out, replies in, its outcome at the end."""
Item = TypeVar("Item")
_AT_ONCE = 200
"""How many finished items wait for each other to be written in one transaction, and for how many seconds."""
_SECONDS = 0.5


class NoReply(R2medError):
    """A request of an item that no server answered: the item is asked about again the next time."""


@dataclass(frozen=True)
class Step(Generic[Item]):
    """A step over items: what an item is called, what its outcome depends on, and how it is made."""

    name: str
    identify: Callable[[Item], str]
    key: Callable[[Item], str]
    """A hash of everything that the outcome depends on."""
    work: Callable[[Item], Asking] | None = None
    """For items that ask models."""
    make: Callable[[Sequence[Item]], Iterable[Outcome]] | None = None
    """For items that ask none: outcomes in order, of a batch."""
    batch: int = 256


def run_step(step: Step[Item], items: Sequence[Item], store: ItemStore, engine: Engine) -> dict[str, Outcome]:
    """The outcome of every item, in order; only what is not kept under its key is made."""
    make_items(step, items, store, engine)
    kept = store.kept(step.name)
    outcomes = {name: kept[name].outcome for name in map(step.identify, items)}
    refuse_silence(count_outcomes(step.name, outcomes.values()))
    return outcomes


def make_items(step: Step[Item], items: Sequence[Item], store: ItemStore, engine: Engine) -> None:
    """Have the outcome of every item in the store, and nothing else of the step.

    Which items are missing is told by their keys alone. The seals of all are looked at once the last one is made, and
    what is damaged is made again.
    """
    names = [step.identify(item) for item in items]
    keys = {name: step.key(item) for name, item in zip(names, items, strict=True)}
    kept = store.keys(step.name)
    store.forget(step.name, kept.keys() - keys.keys())
    missing = [item for name, item in zip(names, items, strict=True) if kept.get(name) != keys[name]]
    del kept, names
    missing = missing or _damaged(step, items, store)
    while missing:
        with engine.progress(step.name, len(items)) as bar, _Writer(step.name, store) as writer:
            bar.advance(len(items) - len(missing))

            def keep(identifier: str, outcome: Outcome, bar: Progress = bar, writer: _Writer = writer) -> None:
                writer.add(identifier, keys[identifier], outcome)
                bar.advance()

            _make(step, missing, keep)
        missing = _damaged(step, items, store)


def _damaged(step: Step[Item], items: Sequence[Item], store: ItemStore) -> list[Item]:
    broken = set(store.broken(step.name))
    return [item for item in items if step.identify(item) in broken] if broken else []


def open_items(step: Step[Item], items: Sequence[Item], store: ItemStore) -> list[Item]:
    """The items that running the step would work on."""
    kept = store.keys(step.name)
    return [item for item in items if kept.get(step.identify(item)) != step.key(item)]


def _make(step: Step[Item], missing: Sequence[Item], keep: Callable[[str, Outcome], None]) -> None:
    if step.make is None:
        _ask(step, missing, keep)
        return
    for start in range(0, len(missing), step.batch):
        batch = missing[start : start + step.batch]
        for item, outcome in zip(batch, step.make(batch), strict=True):
            keep(step.identify(item), outcome)


class _Writer:
    """Keeps finished items a few at a time, and the last of them whatever happens."""

    def __init__(self, step: str, store: ItemStore) -> None:
        self._step, self._store = step, store
        self._rows: list[tuple[str, str, Outcome]] = []
        self._since = time.monotonic()

    def add(self, identifier: str, key: str, outcome: Outcome) -> None:
        self._rows.append((identifier, key, outcome))
        if len(self._rows) >= _AT_ONCE or time.monotonic() - self._since > _SECONDS:
            self.write()

    def write(self) -> None:
        if self._rows:
            self._store.put(self._step, self._rows)
        self._rows, self._since = [], time.monotonic()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()


def _ask(step: Step[Item], items: Sequence[Item], keep: Callable[[str, Outcome], None]) -> None:
    """Work on items that ask, as many at a time as keep the servers busy."""
    client = current_client()
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            keep(step.identify(item), await _drive(step, item))

    async def everything() -> None:
        workers = [asyncio.ensure_future(work()) for _ in range(min(len(items), client.workers))]
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
        for error in outcomes:
            if isinstance(error, BaseException):
                raise error

    client.run(everything())


async def _drive(step: Step[Item], item: Item) -> Outcome:
    """One item from its first request to its outcome, with what it took."""
    client, spent = current_client(), Spent()
    if step.work is None:
        raise TypeError(f"{step.name} asks nobody")
    asking = step.work(item)
    try:
        requests = next(asking)
        while True:
            replies = await asyncio.gather(*(client.ask(request) for request in requests))
            spent = sum(map(_spent, replies), spent)
            requests = asking.send(replies)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return replace(outcome, spent=spent)
    except NoReply as failure:
        return Outcome(failed=str(failure), spent=spent)


def _spent(reply: Reply | Failed) -> Spent:
    if isinstance(reply, Failed):
        return Spent(1)
    return Spent(1, reply.usage.prompt, reply.usage.completion, reply.cost)


def refuse_silence(count: Count) -> None:
    """A step that no model answered any item of cannot be gone on from."""
    if count.items and sum(count.failed.values()) == count.items:
        reason = next(iter(count.failed))
        raise R2medError(f"{count.step}: no item was answered: {reason}; run the same command to go on")


def answered(reply: Reply | Failed) -> Reply:
    """A reply; a request that came to nothing ends the work on its item."""
    if isinstance(reply, Failed):
        raise NoReply(reply.reason)
    return reply


@dataclass(frozen=True)
class AskedModel:
    """A model of the plan, and the two ways it is asked: without chance first, as its card has it for more samples."""

    name: str
    """As the plan has it."""
    model: Model
    sampling: Sampling
    """Its own, with the chance that it usually has."""

    @classmethod
    def of(cls, name: str, model: Model, max_tokens: int) -> AskedModel:
        """A model with a limit on its replies, where its card has none."""
        sampling = model.sampling
        if sampling.max_tokens is None:
            sampling = replace(sampling, max_tokens=max_tokens)
        certain = sampling if sampling.temperature is None else replace(sampling, temperature=0.0)
        return cls(name, replace(model, sampling=certain), sampling)

    def request(self, text: str) -> Request:
        """A question, without chance where the model has a say in that."""
        return self.model.request(text)

    def again(self, request: Request, sample: int) -> Request:
        """The same question for another reply: the same request again would bring the same one."""
        return replace(request, sampling=self.sampling, sample=sample)


def asked_model(name: str, plan: BuildPlan) -> AskedModel:
    """A model of a plan by its name, with a limit on its replies."""
    return AskedModel.of(name, plan.model(name), plan.ask.max_tokens)


def step_key(step: str, **parts: object) -> str:
    """A hash of everything that an item of a step depends on; a change of how a step works changes its version."""
    return cache_key(step=step, version=1, **parts)
