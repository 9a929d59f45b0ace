"""The table of all runs of 13 words of some texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.settings import COMMON, GRAM
from r2med.text.hash_table import HashTable, Places
from r2med.text.portions import by_size
from r2med.text.shingles import ngram_counts, ngrams
from r2med.text.word_hashes import Hashes, Words

_WORDS_AT_ONCE = 1_000_000
_TOP = np.uint64(60)


def gram_table(words: Words, texts: Places) -> HashTable:
    """Every run of 13 words of these texts, once a text, without those that more than `COMMON` of them have."""
    total = int(ngram_counts(words, GRAM)[texts].sum())
    keys, owners = np.empty(total, dtype=np.uint64), np.empty(total, dtype=np.int32)
    done = 0
    for some in text_portions(words, texts):
        made = ngrams(words.select(some), GRAM)
        part = slice(done, done + len(made.hashes))
        keys[part], owners[part] = made.hashes, np.repeat(some, made.counts)
        done = part.stop
    # Sorted a sixteenth at a time: a sort of the whole would need three times the memory.
    sixteenths = (np.flatnonzero(keys >> _TOP == top) for top in range(16))
    parts = [_rare(keys[here], owners[here]) for here in sixteenths]
    return HashTable(np.concatenate([part.keys for part in parts]), np.concatenate([part.owners for part in parts]))


def _rare(keys: Hashes, owners: NDArray[np.int32]) -> HashTable:
    """A table of runs, each once a text, without those of too many texts."""
    found = HashTable.of(keys, owners)
    # The sort keeps the order of texts, so a run that a text repeats stands beside itself.
    new = np.ones(len(found), dtype=bool)
    new[1:] = (found.keys[1:] != found.keys[:-1]) | (found.owners[1:] != found.owners[:-1])
    keys, owners = found.keys[new], found.owners[new]
    edges = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
    held = np.diff(edges, append=len(keys))
    rare = np.repeat(held <= COMMON, held)
    return HashTable(keys[rare], owners[rare])


def text_portions(words: Words, texts: Places) -> Iterator[Places]:
    """Successive texts, about a million words at a time."""
    for portion in by_size(texts.tolist(), words.counts.__getitem__, _WORDS_AT_ONCE):
        yield np.array(portion, dtype=np.int64)
