"""What could be saved: the systems that are worth their price, and what routing between any two of them would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from r2med.diagnose.frontier import COSTS, Priced, frontier, left_out, price
from r2med.diagnose.route_curves import Curve, CurvePoint, RoutePair, read_pair
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.measure.significance import ALPHA, p_words
from r2med.runs.ledger import Ledger, RecordedName

PAIRED = 4
"""Between how many of the systems routes are looked for when none is named: the frontier's, the best first."""
_UNITS = {"money": "dollars", "tokens": "tokens", "seconds": "seconds"}


@dataclass(frozen=True)
class Saving:
    """Every system with its price, and the routes between pairs of them."""

    measure: str
    by: str
    """What costs are counted in: money, tokens or seconds."""
    within: float
    """How much of the score may be given up."""
    systems: tuple[Priced, ...]
    """The best first."""
    pairs: tuple[RoutePair, ...]

    @property
    def worth(self) -> list[Priced]:
        """The systems that no other beats at the same cost or less, cheapest first."""
        return frontier(self.systems, self.by)

    @property
    def cheapest(self) -> Priced | None:
        """The cheapest system of a known cost whose score is within reach of the best."""
        best = max(each.score for each in self.systems if not each.oracle)
        near = [each for each in self.worth if each.score >= best - self.within]
        return near[0] if near else None

    @property
    def sentences(self) -> list[str]:
        """What all this says, in words."""
        said = []
        if (near := self.cheapest) is not None:
            best = max((each for each in self.systems if not each.oracle), key=lambda each: each.score)
            if near.system == best.system:
                said.append(
                    f"{near.system} is the best, and nothing cheaper is within {100 * self.within:g} points of it."
                )
            else:
                gap = 100 * (best.score - near.score)
                said.append(
                    f"{near.system} is the cheapest within {100 * self.within:g} points of the best: {gap:.2f} below"
                    f" {best.system}."
                )
        said += [sentence for pair in self.pairs for sentence in self.pair_sentences(pair)]
        if self.pairs:
            said.append("Shares and signals were chosen on these very queries: `r2med tune` measures them on others.")
        if missing := left_out(self.systems, self.by):
            said.append(missing)
        return said

    def pair_sentences(self, pair: RoutePair) -> list[str]:
        """What routing between two systems would give."""
        best = pair.curves[0]
        telling = [curve for curve in pair.curves if curve.corrected < ALPHA and curve.advantage.mean > 0]
        if not telling:
            words = p_words(best.corrected)
            return [
                f"{pair.cheap} to {pair.dear}: no signal is shown to beat a random choice of queries"
                f" (the best, {best.signal}, by {100 * best.advantage.mean:.2f} points on average; {words} after Holm)."
            ]
        curve = telling[0]
        point = curve.at(self.within)
        return [
            f"{self.fewer(curve, point)} for {_points(point)}: {curve.spec(point)}.",
            f"{curve.signal} beats a random choice of queries by {100 * curve.advantage.mean:.2f} points on average"
            f" over all shares ({p_words(curve.corrected, at_floor=curve.advantage.at_floor)} after Holm over"
            f" {len(pair.curves)} signals).",
        ]

    def fewer(self, curve: Curve, point: CurvePoint) -> str:
        """What a route saves of the dear system's cost; where that is not known, how many queries it is spared."""
        saved = curve.saving(point, self.by)
        if saved is None:
            return f"{1 - point.sent:.0%} fewer queries to {curve.dear}"
        return f"{saved:.0%} fewer {_UNITS[self.by]}" if saved >= 0 else f"{-saved:.0%} more {_UNITS[self.by]}"

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        worth = {each.system for each in self.worth}
        return {
            "measure": self.measure,
            "by": self.by,
            "within": self.within,
            "systems": [{**each.as_dict(), "frontier": each.system in worth} for each in self.systems],
            "routes": [curve.as_dict() for pair in self.pairs for curve in pair.curves],
            "sentences": self.sentences,
        }


def _points(point: CurvePoint) -> str:
    mean, low, high = (100 * value for value in point.difference)
    if mean > 0:
        return f"{mean:.2f} points more (interval {low:+.2f} to {high:+.2f})"
    return f"{abs(mean):.2f} points less (interval {abs(high) if not high else -high:.2f} to {abs(low):.2f})"


def savings(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[str], measure: Measure, by: str, within: float
) -> Saving:
    """Price the systems and look at the routes between them, from kept runs alone."""
    if by not in COSTS:
        raise R2medError(f"costs are counted by {', '.join(COSTS)}, not {by!r}")
    systems = price(ledger, names, tasks, str(measure))
    real = [each for each in systems if not each.oracle]
    if not real:
        raise R2medError("all of these are oracles, which are no systems")
    chosen = real if names else _shown(real, by)
    pairs = [_pair(ledger, one, other, chosen, tasks, measure) for one, other in combinations(_by_cost(chosen, by), 2)]
    return Saving(str(measure), by, within, tuple(systems), tuple(pair for pair in pairs if pair is not None))


def _shown(systems: Sequence[Priced], by: str) -> list[Priced]:
    """The systems that routes are looked for between when none is named: the frontier and the best."""
    plain = [each for each in systems if not each.routes]
    known = sorted(frontier(plain, by), key=lambda each: -each.score)
    return list({each.system: each for each in (*known, *plain)}.values())[:PAIRED]


def _by_cost(systems: Sequence[Priced], by: str) -> list[Priced]:
    """Cheapest first; those of unknown cost last, and of equals the worse first."""

    def order(each: Priced) -> tuple[bool, float, float]:
        cost = each.cost(by)
        return cost is None, cost or 0.0, each.score

    return sorted(systems, key=order)


def _pair(
    ledger: Ledger, cheap: Priced, dear: Priced, chosen: Sequence[Priced], tasks: Sequence[str], measure: Measure
) -> RoutePair | None:
    """The routes from a cheap to a dear system; None where the dear one is no better."""
    if dear.score <= cheap.score:
        return None
    others = [each.system for each in chosen if each.system not in (cheap.system, dear.system)]
    no_dearer = [name for name in others if _costs_no_more(name, cheap, chosen)]
    names = [RecordedName(name) for name in (cheap.system, dear.system, *no_dearer)]
    return read_pair(ledger, names, tasks, measure, (cheap.bill, dear.bill))


def _costs_no_more(name: str, cheap: Priced, chosen: Sequence[Priced]) -> bool:
    """Whether asking another system for its opinion is free of requests."""
    other = next(each for each in chosen if each.system == name)
    return other.bill.tokens == 0 and cheap.bill.tokens is not None
