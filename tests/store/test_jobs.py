"""What a process tells others about its work."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress

import msgspec
import pytest

import r2med
from r2med.errors import R2medError
from r2med.pipeline.evaluate import Options
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.system import System
from r2med.store import jobs
from r2med.store.cache import home
from r2med.store.jobs import Work, ended_work, reporter, running_work


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))


def test_work_is_seen_while_it_lasts(monkeypatch):
    monkeypatch.setattr(jobs, "_EVERY", 0.0)
    with reporter.cell("bm25", "sample/Biology"):
        (work,) = running_work()
        assert (work.system, work.task, work.share) == ("bm25", "sample/Biology", 0.0)
        with quiet().progress("indexing", 4) as bar:
            bar.advance(3)
            (work,) = running_work()
            assert (work.step, work.done, work.total, work.share) == ("indexing", 3, 4, 0.75)
    assert running_work() == []


def test_an_evaluation_tells_and_cleans_up(monkeypatch):
    seen = []
    monkeypatch.setattr(jobs.Reporter, "_store", lambda self, work, *rest: seen.append(work))
    r2med.evaluate("bm25", "sample/Biology", Options(fresh=True))
    assert seen[0].system == "bm25"
    assert running_work() == []


def add_row(beat: float, **facts: object) -> None:
    """Add the row of a process, last heard of at a moment."""
    table = sqlite3.connect(home() / "jobs.sqlite")
    with closing(table), table:
        work = Work(1, "bm25", "sample/Biology", beat, beat, name=f"1-{beat}", **facts)
        table.execute("INSERT INTO jobs VALUES (?, ?, ?)", (work.name, beat, msgspec.json.encode(work)))


def test_a_process_of_another_machine_is_dead_without_heartbeats(monkeypatch):
    with reporter.cell("x", "y"):
        pass
    now = time.time()
    for silent in (1.0, 60.0, 90_000.0):
        add_row(now - silent, mark="elsewhere 1 2")
    assert [work.started for work in running_work()] == [now - 1.0]
    assert [(work.ended, work.outcome) for work in ended_work()] == [(now - 60.0, "ended unexpectedly")]


def test_a_process_that_works_in_silence_has_a_heartbeat(monkeypatch):
    monkeypatch.setattr(jobs, "_EVERY", 0.01)
    monkeypatch.setattr(jobs, "_BEAT", 0.05)
    beats = set()
    with reporter.cell("x", "y"), closing(sqlite3.connect(home() / "jobs.sqlite")) as table:
        until = time.monotonic() + 30
        while len(beats) < 3 and time.monotonic() < until:
            beats |= set(table.execute("SELECT beat FROM jobs").fetchall())
            time.sleep(0.01)
    assert len(beats) >= 3


def test_the_last_of_many_changes_is_seen(monkeypatch):
    monkeypatch.setattr(jobs, "_EVERY", 0.05)
    with reporter.cell("x", "y"):
        for number in range(1, 101):
            reporter.step("reading", number, 100)
        until = time.monotonic() + 30
        while running_work()[0].done < 100 and time.monotonic() < until:
            time.sleep(0.01)
        assert running_work()[0].done == 100


def test_a_damaged_table_stops_no_work_and_shows_none(tmp_path):
    (tmp_path / "jobs.sqlite").write_bytes(b"no table" * 1000)
    with reporter.cell("x", "y"):
        assert running_work() == ended_work() == []


def test_a_row_of_others_is_passed_over(tmp_path):
    with reporter.cell("x", "y"), closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as table, table:
        for number, content in enumerate((b"{", b'{"other": 1}')):
            table.execute("INSERT INTO jobs VALUES (?, ?, ?)", (str(number), time.time(), content))
        table.commit()
        assert [work.system for work in running_work()] == ["x"]


def test_only_the_last_of_ended_work_is_remembered(monkeypatch):
    monkeypatch.setattr(jobs, "_MOST", 2)
    monkeypatch.setattr(jobs, "_LONG", 0.0)
    for name in ("a", "b", "c", "d"):
        with reporter.command(f"r2med run {name}"), reporter.cell(name, "y"):
            pass
    with reporter.cell("e", "y"):
        assert [work.command for work in ended_work()] == ["r2med run d", "r2med run c"]


def test_without_work_a_bar_writes_nothing(tmp_path):
    with quiet().progress("x", 2) as bar:
        bar.advance()
    assert not (tmp_path / "jobs.sqlite").exists()


def test_a_command_tells_which_of_its_jobs_it_is_at(monkeypatch):
    seen = []
    work = System.work

    def watched(self, *arguments, **options):
        seen.extend((each.finished + 1, len(each.cells)) for each in running_work())
        return work(self, *arguments, **options)

    monkeypatch.setattr(System, "work", watched)
    r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_every_system_on_every_task_is_a_cell_that_fills(monkeypatch):
    seen = []
    write = jobs.Reporter._store
    monkeypatch.setattr(jobs.Reporter, "_store", lambda *row: (seen.append(row[1]), write(*row)))
    monkeypatch.setattr(jobs, "_LONG", 0.0)
    monkeypatch.setattr(jobs, "_EVERY", 0.0)

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
    assert cells[0].run == report.results[0].id
    assert "the index is gone" in cells[1].note
    assert seen[-1].left(0.0) is not None
    with reporter.command("r2med run bm25"):
        r2med.evaluate("bm25", tasks)
    last, first = ended_work()
    assert first.outcome == "finished"
    assert (last.outcome, last.command) == ("finished", "r2med run bm25")
    assert [cell.state for cell in last.cells] == ["kept", "kept"]
    with pytest.raises(R2medError), reporter.command("r2med run x"), reporter.cell("bm25", "sample/Biology"):
        raise R2medError("no such thing")
    broke = ended_work()[0]
    assert (broke.outcome, broke.error) == ("failed", "no such thing")


@pytest.mark.parametrize(
    ("ended_by", "remembered"),
    [(None, []), (R2medError("no such thing"), []), (KeyboardInterrupt(), ["stopped"])],
)
def test_what_was_stopped_is_remembered_however_short_it_was(ended_by, remembered, monkeypatch):
    monkeypatch.setattr(jobs, "_EVERY", 0.0)
    with suppress(R2medError, KeyboardInterrupt), reporter.command("r2med run bm25"):
        reporter.step("indexing", 1, 2)
        if ended_by is not None:
            raise ended_by
    assert [work.outcome for work in ended_work()] == remembered


def test_what_is_spent_is_told_against_the_budget(monkeypatch):
    from chat_server import ChatServer, Say
    from r2med.llm.budget import Limits
    from r2med.llm.client import session

    seen = []
    monkeypatch.setattr(jobs, "_EVERY", 0.0)
    monkeypatch.setattr(jobs.Reporter, "_store", lambda self, work, *rest: seen.append(work))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with ChatServer(lambda prompt, nth: Say(text="gout")) as server, session(Limits(max_cost=2.0)):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        (result,) = r2med.evaluate("hyde(gpt-4o) >> bm25", "sample/Biology").results
    told = [work for work in seen if work.spent is not None][-1]
    (paid,) = [step.account for step in result.record.work if step.account is not None]
    assert (told.spent.requests, told.spent.tokens) == (paid.requests, paid.prompt_tokens + paid.completion_tokens)
    assert told.spent.cost == pytest.approx(paid.cost)
    assert told.max_cost == 2.0
    assert told.spent_share == pytest.approx(paid.cost / 2.0)
