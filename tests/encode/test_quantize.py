"""Truncated and quantised vectors: their sizes, what they find, and floats that mend the ranking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.encode.indexes import BinaryIndex, FloatIndex, Int8Index, build_index, first_dimensions
from r2med.encode.vector_search import Similarity, search
from r2med.errors import R2medError


def topical(count=3000, dimension=64, seed=0):
    """Documents about 150 topics, with their weight on the first dimensions, and queries near some of them."""
    random = np.random.default_rng(seed)
    weight = np.linspace(1.5, 0.3, dimension)
    topics = random.standard_normal((150, dimension)) * weight
    documents = topics[random.integers(0, 150, count)] + 0.7 * random.standard_normal((count, dimension)) * weight
    queries = topics[:40] + 0.5 * random.standard_normal((40, dimension)) * weight
    lengths = random.uniform(0.5, 2, (count, 1))
    return queries.astype(np.float32), (documents * lengths).astype(np.float32), random.permutation(count)


def recall(found, wanted) -> float:
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.places, wanted.places, strict=True)])


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_coarse_vectors_find_most_of_what_floats_find(similarity):
    queries, documents, order = topical()
    how = Similarity(similarity)
    exact = FloatIndex(documents, how).search(queries, 10, order)
    found = {kind: build_index(documents, how, kind).search(queries, 10, order) for kind in ("int8", "binary")}
    assert recall(found["int8"], exact) > 0.95
    assert recall(found["int8"], exact) > recall(found["binary"], exact) > 0.2
    again = {kind: build_index(documents, how, kind, 4).search(queries, 10, order) for kind in ("int8", "binary")}
    assert recall(again["int8"], exact) == 1
    assert recall(again["binary"], exact) > recall(found["binary"], exact) + 0.1


@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_rescoring_everything_is_exact(kind):
    queries, documents, order = topical(300)
    how = Similarity("cosine")
    exact = FloatIndex(documents, how).search(queries, 10, order)
    found = build_index(documents, how, kind, rescore=30).search(queries, 10, order)
    np.testing.assert_array_equal(found.places, exact.places)
    np.testing.assert_array_equal(found.scores, exact.scores)


@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_scores_are_near_the_cosine(kind):
    queries, documents, order = topical()
    hits = build_index(documents, Similarity(), kind).search(queries, 10, order)
    unit = documents / np.linalg.norm(documents, axis=1, keepdims=True)
    asked = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    true = np.take_along_axis(asked @ unit.T, hits.places, axis=1)
    assert np.abs(hits.scores - true).max() < {"int8": 0.01, "binary": 0.35}[kind]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 20), st.sampled_from(["int8", "binary"]), st.sampled_from([0, 3]))
def test_blocks_change_nothing(seed, dimension, kind, rescore):
    queries, documents, order = topical(200, dimension, seed)
    results = [
        build_index(documents, Similarity("cosine", memory, block), kind, rescore).search(queries, 7, order)
        for block, memory in ((0, 1 << 29), (3, 1 << 29), (50, 1))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].places, other.places)
        np.testing.assert_array_equal(results[0].scores, other.scores)


def test_int8_keeps_each_number_within_half_a_step():
    _, documents, _ = topical(500)
    index = Int8Index.build(documents, Similarity("dot"))
    decoded = index.codes[:] * index.scale
    steps = np.abs(documents).max(axis=0) / 127
    assert (np.abs(decoded - documents) <= steps * 0.5001).all()
    assert np.abs(index.codes[:]).max() == 127


def test_binary_keeps_the_signs():
    documents = np.array([[0.5, -1, 0], [-2, 3, 1e-9]], dtype=np.float32)
    index = BinaryIndex.build(documents, Similarity())
    assert index.codes[:].tolist() == [[1, -1, -1], [-1, 1, 1]]


def test_a_dimension_without_content_does_no_harm():
    documents = np.zeros((4, 3), dtype=np.float32)
    documents[:, 0] = [1, -1, 2, 0]
    hits = Int8Index.build(documents, Similarity("dot")).search(documents[:1], 4, np.arange(4))
    assert hits.places[0].tolist() == [2, 0, 3, 1]


def test_index_bytes():
    documents = np.ones((100, 64), dtype=np.float32)
    how = Similarity()
    assert build_index(documents, how).nbytes == 100 * 64 * 4
    assert build_index(documents, how, "int8").nbytes == 100 * 64 + 64 * 4
    assert build_index(documents, how, "binary").nbytes == 100 * 8 + 4
    assert build_index(first_dimensions(documents, 16), how).nbytes == 100 * 16 * 4
    assert build_index(first_dimensions(documents, 13), how, "binary").nbytes == 100 * 2 + 4


def test_truncation_is_the_cosine_of_the_first_numbers():
    queries, documents, order = topical(500)
    found = FloatIndex(first_dimensions(documents, 20), Similarity()).search(queries[:, :20], 10, order)
    wanted = search(np.ascontiguousarray(queries[:, :20]), np.ascontiguousarray(documents[:, :20]), 10, order)
    np.testing.assert_array_equal(found.places, wanted.places)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    assert first_dimensions(documents, 64) is documents
    assert first_dimensions(documents, 0) is documents


def test_more_dimensions_than_there_are_is_refused():
    with pytest.raises(R2medError, match="dim=65 of vectors that have 64 dimensions"):
        first_dimensions(np.ones((2, 64), dtype=np.float32), 65)
