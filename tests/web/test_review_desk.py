"""The review desk over HTTP: who gets in, what they see, what is kept, and what becomes of those who try something."""

from __future__ import annotations

import asyncio
import csv
import html
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient
from webparts import ATTACK, TOKEN

import r2med
from r2med.cli.main import app as program
from r2med.reviews import agreement_job
from r2med.reviews.access import ReviewDoor, invite, join_path, withdraw
from r2med.reviews.agreement import review_agreement
from r2med.reviews.rows import DraftDecision, ReviewItem, ReviewProject, ReviewQuestion
from r2med.reviews.sampling import ReviewSettings, new_review
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE, sentences
from r2med.reviews.store import ReviewStore, create_review
from r2med.runs.ledger import Ledger
from r2med.store.processes import ChildProcess
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.library import Library

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import review_kills

HERE = "http://127.0.0.1:8421"
SECRET_WORDS = ("bm25", "in place 7", "own label", "doc-", "drawn")
"""What would tell where an item came from."""


def make_review(name: str = "pilot", questions: int = 3, passages: int = 4, overlap: bool = True) -> ReviewStore:
    asked = [
        ReviewQuestion(n, "task", f"q{n}", f"Why do gums bleed, number {n}? {ATTACK}", f"scurvy {n}", "Think of ships.")
        for n in range(1, questions + 1)
    ]
    items = [
        ReviewItem(n, 1 + (n - 1) // passages, f"doc-{n}", f"Gums bleed in scurvy. Sentence two of {n}. {ATTACK}",
                   "random", overlap, facts={"label": 1, "ranks": {"bm25": 7}})
        for n in range(1, questions * passages + 1)
    ]  # fmt: skip
    head = (name, "2026-01-01", ("task",), {"task": "x"}, "random", {"random": 99}, DEFAULT_SCALE, DEFAULT_GUIDELINE)
    return create_review(ReviewProject(*head, 1.0, 0.0, 0), asked, items)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReviewStore]:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with make_review() as made:
        yield made


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def application(store, clock):
    return create_app(Library(), Access(TOKEN), ReviewDoor(lambda: clock[0]))


def browser(application) -> TestClient:
    return TestClient(application, base_url=HERE, headers={"origin": HERE}, follow_redirects=False)


def sit(application, store, name: str, **how) -> TestClient:
    """Somebody who has opened their link."""
    client = browser(application)
    assert client.get(join_path(store.project.name, invite(store, name, **how))).status_code == 200
    return client


def fields(page: str) -> dict[str, str]:
    """What the form of a page sends beside the button that is pressed."""
    inputs = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition('class="decide"')[2])
    return dict(inputs)


def item_page(client: TestClient, name: str = "pilot") -> tuple[str, str]:
    """Address and text of the next item."""
    address = client.get(f"/review/{name}").headers["location"]
    return address, client.get(address).text


def test_a_link_opens_one_desk_and_nothing_else(application, store):
    with make_review("other") as other:
        ada, ben = sit(application, store, "Ada"), sit(application, other, "Ben")
        assert item_page(ada)[0] == "/review/pilot/item/1"
        assert item_page(ben, "other")[0] == "/review/other/item/1"
        for path in ("/", "/runs", "/review", "/review/pilot/progress", "/review/other", "/review/other/item/1",
                     "/review/pilot/agreement",
                     "/review/other/undo", "/document?task=x", "/search", "/review/absent"):  # fmt: skip
            assert ada.get(path).status_code == 403, path
        assert ada.post("/review/other/item/1", data={"say": "1"}).status_code == 403
        assert ada.get("/static/desk.js").status_code == 200
        assert browser(application).get("/static/desk.js").status_code == 403
        owner = browser(application)
        owner.get(f"/review?token={TOKEN}")
        assert "pilot" in owner.get("/review").text
        assert "Ada" in owner.get("/review/pilot/progress").text
        # Not even the owner judges in somebody's name.
        assert owner.get("/review/pilot/item/1").status_code == 403
        assert owner.post("/review/pilot/item/1", data={"say": "1", "token": "t" * 12}).status_code == 403


def test_a_reviewer_who_loses_the_way_is_led_to_the_desk_and_a_stranger_to_their_link(application, store):
    lost = sit(application, store, "Ada").get("/review/pilot/nowhere")
    assert lost.status_code == 404
    assert 'href="/review/pilot">Back to the desk' in lost.text
    assert "board" not in lost.text.lower()
    assert "the link that you were sent" in browser(application).get("/review/pilot/item/1").text


