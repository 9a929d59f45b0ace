"""The figures of a built task: as SVG into a folder, which needs nothing else, or by matplotlib as one names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r2med.build.health import Health
from r2med.errors import R2medError, require_extra
from r2med.render.chart_svg import standalone
from r2med.render.health_charts import HealthChart, funnel_chart, member_chart, score_chart
from r2med.render.plots import ENDINGS, save
from r2med.storage.files import write_file


def check_health_plots(place: Path) -> None:
    """Refuse figures that could not be drawn before anything is computed."""
    if not place.suffix:
        return
    if place.suffix.lower() not in ENDINGS:
        raise R2medError(f"{place}: figures end in {', '.join(ENDINGS)}; a name without an ending is a folder")
    require_extra("plots", "matplotlib")


def health_charts(health: Health, funnel: Sequence[Mapping[str, Any]]) -> dict[str, HealthChart]:
    """The charts by name."""
    return {"funnel": funnel_chart(funnel), "members": member_chart(health), "scores": score_chart(health)}


def save_health_plots(health: Health, funnel: Sequence[Mapping[str, Any]], place: Path) -> list[Path]:
    """Write the figures: DIR/funnel.svg and so on, or NAME-funnel.png and so on for NAME.png."""
    written = []
    for name, chart in health_charts(health, funnel).items():
        if place.suffix:
            file = place.with_name(f"{place.stem}-{name}{place.suffix}")
            save(chart, file)
        else:
            file = place / f"{name}.svg"
            write_file(file, standalone(chart), parents=True)
        written.append(file)
    return written
