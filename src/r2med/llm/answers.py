"""Every answer ever paid for, in one SQLite file: found again by the hash of its request, by any process, at any time.

An answer is committed the moment it arrives, so a process that is killed loses only what was still under way. What is
kept is what the server said; the reasoning is told from the answer anew each time, so better parsing costs nothing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import orjson

from r2med.errors import R2medError
from r2med.llm.types import Answer, Request, Token, Usage
from r2med.llm.wire import body
from r2med.store.home import home

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    created TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    request TEXT NOT NULL,
    answer TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_model ON answers (model, completion_tokens);
"""
_AT_A_TIME = 500


class Answers:
    """The file of kept answers. One object may serve several threads; several processes may use one file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "llm.sqlite"
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            # With a write-ahead log this survives any death of the process; only a power cut may take the last answers.
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version = {_VERSION};COMMIT;")
        except (sqlite3.DatabaseError, OSError) as error:
            raise R2medError(f"{self.path}: cannot keep answers there ({error}); move the file away") from error
        if version > _VERSION:
            raise R2medError(f"{self.path}: written by a newer r2med (format {version}); upgrade r2med to read it")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def find(self, keys: Iterable[str]) -> dict[str, Answer]:
        """The kept answers among these keys."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Answer] = {}
        for start in range(0, len(wanted), _AT_A_TIME):
            part = wanted[start : start + _AT_A_TIME]
            marks = ",".join("?" * len(part))
            with self._lock:
                rows = self._db.execute(f"SELECT key, answer FROM answers WHERE key IN ({marks})", part).fetchall()
            found |= {key: _decode(text) for key, text in rows}
        return found

    def keep(self, key: str, request: Request, answer: Answer) -> None:
        """Write an answer down for good, before anyone uses it."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        asked, said = orjson.dumps(body(request)).decode(), _encode(answer)
        row = (key, request.model.id, now, answer.usage.prompt, answer.usage.completion, asked, said)
        try:
            with self._lock:
                self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.DatabaseError as error:
            raise R2medError(f"{self.path}: an answer cannot be kept ({error}); nothing more is asked") from error

    def typical_length(self, model: str) -> float | None:
        """The mean length of a model's kept answers in tokens, or None when there are none."""
        query = "SELECT avg(completion_tokens) FROM answers WHERE model = ?"
        with self._lock:
            mean = self._db.execute(query, (model,)).fetchone()[0]
        return None if mean is None else float(mean)

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM answers").fetchone()[0])


def _encode(answer: Answer) -> str:
    tokens = [list(token) for token in answer.logprobs]
    return orjson.dumps({**vars(answer), "usage": vars(answer.usage), "logprobs": tokens}).decode()


def _decode(text: str) -> Answer:
    data = orjson.loads(text)
    tokens = tuple(Token(word, value, tuple(map(tuple, top))) for word, value, top in data.pop("logprobs"))
    return Answer(**{**data, "usage": Usage(**data["usage"]), "logprobs": tokens})
