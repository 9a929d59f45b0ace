"""Replies of remote search engines, cached by the content of the request in one SQLite file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from r2med.store.cache import home
from r2med.store.sqlite import Database, Format, StoreError, seal

_REPLIES = """
CREATE TABLE replies (
    key TEXT PRIMARY KEY,
    hits TEXT NOT NULL,
    seconds REAL NOT NULL,
    seal INTEGER NOT NULL
) WITHOUT ROWID;
"""
_FILE = "engines.sqlite"
_FORMAT = Format("file of engine replies", 1, _REPLIES, cache=True)


class KeptReply(NamedTuple):
    """Hits of one query, and how long the request took that brought them."""

    hits: Sequence[Any]
    seconds: float


class KeptReplies(NamedTuple):
    """Size of the file."""

    queries: int
    bytes: int


class EngineReplies:
    """Replies in a file in `R2MED_HOME`; a damaged row counts as missing."""

    def __init__(self) -> None:
        self._db = Database(home() / _FILE, _FORMAT)

    def __enter__(self) -> EngineReplies:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def find(self, key: str) -> KeptReply | None:
        """Return the cached reply to a request, or None."""
        for hits, seconds, written in self._db.rows("SELECT hits, seconds, seal FROM replies WHERE key = ?", (key,)):
            if seal(key, hits, seconds) == written:
                return KeptReply(orjson.loads(hits), seconds)
        return None

    def add(self, key: str, reply: KeptReply) -> None:
        """Store a reply at once; ignore it if the file cannot be written."""
        hits = orjson.dumps(reply.hits).decode()
        row = (key, hits, float(reply.seconds))
        with suppress(StoreError), self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", (*row, seal(*row)))

    def forget(self, keys: Iterable[str]) -> None:
        """Remove replies that turned out to be unusable."""
        with suppress(StoreError), self._db.transaction() as db:
            db.executemany("DELETE FROM replies WHERE key = ?", [(key,) for key in keys])

    def holdings(self) -> KeptReplies:
        """Return how many replies are stored, and how large they are."""
        query = "SELECT count(*), coalesce(sum(length(key) + length(CAST(hits AS BLOB))), 0) FROM replies"
        return KeptReplies(*self._db.rows(query)[0])

    def clear(self) -> int:
        """Remove every reply. Return how many were removed."""
        with self._db.transaction() as db:
            gone = db.execute("DELETE FROM replies").rowcount
        if gone:
            self._db.connection.execute("VACUUM")
        return gone


def kept_replies() -> KeptReplies:
    """Return how many replies of search engines are stored, without creating a file if there is none."""
    if not (home() / _FILE).is_file():
        return KeptReplies(0, 0)
    with EngineReplies() as replies:
        return replies.holdings()


def clear_replies() -> int:
    """Remove the stored replies of search engines. Return how many were removed."""
    if not kept_replies().queries:
        return 0
    with EngineReplies() as replies:
        return replies.clear()
