"""A second process gives the files that one process gives, whatever becomes of it."""

from __future__ import annotations

import os
import random
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.data.dataset import Texts
from r2med.errors import DataError
from r2med.retrieve import both_ends, index_builder, postings_builder, second_indexer
from r2med.retrieve.both_ends import BothEnds, is_worthwhile
from r2med.retrieve.index_builder import build_index, write_index
from r2med.retrieve.postings_builder import TextBlock
from r2med.storage.child_process import ChildProcess
from r2med.text.blocks import JoinedTexts

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
    monkeypatch.setenv("R2MED_THREADS", "2")
    monkeypatch.setattr(both_ends, "LEAST", 0)
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
    write_index(documents, folder, memory, done.append)
    assert sum(done) == len(documents), "the bar reaches its end"
    return files(folder)


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[list[Path]]:
    """The runs of every merging."""
    seen: list[list[Path]] = []
    merge = index_builder.merge_runs
    monkeypatch.setattr(
        index_builder, "merge_runs", lambda runs, memory: seen.append(list(runs)) or merge(runs, memory)
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


@pytest.mark.parametrize("when", ["at the first frame", "in the middle", "when all was sent", "as it answers"])
def test_a_process_that_is_killed_is_done_without(documents, expected, merged, monkeypatch, tmp_path, when):
    at = {"at the first frame": 1, "in the middle": 4}.get(when, -1)
    sent: list[int] = []
    send, receive = ChildProcess.send, ChildProcess.receive

    def kill(process: ChildProcess) -> None:
        os.kill(process.number, 9)

    def sending(process: ChildProcess, *parts: bytes) -> None:
        sent.append(len(parts))
        if len(sent) == at or (parts == (b"",) and when == "when all was sent"):
            kill(process)
        send(process, *parts)

    def receiving(process: ChildProcess) -> bytes:
        if when == "as it answers":
            kill(process)
        return receive(process)

    monkeypatch.setattr(ChildProcess, "send", sending)
    monkeypatch.setattr(ChildProcess, "receive", receiving)
    assert written(documents, tmp_path / "one-and-a-half") == expected
    assert sent
    assert {run.parent.name for runs in merged for run in runs} == {"runs"}


def test_where_none_can_be_started_one_does_it(documents, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-such-python"))
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


def test_an_interruption_ends_both(documents, monkeypatch, tmp_path):
    started: list[int] = []
    feed = second_indexer.SecondIndexer._feed
    monkeypatch.setattr(
        second_indexer.SecondIndexer, "_feed", lambda self: started.append(self._process.number) or feed(self)
    )

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(documents, tmp_path, MEMORY, interrupted)
    assert not (Path("/proc") / str(started[0])).exists()


def taken(texts: JoinedTexts) -> list[str]:
    return texts.data.strip(b"\0").decode().split("\0")


@given(st.integers(0, 700), st.integers(1, 400), st.lists(st.booleans(), max_size=40), st.booleans())
def test_ends_meet_and_nothing_is_left_or_taken_twice(count, characters, turns, front_first):
    texts = [f"t{place:03}" for place in range(count)]
    ends = BothEnds(texts)
    sides = {True: ends.from_front(characters), False: ends.from_back(characters)}
    blocks: dict[bool, list[TextBlock]] = {True: [], False: []}
    for front in turns:
        blocks[front] += islice(sides[front], 1)
    for front in (front_first, not front_first):
        blocks[front] += sides[front]
    again = list(ends.from_meeting(characters))
    for parts in ([*blocks[True], *reversed(blocks[False])], [*blocks[True], *again]):
        assert [text for block in parts for text in taken(block.texts)] == texts
        assert [block.first for block in parts] == sorted(block.first for block in parts)
        assert all(texts[block.first] == taken(block.texts)[0] for block in parts)


def test_a_small_collection_or_one_processor_needs_no_second_process(monkeypatch):
    texts = ["fever and chills " * 20] * 1_000
    assert is_worthwhile(texts)
    assert not is_worthwhile(texts[:100])
    monkeypatch.setenv("R2MED_THREADS", "1")
    assert not is_worthwhile(texts)
    monkeypatch.setenv("R2MED_THREADS", "2")
    monkeypatch.setattr(both_ends, "LEAST", 340_001)
    assert not is_worthwhile(texts)
