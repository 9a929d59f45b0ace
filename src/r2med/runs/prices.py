"""Prices that no card has: of servers that the user chose, and of an hour of the user's hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.settings import tables

_KEYS = ("hour", "tokens", "requests")


@dataclass(frozen=True)
class Prices:
    """Prices under `[prices]` of the files, in US dollars."""

    hour: float | None = None
    """Price of an hour of the user's hardware."""
    tokens: dict[str, float] = field(default_factory=dict)
    """Price of a million tokens, by the server's name of the model."""
    requests: dict[str, float] = field(default_factory=dict)
    """Price of a thousand requests, by the model's name or the server's host."""

    def of_tokens(self, model: str, card: float | None = None) -> float | None:
        """Return the price of a million tokens of a model: the user's, or else the card's."""
        return self.tokens.get(model, card)

    def of_requests(self, names: tuple[str, ...], card: float | None = None) -> float | None:
        """Return the price of a thousand requests under the first of some names that has one."""
        return next((self.requests[name] for name in names if name in self.requests), card)


def prices() -> Prices:
    """Return the prices of the user's file and, over them, of the current folder's."""
    hour: float | None = None
    tokens: dict[str, float] = {}
    requests: dict[str, float] = {}
    for path, table in tables("prices"):
        if not isinstance(table, dict):
            raise R2medError(f"{path}: [prices] must be a table with {', '.join(_KEYS)}")
        for name in table:
            if name not in _KEYS:
                raise R2medError(f"{path}: [prices] has an unknown key {name!r}{suggest(name, _KEYS)}")
        if "hour" in table:
            hour = _price(path, "hour", table["hour"])
        tokens |= _several(path, "tokens", table)
        requests |= _several(path, "requests", table)
    return Prices(hour, tokens, requests)


def _several(path: Path, key: str, table: dict[str, Any]) -> dict[str, float]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise R2medError(f"{path}: [prices.{key}] must be a table of names and US dollars")
    return {name: _price(path, name, value) for name, value in found.items()}


def _price(path: Path, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise R2medError(f"{path}: the price {name!r} must be US dollars, 0 or more, not {value!r}")
    return float(value)
