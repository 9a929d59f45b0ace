"""Published systems and the sources of their figures, as pages show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from r2med.data.published import published, sources
from r2med.render.html import address
from r2med.web.addresses import NotThere, PageContent, one_of, several_like, system_address
from r2med.web.citing import Citation, citation, options
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request


def published_page(library: Library, request: Request) -> PageContent:
    """One published system: what each source says of it."""
    asked = request.query_params
    values = published_facts(asked.get("name", ""), asked.get("group", "full"), asked.get("metric", ""))
    own = [name for name in library.systems(values["group"]) if name == values["rows"][0].system]
    own_href = system_address(own[0], values["group"]) if own else ""
    return "published.html", {
        **values,
        "own_href": own_href,
        "source_href": "/sources#",
        "others": (),
        "cite": published_citation(values["rows"][0].name, values["group"], values["measure"]),
    }


def published_citation(name: str, group: str, measure: str) -> Citation:
    """How to have a published system's figures in a terminal."""
    words = options(("--group", group), ("--metric", measure), ("--find", name))
    return citation(f"{name}, published figures", "board", "--published", *words)


def published_facts(name: str, group: str, measure: str = "") -> dict[str, Any]:
    """What each source says of a published system, by task in one measure; without a wish, in its first."""
    every = [row for row in published() if row.source.group == group]
    rows = [row for row in every if row.name.casefold() == name.casefold()]
    if not rows:
        alike = several_like(name, (row.name for row in every))
        near = [(each, address("/published", name=each, group=group)) for each in alike]
        raise NotThere(f"nothing was published on {group} under the name {name!r}", near)
    measures = list(dict.fromkeys(each for row in rows for each in row.figures))
    chosen = one_of(measure or measures[0], measures, "published measure of this system")
    tasks = list(dict.fromkeys(task for row in rows for each in row.figures.values() for task in each.tasks))
    return {"rows": rows, "tasks": tasks, "measures": measures, "measure": chosen, "group": group}


def sources_page(library: Library, request: Request) -> PageContent:
    """Where the published figures come from."""
    return "site_sources.html", {**source_facts(), "cite": Citation("Sources of the published figures")}


def source_facts() -> dict[str, Any]:
    """Where published figures come from, how many systems each source has, and what is remarked about some."""
    counts = {name: sum(system.source.name == name for system in published()) for name in sources()}
    notes = [(system.name, system.source.name, system.note) for system in published() if system.note]
    return {"sources": sources().values(), "counts": counts, "remarks": notes}
