"""Training data compared by several commands: together they say and write what one does, to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from r2med.cli.main import app
from r2med.data import load
from r2med.leakage import spread_matching, training
from r2med.leakage.spread_matching import LeakWorker

TASKS = ("sample/Biology", "sample/MedQA-Diag")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Training data of 60 rows in two files, with texts of both tasks as they stand, in capitals and in part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "BLOCK", 800)
    monkeypatch.setattr(spread_matching, "_TOGETHER", 2)
    monkeypatch.setattr(spread_matching, "_LEAST", 1)
    known = [text for task in TASKS for text in load(task).collection.documents.texts[:20]]
    rows = [{"text": text.upper() if place % 3 else text[: 40 + 20 * place]} for place, text in enumerate(known)]
    rows += [{"query": load(TASKS[0]).collection.queries.texts[0], "none": "é \ud7ff 𝄞"}, {"empty": 1}]
    paths = [Path("one.jsonl"), Path("two.jsonl")]
    for path, part in zip(paths, (rows[:30], rows[30:]), strict=True):
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in part))
    return paths


def leakage(files: list[Path], *words: str) -> Result:
    names = [str(file) for file in files]
    out = ("--out", "pairs.jsonl", "--exclude", "clean")
    return CliRunner().invoke(app, ["leakage", *names, "--tasks", *TASKS, *out, *words])


def written() -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in (Path("pairs.jsonl"), *Path("clean").iterdir())}


def test_shards_say_and_write_what_one_command_does(
    files: list[Path], own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = leakage(files, "--json")
    assert alone.exit_code == 1, alone.output
    expected = written()
    assert expected["pairs.jsonl"].count(b"\n") > 30
    done: list[bytes] = []
    plain = LeakWorker.run
    monkeypatch.setattr(LeakWorker, "run", lambda self, payload: done.append(payload) or plain(self, payload))
    shutil.rmtree("clean")
    Path("pairs.jsonl").unlink()
    first = leakage(files, "--engine", "shard:1/2")
    assert first.exit_code == 0, first.output
    assert "shard 1/2: its share of blocks of leakage is done; " in first.stderr
    assert not Path("pairs.jsonl").exists(), "a share is not a result"
    merge = leakage(files, "--engine", "shard:merge/2")
    assert merge.exit_code == 2
    assert "run 1 shard again (2)" in merge.stderr
    second = leakage(files, "--engine", "shard:2/2")
    assert (second.exit_code, second.stdout) == (0, "")
    assert "shard 2/2: blocks of leakage are all done; shard:merge/2 makes the result of them" in second.stderr
    last = leakage(files, "--engine", "shard:merge/2", "--json")
    assert (last.exit_code, last.stdout) == (1, alone.stdout)
    assert written() == expected
    assert not [file for file in (own_home / "blocks").rglob("*") if file.is_file()]
    assert len(set(done)) == len(done) > 3, "each block once"


def test_a_shard_of_other_settings_is_refused(files: list[Path]) -> None:
    assert leakage(files, "--engine", "shard:1/2").exit_code == 0
    other = leakage(files, "--engine", "shard:2/2", "--threshold", "0.7")
    assert other.exit_code == 2
    assert "shard 2/2 has threshold 0.7, its siblings have 0.6" in other.stderr


def test_a_bad_line_is_the_same_line_of_error(files: list[Path]) -> None:
    with files[1].open("ab") as file:
        file.write(b"{\n")
    said = leakage(files).stderr
    assert "two.jsonl:" in said
    assert leakage(files, "--engine", "shard:1/1").stderr == said
    assert not said.count("\n") > 1


def test_pieces_without_pairs_travel_too() -> None:
    packed = spread_matching._packed_pieces([[], []])
    assert spread_matching._unpacked(packed, 2) == [[], []]
