"""What a process tells others about its work."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest

import r2med
from r2med.errors import R2medError
from r2med.pipeline.evaluate import Options
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.system import System
from r2med.store import progress
from r2med.store.progress import account, ended_work, in_progress


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
    code = f"import os\nfrom r2med.store.progress import account\n{held}\nos._exit(1)"
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


def test_every_system_on_every_task_is_a_cell_that_fills(monkeypatch):
    seen = []
    write = progress.ProgressFile._write
    monkeypatch.setattr(progress.ProgressFile, "_write", lambda self: (seen.append(self._work), write(self)))
    monkeypatch.setattr(progress, "_LONG", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)

    def broken(queries, k):
        raise ValueError("the index is gone")

    systems, tasks = ["bm25", broken], ["sample/Biology", "sample/MedQA-Diag"]
    report = r2med.evaluate(systems, tasks)
    states = [[cell.state for cell in work.cells] for work in seen]
    assert states[0] == ["running", "waiting", "waiting", "waiting"]
    assert ["done", "failed", "running", "waiting"] in states
    cells = seen[-1].cells
    assert [cell.task for cell in cells] == ["sample/Biology"] * 2 + ["sample/MedQA-Diag"] * 2
    assert cells[0].score == report.results[0].metrics["nDCG@10"]
    assert cells[0].run == report.results[0].run_id
    assert "the index is gone" in cells[1].note
    assert seen[-1].left(0.0) is not None
    with account.command("r2med run bm25"):
        r2med.evaluate("bm25", tasks)
    last, first = ended_work()
    assert first.outcome == "finished"
    assert (last.outcome, last.command) == ("finished", "r2med run bm25")
    assert [cell.state for cell in last.cells] == ["kept", "kept"]
    with pytest.raises(R2medError), account.command("r2med run x"), account.working("bm25", "sample/Biology"):
        raise R2medError("no such thing")
    broke = ended_work()[0]
    assert (broke.outcome, broke.error) == ("failed", "no such thing")


@pytest.mark.parametrize(
    ("ended_by", "remembered"),
    [(None, []), (R2medError("no such thing"), []), (KeyboardInterrupt(), ["stopped"])],
)
def test_what_was_stopped_is_remembered_however_short_it_was(ended_by, remembered, monkeypatch):
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with suppress(R2medError, KeyboardInterrupt), account.command("r2med run bm25"):
        account.step("indexing", 1, 2)
        if ended_by is not None:
            raise ended_by
    assert [work.outcome for work in ended_work()] == remembered


def test_what_is_spent_is_told_against_the_budget(monkeypatch):
    from chat_server import ChatServer, Say
    from r2med.llm.budget import Limits
    from r2med.llm.client import session

    seen = []
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress.ProgressFile, "_write", lambda self: seen.append(self._work))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with ChatServer(lambda prompt, nth: Say(text="gout")) as server, session(Limits(max_cost=2.0)):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        (result,) = r2med.evaluate("hyde(gpt-4o) >> bm25", "sample/Biology").results
    told = [work.spent for work in seen if work.spent is not None][-1]
    (paid,) = result.record.accounts
    assert (told.requests, told.tokens) == (paid.requests, paid.prompt_tokens + paid.completion_tokens)
    assert told.dollars == pytest.approx(paid.cost)
    assert told.max_dollars == 2.0
    assert told.share == pytest.approx(paid.cost / 2.0)
