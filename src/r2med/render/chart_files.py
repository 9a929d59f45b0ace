"""Several charts as files: as SVG into a folder, which needs nothing else, or by matplotlib as one names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from r2med.errors import R2medError, require_extra
from r2med.render.chart_svg import standalone
from r2med.render.plots import ENDINGS, save
from r2med.storage.files import write_file

if TYPE_CHECKING:
    from r2med.render.health_charts import HealthChart
    from r2med.render.rag_charts import RagChart


def check_chart_files(place: Path) -> None:
    """Refuse figures that could not be drawn before anything is computed."""
    if not place.suffix:
        return
    if place.suffix.lower() not in ENDINGS:
        raise R2medError(f"{place}: figures end in {', '.join(ENDINGS)}; a name without an ending is a folder")
    require_extra("plots", "matplotlib")


def save_charts(charts: Mapping[str, HealthChart | RagChart], place: Path) -> list[Path]:
    """Write charts by their names: DIR/arms.svg and so on, or NAME-arms.png and so on for NAME.png."""
    written = []
    for name, chart in charts.items():
        if place.suffix:
            file = place.with_name(f"{place.stem}-{name}{place.suffix}")
            save(chart, file)
        else:
            file = place / f"{name}.svg"
            write_file(file, standalone(chart), parents=True)
        written.append(file)
    return written
