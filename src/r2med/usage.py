"""Usage of models: the requests, tokens, money and seconds that replies took or are expected to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Requests to models and what they took, cached replies included: no matter when they were paid for.

    >>> Usage(requests=1, cost=0.5) + Usage(requests=2, prompt_tokens=9, cost=None)
    Usage(requests=3, cached=0, failed=0, incomplete=0, prompt_tokens=9, completion_tokens=0, reasoning_tokens=0, \
cost=None, paid=0.0, seconds=0.0, counted=True, whole=True)
    """

    requests: int = 0
    cached: int = 0  # of these, the number that came from the cache and cost nothing this time
    failed: int = 0
    incomplete: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0  # all tokens written, the reasoning included
    reasoning_tokens: int = 0
    cost: float | None = 0.0  # US dollars; None as soon as one price is unknown
    paid: float | None = 0.0  # the part of `cost` that was spent this time
    seconds: float = 0.0  # the sum over requests, not the time on the clock
    counted: bool = True  # whether the server stated the tokens of every request
    whole: bool = True  # whether it covers the whole step; not if vectors or scores of an earlier run were reused

    def __add__(self, other: Usage) -> Usage:
        return Usage(**add_fields(self, other))

    @property
    def tokens(self) -> int:
        """Return the tokens read and written."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def from_forecast(cls, facts: Mapping[str, Any]) -> Self:
        """Sum up a stage's forecast, which may come in parts.

        >>> Usage.from_forecast({"requests": 2, "requests at most": 6, "prompt tokens": 50, "dollars": 0.5}).tokens
        50
        """
        exact = {name: value for name, value in facts.items() if "at most" not in name}
        requests = [value for name, value in exact.items() if name.startswith("requests")]
        tokens = [value for name, value in exact.items() if "tokens" in name and isinstance(value, int)]
        costs = [value for name, value in exact.items() if name.startswith("dollars")]
        return cls(
            requests=sum(requests) if requests else facts.get("requests at most", 0),
            prompt_tokens=sum(tokens),
            cost=None if None in costs else float(sum(costs)),
        )

    def as_json(self) -> dict[str, int | float | None]:
        """Return the usage for a record, without flags that are as usual."""
        return {name: value for name, value in vars(self).items() if value is not True}

    def spending(self) -> dict[str, int | float | None]:
        """Return the requests, all tokens and the US dollars."""
        return {"requests": self.requests, "tokens": self.tokens, "dollars": self.cost}

    def bill(self) -> dict[str, int | float | None]:
        """Return the requests, tokens and cost."""
        return {name: getattr(self, name) for name in ("requests", "prompt_tokens", "completion_tokens", "cost")}


def add_fields(one: Any, other: Any) -> dict[str, Any]:
    """Add two objects field by field: what is unknown in one is unknown in the sum, and flags must hold in both."""

    def add(left: Any, right: Any) -> Any:
        if isinstance(left, bool):
            return left and right
        return None if left is None or right is None else left + right

    return {name: add(value, getattr(other, name)) for name, value in vars(one).items()}
