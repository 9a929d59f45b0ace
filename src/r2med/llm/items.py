"""Outcomes of the steps of a build: one SQLite file with a sealed row per item, written as it is finished.

A row carries the key of everything it depends on. A row whose key differs from the plan's, or whose seal is broken,
counts as missing and is made again; no other row is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from r2med.store.sqlite import DamagedError, Database, Format, seal
from r2med.usage import Usage

STORE = "build.sqlite"
KEPT, DROPPED, FAILED = "kept", "dropped", "failed"
ASKED_AGAIN = "a reply could not be used, the same command asks again"
"""The mark of an item that is kept for now, and made again by the next command."""
_FORMAT = Format(
    "store of a build",
    1,
    """
    CREATE TABLE item (
        step TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
        value BLOB NOT NULL, requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, cost REAL, seal INTEGER NOT NULL, PRIMARY KEY (step, id)
    ) WITHOUT ROWID
    """,
)
_COUNTS = "counts"
_COLUMNS = "id, key, state, reason, value, requests, prompt_tokens, completion_tokens, cost"


@dataclass(frozen=True)
class Outcome:
    """Result of a step for an item."""

    value: Mapping[str, Any] = field(default_factory=dict)
    dropped: str = ""  # why the item goes no further; empty if it does
    failed: str = ""  # why no model answered; such an item is asked again the next time
    marks: tuple[str, ...] = ()  # what is counted although the item goes on
    spent: Usage = field(default_factory=Usage)  # of models, stored answers included: the same in every command

    @property
    def state(self) -> str:
        """Return the state: kept, dropped or failed."""
        return FAILED if self.failed else DROPPED if self.dropped else KEPT


@dataclass(frozen=True)
class Count:
    """Counts of a step's outcomes."""

    step: str
    items: int = 0
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # why items went no further, and how many
    failed: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    spent: Usage = field(default_factory=Usage)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The items behind each reason they were dropped for, if these are files."""

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {**vars(self), "spent": self.spent.bill()}

    @property
    def left(self) -> int:
        """Return the number of items that the same command asks about again: failed ones and unusable replies."""
        return sum(self.failed.values()) + self.marks.get(ASKED_AGAIN, 0)


class KeptRow(NamedTuple):
    """A stored item of a step."""

    key: str
    outcome: Outcome


class ItemStore:
    """The results of a build's steps, by step and item."""

    def __init__(self, folder: Path) -> None:
        self._file = Database(folder / STORE, _FORMAT, shared=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ItemStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kept(self, step: str) -> dict[str, KeptRow]:
        """Return every sound row of a step."""
        return {row[0]: KeptRow(row[1], _outcome(row)) for row in self._rows(step) if _whole(step, row)}

    def stream(self, step: str) -> Iterator[tuple[str, Outcome]]:
        """Yield every sound row of a step in the order of ids, a few in memory at a time."""
        return ((row[0], _outcome(row)) for row in self._rows(step) if _whole(step, row))

    def broken(self, step: str) -> list[str]:
        """Return the rows of a step whose checksum does not match."""
        return [row[0] for row in self._rows(step) if not _whole(step, row)]

    def _rows(self, step: str, least: str = "", below: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield rows by id, from one id on and below another."""
        end, values = ("", (step, least)) if below is None else (" AND id < ?", (step, least, below))
        query = f"SELECT {_COLUMNS}, seal FROM item WHERE step = ? AND id >= ?{end} ORDER BY id"
        return self._file.stream(query, values)

    def below(self, step: str, parent: str) -> dict[str, Outcome]:
        """Return the sound rows of a step whose ids are those of a parent and, after a tab, of a part; by the part."""
        # The character after a tab is a line feed: no id of a parent has either in it.
        rows = self._rows(step, f"{parent}\t", f"{parent}\n")
        return {row[0].partition("\t")[2]: _outcome(row) for row in rows if _whole(step, row)}

    def keys(self, step: str) -> dict[str, str]:
        """Return the key of each row that did not fail, empty for one that did; values and seals are not read."""
        key = f"CASE state WHEN '{FAILED}' THEN '' ELSE key END"
        return dict(self._file.stream(f"SELECT id, {key} FROM item WHERE step = ?", (step,)))

    def outcome(self, step: str, identifier: str) -> Outcome | None:
        """Return one row; None if there is none."""
        rows = self._file.rows(f"SELECT {_COLUMNS}, seal FROM item WHERE step = ? AND id = ?", (step, identifier))
        return next((_outcome(row) for row in rows if _whole(step, row)), None)

    def sound(self, step: str, identifier: str) -> Outcome:
        """Return one row that must exist; raise if it is lost."""
        outcome = self.outcome(step, identifier)
        if outcome is None:
            raise DamagedError(f"{self._file.path}: {identifier!r} of {step} is lost; run the same command again")
        return outcome

    def put(self, step: str, rows: Iterable[tuple[str, str, Outcome]]) -> None:
        """Store items with their keys, all or none of them."""
        sealed = []
        for identifier, key, outcome in rows:
            value = orjson.dumps({"value": outcome.value, "marks": outcome.marks}, default=list)
            reason, spent = outcome.failed or outcome.dropped, outcome.spent
            key = "" if ASKED_AGAIN in outcome.marks else key  # no item has this key, so it counts as not there
            tokens = (spent.requests, spent.prompt_tokens, spent.completion_tokens)
            row = (step, identifier, key, outcome.state, reason, value, *tokens, spent.cost)
            sealed.append((*row, seal(*row)))
        with self._file.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", sealed)

    def retain(self, step: str, identifiers: Iterable[str]) -> None:
        """Remove items of a step that are no longer in the input."""
        self.forget(step, self.keys(step).keys() - set(identifiers))

    def forget(self, step: str, gone: Collection[str]) -> None:
        """Remove items of a step."""
        if gone:
            rows = [(step, identifier) for identifier in sorted(gone)]
            with self._file.transaction() as connection:
                connection.executemany("DELETE FROM item WHERE step = ? AND id = ?", rows)

    def put_count(self, count: Count) -> None:
        """Store the counts of a finished step."""
        self.put(_COUNTS, [(count.step, "", Outcome(count.as_dict()))])

    def forget_counts(self) -> None:
        """Remove all counts: a new pass over the steps begins."""
        self.retain(_COUNTS, ())

    def counts(self) -> dict[str, Count]:
        """Return the counts of the steps that the last pass finished."""
        return {name: read_count(row.outcome.value) for name, row in self.kept(_COUNTS).items()}


def read_count(value: Mapping[str, Any]) -> Count:
    """Read the counts of a step as they were stored."""
    return Count(**dict(value) | {"spent": Usage(**value["spent"])})


def count_outcomes(step: str, outcomes: Iterable[Outcome]) -> Count:
    """Count the outcomes of a step's items."""
    states: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    spent = Usage()
    for outcome in outcomes:
        states[outcome.state] += 1
        if outcome.failed:
            failed[outcome.failed] += 1
        elif outcome.dropped:
            dropped[outcome.dropped] += 1
        marks.update(outcome.marks)
        spent += outcome.spent
    return Count(step, states.total(), states[KEPT], dict(dropped), dict(failed), dict(marks), spent)


def count_files(step: str, outcomes: Mapping[str, Outcome]) -> Count:
    """Count the outcomes of a step whose items are files, with the names of those that were dropped."""
    names: dict[str, list[str]] = {}
    for name, outcome in sorted(outcomes.items()):
        if outcome.state == DROPPED:
            names.setdefault(outcome.dropped, []).append(name)
    return replace(count_outcomes(step, outcomes.values()), names=names)


def count_reasons(step: str, reasons: Iterable[str]) -> Count:
    """Count the outcomes of a step without models, by the reason each item was dropped; empty for one that was kept."""
    counts = Counter(reasons)
    kept = counts.pop("", 0)
    return Count(step, kept + counts.total(), kept, dict(counts))


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
        Usage(requests=requests, prompt_tokens=prompt, completion_tokens=completion, cost=cost),
    )
