"""What a system cost is one number, wherever it is shown, and unknown is never zero."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import r2med
from r2med.cli.main import app
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.llm.types import RawAnswer
from r2med.pipeline.evaluate import Options
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord, StageRecord, StepRecord
from r2med.usage import Usage
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.library import Library

TASK = "sample/Biology"
SHARED = "rrf(hyde({0}) >> bm25, hyde({0}) >> bm25-classic, rrf(hyde({0}) >> bm25, bm25))"
"""A model's texts in three branches, one of them deeper than the others."""


def add_models() -> None:
    def answer(request: object) -> RawAnswer:
        return RawAnswer("crystals in the urine", usage=Usage(prompt_tokens=100, completion_tokens=50))

    # 900 tokens read and 450 written over nine queries: 9 + 9 dollars.
    add_model(replace(scripted(answer, "paid"), price=(10_000.0, 20_000.0)))
    add_model(replace(scripted(answer, "unpriced"), price=None))


def run(*systems: str) -> list[Entry]:
    add_models()
    with session(Limits(retries=0)):
        return list(r2med.evaluate(list(systems), TASK).results)


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout


def cell(table: str, system: str, heading: str) -> str:
    """A cell of a CSV table."""
    rows = csv.DictReader(io.StringIO(table))
    return next(row[heading] for row in rows if system in row.values())


def terminal_dollars(text: str, system: str) -> str:
    line = next(line for line in text.splitlines() if system in line)
    return line.split()[-2]


def shown_on(page: str) -> str:
    """The dollars in a page's list of facts."""
    return html.unescape(re.search(r"<dt>Dollars</dt><dd>([^<]*)</dd>", page).group(1))


def shown_in_row(page: str, system: str) -> str:
    """The dollars in the last cell of a board's row."""
    row = next(row for row in re.findall(r"<tr class=.*?</tr>", page, re.DOTALL) if html.escape(system) in row)
    return html.unescape(re.findall(r'<td class="n cost[^"]*" data-v="[^"]*">([^<]*)</td>', row)[-1])


def everywhere(system: str, folder: Path) -> dict[str, str]:
    """The dollars of a run, as each output shows them; numbers as they are written in a table."""

    def number(value: float | None) -> str:
        return "?" if value is None else f"{value:.2f}"

    found = {
        "run": terminal_dollars(command("run", system, "--tasks", TASK, "--columns", "cost"), system),
        "board": terminal_dollars(command("board", "--group", "sample", "--own", "--columns", "cost"), system),
    }
    result = json.loads(command("run", system, "--tasks", TASK, "--json"))["results"][0]
    found["run --json"] = number(result["cost"]["dollars"])
    lines = json.loads(command("board", "--group", "sample", "--own", "--columns", "cost", "--format", "json"))
    own = next(line for line in lines["lines"] if line["name"] == system)
    found["board --format json"] = number(own["cost"]["dollars"])
    table = command("board", "--group", "sample", "--own", "--columns", "cost", "--format", "csv")
    found["board --format csv"] = number(float(value) if (value := cell(table, system, "dollars")) else None)
    priced = json.loads(command("diagnose", "--cost", "--tasks", TASK, "--json"))["systems"]
    money = next(each["money"] for each in priced if each["system"] == system)
    found["diagnose --cost"] = number(None if money is None else 9 * money)
    with Ledger() as ledger:
        entry = next(entry for entry in ledger.entries() if entry.system == system)
        with TestClient(create_app(Library(ledger.path), Access(None)), base_url="http://localhost") as client:
            found["/system"] = shown_on(client.get("/system", params={"system": system, "group": "sample"}).text)
            found["/run"] = shown_on(client.get(f"/run/{entry.id}").text)
            found["/"] = shown_in_row(client.get("/", params={"group": "sample", "origin": "own"}).text, system)
    command("report", system, "--tasks", TASK, "--no-causes", "--out", str(folder / "report.html"))
    found["report"] = shown_in_row((folder / "report.html").read_text(), system)
    command("site", system, "--no-reports", "--out", str(folder / "site"))
    found["site"] = shown_in_row((folder / "site" / "sample.html").read_text(), system)
    page = next((folder / "site" / "systems").glob("sample-*.html"))
    found["site's page"] = shown_on(page.read_text())
    command("submit", system, "--tasks", TASK, "--out", str(folder / "runs.zip"))
    with zipfile.ZipFile(folder / "runs.zip") as archive:
        submitted = json.loads(archive.read("results.json"))["results"][0]
    found["submission"] = number(submitted["cost"]["dollars"])
    return found


