"""Near-duplicates among texts: MinHash signatures by the library rensa, cut into bands, then compared by shingles.

Of two texts whose sets of shingles have a Jaccard similarity of s, each of the 128 slots of their signatures is equal
with a chance of s. Texts with an equal band (r slots in a row) are candidates; r is as large as it can be with
98 of 100 pairs that just reach the threshold still sharing a band, and nearly all that exceed it by a little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from r2med.errors import require_extra
from r2med.lexical.arrays import Places
from r2med.lexical.hashes import Hashes, Words, hash_words, mix64
from r2med.lexical.shingles import HashTable, ngrams, similarities

SLOTS = 128
SEED = 1
_FOUND = 0.98
_PAIRS_AT_ONCE = 1 << 14
_TEXTS_AT_ONCE = 1 << 11
"""Texts per call: the library returns signatures as lists of Python numbers, which take much memory."""
_DOUBT = 0.2  # margin of an estimate from 128 slots below the true similarity: more than four standard deviations
Signatures = NDArray[np.uint32]


def library() -> str:
    """Return the version of the MinHash library, on which signatures depend; an error says how to install it."""
    require_extra("leakage", "rensa")
    return version("rensa")


def signatures(shingles: Words) -> Signatures:
    """Compute a row of 128 slots for each text; texts without shingles get one that equals no other text's."""
    require_extra("leakage", "rensa")
    from rensa import RMinHash

    slots = np.empty((len(shingles), SLOTS), dtype=np.uint32)
    for start in range(0, len(shingles), _TEXTS_AT_ONCE):
        offsets = shingles.offsets[start : start + _TEXTS_AT_ONCE + 1]
        hashes = np.ascontiguousarray(shingles.hashes[offsets[0] : offsets[-1]])
        places = (offsets - offsets[0]).astype(np.uint64)
        rows = RMinHash.digest_matrix_from_flat_token_hashes(hashes, places, SLOTS, SEED).to_rows()
        slots[start : start + len(rows)] = rows
    return slots


def rows_of_band(threshold: float) -> int:
    """Return the number of slots in a band.

    >>> [rows_of_band(threshold) for threshold in (0.5, 0.6, 0.7, 0.8, 1.0)]
    [3, 4, 5, 7, 128]
    """
    return max(rows for rows in range(1, SLOTS + 1) if chance(threshold, rows) >= _FOUND)


