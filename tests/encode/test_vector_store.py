"""The vector store: found again, found damaged, written by several, killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from encoders import HashEncoder, context, numbered
from r2med.data.dataset import Texts
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.vectors import StoredVectors, VectorStore
from r2med.errors import R2medError
from r2med.store.arrays import clear_settings, list_settings
from r2med.store.cache import home
from r2med.store.columns import text_hashes


def keep(store: VectorStore, texts: list[str], seed: int = 0, dimension: int = 4) -> np.ndarray:
    """Put random vectors of some texts into a new shard."""
    vectors = np.random.default_rng(seed).standard_normal((len(texts), dimension)).astype(np.float32)
    with store.writer() as writer:
        lengths = np.array([len(text) for text in texts])
        writer.append(text_hashes(texts), lengths, vectors, np.arange(len(texts)))
    return vectors


def everything(store: VectorStore, texts: list[str]) -> np.ndarray:
    found = store.find(text_hashes(texts))
    assert (found >= 0).all()
    return np.asarray(store.vectors(found))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text(max_size=3), unique=True, max_size=12), max_size=4), st.lists(st.text(max_size=3)))
def test_the_newest_of_every_text_is_found_and_nothing_else(batches, others):
    with tempfile.TemporaryDirectory() as folder:
        store = VectorStore({"model": "m"}, root=Path(folder))
        wanted = {}
        for seed, batch in enumerate(batches):
            wanted |= dict(zip(batch, keep(store, batch, seed), strict=True))
        store = VectorStore({"model": "m"}, root=Path(folder))
        asked = [*wanted, *others]
        found = store.find(text_hashes(asked))
        assert [place >= 0 for place in found] == [text in wanted for text in asked]
        vectors = store.vectors(found[found >= 0])
        rows = [wanted[text] for text in asked if text in wanted]
        np.testing.assert_array_equal(np.asarray(vectors), np.array(rows).reshape(len(rows), vectors.shape[1]))
        assert vectors.tokens.tolist() == [len(text) for text in asked if text in wanted]
        assert store.damage == []


def test_a_later_vector_counts_though_the_clock_was_ahead_when_the_first_was_kept():
    store = VectorStore({"model": "m"})
    keep(store, ["a", "b"], seed=0)
    for path in store.folder.glob("*-*.*"):
        path.rename(path.with_name(f"{2**63 - 2:016x}-{path.name.partition('-')[2]}"))
    later = keep(VectorStore({"model": "m"}), ["a", "b"], seed=1)
    np.testing.assert_array_equal(everything(VectorStore({"model": "m"}), ["a", "b"]), later)


def test_texts_that_share_half_of_their_hash_are_told_apart():
    store = VectorStore({"model": "m"})
    hashes = np.array([[7, 1], [7, 3], [7, 5], [9, 3]], dtype=np.uint64)
    vectors = np.arange(16, dtype=np.float32).reshape(4, 4)
    with store.writer() as writer:
        writer.append(hashes[[2, 0, 3, 1]], np.ones(4, dtype=np.int64), vectors[[2, 0, 3, 1]])
    store.refresh()
    asked = np.array([[7, 0], [7, 1], [7, 2], [7, 3], [7, 5], [7, 6], [9, 3], [9, 1], [8, 3], [1, 1]], dtype=np.uint64)
    found = store.find(asked)
    assert (found < 0).tolist() == [True, False, True, False, False, True, False, True, True, True]
    np.testing.assert_array_equal(np.asarray(store.vectors(found[found >= 0])), vectors)


def test_rows_are_read_as_asked_for_across_shards():
    store = VectorStore({"model": "m"})
    texts = [f"t{number}" for number in range(30)]
    wanted = np.concatenate([keep(store, texts[:10], 1), keep(store, texts[10:], 2)])
    store.refresh()
    vectors = store.vectors(store.find(text_hashes(texts)))
    assert vectors.shape == (30, 4)
    assert vectors.nbytes == 480
    for places in (
        slice(0, 10),
        slice(12, 15),
        slice(5, 25),
        slice(3, 3),
        slice(None, None, 3),
        np.array([29, 0, 0, 11]),
    ):
        np.testing.assert_array_equal(vectors[places], wanted[places])
    assert np.asarray(vectors, dtype=np.float64).dtype == np.float64


def test_rows_in_a_row_are_not_copied():
    store = VectorStore({"model": "m"})
    keep(store, ["a", "b", "c"])
    store.refresh()
    vectors = store.vectors(store.find(text_hashes(["a", "b", "c"])))
    assert np.shares_memory(vectors[0:2], vectors.shards[0])
    assert not vectors[0:2].flags.writeable


def test_another_setting_is_another_folder():
    stores = [
        VectorStore({"model": "m", "prompt": ""}),
        VectorStore({"model": "m", "prompt": " "}),
        VectorStore({"model": "m", "prompt": ""}, "float16"),
    ]
    keep(stores[0], ["a"])
    assert len({store.folder for store in stores}) == 3
    for store in stores:
        store.refresh()
    assert [int(store.find(text_hashes(["a"]))[0]) for store in stores] == [0, -1, -1]


def test_half_precision_takes_half_the_room_and_rounds():
    store = VectorStore({"model": "m"}, "float16")
    wanted = keep(store, ["a", "b"])
    store.refresh()
    vectors = store.vectors(store.find(text_hashes(["a", "b"])))
    assert vectors.nbytes == 16
    assert vectors[:].dtype == np.float32
    np.testing.assert_array_equal(vectors[:], wanted.astype(np.float16).astype(np.float32))


def shard_files(suffix: str) -> list[Path]:
    return sorted((home() / "vectors").glob(f"*/*.{suffix}"))


def encoded_twice(harm) -> tuple[HashEncoder, StoredVectors, list[str]]:
    """Encode, do harm to the files, encode again."""
    texts = numbered(60)
    wanted = np.asarray(encode_all(HashEncoder(), texts, Role.DOCUMENT, context())).copy()
    harm()
    again, notes = HashEncoder(), context()
    vectors = encode_all(again, texts, Role.DOCUMENT, notes)
    np.testing.assert_array_equal(np.asarray(vectors), wanted)
    third = HashEncoder()
    np.testing.assert_array_equal(np.asarray(encode_all(third, texts, Role.DOCUMENT, context())), wanted)
    assert third.loads == 0
    return again, vectors, notes.notes.warnings


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_costs_one_text_and_a_warning():
    encoder, _, warnings = encoded_twice(lambda: flip(shard_files("rows")[0], 5 * 32 + 7))
    assert encoder.encoded == [numbered(60).texts[5]]
    assert len(warnings) == 1
    assert "1 vectors of hash in" in warnings[0]
    assert "encoded anew" in warnings[0]


def test_a_flipped_bit_in_the_log_costs_one_text():
    encoder, _, warnings = encoded_twice(lambda: flip(shard_files("log")[0], 32 + 40 * 3 + 17))
    assert len(encoder.encoded) == 1
    assert "1 entries of hash" in warnings[0]


def test_a_damaged_header_costs_the_shard():
    encoder, _, warnings = encoded_twice(lambda: flip(shard_files("log")[0], 13))
    assert len(encoder.encoded) == 60
    assert "damaged header" in warnings[0]


def test_truncated_rows_are_encoded_again():
    encoder, _, warnings = encoded_twice(lambda: os.truncate(shard_files("rows")[0], 32 * 50 + 3))
    assert sorted(encoder.encoded) == sorted(numbered(60).texts[50:])
    assert "10 vectors of hash" in warnings[0]


def test_missing_rows_are_encoded_again():
    encoder, _, _ = encoded_twice(lambda: shard_files("rows")[0].unlink())
    assert len(encoder.encoded) == 60


@pytest.mark.parametrize("size", [0, 20, 32, 32 + 5, 32 + 40 * 40 + 1])
def test_a_log_cut_anywhere_keeps_what_is_whole(size):
    encoder, _, warnings = encoded_twice(lambda: os.truncate(shard_files("log")[0], size))
    assert len(encoder.encoded) == 60 - max(0, size - 32) // 40
    assert bool(warnings) == (size == 20)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_harm_is_noticed(data):
    with tempfile.TemporaryDirectory() as folder:
        texts = [f"t{number}" for number in range(9)]
        store = VectorStore({"model": "m"}, root=Path(folder))
        wanted = keep(store, texts)
        path = data.draw(st.sampled_from(sorted(store.folder.glob("*.log")) + sorted(store.folder.glob("*.rows"))))
        content = bytearray(path.read_bytes())
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3, unique=True)):
            content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        store = VectorStore({"model": "m"}, root=Path(folder))
        found = store.find(text_hashes(texts))
        assert (found < 0).any()
        assert store.damage
        assert store.vectors(found[found >= 0])[:].ravel().tolist() == wanted[found >= 0].ravel().tolist()


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from encoders import HashEncoder, context, numbered
from r2med.encode.encoder import Role
from r2med.encode.batching import encode_all
encoder = HashEncoder()
encoder.pause = float(sys.argv[3])
encoder.spoil = lambda texts, vectors: (print("batch", flush=True), vectors)[1]
print("start", flush=True)
vectors = encode_all(encoder, numbered(int(sys.argv[2])), Role.DOCUMENT, context())
print("done", len(encoder.encoded), float(vectors[:].sum()), flush=True)
"""


