"""A task as it is looked for: its texts by id and kind, and the tables in which their hashes are found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from r2med.data.model import Dataset
from r2med.leakage.index import Index
from r2med.leakage.minhash import band_keys, rows_of_band
from r2med.leakage.runs import run_hashes
from r2med.leakage.settings import GRAM, KINDS, SHINGLE, Settings
from r2med.leakage.tables import Places, Table
from r2med.leakage.words import ragged


@dataclass(frozen=True)
class Subject:
    """The texts of one task, documents first, then queries."""

    name: str
    ids: list[str]
    kinds: NDArray[np.int8]
    """What each text is, as a place in `KINDS`."""
    index: Index
    settings: Settings

    @classmethod
    def of(cls, dataset: Dataset, index: Index, settings: Settings) -> Subject:
        """A task that was indexed; its texts are not kept."""
        collection = dataset.collection
        positive = {
            document for judged in dataset.gold.qrels.values() for document, grade in judged.items() if grade > 0
        }
        documents = [1 if identifier in positive else 2 for identifier in collection.documents.ids]
        kinds = np.array([*documents, *[0] * len(collection.queries)], dtype=np.int8)
        return cls(dataset.name, [*collection.documents.ids, *collection.queries.ids], kinds, index, settings)

    @cached_property
    def compared(self) -> Places:
        """The texts that stand for themselves and are long enough to be compared."""
        firsts = self.index.firsts
        return firsts[self.index.words.counts[firsts] >= self.settings.min_words]

    @cached_property
    def too_short(self) -> dict[str, int]:
        """How many texts of each kind are not compared."""
        short = self.kinds[self.index.words.counts < self.settings.min_words]
        return {kind: int((short == place).sum()) for place, kind in enumerate(KINDS)}

    @cached_property
    def normal(self) -> Table:
        """The hashes of whole texts."""
        return Table.of(self.index.normal[self.compared], self.compared)

    @cached_property
    def bands(self) -> Table:
        """The bands of signatures; a text is known by its place among the first texts."""
        if self.index.signatures is None:
            raise ValueError(f"{self.name} was indexed without signatures")
        long_enough = self.compared[self.index.words.counts[self.compared] >= SHINGLE]
        places = np.searchsorted(self.index.firsts, long_enough)
        keys = band_keys(self.index.signatures[places], rows_of_band(self.settings.threshold))
        return Table.of(keys.ravel(), np.repeat(places, keys.shape[1]))

    @cached_property
    def beginnings(self) -> Table:
        """Of texts too short for a run of 13 words: the run of the fewest words that a compared text has."""
        short = self.compared[self.index.words.counts[self.compared] < GRAM]
        words = self.index.words.select(short)
        return Table.of(run_hashes(words.hashes, self.settings.min_words)[words.offsets[:-1]], short)

    def expanded(self, texts: Places) -> tuple[Places, Places]:
        """All texts with the words of the given first ones: places among the given, and the texts."""
        order, edges = self._members
        starts = edges[texts]
        counts = edges[texts + 1] - starts
        return np.repeat(np.arange(len(texts)), counts), order[ragged(starts, counts)]

    @cached_property
    def copies(self) -> Places:
        """How many texts have the words of each first one."""
        return np.diff(self._members[1])

    @cached_property
    def _members(self) -> tuple[Places, Places]:
        """Texts by their first one, and where the texts of each begin."""
        order = np.argsort(self.index.first, kind="stable")
        return order, np.searchsorted(self.index.first[order], np.arange(len(order) + 1))
