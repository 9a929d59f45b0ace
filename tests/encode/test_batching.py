"""The encoding loop: what is encoded, in which batches, and what is refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from encoders import HashEncoder, context, numbered
from r2med.data.dataset import Texts
from r2med.encode import batching
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.errors import R2medError
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.executor.shards import Shards
from r2med.pipeline.stage import Context
from r2med.store.arrays import list_settings
from r2med.store.cache import Cache


def plain(texts: list[str]) -> Texts:
    return Texts([f"d{number}" for number in range(len(texts))], texts)


def test_vectors_in_order_and_the_model_loaded_once():
    encoder, texts, notes = HashEncoder(), numbered(100), context()
    vectors = encode_all(encoder, texts, Role.DOCUMENT, notes)
    np.testing.assert_array_equal(vectors[:], np.array([encoder.vector(text) for text in texts.texts]))
    assert encoder.loads == 1
    assert sorted(encoder.encoded) == sorted(texts.texts)
    assert notes.notes.facts["documents"] == {
        "texts": 100,
        "encoded": 100,
        "dimension": 8,
        "max_tokens": None,
        "truncated": 0,
        "truncated_share": 0.0,
        "first": texts.texts[0],
    }


def test_what_was_encoded_once_is_not_encoded_again():
    encode_all(HashEncoder(), numbered(50), Role.DOCUMENT, context())
    part, whole = HashEncoder(), HashEncoder()
    notes = context()
    encode_all(part, numbered(30, start=5), Role.DOCUMENT, notes)
    assert part.loads == 0
    assert notes.notes.facts["documents"]["encoded"] == 0
    encode_all(whole, numbered(60), Role.DOCUMENT, context())
    assert sorted(whole.encoded) == sorted(numbered(10, start=50).texts)


def test_a_role_or_model_of_its_own_is_encoded_on_its_own():
    encode_all(HashEncoder(), numbered(5), Role.DOCUMENT, context())
    for encoder, role in ((HashEncoder(), Role.QUERY), (HashEncoder("other"), Role.DOCUMENT)):
        encode_all(encoder, numbered(5), role, context())
        assert len(encoder.encoded) == 5


def test_a_text_that_is_there_twice_is_encoded_once():
    encoder = HashEncoder()
    vectors = encode_all(encoder, plain(["a b", "c", "a b", "a b"]), Role.DOCUMENT, context())
    assert sorted(encoder.encoded) == ["a b", "c"]
    np.testing.assert_array_equal(vectors[:], [encoder.vector(text) for text in ("a b", "c", "a b", "a b")])


def test_a_collection_encoded_in_one_go_is_mapped_as_it_lies():
    vectors = encode_all(HashEncoder(), numbered(50), Role.DOCUMENT, context())
    assert np.shares_memory(vectors[:], vectors.shards[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60, unique=False), st.integers(1, 100), st.integers(0, 30))
def test_batches_keep_to_the_budget_and_miss_nothing(lengths, budget, limit):
    encoder = HashEncoder(f"m{hash((tuple(lengths), budget, limit))}", limit=limit, batch_tokens=budget)
    texts = plain([" ".join([str(number), *["w"] * (length - 1)]) for number, length in enumerate(lengths)])
    encode_all(encoder, texts, Role.DOCUMENT, context())
    assert sorted(encoder.encoded) == sorted(texts.texts)
    for batch in encoder.batches:
        longest = max(min(len(text.split()), limit or 99) for text in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
    costs = [min(len(text.split()), limit or 99) for text in encoder.encoded]
    assert costs == sorted(costs, reverse=True)


def test_a_long_text_costs_no_more_than_is_read_of_it():
    encoder = HashEncoder(limit=3, batch_tokens=30)
    encode_all(encoder, plain([f"{number} " + "w " * 30 for number in range(25)]), Role.DOCUMENT, context())
    assert [len(batch) for batch in encoder.batches] == [10, 10, 5]


def test_windows_are_encoded_one_after_another(monkeypatch):
    monkeypatch.setattr(batching, "WINDOW", 16)
    encoder, texts = HashEncoder(), numbered(50)
    vectors = encode_all(encoder, texts, Role.DOCUMENT, context())
    assert set(encoder.encoded[:16]) == set(texts.texts[:16])
    np.testing.assert_array_equal(vectors[:], np.array([encoder.vector(text) for text in texts.texts]))


class OutOfMemoryError(RuntimeError):
    """As torch's is called."""


