from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import webparts
from click.testing import CliRunner

import needs
import r2med
from r2med.cli.main import app

pytest.importorskip("starlette", reason="the web extra is not installed")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory):
    """A home with runs, made once; every test reads it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(home))
        task = webparts.fill(home)
        yield home, task


@pytest.fixture(scope="session")
def rich(filled, tmp_path_factory):
    """A home with everything that makes a control appear: oracles, causes, tasks with an index and without."""
    home = tmp_path_factory.mktemp("rich") / "home"
    shutil.copytree(filled[0], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(home))
        shutil.rmtree(home / "cache" / "bm25")
        r2med.evaluate("oracle-answer >> bm25", ["sample/Biology", "sample/MedQA-Diag"])
        for system in ("bm25", "replay >> bm25"):
            done = CliRunner().invoke(app, ["diagnose", system, "--tasks", "sample/Biology", "sample/MedQA-Diag"])
            assert done.exit_code == 0, done.output
        (home / "answers.jsonl").write_text('{"reply": "Answer: gout"}\n')
        for passages in ("1", "2"):
            asked = ["bm25", "--llm", f"scripted:{home / 'answers.jsonl'}", "--arms", "closed", "system", "gold"]
            done = CliRunner().invoke(app, ["rag", *asked, "--tasks", "sample/MedQA-Diag", "--k", passages])
            assert done.exit_code == 0, done.output
    return home


@pytest.fixture(scope="session")
def own_files(rich, tmp_path_factory) -> dict[str, Path]:
    """A site and a report over that home, as files; over a copy, for a report also finds causes and keeps them."""
    place = tmp_path_factory.mktemp("files")
    shutil.copytree(rich, place / "home")
    systems = ["bm25", "bm25-classic", "oracle-answer >> bm25"]
    made = {"site": place / "site", "report": place / "report.html"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(place / "home"))
        tasks = ["--tasks", "sample/Biology", "sample/MedQA-Diag"]
        for words in (
            ["site", *systems, "--no-reports", "--out", str(made["site"])],
            ["report", *systems[:2], *tasks, "--out", str(made["report"])],
        ):
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
    return made


@pytest.fixture(scope="session")
def rich_address(rich):
    """A server over that home."""
    with webparts.served(rich / "ledger.sqlite") as found:
        yield found


@pytest.fixture(autouse=True)
def _home(filled: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(filled[0]))


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = needs.program("chromium", "chromium-browser", "google-chrome")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium, args=flags)
        yield made
        made.close()


@pytest.fixture
def visit(browser):
    """Open pages in a context of their own; afterwards nothing may have been complained about in the console."""
    contexts, complaints = [], []

    def opened(url: str, **options):
        context = browser.new_context(**options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        webparts.come_in(page, url)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
