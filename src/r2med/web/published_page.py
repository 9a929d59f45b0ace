"""Published systems and the sources of their figures, as pages show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from r2med.data.published import find_published, published, sources
from r2med.errors import R2medError
from r2med.web.addresses import PageContent, one_of, system_address
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request


def published_page(library: Library, request: Request) -> PageContent:
    """One published system: what each source says of it."""
    asked = request.query_params
    rows = [row for row in find_published(asked.get("name", "")) if row.source.group == asked.get("group", "full")]
    if not rows:
        raise R2medError(f"nothing was published on {asked.get('group', '')} under the name {asked.get('name', '')!r}")
    measures = list(dict.fromkeys(name for row in rows for name in row.figures))
    measure = one_of(asked.get("metric", "") or measures[0], measures, "published measure of this system")
    tasks = list(dict.fromkeys(task for row in rows for each in row.figures.values() for task in each.tasks))
    own = [name for name in library.systems(rows[0].source.group) if name == rows[0].system]
    values = {"rows": rows, "tasks": tasks, "measures": measures, "measure": measure, "group": rows[0].source.group}
    return "published.html", {**values, "own": own[0] if own else "", "own_href": system_address}


def sources_page(library: Library, request: Request) -> PageContent:
    """Where the published figures come from."""
    return "site_sources.html", source_facts()


def source_facts() -> dict[str, Any]:
    """Where published figures come from, how many systems each source has, and what is remarked about some."""
    counts = {name: sum(system.source.name == name for system in published()) for name in sources()}
    notes = [(system.name, system.source.name, system.note) for system in published() if system.note]
    return {"sources": sources().values(), "counts": counts, "remarks": notes}