@pytest.mark.parametrize(
    "error", [MemoryError(), OutOfMemoryError("CUDA"), RuntimeError("MPS backend out of memory (MPS allocated ...)")]
)
def test_out_of_memory_halves_the_batch_and_goes_on(error):
    encoder, texts = HashEncoder(batch_tokens=640), numbered(80)

    def greedy(batch, vectors):
        if sum(len(text.split()) for text in batch) > 100:
            raise error
        return vectors

    encoder.spoil = greedy
    vectors = encode_all(encoder, texts, Role.DOCUMENT, context())
    np.testing.assert_array_equal(vectors[:], np.array([encoder.vector(text) for text in texts.texts]))
    failed = [batch for batch in encoder.batches if sum(len(text.split()) for text in batch) > 100]
    assert 1 <= len(failed) <= 4


def test_one_text_that_does_not_fit_is_named():
    encoder = HashEncoder(batch_tokens=640)

    def greedy(batch, vectors):
        if any("enormous" in text for text in batch):
            raise MemoryError
        return vectors

    encoder.spoil = greedy
    with pytest.raises(R2medError, match="hash runs out of memory on d3 alone; lower max_length"):
        encode_all(encoder, plain(["a", "b", "c", "enormous d", "e"]), Role.DOCUMENT, context())


def test_another_runtime_error_is_not_taken_for_memory():
    encoder = HashEncoder()

    def broken(batch, vectors):
        raise RuntimeError("shapes do not match")

    encoder.spoil = broken
    with pytest.raises(RuntimeError, match="shapes"):
        encode_all(encoder, numbered(3), Role.DOCUMENT, context())


def test_truncation_is_counted_over_all_texts_and_remembered():
    texts = plain(["one two three four", "one two", "one two three four", "one two three"])
    for _ in range(2):
        notes = context()
        encode_all(HashEncoder(limit=3), texts, Role.DOCUMENT, notes)
        facts = notes.notes.facts["documents"]
        assert (facts["truncated"], facts["truncated_share"], facts["max_tokens"]) == (2, 0.5, 3)
    notes = context()
    encode_all(HashEncoder(limit=3), texts, Role.QUERY, notes)
    assert notes.notes.facts["queries"]["truncated"] == 3
    assert notes.notes.facts["queries"]["first"] == "query: one two three four"


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_text_is_named(text):
    encoder = HashEncoder()
    with pytest.raises(R2medError, match="d1 in the documents is an empty text"):
        encode_all(encoder, plain(["a", text]), Role.DOCUMENT, context())
    assert encoder.loads == 0


def spoilt(which: str, value: float):
    def spoil(batch, vectors):
        for row, text in enumerate(batch):
            if text == which:
                vectors[row, 2:] = value
                if value == 0:
                    vectors[row] = 0
        return vectors

    return spoil


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "hash gave d7 of the documents a vector with NaN or infinite numbers"),
        (-np.inf, "hash gave d7 of the documents a vector with NaN or infinite numbers"),
        (0, "hash gave d7 of the documents a vector of zeros"),
    ],
)
def test_a_broken_vector_is_named_and_not_kept(value, message):
    encoder, texts = HashEncoder(), numbered(20)
    encoder.spoil = spoilt(texts.texts[7], value)
    with pytest.raises(R2medError, match=message):
        encode_all(encoder, texts, Role.DOCUMENT, context())
    mended = HashEncoder()
    encode_all(mended, texts, Role.DOCUMENT, context())
    assert texts.texts[7] in mended.encoded


