"""Every score ever computed, in one SQLite file: a pair of texts under one setting is scored once.

A batch is committed as soon as it is scored, so a process that is killed loses the batch it was working on and no more.
A setting is everything the scores depend on besides the two texts; the texts are known by their hashes alone, so a
query and a document that meet again in another task cost nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import orjson

from r2med.store.cache import cache_key
from r2med.store.home import home
from r2med.store.sqlite import Database, Format, StoreError, seal, warn

_FORMAT_1 = """
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
_FORMAT_2 = """
ALTER TABLE scores ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
UPDATE scores SET seal = seal(
    (SELECT key FROM settings WHERE settings.id = scores.setting), pair, score, tokens, query_lost
);
"""
_FORMAT = Format("file of kept scores", (_FORMAT_1, _FORMAT_2))
_AT_A_TIME = 500
_ROW = 16 + 5 * 8
"""Bytes of a row: the hash of the pair and five numbers."""


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
        self._db = Database(self.path, _FORMAT)
        self._setting = self._find_setting(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def _find_setting(self, settings: Mapping[str, object]) -> int:
        key = self._key = cache_key(settings=sorted(settings.items()))
        text = orjson.dumps(dict(settings), default=repr, option=orjson.OPT_SORT_KEYS).decode()
        query = "SELECT id FROM settings WHERE key = ?"
        if not self._db.rows(query, (key,)) and not self._db.obstacle:
            with self._db.transaction() as db:
                db.execute("INSERT OR IGNORE INTO settings (key, settings) VALUES (?, ?)", (key, text))
        return int(next(iter(self._db.rows(query, (key,))), (-1,))[0])

    def find(self, pairs: Iterable[bytes]) -> dict[bytes, Scored]:
        """What is known of these pairs."""
        wanted = list(dict.fromkeys(pairs))
        found: dict[bytes, Scored] = {}
        for start in range(0, len(wanted), _AT_A_TIME):
            part = wanted[start : start + _AT_A_TIME]
            marks = ",".join("?" * len(part))
            query = f"SELECT pair, score, tokens, query_lost, seal FROM scores WHERE setting = ? AND pair IN ({marks})"
            rows = self._db.rows(query, (self._setting, *part))
            sound = [row for row in rows if seal(self._key, *row[:4]) == row[4]]
            if len(sound) < len(rows):
                warn(f"{self.path}: {len(rows) - len(sound)} kept scores are damaged and computed again")
            found |= {pair: Scored(score, tokens, lost) for pair, score, tokens, lost, _ in sound}
        return found

    def keep(self, pairs: Sequence[bytes], scored: Sequence[Scored]) -> None:
        """Write a batch down for good; where that cannot be done, it is said and the work goes on."""
        rows = [(pair, float(score), tokens, lost) for pair, (score, tokens, lost) in zip(pairs, scored, strict=True)]
        sealed = [(self._setting, *row, seal(self._key, *row)) for row in rows]
        try:
            with self._db.transaction() as db:
                db.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?, ?)", sealed)
        except StoreError as error:
            warn(f"scores are computed but not kept: {error}")

    def __len__(self) -> int:
        return int(self._db.rows("SELECT count(*) FROM scores WHERE setting = ?", (self._setting,))[0][0])


@dataclass(frozen=True)
class KeptScores:
    """The kept scores of a model under one setting."""

    model: str
    server: str
    """The address that gave them; empty for a model that runs here."""
    scores: int
    bytes: int
    """Of the values; the file has some more around them."""
    setting: int


def kept_scores(path: Path | None = None) -> list[KeptScores]:
    """What the file of scores holds, by setting."""
    place = path or home() / "rerank.sqlite"
    if not place.is_file():
        return []
    database = Database(place, _FORMAT)
    query = "SELECT settings, count(*), id FROM scores JOIN settings ON setting = id GROUP BY id"
    try:
        rows = database.rows(query)
    finally:
        database.close()
    found = [(orjson.loads(text), count, setting) for text, count, setting in rows]
    kept = [
        KeptScores(str(values.get("model", "?")), str(values.get("url", "")), count, count * _ROW, setting)
        for values, count, setting in found
    ]
    return sorted(kept, key=lambda each: (each.model, each.server, each.setting))


def clear_scores(model: str = "", path: Path | None = None) -> int:
    """Forget the scores of a model, or of all. Returns how many went."""
    chosen = [each for each in kept_scores(path) if not model or each.model.lower() == model.lower()]
    if not chosen:
        return 0
    database = Database(path or home() / "rerank.sqlite", _FORMAT)
    try:
        with database.transaction() as db:
            db.executemany("DELETE FROM scores WHERE setting = ?", [(each.setting,) for each in chosen])
        database.connection.execute("VACUUM")
    finally:
        database.close()
    return sum(each.scores for each in chosen)
