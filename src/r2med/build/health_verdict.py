"""From the figures of a task to a verdict: rules are data (`health_rules.toml`), and every one says why it matters."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

GOOD, DOUBTFUL, POOR, UNKNOWN = "good", "doubtful", "poor", "unknown"
SOUND, RESERVED, UNREADY = "sound", "usable with reservations", "not ready"


class HealthFigure(NamedTuple):
    """A figure that a rule judges, with the ends of its 95% interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class HealthRule:
    """When a figure is good and when it is poor."""

    name: str
    figure: str
    asks: str
    good: float
    poor: float
    unit: str
    why: str
    less: bool = False
    optional: bool = False
    needs: str = ""
    """The figure of another rule that must be good for this one to be."""
    bound: str = ""
    """Said before a figure that is the end of what can be: `at most`."""

    def judge(self, found: HealthFigure | None) -> str:
        """The verdict on a figure.

        >>> rule = HealthRule("", "", "", 0.8, 0.5, "percent", "")
        >>> rule.judge(HealthFigure(0.9, 0.6)), rule.judge(HealthFigure(0.9, 0.4)), rule.judge(HealthFigure(0.4))
        ('good', 'doubtful', 'poor')
        """
        if found is None:
            return UNKNOWN
        worse = found.high if self.less else found.low
        if not self._reaches(found.value, self.poor):
            return POOR
        sure = worse is None or self._reaches(worse, self.poor)
        return GOOD if sure and self._reaches(found.value, self.good) else DOUBTFUL

    def _reaches(self, value: float, limit: float) -> bool:
        return value <= limit if self.less else value >= limit


@dataclass(frozen=True)
class HealthFinding:
    """What a rule says of a task."""

    rule: HealthRule
    figure: HealthFigure | None
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        value, low, high = self.figure or (None, None, None)
        return asdict(self.rule) | {"value": value, "low": low, "high": high, "verdict": self.verdict}


@cache
def health_rules() -> Sequence[HealthRule]:
    """Every rule, in the order in which findings are shown."""
    text = resources.files("r2med.build").joinpath("health_rules.toml").read_text("utf-8")
    return [HealthRule(**entry) for entry in tomllib.loads(text)["rule"]]


def find_health(figures: Mapping[str, HealthFigure | None]) -> list[HealthFinding]:
    """What every rule says; those that may be left out are where their figure is not known."""
    verdicts = {rule.figure: rule.judge(figures[rule.figure]) for rule in health_rules()}
    found = [
        HealthFinding(
            rule,
            figures[rule.figure],
            DOUBTFUL
            if rule.needs and verdicts[rule.figure] == GOOD and verdicts[rule.needs] != GOOD
            else verdicts[rule.figure],
        )
        for rule in health_rules()
    ]
    return [each for each in found if each.figure is not None or not each.rule.optional]


def overall(findings: Sequence[HealthFinding]) -> str:
    """The verdict on the whole task: as good as its worst finding."""
    verdicts = {each.verdict for each in findings}
    return UNREADY if POOR in verdicts else RESERVED if verdicts & {DOUBTFUL, UNKNOWN} else SOUND