@pytest.mark.parametrize(
    ("system", "dollars"),
    [
        (SHARED.format("paid"), "18.00"),
        (SHARED.format("unpriced"), "?"),
        ("rrf(replay >> bm25, bm25)", "?"),
    ],
)
def test_one_number_in_every_output(system: str, dollars: str, tmp_path: Path) -> None:
    run(system)
    found = everywhere(system, tmp_path)
    assert found == dict.fromkeys(found, dollars)


def test_a_step_that_branches_share_is_counted_once_and_different_steps_each() -> None:
    shared, both = run(SHARED.format("paid"), "rrf(hyde(paid) >> bm25, query2doc(paid) >> bm25)")
    assert (shared.cost.requests, shared.cost.tokens, shared.cost.dollars) == (9, 1350, pytest.approx(18.0))
    assert (both.cost.requests, both.cost.tokens, both.cost.dollars) == (18, 2700, pytest.approx(36.0))


def test_what_an_agent_or_a_view_asks_for_is_counted() -> None:
    (views,) = run("hyde(paid) >> views(hyde(paid, samples=2) >> bm25)")
    # Nine texts, and two for each of the two views of a query.
    assert views.cost.requests == 9 + 2 * 9 * 2


def test_a_system_pays_for_what_another_of_the_same_command_asked() -> None:
    alone, after = run("hyde(paid) >> bm25", "rrf(hyde(paid) >> bm25, bm25)")
    assert alone.cost.dollars == after.cost.dollars == pytest.approx(18.0)


def test_servers_that_sell_vectors_have_an_unknown_price_and_run_files_an_unknown_cost() -> None:
    stage = StageRecord("m@http://127.0.0.1:1/v1", settings={"backend": "api"})
    record = RunRecord(stages=(stage,), work=(StepRecord(index=1.0, search=3.0),))
    found = Cost.of([record], 4.0, 3)
    assert (found.requests, found.tokens, found.dollars, found.seconds_per_query) == (None, None, None, 1.0)
    assert found.cells() == ["?", "?", "?", "?", "1.000"]
    assert Cost.of([RunRecord()], 4.0, 3).cells() == ["?"] * 5


class TestSeconds:
    def test_loading_indexing_and_searching_are_apart(self) -> None:
        (result,) = run("rrf(bm25, wordllama)")
        work, cost = result.record.work, result.cost
        by_stage = {step.stage: step for step in work}
        assert set(by_stage) == {"bm25", "wordllama", "rrf(bm25, wordllama)"}
        assert by_stage["bm25"].index > 0 == by_stage["bm25"].load
        assert by_stage["wordllama"].index > 0
        assert all(step.search > 0 for step in work)
        assert result.seconds == pytest.approx(cost.loading + cost.indexing + cost.searching)
        assert cost.seconds_per_query == pytest.approx(sum(step.search for step in work) / 9)

    def test_a_fused_system_is_not_faster_than_its_parts(self) -> None:
        one, other, fused = run("bm25", "bm25-classic", "rrf(bm25, bm25-classic)")
        assert fused.cost.searching > one.cost.searching + other.cost.searching

    def test_vectors_from_the_cache_make_the_time_unknown(self) -> None:
        first = r2med.evaluate("wordllama", TASK).results[0]
        again = r2med.evaluate("wordllama", TASK, Options(fresh=True)).results[0]
        assert first.cost.seconds_per_query is not None
        assert again.cost.seconds_per_query is None
        assert again.record.work[0].reused == ("vectors of queries",)
        assert "?" in command("run", "wordllama", "--tasks", TASK, "--columns", "cost")

    def test_answers_count_as_long_as_they_took_at_first(self) -> None:
        run("hyde(paid) >> bm25")
        with session(Limits(retries=0)):
            again = r2med.evaluate("hyde(paid) >> bm25", TASK, Options(fresh=True)).results[0]
        (account,) = [step.account for step in again.record.work if step.account is not None]
        others = sum(step.search for step in again.record.work)
        assert account.cached == 9
        assert again.cost.searching == pytest.approx(others + account.seconds)
