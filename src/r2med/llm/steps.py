"""Running a step over items: stored outcomes are not made again, finished ones are stored at once.

An item that needs a model is a generator: it yields requests, is sent their replies, and returns its outcome. Many
are under way at a time, each at its own pace, as far as the client's limits allow. Only if workers run a
local model (a cluster, shards) do many items wait for each other, so that there are blocks of requests to send.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.client import current_client
from r2med.llm.items import ASKED_AGAIN, Count, ItemStore, Outcome, count_outcomes
from r2med.llm.types import Failed, Model, Reply, Request, Sampling
from r2med.pipeline.executor.local import Executor, Progress, every_share, postponed_as
from r2med.store.hashes import cache_key
from r2med.usage import Usage


class Unread(NamedTuple):
    """Replies in which nothing could be read, and that are not asked for again now."""

    replies: Sequence[Reply]


Asking = Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], Outcome]
"""An item being worked on: requests out, replies in, its outcome at the end."""
Item = TypeVar("Item")
_AT_ONCE = 200
"""How many finished items wait for each other to be written in one transaction, and for how many seconds."""
_SECONDS = 0.5
_SENT = 4096
"""How many items at the most wait for each other to be asked about elsewhere; all their requests are in memory."""


class NoReply(R2medError):
    """A request of an item that no server answered: the item is asked about again the next time."""


@dataclass(frozen=True)
class Step(Generic[Item]):
    """A step over items: their identifier, the key of their outcome, and the function that makes it."""

    name: str
    identify: Callable[[Item], str]
    key: Callable[[Item], str]  # a hash of everything that the outcome depends on
    work: Callable[[Item], Asking] | None = None  # for items that ask models
    make: Callable[[Sequence[Item]], Iterable[Outcome]] | None = None
    """For items that ask none: outcomes in order, of a batch."""
    batch: int = 256
    order: Callable[[list[Item]], list[Item]] = list


def run_step(step: Step[Item], items: Sequence[Item], store: ItemStore, executor: Executor) -> dict[str, Outcome]:
    """Return the outcome of every item, in order; only those without a stored outcome under their key are made."""
    make_items(step, items, store, executor)
    rows = store.kept(step.name)
    outcomes = {name: rows[name].outcome for name in map(step.identify, items)}
    raise_if_all_failed(count_outcomes(step.name, outcomes.values()))
    return outcomes


def make_items(step: Step[Item], items: Sequence[Item], store: ItemStore, executor: Executor) -> None:
    """Make the outcome of every item and store it; items that are not in the input are removed.

    Keys are computed before: what changes meanwhile is made again the next time.
    """
    for missing in _rounds(step, items, store):
        if not missing:
            continue
        with executor.progress(step.name, len(items)) as bar, closing(_Writer(step.name, store)) as writer:
            bar.advance(len(items) - len(missing))
            if step.make is None:
                with postponed_as(step.name):
                    _Asker(step, writer, bar).ask(missing)
                continue
            for start in range(0, len(missing), step.batch):
                batch = missing[start : start + step.batch]
                keys = [step.key(item) for item in batch]
                for item, key, outcome in zip(batch, keys, step.make(batch), strict=True):
                    writer.add(step.identify(item), key, outcome)
                    bar.advance()


def _rounds(step: Step[Item], items: Iterable[Item], store: ItemStore) -> Iterator[list[Item]]:
    """Yield what is left to make: items that are not stored, then those with another key, then damaged ones.

    Rows of the step that belong to none of the items are removed. There may be hundreds of thousands of items: the
    first missing ones are made before the keys of the stored ones are computed, and seals are checked at the end.
    """
    stored = store.keys(step.name)
    absent, present, keys = [], [], []
    for item in items:
        if key := stored.pop(step.identify(item), ""):
            present.append(item)
            keys.append(key)
        else:
            absent.append(item)
    store.forget(step.name, stored)
    yield step.order(absent)
    yield step.order([item for item, key in zip(present, keys, strict=True) if key != step.key(item)])
    while broken := set(store.broken(step.name)):
        damaged = [item for item in items if step.identify(item) in broken]
        if not damaged:
            return
        yield step.order(damaged)


def open_items(step: Step[Item], items: Sequence[Item], store: ItemStore) -> list[Item]:
    """Return the items that running the step would work on."""
    kept = store.keys(step.name)
    return [item for item in items if kept.get(step.identify(item)) != step.key(item)]


class _Writer:
    """Writer of finished items, a few at a time; those left are written when it is closed, also after an error."""

    def __init__(self, step: str, store: ItemStore) -> None:
        self._step, self._store = step, store
        self._rows: list[tuple[str, str, Outcome]] = []
        self._since = time.monotonic()

    def add(self, identifier: str, key: str, outcome: Outcome) -> None:
        self._rows.append((identifier, key, outcome))
        if len(self._rows) >= _AT_ONCE or time.monotonic() - self._since > _SECONDS:
            self.close()

    def close(self) -> None:
        if self._rows:
            self._store.put(self._step, self._rows)
        self._rows, self._since = [], time.monotonic()


class _Dialogue(Generic[Item]):
    """Conversation about an item: its open requests, and in the end its outcome."""

    def __init__(self, step: Step[Item], place: int, item: Item) -> None:
        if step.work is None:
            raise TypeError(f"{step.name} asks nobody")
        self.place, self.identifier, self.key = place, step.identify(item), step.key(item)
        self.requests: Sequence[Request] = ()
        self.outcome: Outcome | None = None
        self.counted = False  # whether the bar has moved on for it
        self.unread: list[Reply] = []  # replies that its outcome lacks
        self._asking, self._spent = step.work(item), Usage()
        self.hear(None)

    def hear(self, replies: Sequence[Reply | Failed] | None) -> None:
        """Begin, or continue with the replies to its requests."""
        self._spent = sum((reply.usage for reply in replies or ()), self._spent)
        try:
            step = next(self._asking) if replies is None else self._asking.send(replies)
            while isinstance(step, Unread):
                self.unread += step.replies
                step = self._asking.send(())
            self.requests = step
        except StopIteration as ended:
            if not (ended.value.dropped or ended.value.marks):
                self.unread = []  # a later sample was read in their place
            marks = (*ended.value.marks, *([ASKED_AGAIN] if self.unread else []))
            self.outcome = replace(ended.value, spent=self._spent, marks=marks)
        except NoReply as failure:
            self.outcome = Outcome(failed=str(failure), spent=self._spent)


class _ItemBar(NamedTuple):
    """A bar over items, advanced by requests."""

    bar: Progress
    items_per_request: float

    def advance(self, amount: float = 1) -> None:
        self.bar.advance(amount * self.items_per_request)


class _Asker(Generic[Item]):
    """Loop that asks models about the items of a step, as many at a time as keep the servers busy."""

    def __init__(self, step: Step[Item], writer: _Writer, bar: Progress) -> None:
        self._step, self._writer, self._bar, self._client = step, writer, bar, current_client()

    def ask(self, items: Iterable[Item]) -> None:
        """Make and store the outcome of every item; raise at the end if some are left to other shards.

        What remains to be sent to workers is sent some thousands at a time and does not depend on replies to earlier
        parts, so that all shards send the same.
        """
        new = (_Dialogue(self._step, place, item) for place, item in enumerate(items))
        every_share(partial(self._send, waiting) for waiting in iter(lambda: self._converse(new, _SENT), []))

    def _send(self, waiting: list[_Dialogue[Item]]) -> None:
        """Continue dialogues through workers, one round of replies after another, until each has its outcome."""
        while waiting:
            requests = [request for dialogue in waiting for request in dialogue.requests]
            # The bar advances once per item, with its first replies from workers.
            bar = None if waiting[0].counted else _ItemBar(self._bar, len(waiting) / len(requests))
            for dialogue in waiting:
                dialogue.counted = True
            replies = iter(self._client.ask_all(requests, bar, probing=True))
            for dialogue in waiting:
                dialogue.hear(list(itertools.islice(replies, len(dialogue.requests))))
            waiting = self._converse(iter(waiting))

    def _converse(self, dialogues: Iterator[_Dialogue[Item]], most: float = math.inf) -> list[_Dialogue[Item]]:
        """Ask from this process, each item at its own pace; return those with requests for workers, in order."""
        waiting: list[_Dialogue[Item]] = []

        async def work() -> None:
            while len(waiting) < most and (dialogue := next(dialogues, None)) is not None:
                while dialogue.outcome is None:
                    if any(map(self._client.sends, dialogue.requests)):
                        waiting.append(dialogue)
                        break
                    dialogue.hear(await asyncio.gather(*map(self._client.ask, dialogue.requests)))
                else:
                    self._client.reject(dialogue.unread)
                    self._writer.add(dialogue.identifier, dialogue.key, dialogue.outcome)
                    if not dialogue.counted:
                        self._bar.advance()

        self._client.run_workers(work)
        return sorted(waiting, key=lambda dialogue: dialogue.place)


def raise_if_all_failed(count: Count) -> None:
    """Raise if no model answered any item of a step."""
    if count.items and sum(count.failed.values()) == count.items:
        reason = next(iter(count.failed))
        raise R2medError(f"{count.step}: no item was answered: {reason}; run the same command to go on")


def answered(reply: Reply | Failed) -> Reply:
    """Return a reply; raise for a failed request, which ends the work on its item."""
    if isinstance(reply, Failed):
        raise NoReply(reply.incomplete)
    return reply


@dataclass(frozen=True)
class AskedModel:
    """Model of a plan with its two samplings: temperature 0 first, and its card's own for more samples."""

    name: str
    model: Model
    sampling: Sampling  # its own, with the chance that it usually has

    @classmethod
    def of(cls, name: str, model: Model, max_tokens: int) -> AskedModel:
        """Build a model with a limit on its replies, if its card has none."""
        sampling = model.sampling
        if sampling.max_tokens is None:
            sampling = replace(sampling, max_tokens=max_tokens)
        certain = sampling if sampling.temperature is None else replace(sampling, temperature=0.0)
        return cls(name, replace(model, sampling=certain), sampling)

    def request(self, text: str) -> Request:
        """Build a request, at temperature 0 if the model takes one."""
        return self.model.request(text)

    def again(self, request: Request, sample: int) -> Request:
        """Build the request for another sample: the same request again would return the same reply."""
        return replace(request, sampling=self.sampling, sample=sample)


