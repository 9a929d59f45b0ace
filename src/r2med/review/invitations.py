"""Links to the desk: a secret for each person, kept only as a hash, and withdrawn at any time."""

from __future__ import annotations

import secrets
from typing import NamedTuple
from urllib.parse import quote

from r2med.errors import R2medError
from r2med.review.dealing import Dealer
from r2med.review.review_rows import PERSON, REVIEWER, Reviewer
from r2med.review.review_store import ReviewStore

_BYTES = 24
"""Of a secret: nobody guesses 192 bits, however fast they ask."""


class Invited(NamedTuple):
    """Somebody, and the secret that is told once and never again."""

    reviewer: Reviewer
    secret: str


class Withdrawn(NamedTuple):
    """What withdrawing somebody's links did."""

    links: int
    released: int
    """Items that they held and had not looked at, which others are dealt now."""


def invite(store: ReviewStore, name: str, role: str = REVIEWER) -> Invited:
    """A new link for somebody; those given before hold until they are withdrawn."""
    reviewer = store.add_reviewer(name, PERSON, role)
    secret = secrets.token_urlsafe(_BYTES)
    store.add_invitation(reviewer.id, secret)
    return Invited(reviewer, secret)


def join_path(project: str, secret: str) -> str:
    """The path of a link.

    >>> join_path("pilot", "s3cret")
    '/review/pilot/join/s3cret'
    """
    return f"/review/{quote(project)}/join/{quote(secret)}"


def withdraw(store: ReviewStore, name: str) -> Withdrawn:
    """Let somebody's links open nothing any more; their decisions stay."""
    reviewer = store.reviewer(name)
    links = store.withdraw(reviewer.id)
    if not links:
        raise R2medError(f"{name} has no link that holds; r2med review show {store.project.name} lists them")
    return Withdrawn(links, Dealer(store).release(reviewer))
