"""The address is the state: links lead back to what was seen, and a citation's command makes the same figures."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from webparts import come_in, entered, served

from ledgers import add_run
from r2med.cli.main import app
from r2med.data.published import find_published
from r2med.leaderboard.board import board
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger
from r2med.web.library import Library

BOARDS = [
    {"group": "sample"},
    {"group": "sample", "task": "sample/Biology", "metric": "Recall@100", "order": "up"},
    {"group": "sample", "q": "bm25 classic", "sort": "name"},
    {"group": "sample", "baseline": "bm25", "kind": "base", "sort": "interval", "order": "up"},
    {"group": "full", "origin": "published", "llm": "gpt4", "sort": "Biology"},
    {"group": "full", "source": "paper", "family": "clinical-case"},
    {"group": "custom"},
]


TASKS = ("sample/Biology", "sample/MedQA-Diag")


@pytest.fixture(scope="module")
def client(filled):
    with entered(Library(filled[0] / "ledger.sqlite")) as made:
        yield made


def command_on(page: str) -> list[str]:
    """The words behind `r2med` of the command that a page is cited with."""
    found = re.search(r"<h2>The same in a terminal</h2><pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    program, *words = shlex.split(unescape(found[1]))
    assert program == "r2med"
    return words


def said(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("asked", BOARDS)
def test_the_command_of_a_board_makes_the_same_board(client, asked):
    page = client.get("/", params=asked).text
    shown = client.get("/board.json", params=asked).json()
    typed = json.loads(said(*command_on(page), "--format", "json"))
    assert typed["tasks"] == shown["tasks"]
    assert [line["name"] for line in typed["lines"]] == [line["name"] for line in shown["lines"]]
    for one, other in zip(typed["lines"], shown["lines"], strict=True):
        for name in ("rank", "average", "values", "significance"):
            assert one.get(name) == other.get(name)
    assert shown["lines"]


def test_the_commands_of_other_pages_show_their_figures(client, filled):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        entry = next(each for each in ledger.entries(system="bm25") if each.task == "sample/Biology")
        value = ledger.means()[entry.id]["nDCG@10"]
    system = client.get("/system", params={"system": "replay >> bm25", "group": "sample"}).text
    results = json.loads(said(*command_on(system), "--json"))["results"]
    assert len(results) == 8
    for result in results:
        for measure in ("nDCG@10", "Recall@100"):
            assert f'<td class="n">{100 * result["metrics"][measure]:.2f}</td>' in system
    run = client.get(f"/run/{entry.id}").text
    assert f"{100 * value:.2f}" in run
    assert entry.id in said(*command_on(run))
    runs = client.get("/runs", params={"q": "classic Biology"}).text
    listed = [row["run"] for row in json.loads(said(*command_on(runs), "--json"))]
    assert listed == re.findall(r'href="/run/(\w+)"', runs)
    published = client.get("/published", params={"name": "base/bge", "group": "full"}).text
    assert "base/bge" in said(*command_on(published))


def test_a_bibliography_entry_names_the_view_and_the_paper(client):
    page = unescape(client.get("/", params={"group": "sample", "q": "bm25 & {x}"}).text)
    entry = re.search(r"@misc\{r2med-\w+,.*?\n\}", page, re.DOTALL)[0]
    assert "r2med board --group sample" in entry.replace("{}", "")
    assert "\\&" in entry
    assert "\\{x\\}" in entry
    assert "2505.14558" in page


FIRST = "/document?task=sample%2FBiology&document=bio-d001"


@pytest.mark.parametrize(
    ("address", "said", "near"),
    [
        ("/?group=sampel", "There is no board sampel.", "/?group=sample"),
        ("/?group=sample&metric=nDGC@10", "nDGC@10", "/?group=sample&metric=nDCG%4010"),
        ("/?group=sample&kind=bse&q=bm25", "There is no kind bse.", "/?group=sample&kind=base&q=bm25"),
        ("/?group=sample&sort=averge", "There is no column averge to sort by.", "/?group=sample&sort=average"),
        ("/system?system=bm25clasic&group=sample", "no run of", "/system?system=bm25-classic&group=sample"),
        ("/system?system=bm25&group=full", "no run of", "/system?system=bm25&group=sample"),
        ("/published?name=base/bgee&group=full", "nothing was published", "/published?name=base%2Fbge&group=full"),
        ("/published?name=base/bge&group=sample", "nothing was published", "/published?name=base%2Fbge&group=full"),
        ("/search?task=sample/Biolgy&q=gums", "did you mean sample/Biology?", "/search?task=sample%2FBiology&q=gums"),
        (
            "/document?task=sample/Biolgy&document=bio-d001",
            "no document",
            "/document?task=sample%2FBiology&document=bio-d001",
        ),
        (
            "/document?task=sample/Biology&document=bio-d0001",
            "no document",
            "/document?task=sample%2FBiology&document=bio-d001",
        ),
    ],
)
def test_what_there_is_not_is_told_with_the_nearest_and_the_form_stays(client, address, said, near):
    answer = client.get(address)
    assert answer.status_code == 404
    page = unescape(answer.text)
    assert said.casefold() in page.casefold()
    assert f'href="{near}"' in page
    assert ("<form" in page) == address.startswith(("/?", "/search"))
    assert "?." not in page.partition("<main")[2].partition("</main>")[0]
    assert client.get(near).status_code == 200


def test_a_search_of_another_boards_task_is_of_this_ones(client):
    page = client.get("/search", params={"task": "Biology", "q": "gums"})
    assert page.status_code == 200
    assert '<option value="sample/Biology" selected>sample/Biology</option>' in page.text
    assert ">gums</textarea>" in page.text


def test_a_run_that_there_is_not_is_told_with_those_that_begin_alike(client, filled):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        known = ledger.entries()[0].id
    assert f'href="/run/{known}"' in client.get(f"/run/{known[:6]}").text


def test_titles_say_what_is_on_the_page(client, filled):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        entry = ledger.entries(system="bm25")[0]
    wanted = {
        "/?group=sample&metric=Recall@100": ("sample board", "Recall@100"),
        "/?group=full&q=gpt4": ("gpt4", "R2MED board"),
        "/system?system=bm25&group=sample": ("bm25", "sample"),
        f"/run/{entry.id}": ("bm25", Path(entry.task).name, entry.id),
        "/runs?q=classic": ("Runs", "classic"),
        "/published?name=base/bge&group=full": ("base/bge", "published", "nDCG@10"),
        "/search?task=sample/Biology&q=gums": ("gums", "sample/Biology"),
    }
    titles = {}
    for address, words in wanted.items():
        titles[address] = unescape(re.search(r"<title>(.*?)</title>", client.get(address).text)[1])
        assert all(word in titles[address] for word in words), titles[address]
    assert len(set(titles.values())) == len(titles)


def test_a_link_that_is_copied_opens_the_same_view(browser, filled, tmp_path):
    done = CliRunner().invoke(app, ["site", "bm25", "bm25-classic", "--no-reports", "--out", str(tmp_path / "public")])
    assert done.exit_code == 0, done.output
    report = tmp_path / "report.html"
    made = ["report", "bm25", "replay >> bm25", "--tasks", *TASKS, "--no-causes", "--out", str(report)]
    assert CliRunner().invoke(app, made).exit_code == 0
    context = browser.new_context()
    context.set_default_timeout(10_000)
    page = context.new_page()
    with served(filled[0] / "ledger.sqlite") as own:
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=own)
        come_in(page, own)
        asked = urlencode({"group": "sample", "q": "classic"})
        page.goto(f"{own}/?{asked}")
        page.click("[data-copy-link]")
        page.wait_for_selector("[data-copy-link]:has-text('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == f"{own}/?{asked}"
        page.click("details.cite summary")
        page.click("details.cite button:has-text('Copy') >> nth=0")
        page.wait_for_selector("details.cite button:has-text('Copied')")
        assert page.evaluate("navigator.clipboard.readText()").startswith("r2med board --group sample")
    page.goto((tmp_path / "public" / "index.html").as_uri())
    page.click("thead button:has-text('System')")
    page.fill("form[data-filter] input[type=search]", "gpt4")
    seen = page.locator("table.board td.sys code:visible").all_inner_texts()
    again = context.new_page()
    again.goto(page.url)
    assert again.locator("table.board td.sys code:visible").all_inner_texts() == seen
    assert again.locator("th[aria-sort]").inner_text().startswith("System")
    page.goto(report.as_uri())
    page.evaluate("document.getElementById('browse').scrollIntoView()")
    page.wait_for_selector("#queries li")
    page.select_option("#browser select[name=beside]", "1")
    page.select_option("#browser select[name=task]", "1")
    page.select_option("#browser select[name=order]", "gain")
    page.wait_for_selector(".onelist[data-number='2']")
    page.wait_for_selector("#queries .mono:has-text('mqd-q0')")
    page.locator("#queries a").nth(3).click()
    page.wait_for_selector("#queries li:nth-child(4).here")
    seen = page.locator("#queries a").all_inner_texts()
    again.goto(page.url)
    again.wait_for_selector(".onelist[data-number='2']")
    assert again.locator("#queries a").all_inner_texts() == seen
    assert again.locator(".question").inner_text() == page.locator(".question").inner_text()
    context.close()


def test_a_published_line_has_its_sources_its_disputes_and_the_verdict_on_own_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    row = next(each for each in find_published("base/bm25") if each.source.name == "paper")
    stated = row.figures["nDCG@10"].tasks
    spread = {"Biology": 0.0, "Bioinformatics": 0.01}
    with Ledger() as ledger:
        for task, value in stated.items():
            # Like the published figure, near it within what queries leave open, or far from it.
            values = [value] * 2 if task != "Bioinformatics" else [value - 0.1, value + 0.11]
            add_run(ledger, "bm25", task, [each + spread.get(task, 0.2) for each in values])
    page = entered(Library()).get("/published?name=base/bm25&group=full&metric=nDCG@10").text
    cells = dict(re.findall(r'<tr><th scope="row">(\S+)</th>.*?<td><div class="\w+">([a-z ]+[a-z])', page))
    assert cells["Biology"] == "within rounding"
    assert cells["Bioinformatics"] == "within the interval"
    assert {cells[task] for task in stated.keys() - spread.keys()} == {"different"}
    assert f'href="{re.search("https?://[^ ,]+", row.source.where)[0]}' in page
    assert "r2med reproduce base/bm25" in page
    assert 'href="/system?system=bm25&amp;group=full"' in page
    system = entered(Library()).get("/system?system=bm25&group=full").text
    assert 'href="/published?name=base%2Fbm25&amp;group=full"' in system
    assert "data of Biology" in system, "the fingerprint of the data"
    disputed = [each for each in board_of_the_paper().lines if each.disputed]
    assert disputed
    two = entered(Library()).get("/published", params={"name": disputed[0].name, "group": "full"}).text
    assert two.count(" ≠</td>") >= 2
    assert "Sources disagree by more than rounding" in two


def board_of_the_paper():
    with Ledger() as ledger:
        return board(ledger, View(own=False))
