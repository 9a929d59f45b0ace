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
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.store.cache import home

PROJECT_FILE = "r2med.toml"
USER_FILE = "config.toml"
_TABLES = ("aliases", "servers", "requests", "limits", "executor", "data", "prices")


def read_toml(path: Path, known: tuple[str, ...]) -> dict[str, Any]:
    """Read a TOML file whose top-level keys must be among the known ones."""
    import tomllib  # most have no such file

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise R2medError(f"{path}: cannot be read: {reason}") from error
    for key in found:
        if key not in known:
            raise R2medError(f"{path}: unknown key {key!r}{suggest(key, known)}")
    return found


def tables(name: str) -> Iterator[tuple[Path, Any]]:
    """Yield a table of the user's file, then the same table of the current folder's file, which wins."""
    for path in (home() / USER_FILE, Path(PROJECT_FILE)):
        if path.is_file():
            found = read_toml(path, _TABLES)
            if name in found:
                yield path, found[name]


def names_under(path: Path, found: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the list of names that a file has under a key."""
    value = found.get(key, list(default))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise R2medError(f'{path}: {key} must be a list such as ["sample"]')
    return tuple(value)


@dataclass(frozen=True)
class ExecutorSettings:
    """Settings of the executor, as the user's files have them. None of them changes a result."""

    use: str = "local"
    """A value of `--executor`."""
    workers: int = 0
    """Workers of a cluster at most; 0 for as many as it has room for."""
    threads: int = 1
    """Threads of a worker on a processor."""
    blocks: str = ""
    """The folder, or URL that fsspec knows, for the workers' results; empty for one in `R2MED_HOME`."""


def executor_settings() -> ExecutorSettings:
    """Return the settings under `[executor]` of the files."""
    found = ExecutorSettings()
    known = [each.name for each in fields(ExecutorSettings)]
    for path, table in tables("executor"):
        if not isinstance(table, dict):
            raise R2medError(f"{path}: [executor] must be a table with {', '.join(known)}")
        for name, value in table.items():
            if name not in known:
                raise R2medError(f"{path}: [executor] has an unknown key {name!r}{suggest(name, known)}")
            least = {"workers": 0, "threads": 1}.get(name)
            if type(value) is not type(getattr(found, name)) or (least is not None and value < least):
                kind = "a text" if least is None else f"a whole number of {least} or more"
                raise R2medError(f"{path}: [executor] {name} must be {kind}, not {value!r}")
        found = replace(found, **table)
    return found


MEMORY = 2 << 30
"""Bytes of memory that large work may take by default."""
_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_size(text: str) -> int | None:
    """Parse a human-readable size into a number of bytes; return None if the text is not a size.

    >>> parse_size("1.5 GB"), parse_size("512mb"), parse_size("much")
    (1610612736, 536870912, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B|)", text.strip().upper())
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None


_memory_given: list[int] = []


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """Let this limit win over that of the files while the block runs; None leaves it to them."""
    _memory_given.extend([limit] if limit else [])
    try:
        yield
    finally:
        if limit:
            _memory_given.pop()


def thread_count() -> int:
    """Return the number of threads that work may use here: `R2MED_THREADS` if a worker has it set, else all CPUs."""
    given = os.environ.get("R2MED_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of memory that large work may take: from the command, or `[limits]` of the files, or 2 GB."""
    if _memory_given:
        return _memory_given[-1]
    limit = MEMORY
    for path, table in tables("limits"):
        limit = _limit(path, table) or limit
    return limit


def _limit(path: Path, table: Any) -> int | None:
    if not isinstance(table, dict) or set(table) - {"memory"}:
        raise R2medError(f'{path}: [limits] must hold a line such as memory = "2GB" and nothing else')
    if "memory" not in table:
        return None
    size = parse_size(table["memory"]) if isinstance(table["memory"], str) else None
    if size is None:
        raise R2medError(f'{path}: memory is {table["memory"]!r}, not a size such as "500MB" or "2GB"')
    return size


def aliases() -> Mapping[str, str]:
    """Return every alias by name; those of the current folder win over those of the user."""
    found: dict[str, str] = {}
    for path, table in tables("aliases"):
        found |= _texts(path, "aliases", table)
    return found


def local_copies() -> Mapping[str, Path]:
    """Return the folders that hold a copy of a named task, or of all tasks of a group; paths start at the file."""
    folders: dict[str, Path] = {}
    for path, table in tables("data"):
        texts = _texts(path, "data", table, 'Biology = "FOLDER"')
        folders |= {name: path.parent / Path(text).expanduser() for name, text in texts.items()}
    return folders


def server_sets() -> Mapping[str, tuple[str, ...]]:
    """Return the names of sets of equal servers, each with the addresses (or patterns of addresses) in it."""
    found: dict[str, tuple[str, ...]] = {}
    for path, table in tables("servers"):
        if not isinstance(table, dict):
            raise R2medError(f'{path}: [servers] must hold lines such as farm = ["http://gpu1:8000/v1"]')
        found |= {name: names_under(path, table, name, ()) for name in table}
    return found


def _texts(path: Path, key: str, value: object, example: str = 'name = "bm25"') -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise R2medError(f"{path}: [{key}] must hold lines such as {example}")
    return value


@dataclass(frozen=True)
class RequestSettings:
    """Limits of requests to servers, as the user set them; None if not set. None of them changes a result."""

    timeout: float | None = None
    """Seconds until a request times out."""
    retries: int | None = None
    """Retries after the first failure of a request."""
    requests_per_minute: float | None = None
    concurrency: int | None = None
    """Concurrent requests per server."""

    def problem(self) -> str:
        """Return what is wrong with the values; empty if they are valid."""
        if self.timeout is not None and not self.timeout > 0:
            return f"timeout must be more than 0 seconds, not {self.timeout:g}"
        if self.retries is not None and self.retries < 0:
            return f"retries must be 0 or more, not {self.retries}"
        if self.requests_per_minute is not None and not self.requests_per_minute > 0:
            return f"requests_per_minute must be more than 0, not {self.requests_per_minute:g}"
        if self.concurrency is not None and self.concurrency < 1:
            return f"concurrency must be 1 or more, not {self.concurrency}"
        return ""

    def given(self) -> dict[str, Any]:
        """Return the values that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}


_asked: list[RequestSettings] = []


@contextmanager
def requesting(settings: RequestSettings) -> Iterator[None]:
    """Let these settings win over those of the files while the block runs."""
    _asked.append(settings)
    try:
        yield
    finally:
        _asked.pop()


def request_settings() -> RequestSettings:
    """Return the settings under `[requests]` of the files, overridden by those of the command."""
    found = RequestSettings()
    for path, table in tables("requests"):
        found = replace(found, **_request_values(path, table))
    for settings in _asked:
        found = replace(found, **settings.given())
    return found


def _request_values(path: Path, table: Any) -> dict[str, Any]:
    known = [each.name for each in fields(RequestSettings)]
    if not isinstance(table, dict):
        raise R2medError(f"{path}: [requests] must be a table with {', '.join(known)}")
    for name, value in table.items():
        if name not in known:
            raise R2medError(f"{path}: [requests] has an unknown key {name!r}{suggest(name, known)}")
        whole = name in ("retries", "concurrency")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise R2medError(f"{path}: {name} must be a {'whole ' if whole else ''}number, not {value!r}")
    problem = RequestSettings(**table).problem()
    if problem:
        raise R2medError(f"{path}: {problem}")
    return table
