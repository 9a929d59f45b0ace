"""Asking models from the command line: settings, servers that are not there, and being stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chat_server import Say
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import find_model
from r2med.settings import RequestSettings, overriding, request_settings

SOURCE = Path(__file__).parents[2] / "src"


def command(*words: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "r2med", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "COLUMNS": "300"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_server_that_is_down_is_asked_for_once_for_all_tasks(serve):
    server = serve(lambda prompt, nth: Say(status=401))
    process = command("run", f"hyde(tiny@{server.url}) >> bm25", "--tasks", "sample", "--concurrency", "1", "--json")
    said = json.loads(process.communicate(timeout=120)[0])
    assert process.returncode == 1
    assert len(said["failures"]) == 8
    assert server.attempts == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_being_told_to_stop_is_said_at_once_and_loses_nothing(serve, number):
    server = serve(lambda prompt, nth: Say(delay=1.5))
    process = command("run", f"hyde(tiny@{server.url}) >> bm25", "--tasks", "sample/Biology", "--concurrency", "4")
    while server.attempts < 4:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    lines = list(filter(None, process.communicate(timeout=60)[1].splitlines()))
    assert process.returncode == 130
    assert lines == [
        "stopping: 4 requests under way may still take 120 s; Ctrl-C again stops at once",
        "stopped; what was finished is kept",
    ]
    assert server.attempts == server.answered == 4
    again = command("run", f"hyde(tiny@{server.url}) >> bm25", "--tasks", "sample/Biology")
    assert again.wait(timeout=120) == 0
    assert set(server.asked.values()) == {1}


def test_how_hard_servers_are_asked_is_an_option_of_every_verb_that_asks(serve, tmp_path):
    server = serve(lambda prompt, nth: Say(status=500))
    asked = ("--retries", "0", "--timeout", "5", "--rpm", "6000", "--concurrency", "1")
    label = ("label", "sample/Biology", "--llm", f"tiny@{server.url}", "--out", str(tmp_path / "labels.tsv"))
    process = command(*label, *asked)
    assert "500 from" in process.communicate(timeout=120)[1]
    assert process.returncode == 1
    # Biology has nine queries, each asked once.
    assert server.attempts == 9


@pytest.mark.parametrize("option", ["--concurrency", "--timeout", "--retries", "--rpm"])
def test_a_setting_out_of_range_is_one_line(option):
    process = command("run", "bm25", option, "-1" if option == "--retries" else "0")
    error = process.communicate(timeout=60)[1].splitlines()[-1]
    assert process.returncode == 2
    assert error.startswith(f"Error: Invalid value for '{option}':")


def test_settings_of_a_file_hold_and_the_command_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[requests]\ntimeout = 30\nretries = 1\n")
    (tmp_path / "r2med.toml").write_text("[requests]\nretries = 2\nrequests_per_minute = 90.5\n")
    with overriding(RequestSettings(concurrency=3)):
        limits = Limits.configured(max_cost=1.0)
    assert (limits.timeout, limits.retries, limits.requests_per_minute, limits.concurrency) == (30, 2, 90.5, 3)
    assert Limits.configured().concurrency == Limits().concurrency


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("retries = 1.5", "retries must be a whole number of at least 0, not 1.5"),
        ("retries = true", "retries must be a whole number"),
        ("timeout = 0", "timeout must be a number above 0, not 0"),
        ("concurrency = 0", "concurrency must be a whole number of at least 1"),
        ("retrys = 1", "requests.retrys is not a known key; did you mean retries?"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_file(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2med.toml").write_text(f"[requests]\n{line}\n")
    with pytest.raises(R2medError) as error:
        request_settings()
    assert "r2med.toml" in str(error.value)
    assert message in str(error.value)


def said(*words: str, code: int = 0) -> str:
    """What a command prints, results and remarks."""
    process = command(*words)
    out, remarks = process.communicate(timeout=120)
    assert process.returncode == code, remarks
    assert "Traceback" not in remarks
    return out + remarks


def test_a_text_that_was_cut_is_marked_wherever_incomplete_ones_are(serve):
    server = serve(lambda prompt, nth: Say(text="half a pass", choice={"finish_reason": "length"}))
    spec = f"hyde(tiny@{server.url}, max_tokens=40) >> bm25"
    run = ("run", spec, "--tasks", "sample/Biology")
    shown = said(*run)
    assert "9 queries incomplete (the text was cut by max_tokens" in shown
    assert "9 of 9 texts were cut by max_tokens" in shown
    found = json.loads(said(*run, "--json"))["results"][0]
    assert set(found["incomplete"].values()) == {"the text was cut by max_tokens"}
    # What there is of the text is searched with all the same, and nothing is paid for again.
    assert server.attempts == 9
    assert "all 9 queries incomplete, so it has no rank" in said("board", "--group", "sample")
    assert "strict was asked for" in said(*run, "--strict", "--fresh", code=1)


def test_answers_are_listed_and_dropped_by_model_and_by_use(serve):
    useless = Say(text="")
    server = serve(lambda prompt, nth: useless if "fruit" in prompt else Say())
    said("run", f"hyde(tiny@{server.url}) >> bm25", f"hyde(other@{server.url}) >> bm25", "--tasks", "sample/Biology")
    rows = {row["what"]: row for row in json.loads(said("cache", "--json")) if row["kind"] == "answers"}
    assert set(rows) == {f"tiny at {server.url}", f"other at {server.url}"}
    tiny = rows[f"tiny at {server.url}"]
    unusable = sum("fruit" in prompt for prompt in server.asked)
    assert unusable > 0
    assert tiny["holds"] == f"9 answers, {unusable} unusable"
    assert tiny["bytes"] > 1000
    dropped = f"removed {unusable} unusable {'answer' if unusable == 1 else 'answers'} of tiny"
    assert dropped in said("cache", "clear", "answers", "--model", "tiny", "--unusable")
    assert f"removed {9 - unusable} answers of tiny" in said("cache", "clear", "answers", "--model", "tiny", "--yes")
    assert "no answers of 'tiny' are kept" in said("cache", "clear", "answers", "--model", "tiny", code=1)
    assert "removed 9 answers" in said("cache", "clear", "answers", "--yes")
    assert "removed 0 scores" in said("cache", "clear", "scores")
    assert "name a model, answers, scores or replies" in said("cache", "clear", code=2)


def test_a_plan_says_what_it_does_not_know_and_shows_one_prompt():
    plan = ("run", "hyde(tiny@http://127.0.0.1:9/v1) >> bm25", "--tasks", "sample", "--dry-run")
    shown = said(*plan)
    assert "dollars ?, dollars at most ?" in shown
    assert len({line.strip() for line in shown.splitlines() if "requests 9" in line}) == 8
    once, all_of_them = shown.count("\n      | "), said(*plan, "--prompts").count("\n      | ")
    assert 0 < once < all_of_them / 4


@pytest.mark.parametrize("spec", ['replay("\\u0000") >> bm25', 'hyde(local, prompt="\\u0000") >> bm25'])
def test_a_name_that_no_file_has_is_one_line(spec):
    assert len(said("run", spec, "--tasks", "sample/Biology", "--json", code=1).splitlines()) > 0


def test_a_script_by_a_name_that_no_file_has_is_one_line():
    with pytest.raises(R2medError, match="cannot read the script"):
        find_model("scripted:\ud800")


def test_a_script_without_rules_is_refused(tmp_path):
    (tmp_path / "s.toml").write_text('[[reply]]\ntext = "a"\n')
    with pytest.raises(R2medError, match="rule"):
        find_model(f"scripted:{tmp_path}/s.toml")


def test_a_hub_that_is_down_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    process = command("run", "hf:foo/bar", "--tasks", "sample/Biology", "--format", "csv")
    lines = process.communicate(timeout=120)[1].splitlines()
    assert process.returncode == 1
    assert len(lines) == 1
    assert lines[0].startswith("failed: hf:foo/bar on sample/Biology: cannot fetch foo/bar from http://127.0.0.1:9")
