"""How hard chat, embedding and rerank servers are asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from r2med.config.settings_files import tables
from r2med.errors import R2medError, suggest


@dataclass(frozen=True)
class RequestSettings:
    """How hard servers are asked, as the user wants it; None where they have no wish. None of it changes a result."""

    timeout: float | None = None
    """Seconds until a request counts as lost."""
    retries: int | None = None
    """How often a request is asked again after the first failure."""
    requests_per_minute: float | None = None
    concurrency: int | None = None
    """Requests under way at a time, for each server."""

    def problem(self) -> str:
        """What is wrong with the values; empty when nothing is."""
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
        """The values that are set."""
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
    """What `[requests]` of the files says, and over it what the command says."""
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