def test_without_a_token_of_the_server_the_desk_still_wants_a_link(store):
    client = browser(create_app(Library(), Access(None)))
    assert client.get("/review/pilot/progress").status_code == 200
    assert client.get("/review/pilot").status_code == 403
    assert client.get("/review/pilot/item/1").status_code == 403


def test_the_cookie_is_for_no_script_and_no_other_site_and_a_withdrawn_link_ends_it(application, store):
    client = browser(application)
    secret = invite(store, "Ada")
    answer = client.get(join_path("pilot", secret))
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=Strict" in kept
    assert "no-store" in answer.headers["cache-control"]
    safe = TestClient(application, base_url=HERE.replace("http:", "https:"))
    assert "Secure" in safe.get(join_path("pilot", secret)).headers["set-cookie"]
    assert client.get("/review/pilot").status_code == 303
    withdraw(store, "Ada")
    refused = client.get("/review/pilot/item/1")
    assert refused.status_code == 403
    assert "it was withdrawn" in refused.text
    page = client.post("/review/pilot/item/1", data={"say": "1", "token": "t" * 12})
    assert (page.status_code, store.decisions()) == (403, [])


def test_every_page_of_the_desk_says_whose_it_is_and_a_colleagues_link_asks_first(application, store):
    ada = sit(application, store, "Dr. Ada")
    address = item_page(ada)[0]
    for path in (address, "/review/pilot/guideline", "/review/pilot/done"):
        assert re.search(r'<span class="person"[^>]*>Dr. Ada</span>', ada.get(path).text), path
    link = join_path("pilot", invite(store, "Dr. Ben"))
    asked = ada.get(link)
    assert "set-cookie" not in asked.headers
    assert "Continue as Dr. Ben" in asked.text
    ada.post(address, data={**fields(ada.get(address).text), "say": "1"})
    assert {row.reviewer for row in store.decisions()} == {store.reviewer("Dr. Ada").id}
    assert ada.post(link).headers["location"] == "/review/pilot"
    address, page = item_page(ada)
    assert ">Dr. Ben</span>" in page
    ada.post(address, data={**fields(page), "say": "1"})
    assert store.decisions()[-1].reviewer == store.reviewer("Dr. Ben").id
    again = join_path("pilot", invite(store, "Dr. Ben"))
    assert "Welcome, Dr. Ben" in ada.get(again).text


