"""The live page: what runs right now, what became of it, and the way to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.render.html import drawn
from r2med.web.addresses import PageContent
from r2med.web.citing import Citation
from r2med.web.library import Library
from r2med.web.live_feed import LiveFeed

if TYPE_CHECKING:
    from starlette.requests import Request


def progress_page(library: Library, request: Request) -> PageContent:
    """What runs right now, and what was finished last."""
    feed: LiveFeed = request.app.state.feed
    return "progress.html", {"cite": Citation("In progress"), "cards": [drawn(card.html) for card in feed.cards()]}
