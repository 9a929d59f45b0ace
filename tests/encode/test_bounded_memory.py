"""Encoding a large collection: what the process holds does not grow with it, and is the same as with a small one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders import HashEncoder, context
from r2med.data.dataset import Texts
from r2med.encode import batching
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.vectors import VectorStore
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.executor.shards import Shards
from r2med.pipeline.stage import Context
from r2med.store import columns as store_columns
from r2med.store.cache import Cache
from r2med.store.columns import SortedHashes, first_of_each


class Numbers(Sequence[str]):
    """Texts that exist only while they are looked at, every tenth like the one before it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place):
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self.count))]
        number = range(self.count)[place]
        return f"text {number - (number % 10 == 9)}"


class QuickEncoder(HashEncoder):
    """Remembers nothing, and draws a batch at once."""

    def lengths(self, texts, role):
        return np.full(len(texts), 2)

    def encode(self, texts, role):
        return np.array([[float(text.split()[1]) + 1, 1.0] for text in texts], dtype=np.float32)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is longer than a few hundred rows comes in parts and lies on disk."""
    monkeypatch.setattr(store_columns, "_AT_ONCE", 256)
    monkeypatch.setattr(store_columns, "_SHORT", 1024)
    monkeypatch.setattr(store_columns, "_TEXTS", 256)
    monkeypatch.setattr(batching, "WINDOW", 256)


@pytest.mark.parametrize(
    ("executor", "precision"),
    [(Executor(), "float16"), (Executor(spread=Shards(1, 1)), "float32")],
    ids=["local", "shard"],
)
def test_memory_does_not_grow_with_the_texts(small_parts, executor, precision):
    peaks = {}
    for count in (300, 2000, 10_000):  # with the first, modules are imported
        work = Context(Cache.default(), executor)
        texts, encoder = Texts(Numbers(count), Numbers(count)), QuickEncoder(f"{count}", batch_tokens=256)
        tracemalloc.start()
        vectors = encode_all(encoder, texts, Role.DOCUMENT, work, precision=precision)
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        wanted = np.arange(count) - (np.arange(count) % 10 == 9) + 1
        np.testing.assert_array_equal(vectors[:][:, 0], wanted.astype(precision))
        assert work.notes.facts["documents"]["encoded"] == count * 9 // 10
    assert (peaks[10_000] - peaks[2000]) / 8000 < 4, "bytes for each more text; a vector alone has 8"


def test_a_damaged_vector_is_found_and_counted_once_in_a_large_store(small_parts):
    texts = Texts(Numbers(3000), Numbers(3000))
    encoder = QuickEncoder(batch_tokens=256)
    encode_all(encoder, texts, Role.DOCUMENT, context())
    store = VectorStore(encoder.settings(Role.DOCUMENT))
    (rows,) = store.folder.glob("*.rows")
    (log,) = store.folder.glob("*.log")
    for path, place in ((rows, 8 * 1000), (rows, 8 * 2000), (log, 32 + 40 * 1500)):
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
    work = context()
    vectors = encode_all(encoder, texts, Role.DOCUMENT, work)
    assert work.notes.facts["documents"]["encoded"] == 3
    assert [warning.split(" of ")[0] for warning in work.notes.warnings] == ["1 entries", "2 vectors"]
    np.testing.assert_array_equal(vectors[:][:, 0], np.arange(3000) - (np.arange(3000) % 10 == 9) + 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(*[st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1])] * 2), max_size=40), max_size=3))
def test_hashes_sorted_in_parts_are_found_as_in_one(columns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_columns, "_AT_ONCE", 4)
        patch.setattr(store_columns, "_SHORT", 16)
        arrays = [np.array(column, dtype=np.uint64).reshape(-1, 2) for column in columns]
        everything = [pair for column in columns for pair in column]
        asked = np.array([*everything, (5, 5), (2**63, 5)], dtype=np.uint64).reshape(-1, 2)
        last = {pair: place for place, pair in enumerate(everything)}
        first = {pair: place for place, pair in reversed(list(enumerate(everything)))}
        assert SortedHashes(arrays).find(asked).tolist() == [last.get(tuple(pair), -1) for pair in asked.tolist()]
        assert first_of_each(asked[: len(everything)]).tolist() == sorted(first.values())


def test_a_column_is_in_memory_where_the_disk_refuses(small_parts, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_columns.os, "posix_fallocate", full)
    column = store_columns.scratch_column(5000, np.int64)
    column[:] = 1
    assert column.sum() == 5000
    assert column.base is None
