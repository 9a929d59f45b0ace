"""The live page: it is told of everything that happens, and what is cancelled there stops and loses nothing."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from webparts import TOKEN, come_in, finish, job_of, served

import r2med
from r2med.runs.ledger import Ledger
from r2med.store.jobs import ended_work, running_work
from r2med.web.jobs import DONE, FAILED, STOPPED, Jobs

COMMAND = """
import pathlib, signal, time
import r2med
from r2med.store.jobs import reporter

def slow(queries, k):
    number = int(reporter.current.task == "sample/MedQA-Diag")
    reporter.warn("the disk is nearly full")
    while not pathlib.Path(f"go-{number}").exists():
        time.sleep(0.02)
    return [[("mqd-d001" if number else "bio-d001", 1.0)] for _ in queries]

signal.signal(signal.SIGTERM, signal.default_int_handler)  # as every command does
with reporter.command("r2med run slow bm25"):
    r2med.evaluate([slow, "bm25"], ["sample/Biology", "sample/MedQA-Diag"])
"""


def begin(place: Path) -> subprocess.Popen[str]:
    """A command of another process that goes on when it is told to."""
    (place / "command.py").write_text(COMMAND)
    return subprocess.Popen([sys.executable, "command.py"], cwd=place, text=True, stderr=subprocess.PIPE)


def wait_for(what, seconds: float = 30.0):
    """The first thing that is there, or nothing after a while."""
    until = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def stored() -> dict[tuple[str, str], tuple[str, float]]:
    """System and task of every run to when it was made and how long that took."""
    with Ledger() as ledger:
        return {(entry.system, entry.task): (entry.created, entry.seconds) for entry in ledger.entries()}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_fills_the_page_and_is_cancelled_without_loss(browser, place):
    requests: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(20_000)
    page.on("request", lambda request: requests.append(urlsplit(request.url).path))
    ledger_file = place / "home" / "ledger.sqlite"
    with served(ledger_file) as own:
        come_in(page, own)
        page.goto(f"{own}/progress")
        assert "Nothing is running" in page.locator("main").inner_text()
        command = begin(place)
        page.wait_for_selector("td.cell-running:has-text('…')")
        assert page.locator("table.matrix td").count() == 4
        assert page.evaluate("getComputedStyle(document.querySelector('progress.bar')).appearance") == "none"
        assert "the disk is nearly full" in page.locator("ul.warnings").inner_text()
        (place / "go-0").touch()
        page.wait_for_selector("tr:has-text('bm25') td.cell-done a")
        page.wait_for_selector("[data-until]")
        assert "2 of 4 done" in page.locator("section[data-card]").first.inner_text()
    assert requests.count("/progress/events") == requests.count("/progress") == 1, "it is told, and asks for nothing"
    page.wait_for_selector("[data-away]:visible")
    with served(ledger_file, port=urlsplit(own).port):
        page.wait_for_selector("[data-away]", state="hidden")
        with page.expect_navigation():
            page.click("form.stop button")
        page.wait_for_selector("details[data-card]:has-text('stopped')")
        assert command.wait(20) != 0
        assert "KeyboardInterrupt" in command.stderr.read()
        page.click("details[data-card] summary")
        page.locator("details td a").first.click()
        page.wait_for_url("**/run/*")
    kept = stored()
    assert sorted(task for _, task in kept) == ["sample/Biology"] * 2
    assert running_work() == []
    (work,) = ended_work()
    assert [cell.state for cell in work.cells] == ["done", "done", "stopped", "waiting"]
    (place / "go-1").touch()
    again = begin(place)
    assert again.wait(30) == 0, again.stderr.read()
    assert len(stored()) == 4
    assert kept.items() <= stored().items(), "what was finished is not done again"
    page.close()


def test_jobs_are_stopped_one_by_one(place, monkeypatch):
    (place / "stubborn.py").write_text(
        "import pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('deaf').touch()\nwhile True: time.sleep(0.02)"
    )
    (place / "broken.py").write_text("import sys\nprint('x\\nr2med: no such thing', file=sys.stderr)\nsys.exit(1)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]))
    jobs = Jobs()
    first = jobs.submit(("a",), "Stubborn", "/", ("stubborn",))
    second = jobs.submit(("b",), "Waiting", "/", ("stubborn",))
    third = jobs.submit(("c",), "Broken", "/", ("broken",))
    assert wait_for((place / "deaf").exists)
    assert jobs.cancel(second.number)
    assert job_of(jobs, second.number).state == STOPPED
    assert jobs.cancel(first.number)
    process = job_of(jobs, first.number).process
    assert job_of(jobs, first.number).active, "it was asked kindly and does not listen"
    assert jobs.cancel(first.number)
    finish(jobs)
    assert job_of(jobs, first.number).state == STOPPED
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert (job_of(jobs, third.number).state, job_of(jobs, third.number).error) == (FAILED, "no such thing")
    assert not jobs.cancel(first.number)
    last = jobs.submit(("a",), "Fine", "/", ("platform",))
    finish(jobs)
    assert job_of(jobs, last.number).state == DONE
    jobs.submit(("d",), "Left behind", "/", ("stubborn",))
    jobs.close()


def test_only_what_is_there_is_cancelled_and_only_from_here(place):
    import httpx2 as httpx

    from r2med.store.jobs import reporter

    with reporter.cell("bm25", "sample/Biology"), served(place / "home" / "ledger.sqlite") as own:
        (work,) = running_work()
        assert not work.stoppable, "a server does not stop itself"
        client = httpx.Client(base_url=own, headers={"authorization": f"Bearer {TOKEN}", "origin": own})
        for form in ({"work": work.name}, {"work": "../../x"}, {"job": "7"}, {"job": "x"}, {}):
            answer = client.post("/progress/cancel", data=form)
            assert answer.status_code == 400
            assert "come to its end already" in answer.text
        assert client.post("/progress/cancel", data={}, headers={"origin": "http://evil.example"}).status_code == 403
        page = client.get("/progress").text
        assert re.search(r'class="dot"(?![^>]*hidden)', client.get("/runs").text)
    with served(place / "home" / "ledger.sqlite") as own:
        client = httpx.Client(base_url=own, headers={"authorization": f"Bearer {TOKEN}"})
        assert re.search(r'class="dot"[^>]*hidden', client.get("/runs").text)
    assert "/progress/cancel" not in page


def test_a_killed_command_leaves_a_trace_and_no_lit_dot(browser, place):
    page = browser.new_page()
    page.set_default_timeout(20_000)
    with served(place / "home" / "ledger.sqlite") as own:
        come_in(page, own)
        command = begin(place)
        (place / "go-0").touch()
        page.goto(f"{own}/progress")
        page.wait_for_selector("td.cell-done:has-text('0'), td.cell-done a")
        wait_for(lambda: len(stored()) == 2)
        page.wait_for_selector("section[data-card]:has-text('2 of 4 done')")
        command.kill()
        command.wait()
        looking = browser.new_page()
        come_in(looking, own)
        looking.goto(f"{own}/runs")
        assert not looking.locator("nav.menu .dot").is_visible(), "nothing runs any more"
        card = page.locator("details[data-card]:has-text('r2med run slow bm25')")
        card.wait_for()
        assert card.locator(".tag.warn").inner_text() == "ended unexpectedly"
        card.locator("summary").click()
        assert "2 of 4 done. What was finished is kept: the same command goes on from there." in card.inner_text()
        assert "Nothing is running" in page.locator("main").inner_text()
        assert running_work() == []
        looking.close()
    page.close()


def test_a_run_that_failed_altogether_is_not_called_finished(browser, place):
    page = browser.new_page()
    page.set_default_timeout(20_000)
    program = [sys.executable, "-m", "r2med", "run", "hyde(openai:x@http://127.0.0.1:9/v1) >> bm25"]
    done = subprocess.run([*program, "--tasks", "sample/Biology"], check=False, capture_output=True, text=True)
    assert done.returncode, done.stdout
    with served(place / "home" / "ledger.sqlite") as own:
        come_in(page, own)
        page.goto(f"{own}/progress")
        card = page.locator("details[data-card][open]")
        assert card.locator(".tag.warn").inner_text() == "1 of 1 failed"
        assert card.locator("p.bad").is_visible()
        assert "finished" not in card.inner_text()
    page.close()


def test_only_what_has_changed_is_announced(place):
    import asyncio

    import orjson
    from msgspec.structs import replace

    from r2med.store.jobs import Reporter, reporter
    from r2med.web.library import Library
    from r2med.web.live import LiveFeed

    def end(name: str) -> None:
        with reporter.command(name), reporter.cell("bm25", "sample/Biology"):
            reporter._work = replace(reporter._work, began=time.time() - 5)

    end("r2med run first")

    async def listened() -> list[str]:
        said = []
        events = LiveFeed(Library(place / "home" / "ledger.sqlite")).events()
        with reporter.command("r2med run long"), reporter.cell("bm25", "sample/Biology"):
            for number in range(4):
                while not (event := await anext(events)).startswith(b"data: "):
                    pass
                said.append(orjson.loads(event.removeprefix(b"data: "))["said"])
                reporter.step("reading", number, 9)
                reporter._put()
                if number == 1:
                    writing = Reporter()
                    with writing.command("r2med run second"), writing.cell("bm25", "sample/Biology"):
                        writing._work = replace(writing._work, began=time.time() - 5)
        return said

    with ThreadPoolExecutor(1) as aside:  # a browser of another test may have an event loop in this thread
        announced = aside.submit(asyncio.run, listened()).result()
    assert announced == ["", "", "r2med run second: finished.", ""]


def test_a_search_with_an_encoder_is_not_work_of_the_server(place):
    import httpx2 as httpx

    r2med.evaluate("wordllama", "sample/Biology")
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port = tried.getsockname()[1]
    command = [sys.executable, "-m", "r2med", "serve", "--port", str(port), "--token", TOKEN]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr.readline().startswith("http://")
        own = f"http://127.0.0.1:{port}"
        client = httpx.Client(base_url=own, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
        asked = {"task": "sample/Biology", "system": "wordllama", "q": "swollen gums"}
        assert "<mark" in client.get("/search", params=asked).text
        assert "Nothing is running" in client.get("/progress").text
        assert re.search(r'class="dot"[^>]*hidden', client.get("/runs").text)
    finally:
        server.terminate()
        server.communicate()
