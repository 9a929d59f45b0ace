"""Links to the desk: a secret per reviewer, stored only as a hash, which can be withdrawn at any time."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from urllib.parse import quote, unquote

from r2med.errors import R2medError
from r2med.reviews.agreement_job import AgreementJobs
from r2med.reviews.batches import Dealer
from r2med.reviews.desk import Desk
from r2med.reviews.rows import PERSON, REVIEWER, Reviewer, review_path
from r2med.reviews.store import ReviewStore
from r2med.web.access import Entrance, Visit


def invite(store: ReviewStore, name: str, role: str = REVIEWER) -> str:
    """Return the secret of a new link for a reviewer; earlier links stay valid until they are withdrawn."""
    secret = secrets.token_urlsafe(24)  # 192 bits cannot be guessed
    store.add_invitation(store.add_reviewer(name, PERSON, role).id, secret)
    return secret


def join_path(project: str, secret: str) -> str:
    """Return the path of a link.

    >>> join_path("pilot", "s3cret")
    '/review/pilot/join/s3cret'
    """
    return f"/review/{quote(project)}/join/{quote(secret)}"


def withdraw(store: ReviewStore, name: str) -> tuple[int, int]:
    """Withdraw a reviewer's links; return how many, and how many items others are dealt now. Decisions stay."""
    reviewer = store.reviewer(name)
    links = store.withdraw(reviewer.id)
    if not links:
        raise R2medError(f"{name} has no link that holds; r2med review show {store.project.name} lists them")
    return links, Dealer(store).release(reviewer)


PLACE = "/review"
_MOST, _WINDOW = 10, 60.0  # so many wrong secrets may come from an address within so many seconds
_REMEMBERED = 10_000  # addresses with wrong secrets, and right secrets, that are remembered
_WRONG = "this link does not open a review, or it was withdrawn; ask whoever invited you for a new one"
_NO_LINK = "this page opens with the link that you were sent; the owner opens the address that r2med serve printed"
_LOCKED = "too many wrong links came from your address; wait a minute and open yours again"


class ReviewDoor:
    """Access to desks by secret; every store is opened once and stays open."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self.agreements = AgreementJobs()
        # With the number of the file, which another one may have replaced.
        self._desks: dict[str, tuple[int, Desk]] = {}
        # When wrong secrets came from an address, and secrets that were right once: those at work are not locked out.
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._valid: OrderedDict[tuple[str, str], None] = OrderedDict()

    def close(self) -> None:
        """Stop the computation of agreements."""
        self.agreements.close()

    def entrance(self) -> Entrance:
        """Return the entrance of the desk, for the rules of access."""
        return Entrance(PLACE, self.opens, self.why_not)

    def desk(self, name: str) -> Desk:
        """Return the desk of a project; one that does not exist is an error."""
        path = review_path(name)
        with self._lock:
            inode = path.stat().st_ino if path.exists() else -1
            if name not in self._desks or self._desks[name][0] != inode:
                self._desks[name] = (inode, Desk(ReviewStore(path)))
            return self._desks[name][1]

    def opens(self, visit: Visit) -> bool:
        """Return whether a request comes with a link to what it asks for; wrong secrets are counted."""
        if visit.below(PLACE):
            return all(named(visit)) and self._admits(visit, *named(visit))
        prefix = cookie_name(visit, "")
        secrets_by_name = [(key.removeprefix(prefix), s) for key, s in visit.cookies.items() if key.startswith(prefix)]
        return any(self._admits(visit, name, secret) for name, secret in secrets_by_name)

    def why_not(self, visit: Visit) -> str:
        """Return the message for a request that is refused."""
        if visit.path == PLACE:
            return ""
        if not named(visit)[1]:
            return _NO_LINK
        return _LOCKED if self._is_locked(visit.client) else _WRONG

    def person(self, visit: Visit) -> tuple[Desk, Reviewer] | None:
        """Return the desk of a request and its reviewer; None without a valid link."""
        name, secret = named(visit)
        try:
            desk = self.desk(name)
        except R2medError:
            return None
        reviewer = desk.store.admitted(secret)
        return (desk, reviewer) if reviewer else None

    def _is_locked(self, address: str) -> bool:
        with self._lock:
            times = self._wrong.get(address, deque())
            return len(times) == _MOST and self._clock() - times[0] < _WINDOW

    def _admits(self, visit: Visit, name: str, secret: str) -> bool:
        if (name, secret) not in self._valid and self._is_locked(visit.client):
            return False
        try:
            valid = self.desk(name).store.admitted(secret) is not None
        except R2medError:
            valid = False
        with self._lock:
            if valid:
                self._valid[name, secret] = None
            else:
                self._valid.pop((name, secret), None)
                self._wrong.setdefault(visit.client, deque(maxlen=_MOST)).append(self._clock())
                self._wrong.move_to_end(visit.client)
            for remembered in (self._valid, self._wrong):
                if len(remembered) > _REMEMBERED:
                    remembered.popitem(last=False)
        return valid


def named(visit: Visit) -> tuple[str, str]:
    """Return the project of a request and its secret, from the link or the cookie."""
    match = re.match(r"/review/([^/]+)(?:/join/([^/]+))?", visit.path)
    if not match:
        return "", ""
    name = unquote(match[1])
    return name, unquote(match[2]) if match[2] else visit.cookies.get(cookie_name(visit, name), "")


def cookie_name(visit: Visit, name: str) -> str:
    """Return the name of a project's cookie; it contains the port, since browsers share cookies between ports."""
    port = re.search(r":([0-9]+)$", visit.host)
    return f"r2med_review_{port[1] if port else ''}_{name}"


def cookie(visit: Visit, name: str, secret: str) -> str:
    """Return the cookie that admits a browser: it is hidden from scripts and not sent from other sites."""
    secure = "; Secure" if visit.scheme == "https" else ""
    return f"{cookie_name(visit, name)}={secret}; Max-Age={180 * 24 * 3600}; Path=/; HttpOnly; SameSite=Strict{secure}"
