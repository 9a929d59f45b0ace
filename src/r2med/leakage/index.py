"""The index of a task's texts, and the tables in which a search finds their hashes.

Every word, every run of 13 words and every signature is a number; the columns of numbers are cached, and read from
their files as they are needed. Texts are documents first, then queries. Those with the same words are one text here
(the first of them stands for all), so that a text that a corpus repeats under fifty ids is not taken for a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Dataset
from r2med.errors import R2medError, suggest
from r2med.lexical.arrays import Places, by_size, changes, ragged
from r2med.lexical.hashes import Hashes, Words, hash_words, joined, raw_hash
from r2med.lexical.near_duplicates import SEED, SHINGLE, SLOTS, Signatures, band_keys, library, rows_of_band, signatures
from r2med.lexical.shingles import HashTable, ngram_counts, ngram_hashes, ngrams
from r2med.pipeline.executor.local import Executor
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key

METHODS = ("exact", "normalised", "near", "ngram")
"""How a text may be found, the surest way first; a pair is reported under the first that applies."""
KINDS = ("query", "positive", "document")
"""What a text of a task is; a positive is a document that is relevant to some query."""
GRAM = 13  # how many words in a row two texts must share to be found by `ngram`
COMMON = 20  # a run of words that more texts of a task than this have is a formula (a licence, a heading), not content
LEAST_THRESHOLD = 0.5  # below this, so many pairs would have to be compared that hashing gains nothing


@dataclass(frozen=True)
class Settings:
    """Settings of the search: methods and thresholds."""

    methods: tuple[str, ...] = METHODS
    threshold: float = 0.6
    """The least Jaccard similarity of the shingles of near-duplicates. A text with a tenth of its words replaced has
    about 0.68, one with its sentences in another order 0.8 and more, two different abstracts 0.01."""
    overlap: float = 0.0  # the least share of a text's runs of 13 words that must be found; at 0, one run is enough
    min_words: int = 5  # texts with fewer words are not compared: `A` or `Introduction` in training data says nothing
    fields: tuple[str, ...] = ()  # the fields of training rows to look at; all of them when none is named

    def __post_init__(self) -> None:
        for method in self.methods:
            if method not in METHODS:
                raise R2medError(f"no method {method!r}{suggest(method, METHODS)}")
        if not self.methods:
            raise R2medError(f"name a method: {', '.join(METHODS)}")
        if not LEAST_THRESHOLD <= self.threshold <= 1:
            raise R2medError(f"the threshold must be from {LEAST_THRESHOLD} to 1, not {self.threshold}")
        if not 0 <= self.overlap <= 1:
            raise R2medError(f"the overlap must be from 0 to 1, not {self.overlap}")
        if self.min_words < 1:
            raise R2medError(f"min_words must be 1 or more, not {self.min_words}")


_WORDS_AT_ONCE = 1_000_000
_TOP = np.uint64(60)


def gram_table(words: Words, texts: Places) -> HashTable:
    """Build the table of all runs of 13 words of these texts, once per text, but for those in more than `COMMON`."""
    total = int(ngram_counts(words, GRAM)[texts].sum())
    keys, owners = np.empty(total, dtype=np.uint64), np.empty(total, dtype=np.int32)
    done = 0
    for some in text_portions(words, texts):
        grams = ngrams(words.select(some), GRAM)
        part = slice(done, done + len(grams.hashes))
        keys[part], owners[part] = grams.hashes, np.repeat(some, grams.counts)
        done = part.stop
    # Sorted a sixteenth at a time: a sort of the whole would need three times the memory.
    parts = []
    for top in range(16):
        here = np.flatnonzero(keys >> _TOP == top)
        table = HashTable.of(keys[here], owners[here])
        # The sort keeps the order of texts, so a run that a text repeats stands beside itself.
        new = changes(table.keys) | changes(table.owners)
        runs, texts_of = table.keys[new], table.owners[new]
        edges = np.flatnonzero(changes(runs))
        held = np.diff(edges, append=len(runs))
        rare = np.repeat(held <= COMMON, held)
        parts.append((runs[rare], texts_of[rare]))
    return HashTable(*map(np.concatenate, zip(*parts, strict=True)))


def text_portions(words: Words, texts: Places) -> Iterator[Places]:
    """Yield successive texts, about a million words at a time."""
    for portion in by_size(texts.tolist(), words.counts.__getitem__, _WORDS_AT_ONCE):
        yield np.array(portion, dtype=np.int64)


_FORMAT = 1  # changes whenever the same texts would give other numbers
BLOCK = 4_000_000  # how many characters of text are worked on at a time


def index_task(dataset: Dataset, settings: Settings, executor: Executor, cache: Cache) -> IndexedTask:
    """Return the index of a task, cached if possible; its texts are not kept."""
    collection = dataset.collection
    depends = {"data": collection.fingerprint, "format": _FORMAT}
    label = f"index {collection.task.name}"

    def make_words() -> Columns:
        texts = [*collection.documents.texts, *collection.queries.texts]
        with executor.progress(label, len(texts)) as bar:
            parts = []
            for portion in by_size(texts, len, BLOCK):
                parts.append(hash_words(portion))
                bar.advance(len(portion))
            words = joined(parts)
            normal = words.text_hashes()
            grams = gram_table(words, _distinct(normal)[0])
            return {
                "words": words.hashes,
                "offsets": words.offsets,
                "raw": np.fromiter(map(raw_hash, texts), np.uint64, len(texts)),
                "normal": normal,
                "gram-keys": grams.keys,
                "gram-owners": grams.owners,
                "gram-counts": np.bincount(grams.owners, minlength=len(texts)),
            }

    def make_signatures() -> Columns:
        parts = [np.empty((0, SLOTS), dtype=np.uint32)]
        with executor.progress(f"{label}: MinHash", len(firsts)) as bar:
            for texts in text_portions(words, firsts):
                parts.append(signatures(ngrams(words.select(texts), SHINGLE)))
                bar.advance(len(texts))
        return {"signatures": np.concatenate(parts)}

    columns = cached_columns(cache, "leakage", cache_key(gram=GRAM, common=COMMON, **depends), make_words)
    words = Words(columns["words"], np.array(columns["offsets"]))
    normal = np.array(columns["normal"])
    firsts, first = _distinct(normal)
    minhash = None
    if "near" in settings.methods:
        key = cache_key(shingle=SHINGLE, slots=SLOTS, seed=SEED, library=library(), **depends)
        minhash = cached_columns(cache, "leakage-minhash", key, make_signatures)["signatures"]
    grams, counts = HashTable(columns["gram-keys"], columns["gram-owners"]), np.array(columns["gram-counts"])
    ids = [*collection.documents.ids, *collection.queries.ids]
    positive = {name for judged in dataset.gold.qrels.values() for name, grade in judged.items() if grade > 0}
    kinds = [1 if name in positive else 2 for name in collection.documents.ids] + [0] * len(collection.queries)
    texts = (words, np.array(columns["raw"]), normal, grams, counts, firsts, first, minhash)
    return IndexedTask(dataset.name, ids, np.array(kinds, dtype=np.int8), settings, *texts)


def _distinct(normal: Hashes) -> tuple[Places, Places]:
    """Return the first text of each hash, and for each text the first of its hash."""
    _, firsts, groups = np.unique(normal, return_index=True, return_inverse=True)
    return np.sort(firsts), firsts[groups]


@dataclass(frozen=True)
class IndexedTask:
    """The texts of one task as numbers; what is looked up here and there stays in its file."""

    name: str
    ids: list[str]
    kinds: NDArray[np.int8]  # what each text is, as a place in `KINDS`
    settings: Settings
    words: Words
    raw: Hashes  # a hash of each text as it stands; `text_hashes` has one of its words
    text_hashes: Hashes
    grams: HashTable
    """The runs of 13 words of the texts in `firsts`, each once a text, without those that too many have."""
    gram_counts: NDArray[np.int64]  # how many of them each text has
    firsts: Places  # the texts that no text before them has the words of
    first: Places  # for each text, which of them has its words
    signatures: Signatures | None = None  # the MinHash signatures of `firsts`; None if none were asked for

    @cached_property
    def compared(self) -> Places:
        """Return the texts that stand for themselves and are long enough to be compared."""
        return self.firsts[self.words.counts[self.firsts] >= self.settings.min_words]

    @cached_property
    def too_short(self) -> dict[str, int]:
        """Count the texts of each kind that are not compared."""
        short = self.kinds[self.words.counts < self.settings.min_words]
        return {kind: int((short == place).sum()) for place, kind in enumerate(KINDS)}

    @cached_property
    def normal(self) -> HashTable:
        """Return the hashes of whole texts."""
        return HashTable.of(self.text_hashes[self.compared], self.compared)

    @cached_property
    def bands(self) -> HashTable:
        """Return the bands of signatures; a text is identified by its place among the first texts."""
        if self.signatures is None:
            raise ValueError(f"{self.name} was indexed without signatures")
        long_enough = self.compared[self.words.counts[self.compared] >= SHINGLE]
        places = np.searchsorted(self.firsts, long_enough)
        keys = band_keys(self.signatures[places], rows_of_band(self.settings.threshold))
        return HashTable.of(keys.ravel(), np.repeat(places, keys.shape[1]))

    @cached_property
    def beginnings(self) -> HashTable:
        """Return the first words of texts too short for a run of 13: as many as a compared text has at least."""
        short = self.compared[self.words.counts[self.compared] < GRAM]
        words = self.words.select(short)
        return HashTable.of(ngram_hashes(words.hashes, self.settings.min_words)[words.offsets[:-1]], short)

    def expanded(self, texts: Places) -> tuple[Places, Places]:
        """Return all texts with the words of the given first ones: places among the given, and the texts."""
        order, edges = self._members
        starts = edges[texts]
        counts = edges[texts + 1] - starts
        return np.repeat(np.arange(len(texts)), counts), order[ragged(starts, counts)]

    @cached_property
    def copies(self) -> Places:
        """Count the texts that have the words of each first one."""
        return np.diff(self._members[1])

    @cached_property
    def _members(self) -> tuple[Places, Places]:
        """Return texts by their first one, and where the texts of each begin."""
        order = np.argsort(self.first, kind="stable")
        return order, np.searchsorted(self.first[order], np.arange(len(order) + 1))


Columns = Mapping[str, NDArray[Any]]


def cached_columns(cache: Cache, kind: str, key: str, make: Callable[[], Columns]) -> Columns:
    """Return the columns of an entry, computed if it is missing or damaged."""

    def build(folder: Path) -> None:
        for name, column in make().items():
            np.save(folder / f"{name}.npy", column, allow_pickle=False)

    files = cache.sound_entry(kind, key, build).glob("*.npy")
    # Views, because slicing a `memmap` itself goes through slow Python code.
    return {file.stem: np.load(file, mmap_mode="r").view(np.ndarray) for file in files}
