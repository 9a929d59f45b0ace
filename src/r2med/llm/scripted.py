"""Prepared answers in place of a model, from a function or a file, on the same path as real ones."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

import orjson

from r2med.errors import SpecError
from r2med.formatting import replace_surrogates
from r2med.llm.server import guess_tokens, prompt_text
from r2med.llm.types import Model, RawAnswer, Request, Sampling
from r2med.models.http import AttemptError
from r2med.usage import Usage

_FIELDS = {"match", "reply", "reasoning", "finish"}


def scripted(answer: Callable[[Request], str | RawAnswer], name: str = "scripted", *, trace: str = "auto") -> Model:
    """Build a model whose answers come from a function; it may raise `AttemptError` to fail like a server.

    >>> model = scripted(lambda request: request.messages[-1].content.upper())
    >>> model.answer(model.request("scurvy"))
    'SCURVY'
    """
    return Model(
        name,
        f"scripted:{name}",
        trace=trace,
        sampling=Sampling(max_tokens=10240),
        price=(0.0, 0.0),
        continues=True,
        answer=answer,
    )


def scripted_file(path: Path) -> Model:
    """Build a model whose answers come from a file: JSON lines, or TOML with `[[rule]]` tables.

    A rule has `reply` (a text, or a list with one text per sample) and may have `match` (a regular expression searched
    in the whole conversation; without it the rule fits all), `reasoning` and `finish`. The first that fits answers.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot read the script {str(path)!r}: {getattr(error, 'strerror', '') or error}") from error
    rules = list(starmap(_rule, list(_entries(path, content))))

    def answer(request: Request) -> RawAnswer:
        text = prompt_text(request.messages)
        for pattern, answers in rules:
            if pattern.search(text):
                return answers[request.sample % len(answers)]
        raise AttemptError(f"{path} has no rule for {' '.join(text.split())[-60:]!r}", retry=False)

    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return replace(scripted(answer, digest), name=f"scripted:{path}")


def _entries(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    """Yield each rule with its place in the file, for errors."""
    if path.suffix == ".toml":
        try:
            table = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{path}: not readable as TOML: {error}") from error
        rules = table.get("rule", [])
        if set(table) != {"rule"} or not isinstance(rules, list):
            raise SpecError(f"{path}: a script in TOML has [[rule]] tables and nothing else")
        yield from ((f"{path}: rule {number}", entry) for number, entry in enumerate(rules, 1))
        return
    for number, line in enumerate(content.splitlines(), 1):
        try:
            if line.strip():
                yield f"{path}:{number}", orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise SpecError(f"{path}:{number}: not JSON: {error}") from error


def _rule(place: str, entry: Any) -> tuple[re.Pattern[str], list[RawAnswer]]:
    """Return a pattern that is searched in the conversation, and the answers if it is found."""
    if not isinstance(entry, dict) or "reply" not in entry or set(entry) - _FIELDS:
        raise SpecError(f"{place}: a rule has reply, and may have match, reasoning and finish")
    replies = entry["reply"] if isinstance(entry["reply"], list) else [entry["reply"]]
    if not replies or not all(isinstance(reply, str) for reply in replies):
        raise SpecError(f"{place}: reply must be a text or a list of texts")
    try:
        pattern = re.compile(str(entry.get("match", "")), re.DOTALL)
    except re.error as error:
        raise SpecError(f"{place}: match is not a regular expression: {error}") from error
    reasoning, finish = str(entry.get("reasoning", "")), str(entry.get("finish", "stop"))
    return pattern, [RawAnswer(reply, reasoning, finish) for reply in replies]


class ScriptedServer:
    """Server that calls a scripted model's function."""

    async def answer(self, request: Request) -> RawAnswer:
        """Return the answer of the script, with tokens counted by length."""
        if request.model.answer is None:
            raise TypeError(f"{request.model.name} has no script")
        reply = request.model.answer(request)
        answer = RawAnswer(reply) if isinstance(reply, str) else reply
        if answer.usage == Usage():
            read = guess_tokens(prompt_text(request.messages))
            written = guess_tokens(answer.text) + guess_tokens(answer.reasoning)
            answer = replace(answer, usage=Usage(prompt_tokens=read, completion_tokens=written))
        return replace(answer, text=replace_surrogates(answer.text), reasoning=replace_surrogates(answer.reasoning))

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""
