"""The runs of the ledger, and one run with everything that was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from r2med.diagnose.causes import Cause, QueryCause
from r2med.diagnose.loaded_runs import HEADLINE
from r2med.runs.cost import Cost
from r2med.web.addresses import PageContent, Pages, page_number, sort_links
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request


def runs_page(library: Library, request: Request) -> PageContent:
    """Every run of the ledger, newest first."""
    asked = request.query_params
    wanted, oracles = asked.get("q", "").casefold().split(), asked.get("oracles") == "1"
    matching = [
        e for e in library.entries() if all(word in f"{e.id}\n{e.system}\n{e.task}".casefold() for word in wanted)
    ]
    entries = [e for e in matching if oracles or not e.oracle]
    pages = Pages.of(len(entries), page_number(asked, "page"))
    values = {
        "entries": entries[pages.cut()],
        "pages": pages,
        "links": sort_links(request, "rank"),
        "means": library.means(),
    }
    hidden = len(matching) - len(entries)
    return "runs.html", {**values, "text": asked.get("q", ""), "oracles": oracles, "hidden": hidden}


def run_page(library: Library, request: Request) -> PageContent:
    """A run with everything that was recorded, and its queries."""
    entry = library.entry(request.path_params["id"])
    asked = request.query_params
    values, found = library.headline(entry), library.causes(entry)
    causes = {each.query: each for each in found.queries} if found else {}
    rows = [(query, values.get(query, 0.0), library.query_text(entry.task, query)) for query in entry.queries]
    wanted, cause = asked.get("q", "").casefold().strip(), asked.get("cause", "")
    rows = [row for row in rows if wanted in f"{row[0]}\n{row[2]}".casefold() and _has_cause(causes.get(row[0]), cause)]
    links = sort_links(request, "lowest")
    if links.sort in ("lowest", "highest"):
        rows.sort(key=lambda row: row[1], reverse=links.sort == "highest")
    pages = Pages.of(len(rows), page_number(asked, "page"))
    record = orjson.dumps(entry.record.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return "run.html", {
        "entry": entry, "means": _headline_first(library.means().get(entry.id, {})),
        "rows": rows[pages.cut()], "pages": pages,
        "links": links, "record": record.decode("utf-8", "replace"), "cost": Cost.of_runs([entry]),
        "text": asked.get("q", ""), "causes": causes, "cause": cause,
        "known_causes": [each.value for each in Cause if any(_has_cause(row, each.value) for row in causes.values())],
    }  # fmt: skip


def _headline_first(means: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(means.items(), key=lambda pair: pair[0] != str(HEADLINE)))


def _has_cause(found: QueryCause | None, cause: str) -> bool:
    """Whether one of a query's relevant documents has a cause; with no cause asked for, always."""
    return not cause or (found is not None and any(each.cause.value == cause for each in found.positives))
