"""Flipped bits are never believed, kills lose nothing: slices of `benchmarks/bitflips.py` and `benchmarks/kills.py`."""

from __future__ import annotations

import sqlite3
import sys
import warnings
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.encode.vectors import VectorStore
from r2med.engines.push import _Pushed
from r2med.errors import R2medError, StoreWarning
from r2med.llm.items import ItemStore
from r2med.llm.reply_cache import ReplyCache
from r2med.pipeline.evaluate import Options
from r2med.rerank.pair_scores import Scored, ScoreStore, pair_digest
from r2med.reviews.rows import FORMAT
from r2med.reviews.store import ReviewStore
from r2med.runs.ledger import Ledger
from r2med.store.arrays import ValueStore
from r2med.store.columns import text_digest, text_hashes
from r2med.store.sqlite import DamagedError, Database

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import bitflips
import kills


def test_flipped_bits_are_never_believed(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", "")  # which the script sets
    outcomes = bitflips.measure(14, 1, tmp_path)
    found = {name: dict(counts) for name, counts in outcomes.items()}
    assert all(sum(counts.values()) == 2 for counts in found.values())
    assert not any(outcome.isupper() for counts in found.values() for outcome in counts), found


def test_kills_lose_nothing_and_change_nothing(tmp_path):
    table = kills.measure(2, 1, tmp_path, ("generate", "nano build"))
    for name, counts in table.items():
        assert counts["kills"], name
        faults = {fault: counts[fault] for fault in ("lost", "unreadable", "different", "left over")}
        assert not any(faults.values()), (name, faults)
        assert counts["paid twice"] <= kills.CONCURRENCY * counts["kills"], name


def change(home: Path, file: str, statement: str) -> None:
    """What a flipped bit does: another value under the same seal."""
    with sqlite3.connect(home / file) as connection:
        assert connection.execute(statement).rowcount
    connection.close()


def test_a_damaged_score_is_computed_from_the_lists_again(own_home):
    before = r2med.evaluate("bm25", "sample/Biology").results[0]
    change(own_home, "ledger.sqlite", "UPDATE scores SET per_query = zeroblob(length(per_query))")
    with pytest.warns(StoreWarning, match=f"of run {before.id} is damaged in the ledger and left out"):
        again = r2med.evaluate("bm25", "sample/Biology").results[0]
    assert again.cached
    assert again.metrics == before.metrics
    with Ledger() as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ledger.means()[before.id] == before.metrics


def test_a_run_whose_lists_are_damaged_too_is_made_again(own_home):
    before = r2med.evaluate("bm25", "sample/Biology").results[0]
    change(own_home, "ledger.sqlite", "DELETE FROM scores WHERE measure != 'nDCG@10'")
    change(own_home, "ledger.sqlite", "UPDATE scores SET mean = 0.9")
    change(own_home, "ledger.sqlite", "UPDATE rankings SET data = substr(data, 1, length(data) - 1) || x'00'")
    with Ledger() as ledger, pytest.raises(DamagedError, match=r"rankings of run .* are damaged"):
        ledger.run(ledger.get(before.id))
    with pytest.warns(StoreWarning, match="made again now"):
        again = r2med.evaluate("bm25", "sample/Biology").results[0]
    assert not again.cached
    assert again.metrics == before.metrics


@pytest.mark.parametrize("column", ["key", "id"])
def test_a_run_whose_name_is_damaged_is_made_and_kept_again(column, own_home):
    before = r2med.evaluate("bm25", "sample/Biology").results[0]
    change(own_home, "ledger.sqlite", f"UPDATE runs SET {column} = 'x' || {column}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        again = [r2med.evaluate("bm25", "sample/Biology").results[0] for _ in range(2)]
    assert [each.cached for each in again] == [False, True]
    assert [each.metrics for each in again] == [before.metrics] * 2
    assert not any(each.warnings for each in again)


@pytest.mark.parametrize(
    "damage", ["system = 'wordllama'", "record = replace(record, '64', '65')", "used = used + 7", "task = x'ff'"]
)
def test_a_damaged_run_is_named_and_left_out(damage, own_home):
    first = r2med.evaluate("bm25", "sample/Biology").results[0]
    other = r2med.evaluate("bm25-classic", "sample/Biology").results[0]
    change(own_home, "ledger.sqlite", f"UPDATE runs SET {damage} WHERE id = '{first.id}'")
    with Ledger() as ledger, pytest.warns(StoreWarning, match=f"run {first.id} is damaged"):
        assert [entry.id for entry in ledger.entries()] == [other.id]
    with Ledger() as ledger, pytest.raises(DamagedError, match="make it again with r2med run"):
        ledger.get(first.id)
    with pytest.warns(StoreWarning, match=f"run {first.id} is damaged"):
        assert r2med.evaluate("bm25", "sample/Biology").results[0].metrics == first.metrics


def test_a_damaged_pair_is_scored_again(own_home):
    pairs = [pair_digest(text_digest("why?"), text_digest(str(number))) for number in range(3)]
    with ScoreStore({"model": "m"}) as store:
        store.keep({pair: Scored(float(number), 4) for number, pair in enumerate(pairs)})
    (rows,) = own_home.glob("scores/*/*.rows")
    content = bytearray(rows.read_bytes())
    content[16:24] = np.float64(7.0).tobytes()
    rows.write_bytes(content)
    with ScoreStore({"model": "m"}) as store, pytest.warns(StoreWarning, match="1 scores of m in .* are damaged"):
        assert set(store.scored(pairs)) == {pairs[0], pairs[2]}


ANEW = "move it away to start a new one, or use that version"
AGAIN = "remove it, it is made again"
FILES = {
    "ledger.sqlite": (Ledger, ANEW),
    "reviews/pilot.sqlite": (ReviewStore, ANEW),
    "build.sqlite": (lambda path: ItemStore(path.parent), ANEW),
    "llm.sqlite": (ReplyCache, AGAIN),
    "pushes.sqlite": (lambda path: _Pushed("index"), AGAIN),
}
"""Every file of ours with what opens it, and what to do with one of another version."""


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_version_is_one_line_that_says_what_to_do_and_stays_as_it_is(name, own_home):
    path = own_home / name
    opened, advice = FILES[name]
    Database(path, FORMAT).close() if opened is ReviewStore else opened(path)
    for number, said in ((99, "made by another version of r2med"), (0, "not a ")):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")
            before = list(connection.iterdump())
        with pytest.raises(R2medError) as error:
            opened(path)
        assert str(error.value).startswith(f"{path}: {said}")
        assert str(error.value).endswith(advice)
        assert "\n" not in str(error.value)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (number,)
            assert list(connection.iterdump()) == before


def write_vectors():
    with VectorStore({"model": "m"}).writer() as writer:
        writer.append(text_hashes(["a", "b"]), np.ones(2, np.int64), np.eye(2, dtype=np.float32))


def write_scores():
    with ScoreStore({"model": "m"}) as store:
        store.keep({text_digest("a"): Scored(1.0)})


def write_replies():
    with ValueStore("replies", {}) as store:
        store.write({text_digest("a"): b"[]"})


ARRAYS = {
    "vectors": (write_vectors, lambda: VectorStore({"model": "m"})),
    "scores": (write_scores, lambda: ScoreStore({"model": "m"})),
    "replies": (write_replies, lambda: ValueStore("replies", {})),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_another_version_are_one_line_that_says_what_to_do(kind, own_home):
    write, read = ARRAYS[kind]
    write()
    (log,) = (own_home / kind).glob("*/*.log")
    bare = bytearray(log.read_bytes())
    bare[8] += 1  # the version
    bare[28:32] = zlib.crc32(bytes(bare[:28])).to_bytes(4, "little")
    log.write_bytes(bytes(bare))
    with pytest.raises(R2medError, match=rf"made by another version of r2med; remove {log.parent}, it is made again"):
        read()


def test_a_whole_number_is_kept_under_the_seal_that_it_is_read_with(own_home):
    # SQLite gives whole and negative zero numbers back in another form.
    report = r2med.evaluate("bm25", "sample/Biology", Options(fresh=True))
    with Ledger() as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = ledger.get(report.results[0].id)
        ledger.add_scores(entry, {"zero": np.full(len(entry.queries), -0.0), "one": np.ones(len(entry.queries))})
        assert {"zero", "one"} <= ledger.scores(entry).keys()
