"""What a tuning can choose from: a system as it is, or a route with its threshold fitted to the queries at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.diagnose.query_splits import Places
from r2med.pipeline.system import System
from r2med.retrieve.routing import Route, hardest

Floats = NDArray[np.float64]


class TuneCandidate(Protocol):
    """Something that can be chosen."""

    def label(self, places: Sequence[Places]) -> str:
        """Its spec when fitted to these queries."""

    def scores(self, places: Sequence[Places]) -> list[Floats]:
        """The measure of every query of each task, fitted to these queries of each."""


@dataclass(frozen=True)
class FixedCandidate:
    """A system as it is."""

    system: System
    values: Sequence[Floats]

    def label(self, places: Sequence[Places]) -> str:
        """The spec."""
        return self.system.spec

    def scores(self, places: Sequence[Places]) -> list[Floats]:
        """The same whatever it is fitted to."""
        return list(self.values)


@dataclass(frozen=True)
class RouteParts:
    """The two systems of a route on one task, and how hard its queries seem; a larger number is harder."""

    names: Sequence[str]
    cheap: Floats
    dear: Floats
    hardness: Floats

    def threshold(self, share: float, chosen: Places) -> float:
        """How hard a query must be to be sent on, so that this share of the queries to choose by is."""
        values = self.hardness[chosen]
        sent = hardest(values, [self.names[place] for place in chosen], share, "high")
        known = values[sent][~np.isnan(values[sent])]
        return float(known.min()) if len(known) else np.inf

    def sent(self, share: float, chosen: Places) -> NDArray[np.bool_]:
        """Which of all queries are sent on; what tells nothing is hard."""
        beyond: NDArray[np.bool_] = self.hardness >= self.threshold(share, chosen)
        return beyond | (np.isnan(self.hardness) & (share > 0))

    def random(self, share: float) -> Floats:
        """Return what each query is expected to score when it is sent on with this probability."""
        return (1 - share) * self.cheap + share * self.dear


@dataclass(frozen=True)
class RouteCandidate:
    """A route that sends a share of the queries to choose by, and of others those beyond the threshold that this is."""

    route: Route
    share: float
    parts: Sequence[RouteParts]

    def label(self, places: Sequence[Places]) -> str:
        """The spec with the threshold; a task has its own where there are several."""
        edges = [part.threshold(self.share, chosen) for part, chosen in zip(self.parts, places, strict=True)]
        if len(edges) > 1 or not np.isfinite(edges[0]):
            return f"{self._shown}, share={self.share:g})"
        number = edges[0] if self.route.hard_end == "high" else -edges[0]
        return f"{self._shown}, threshold={number!r})"

    @property
    def _shown(self) -> str:
        return f"route({self.route.cheap}, {self.route.dear}, by={self.route.by}"

    def scores(self, places: Sequence[Places]) -> list[Floats]:
        """Each query by the system that the threshold gives it to."""
        return [
            np.where(part.sent(self.share, chosen), part.dear, part.cheap)
            for part, chosen in zip(self.parts, places, strict=True)
        ]
