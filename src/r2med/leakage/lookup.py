"""Keys of training rows as a table knows them: how many texts they lead to is known before any of these is fetched.

A few rows can lead to millions of texts, so the work is cut by what it leads to and not by what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from r2med.leakage.portions import row_stretches, stretches
from r2med.leakage.tables import Places, Table
from r2med.leakage.words import Hashes


@dataclass(frozen=True)
class Lookup:
    """Keys of training rows that stand in a table, in the order of rows."""

    table: Table
    rows: Places
    """The row of each key."""
    origins: Places
    """What of the block each was made of."""
    starts: Places
    """Where its texts begin in the table."""
    sizes: Places
    """How many texts it leads to."""

    @classmethod
    def of(cls, table: Table, keys: Hashes, rows: Places, origins: Places) -> Lookup:
        """Those of the keys that the table has."""
        here, starts, sizes = table.locate(keys)
        order = np.argsort(rows[here], kind="stable")
        here = here[order]
        return cls(table, rows[here], origins[here], starts[order], sizes[order])

    def texts(self) -> tuple[Places, Places]:
        """All texts that keys lead to: the place of the key, and the text."""
        return np.repeat(np.arange(len(self.rows)), self.sizes), self.table.texts(self.starts, self.sizes)

    def take(self, part: slice) -> Lookup:
        """Some of the keys."""
        return Lookup(self.table, self.rows[part], self.origins[part], self.starts[part], self.sizes[part])

    def portions(self, limit: int) -> Iterator[Lookup]:
        """All keys, those at a time that lead to at most so many texts, or a single one."""
        return map(self.take, stretches(self.sizes, limit))


def by_rows(lookups: Sequence[Lookup], limit: int) -> Iterator[list[Lookup]]:
    """All keys of several lookups, those at a time whose rows lead to at most so many texts, or a single row's."""
    rows = np.concatenate([lookup.rows for lookup in lookups])
    sizes = np.concatenate([lookup.sizes for lookup in lookups])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    for part in row_stretches(rows, sizes[order], limit):
        first, last = rows[part][[0, -1]]
        yield [lookup.take(_between(lookup.rows, first, last)) for lookup in lookups]


def _between(rows: Places, first: np.int64, last: np.int64) -> slice:
    return slice(int(np.searchsorted(rows, first)), int(np.searchsorted(rows, last, side="right")))
