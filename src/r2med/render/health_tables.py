"""The health of a built task on a terminal: the sections of its report as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.build.health_report import HealthSection, health_sections
from r2med.render.grid import Column, Table, key

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.build.health import TaskHealth


def show_health(health: TaskHealth, console: Console) -> None:
    """Print everything that is said of a task."""
    for section in health_sections(health):
        console.print(section.title, style="bold")
        if section.rows:
            _table(section).show(console)
        for sentence in section.sentences:
            console.print(sentence)
        console.print()


def _table(section: HealthSection) -> Table:
    # The question that a check asks is for pages: on a terminal its name and figure have to do.
    shown = [place for place, heading in enumerate(section.headings) if heading != "asks"]
    columns = [Column(section.headings[place], right=section.figures[place]) for place in shown]
    table = Table(key(columns[0].heading), *columns[1:])
    for row in section.rows:
        table.add(*(row[place] for place in shown))
    return table
