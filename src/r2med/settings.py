"""User settings: tables of `r2med.toml` in the current folder and of `config.toml` in `R2MED_HOME`.

    [aliases]
    best = "rrf(bm25, minilm) >> bge-reranker(depth=100)"

    [servers]
    vllm-farm = ["http://gpu1:8000/v1", "http://gpu2:8000/v1"]

    [requests]
    timeout = 120
    retries = 2
    concurrency = 8
    requests_per_minute = 60

    [limits]
    memory = "4GB"

An alias may use other aliases and may stand wherever a stage or a system may. It never enters a result: the ledger
knows the system that it stands for. Servers under one name share answers, vectors and scores. Requests are those to
chat, embedding and rerank servers. Memory is what building an index, reading a large corpus and searching may take.
An option of a command wins; neither changes a result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, field

from r2med.errors import R2medError, suggest
from r2med.store.cache import home
from r2med.store.typed import FieldError, Typed, convert, read_text, toml_values

PROJECT_FILE = "r2med.toml"
USER_FILE = "config.toml"
_TABLES = ("aliases", "servers", "requests", "limits", "executor", "data", "prices")
Kind = TypeVar("Kind")


def read_toml(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Read a TOML file whose top-level keys must be among these."""
    values = toml_values(read_text(path, error=R2medError), str(path), R2medError)
    for key in values:
        if key not in keys:
            raise R2medError(f"{path}: unknown key {key!r}{suggest(key, keys)}")
    return values


def tables(name: str) -> Iterator[tuple[Path, Any]]:
    """Yield a table of the user's file, then the same table of the current folder's file, which wins."""
    for path in (home() / USER_FILE, Path(PROJECT_FILE)):
        if path.is_file():
            values = read_toml(path, _TABLES)
            if name in values:
                yield path, values[name]


def _read(name: str, kind: type[Kind]) -> Kind:
    """Return a table as a type; what the current folder's file has wins over the user's, key by key."""
    merged: dict[str, Any] = {}
    for path, table in tables(name):
        convert({name: table}, dict[str, kind], str(path), R2medError)  # type: ignore[valid-type]
        for key, value in table.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return convert(merged, kind) if merged else kind()


class ExecutorSettings(Typed, frozen=True):
    """Settings of the executor, as the user's files have them. None of them changes a result."""

    use: str = "local"
    """A value of `--executor`."""
    workers: Annotated[int, Meta(ge=0)] = 0
    """Workers of a cluster at most; 0 for as many as it has room for."""
    threads: Annotated[int, Meta(ge=1)] = 1
    """Threads of a worker on a processor."""
    blocks: str = ""
    """The folder, or URL that fsspec knows, for the workers' results; empty for one in `R2MED_HOME`."""


def executor_settings() -> ExecutorSettings:
    """Return the settings under `[executor]` of the files."""
    return _read("executor", ExecutorSettings)


class RequestSettings(Typed, frozen=True):
    """Limits of requests to servers, as the user set them; None if not set. None of them changes a result."""

    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Seconds until a request times out."""
    retries: Annotated[int, Meta(ge=0)] | None = None
    """Retries after the first failure of a request."""
    requests_per_minute: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1)] | None = None
    """Concurrent requests per server."""

    def given(self) -> dict[str, Any]:
        """Return the values that are set."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}

    def check(self) -> None:
        """Refuse values that are out of bounds."""
        convert(self.given(), RequestSettings, error=R2medError)


def request_settings() -> RequestSettings:
    """Return the settings under `[requests]` of the files, overridden by those of the command."""
    return RequestSettings(**(_read("requests", RequestSettings).given() | _command.requests.given()))


Dollars = Annotated[float, Meta(ge=0)]


class Prices(Typed, frozen=True):
    """Prices that no card has, under `[prices]` of the files, in US dollars."""

    hour: Dollars | None = None
    """Price of an hour of the user's hardware."""
    tokens: dict[str, Dollars] = field(default_factory=dict)
    """Price of a million tokens, by the server's name of the model."""
    requests: dict[str, Dollars] = field(default_factory=dict)
    """Price of a thousand requests, by the model's name or the server's host."""

    def of_tokens(self, model: str, card: float | None = None) -> float | None:
        """Return the price of a million tokens of a model: the user's, or else the card's."""
        return self.tokens.get(model, card)

    def of_requests(self, names: tuple[str, ...], card: float | None = None) -> float | None:
        """Return the price of a thousand requests under the first of some names that has one."""
        return next((self.requests[name] for name in names if name in self.requests), card)


def prices() -> Prices:
    """Return the prices of the user's file and, over them, of the current folder's."""
    return _read("prices", Prices)


MEMORY = 2 << 30
"""Bytes of memory that large work may take by default."""
_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_size(text: str) -> int | None:
    """Parse a human-readable size into a number of bytes; return None if the text is not a size.

    >>> parse_size("1.5 GB"), parse_size("512mb"), parse_size("much")
    (1610612736, 536870912, None)
    """
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B|)", text.strip().upper())
    return int(float(size[1]) * _UNITS[size[2]]) or None if size else None


class _Limits(Typed, frozen=True):
    memory: Any = f"{MEMORY}"

    def __post_init__(self) -> None:
        if not isinstance(self.memory, str) or not parse_size(self.memory):
            raise FieldError("memory", f'is {self.memory!r}, not a size such as "500MB" or "2GB"')


def memory_limit() -> int:
    """Return the bytes of memory that large work may take: from the command, or `[limits]` of the files, or 2 GB."""
    return _command.memory or parse_size(_read("limits", _Limits).memory) or MEMORY


def thread_count() -> int:
    """Return the number of threads that work may use here: `R2MED_THREADS` if a worker has it set, else all CPUs."""
    given = os.environ.get("R2MED_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else os.cpu_count() or 1


class CommandSettings(Typed, frozen=True):
    """What options of the running command set; None leaves it to the files."""

    memory: int | None = None
    requests: RequestSettings = RequestSettings()


_command = CommandSettings()


@contextmanager
def overriding(requests: RequestSettings | None = None, memory: int | None = None) -> Iterator[None]:
    """Let settings of the command win over those of the files while the block runs; those not given stay."""
    global _command
    before = _command
    inner = requests.given() if requests else {}
    _command = CommandSettings(memory or before.memory, RequestSettings(**(before.requests.given() | inner)))
    try:
        yield
    finally:
        _command = before


def aliases() -> Mapping[str, str]:
    """Return every alias by name; those of the current folder win over those of the user."""
    return _read("aliases", dict[str, str])


def server_sets() -> Mapping[str, tuple[str, ...]]:
    """Return the names of sets of equal servers, each with the addresses (or patterns of addresses) in it."""
    return _read("servers", dict[str, tuple[str, ...]])


def local_copies() -> Mapping[str, Path]:
    """Return the folders that hold a copy of a named task, or of all tasks of a group; paths start at the file."""
    _read("data", dict[str, str])
    rows = ((path, name, text) for path, table in tables("data") for name, text in table.items())
    return {name: path.parent / Path(text).expanduser() for path, name, text in rows}