Value = TypeVar("Value")
Tries = Generator[Sequence[Request] | Unread, Sequence[Reply | Failed], Value | None]
_TRIES = 3  # how often a reply that cannot be read is asked for, the first time included


def tries(model: AskedModel, request: Request, read: Callable[[str], Value | None], first: int = 0) -> Tries[Value]:
    """Ask until a reply can be read, each time for another sample; return what was read, or None."""
    unread = []
    for sample in range(first, first + _TRIES):
        (reply,) = yield [model.again(request, sample) if sample else request]
        text = answered(reply)
        value = None if text.incomplete else read(text.text)
        if value is not None:
            return value
        unread.append(text)
    yield Unread(unread)
    return None


def step_key(step: str, **parts: object) -> str:
    """Hash everything that an item of a step depends on; a change of how a step works changes its version."""
    return cache_key(step=step, version=1, **parts)


_SAMPLE = 2000  # of more requests than this, a part is priced and the rest reckoned from it


@dataclass(frozen=True)
class StepEstimate:
    """Estimated cost of a step."""

    step: str
    items: int  # those that are not kept yet, or might have to be made
    guess: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate for JSON."""
        return {"step": self.step, "items": self.items, **asdict(self.guess)}


def price_step(
    step: Step[Item], items: Sequence[Item], foresee: Callable[[Item], list[Request]], store: ItemStore
) -> StepEstimate:
    """Estimate the cost of a step for the items that are not stored; of very many, a sample is estimated."""
    missing = open_items(step, items, store)
    sample = missing[:: max(1, len(missing) // _SAMPLE)]
    guess = current_client().estimate([request for item in sample for request in foresee(item)])
    return StepEstimate(step.name, len(missing), guess * (len(missing) / max(1, len(sample))))
