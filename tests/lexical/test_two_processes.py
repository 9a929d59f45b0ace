"""A second process gives the files that one process gives, whatever becomes of it."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.data.dataset import Texts
from r2med.errors import DataError
from r2med.lexical import builder as index_builder
from r2med.lexical import postings as postings_builder
from r2med.lexical import two_processes
from r2med.lexical.builder import build_index, write_index
from r2med.lexical.pieces import JoinedTexts
from r2med.lexical.postings import TextBlock
from r2med.lexical.two_processes import SecondIndexer, TextQueue, is_worthwhile

WORDS = "renal failure fever cells β-blocker 東京都 naïve wall the of a.b 1,000 lone\ud800surrogate 👩‍🔬".split()
MEMORY = 400_000
"""So little that each process writes several runs."""


@pytest.fixture
def documents() -> Texts:
    drawn = random.Random(5)
    texts = [" ".join(drawn.choices([*WORDS, f"w{place % 977}"], k=drawn.randrange(12))) for place in range(6_000)]
    return Texts([f"d{place}" for place in range(len(texts))], texts)


@pytest.fixture(autouse=True)
def _worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_processes, "MIN_CHARACTERS", 0)
    monkeypatch.setattr(postings_builder, "BLOCK", 5_000)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def expected(documents: Texts, tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "alone"
    folder.mkdir()
    build_index(documents).save(folder)
    return files(folder)


def written(documents: Texts, folder: Path, memory: int = MEMORY) -> dict[str, bytes]:
    folder.mkdir()
    done: list[float] = []
    write_index(documents, folder, memory, done.append, threads=2)
    assert sum(done) == len(documents), "the bar reaches its end"
    return files(folder)


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[list[Path]]:
    """The runs of every merging."""
    seen: list[list[Path]] = []
    merge = index_builder.merge_runs
    monkeypatch.setattr(
        index_builder, "merge_runs", lambda runs, *options: seen.append(list(runs)) or merge(runs, *options)
    )
    return seen


@pytest.mark.parametrize("memory", [MEMORY, 1 << 30])
def test_two_processes_write_what_one_writes(documents, expected, merged, tmp_path, memory):
    assert written(documents, tmp_path / "both", memory) == expected
    (runs,) = merged
    parts = [run.parent.name for run in runs]
    assert parts == sorted(parts)
    assert set(parts) == {"runs", "second"}, "both had a part of it"
    assert (len(runs) > 2) == (memory == MEMORY)


@pytest.mark.parametrize("when", ["at the first block", "in the middle", "when all was sent", "as it answers"])
def test_a_process_that_is_killed_is_done_without(documents, expected, merged, monkeypatch, tmp_path, when):
    at = {"at the first block": 1, "in the middle": 4}.get(when, -1)
    fed: list[int] = []
    feed, finish, result = SecondIndexer.feed, SecondIndexer.finish, SecondIndexer.result

    def kill() -> None:
        for process in multiprocessing.active_children():
            os.kill(process.pid, 9)

    def feeding(worker: SecondIndexer) -> int:
        fed.append(feed(worker))
        if len(fed) == at:
            kill()
        return fed[-1]

    def finishing(worker: SecondIndexer) -> None:
        if when == "when all was sent":
            kill()
        finish(worker)

    def answering(worker: SecondIndexer) -> object:
        if when == "as it answers":
            kill()
        return result(worker)

    monkeypatch.setattr(SecondIndexer, "feed", feeding)
    monkeypatch.setattr(SecondIndexer, "finish", finishing)
    if when == "as it answers":
        monkeypatch.setattr(SecondIndexer, "finish", lambda worker: setattr(worker, "_result", sleeping(worker)))
    monkeypatch.setattr(SecondIndexer, "result", answering)
    assert written(documents, tmp_path / "one-and-a-half") == expected
    assert sum(fed)
    assert {run.parent.name for runs in merged for run in runs} == {"runs"}


def sleeping(worker: SecondIndexer) -> object:
    return worker._pool.submit(time.sleep, 600)


def test_where_none_can_be_started_one_does_it(documents, expected, monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", refuse)
    assert written(documents, tmp_path / "alone-after-all") == expected


class Unreadable(list[str]):
    """Texts of which some cannot be read."""

    def __getitem__(self, place):
        if isinstance(place, slice) and place.stop > len(self) - 100:
            raise DataError("corpus.jsonl: changed while it was in use")
        return super().__getitem__(place)


def test_an_error_of_reading_is_the_callers(documents, tmp_path):
    with pytest.raises(DataError, match="changed while it was in use"):
        written(Texts(documents.ids, Unreadable(documents.texts)), tmp_path / "broken")


def test_an_interruption_ends_both(documents, tmp_path):
    def interrupted(_: float) -> None:
        assert multiprocessing.active_children()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(documents, tmp_path, MEMORY, interrupted, threads=2)
    assert not multiprocessing.active_children()


SCRIPT = """
import multiprocessing, sys, time
from pathlib import Path
from r2med.data.dataset import Texts
from r2med.lexical import two_processes
from r2med.lexical.builder import write_index

