"""The index of a task's texts: every word, every run of 13 words and every signature as numbers, made once and kept.

Texts are documents first, then queries. Those with the same words are one text here (the first of them stands for
all), so that a text that a corpus repeats under fifty ids is not taken for a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.data.model import Collection
from r2med.engine import Engine, Progress
from r2med.leakage.columns import Columns, kept
from r2med.leakage.grams import gram_table, text_portions
from r2med.leakage.minhash import SEED, SLOTS, Signatures, library, signatures
from r2med.leakage.portions import by_size
from r2med.leakage.runs import runs
from r2med.leakage.settings import COMMON, GRAM, SHINGLE
from r2med.leakage.tables import Places, Table
from r2med.leakage.words import Hashes, Words, hash_words, joined, raw_hash
from r2med.store.cache import Cache, cache_key

FORMAT = 1
"""Changes whenever the same texts would give other numbers."""
BLOCK = 4_000_000
"""How many characters of text are worked on at a time."""
_COLUMNS = ("words", "offsets", "raw", "normal", "gram-keys", "gram-owners", "gram-counts")


@dataclass(frozen=True)
class Index:
    """The texts of a task as numbers; what is looked up here and there stays in its file."""

    words: Words
    raw: Hashes
    """A hash of each text as it stands."""
    normal: Hashes
    """A hash of each text's words."""
    grams: Table
    """The runs of 13 words of the texts in `firsts`, each once a text, without those that too many have."""
    gram_counts: NDArray[np.int64]
    """How many of them each text has."""
    firsts: Places
    """The texts that no text before them has the words of."""
    first: Places
    """For each text, which of them has its words."""
    signatures: Signatures | None = None
    """The MinHash signatures of `firsts`; None where none were asked for."""


def index_texts(collection: Collection, engine: Engine, cache: Cache, near: bool) -> Index:
    """The index of a collection, from the cache where it is there; with signatures if near-duplicates are wanted."""
    depends = {"data": collection.fingerprint, "format": FORMAT}
    label = f"index {collection.task.name}"

    def make_words() -> Columns:
        texts = [*collection.documents.texts, *collection.queries.texts]
        with engine.progress(label, len(texts)) as bar:
            return _columns(texts, bar)

    def make_signatures() -> Columns:
        with engine.progress(f"{label}: MinHash", len(firsts)) as bar:
            return {"signatures": _signatures(words, firsts, bar)}

    columns = kept(cache, "leakage", cache_key(gram=GRAM, common=COMMON, **depends), _COLUMNS, make_words)
    words = Words(columns["words"], np.array(columns["offsets"]))
    normal = np.array(columns["normal"])
    firsts, first = _distinct(normal)
    made = None
    if near:
        key = cache_key(shingle=SHINGLE, slots=SLOTS, seed=SEED, library=library(), **depends)
        made = kept(cache, "leakage-minhash", key, ("signatures",), make_signatures)["signatures"]
    grams = Table(columns["gram-keys"], columns["gram-owners"])
    return Index(words, np.array(columns["raw"]), normal, grams, np.array(columns["gram-counts"]), firsts, first, made)


def _distinct(normal: Hashes) -> tuple[Places, Places]:
    """The first text of each hash, and for each text the first of its hash."""
    _, firsts, groups = np.unique(normal, return_index=True, return_inverse=True)
    return np.sort(firsts), firsts[groups]


def _columns(texts: Sequence[str], bar: Progress) -> Columns:
    words = _hashed(texts, bar)
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


def _hashed(texts: Sequence[str], bar: Progress) -> Words:
    parts = []
    for portion in by_size(texts, len, BLOCK):
        parts.append(hash_words(portion))
        bar.advance(len(portion))
    return joined(parts)


def _signatures(words: Words, firsts: Places, bar: Progress) -> Signatures:
    made = [np.empty((0, SLOTS), dtype=np.uint32)]
    for texts in text_portions(words, firsts):
        made.append(signatures(runs(words.select(texts), SHINGLE)))
        bar.advance(len(texts))
    return np.concatenate(made)
