"""What a step would ask and cost, before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from r2med.build.item_store import ItemStore
from r2med.build.step_runner import Step, open_items
from r2med.llm import Estimate, Request, current_client

Item = TypeVar("Item")
_SAMPLE = 2000
"""Of more requests than this, a part is priced and the rest reckoned from it."""


@dataclass(frozen=True)
class Foreseen:
    """What a step would take."""

    step: str
    items: int
    """Those that are not kept yet, or might have to be made."""
    guess: Estimate

    def as_dict(self) -> dict[str, Any]:
        """The estimate for JSON."""
        return {"step": self.step, "items": self.items, **asdict(self.guess)}


def price_step(
    step: Step[Item], items: Sequence[Item], foresee: Callable[[Item], list[Request]], store: ItemStore
) -> Foreseen:
    """What a step would take for the items that are not kept; of very many, a part is asked about."""
    missing = open_items(step, items, store)
    chosen = missing[:: max(1, len(missing) // _SAMPLE)]
    guess = current_client().estimate([request for item in chosen for request in foresee(item)])
    return Foreseen(step.name, len(missing), guess.scaled(len(missing) / max(1, len(chosen))))
