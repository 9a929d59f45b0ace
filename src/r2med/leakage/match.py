"""Search for the texts of tasks in blocks of training texts, in pieces of bounded size.

Each way of searching has keys of a block, which lead to texts, and a rule on which of these texts count. How many texts
a key leads to is known before any of these is fetched: a few rows can lead to millions of texts, so the work is cut by
what it leads to and not by what is read. Before the tables stands a filter that most hashes do not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.index import GRAM, METHODS, IndexedTask, Settings
from r2med.leakage.training import Block
from r2med.lexical.arrays import Places, changes, row_slices_up_to, slices_up_to
from r2med.lexical.hashes import Hashes, Words, hash_words, raw_hash
from r2med.lexical.near_duplicates import SHINGLE, agree, band_keys, rows_of_band, signatures
from r2med.lexical.shingles import HashTable, distinct, inside, ngram_hashes, ngrams, similarities


@dataclass(frozen=True)
class LeakHits:
    """Pairs of a row of training data and a text of a task, as columns."""

    rows: Places
    texts: Places
    methods: NDArray[np.int8]  # how each was found, as a place in `METHODS`
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, method: str, rows: Places, texts: Places, scores: NDArray[np.float64] | None = None) -> LeakHits:
        """Build pairs that one method found; their score is 1 unless it is given."""
        places = np.full(len(rows), METHODS.index(method), dtype=np.int8)
        return cls(rows, texts, places, np.ones(len(rows)) if scores is None else scores)

    @classmethod
    def none(cls) -> LeakHits:
        """Return no pairs."""
        return cls.of(METHODS[0], np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Places | NDArray[np.bool_] | slice) -> LeakHits:
        """Return some of the pairs."""
        return LeakHits(self.rows[places], self.texts[places], self.methods[places], self.scores[places])


def join_hits(parts: Sequence[LeakHits]) -> LeakHits:
    """Join all pairs of all parts, by row."""
    hits = LeakHits(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(LeakHits)))
    return hits.take(np.argsort(hits.rows, kind="stable"))


def keep_strongest(hits: LeakHits) -> LeakHits:
    """Return all pairs, each once, under its surest method and with its highest score; by row, then by text."""
    hits = hits.take(np.lexsort((-hits.scores, hits.methods, hits.texts, hits.rows)))
    return hits.take(changes(hits.rows) | changes(hits.texts))


@dataclass(frozen=True)
class Lookup:
    """Keys of training rows that stand in a table, in the order of rows."""

    table: HashTable
    rows: Places  # the row of each key
    origins: Places  # what of the block each was made of
    starts: Places
    sizes: Places  # where its texts begin in the table, and how many they are

    @classmethod
    def of(cls, table: HashTable, keys: Hashes, rows: Places, origins: Places) -> Lookup:
        """Look up the keys that the table has."""
        here, starts, sizes = table.locate(keys)
        order = np.argsort(rows[here], kind="stable")
        here = here[order]
        return cls(table, rows[here], origins[here], starts[order], sizes[order])

    def texts(self) -> tuple[Places, Places]:
        """Return all texts that keys lead to: the place of the key, and the text."""
        return np.repeat(np.arange(len(self.rows)), self.sizes), self.table.texts(self.starts, self.sizes)

    def take(self, part: slice) -> Lookup:
        """Return some of the keys."""
        return Lookup(self.table, self.rows[part], self.origins[part], self.starts[part], self.sizes[part])

    def portions(self, limit: int) -> Iterator[Lookup]:
        """Yield all keys, those at a time that lead to at most so many texts, or a single one."""
        return map(self.take, slices_up_to(self.sizes, limit))


def by_rows(lookups: Sequence[Lookup], limit: int) -> Iterator[list[Lookup]]:
    """Yield all keys of several lookups, in parts whose rows lead to at most so many texts, or of a single row."""
    rows = np.concatenate([lookup.rows for lookup in lookups])
    sizes = np.concatenate([lookup.sizes for lookup in lookups])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    for part in row_slices_up_to(rows, sizes[order], limit):
        first, last = rows[part][[0, -1]]
        edges = [np.searchsorted(lookup.rows, (first, last + 1)) for lookup in lookups]
        yield [lookup.take(slice(*edge.tolist())) for lookup, edge in zip(lookups, edges, strict=True)]


class HashFilter:
    """A bit for each of many slots, set where some hash falls: what is not set is in none of the tables.

    With 16 to 32 slots a hash, three to six of a hundred foreign hashes pass.

    >>> keys = np.array([1 << 60, 1 << 62], dtype=np.uint64)
    >>> HashFilter([keys]).passes(np.array([1 << 62, 1 << 61], dtype=np.uint64)).tolist()
    [True, False]
    """

    def __init__(self, columns: Sequence[Hashes]) -> None:
        bits = max(16, (16 * sum(map(len, columns))).bit_length())
        self._shift = np.uint64(64 - bits)
        self._bytes = np.zeros(1 << (bits - 3), dtype=np.uint8)
        for keys in columns:
            for start in range(0, len(keys), _AT_ONCE):
                slots = keys[start : start + _AT_ONCE] >> self._shift
                np.bitwise_or.at(self._bytes, (slots >> _THREE).astype(np.intp), _BITS[slots & _SEVEN])

    def passes(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which hashes may be in one of the tables."""
        slots = hashes >> self._shift
        return np.asarray((self._bytes[slots >> _THREE] & _BITS[slots & _SEVEN]) != 0)


