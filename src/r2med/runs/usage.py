"""Record of one step of a system: seconds by phase, and the usage of the language model that it asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

from r2med.usage import Usage

Json = Mapping[str, Any]
PHASES = ("load", "index", "search", "ask")
"""Phases of a step whose time is recorded."""


@dataclass(frozen=True)
class StepRecord:
    """Usage of one step of the system, in seconds by phase."""

    stage: str = ""
    load: float = 0.0
    """Seconds to load models."""
    index: float = 0.0
    """Seconds to encode or index the documents."""
    search: float = 0.0
    """Seconds to answer the queries, without waiting for other models."""
    ask: float = 0.0
    """Wall-clock seconds to ask a language model."""
    account: Usage | None = None
    """Usage of the language model that it asked, if any."""
    reused: tuple[str, ...] = ()
    """Parts that were taken from the cache of an earlier run, so that their time is missing."""
    foreseen: Usage | None = None
    """The forecast, made before anything was asked."""

    @property
    def seconds(self) -> float:
        """Return the seconds of all phases."""
        return self.load + self.index + self.search + self.ask

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Build a step from a record."""
        account, foreseen, known = content.get("account"), content.get("foreseen"), content.get
        return cls(
            known("stage", ""),
            known("load", 0.0),
            known("index", 0.0),
            known("search", 0.0),
            known("ask", 0.0),
            None if account is None else Usage.from_json(account),
            tuple(known("reused", ())),
            None if foreseen is None else Usage.from_json(foreseen),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the step for a record."""
        account = None if self.account is None else self.account.as_json()
        foreseen = None if self.foreseen is None else self.foreseen.as_json()
        content = vars(self) | {"account": account, "reused": list(self.reused) or None, "foreseen": foreseen}
        return {name: value for name, value in content.items() if value is not None}


def known_fields(kind: Any, content: Json) -> dict[str, Any]:
    """Return the values that JSON has for the fields of a dataclass."""
    return {name: content[name] for name in _names(kind) if name in content}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
