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
    values = published_facts(asked.get("name", ""), asked.get("group", "full"), asked.get("metric", ""))
    own = [name for name in library.systems(values["group"]) if name == values["rows"][0].system]
    own_href = system_address(own[0], values["group"]) if own else ""
    return "published.html", {**values, "own_href": own_href, "source_href": "/sources#", "others": ()}


def published_facts(name: str, group: str, measure: str = "") -> dict[str, Any]:
    """What each source says of a published system, by task in one measure; without a wish, in its first."""
    rows = [row for row in find_published(name) if row.source.group == group]
    if not rows:
        raise R2medError(f"nothing was published on {group} under the name {name!r}")
    measures = list(dict.fromkeys(each for row in rows for each in row.figures))
    chosen = one_of(measure or measures[0], measures, "published measure of this system")
    tasks = list(dict.fromkeys(task for row in rows for each in row.figures.values() for task in each.tasks))
    return {"rows": rows, "tasks": tasks, "measures": measures, "measure": chosen, "group": group}


def sources_page(library: Library, request: Request) -> PageContent:
    """Where the published figures come from."""
    return "site_sources.html", source_facts()


def source_facts() -> dict[str, Any]:
    """Where published figures come from, how many systems each source has, and what is remarked about some."""
    counts = {name: sum(system.source.name == name for system in published()) for name in sources()}
    notes = [(system.name, system.source.name, system.note) for system in published() if system.note]
    return {"sources": sources().values(), "counts": counts, "remarks": notes}
