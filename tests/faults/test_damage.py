"""Flipped bits are never believed, kills lose nothing: slices of `benchmarks/bitflips.py` and `benchmarks/kills.py`."""

from __future__ import annotations

import sqlite3
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.errors import StoreWarning
from r2med.llm.reply_cache import ReplyCache
from r2med.pipeline.evaluate import Options
from r2med.rerank.pair_scores import Scored, ScoreStore, pair_digest, text_digest
from r2med.runs.ledger import Ledger
from r2med.storage.sqlite import DamagedError

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
    with pytest.warns(StoreWarning, match=f"of run {before.run_id} is damaged in the ledger and left out"):
        again = r2med.evaluate("bm25", "sample/Biology").results[0]
    assert again.cached
    assert again.metrics == before.metrics
    with Ledger() as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ledger.means()[before.run_id] == before.metrics


def test_a_run_whose_lists_are_damaged_too_is_made_again(own_home):
    before = r2med.evaluate("bm25", "sample/Biology").results[0]
    change(own_home, "ledger.sqlite", "DELETE FROM scores WHERE measure != 'nDCG@10'")
    change(own_home, "ledger.sqlite", "UPDATE scores SET mean = 0.9")
    change(own_home, "ledger.sqlite", "UPDATE rankings SET data = substr(data, 1, length(data) - 1) || x'00'")
    with Ledger() as ledger, pytest.raises(DamagedError, match=r"rankings of run .* are damaged"):
        ledger.run(ledger.get(before.run_id))
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
    change(own_home, "ledger.sqlite", f"UPDATE runs SET {damage} WHERE id = '{first.run_id}'")
    with Ledger() as ledger, pytest.warns(StoreWarning, match=f"run {first.run_id} is damaged"):
        assert [entry.id for entry in ledger.entries()] == [other.run_id]
    with Ledger() as ledger, pytest.raises(DamagedError, match="make it again with r2med run"):
        ledger.get(first.run_id)
    with pytest.warns(StoreWarning, match=f"run {first.run_id} is damaged"):
        assert r2med.evaluate("bm25", "sample/Biology").results[0].metrics == first.metrics


def test_a_damaged_pair_is_scored_again(own_home):
    pairs = [pair_digest(text_digest("why?"), text_digest(str(number))) for number in range(3)]
    with ScoreStore({"model": "m"}) as store:
        store.keep(pairs, [Scored(float(number), 4) for number in range(3)])
    change(own_home, "rerank.sqlite", "UPDATE scores SET score = 7.0 WHERE score = 1.0")
    with ScoreStore({"model": "m"}) as store, pytest.warns(StoreWarning, match="1 kept scores are damaged"):
        assert set(store.find(pairs)) == {pairs[0], pairs[2]}


OLD_SCORES = """
CREATE TABLE settings (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, settings TEXT NOT NULL);
CREATE TABLE scores (setting INTEGER NOT NULL, pair BLOB NOT NULL, score REAL NOT NULL, tokens INTEGER NOT NULL,
    query_lost INTEGER NOT NULL, PRIMARY KEY (setting, pair)) WITHOUT ROWID;
PRAGMA user_version = 1;
"""
OLD_ANSWERS = """
CREATE TABLE answers (key TEXT PRIMARY KEY, model TEXT NOT NULL, created TEXT NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, request TEXT NOT NULL, answer TEXT NOT NULL);
PRAGMA user_version = 1;
"""


def test_files_of_the_first_format_are_sealed_when_they_are_opened(own_home):
    with ScoreStore({"model": "m"}) as store:
        key = store._key
    (own_home / "rerank.sqlite").unlink()
    scores = sqlite3.connect(own_home / "rerank.sqlite")
    scores.executescript(OLD_SCORES)
    scores.execute("INSERT INTO settings VALUES (1, ?, '{}')", (key,))
    scores.execute("INSERT INTO scores VALUES (1, x'00ff', 0.5, 3, 0)")
    scores.commit()
    scores.close()
    with ScoreStore({"model": "m"}) as store:
        assert store.find([b"\x00\xff"]) == {b"\x00\xff": Scored(0.5, 3, 0)}
    answer = '{"text":"yes","usage":{"prompt":1,"completion":2},"logprobs":[]}'
    answers = sqlite3.connect(own_home / "llm.sqlite")
    answers.executescript(OLD_ANSWERS)
    answers.execute("INSERT INTO answers VALUES ('k', 'm', '', 1, 2, '{}', ?)", (answer,))
    answers.commit()
    answers.close()
    kept = ReplyCache()
    assert kept.find(["k"])["k"].text == "yes"
    kept.close()
    change(own_home, "llm.sqlite", "UPDATE answers SET answer = replace(answer, 'yes', 'yet')")
    kept = ReplyCache()
    with pytest.warns(StoreWarning, match="a kept answer of m is damaged and is asked again"):
        assert kept.find(["k"]) == {}
    kept.close()


def test_a_whole_number_is_kept_under_the_seal_that_it_is_read_with(own_home):
    # SQLite gives whole and negative zero numbers back in another form.
    report = r2med.evaluate("bm25", "sample/Biology", Options(fresh=True))
    with Ledger() as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = ledger.get(report.results[0].run_id)
        ledger.add_scores(entry, {"zero": np.full(len(entry.queries), -0.0), "one": np.ones(len(entry.queries))})
        assert {"zero", "one"} <= ledger.scores(entry).keys()
