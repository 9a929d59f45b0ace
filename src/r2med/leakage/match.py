"""Finding the texts of tasks in a block of training texts, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.hits import Hits, joined, strongest
from r2med.leakage.lookup import by_rows
from r2med.leakage.portions import row_stretches
from r2med.leakage.search import AT_ONCE, NearTexts, Probe, SameText, Search, SharedRuns, ShortTexts
from r2med.leakage.settings import METHODS, Settings
from r2med.leakage.subject import Subject
from r2med.leakage.tables import Filter, Table
from r2med.leakage.training import Block
from r2med.leakage.words import hash_words, raw_hash

_EXACT, _NORMALISED = METHODS.index("exact"), METHODS.index("normalised")


class Matcher:
    """Looks for the texts of some tasks; made once, used for every block, by several threads if need be."""

    def __init__(self, subjects: Sequence[Subject], settings: Settings, at_once: int = AT_ONCE) -> None:
        self.subjects = subjects
        self.settings = settings
        self.at_once = at_once
        self._searches: dict[Callable[[Probe, Filter], Search], Filter] = {}
        if {"exact", "normalised"} & set(settings.methods):
            self._searches[SameText] = _filter(subjects, lambda subject: subject.normal)
        if "ngram" in settings.methods:
            self._searches[SharedRuns] = _filter(subjects, lambda subject: subject.index.grams)
            self._searches[ShortTexts] = _filter(subjects, lambda subject: subject.beginnings)
        if "near" in settings.methods:
            self._searches[NearTexts] = _filter(subjects, lambda subject: subject.bands)

    def match(self, block: Block) -> Iterator[tuple[int, Hits]]:
        """What the block holds: the place of a task and pairs, piece by piece; by task, then row, then text.

        A piece has all pairs of its rows. It is one row, or has at most `at_once` pairs.
        """
        probe = Probe(block, hash_words(block.texts), self.settings, self.at_once)
        searches = [search(probe, known) for search, known in self._searches.items()]
        for place, subject in enumerate(self.subjects):
            for hits in self._found(subject, probe, searches):
                yield place, hits

    def _found(self, subject: Subject, probe: Probe, searches: Sequence[Search]) -> Iterator[Hits]:
        """What the block holds of a task; at most about `at_once` candidates, or those of one row, are in memory."""
        for rows in by_rows([search.lookup(subject) for search in searches], self.at_once):
            firsts = joined([search.hits(subject, keys) for search, keys in zip(searches, rows, strict=True)])
            # A text that a corpus repeats under many ids was compared once; now all of its ids are named.
            for part in row_stretches(firsts.rows, subject.copies[firsts.texts], self.at_once):
                hits = self._as_they_stand(subject, probe, _copied(subject, firsts.take(part)))
                if len(hits):
                    yield strongest(hits)

    def _as_they_stand(self, subject: Subject, probe: Probe, hits: Hits) -> Hits:
        """The pairs, with those that have the same words told apart: the same as they stand, or not."""
        same = np.flatnonzero(hits.methods == _NORMALISED)
        if len(same) and "exact" in self.settings.methods:
            hits.methods[same[_exact(subject, probe.block, hits.take(same))]] = _EXACT
        if len(same) and "normalised" not in self.settings.methods:
            return hits.take(hits.methods != _NORMALISED)
        return hits


def _filter(subjects: Sequence[Subject], table: Callable[[Subject], Table]) -> Filter:
    return Filter([table(subject).keys for subject in subjects])


def _copied(subject: Subject, firsts: Hits) -> Hits:
    """Pairs with all texts that have the words of the given ones."""
    again, texts = subject.expanded(firsts.texts)
    return Hits(firsts.rows[again], texts, firsts.methods[again], firsts.scores[again])


def _exact(subject: Subject, block: Block, hits: Hits) -> NDArray[np.bool_]:
    """Of which pairs the row holds the text character for character."""
    units = np.flatnonzero(np.isin(block.rows, hits.rows))
    held = np.fromiter((raw_hash(block.texts[unit]) for unit in units.tolist()), np.uint64, len(units))
    hashes, numbers = np.unique(np.concatenate([held, subject.index.raw[hits.texts]]), return_inverse=True)
    keys = np.concatenate([block.rows[units], hits.rows]) * len(hashes) + numbers
    return np.isin(keys[len(units) :], keys[: len(units)])
