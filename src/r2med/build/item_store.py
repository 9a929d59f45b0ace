"""What each step of a build made of each item: one SQLite file, a sealed row for an item, kept as it is finished.

A row carries the key of everything it depends on. A row whose key is no longer what the plan asks for, or whose seal
is broken, counts as not there and is made again; nothing else is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from r2med.storage.sqlite import Database, Format, seal

STORE = "build.sqlite"
KEPT, DROPPED, FAILED = "kept", "dropped", "failed"

_FORMAT = Format(
    "store of a build",
    (
        """
        CREATE TABLE item (
            step TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
            value BLOB NOT NULL, requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
            completion_tokens INTEGER NOT NULL, cost REAL, seal INTEGER NOT NULL, PRIMARY KEY (step, id)
        ) WITHOUT ROWID
        """,
    ),
)
_COUNTS = "counts"
_COLUMNS = "id, key, state, reason, value, requests, prompt_tokens, completion_tokens, cost"


@dataclass(frozen=True)
class Spent:
    """What making an item took of models, kept answers included: the same whoever paid and when."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    """US dollars; None when a price is unknown."""

    def __add__(self, other: Spent) -> Spent:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Spent(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            cost,
        )


@dataclass(frozen=True)
class Outcome:
    """What a step made of an item."""

    value: Mapping[str, Any] = field(default_factory=dict)
    dropped: str = ""
    """Why the item goes no further; empty where it does."""
    failed: str = ""
    """Why no model answered; such an item is asked again the next time."""
    marks: tuple[str, ...] = ()
    """What is counted although the item goes on."""
    spent: Spent = field(default_factory=Spent)

    def as_kept(self) -> Outcome:
        """The same as it will come out of the store: lists where there were tuples."""
        return replace(self, value=orjson.loads(orjson.dumps(self.value, default=list)))

    @property
    def state(self) -> str:
        """kept, dropped or failed."""
        return FAILED if self.failed else DROPPED if self.dropped else KEPT


@dataclass(frozen=True)
class Count:
    """How a step went."""

    step: str
    items: int = 0
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Why items went no further, and how many."""
    failed: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)


class KeptRow(NamedTuple):
    """An item of a step as it is kept."""

    key: str
    outcome: Outcome

    def stands(self, key: str) -> bool:
        """Whether it need not be made again."""
        return self.key == key and self.outcome.state != FAILED


class ItemStore:
    """The results of a build's steps, by step and item."""

    def __init__(self, folder: Path) -> None:
        self._file = Database(folder / STORE, _FORMAT, shared=True)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> ItemStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kept(self, step: str) -> dict[str, KeptRow]:
        """Every sound row of a step."""
        rows = self._file.rows(f"SELECT {_COLUMNS}, seal FROM item WHERE step = ? ORDER BY id", (step,))
        return {row[0]: KeptRow(row[1], _outcome(row)) for row in rows if _whole(step, row)}

    def outcome(self, step: str, identifier: str) -> Outcome | None:
        """One row; None where there is none."""
        rows = self._file.rows(f"SELECT {_COLUMNS}, seal FROM item WHERE step = ? AND id = ?", (step, identifier))
        return next((_outcome(row) for row in rows if _whole(step, row)), None)

    def put(self, step: str, rows: Iterable[tuple[str, str, Outcome]]) -> None:
        """Keep items with their keys, all or none of them."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_row(step, identifier, key, outcome) for identifier, key, outcome in rows],
            )

    def retain(self, step: str, identifiers: Iterable[str]) -> None:
        """Forget items of a step that are no longer there."""
        gone = self._identifiers(step) - set(identifiers)
        if gone:
            with self._file.transaction() as connection:
                connection.executemany(
                    "DELETE FROM item WHERE step = ? AND id = ?", [(step, identifier) for identifier in sorted(gone)]
                )

    def put_count(self, count: Count) -> None:
        """Keep how a finished step went."""
        self.put(_COUNTS, [(count.step, "", Outcome(asdict(count)))])

    def forget_counts(self) -> None:
        """A new pass over the steps begins."""
        self.retain(_COUNTS, ())

    def counts(self) -> dict[str, Count]:
        """How the steps went that the last pass finished."""
        return {
            name: Count(**dict(row.outcome.value) | {"spent": Spent(**row.outcome.value["spent"])})
            for name, row in self.kept(_COUNTS).items()
        }

    def _identifiers(self, step: str) -> set[str]:
        return {row[0] for row in self._file.rows("SELECT id FROM item WHERE step = ?", (step,))}


def count_outcomes(step: str, outcomes: Sequence[Outcome]) -> Count:
    """How a step went, by what became of its items."""
    return Count(
        step,
        len(outcomes),
        sum(outcome.state == KEPT for outcome in outcomes),
        dict(Counter(outcome.dropped for outcome in outcomes if outcome.state == DROPPED)),
        dict(Counter(outcome.failed for outcome in outcomes if outcome.failed)),
        dict(Counter(mark for outcome in outcomes for mark in outcome.marks)),
        sum((outcome.spent for outcome in outcomes), Spent()),
    )


def _row(step: str, identifier: str, key: str, outcome: Outcome) -> tuple[Any, ...]:
    value = orjson.dumps({"value": outcome.value, "marks": outcome.marks}, default=list)
    reason, spent = outcome.failed or outcome.dropped, outcome.spent
    tokens = (spent.requests, spent.prompt_tokens, spent.completion_tokens)
    row = (step, identifier, key, outcome.state, reason, value, *tokens, spent.cost)
    return (*row, seal(*row))


def _whole(step: str, row: Sequence[Any]) -> bool:
    return bool(seal(step, *row[:-1]) == row[-1])


def _outcome(row: Sequence[Any]) -> Outcome:
    _, _, state, reason, value, requests, prompt, completion, cost, _ = row
    content = orjson.loads(value)
    return Outcome(
        content["value"],
        reason if state == DROPPED else "",
        reason if state == FAILED else "",
        tuple(content["marks"]),
        Spent(requests, prompt, completion, cost),
    )
