"""Finding the texts of tasks in a block of training texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.jaccard import similarities
from r2med.leakage.minhash import agree, band_keys, rows_of_band, signatures
from r2med.leakage.runs import inside, run_hashes, runs
from r2med.leakage.settings import GRAM, METHODS, SHINGLE, Settings
from r2med.leakage.subject import Subject
from r2med.leakage.tables import Filter, Places, Table
from r2med.leakage.training import Block
from r2med.leakage.words import Words, hash_words, raw_hash


@dataclass(frozen=True)
class Hits:
    """Pairs of a row of training data and a text of a task, as columns."""

    rows: Places
    texts: Places
    methods: NDArray[np.int8]
    """How each was found, as a place in `METHODS`."""
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, method: str, rows: Places, texts: Places, scores: NDArray[np.float64] | None = None) -> Hits:
        """Pairs that one method found; their score is 1 unless it is given."""
        found = np.full(len(rows), METHODS.index(method), dtype=np.int8)
        return cls(rows, texts, found, np.ones(len(rows)) if scores is None else scores)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Places | NDArray[np.bool_]) -> Hits:
        """Some of the pairs."""
        return Hits(self.rows[places], self.texts[places], self.methods[places], self.scores[places])


def strongest(parts: Sequence[Hits]) -> Hits:
    """All pairs, each once, under its surest method and with its highest score; by row, then by text."""
    columns = [
        np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "texts", "methods", "scores")
    ]
    hits = Hits(*columns)
    hits = hits.take(np.lexsort((-hits.scores, hits.methods, hits.texts, hits.rows)))
    first = np.ones(len(hits), dtype=bool)
    first[1:] = (hits.rows[1:] != hits.rows[:-1]) | (hits.texts[1:] != hits.texts[:-1])
    return hits.take(first)


@dataclass(frozen=True)
class _Probe:
    """A block of training texts as numbers."""

    block: Block
    words: Words

    def rows(self, places: Places) -> Places:
        """The rows in which words stand."""
        return self.block.rows[self.words.owners(places)]


class Matcher:
    """Looks for the texts of some tasks; made once, used for every block, by several threads if need be."""

    def __init__(self, subjects: Sequence[Subject], settings: Settings) -> None:
        self.subjects = subjects
        self.settings = settings
        self._whole = _filter(subjects, lambda subject: subject.normal)
        if "ngram" in settings.methods:
            self._grams = _filter(subjects, lambda subject: subject.index.grams)
            self._beginnings = _filter(subjects, lambda subject: subject.beginnings)
        if "near" in settings.methods:
            self._bands = _filter(subjects, lambda subject: subject.bands)

    def match(self, block: Block) -> list[Hits]:
        """For each task, what the block holds of it."""
        probe = _Probe(block, hash_words(block.texts))
        found: list[list[Hits]] = [[] for _ in self.subjects]
        steps = {"normalised": self._same, "ngram": self._shared, "near": self._alike}
        wanted = {"normalised" if method == "exact" else method for method in self.settings.methods}
        for method in sorted(wanted):
            for place, hits in enumerate(steps[method](probe)):
                found[place].append(hits)
        return [strongest(parts) for parts in found]

    def _same(self, probe: _Probe) -> list[Hits]:
        """Texts that are the same as a whole, as they stand or word for word."""
        hashes = probe.words.text_hashes()
        units = np.flatnonzero((probe.words.counts >= self.settings.min_words) & self._whole.passes(hashes))
        found = []
        for subject in self.subjects:
            places, firsts = subject.normal.find(hashes[units])
            again, texts = subject.expanded(firsts)
            owners = units[places][again]
            raw = {unit: raw_hash(probe.block.texts[unit]) for unit in np.unique(owners).tolist()}
            exact = subject.index.raw[texts] == np.array([raw[unit] for unit in owners.tolist()], dtype=np.uint64)
            rows = probe.block.rows[owners]
            parts = []
            if "exact" in self.settings.methods:
                parts.append(Hits.of("exact", rows[exact], texts[exact]))
            if "normalised" in self.settings.methods:
                parts.append(Hits.of("normalised", rows, texts))
            found.append(strongest(parts))
        return found

    def _shared(self, probe: _Probe) -> list[Hits]:
        """Texts with which a row shares runs of 13 words, and shorter texts that it holds whole."""
        grams = run_hashes(probe.words.hashes, GRAM)
        places = np.flatnonzero(self._grams.passes(grams) & inside(probe.words, GRAM))
        keys, rows = grams[places], probe.rows(places)
        # Each run once a row, and in ascending order, so that looking them up stays in one part of a table for long.
        order = np.lexsort((rows, keys))
        keys, rows = keys[order], rows[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        keys, rows = keys[new], rows[new]
        whole = self._contained(probe)
        return [
            strongest([self._overlapping(subject, keys, rows), short])
            for subject, short in zip(self.subjects, whole, strict=True)
        ]

    def _overlapping(self, subject: Subject, keys: NDArray[np.uint64], rows: Places) -> Hits:
        index = subject.index
        places, firsts = index.grams.find(keys)
        pairs, shared = np.unique(rows[places] * len(subject.ids) + firsts, return_counts=True)
        rows, firsts = np.divmod(pairs, len(subject.ids))
        scores = shared / index.gram_counts[firsts]
        enough = (scores >= self.settings.overlap) & (index.words.counts[firsts] >= self.settings.min_words)
        again, texts = subject.expanded(firsts[enough])
        return Hits.of("ngram", rows[enough][again], texts, scores[enough][again])

    def _contained(self, probe: _Probe) -> list[Hits]:
        """Texts of fewer than 13 words that stand in a training text word for word."""
        least = self.settings.min_words
        starts = run_hashes(probe.words.hashes, least)
        places = np.flatnonzero(self._beginnings.passes(starts) & inside(probe.words, least))
        found = []
        for subject in self.subjects:
            which, firsts = subject.beginnings.find(starts[places])
            whole = _continued(probe.words, places[which], subject.index.words, firsts)
            again, texts = subject.expanded(firsts[whole])
            found.append(Hits.of("ngram", probe.rows(places[which[whole]])[again], texts))
        return found

    def _alike(self, probe: _Probe) -> list[Hits]:
        """Near-duplicates: candidates by a shared band, then by the whole signatures, then by their shingles."""
        threshold = self.settings.threshold
        units = np.flatnonzero(probe.words.counts >= max(self.settings.min_words, SHINGLE))
        shingles = runs(probe.words.select(units), SHINGLE)
        ours = signatures(shingles)
        keys = band_keys(ours, rows_of_band(threshold))
        passing, bands = np.nonzero(self._bands.passes(keys))
        keys = keys[passing, bands]
        found = []
        for subject in self.subjects:
            places, numbers = subject.bands.find(keys)
            mine, its = np.divmod(np.unique(passing[places] * len(subject.ids) + numbers), len(subject.ids))
            mine, its = _likely(subject, ours, (mine, its), threshold)
            scores = _similarities(subject, shingles, (mine, its))
            near = scores >= threshold
            again, texts = subject.expanded(subject.index.firsts[its[near]])
            rows = probe.block.rows[units[mine[near]]]
            found.append(Hits.of("near", rows[again], texts, scores[near][again]))
        return found


def _filter(subjects: Sequence[Subject], table: Callable[[Subject], Table]) -> Filter:
    return Filter([table(subject).keys for subject in subjects])


def _continued(words: Words, places: Places, texts: Words, owners: Places) -> NDArray[np.bool_]:
    """Whether all words of short texts follow at these places, before the end of the training text."""
    lengths = texts.counts[owners]
    whole = places + lengths <= words.offsets[words.owners(places) + 1]
    for step in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(whole & (lengths > step))
        theirs = texts.hashes[texts.offsets[owners[going]] + step]
        whole[going] = words.hashes[places[going] + step] == theirs
    return whole


def _likely(
    subject: Subject, ours: NDArray[np.uint32], pairs: tuple[Places, Places], threshold: float
) -> tuple[Places, Places]:
    theirs = subject.index.signatures
    if theirs is None or not len(pairs[0]):
        return pairs
    kept = agree(ours, theirs, pairs, threshold)
    return pairs[0][kept], pairs[1][kept]


def _similarities(subject: Subject, shingles: Words, pairs: tuple[Places, Places]) -> NDArray[np.float64]:
    """The similarity of each pair, the shingles of the task's texts made now from their words."""
    numbers, places = np.unique(pairs[1], return_inverse=True)
    theirs = runs(subject.index.words.select(subject.index.firsts[numbers]), SHINGLE)
    return similarities(shingles, theirs, (pairs[0], places))
