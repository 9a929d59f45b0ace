"""Exact search against a search that compares everything with everything in double precision."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import r2med
from r2med.encode.vector_search import Similarity, VectorHits, rescore, search
from r2med.errors import R2medError
from r2med.lexical.ranking import id_order, rank


def brute_force(queries, documents, depth, tie_order, similarity="cosine") -> VectorHits:
    """Every score in double precision, one pair at a time, sorted by the one rule."""
    places, scores = [], []
    for query in queries.astype(np.float64):
        row = []
        for document in documents.astype(np.float64):
            score = (query * document).sum()
            if similarity == "cosine":
                both = np.sqrt((document * document).sum()) * np.sqrt((query * query).sum())
                score = score / both if both > 0 else 0.0
            row.append(np.float32(score))
        order = sorted(range(len(row)), key=lambda place: (-row[place], tie_order[place]))[:depth]
        places.append(order)
        scores.append([row[place] for place in order])
    return VectorHits(np.array(places), np.array(scores, dtype=np.float32))


def same(found: VectorHits, wanted: VectorHits) -> None:
    np.testing.assert_array_equal(found.scores, wanted.scores)
    np.testing.assert_array_equal(found.places, wanted.places)


def vectors(rows, dimension, elements):
    return arrays.arrays(np.float32, (rows, dimension), elements=elements)


# Few distinct numbers make ties; wide ranges make lengths that differ by orders of magnitude.
COARSE = st.integers(-2, 2).map(float)
WIDE = st.floats(-(2.0**40), 2.0**40, width=32)


@st.composite
def cases(draw):
    elements = draw(st.sampled_from([COARSE, WIDE]))
    dimension = draw(st.integers(1, 9))
    queries = draw(vectors(draw(st.integers(1, 4)), dimension, elements))
    documents = draw(vectors(draw(st.integers(1, 40)), dimension, elements))
    tie_order = np.array(draw(st.permutations(range(len(documents)))))
    return queries, documents, draw(st.integers(1, 45)), tie_order


@settings(max_examples=200, deadline=None)
@given(cases(), st.sampled_from(["cosine", "dot"]), st.integers(1, 50), st.sampled_from([1, 4096, 1 << 29]))
def test_any_block_and_memory_give_the_exact_list(case, similarity, block, memory):
    queries, documents, depth, tie_order = case
    found = search(queries, documents, depth, tie_order, Similarity(similarity, memory, block))
    same(found, brute_force(queries, documents, min(depth, len(documents)), tie_order, similarity))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("length", [1e-30, 1e-18, 1.0, 1e18])
def test_lengths_at_the_edge_of_single_precision(similarity, length):
    random = np.random.default_rng(3)
    documents = (random.standard_normal((300, 12)) * length).astype(np.float32)
    queries = random.standard_normal((5, 12)).astype(np.float32)
    found = search(queries, documents, 20, np.arange(300), Similarity(similarity, block=64))
    same(found, brute_force(queries, documents, 20, np.arange(300), similarity))


@pytest.mark.parametrize("block", [1, 2, 0])
def test_long_vectors_after_short_ones_are_given_their_larger_error(block):
    # In single precision the second document's product is 0 or nearly so, in truth it is 1.5.
    documents = np.array([[1, 0, 0, 0], [2.0**30, 1.5, -(2.0**30), 0]], dtype=np.float32)
    queries = np.ones((3, 4), dtype=np.float32)
    hits = search(queries, documents, 1, np.arange(2), Similarity("dot", block=block))
    assert hits.places.tolist() == [[1]] * 3
    assert hits.scores.tolist() == [[1.5]] * 3


def clustered(count=6000, dimension=48, seed=0):
    """Vectors around a few centres, with exact and very near duplicates: scores differ in last bits or not at all."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((20, dimension))
    documents = centres[random.integers(0, 20, count)] + 1e-4 * random.standard_normal((count, dimension))
    documents[count // 2 :] = documents[: count - count // 2] * (1 + 1e-7 * random.standard_normal((count // 2, 1)))
    queries = centres[:7] + 0.1 * random.standard_normal((7, dimension))
    return queries.astype(np.float32), documents.astype(np.float32), random.permutation(count)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_near_ties_do_not_depend_on_blocks_or_memory(similarity):
    queries, documents, tie_order = clustered()
    wanted = search(queries, documents, 100, tie_order, Similarity(similarity))
    for block, memory in [(1, 1 << 29), (97, 1 << 29), (1000, 1 << 14), (0, 1), (0, 1 << 20), (6000, 1 << 29)]:
        same(search(queries, documents, 100, tie_order, Similarity(similarity, memory, block)), wanted)
    alone = [search(queries[i : i + 1], documents, 100, tie_order, Similarity(similarity)) for i in range(len(queries))]
    same(VectorHits(*map(np.concatenate, zip(*alone, strict=True))), wanted)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_threads_of_the_search_itself_change_nothing(similarity, monkeypatch):
    queries, documents, tie_order = clustered()
    wanted = search(queries, documents, 100, tie_order, Similarity(similarity, block=100))
    for threads in (1, 3, 8):
        monkeypatch.setattr("r2med.encode.vector_search._THREADS", threads)
        same(search(queries, documents, 100, tie_order, Similarity(similarity, block=100)), wanted)


def test_the_threads_of_the_matrix_product_change_nothing():
    program = """
import sys; sys.path.insert(0, sys.argv[1])
from test_vector_search import clustered
from r2med.encode.vector_search import search
hits = search(*clustered()[:2], 100, clustered()[2])
sys.stdout.buffer.write(hits.places.tobytes() + hits.scores.tobytes())
"""
    folder, source = Path(__file__).parent, Path(r2med.__file__).parents[1]
    results = set()
    for threads in ("1", "2", "4"):
        variables = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = os.environ | dict.fromkeys(variables, threads) | {"PYTHONPATH": str(source)}
        made = subprocess.run([sys.executable, "-c", program, str(folder)], env=environment, capture_output=True)
        assert made.returncode == 0, made.stderr.decode()
        results.add(made.stdout)
    assert len(results) == 1
    assert len(results.pop()) == 7 * 100 * 12


def test_ties_by_document_id_as_everywhere_else():
    ids = [f"d{number}" for number in (3, 10, 1, 2)]
    documents = np.ones((4, 3), dtype=np.float32)
    hits = search(documents[:1], documents, 3, id_order(ids))
    assert [ids[place] for place in hits.places[0]] == [ids[place] for place in rank(ids, np.ones(4))][:3]
    assert [ids[place] for place in hits.places[0]] == ["d3", "d2", "d10"]


def test_everything_tied_stays_within_its_memory():
    documents = np.ones((20_000, 4), dtype=np.float32)
    tie_order = np.arange(20_000)[::-1].copy()
    tracemalloc.start()
    hits = search(documents[:50], documents, 10, tie_order, Similarity("dot", memory=2_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert hits.places.tolist() == [list(range(19_999, 19_989, -1))] * 50
    # A million pairs are tied; all of them on one list would take ten times this.
    assert peak < 8_000_000


def test_zero_vectors_score_zero_by_cosine():
    documents = np.array([[0, 0], [1, 0], [-1, 0]], dtype=np.float32)
    hits = search(np.array([[2, 0]], dtype=np.float32), documents, 3, np.arange(3))
    assert hits.places.tolist() == [[1, 0, 2]]
    assert hits.scores.tolist() == [[1, 0, -1]]


def test_rescore_ranks_candidates_by_double_precision():
    queries, documents, tie_order = clustered(400, 16)
    candidates = np.tile(np.arange(0, 400, 2), (len(queries), 1))
    found = rescore(queries, documents, candidates, tie_order, "cosine")
    wanted = brute_force(queries, documents[::2], 200, tie_order[::2])
    same(found, VectorHits(wanted.places * 2, wanted.scores))


def test_nothing_to_find():
    queries = np.ones((2, 3), dtype=np.float32)
    assert search(queries, np.empty((0, 3), dtype=np.float32), 5, np.arange(0)).places.shape == (2, 0)
    assert search(queries[:0], queries, 5, np.arange(2)).places.shape == (0, 2)
    assert search(queries, queries, 0, np.arange(2)).places.shape == (2, 0)


def test_what_cannot_be_compared_is_refused():
    good = np.ones((3, 2), dtype=np.float32)
    bad = good.copy()
    bad[1, 1] = np.nan
    endless = good.copy()
    endless[2, 0] = np.inf
    order = np.arange(3)
    with pytest.raises(R2medError, match="2 dimensions cannot be compared with documents of 3"):
        search(good, np.ones((3, 3), dtype=np.float32), 1, order)
    with pytest.raises(R2medError, match="query 1 is not finite"):
        search(bad, good, 1, order)
    with pytest.raises(R2medError, match="document 1 is not finite"):
        search(good, bad, 1, order)
    with pytest.raises(R2medError, match="document 2 is not finite"):
        search(good, endless, 1, order, Similarity("dot", block=1))
    with pytest.raises(R2medError, match="do not fit single precision"):
        search(good * 1e30, good * 1e20, 1, order, Similarity("dot"))
    with pytest.raises(R2medError, match="unknown similarity 'euclid'; known: cosine, dot"):
        Similarity("euclid")
