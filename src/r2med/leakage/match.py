"""Search for the texts of tasks in blocks of training texts, in pieces of bounded size.

Each way of searching has keys of a block, which lead to texts, and a rule on which of these texts count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.index import GRAM, METHODS, IndexedTask, Settings
from r2med.leakage.lookup import HashFilter, LeakHits, Lookup, by_rows, gathered, joined, strongest
from r2med.leakage.training import Block
from r2med.lexical.arrays import Places, row_slices_up_to, slices_up_to
from r2med.lexical.hashes import Words, hash_words, raw_hash
from r2med.lexical.near_duplicates import SHINGLE, agree, band_keys, rows_of_band, signatures
from r2med.lexical.shingles import HashTable, distinct, inside, ngram_hashes, ngrams, similarities

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


class LeakSearch(Protocol):
    """A way of searching with a block; made once for all tasks."""

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up the keys of the block that a task has."""

    def hits(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        """Return the texts of the task in some rows, by these keys of theirs: first texts only, each once per row."""


class SameText:
    """Texts with the same words in the same order."""

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        hashes = probe.words.text_hashes()
        self._units = np.flatnonzero((probe.words.counts >= probe.settings.min_words) & known.passes(hashes))
        self._keys, self._rows = hashes[self._units], probe.block.rows[self._units]

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up hashes of whole texts."""
        return Lookup.of(subject.normal, self._keys, self._rows, self._units)

    def hits(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        """Return all of them."""
        places, firsts = found.texts()
        return gathered([LeakHits.of("normalised", found.rows[places], firsts)])


class SharedRuns:
    """Texts with which a row shares runs of 13 words."""

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        self._probe = probe
        grams = ngram_hashes(probe.words.hashes, GRAM)
        places = np.flatnonzero(known.passes(grams) & inside(probe.words, GRAM))
        keys, rows = grams[places], probe.rows(places)
        # Each run once a row, and in ascending order, so that looking them up stays in one part of a table for long.
        order = np.lexsort((rows, keys))
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        self._keys, self._rows = keys[new], rows[new]

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up hashes of runs."""
        return Lookup.of(subject.index.grams, self._keys, self._rows, self._rows)

    def hits(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        """Return those of which enough runs are there."""
        index, settings = subject.index, self._probe.settings
        nothing = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        counts = (_counted(subject, portion) for portion in found.portions(self._probe.at_once))
        pairs, shared = reduce(_added, counts, nothing)
        rows, firsts = np.divmod(pairs, len(subject.ids))
        scores = shared / index.gram_counts[firsts]
        enough = (scores >= settings.overlap) & (index.words.counts[firsts] >= settings.min_words)
        return LeakHits.of("ngram", rows[enough], firsts[enough], scores[enough])


class ShortTexts:
    """Texts of fewer than 13 words that stand in a training text word for word."""

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        self._probe = probe
        least = probe.settings.min_words
        starts = ngram_hashes(probe.words.hashes, least)
        self._places = np.flatnonzero(known.passes(starts) & inside(probe.words, least))
        self._keys, self._rows = starts[self._places], probe.rows(self._places)

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up hashes of their beginnings."""
        return Lookup.of(subject.beginnings, self._keys, self._rows, self._places)

    def hits(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        """Return those that go on as they begin."""
        return gathered(self._whole(subject, portion) for portion in found.portions(self._probe.at_once))

    def _whole(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        places, firsts = found.texts()
        whole = _continued(self._probe.words, found.origins[places], subject.index.words, firsts)
        return LeakHits.of("ngram", found.rows[places[whole]], firsts[whole])


class NearTexts:
    """Near-duplicates: candidates by a shared band, then by the whole signatures, then by their shingles."""

    def __init__(self, probe: Probe, known: HashFilter) -> None:
        self._probe = probe
        units = np.flatnonzero(probe.words.counts >= max(probe.settings.min_words, SHINGLE))
        self._shingles = ngrams(probe.words.select(units), SHINGLE)
        self._signatures = signatures(self._shingles)
        keys = band_keys(self._signatures, rows_of_band(probe.settings.threshold))
        self._passing, bands = np.nonzero(known.passes(keys))
        self._keys, self._rows = keys[self._passing, bands], probe.block.rows[units]
        self._rows_of_keys = self._rows[self._passing]

    def lookup(self, subject: IndexedTask) -> Lookup:
        """Look up hashes of bands."""
        return Lookup.of(subject.bands, self._keys, self._rows_of_keys, self._passing)

    def hits(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        """Return those that are similar enough."""
        return gathered(self._near(subject, portion) for portion in found.portions(self._probe.at_once))

    def _near(self, subject: IndexedTask, found: Lookup) -> LeakHits:
        places, numbers = found.texts()
        candidates = distinct(found.origins[places] * len(subject.ids) + numbers)
        mine, its = np.divmod(candidates, len(subject.ids))
        threshold = self._probe.settings.threshold
        theirs = subject.index.signatures
        if theirs is not None and len(candidates):
            likely = agree(self._signatures, theirs, (mine, its), threshold)
            mine, its = mine[likely], its[likely]
        firsts = subject.index.firsts[its]
        scores = self._similarities(subject.index.words, mine, firsts)
        near = scores >= threshold
        return LeakHits.of("near", self._rows[mine[near]], firsts[near], scores[near])

    def _similarities(self, words: Words, mine: Places, firsts: Places) -> NDArray[np.float64]:
        """Return the similarity of each pair, with the shingles of the task's texts computed from their words."""
        scores = np.empty(len(mine))
        for part in slices_up_to(words.counts[firsts], self._probe.at_once):
            texts, places = np.unique(firsts[part], return_inverse=True)
            theirs = ngrams(words.select(texts), SHINGLE)
            scores[part] = similarities(self._shingles, theirs, (mine[part], places))
        return scores


def _counted(subject: IndexedTask, found: Lookup) -> tuple[Places, Places]:
    """Return pairs of rows and texts as one number each, and how many keys lead from the one to the other."""
    places, firsts = found.texts()
    return np.unique(found.rows[places] * len(subject.ids) + firsts, return_counts=True)


def _added(known: tuple[Places, Places], more: tuple[Places, Places]) -> tuple[Places, Places]:
    """Add further counts of pairs to counts of pairs."""
    if not len(known[0]):
        return more
    pairs, places = np.unique(np.concatenate([known[0], more[0]]), return_inverse=True)
    counts = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(counts, places, np.concatenate([known[1], more[1]]))
    return pairs, counts


def _continued(words: Words, places: Places, texts: Words, owners: Places) -> NDArray[np.bool_]:
    """Return whether all words of short texts follow at these places, before the end of the training text."""
    lengths = texts.counts[owners]
    whole = places + lengths <= words.offsets[words.owners(places) + 1]
    for step in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(whole & (lengths > step))
        theirs = texts.hashes[texts.offsets[owners[going]] + step]
        whole[going] = words.hashes[places[going] + step] == theirs
    return whole


_EXACT, _NORMALISED = METHODS.index("exact"), METHODS.index("normalised")


class Matcher:
    """Search for the texts of some tasks; made once, used for every block, by several threads if need be."""

    def __init__(self, subjects: Sequence[IndexedTask], settings: Settings, at_once: int = AT_ONCE) -> None:
        self.subjects = subjects
        self.settings = settings
        self.at_once = at_once
        self._searches: dict[Callable[[Probe, HashFilter], LeakSearch], HashFilter] = {}
        if {"exact", "normalised"} & set(settings.methods):
            self._searches[SameText] = _filter(subjects, lambda subject: subject.normal)
        if "ngram" in settings.methods:
            self._searches[SharedRuns] = _filter(subjects, lambda subject: subject.index.grams)
            self._searches[ShortTexts] = _filter(subjects, lambda subject: subject.beginnings)
        if "near" in settings.methods:
            self._searches[NearTexts] = _filter(subjects, lambda subject: subject.bands)

    def match(self, block: Block) -> Iterator[tuple[int, LeakHits]]:
        """Yield what the block holds: the place of a task and pairs, piece by piece; by task, then row, then text.

        A piece has all pairs of its rows. It is one row, or has at most `at_once` pairs.
        """
        probe = Probe(block, hash_words(block.texts), self.settings, self.at_once)
        searches = [search(probe, known) for search, known in self._searches.items()]
        for place, subject in enumerate(self.subjects):
            for hits in self._found(subject, probe, searches):
                yield place, hits

    def _found(self, subject: IndexedTask, probe: Probe, searches: Sequence[LeakSearch]) -> Iterator[LeakHits]:
        """Yield what the block holds of a task; about `at_once` candidates at most, or one row's, are in memory."""
        for rows in by_rows([search.lookup(subject) for search in searches], self.at_once):
            firsts = joined([search.hits(subject, keys) for search, keys in zip(searches, rows, strict=True)])
            # A text that a corpus repeats under many ids was compared once; now all of its ids are named.
            for part in row_slices_up_to(firsts.rows, subject.copies[firsts.texts], self.at_once):
                hits = self._as_they_stand(subject, probe, _copied(subject, firsts.take(part)))
                if len(hits):
                    yield strongest(hits)

    def _as_they_stand(self, subject: IndexedTask, probe: Probe, hits: LeakHits) -> LeakHits:
        """Return the pairs, those with the same words divided into identical texts and others."""
        same = np.flatnonzero(hits.methods == _NORMALISED)
        if len(same) and "exact" in self.settings.methods:
            hits.methods[same[_exact(subject, probe.block, hits.take(same))]] = _EXACT
        if len(same) and "normalised" not in self.settings.methods:
            return hits.take(hits.methods != _NORMALISED)
        return hits


def _filter(subjects: Sequence[IndexedTask], table: Callable[[IndexedTask], HashTable]) -> HashFilter:
    return HashFilter([table(subject).keys for subject in subjects])


def _copied(subject: IndexedTask, firsts: LeakHits) -> LeakHits:
    """Return pairs with all texts that have the words of the given ones."""
    again, texts = subject.expanded(firsts.texts)
    return LeakHits(firsts.rows[again], texts, firsts.methods[again], firsts.scores[again])


def _exact(subject: IndexedTask, block: Block, hits: LeakHits) -> NDArray[np.bool_]:
    """Return for which pairs the row holds the text character for character."""
    units = np.flatnonzero(np.isin(block.rows, hits.rows))
    held = np.fromiter((raw_hash(block.texts[unit]) for unit in units.tolist()), np.uint64, len(units))
    hashes, numbers = np.unique(np.concatenate([held, subject.index.raw[hits.texts]]), return_inverse=True)
    keys = np.concatenate([block.rows[units], hits.rows]) * len(hashes) + numbers
    return np.isin(keys[len(units) :], keys[: len(units)])
