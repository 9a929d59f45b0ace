"""What search engines elsewhere have answered, kept by the content of the request in one SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from r2med.storage.home import home
from r2med.storage.sqlite import Database, Format, StoreError, seal

_REPLIES = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,
    hits TEXT NOT NULL,
    seconds REAL NOT NULL,
    seal INTEGER NOT NULL
) WITHOUT ROWID;
"""
_FORMAT = Format("file of engine replies", (_REPLIES,))


class KeptReply(NamedTuple):
    """One query's hits, and how long the request took that brought them."""

    hits: Sequence[Any]
    seconds: float


class EngineReplies:
    """The file in `R2MED_HOME`; a row that turns out damaged is as good as none."""

    def __init__(self) -> None:
        self._db = Database(home() / "engines.sqlite", _FORMAT)

    def __enter__(self) -> EngineReplies:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def find(self, key: str) -> KeptReply | None:
        """The reply to a request that was asked before."""
        for hits, seconds, written in self._db.rows("SELECT hits, seconds, seal FROM replies WHERE key = ?", (key,)):
            if seal(key, hits, seconds) == written:
                return KeptReply(orjson.loads(hits), seconds)
        return None

    def add(self, key: str, reply: KeptReply) -> None:
        """Keep a reply, at once; where nothing can be written it is only not kept."""
        hits = orjson.dumps(reply.hits).decode()
        row = (key, hits, float(reply.seconds))
        with suppress(StoreError), self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", (*row, seal(*row)))