_AT_ONCE = 1 << 22
_THREE, _SEVEN = np.uint64(3), np.uint64(7)
_BITS = (1 << np.arange(8)).astype(np.uint8)


AT_ONCE = 1 << 20
"""How many texts that keys lead to are worked on at a time, and how many pairs may wait: this bounds the memory."""


@dataclass(frozen=True)
class Probe:
    """A block of training texts as numbers, and how to search with it."""

    block: Block
    words: Words
    settings: Settings
    at_once: int = AT_ONCE

    def rows(self, places: Places) -> Places:
        """Return the rows in which words stand."""
        return self.block.rows[self.words.owners(places)]


class LeakSearch:
    """A way of searching with a block; made once for all tasks."""

    table: Callable[[IndexedTask], HashTable]  # returns the table of a task that the keys are looked up in

    def __init__(self, probe: Probe, keys: Hashes, rows: Places, origins: Places) -> None:
        self._probe, self._keys, self._rows, self._origins = probe, keys, rows, origins

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up the keys of the block that a task has."""
        return Lookup.of(type(self).table(subject), self._keys, self._rows, self._origins)

    def hits(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        """Return the texts of the task in some rows, by these keys of theirs: first texts only, each once per row."""
        hits = LeakHits.none()
        for portion in keys.portions(self._probe.at_once):
            hits = keep_strongest(join_hits([hits, self._matches(subject, portion)]))
        return hits

    def _matches(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        raise NotImplementedError


class SameText(LeakSearch):
    """Texts with the same words in the same order, by hashes of whole texts."""

    table = attrgetter("normal")

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        hashes = probe.words.text_hashes()
        units = np.flatnonzero((probe.words.counts >= probe.settings.min_words) & known.passes(hashes))
        super().__init__(probe, hashes[units], probe.block.rows[units], units)

    def _matches(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        places, firsts = keys.texts()
        return LeakHits.of("normalised", keys.rows[places], firsts)


class SharedRuns(LeakSearch):
    """Texts with which a row shares enough runs of 13 words."""

    table = attrgetter("grams")

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        grams = ngram_hashes(probe.words.hashes, GRAM)
        places = np.flatnonzero(known.passes(grams) & inside(probe.words, GRAM))
        keys, rows = grams[places], probe.rows(places)
        # Each run once a row, and in ascending order, so that looking them up stays in one part of a table for long.
        order = np.lexsort((rows, keys))
        keys, rows = keys[order], rows[order]
        new = changes(keys) | changes(rows)
        super().__init__(probe, keys[new], rows[new], rows[new])

    def hits(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        """Return the texts of which enough runs are there."""
        settings = self._probe.settings
        pairs, shared = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        for portion in keys.portions(self._probe.at_once):
            places, firsts = portion.texts()
            more, counts = np.unique(portion.rows[places] * len(subject.ids) + firsts, return_counts=True)
            pairs, places = np.unique(np.concatenate([pairs, more]), return_inverse=True)
            # Counts of pairs that an earlier portion had are added up.
            shared = np.bincount(places, np.concatenate([shared, counts])).astype(np.int64)
        rows, firsts = np.divmod(pairs, len(subject.ids))
        scores = shared / subject.gram_counts[firsts]
        enough = (scores >= settings.overlap) & (subject.words.counts[firsts] >= settings.min_words)
        return LeakHits.of("ngram", rows[enough], firsts[enough], scores[enough])


class ShortTexts(LeakSearch):
    """Texts of fewer than 13 words that stand in a training text word for word, by their beginnings."""

    table = attrgetter("beginnings")

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        starts = ngram_hashes(probe.words.hashes, probe.settings.min_words)
        places = np.flatnonzero(known.passes(starts) & inside(probe.words, probe.settings.min_words))
        super().__init__(probe, starts[places], probe.rows(places), places)

    def _matches(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        """Return those all of whose words follow, before the end of the training text."""
        numbers, firsts = keys.texts()
        places, words, theirs = keys.origins[numbers], self._probe.words, subject.words
        lengths = theirs.counts[firsts]
        whole = places + lengths <= words.offsets[words.owners(places) + 1]
        for step in range(int(lengths.max(initial=0))):
            going = np.flatnonzero(whole & (lengths > step))
            expected = theirs.hashes[theirs.offsets[firsts[going]] + step]
            whole[going] = words.hashes[places[going] + step] == expected
        return LeakHits.of("ngram", keys.rows[numbers[whole]], firsts[whole])


class NearTexts(LeakSearch):
    """Near-duplicates: candidates by a shared band, then by the whole signatures, then by their shingles."""

    table = attrgetter("bands")

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        units = np.flatnonzero(probe.words.counts >= max(probe.settings.min_words, SHINGLE))
        self._shingles = ngrams(probe.words.select(units), SHINGLE)
        self._signatures = signatures(self._shingles)
        keys = band_keys(self._signatures, rows_of_band(probe.settings.threshold))
        passing, bands = np.nonzero(known.passes(keys))
        self._unit_rows = probe.block.rows[units]
        super().__init__(probe, keys[passing, bands], self._unit_rows[passing], passing)

    def _matches(self, subject: IndexedTask, keys: Lookup) -> LeakHits:
        places, numbers = keys.texts()
        mine, its = np.divmod(distinct(keys.origins[places] * len(subject.ids) + numbers), len(subject.ids))
        threshold, words = self._probe.settings.threshold, subject.words
        if subject.signatures is not None and len(mine):
            likely = agree(self._signatures, subject.signatures, (mine, its), threshold)
            mine, its = mine[likely], its[likely]
        firsts = subject.firsts[its]
        scores = np.empty(len(mine))
        # The shingles of the task's texts are computed from their words.
        for part in slices_up_to(words.counts[firsts], self._probe.at_once):
            texts, places = np.unique(firsts[part], return_inverse=True)
            scores[part] = similarities(self._shingles, ngrams(words.select(texts), SHINGLE), (mine[part], places))
        near = scores >= threshold
        return LeakHits.of("near", self._unit_rows[mine[near]], firsts[near], scores[near])


_EXACT, _NORMALISED = METHODS.index("exact"), METHODS.index("normalised")
_SEARCHES = {SameText: {"exact", "normalised"}, SharedRuns: {"ngram"}, ShortTexts: {"ngram"}, NearTexts: {"near"}}


class Matcher:
    """Search for the texts of some tasks; made once, used for every block, by several threads if need be."""

    def __init__(self, subjects: Sequence[IndexedTask], settings: Settings, at_once: int = AT_ONCE) -> None:
        self.subjects, self.settings, self.at_once = subjects, settings, at_once
        self._searches = {
            search: HashFilter([search.table(subject).keys for subject in subjects])
            for search, methods in _SEARCHES.items()
            if methods & set(settings.methods)
        }

    def match(self, block: Block) -> Iterator[tuple[int, LeakHits]]:
        """Yield what the block holds: the place of a task and pairs, piece by piece; by task, then row, then text.

        A piece has all pairs of its rows. It is one row, or has at most `at_once` pairs.
        """
        probe = Probe(block, hash_words(block.texts), self.settings, self.at_once)
        searches = [search(probe, table_filter) for search, table_filter in self._searches.items()]
        for place, subject in enumerate(self.subjects):
            # About `at_once` candidates at most, or one row's, are in memory.
            for rows in by_rows([search.lookup(subject) for search in searches], self.at_once):
                firsts = join_hits([search.hits(subject, keys) for search, keys in zip(searches, rows, strict=True)])
                # A text that a corpus repeats under many ids was compared once; now all of its ids are named.
                for part in row_slices_up_to(firsts.rows, subject.copies[firsts.texts], self.at_once):
                    some = firsts.take(part)
                    again, texts = subject.expanded(some.texts)
                    hits = LeakHits(some.rows[again], texts, some.methods[again], some.scores[again])
                    if len(hits := self._as_they_stand(subject, block, hits)):
                        yield place, keep_strongest(hits)

    def _as_they_stand(self, subject: IndexedTask, block: Block, hits: LeakHits) -> LeakHits:
        """Return the pairs, those with the same words divided into identical texts and others."""
        same = np.flatnonzero(hits.methods == _NORMALISED)
        if not len(same):
            return hits
        if "exact" in self.settings.methods:
            alike = hits.take(same)
            units = np.flatnonzero(np.isin(block.rows, alike.rows))
            held = np.fromiter((raw_hash(block.texts[unit]) for unit in units.tolist()), np.uint64, len(units))
            hashes, numbers = np.unique(np.concatenate([held, subject.raw[alike.texts]]), return_inverse=True)
            keys = np.concatenate([block.rows[units], alike.rows]) * len(hashes) + numbers
            hits.methods[same[np.isin(keys[len(units) :], keys[: len(units)])]] = _EXACT
        return hits if "normalised" in self.settings.methods else hits.take(hits.methods != _NORMALISED)
