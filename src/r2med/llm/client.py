"""The client of chat models: each request is asked once, answers are stored as they come, and limits are kept."""

from __future__ import annotations

import asyncio
import atexit
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from r2med.errors import R2medError
from r2med.llm.budget import Budget, Estimate, FollowUp, Limits, estimate, estimate_follow_up
from r2med.llm.distributed import Answered, can_be_sent, spread_answers, worth_sending
from r2med.llm.endpoint import Endpoint, Loop, Server
from r2med.llm.local import LocalServer
from r2med.llm.reasoning import to_reply, usable_reply
from r2med.llm.reply_cache import GroupedWrites, ReplyCache
from r2med.llm.scripted import ScriptedServer
from r2med.llm.server import HttpServer
from r2med.llm.types import Failed, Model, RawAnswer, Reply, Request
from r2med.models.http import AttemptError, ServerError
from r2med.pipeline.executor.local import Progress, at_command_start, current_spread, every_share
from r2med.store.cache import home
from r2med.store.sqlite import warn

Value = TypeVar("Value")
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0  # seconds between looks for the answer to a request that another process asks


class Client:
    """Client of chat models. Make one for a command, or use `current_client()`; close it when done, or use `with`.

    One that is `alone` is itself a worker, and starts local models in its own process.
    """

    def __init__(self, limits: Limits | None = None, answers: Path | None = None, *, alone: bool = False) -> None:
        self.limits = limits or Limits.configured()
        self.budget = Budget(self.limits)  # what this client has spent
        self._place = answers
        self._alone = alone
        self._flights: dict[str, asyncio.Task[Reply | Failed]] = {}
        self._loop = Loop(self._halt, self._flights, self._under_way, self.limits.grace)
        self._halted = asyncio.Event()
        self._why: R2medError | None = None
        self._endpoints: dict[tuple[str, str], asyncio.Task[Endpoint]] = {}
        self._file = GroupedWrites(lambda: self._answers)
        self._unusable: dict[str, RawAnswer] = {}  # useless answers that this client got itself and does not ask again
        self._asked_again: set[str] = set()  # models of which it was said that useless answers are asked for again

    @cached_property
    def _answers(self) -> ReplyCache:
        """Open the cache of answers with the first request, so that a command that asks nothing needs no file."""
        return ReplyCache(self._place, self.limits.lease)

    def ask_all(
        self, requests: Sequence[Request], progress: Progress | None = None, *, probing: bool = False
    ) -> list[Reply | Failed]:
        """Return the reply to each request, in order; a failed request is a `Failed` with its reason.

        Raises if nothing more can be asked (`LimitReached`, `ServerError`, Ctrl-C); answers until then are stored, and
        the same call later resumes from there. It is a `ServerError` too if no request at all was answered, unless they
        only probe what the server can do. From a coroutine, use `ask`.
        """
        keys = [request.key() for request in requests]
        kept = self._answers.find(keys)
        replies: list[Reply | Failed | None] = [
            self._usable(request, key, kept.get(key)) for request, key in zip(requests, keys, strict=True)
        ]
        open_places = [place for place, reply in enumerate(replies) if reply is None]
        if progress is not None and len(open_places) < len(requests):
            progress.advance(len(requests) - len(open_places))
        unanswered = {keys[place]: kept.get(keys[place]) for place in open_places}
        self._say_again(requests[place].model.name for place in open_places if keys[place] in kept)
        elsewhere = self._elsewhere(dict(zip(keys, requests, strict=True)), unanswered, progress)
        local = [place for place in open_places if keys[place] not in elsewhere]
        next_places = iter(local)

        async def work() -> None:
            for place in next_places:
                replies[place] = await self.ask(requests[place])
                if progress is not None:
                    progress.advance()

        if local:
            self.run_workers(work)
        for place in open_places:
            if (key := keys[place]) in elsewhere:
                replies[place], elsewhere[key] = elsewhere[key], _as_shared(elsewhere[key])
        answered = [reply for reply in replies if reply is not None]
        failed = [reply for reply in answered if isinstance(reply, Failed)]
        if failed and len(failed) == len(answered) and not probing:
            self._raise_if_dead(failed)
        return answered

    def sends(self, request: Request) -> bool:
        """Return whether a request may be answered by other workers, if it is asked with enough others by `ask_all`."""
        return not self._alone and current_spread() is not None and can_be_sent(request, self.limits)

    def _elsewhere(
        self, asked: Mapping[str, Request], unanswered: Mapping[str, RawAnswer | None], progress: Progress | None
    ) -> dict[str, Reply | Failed]:
        """Return the replies to requests to local models from workers of a cluster or a batch."""
        spread = None if self._alone else current_spread()
        if spread is None or not unanswered:
            return {}

        def answer(group: Mapping[str, Request]) -> dict[str, Reply | Failed]:
            advance = progress.advance if progress else lambda _: None
            pairs = spread_answers(group, unanswered.keys() & group.keys(), self.limits, spread, advance)
            return {key: self._written(key, group[key], answer, unanswered[key]) for key, answer in pairs}

        parts = [partial(answer, group) for group in worth_sending(asked, self.limits)]
        return {key: reply for part in every_share(parts) for key, reply in part.items()}

    def _raise_if_dead(self, failed: Sequence[Failed]) -> None:
        """Raise if a model answered none of the requests, now or before, for then it cannot be used."""
        none = "the request was not" if len(failed) == 1 else f"none of {len(failed)} requests was"
        models = [reply.request.model for reply in failed if _place(reply.request.model) in self._endpoints]
        if not models:
            raise ServerError(f"{failed[0].incomplete}; {none} answered")
        health = [self._endpoints[_place(model)].result().health(model) for model in models]
        if not any(model.answered for model in health):
            raise health[0].give_up(f"{failed[0].incomplete}; {none} answered")

    def _written(self, key: str, request: Request, answer: Answered, reject: RawAnswer | None) -> Reply | Failed:
        """Store an answer of a worker and return its reply."""
        if isinstance(answer, str):
            return Failed(request, answer)
        reply = to_reply(request, answer)
        claim = partial(self._answers.claim, key, reject)
        _, stays = self._answers.write([claim, partial(self._answers.keep, key, request, answer, reply.incomplete)])
        return self._noted(key, stays, reply if stays is answer else to_reply(request, stays))

    async def ask(self, request: Request) -> Reply | Failed:
        """Return the reply to one request; for coroutines that are given to `run`, such as agents."""
        key = request.key()
        flight = self._flights.get(key)
        if flight is not None:
            return _as_shared(await asyncio.shield(flight))
        answer = self._answers.find([key]).get(key)
        reply = self._usable(request, key, answer)
        if reply is not None:
            return reply
        if self._why is not None:
            raise self._why
        self._say_again([request.model.name] if answer is not None else ())

        def land(flight: asyncio.Task[Reply | Failed]) -> None:
            self._flights.pop(key, None)
            # Callers that waited have the error; after a Ctrl-C there are none, and asyncio must not print a traceback.
            _broken(flight)

        flight = self._flights[key] = asyncio.ensure_future(self._fetch(request, key, answer))
        flight.add_done_callback(land)
        return await asyncio.shield(flight)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine that uses `ask` on this client's loop, from any thread but the loop's own.

        After Ctrl-C no new request is sent, and those under way may finish; a second Ctrl-C stops at once.
        """
        self._why = None
        self._loop.call(self._halted.clear)
        return self._loop.run(work)

    def run_workers(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run workers that share a source of requests; with some in reserve, a server never waits for the next one."""

        async def everything() -> None:
            workers = (work() for _ in range(2 * self.limits.concurrency))
            for outcome in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

        self.run(everything())

    def reject(self, replies: Iterable[Reply | Failed]) -> None:
        """Mark replies in which no decision could be read, so that the next command asks for them again."""
        unread = {reply.request.key(): reply for reply in replies if not reply.incomplete}
        if not unread:
            return
        marked = self._answers.write([partial(self._answers.reject, key, reply.raw) for key, reply in unread.items()])
        self._unusable |= {key: answer for key, answer in zip(unread, marked, strict=True) if answer is not None}

    def estimate(self, requests: Sequence[Request]) -> Estimate:
        """Estimate the cost of `ask_all`, without asking."""
        return estimate(requests, self._answers)

    def estimate_follow_up(self, follow: FollowUp, first: int) -> Estimate:
        """Estimate the cost of what follows so many first requests, without asking."""
        return estimate_follow_up(follow, first, self._answers)

    def close(self) -> None:
        """Close connections, local servers and the file of answers."""

        async def shut() -> None:
            for endpoint in self._opened:
                await endpoint.close()

        self._loop.close(shut)
        self._file.close()
        if "_answers" in vars(self):
            self._answers.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _usable(self, request: Request, key: str, answer: RawAnswer | None) -> Reply | None:
        """Return the reply of a stored answer; None for an unusable one of an earlier command, which is asked again."""
        if answer is None:
            return None
        if self._unusable.get(key) == answer:
            return to_reply(request, answer, cached=True)
        return usable_reply(request, answer)

    def _say_again(self, models: Iterable[str]) -> None:
        """Warn once per model that unusable stored answers are asked for again, and how many there are now."""
        for model, count in Counter(models).items():
            if model not in self._asked_again:
                self._asked_again.add(model)
                number = f"{count:,} " if count > 1 else ""
                warn(f"{number}kept answers of {model} are empty, refused, cut or unreadable and are asked for again")

    async def _fetch(self, request: Request, key: str, reject: RawAnswer | None) -> Reply | Failed:
        """Ask, or wait for another process that asks the same."""
        try:
            wait = _FIRST_LOOK
            while True:
                # While all slots are taken, a claim may wait for the next answer and be written with it.
                idle = self._under_way() < self.limits.concurrency
                claim = await self._file.write(partial(self._answers.claim, key, reject), urgent=idle)
                if claim.answer is not None:
                    return self._noted(key, claim.answer, to_reply(request, claim.answer, cached=True))
                if claim.mine:
                    break
                if self._halted.is_set():
                    raise AttemptError("stopped", retry=False)
                await asyncio.sleep(wait)
                wait = min(_LAST_LOOK, 1.5 * wait)
            try:
                return await (await self._endpoint(request.model)).ask(request, partial(self._keep, request, key))
            except BaseException:
                await asyncio.shield(self._file.write(partial(self._answers.release, key)))
                raise
        except AttemptError as trouble:
            if self._why is not None:
                raise self._why from trouble
            return Failed(request, trouble.reason)
        except R2medError as error:
            # A limit, a wrong key, a full disk: no other request would fare better.
            self._halt(error)
            raise

    async def _keep(self, request: Request, key: str, answer: RawAnswer) -> Reply:
        """Store an answer and return its reply."""
        reply = to_reply(request, answer)
        try:
            stays = await self._file.write(partial(self._answers.keep, key, request, answer, reply.incomplete))
        except R2medError as error:
            # Before the slot is free: the next request must not be sent.
            self._halt(error)
            raise
        return self._noted(key, stays, reply if stays is answer else to_reply(request, stays))

    def _noted(self, key: str, answer: RawAnswer, reply: Reply) -> Reply:
        if reply.incomplete:
            self._unusable[key] = answer
        return reply

    async def _endpoint(self, model: Model) -> Endpoint:
        async def opened() -> Endpoint:
            server: Server
            try:
                if model.answer is not None:
                    server = ScriptedServer()
                elif model.gguf:
                    server = await asyncio.to_thread(LocalServer, model, self.limits.timeout)
                else:
                    server = HttpServer(model, self.limits.timeout)
            except AttemptError as trouble:
                raise ServerError(trouble.reason) from trouble
            return Endpoint(server, model, self.limits, self.budget, self._halted)

        place = _place(model)
        if place not in self._endpoints or _broken(self._endpoints[place]):
            self._endpoints[place] = asyncio.ensure_future(opened())
        return await asyncio.shield(self._endpoints[place])

    def _halt(self, why: R2medError) -> None:
        self._why = self._why or why
        self._halted.set()

    @property
    def _opened(self) -> list[Endpoint]:
        return [opening.result() for opening in self._endpoints.values() if opening.done() and not _broken(opening)]

    def forget_outages(self) -> None:
        """Reset servers that count as dead: a new command begins."""
        for endpoint in self._opened:
            endpoint.forget_outages()

    def _under_way(self) -> int:
        return sum(endpoint.under_way for endpoint in self._opened)


def _place(model: Model) -> tuple[str, str]:
    """Return the key that models share if they are asked over one connection."""
    return model.url or model.gguf or model.id, model.key_env


def _as_shared(reply: Reply | Failed) -> Reply | Failed:
    """Mark the reply of a shared request as cached: it is paid for once, by the first caller."""
    return reply if isinstance(reply, Failed) else replace(reply, usage=replace(reply.usage, cached=1, paid=0.0))


def _broken(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


_current: list[Client] = []
_default: dict[Path, Client] = {}


@contextmanager
def session(limits: Limits | None = None) -> Iterator[Client]:
    """Open one client for everything in the block: one spending limit, one local server, one pool of connections."""
    with Client(limits) as client:
        _current.append(client)
        try:
            yield client
        finally:
            _current.remove(client)


@at_command_start
def _forget_outages() -> None:
    for client in (*_current, *_default.values()):
        client.forget_outages()


def current_client() -> Client:
    """Return the client of the innermost `session`, or the process's own with the default limits."""
    if _current:
        return _current[-1]
    place = home()
    if place not in _default:
        _default[place] = Client()
        atexit.register(_default[place].close)
    return _default[place]
