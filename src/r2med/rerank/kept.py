"""Every score ever computed, in one SQLite file: a pair of texts under one setting is scored once.

A batch is committed as soon as it is scored, so a process that is killed loses the batch it was working on and no more.
A setting is everything the scores depend on besides the two texts; the texts are known by their hashes alone, so a
query and a document that meet again in another task cost nothing.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from r2med.errors import R2medError
from r2med.store.cache import cache_key
from r2med.store.home import home

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS scores (
    setting INTEGER NOT NULL,
    pair BLOB NOT NULL,
    score REAL NOT NULL,
    tokens INTEGER NOT NULL,
    query_lost INTEGER NOT NULL,
    PRIMARY KEY (setting, pair)
) WITHOUT ROWID;
"""
_AT_A_TIME = 500


class Scored(NamedTuple):
    """What is kept of a pair."""

    score: float
    tokens: int = 0
    """Its length in the model's tokens before anything was cut; 0 where nobody counts."""
    query_lost: int = 0
    """How many tokens of the query could not be read."""


def text_digest(text: str) -> bytes:
    """A text's 16-byte hash."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def pair_digest(query: bytes, document: bytes) -> bytes:
    """The hash of a pair, from the hashes of its texts.

    >>> one, two = text_digest("why?"), text_digest("because")
    >>> len(pair_digest(one, two)), pair_digest(one, two) == pair_digest(two, one)
    (16, False)
    """
    return hashlib.blake2b(query + document, digest_size=16).digest()


class ScoreStore:
    """The kept scores of one setting. Several processes may use one file."""

    def __init__(self, settings: Mapping[str, object], path: Path | None = None) -> None:
        self.path = path or home() / "rerank.sqlite"
        try:
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            # With a write-ahead log this survives any death of the process; only a power cut may take the last scores.
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version = {_VERSION};COMMIT;")
            elif version > _VERSION:
                raise R2medError(f"{self.path}: written by a newer r2med (format {version}); upgrade r2med to read it")
            self._setting = self._find_setting(settings)
        except (sqlite3.DatabaseError, OSError) as error:
            raise R2medError(f"{self.path}: cannot keep scores there ({error}); move the file away") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def _find_setting(self, settings: Mapping[str, object]) -> int:
        key = cache_key(settings=sorted(settings.items()))
        text = orjson.dumps(dict(settings), default=repr, option=orjson.OPT_SORT_KEYS).decode()
        self._db.execute("INSERT OR IGNORE INTO settings (key, settings) VALUES (?, ?)", (key, text))
        return int(self._db.execute("SELECT id FROM settings WHERE key = ?", (key,)).fetchone()[0])

    def find(self, pairs: Iterable[bytes]) -> dict[bytes, Scored]:
        """What is known of these pairs."""
        wanted = list(dict.fromkeys(pairs))
        found: dict[bytes, Scored] = {}
        for start in range(0, len(wanted), _AT_A_TIME):
            part = wanted[start : start + _AT_A_TIME]
            marks = ",".join("?" * len(part))
            query = f"SELECT pair, score, tokens, query_lost FROM scores WHERE setting = ? AND pair IN ({marks})"
            rows = self._execute(query, (self._setting, *part))
            found |= {pair: Scored(score, tokens, lost) for pair, score, tokens, lost in rows}
        return found

    def keep(self, pairs: Sequence[bytes], scored: Sequence[Scored]) -> None:
        """Write a batch down for good."""
        rows = [(self._setting, pair, *values) for pair, values in zip(pairs, scored, strict=True)]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise R2medError(f"{self.path}: scores cannot be kept ({error})") from error

    def __len__(self) -> int:
        return int(self._execute("SELECT count(*) FROM scores WHERE setting = ?", (self._setting,))[0][0])

    def _execute(self, query: str, values: tuple[object, ...]) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise R2medError(f"{self.path}: cannot be read ({error}); move the file away") from error
