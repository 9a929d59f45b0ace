"""What a process tells others about its work."""

from __future__ import annotations

import subprocess
import sys

import pytest

import r2med
from r2med.pipeline.engine import quiet
from r2med.pipeline.evaluate import Options
from r2med.pipeline.system import System
from r2med.storage import progress
from r2med.storage.progress import account, in_progress


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))


def test_work_is_seen_while_it_lasts(monkeypatch):
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with account.working("bm25", "sample/Biology"):
        (work,) = in_progress()
        assert (work.system, work.task, work.share) == ("bm25", "sample/Biology", 0.0)
        with quiet().progress("indexing", 4) as bar:
            bar.advance(3)
            (work,) = in_progress()
            assert (work.step, work.done, work.total, work.share) == ("indexing", 3, 4, 0.75)
    assert in_progress() == []


def test_an_evaluation_tells_and_cleans_up(monkeypatch):
    seen = []
    monkeypatch.setattr(progress.ProgressFile, "_write", lambda self: seen.append(self._work))
    r2med.evaluate("bm25", "sample/Biology", Options(fresh=True))
    assert seen[0].system == "bm25"
    assert in_progress() == []


def test_work_of_a_process_that_is_gone_is_not_shown(tmp_path):
    held = "held = account.working('x', 'y')\nheld.__enter__()"
    code = f"import os\nfrom r2med.storage.progress import account\n{held}\nos._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    assert list((tmp_path / "progress").glob("*.json"))
    assert in_progress() == []


def test_files_of_others_are_passed_over(tmp_path):
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "1.json").write_text("{")
    (tmp_path / "progress" / "2.json").write_text('{"other": 1}')
    assert in_progress() == []


def test_without_work_a_bar_writes_nothing(tmp_path):
    with quiet().progress("x", 2) as bar:
        bar.advance()
    assert not (tmp_path / "progress").exists()


def test_a_command_tells_which_of_its_jobs_it_is_at(monkeypatch):
    seen = []
    work = System.work

    def watched(self, *arguments, **options):
        seen.extend((each.job, each.jobs) for each in in_progress())
        return work(self, *arguments, **options)

    monkeypatch.setattr(System, "work", watched)
    r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