def chance(similarity: float, rows: int) -> float:
    """Return the probability that two texts of this similarity share a band of this many slots."""
    return 1 - (1 - similarity**rows) ** (SLOTS // rows)


def band_keys(signatures: Signatures, rows: int) -> Hashes:
    """Hash every band of every text, a row per text; equal bands in different places get different hashes."""
    bands = SLOTS // rows
    slots = signatures[:, : bands * rows].reshape(len(signatures), bands, rows)
    keys = np.arange(bands, dtype=np.uint64) * _FACTOR + np.zeros((len(signatures), 1), dtype=np.uint64)
    for row in range(rows):
        keys = mix64(keys * _FACTOR + slots[:, :, row])
    return keys


def agree(ours: Signatures, theirs: Signatures, pairs: tuple[Places, Places], threshold: float) -> NDArray[np.bool_]:
    """Mark the pairs of texts whose signatures are similar enough to be worth a full comparison."""
    similar = np.empty(len(pairs[0]), dtype=bool)
    for start in range(0, len(similar), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        equal = ours[pairs[0][part]] == theirs[pairs[1][part]]
        similar[part] = equal.sum(axis=1) >= (threshold - _DOUBT) * SLOTS
    return similar


_FACTOR = np.uint64(0x9E3779B97F4A7C15)
SHINGLE = 2  # words in a row that make a shingle; near-duplicates are texts with nearly the same set of shingles
SAME, NEAR = "same words", "near-duplicate"


def find_duplicates(texts: Sequence[str], near: float) -> dict[int, tuple[int, str]]:
    """Map each text that repeats an earlier one to that text and the kind of match; with `near` 0, the same words only.

    >>> find_duplicates(["Gums bleed.", "other", "gums bleed"], 0)
    {2: (0, 'same words')}
    """
    words = hash_words(texts)
    _, firsts, groups = np.unique(words.text_hashes(), return_index=True, return_inverse=True)
    first_of = firsts[groups]
    duplicates = {place: (int(first), SAME) for place, first in enumerate(first_of.tolist()) if first != place}
    if near:
        require_extra("build", "rensa")
        distinct = np.sort(firsts)
        distinct = distinct[words.counts[distinct] > SHINGLE]
        pairs = near_pairs(texts, distinct, near)
        representative: dict[int, int] = {}
        for earlier, later in pairs:
            # Folded into a text that stays: a text that is itself folded represents no other.
            if earlier not in representative and later not in representative:
                representative[later] = earlier
        duplicates |= {later: (earlier, NEAR) for later, earlier in representative.items()}
        for place, (first, how) in list(duplicates.items()):
            if first in representative:
                duplicates[place] = (representative[first], how)
    return dict(sorted(duplicates.items()))


def near_pairs(texts: Sequence[str], distinct: Places, near: float) -> list[tuple[int, int]]:
    """Return pairs of some of the texts that are similar enough, the earlier first, in the order of the earlier."""
    shingles = ngrams(hash_words([texts[place] for place in distinct.tolist()]), SHINGLE)
    rows = signatures(shingles)
    keys = band_keys(rows, rows_of_band(near))
    pairs = []
    for band in keys.T:
        _, firsts, groups = np.unique(band, return_index=True, return_inverse=True)
        first = firsts[groups]
        later = np.flatnonzero(first != np.arange(len(band)))
        pairs.append(first[later] * len(band) + later)
    both = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *pairs]))
    ours, theirs = np.divmod(both, max(1, len(keys)))
    likely = agree(rows, rows, (ours, theirs), near)
    ours, theirs = ours[likely], theirs[likely]
    enough = similarities(shingles, shingles, (ours, theirs)) >= near
    return sorted(zip(distinct[ours[enough]].tolist(), distinct[theirs[enough]].tolist(), strict=True))


def find_copies(some: Sequence[str], texts: Sequence[str], near: float = 0.0) -> Iterator[tuple[int, int, str]]:
    """Yield each text that repeats one of some others: the place of that one, its own, and the kind of match.

    With `near` 0, the same words only. A text without words repeats nothing; a block of texts is in memory at a time.

    >>> list(find_copies(["Gums bleed."], ["other", "gums bleed", "gums"]))
    [(0, 1, 'same words')]
    """
    words = hash_words(some)
    spoken = np.flatnonzero(words.counts)
    same = HashTable.of(words.text_hashes()[spoken], spoken)
    if near:
        rows, ours = rows_of_band(near), ngrams(words, SHINGLE)
        ours_signed = signatures(ours)
        keys = band_keys(ours_signed, rows)
        long = np.flatnonzero(words.counts > SHINGLE)
        alike = HashTable.of(keys[long].ravel(), np.repeat(long, keys.shape[1]))
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        block = hash_words(texts[start : start + _TEXTS_AT_ONCE])
        theirs, places = same.find(block.text_hashes())
        pairs = dict.fromkeys(zip(places.tolist(), theirs.tolist(), strict=True), SAME)
        if near:
            shingles = ngrams(block, SHINGLE)
            signed = signatures(shingles)
            bands, places = alike.find(band_keys(signed, rows).ravel())
            both = np.unique(places * len(block) + bands // keys.shape[1])
            likely = np.divmod(both, len(block))
            first, second = (side[agree(ours_signed, signed, likely, near)] for side in likely)
            enough = similarities(ours, shingles, (first, second)) >= near
            close = zip(first[enough].tolist(), second[enough].tolist(), strict=True)
            pairs = dict.fromkeys(close, NEAR) | pairs
        yield from ((one, start + other, how) for (one, other), how in sorted(pairs.items()))
