"""A run of the tests that leaves something out says so at its end, with how much and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PUBLISHED = "tests/data/test_data_tasks.py"


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a few tests with the collections in a folder."""
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-k", "agree", PUBLISHED]
    env = os.environ | {"R2MED_TEST_DATA": str(folder), "COLUMNS": "100"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def test_what_was_left_out_is_counted_at_the_end(tmp_path: Path):
    (tmp_path / "data").mkdir()
    done = run_tests(tmp_path / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    *_, headline, reason, total = done.stdout.splitlines()
    assert "!!!! NOT TESTED: 2 test(s) skipped !!!!" in headline
    assert reason.split(maxsplit=1) == [
        "2",
        "the tables of published figures are not here: R2MED_TEST_DATA names their folder",
    ]
    assert total.startswith("2 skipped")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    done = run_tests(tmp_path / "absent")
    assert done.returncode == 4
    assert f"ERROR: R2MED_TEST_DATA names {tmp_path / 'absent'}, which is not a folder" in done.stderr