def start(count: int, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1]), str(count), str(pause)]
    environment = os.environ | {"PYTHONPATH": str(Path(r2med.__file__).parents[1])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_killed_process_loses_its_last_batch_at_the_most(after):
    texts = numbered(400)
    process = start(400, 0.002)
    for _ in range(after + 1):
        process.stdout.readline()
    time.sleep(0.001 * after)
    process.send_signal(signal.SIGKILL)
    # Batches that were made, whether they were kept or not; those before the last must have been.
    made = after + sum(line == "batch\n" for line in process.stdout)
    process.wait()
    whole = HashEncoder()
    wanted = np.array([whole.vector(text) for text in texts.texts])
    batches = len(_all_batches(texts))
    assert made < batches
    again, notes = HashEncoder(), context()
    vectors = encode_all(again, texts, Role.DOCUMENT, notes)
    np.testing.assert_array_equal(np.asarray(vectors), wanted)
    assert notes.notes.warnings == []
    kept = set(texts.texts) - set(again.encoded)
    assert kept >= {text for batch in _all_batches(texts)[: made - 1] for text in batch}
    assert len(kept) < 400


def _all_batches(texts: Texts) -> list[list[str]]:
    """The batches of an undisturbed process, in another home."""
    encoder = HashEncoder("other")
    encode_all(encoder, texts, Role.DOCUMENT, context())
    clear_settings("other")
    return encoder.batches


def test_two_processes_may_write_at_once():
    processes = [start(300, 0.001) for _ in range(2)]
    outputs = [process.communicate()[0].splitlines()[-1] for process in processes]
    assert len({output.split()[2] for output in outputs}) == 1
    encoder = HashEncoder()
    texts = numbered(300)
    vectors = encode_all(encoder, texts, Role.DOCUMENT, context())
    assert encoder.loads == 0
    np.testing.assert_array_equal(np.asarray(vectors), np.array([encoder.vector(text) for text in texts.texts]))


def test_sizes_and_clearing_by_model():
    assert list_settings() == []
    for name in ("one/model", "other"):
        encode_all(HashEncoder(name), numbered(20), Role.DOCUMENT, context())
    encode_all(HashEncoder("other"), numbered(5), Role.QUERY, context())
    found = [(entry.model, entry.role, entry.precision, entry.texts) for entry in list_settings()]
    assert found == [
        ("one/model", "document", "float32", 20),
        ("other", "document", "float32", 20),
        ("other", "query", "float32", 5),
    ]
    assert all(entry.bytes >= entry.texts * 32 for entry in list_settings())
    with pytest.raises(R2medError, match=r"no vectors of 'othr' are kept; did you mean other\?"):
        clear_settings("othr")
    assert len(clear_settings("Other")) == 2
    assert [entry.model for entry in list_settings()] == ["one/model"]
    assert len(clear_settings()) == 1
    assert list_settings() == []


def test_vectors_of_two_dimensions_are_refused():
    store = VectorStore({"model": "m"})
    keep(store, ["a"], dimension=4)
    keep(store, ["b"], dimension=5)
    with pytest.raises(R2medError, match=r"m has kept vectors of 4 and 5 dimensions in .*; remove that folder"):
        store.refresh()


def test_an_unknown_precision_is_refused():
    with pytest.raises(R2medError, match="cannot be kept as 'int8'; known: float32, float16"):
        VectorStore({"model": "m"}, "int8")


def test_a_home_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    store = VectorStore({"model": "m"}, root=tmp_path / "file")
    with pytest.raises(R2medError, match=r"cannot keep vectors in .*: Not a directory"):
        store.writer()
