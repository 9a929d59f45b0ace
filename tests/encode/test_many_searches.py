"""Many searches: what they keep of their questions stays in few files, and is the same as ever."""

from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.encode.vectors import SparseStore, TokenStore, VectorStore
from r2med.store.cache import home
from r2med.store.columns import text_hashes

NAMES = [f"question {number}" for number in range(60)]


def test_a_hundred_searches_leave_few_files():
    questions = [f"why does sign {number} come with fever" for number in range(100)]
    first = [list(r2med.search("wordllama", "sample/Biology", question)) for question in questions[:3]]
    for question in questions:
        r2med.search("wordllama", "sample/Biology", question)
    assert len(list((home() / "vectors").glob("*/*.log"))) < 12
    assert [list(r2med.search("wordllama", "sample/Biology", question)) for question in questions[:3]] == first


def keep_dense(store, place):
    vectors = np.random.default_rng(place).random((1, 8), dtype=np.float32)
    with store.writer() as writer:
        writer.append(text_hashes([NAMES[place]]), np.array([place + 1]), vectors)
    store.refresh()
    return vectors


def keep_tokens(store, place):
    vectors = np.random.default_rng(place).random((1 + place % 3, 8)).astype(np.float16).astype(np.float32)
    with store.writer() as writer:
        writer.append(text_hashes([NAMES[place]]), np.array([place + 1]), [vectors])
    store.refresh()
    return vectors


def keep_sparse(store, place):
    vectors = np.random.default_rng(place).random((1, 8), dtype=np.float32)
    vectors[vectors < 0.5] = 0
    return _keep_sparse(store, place, vectors)


def _keep_sparse(store, place, vectors):
    with store.writer() as writer:
        writer.append(text_hashes([NAMES[place]]), np.array([place + 1]), vectors)
    store.refresh()
    return vectors


KINDS = {
    "dense": (lambda root: VectorStore({"model": "m"}, root=root), keep_dense, lambda store, at: store.vectors(at)[:]),
    "tokens": (
        lambda root: TokenStore({"model": "m"}, "float16", root),
        keep_tokens,
        lambda store, at: store.vectors(at).of(0),
    ),
    "sparse": (lambda root: SparseStore({"model": "m"}, root), keep_sparse, lambda store, at: store.vectors(at)[:]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_merged_shards_hold_every_vector(tmp_path, kind):
    make, keep, read = KINDS[kind]
    store = make(tmp_path)
    written = [keep(store, place) for place in range(len(NAMES))]
    assert len(list(store.folder.glob("*.log"))) == len(list(store.folder.glob("*.rows"))) < 12
    again = make(tmp_path)
    assert not again.damage
    for place, vectors in enumerate(written):
        at = again.find(text_hashes([NAMES[place]]))
        assert at[0] >= 0
        found = read(again, at)
        if kind == "sparse":
            row = np.zeros(8, dtype=np.float32)
            row[found.dimensions] = found.weights
            found = row[None]
        np.testing.assert_array_equal(found, vectors)


def test_of_two_vectors_of_a_text_the_newest_survives_merging(tmp_path):
    store = VectorStore({"model": "m"}, root=tmp_path)
    for place in range(20):
        vectors = np.full((1, 4), place + 1, dtype=np.float32)
        with store.writer() as writer:
            writer.append(text_hashes(["the same"]), np.array([1]), vectors)
        store.refresh()
        np.testing.assert_array_equal(store.vectors(store.find(text_hashes(["the same"])))[:], vectors)


def test_many_old_shards_need_no_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr("r2med.store.arrays._MANY", 10_000)
    store = VectorStore({"model": "m"}, root=tmp_path)
    for place in range(len(NAMES)):
        keep_dense(store, place)
    before = len(list(Path("/proc/self/fd").iterdir()))
    opened = VectorStore({"model": "m"}, root=tmp_path)
    assert (opened.find(text_hashes(NAMES)) >= 0).all()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


def _write(root, start):
    store = VectorStore({"model": "m"}, root=root)
    for place in range(start, start + 30):
        keep_dense(store, place)


def test_two_processes_that_write_and_merge_lose_nothing(tmp_path):
    context = get_context("fork")
    others = [context.Process(target=_write, args=(tmp_path, start)) for start in (0, 30)]
    for each in others:
        each.start()
    for each in others:
        each.join()
    assert [each.exitcode for each in others] == [0, 0]
    store = VectorStore({"model": "m"}, root=tmp_path)
    at = store.find(text_hashes(NAMES))
    assert (at >= 0).all()
    assert not store.damage
    for place, vectors in enumerate(store.vectors(at)[:]):
        np.testing.assert_array_equal(vectors, np.random.default_rng(place).random((1, 8), dtype=np.float32)[0])