def test_a_changed_dimension_is_named():
    encoder = HashEncoder()
    encode_all(encoder, numbered(3), Role.DOCUMENT, context())
    changed = HashEncoder(dimension=9)
    with pytest.raises(R2medError, match=r"hash gave d3 a vector of 9 dimensions, others have 8; .* remove .*vectors"):
        encode_all(changed, numbered(4), Role.DOCUMENT, context())
    wavering = HashEncoder("wavering", batch_tokens=1)
    wavering.spoil = lambda batch, vectors: vectors[:, : 8 - len(wavering.batches)]
    with pytest.raises(R2medError, match="wavering gave d0 a vector of 6 dimensions, others have 7"):
        encode_all(wavering, plain(["a", "a b"]), Role.DOCUMENT, context())


def test_too_few_vectors_are_refused():
    encoder = HashEncoder()
    encoder.spoil = lambda batch, vectors: vectors[:-1]
    with pytest.raises(R2medError, match="hash gave d1 and 1 more an array of shape"):
        encode_all(encoder, plain(["a", "a b"]), Role.DOCUMENT, context())


def test_half_precision_rounds_what_is_there_and_encodes_the_rest():
    texts = numbered(30)
    encode_all(HashEncoder(), numbered(20), Role.DOCUMENT, context())
    encoder, notes = HashEncoder(), context()
    vectors = encode_all(encoder, texts, Role.DOCUMENT, notes, precision="float16")
    assert sorted(encoder.encoded) == sorted(texts.texts[20:])
    assert notes.notes.facts["documents"]["encoded"] == 10
    wanted = np.array([encoder.vector(text) for text in texts.texts]).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(vectors[:], wanted)
    assert [entry.precision for entry in list_settings()] == ["float16", "float32"]
    again = HashEncoder()
    encode_all(again, texts, Role.DOCUMENT, context(), precision="float16")
    assert again.loads == 0


def test_workers_and_rounded_vectors_share_a_shard(monkeypatch):
    monkeypatch.setattr(batching, "_BLOCK_TOKENS", 1)  # a block is a batch
    names = [f"d{place}" for place in range(30)]
    texts = [f"{name} {'long ' * 10 if 10 <= place < 20 else ''}" for place, name in enumerate(names)]
    stored = {"float16": slice(10), "float32": slice(10, 20)}
    for precision, some in stored.items():
        encode_all(HashEncoder(), Texts(names[some], texts[some]), Role.DOCUMENT, context(), precision=precision)
    work = Context(Cache.default(), Executor(spread=Shards(1, 1)))
    encoder = HashEncoder(batch_tokens=3)
    vectors = encode_all(encoder, Texts(names, texts), Role.DOCUMENT, work, precision="float16")
    expected = np.array([encoder.vector(text) for text in texts]).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(vectors[:], expected)


@pytest.mark.parametrize("before", [False, True])
def test_numbers_too_large_for_half_precision_are_refused(before):
    def large() -> HashEncoder:
        encoder = HashEncoder()
        encoder.spoil = spoilt("b", 1e6)
        return encoder

    texts = plain(["a", "b", "c"])
    if before:
        encode_all(large(), texts, Role.DOCUMENT, context())
    with pytest.raises(R2medError, match="hash gave d1 of the documents numbers that do not fit float16"):
        encode_all(large(), texts, Role.DOCUMENT, context(), precision="float16")


def test_progress_shows_speed_and_time_left():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    encoder = HashEncoder()
    encoder.pause = 0.02
    encode_all(encoder, numbered(100), Role.DOCUMENT, Context(Cache.default(), Executor(console)))
    shown = screen.getvalue()
    assert "encode documents (hash)" in shown
    assert "texts/s" in shown
    assert "0:00:" in shown


def test_no_texts_are_no_vectors():
    encoder = HashEncoder()
    vectors = encode_all(encoder, Texts([], []), Role.DOCUMENT, context())
    assert len(vectors) == 0
    assert encoder.loads == 0
