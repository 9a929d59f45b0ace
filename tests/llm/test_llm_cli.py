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

from r2med.config import RequestSettings, request_settings, requesting
from r2med.errors import R2medError
from r2med.llm import Limits

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
    with requesting(RequestSettings(concurrency=3)):
        limits = Limits.configured(max_cost=1.0)
    assert (limits.timeout, limits.retries, limits.requests_per_minute, limits.concurrency) == (30, 2, 90.5, 3)
    assert Limits.configured().concurrency == Limits().concurrency


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("retries = 1.5", "retries must be a whole number, not 1.5"),
        ("retries = true", "retries must be a whole number"),
        ("timeout = 0", "timeout must be more than 0 seconds"),
        ("concurrency = 0", "concurrency must be 1 or more"),
        ("retrys = 1", "unknown key 'retrys'; did you mean retries?"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_file(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2med.toml").write_text(f"[requests]\n{line}\n")
    with pytest.raises(R2medError) as error:
        request_settings()
    assert "r2med.toml" in str(error.value)
    assert message in str(error.value)
