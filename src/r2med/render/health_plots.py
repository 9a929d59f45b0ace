"""The figures of a built task: as SVG into a folder, or by matplotlib as one names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r2med.build.health import TaskHealth
from r2med.render.chart_files import save_charts
from r2med.render.health_charts import HealthChart, funnel_chart, member_chart, score_chart


def health_charts(health: TaskHealth, funnel: Sequence[Mapping[str, Any]]) -> dict[str, HealthChart]:
    """The charts by name."""
    return {"funnel": funnel_chart(funnel), "members": member_chart(health), "scores": score_chart(health)}


def save_health_plots(health: TaskHealth, funnel: Sequence[Mapping[str, Any]], place: Path) -> list[Path]:
    """Write the figures: DIR/funnel.svg and so on, or NAME-funnel.png and so on for NAME.png."""
    return save_charts(health_charts(health, funnel), place)