def test_what_is_left_is_said_and_repeats_are_not_given_away(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    made = CliRunner().invoke(program, ["review", "new", "pilot", "--from", "sample/MedQA-Diag", "sample/Biology",
                                        "--items", "30", "--overlap", "1", "--repeat", "25%"])  # fmt: skip
    assert made.exit_code == 0, made.output
    with ReviewStore.open("pilot") as store:
        application = create_app(Library(), Access(TOKEN))
        ada = sit(application, store, "Ada")
        welcome = ada.get(join_path("pilot", invite(store, "Ada"))).text
        total = int(re.search(r"(\d+) are left", welcome)[1])
        for number in range(total):
            address, page = item_page(ada)
            counts = re.search(r"<b data-done>(\d+)</b> done, <b data-left>(\d+)</b> left", page)
            assert tuple(map(int, counts.groups())) == (number, total - number)
            ada.post(address, data={**fields(page), "say": "1"})
        assert ada.get("/review/pilot").headers["location"] == "/review/pilot/done"
        assert any(row.again for row in store.decisions())


def test_guessing_is_limited_and_does_not_stop_those_at_work(application, store, clock):
    ada, stranger, late = sit(application, store, "Ada"), browser(application), invite(store, "Ben")
    for number in range(10):
        answer = stranger.get(join_path("pilot", f"guess{number}"))
        assert answer.status_code == 403
    assert "too many wrong links" in stranger.get(join_path("pilot", "guess")).text.lower()
    # The next one that is right is not even looked at, and tells nothing.
    assert stranger.get(join_path("pilot", late)).status_code == 403
    assert ada.get("/review/pilot").status_code == 303
    clock[0] += 61
    assert stranger.get(join_path("pilot", late)).status_code == 200
    wrong = browser(application)
    for number in range(11):
        wrong.cookies.set("r2med_review_8421_pilot", f"guess{number}")
        assert wrong.get("/review/pilot/item/1").status_code == 403
    assert "too many" in wrong.get("/review/pilot/item/1").text.lower()


def test_nothing_tells_where_an_item_came_from_before_the_decision(application, store):
    ada = sit(application, store, "Ada")
    ben = sit(application, store, "Ben")
    address, page = item_page(ada)
    whole = page + ada.get(address + "?part=1").text
    assert not [word for word in SECRET_WORDS if word in whole]
    assert "scurvy 1" not in whole
    assert "Think of ships" not in whole
    assert ada.post(f"{address}/reveal", data={"what": "sources"}).status_code == 400
    ada.post(f"{address}/reveal", data={"what": "answer"})
    assert re.search(r"scurvy \d", ada.get(address).text)
    form = fields(ada.get(address).text)
    assert ada.post(address, data={**form, "say": "3", "note": "mine alone"}).status_code == 303
    row = store.decisions()[0]
    assert [each.what for each in row.revealed] == ["answer"]
    assert "in place 7" not in ada.get(address).text
    ada.post(f"{address}/reveal", data={"what": "sources"})
    assert "in place 7" in ada.get(address).text
    for number in range(1, 9):
        assert "mine alone" not in ben.get(f"/review/pilot/item/{number}").text
    ada.post(address, data={**fields(ada.get(address).text), "say": "1"})
    assert [each.what for each in store.decisions()[1].revealed] == ["answer", "sources"]


def test_a_long_passage_is_shown_whole_whether_its_words_match_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    text = "A first line. " + 80 * "Nothing of it is here. " + "Gums bleed. " + 80 * "Nor is it here. " + "The end."
    head = ("pilot", "2026-01-01", ("task",), {"task": "x"}, "random", {"random": 9}, DEFAULT_SCALE, DEFAULT_GUIDELINE)
    question, item = ReviewQuestion(1, "task", "q1", "Why do gums bleed?"), ReviewItem(1, 1, "d1", text, "random", True)
    with create_review(ReviewProject(*head, 1.0, 0.0, 0), [question], [item]) as store:
        page = item_page(sit(create_app(Library(), Access(TOKEN)), store, "Ada"))[1]
    passage = re.search(r'<div class="passage"[^>]*>(.*?)</div>', page, re.DOTALL)[1]
    assert "<details" not in passage
    assert re.sub("<[^>]*>", "", passage).strip() == text


def test_a_nugget_is_judged_with_the_gold_answer_in_view_and_nothing_of_who_wrote_it(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    row = {"query_id": "pmt-q03", "nugget_id": "n77", "text": f"Methylene blue {ATTACK}", "vital": True}
    (tmp_path / "nuggets.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    with Ledger() as ledger:
        opened, _ = new_review(
            ledger, "facts", ["sample/PMC-Treatment", str(tmp_path / "nuggets.jsonl")], ReviewSettings()
        )
    with opened as facts:
        application = create_app(Library(), Access(TOKEN), ReviewDoor(lambda: 0.0))
        ada = sit(application, facts, "Ada")
        address, page = item_page(ada, "facts")
        assert ">Nugget <span" in page
        assert "Intravenous methylene blue, 1 to 2 mg/kg" in page
        assert "<b>Vital</b>" in page
        assert ATTACK not in page
        assert "n77" not in page
        assert "written as" not in page
        assert ada.post(address, data={"say": "0"} | fields(page)).status_code < 400
        assert "You have judged 1 nugget," in ada.get(ada.get("/review/facts").headers["location"]).text
        ada.post(f"{address}/reveal", data={"what": "sources"})
        assert "Nugget n77, written as vital." in ada.get(address).text
        label = facts.standing()[0]
        assert (label.grade, [fact.what for fact in label.revealed]) == (0, ["answer"])


def answer_marks(page: str) -> int:
    """How many words of a page are marked as words of the gold answer, the legend included."""
    return page.count('class="answer"')


def test_words_of_the_gold_answer_are_marked_only_after_it_was_asked_for_and_every_label_says_who_saw_it(
    application, store, tmp_path
):
    ada = sit(application, store, "Ada")
    address, page = item_page(ada)
    assert '<mark class="query">Gums</mark>' in page
    assert answer_marks(page) == 0
    ada.post(address, data={**fields(page), "say": "1"})
    address, page = item_page(ada)
    assert answer_marks(page + ada.get(address + "?part=1").text) == 0
    ada.post(f"{address}/reveal", data={"what": "answer"})
    page = ada.get(address).text
    assert '<mark class="answer">scurvy</mark>' in page
    ada.post(address, data={**fields(page), "say": "2"})
    # The next passage is of the same question: its answer is known by now, and that is recorded as well.
    address, page = item_page(ada)
    assert answer_marks(page) > 0
    ada.post(address, data={**fields(page), "say": "3"})
    for _ in range(9):
        address, page = item_page(ada)
        ada.post(address, data={**fields(page), "say": "0"})
    seen = [[each.what for each in row.revealed] for row in store.decisions()]
    assert seen == [[], ["answer"], ["answer"], ["answer"], *[[]] * 8]
    run_export(tmp_path / "labels.csv")
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    assert [row["revealed"] for row in rows] == ["", "answer", "answer", "answer", *[""] * 8]
    assert "3 of 12 grades were given with the gold answer in view" in review_agreement(store).notes


def run_export(out: Path, form: str = "csv") -> str:
    done = CliRunner().invoke(program, ["review", "export", "pilot", "--to", form, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_an_adjudicator_asks_for_the_gold_answer_too_and_the_ruling_says_so(application, store):
    people = {name: sit(application, store, name) for name in ("Ada", "Ben")}
    for name, client in people.items():
        for _ in range(12):
            address, page = item_page(client)
            client.post(address, data={**fields(page), "say": "3" if name == "Ada" else "0"})
    eve = sit(application, store, "Eve", role="adjudicator")
    for number in range(3):
        address = eve.get("/review/pilot").headers["location"]
        page = eve.get(address).text
        assert (answer_marks(page) > 0, bool(re.search(r"scurvy \d", page))) == (number == 2, number == 2)
        assert "Think of ships" not in page
        if number == 1:
            eve.post(f"{address}/reveal", data={"what": "answer"})
            assert '<mark class="answer">scurvy</mark>' in eve.get(address).text
        eve.post(address, data={**fields(page), "say": "2", "cause": "slip"})
    assert [[each.what for each in row.revealed] for row in store.all_rulings()] == [[], ["answer"], ["answer"]]
    assert eve.post(f"{address}/reveal", data={"what": "sources"}).status_code == 400
    assert people["Ada"].post("/review/pilot/rule/1/reveal", data={"what": "answer"}).status_code == 403


def test_a_review_with_the_answer_open_shows_it_at_once_and_every_export_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    made = CliRunner().invoke(program, ["review", "new", "pilot", "--from", "sample/MedQA-Diag", "--items", "6",
                                        "--repeat", "0", "--open-answer"])  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "the gold answer is in view of everybody" in made.stdout
    with ReviewStore.open("pilot") as store:
        application = create_app(Library(), Access(TOKEN))
        ada = sit(application, store, "Ada")
        for _ in range(6):
            address, page = item_page(ada)
            assert "<summary>Gold answer</summary>" in page
            assert 'data-reveal="answer"' not in page
            ada.post(address, data={**fields(page), "say": "2"})
        assert [[each.what for each in row.revealed] for row in store.decisions()] == [["answer"]] * 6
        assert "6 of 6 grades were given with the gold answer in view" in review_agreement(store).notes
        owner = browser(application)
        owner.get(f"/review?token={TOKEN}")
        assert "in view of everybody from the start" in owner.get("/review/pilot/progress").text
    for form in ("trec", "r2med", "beir", "csv", "task"):
        said = json.loads(run_export(tmp_path / form, form))
        assert said["settings"]["open_answer"] is True, form
        assert "the gold answer was in view of everybody who judged in this review" in said["notes"], form
    assert {row["revealed"] for row in csv.DictReader((tmp_path / "csv").open())} == {"answer"}
    assert json.loads((tmp_path / "task" / "review.json").read_text())["open_answer"] is True


def test_plain_forms_judge_note_skip_undo_and_come_to_an_end(application, store):
    ada = sit(application, store, "Ada")
    for number in range(12):
        address, page = item_page(ada)
        say = {0: "unsure", 1: "skip"}.get(number, str(number % 4))
        done = ada.post(address, data={**fields(page), "say": say, "note": f"n{number}", "sentence": "2"})
        assert done.status_code == 303
    assert done.headers["location"] == "/review/pilot/done?saved=12"
    page = ada.get("/review/pilot/done?saved=12").text
    assert "Saved: 3, Decisive" in page
    assert "You have judged 11 passages. What you skipped is left" in page
    assert "You skipped 1" in page
    assert "Skipped; it comes back at the end" in ada.get("/review/pilot/item/3?saved=2").text
    assert "Saved" not in sit(application, store, "Ben").get("/review/pilot/done?saved=12").text
    rows = store.decisions()
    assert [row.verdict for row in rows][:2] == ["unsure", "skipped"]
    assert [row.grade for row in rows][2:] == [number % 4 for number in range(2, 12)]
    assert {row.sentence for row in rows} == {2}
    assert all(row.seconds is not None and row.seconds < 60 for row in rows)
    for number in range(12, 0, -1):
        back = ada.post("/review/pilot/undo", data={"token": f"undo-{number:04}"})
        assert back.headers["location"] == f"/review/pilot/item/{number}"
    assert store.standing() == []
    assert len(store.decisions()) == 24


def test_a_form_sent_twice_is_one_decision_and_a_second_tab_is_told(application, store):
    ada = sit(application, store, "Ada")
    address, page = item_page(ada)
    first, second = fields(page), fields(ada.get(address).text)
    script = {"accept": "application/json"}
    for _ in range(3):
        assert ada.post(address, data={**first, "say": "2"}, headers=script).json()["saved"] == 1
    answer = ada.post(address, data={**second, "say": "0"}, headers=script)
    assert answer.status_code == 409
    assert "This was not saved: this passage was decided meanwhile" in answer.json()["error"]
    assert "decided meanwhile" in ada.post(address, data={**second, "say": "0"}).text
    assert [row.grade for row in store.decisions()] == [2]


def test_a_form_from_elsewhere_or_without_its_token_is_refused(application, store):
    ada = sit(application, store, "Ada")
    address, page = item_page(ada)
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert ada.post(address, data={**fields(page), "say": "2"}, headers=headers).status_code == 403
    for wrong in ({"token": ""}, {"token": "x" * 300}, {"say": "7"}, {"say": ""}, {"say": "-1"},
                  {"start": "5", "end": "2"}, {"end": "99999", "start": "0"}, {"sentence": "99"}):  # fmt: skip
        assert ada.post(address, data={**fields(page), "say": "2", **wrong}).status_code == 400, wrong
    assert ada.post(address, content=b"x" * 200_000).status_code == 413
    assert ada.post("/review/pilot/item/999", data={**fields(page), "say": "2"}).status_code == 400
    assert ada.get("/review/pilot/item/999").status_code == 404
    assert store.decisions() == []


def test_a_clock_that_jumps_gives_no_time_rather_than_a_wrong_one(application, store):
    ada = sit(application, store, "Ada")
    cases = {"-5": None, "nan": None, "1e300": None, "soon": None, "12.5": 12.5}
    for seconds, kept in cases.items():
        address, page = item_page(ada)
        ada.post(address, data={**fields(page), "say": "1", "seconds": seconds})
        assert store.decisions()[-1].seconds == kept
    address, page = item_page(ada)
    ada.post(address, data={**fields(page), "say": "1", "shown": "99999999999"})
    assert store.decisions()[-1].seconds is None


def test_markup_in_texts_and_notes_stays_text(application, store):
    ada, ben, eve = (sit(application, store, name) for name in ("Ada", "Ben", "Cleo"))
    judge = sit(application, store, "Eve", role="adjudicator")
    for client, grade in ((ada, "0"), (ben, "3"), (eve, "3")):
        address, page = item_page(client)
        assert "<script>document" not in page
        assert "<img src=x" not in page
        for _ in range(12):
            address, page = item_page(client)
            client.post(address, data={**fields(page), "say": grade, "note": ATTACK})
    page = judge.get(judge.get("/review/pilot").headers["location"]).text
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
    policy = judge.get("/review/pilot/guideline").headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert not re.search(r"<script(?! src=)|<[^>]*\s(on\w+|style)=", page)


@pytest.mark.parametrize("number", ["1", "999", "9" * 23])
def test_what_is_not_there_or_not_contested_is_neither_judged_nor_ruled_on(application, store, number):
    ada, eve = sit(application, store, "Ada"), sit(application, store, "Eve", role="adjudicator")
    form = {"say": "2", "cause": "slip", "token": "t" * 12, "what": "answer"}
    for client, place in ((ada, "item"), (eve, "rule")):
        for end in ("", "/reveal"):
            refused = client.post(f"/review/pilot/{place}/{number}{end}", data=form, headers={"accept": "text/json"})
            assert refused.status_code == 400, refused.text
        assert client.get(f"/review/pilot/{place}/{number}").status_code == 404
    assert (store.decisions(), store.all_rulings()) == ([], [])


def test_a_browser_that_goes_away_while_it_sends_leaves_no_error(application, store):
    ada = sit(application, store, "Ada")
    address, _ = item_page(ada)
    request = ada.build_request("POST", address, data={"say": "2"})
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    scope = {
        "type": "http",
        "method": "POST",
        "path": address,
        "headers": headers,
        "query_string": b"",
        "scheme": "http",
    }
    messages = [{"type": "http.request", "body": b"say=2", "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        pass

    asyncio.run(application(scope, receive, send))
    assert (messages, store.decisions()) == ([], [])


def test_an_adjudicator_sees_labels_without_names_and_names_a_cause(application, store):
    people = {name: sit(application, store, name) for name in ("Ada", "Ben")}
    for name, client in people.items():
        for _ in range(12):
            address, page = item_page(client)
            shared = int(re.search(r"Sentence two of (\d+)", re.sub("<.*?>", "", page))[1])
            grade = 3 if name == "Ada" and shared % 3 == 0 else 1
            client.post(address, data={**fields(page), "say": str(grade), "note": f"note of {shared}"})
    judge = sit(application, store, "Eve", role="adjudicator")
    address = judge.get("/review/pilot").headers["location"]
    page = judge.get(address).text
    assert "1 of 4 that people disagree about" in page
    assert "3 Decisive" in page
    assert "1 Related" in page
    assert not [name for name in ("Ada", "Ben") if name in page]
    without = judge.post(address, data={**fields(page), "say": "2"})
    assert (without.status_code, store.rulings()) == (400, {})
    for _ in range(4):
        address, page = judge.get("/review/pilot").headers["location"], ""
        page = judge.get(address).text
        done = judge.post(address, data={**fields(page), "say": "2", "cause": "guideline", "sentence": "1"})
        assert done.status_code == 303
    assert done.headers["location"] == "/review/pilot/done?saved=4"
    assert "Saved: 2, the guideline is ambiguous" in judge.get("/review/pilot/done?saved=4").text
    assert {item: ruling.grade for item, ruling in store.rulings().items()} == dict.fromkeys((3, 6, 9, 12), 2)
    judge.post("/review/pilot/undo", data={"token": "token-undo"})
    assert sorted(store.rulings()) == [3, 6, 9]
    assert people["Ada"].get("/review/pilot/rule/3").status_code == 403
    owner = browser(application)
    owner.get(f"/review?token={TOKEN}")
    progress = owner.get("/review/pilot/progress").text
    assert "67% <span" in progress
    assert "3 × the guideline is ambiguous" in progress
    assert "sentence 2: Judge whether the passage helps" in progress
    shown = review_agreement(store)
    page = agreement_page(owner).text
    assert f"{shown.coefficients['kappa'].value:.3f}" in page
    assert "Agreement by slice" in page
    assert "From the 12 pairs that were drawn at random out of" in page
    assert 'href="/review/pilot/agreement"' in progress


def agreement_page(owner: TestClient, place: str = "/review/pilot/agreement") -> httpx.Response:
    """The page of the agreement once it is computed, as a browser comes to it that does what it is told."""
    for _ in range(600):
        answer = owner.get(place)
        if "refresh" not in answer.headers:
            return answer
        assert "is being computed" in answer.text
        seconds, _, place = answer.headers["refresh"].partition("; url=")
        assert float(seconds) <= 5
        time.sleep(0.05)
    raise AssertionError("the agreement is not there after half a minute")


def grade_items(store: ReviewStore, *people: str) -> None:
    for number, name in enumerate(people):
        grades = ((item, DraftDecision("graded", (item * (number + 2)) % 4)) for item in range(1, store.item_count + 1))
        store.record_all(store.add_reviewer(name).id, grades)


def test_an_agreement_is_computed_once_for_each_state_of_a_review(application, store, monkeypatch):
    begun = []
    monkeypatch.setattr(agreement_job, "ChildProcess", lambda module: begun.append(module) or ChildProcess(module))
    owner = browser(application)
    owner.get(f"/review?token={TOKEN}")
    grade_items(store, "Ada", "Ben")
    first = owner.get("/review/pilot/agreement")
    for _ in range(20):
        assert owner.get("/review/pilot/agreement").status_code == 200
    kappa = f"{review_agreement(store).coefficients['kappa'].value:.3f}"
    assert kappa in agreement_page(owner).text
    assert kappa in owner.get("/review/pilot/agreement").text
    assert len(begun) == 1
    # Reviewers who go on meanwhile do not keep a page waiting that asked before; it says that it is older.
    grade_items(store, "Eve")
    waited = first.headers["refresh"].partition("; url=")[2]
    older = owner.get(waited).text
    assert kappa in older
    assert "More was decided since" in older
    assert len(begun) == 1
    newer = agreement_page(owner).text
    assert f"{review_agreement(store).coefficients['kappa'].value:.3f}" in newer
    assert "More was decided since" not in newer
    assert len(begun) == 2


def test_an_agreement_that_cannot_be_computed_is_told_in_a_line_and_tried_again(application, store, monkeypatch):
    owner = browser(application)
    owner.get(f"/review?token={TOKEN}")
    grade_items(store, "Ada", "Ben")
    with monkeypatch.context() as patch:
        patch.setattr(agreement_job, "ChildProcess", lambda module: ChildProcess("r2med.no_such_module"))
        answer = agreement_page(owner)
    assert answer.status_code == 404
    assert "process that computes the agreement ended" in answer.text
    assert agreement_page(owner).status_code == 200


def test_the_owner_reads_notes_unsure_items_and_marked_stretches_on_a_page(application, store):
    for name, (first, second) in {"Ada": ("3", "unsure"), "Ben": ("0", "2")}.items():
        client = sit(application, store, name)
        for _ in range(12):
            address, page = item_page(client)
            number = int(re.search(r"Sentence two of (\d+)", re.sub("<.*?>", "", page))[1])
            marked = {"start": "0", "end": "21"} if (name, number) == ("Ada", 1) else {}
            note = f"note of {name} {ATTACK}" if number == 2 else ""
            say = {1: first, 2: second}.get(number, "1")
            client.post(address, data={**fields(page), "say": say, "note": note, **marked})
    owner = browser(application)
    owner.get(f"/review?token={TOKEN}")

    def numbers(**asked: str) -> list[int]:
        page = owner.get("/review/pilot/items", params=asked)
        assert page.status_code == 200
        assert "<img src=x" not in page.text
        return [int(each) for each in re.findall(r'<td class="n">(\d+)</td>', page.text)]

    assert numbers() == list(range(1, 13))
    assert numbers(show="unsure") == [2]
    assert numbers(show="unsure", reviewer="Ben") == []
    assert numbers(show="disagree") == [1]
    assert numbers(show="noted") == [2]
    assert numbers(show="marked") == numbers(show="marked", reviewer="Ada") == [1]
    assert numbers(show="open") == []
    assert "note of Ada &lt;script&gt;" in owner.get("/review/pilot/items?show=noted").text
    assert '<q dir="auto">Gums bleed in scurvy.</q>' in owner.get("/review/pilot/items?show=marked").text
    assert "/review/pilot/items?show=unsure" in owner.get("/review/pilot/progress").text
    assert owner.get("/review/pilot/items?show=odd").status_code == 404
    assert sit(application, store, "Cleo").get("/review/pilot/items").status_code == 403


def test_the_sentences_of_the_guideline_are_offered_whole_or_with_an_ellipsis(application, store):
    _, page = item_page(sit(application, store, "Ada"))
    offered = re.findall(r"<option[^>]*>\d+\. ([^<]*)</option>", page)
    guideline = sentences(store.project.guideline)
    assert len(offered) == len(guideline) > 2
    for shown, whole in zip(offered, guideline, strict=True):
        assert html.unescape(shown) == whole if len(whole) <= 80 else shown.endswith(" …")


def test_a_disk_that_cannot_be_written_is_said_and_nothing_is_lost(application, store, tmp_path):
    ada = sit(application, store, "Ada")
    address, page = item_page(ada)
    ada.post(address, data={**fields(page), "say": "1"})
    address, page = item_page(ada)
    (pages,) = store.rows("PRAGMA page_count")[0]
    desk_file = application_store(application)
    desk_file.rows(f"PRAGMA max_page_count = {pages}")
    form = {**fields(page), "say": "3", "note": "x" * 4000}
    many = [ada.post(address, data=form, headers={"accept": "application/json"})]
    assert many[0].status_code == 507, many[0].text
    assert "This was not saved" in many[0].json()["error"]
    assert "disk is full" in many[0].json()["error"]
    plain = ada.post(address, data=form).text
    assert "This was not saved" in plain
    assert str(tmp_path) not in many[0].text + plain, "a reviewer learns nothing of the machine's folders"
    assert [row.grade for row in store.decisions()] == [1]
    desk_file.rows("PRAGMA max_page_count = 1000000")
    assert ada.post(address, data=form).status_code == 303
    assert [row.grade for row in store.decisions()] == [1, 3]


def application_store(application) -> ReviewStore:
    """The store that the server itself writes to."""
    for each in application.user_middleware:
        access = each.kwargs.get("access")
        if access is not None:
            return access.entrances[-1].opens.__self__.desk("pilot").store
    raise AssertionError("no door")


# ---------------------------------------------------------------------------------------------- a real server


@contextmanager
def real_server(port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "r2med", "serve", "--port", str(port), "--token", TOKEN, *options]
    environment = os.environ | {"PYTHONPATH": str(Path(r2med.__file__).parents[1])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            for _ in range(600):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                server_died = server.poll() is not None
                assert not server_died
                try:
                    server.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
            yield server
        finally:
            server.send_signal(signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, dict(answer.getheaders())


def test_what_was_acknowledged_survives_a_kill(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    counts = review_kills.measure(kills=1, browsers=3, items=40)
    assert (counts["kills"], counts["items judged"]) == (1, 40)
    assert counts["acknowledged"] == counts["kept"]
    assert {name: counts[name] for name in ("lost", "doubled", "refused", "damaged files")} == dict.fromkeys(
        ("lost", "doubled", "refused", "damaged files"), 0
    )


def test_abandoned_agreements_hold_up_neither_a_desk_nor_the_end_of_the_server(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    with make_review(questions=50) as store:
        grade_items(store, *(f"person {number}" for number in range(14)))
        secret = invite(store, "Ada")
    port = free_port()
    with real_server(port) as server:
        _, headers = ask(port, join_path("pilot", secret))
        desk = headers["set-cookie"].partition(";")[0]
        _, headers = ask(port, f"/review?token={TOKEN}")
        owner = headers["set-cookie"].partition(";")[0]
        assert ask(port, "/review/pilot", Cookie=desk)[1]["location"] == "/review/pilot/item/1"
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as left:
                lines = ("GET /review/pilot/agreement HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {owner}", "", "")
                left.sendall("\r\n".join(lines).encode())
        for _ in range(20):
            assert ask(port, "/review/pilot/item/1", Cookie=desk)[0] == 200
        # All this happened while the first of them was computed.
        assert "refresh" in ask(port, "/review/pilot/agreement", Cookie=owner)[1]
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


def test_a_proxy_is_believed_only_when_it_is_named(store):
    secret, late = invite(store, "Ada"), invite(store, "Ben")
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    for options in ((), ("--trust-proxy", "127.0.0.1")):
        port = free_port()
        with real_server(port, *options):
            status, headers = ask(port, join_path("pilot", secret), **forwarded)
            assert (status, "Secure" in headers["set-cookie"]) == (200, bool(options))
            # Who guesses is known by their own address only where the proxy is believed.
            for number in range(12):
                ask(port, join_path("pilot", f"guess{number}"), **{"X-Forwarded-For": f"203.0.113.{number}"})
            status, _ = ask(port, join_path("pilot", late), **{"X-Forwarded-For": "198.51.100.1"})
            assert status == (200 if options else 403)
    done = CliRunner().invoke(program, ["serve", "--trust-proxy", "proxy.example"])
    assert "not an address" in str(done.exception)
