"""Near-duplicates: similarities are exact, and what exceeds the threshold is found."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaking import WORDS, changed, dataset, find, words

from plain_shingles import jaccard, shingles
from r2med.lexical.hashes import hash_words
from r2med.lexical.near_duplicates import SHINGLE, SLOTS, band_keys, chance, rows_of_band, signatures
from r2med.lexical.shingles import ngrams, similarities

few = st.lists(st.sampled_from(WORDS[:6]), min_size=SHINGLE, max_size=15).map(" ".join)


def shingled(texts: list[str]):
    return ngrams(hash_words(texts), SHINGLE)


@given(st.lists(few, min_size=1, max_size=5), st.lists(few, min_size=1, max_size=5), st.integers(1, 40))
def test_similarities_are_those_of_sets_of_shingles(ours: list[str], theirs: list[str], at_once: int) -> None:
    pairs = list(product(range(len(ours)), range(len(theirs))))
    places = tuple(np.array(column) for column in zip(*pairs, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("r2med.lexical.shingles._AT_ONCE", at_once)
        found = similarities(shingled(ours), shingled(theirs), places)
    wanted = [jaccard(shingles(ours[one], SHINGLE), shingles(theirs[other], SHINGLE)) for one, other in pairs]
    assert found.tolist() == pytest.approx(wanted)


def test_signatures_estimate_similarities() -> None:
    originals = [words(150, seed) for seed in range(60)]
    copies = [changed(text, 0.1, seed) for seed, text in enumerate(originals)]
    one, other = signatures(shingled(originals)), signatures(shingled(copies))
    estimated = (one == other).mean(axis=1)
    true = similarities(shingled(originals), shingled(copies), (np.arange(60), np.arange(60)))
    # The standard error of one estimate is about 0.04, that of their mean 0.006.
    assert np.abs(estimated - true).max() < 0.2
    assert abs(float((estimated - true).mean())) < 0.03


def test_signatures_depend_on_the_set_alone_and_not_on_the_batch() -> None:
    texts = [words(30, seed) for seed in range(5000)]
    whole = signatures(shingled(texts))
    assert np.array_equal(signatures(shingled(texts[4000:4003])), whole[4000:4003])
    twice = signatures(shingled([f"{texts[0]} {texts[0]}", texts[0]]))
    assert (twice[0] == twice[1]).mean() > 0.9


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_bands_are_as_long_as_they_may_be(threshold: float) -> None:
    rows = rows_of_band(threshold)
    assert chance(threshold, rows) >= 0.98
    assert rows == SLOTS or chance(threshold, rows + 1) < 0.98


def test_bands_in_different_places_are_different() -> None:
    same = np.zeros((2, SLOTS), dtype=np.uint32)
    keys = band_keys(same, 4)
    assert keys.shape == (2, 32)
    assert len(set(keys[0].tolist())) == 32
    assert np.array_equal(keys[0], keys[1])


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.7])
def test_what_exceeds_the_threshold_is_found_with_its_similarity(threshold: float, tmp_path) -> None:
    documents = [words(80, seed) for seed in range(200)]
    rows = [[changed(text, 0.04 * (seed % 8), seed)] for seed, text in enumerate(documents)]
    found = find(dataset(documents), rows, tmp_path, methods=("near",), threshold=threshold)
    wanted = {}
    for number, ((text,), document) in enumerate(zip(rows, documents, strict=True), 1):
        similarity = jaccard(shingles(text, SHINGLE), shingles(document, SHINGLE))
        if similarity >= threshold:
            wanted[number, f"d{number - 1}"] = similarity
    assert 50 < len(wanted) < 200
    assert found.keys() <= wanted.keys()
    assert len(found) >= 0.98 * len(wanted)
    for pair, (method, score) in found.items():
        assert method == "near"
        assert score == pytest.approx(wanted[pair])


def test_of_several_copies_in_a_row_the_nearest_counts(tmp_path) -> None:
    text = words(80, 1)
    copies = [changed(text, share, seed) for seed, share in enumerate((0.1, 0.02, 0.06))]
    found = find(dataset([text]), [copies], tmp_path, methods=("near",))
    best = max(jaccard(shingles(copy, SHINGLE), shingles(text, SHINGLE)) for copy in copies)
    assert found == {(1, "d0"): ("near", pytest.approx(best))}
