"""The client: requests in, replies out; nothing asked twice, nothing lost, nothing spent beyond the limits."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from r2med.engine import Progress
from r2med.errors import R2medError
from r2med.llm.account import Estimate, estimate
from r2med.llm.answers import Answers
from r2med.llm.endpoint import Endpoint
from r2med.llm.limits import Limits, Purse
from r2med.llm.loop import Loop
from r2med.llm.replies import to_reply
from r2med.llm.scripted import ScriptedServer
from r2med.llm.server import HttpServer, Server
from r2med.llm.types import Failed, Model, Reply, Request, ServerError, Trouble
from r2med.store.home import home

Value = TypeVar("Value")


class Client:
    """Asks chat models. Make one for a command, or use `current_client()`; close it when done, or use `with`."""

    def __init__(self, limits: Limits | None = None, answers: Path | None = None) -> None:
        self.limits = limits or Limits()
        self.purse = Purse(self.limits)
        """What this client has spent."""
        self._answers = Answers(answers)
        self._loop = Loop(self._halt, self._drain, self.limits.grace)
        self._halted = asyncio.Event()
        self._why: R2medError | None = None
        self._endpoints: dict[tuple[str, str], asyncio.Task[Endpoint]] = {}
        self._flights: dict[str, asyncio.Task[Reply | Failed]] = {}

    def ask_all(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Reply | Failed]:
        """The reply to each request, in order; a request that came to nothing is a `Failed` with its reason.

        Raises when nothing more can be asked (`LimitReached`, `ServerError`, Ctrl-C); what was answered until then is
        kept, and the same call later goes on from there. From a coroutine, use `ask`.
        """
        keys = [request.key() for request in requests]
        kept = self._answers.find(keys)
        replies: list[Reply | Failed | None] = [
            to_reply(request, kept[key], cached=True) if key in kept else None
            for request, key in zip(requests, keys, strict=True)
        ]
        open_places = [place for place, reply in enumerate(replies) if reply is None]
        if progress is not None and len(open_places) < len(requests):
            progress.advance(len(requests) - len(open_places))
        if open_places:
            found = self.run(self._ask_many([requests[place] for place in open_places], progress))
            for place, reply in zip(open_places, found, strict=True):
                replies[place] = reply
        return [reply for reply in replies if reply is not None]

    async def ask(self, request: Request) -> Reply | Failed:
        """The reply to one request; for coroutines that are given to `run`, such as agents."""
        key = request.key()
        flight = self._flights.get(key)
        if flight is not None:
            reply = await asyncio.shield(flight)
            # Paid for once, by whoever asked first.
            return replace(reply, cached=True) if isinstance(reply, Reply) else reply
        kept = self._answers.find([key])
        if key in kept:
            return to_reply(request, kept[key], cached=True)
        if self._why is not None:
            raise self._why
        flight = asyncio.ensure_future(self._fetch(request, key))
        self._flights[key] = flight
        flight.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(flight)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine that uses `ask`, on this client's loop, from any other thread than the loop's own.

        At Ctrl-C nothing new is asked, what is under way may finish and is kept; a second Ctrl-C stops at once.
        """
        self._why = None
        self._loop.call(self._halted.clear)
        return self._loop.run(work)

    def estimate(self, requests: Sequence[Request]) -> Estimate:
        """What `ask_all` would take, without asking."""
        return estimate(requests, self._answers)

    def close(self) -> None:
        """Let go of connections, local servers and the file of answers."""
        self._loop.close(self._shut)
        self._answers.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _ask_many(self, requests: Sequence[Request], progress: Progress | None) -> list[Reply | Failed]:
        replies: list[Reply | Failed | None] = [None] * len(requests)
        places = iter(range(len(requests)))

        async def work() -> None:
            for place in places:
                replies[place] = await self.ask(requests[place])
                if progress is not None:
                    progress.advance()

        workers = min(len(requests), self.limits.concurrency)
        outcomes = await asyncio.gather(*(work() for _ in range(workers)), return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            raise errors[0]
        return [reply for reply in replies if reply is not None]

    async def _fetch(self, request: Request, key: str) -> Reply | Failed:
        try:
            answer = await (await self._endpoint(request.model)).ask(request)
            self._answers.keep(key, request, answer)
        except Trouble as trouble:
            if self._why is not None:
                raise self._why from trouble
            return Failed(request, trouble.reason)
        except R2medError as error:
            # A limit, a wrong key, a full disk: no other request would fare better.
            self._halt(error)
            raise
        return to_reply(request, answer)

    async def _endpoint(self, model: Model) -> Endpoint:
        place = (model.url or model.gguf or model.id, model.key_env)
        if place not in self._endpoints or _broken(self._endpoints[place]):
            self._endpoints[place] = asyncio.ensure_future(self._open(model))
        return await asyncio.shield(self._endpoints[place])

    async def _open(self, model: Model) -> Endpoint:
        server: Server
        try:
            if model.answer is not None:
                server = ScriptedServer()
            elif model.gguf:
                from r2med.llm.local import LocalServer

                server = await asyncio.to_thread(LocalServer, model, self.limits.timeout)
            else:
                server = HttpServer(model, self.limits.timeout)
        except Trouble as trouble:
            raise ServerError(trouble.reason) from trouble
        return Endpoint(server, model, self.limits, self.purse, self._halted)

    def _landed(self, key: str, flight: asyncio.Task[Reply | Failed]) -> None:
        self._flights.pop(key, None)
        # Whoever waited has the error; nobody waits after a Ctrl-C, and that is no reason for a traceback.
        _broken(flight)

    def _halt(self, why: R2medError) -> None:
        self._why = self._why or why
        self._halted.set()

    async def _drain(self) -> None:
        await asyncio.gather(*self._flights.values(), return_exceptions=True)

    async def _shut(self) -> None:
        for opening in self._endpoints.values():
            if opening.done() and not _broken(opening):
                await opening.result().close()


def _broken(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


_current: list[Client] = []
_default: dict[Path, Client] = {}


@contextmanager
def session(limits: Limits | None = None) -> Iterator[Client]:
    """One client for everything in the block: one spending limit, one local server, one pool of connections."""
    with Client(limits) as client:
        _current.append(client)
        try:
            yield client
        finally:
            _current.remove(client)


def current_client() -> Client:
    """The client of the innermost `session`, or one with the usual limits that lives as long as the process."""
    if _current:
        return _current[-1]
    place = home()
    if place not in _default:
        _default[place] = Client()
        atexit.register(_default[place].close)
    return _default[place]
