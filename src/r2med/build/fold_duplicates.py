"""Documents that are there twice: those with the same words, and near-duplicates, folded into the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from r2med.build.build_items import Document
from r2med.errors import require_extra
from r2med.leakage.near_duplicates import agree, band_keys, rows_of_band, signatures
from r2med.leakage.settings import SHINGLE
from r2med.text.hash_table import Places
from r2med.text.shingles import ngrams, similarities
from r2med.text.word_hashes import hash_words

SAME, NEAR = "same words", "near-duplicate"


def find_duplicates(texts: Sequence[str], near: float) -> dict[int, tuple[int, str]]:
    """For each text that repeats an earlier one: which, and how. With `near` 0, only by the same words.

    >>> find_duplicates(["Gums bleed.", "other", "gums bleed"], 0)
    {2: (0, 'same words')}
    """
    words = hash_words(texts)
    _, firsts, groups = np.unique(words.text_hashes(), return_index=True, return_inverse=True)
    first_of = firsts[groups]
    found = {place: (int(first), SAME) for place, first in enumerate(first_of.tolist()) if first != place}
    if near:
        require_extra("build", "rensa")
        distinct = np.sort(firsts)
        distinct = distinct[words.counts[distinct] > SHINGLE]
        pairs = near_pairs(texts, distinct, near)
        representative: dict[int, int] = {}
        for earlier, later in pairs:
            # Folded into one that stays: a text that is itself folded stands for nothing.
            if earlier not in representative and later not in representative:
                representative[later] = earlier
        found |= {later: (earlier, NEAR) for later, earlier in representative.items()}
        for place, (first, how) in list(found.items()):
            if first in representative:
                found[place] = (representative[first], how)
    return dict(sorted(found.items()))


def near_pairs(texts: Sequence[str], distinct: Places, near: float) -> list[tuple[int, int]]:
    """Return pairs of some of the texts that are similar enough, the earlier first, in the order of the earlier."""
    shingles = ngrams(hash_words([texts[place] for place in distinct.tolist()]), SHINGLE)
    made = signatures(shingles)
    ours, theirs = _candidates(band_keys(made, rows_of_band(near)))
    likely = agree(made, made, (ours, theirs), near)
    ours, theirs = ours[likely], theirs[likely]
    enough = similarities(shingles, shingles, (ours, theirs)) >= near
    return sorted(zip(distinct[ours[enough]].tolist(), distinct[theirs[enough]].tolist(), strict=True))


def _candidates(keys: NDArray[np.uint64]) -> tuple[Places, Places]:
    """Each text with the first that shares a band with it, each pair once."""
    pairs = []
    for band in keys.T:
        _, firsts, groups = np.unique(band, return_index=True, return_inverse=True)
        first = firsts[groups]
        later = np.flatnonzero(first != np.arange(len(band)))
        pairs.append(first[later] * len(band) + later)
    both = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *pairs]))
    return np.divmod(both, max(1, len(keys)))


def fold(documents: Sequence[Document], duplicates: Mapping[str, str]) -> list[Document]:
    """The documents that stay, each with the ids of those that were folded into it."""
    also: dict[str, list[str]] = {}
    for identifier, first in duplicates.items():
        also.setdefault(first, []).append(identifier)
    return [
        replace(document, also=tuple(also[document.id])) if document.id in also else document
        for document in documents
        if document.id not in duplicates
    ]
