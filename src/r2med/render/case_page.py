"""Cases as one HTML page that needs nothing else: no script, no other file, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence

from r2med.diagnose.cases import Case
from r2med.render.case_screen import LEGEND, shown_terms, written
from r2med.render.html import inlined, render

_SUMMARY = 160
"""Characters of a document that are shown before it is opened."""


def page(cases: Sequence[Case], title: str) -> str:
    """A whole page of cases."""
    facts = {
        "cases": cases,
        "title": title,
        "legend": LEGEND,
        "written": written,
        "letters": _SUMMARY,
        "terms": shown_terms,
    }
    return render("cases.html", inlined({"Queries": "#main"}), **facts)
