"""What runs right now, and what was finished last."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from r2med.storage.progress import in_progress
from r2med.web.addresses import PageContent
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request

_REMEMBERED = 3600.0
"""Seconds for which a finished job is shown."""


def progress_page(library: Library, request: Request) -> PageContent:
    """What runs right now, and what was finished last."""
    return "progress.html", progress_bars(library, request)[1]


def progress_bars(library: Library, request: Request) -> PageContent:
    """Only what changes."""
    jobs = [job for job in reversed(library.jobs.all()) if job.active or time.time() - job.ended < _REMEMBERED]
    values = {"works": in_progress(), "jobs": jobs, "own": os.getpid(), "now": time.time()}
    return "_bars.html", {**values, "entries": library.entries()[:10]}
