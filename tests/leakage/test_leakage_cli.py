"""`r2med leakage` as a person and a CI job meet it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from leaking import words, write_rows

from r2med.data.loader import load
from r2med.leakage.cli import leakage_command as command

DATA = load("sample/Biology")
QUERY = DATA.collection.queries.texts[0]
JUDGED = {document for grades in DATA.gold.qrels.values() for document in grades}
OTHER = next(text for name, text in DATA.collection.documents if name not in JUDGED)


@pytest.fixture
def train(tmp_path):
    return write_rows(tmp_path / "train.jsonl", [{"text": words(30, 1)}, {"query": QUERY}, {"text": OTHER}])


def run(*arguments: object):
    return CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=True)


def test_a_leak_fails_and_the_clean_file_passes(train, tmp_path) -> None:
    clean = tmp_path / "clean.jsonl"
    done = run(
        train, "--tasks", "sample/Biology", "sample/MedQA-Diag", "--exclude", clean, "--out", tmp_path / "pairs.jsonl"
    )
    assert done.exit_code == 1
    assert "1 of 3 rows hold queries or positives, 1 more hold other documents." in done.output
    assert "1/9" in done.output
    assert f"{clean} is the training data without 1 rows" in done.output
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 2
    again = run(clean, "--tasks", "sample/Biology")
    assert again.exit_code == 0
    assert run(clean, "--tasks", "sample/Biology", "--documents").exit_code == 1
    cleaner = tmp_path / "cleaner.jsonl"
    assert run(train, "--tasks", "sample/Biology", "--documents", "--exclude", cleaner).exit_code == 1
    assert cleaner.read_bytes() == train.read_bytes().splitlines(keepends=True)[0]
    assert run(cleaner, "--tasks", "sample/Biology", "--documents").exit_code == 0


def test_json_for_machines(train, tmp_path) -> None:
    done = run(train, "--tasks", "sample/Biology", "--json", "--limit", 1, "--exclude", tmp_path / "clean.jsonl")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["leaks"] is True
    assert (found["rows"], found["affected_rows"], found["affected_rows_with_documents"]) == (3, 1, 2)
    assert [pair["line"] for pair in found["strongest"]] == [2]
    assert found["excluded"] == {str(tmp_path / "clean.jsonl"): 1}
    assert json.loads(run(train, "--tasks", "sample/MedQA-Diag", "--json").stdout)["leaks"] is False


def test_options_reach_the_check(train) -> None:
    options = (
        "--methods",
        "exact",
        "ngram",
        "--threshold",
        0.8,
        "--overlap",
        0.3,
        "--min-words",
        7,
        "--fields",
        "text",
    )
    found = json.loads(run(train, "--tasks", "sample/Biology", *options, "--json").stdout)
    assert found["settings"] == {
        "methods": ["exact", "ngram"], "threshold": 0.8, "overlap": 0.3, "min_words": 7, "fields": ["text"]
    }  # fmt: skip
    assert found["leaks"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--methods", "exakt"), "no method 'exakt'; did you mean exact?"),
        (("--threshold", "0.2"), "the threshold must be from 0.5 to 1, not 0.2"),
        (("--fields", "querry"), "no row has the field 'querry'; did you mean query?"),
    ],
)
def test_wrong_options_end_in_one_line(options, message: str, train) -> None:
    done = run(train, "--tasks", "sample/Biology", *options)
    assert done.exit_code == 2
    assert message in done.output


def test_nothing_is_read_when_the_clean_file_cannot_be_written(train) -> None:
    done = run(train, "--tasks", "no-such-task", "--exclude", train)
    assert done.exit_code == 2
    assert "exists already" in done.output


def test_the_real_command(train) -> None:
    call = [sys.executable, "-m", "r2med", "leakage", str(train), "--tasks", "sample/Biology"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "exact" in done.stdout
    assert done.stderr == ""
    broken = subprocess.run([*call[:4], str(train) + "x", *call[5:]], capture_output=True, text=True, check=False)
    assert broken.returncode == 2
    assert broken.stderr.count("\n") == 1
    assert broken.stderr.startswith("r2med: ")
