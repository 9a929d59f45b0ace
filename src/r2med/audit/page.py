"""The page of corrected scores: as published, filled by a judge, and corrected by people, side by side."""

from __future__ import annotations

import shlex

from starlette.requests import Request

from r2med.audit.corrected_scores import saved_corrections
from r2med.audit.corrected_tables import corrected_sections, score_chart
from r2med.render.charts.chart import responsive
from r2med.render.table import plain
from r2med.web.addresses import PageContent, one_of
from r2med.web.citation import citation
from r2med.web.library import Library


def correct_page(_: Library, request: Request) -> PageContent:
    """Show the last corrected scores of a task."""
    saved = {correction.scores.task: correction for correction in saved_corrections()}
    asked = request.query_params.get("task", "")
    task = one_of(asked, list(saved), "task with corrected scores") if asked else next(iter(saved), "")
    if not task:
        return "audit/correct.html", {"task": "", "tasks": []}
    scores = saved[task].scores
    sections = [
        {"title": part.title, "headings": part.headings, "sentences": part.sentences}
        | {"rows": [[plain(cell) for cell in row] for row in part.rows]}
        for part in corrected_sections(scores)
    ]
    cite = citation(f"Corrected scores on {task}", *shlex.split(saved[task].command)[1:])
    values = {"task": task, "tasks": list(saved), "sections": sections, "notes": scores.notes, "cite": cite}
    return "audit/correct.html", {**values, "chart": responsive(score_chart(scores))}
