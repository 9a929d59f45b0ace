"""The ledger survives whatever happens to the processes that write it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from r2med.data.dataset import Generation
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import DataIdentity, RunRecord
from r2med.store.hashes import cache_key

RUN = Run.from_lists({"q1": (["d1", "d2"], [1.5, 2.5]), "q2": ([], [])})
SCORES = {"nDCG@10": np.array([0.25, 0.75]), "Recall@100": np.array([1.0, 0.0])}

WRITTEN = {"q1": [Generation("lupus", "hyde", "m", reasoning="fever, rash: ...")], "q2": []}


def entry(name: str = "bm25", task: str = "sample/Biology", group: str = "sample") -> Entry:
    return Entry(
        cache_key(name=name, task=task), name, task, group, ("q1", "q2"), 0.5, RunRecord(documents=64), scores=SCORES
    )


def test_what_is_written_is_read_back_exactly() -> None:
    with Ledger() as ledger:
        written = ledger.add(entry(), RUN, WRITTEN)
        found = ledger.find(written.key)
        assert found == written
        assert found is not None
        assert found.created
        assert ledger.get(written.id[:4]) == written
        again = ledger.run(found)
        assert again["q1"].documents == ["d2", "d1"]
        assert again["q1"].scores.tolist() == [2.5, 1.5]
        assert list(again.queries) == ["q1", "q2"]
        assert {name: values.tolist() for name, values in ledger.scores(found).items()} == {
            name: values.tolist() for name, values in SCORES.items()
        }
        assert ledger.generations(found) == WRITTEN
        assert ledger.means() == {written.id: {"nDCG@10": 0.5, "Recall@100": 0.5}}


def test_the_same_key_replaces_and_another_adds() -> None:
    with Ledger() as ledger:
        ledger.add(entry(), RUN, WRITTEN)
        ledger.add(replace(entry(), scores={"nDCG@10": np.array([1.0, 1.0])}), RUN)
        ledger.add(entry("bm25-classic"), RUN, WRITTEN)
        assert [found.system for found in ledger.entries()] == ["bm25-classic", "bm25"]
        assert ledger.means()[entry().id] == {"nDCG@10": 1.0}


def test_removing_takes_scores_and_lists_along(own_home: Path) -> None:
    with Ledger() as ledger:
        written = ledger.add(entry(), RUN, WRITTEN)
        ledger.remove([written])
        assert ledger.entries() == []
    database = sqlite3.connect(own_home / "ledger.sqlite")
    for table in ("runs", "scores", "rankings", "generations"):
        assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_entries_filter_by_system_and_group() -> None:
    with Ledger() as ledger:
        ledger.add(entry("a", "sample/Biology", "sample"), RUN, WRITTEN)
        ledger.add(entry("a", "Biology", "full"), RUN, WRITTEN)
        ledger.add(entry("b", "Biology", "full"), RUN, WRITTEN)
        assert {found.task for found in ledger.entries(system="a")} == {"sample/Biology", "Biology"}
        assert {found.system for found in ledger.entries(group="full")} == {"a", "b"}
        assert len(ledger.entries(limit=1)) == 1


@pytest.mark.parametrize("name", ["zzz", "", "%", "_"])
def test_an_unknown_run_is_one_line(name: str) -> None:
    with Ledger() as ledger:
        ledger.add(entry(), RUN, WRITTEN)
        with pytest.raises(R2medError, match="no run"):
            ledger.get(name)


def test_scores_must_fit_the_queries() -> None:
    with Ledger() as ledger:
        with pytest.raises(ValueError, match="1 values for 2 queries"):
            ledger.add(replace(entry(), scores={"nDCG@10": np.array([1.0])}), RUN)
        assert ledger.entries() == [], "a refused run leaves nothing behind"


def test_a_file_that_is_no_ledger_is_one_line(own_home: Path) -> None:
    (own_home / "ledger.sqlite").write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(R2medError, match="not a ledger"):
        Ledger()


WRITER = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from test_ledger import RUN, WRITTEN, entry
from r2med.runs.ledger import Ledger
with Ledger() as ledger:
    for place in range({count}):
        ledger.add(entry("{name}", f"task{{place}}"), RUN, WRITTEN)
        print(place, flush=True)
"""


def writer(name: str, count: int) -> subprocess.Popen[str]:
    code = WRITER.format(tests=str(Path(__file__).parent), name=name, count=count)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_write_at_once() -> None:
    writers = [writer("one", 40), writer("two", 40)]
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Ledger() as ledger:
        assert len(ledger.entries()) == 80


def test_a_killed_writer_loses_only_what_it_had_not_finished() -> None:
    process = writer("victim", 100_000)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    reported = [int(line) for line in process.stdout]
    process.wait()
    with Ledger() as ledger:
        entries = ledger.entries()
        assert len(entries) >= max(reported, default=20) + 1
        for found in entries:
            assert ledger.run(found)["q1"].documents == ["d2", "d1"]
            assert set(ledger.scores(found)) == set(SCORES)


def made_on(data: str, name: str = "bm25", created: str = "") -> Entry:
    record = RunRecord(DataIdentity(data), documents=64)
    key = cache_key(name=name, data=data)
    return Entry(key, name, "notes", "custom", ("q1", "q2"), 0.5, record, created, scores=SCORES)


def test_a_run_that_is_used_again_is_the_current_one_whatever_the_clock_says() -> None:
    with Ledger() as ledger:
        old = ledger.add(made_on("A", created="2190-01-01T00:00:00+00:00"), RUN, WRITTEN)
        ledger.add(made_on("B", created="1970-01-01T00:00:00+00:00"), RUN, WRITTEN)
        assert [found.data for found in ledger.entries()] == ["B", "A"]
        ledger.use(old)
        assert [found.data for found in ledger.entries()] == ["A", "B"]
        ledger.add(made_on("B", "wordllama"), RUN, WRITTEN)
        ledger.use(ledger.entries(system="bm25")[0])
        assert [found.data for found in ledger.entries()] == ["A", "B", "B"]


def test_using_the_current_run_writes_nothing() -> None:
    with Ledger() as ledger:
        first = ledger.add(made_on("A"), RUN, WRITTEN)
        ledger.add(made_on("A", "wordllama"), RUN, WRITTEN)
    with Ledger() as ledger:
        before = [(found.system, found.used) for found in ledger.entries()]
        ledger.use(first)
        assert [(found.system, found.used) for found in ledger.entries()] == before


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_what_is_kept_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with Ledger() as ledger:
        assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    (tmp_path / "shared").mkdir(mode=0o755)
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "shared"))
    with Ledger() as ledger:
        assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