print("started", flush=True)
two_processes.MIN_CHARACTERS = 0
texts = ["fever and chills"] * 20_000

def progress(done):
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    time.sleep(float(sys.argv[2]))

write_index(Texts([str(place) for place in range(len(texts))], texts), Path(sys.argv[1]), 400_000, progress, 2)
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The command of a script that indexes in two processes without a guard around what it does."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "index").mkdir()
    return [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "index")]


def test_the_worker_does_not_run_the_callers_script(script):
    run = subprocess.run([*script, "0"], capture_output=True, text=True, check=True)
    assert run.stdout.count("started") == 1
    assert "Traceback" not in run.stderr


def test_the_worker_does_not_outlive_a_killed_caller(script):
    caller = subprocess.Popen([*script, "600"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert caller.stdout.readline() == "started\n"
    process = Path("/proc") / caller.stdout.readline().strip() / "cmdline"
    deadline = time.monotonic() + 60
    while not process.read_bytes():  # a process that is just being started has no command line yet
        assert time.monotonic() < deadline, "it did not start"
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    deadline = time.monotonic() + 60
    while process.exists() and process.read_bytes():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)


def taken(texts: JoinedTexts) -> list[str]:
    return texts.data.strip(b"\0").decode().split("\0")


@given(st.integers(0, 700), st.integers(1, 400), st.lists(st.booleans(), max_size=40), st.booleans())
def test_ends_meet_and_nothing_is_left_or_taken_twice(count, characters, turns, front_first):
    texts = [f"t{place:03}" for place in range(count)]
    queue = TextQueue(texts)
    sides = {True: queue.blocks(characters), False: iter(lambda: queue.take_last(characters), None)}
    blocks: dict[bool, list[TextBlock]] = {True: [], False: []}
    for front in turns:
        blocks[front] += islice(sides[front], 1)
    for front in (front_first, not front_first):
        blocks[front] += sides[front]
    again = list(TextQueue(texts, start=queue.stop).blocks(characters))
    for parts in ([*blocks[True], *reversed(blocks[False])], [*blocks[True], *again]):
        assert [text for block in parts for text in taken(block.texts)] == texts
        assert [block.first for block in parts] == sorted(block.first for block in parts)
        assert all(texts[block.first] == taken(block.texts)[0] for block in parts)


def test_a_small_collection_or_one_processor_needs_no_second_process(monkeypatch):
    texts = ["fever and chills " * 20] * 1_000
    assert is_worthwhile(texts, 2)
    assert not is_worthwhile(texts[:100], 2)
    assert not is_worthwhile(texts, 1)
    monkeypatch.setattr(two_processes, "MIN_CHARACTERS", 340_001)
    assert not is_worthwhile(texts, 2)


def test_a_process_that_must_not_start_others_indexes_alone():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert not pool.apply(is_worthwhile, (["fever and chills " * 2_000] * 1_000, 2))
