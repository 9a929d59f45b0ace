"""Usage of one step of a system: seconds by phase, and the bill of the language model that it asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, Self

Json = Mapping[str, Any]
PHASES = ("load", "index", "search", "ask")
"""Phases of a step whose time is recorded."""


@dataclass(frozen=True)
class Account:
    """Bill of a model's replies, cached replies included: the cost of making them, no matter when it was paid."""

    requests: int = 0
    cached: int = 0
    """Of these, the number that came from the cache and cost nothing this time."""
    failed: int = 0
    incomplete: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    """US dollars; None as soon as one price is unknown."""
    paid: float | None = 0.0
    """The part of `cost` that was spent this time."""
    seconds: float = 0.0
    """The sum over requests, not the time on the clock."""
    counted: bool = True
    """Whether the server stated the tokens of every request."""
    whole: bool = True
    """Whether it covers the whole step; not if vectors or scores of an earlier run were reused."""

    def plus(self, other: Account) -> Account:
        """Return the sum of both."""
        summed: dict[str, Any] = {
            name: None if value is None or (also := getattr(other, name)) is None else value + also
            for name, value in vars(self).items()
        }
        return replace(Account(**summed), counted=self.counted and other.counted, whole=self.whole and other.whole)

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Build an account from a record."""
        return cls(**known_fields(cls, content))

    def as_json(self) -> dict[str, int | float | None]:
        """Return the account for a record, without values that are as usual."""
        usual = [name for name in ("counted", "whole") if getattr(self, name)]
        return {name: value for name, value in asdict(self).items() if name not in usual}


@dataclass(frozen=True)
class Spending:
    """Requests, tokens and US dollars, forecast or used."""

    requests: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """None if a price is unknown."""

    @classmethod
    def from_forecast(cls, facts: Json) -> Self:
        """Sum up a stage's forecast, which may come in parts.

        >>> Spending.from_forecast({"requests": 2, "requests at most": 6, "prompt tokens": 50, "dollars": 0.5})
        Spending(requests=2, tokens=50, dollars=0.5)
        """
        shown = {name: value for name, value in facts.items() if "at most" not in name}
        asked = [value for name, value in shown.items() if name.startswith("requests")]
        prices = [value for name, value in shown.items() if name.startswith("dollars")]
        tokens = [value for name, value in shown.items() if "tokens" in name and isinstance(value, int)]
        return cls(
            sum(asked) if asked else facts.get("requests at most", 0),
            sum(tokens),
            None if None in prices else float(sum(prices)),
        )

    def plus(self, other: Spending) -> Spending:
        """Return the sum of both."""
        known = self.dollars is not None and other.dollars is not None
        dollars = (self.dollars or 0.0) + (other.dollars or 0.0) if known else None
        return Spending(self.requests + other.requests, self.tokens + other.tokens, dollars)


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
    account: Account | None = None
    """Bill of the language model that it asked, if any."""
    reused: tuple[str, ...] = ()
    """Parts that were taken from the cache of an earlier run, so that their time is missing."""
    foreseen: Spending | None = None
    """The forecast, made before anything was asked."""

    @property
    def seconds(self) -> float:
        """Return the seconds of all phases."""
        return self.load + self.index + self.search + self.ask

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Build a step from a record."""
        account, known = content.get("account"), content.get
        return cls(
            known("stage", ""),
            known("load", 0.0),
            known("index", 0.0),
            known("search", 0.0),
            known("ask", 0.0),
            None if account is None else Account.from_json(account),
            tuple(known("reused", ())),
            None if "foreseen" not in content else Spending(**known_fields(Spending, content["foreseen"])),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the step for a record."""
        account = None if self.account is None else self.account.as_json()
        foreseen = None if self.foreseen is None else asdict(self.foreseen)
        content = vars(self) | {"account": account, "reused": list(self.reused) or None, "foreseen": foreseen}
        return {name: value for name, value in content.items() if value is not None}


def known_fields(kind: Any, content: Json) -> dict[str, Any]:
    """Return the values that JSON has for the fields of a dataclass."""
    return {name: content[name] for name in _names(kind) if name in content}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
