"""A person's own code and long work: where an error came from, and how far the work is, are said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import r2med
from r2med.pipeline.system import System

MODULE = """
import time

class Boom:
    def encode_queries(self, texts):
        return self.deeper(texts)

    def encode_documents(self, texts):
        return [[1.0, 2.0]] * len(texts)

    def deeper(self, texts):
        raise ValueError("my bug")

class Slow(Boom):
    def encode_queries(self, texts):
        time.sleep(1)
        return [[1.0, 2.0]] * len(texts)

class Unmade(Boom):
    def __init__(self):
        raise KeyError("no such key")

class Overlap:
    def score(self, query, documents):
        return [float(len(set(query.split()) & set(text.split()))) for text in documents]
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "my_enc.py").write_text(MODULE)
    return tmp_path


def run(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(r2med.__file__).parents[1]), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_an_error_names_its_type_file_and_line_and_debug_shows_the_whole_way(module: Path) -> None:
    line = next(number for number, text in enumerate(MODULE.splitlines(), 1) if "my bug" in text)
    done = run(module, "run", "my_enc:Boom", "--tasks", "sample/Biology")
    bug = f"my_enc:Boom: encode_queries failed: my_enc.py:{line}: ValueError: my bug"
    said = f"failed: my_enc:Boom on sample/Biology: {bug}"
    assert said in done.stdout.splitlines()
    assert "Traceback" not in done.stdout + done.stderr
    made = run(module, "run", "my_enc:Unmade", "--tasks", "sample/Biology").stdout
    assert re.search(r"my_enc:Unmade cannot be made: my_enc.py:\d+: KeyError: 'no such key'", made)
    for args in (("--debug", "run"), ("run", "--debug")):
        shown = run(module, *args, "my_enc:Boom", "--tasks", "sample/Biology")
        assert f'my_enc.py", line {line}, in deeper' in shown.stderr
        assert said in shown.stdout.splitlines()


def test_without_a_terminal_progress_is_a_line_now_and_then(module: Path) -> None:
    asked = ("run", "my_enc:Slow", "--tasks", "sample/Biology")
    done = run(module, *asked, R2MED_PROGRESS="0.1")
    lines = [line for line in done.stderr.splitlines() if line.startswith("sample/Biology, my_enc:Slow")]
    assert any(re.fullmatch(r"sample/Biology, my_enc:Slow: .+ \d+ of \d+, \d+ s", line) for line in lines), done.stderr
    assert run(module, *asked, "--fresh").stderr == ""
    assert "not a number of seconds" in run(module, *asked, "--fresh", R2MED_PROGRESS="x").stdout


def test_strings_stand_on_both_sides_of_the_arrows(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(module)
    monkeypatch.delitem(sys.modules, "my_enc", raising=False)
    stage = r2med.BM25()
    assert (stage >> "my_enc:Overlap").spec == "bm25 >> my_enc:Overlap"
    assert ("replay" >> stage).spec == "replay >> bm25"
    assert ("replay" >> (stage >> "my_enc:Overlap(depth=5)")).spec == "replay >> bm25 >> my_enc:Overlap(depth=5)"
    assert isinstance("replay >> bm25" >> System.parse("bm25"), System)


def test_a_reranker_in_a_folder_that_is_not_there_is_said(module: Path) -> None:
    done = run(module, "run", "bm25 >> ./nothing")
    assert done.returncode == 1
    assert done.stderr == "r2med: nothing: no such folder; a model is a folder of files\n"


def test_systems_behind_an_option_that_takes_many_values_are_looked_for(module: Path) -> None:
    done = run(module, "run", "--tasks", "sample/Biology", "bm25")
    assert done.returncode == 2
    assert "write it before --tasks, which takes all that follows" in done.stderr


def test_a_fresh_dry_run_computes_everything_again(module: Path) -> None:
    asked = ("run", "bm25", "--tasks", "sample/Biology")
    run(module, *asked)
    assert "sample/Biology: in the ledger" in run(module, *asked, "--dry-run").stdout
    assert "sample/Biology: to compute" in run(module, *asked, "--dry-run", "--fresh").stdout


def test_emoji_codes_and_markup_of_a_user_stay_text(module: Path) -> None:
    folder = module / "odd :smile: [red]x[bold]"
    folder.mkdir()
    (folder / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n')
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "dog"}\n{"id": "b", "text": "cat"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "q", "p_id": "a", "score": 1}\n')
    for args in (
        ("run", "bm25", "--tasks", str(folder)),
        ("runs",),
        ("board", "--tasks", str(folder)),
        ("tasks", "stats", str(folder)),
    ):
        done = run(module, *args)
        assert folder.name in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "args", [("report", "bm25", "--no-causes", "--out"), ("inspect", "bm25", "--html"), ("plot", "board", "--out")]
)
def test_outputs_make_the_folders_on_their_way_and_replace_what_was_there(module: Path, args: tuple[str, ...]) -> None:
    if args[0] == "plot":
        pytest.importorskip("matplotlib")
    run(module, "run", "bm25", "--tasks", "sample/Biology")
    file = module / "some" / "where" / ("x.svg" if args[0] == "plot" else "x.html")
    for _ in range(2):
        done = run(module, *args, str(file), "--tasks", "sample/Biology")
        assert done.returncode == 0, done.stderr
        assert len(file.read_bytes()) > 1000
        file.write_text("old")
