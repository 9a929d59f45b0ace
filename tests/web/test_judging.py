"""Judging by a model: priced and begun on a page, cancelled and gone on with; a command's is seen and stopped too."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner
from test_review_desk import make_review
from webparts import entered, faults, served

from chat_server import ChatServer, Say
from r2med.cli.main import app
from r2med.reviews.store import ReviewStore
from r2med.web.library import Library

TASK = "sample/MedQA-Diag"


class Judge(ChatServer):
    """A server that is quick, slow, or answers two requests and then none for a long time."""

    def __init__(self) -> None:
        super().__init__(self.say)
        self.delay, self.first = 0.0, 0

    def say(self, prompt: str, nth: int) -> Say:
        text = '{"grade": 1, "reason": "It says so."}' if "<source>" in prompt else "Verdict: yes"
        return Say(text=text, delay=0.0 if self.attempts <= self.first else self.delay)


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """A review of a dozen items, a study without a judge, and a model with a price that could judge both."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    make_review().close()
    (tmp_path / "say.jsonl").write_text('{"reply": "Answer: gout"}\n')
    words = ["rag", "--llm", f"scripted:{tmp_path / 'say.jsonl'}", "--arms", "closed", "--tasks", TASK]
    assert CliRunner().invoke(app, words).exit_code == 0
    with Judge() as server:
        card = f'[model.careful]\nid = "careful-1"\nurl = "{server.url}"\nprice = [2.5, 10]\n'
        (tmp_path / "llms.toml").write_text(card)
        yield server


def graded() -> dict[str, int]:
    with ReviewStore.open("pilot") as store:
        names = {each.id: each.name for each in store.reviewers()}
        rows = [names[row.reviewer] for row in store.decisions()]
    return {name: rows.count(name) for name in names.values()}


def test_judging_is_priced_begun_cancelled_and_gone_on_with(visit, judge, tmp_path):
    judge.delay, judge.first = 60.0, 2
    with served(tmp_path / "ledger.sqlite") as own:
        page = visit(f"{own}/review/pilot/progress")
        for name, told in (("carefull", "did you mean careful?"), ("careful", "careful: 12 of 12 items to ask about")):
            page.fill("#judge input[name=llm]", name)
            with page.expect_navigation():
                page.click("#judge button:has-text('What would it take')")
            assert told in page.locator("#judge").inner_text()
            assert page.input_value("#judge input[name=llm]") == name
        assert judge.attempts == 0
        assert faults(page) == []
        page.fill("#judge input[name=max_cost]", "3")
        with page.expect_navigation():
            page.click("#judge button.primary")
        assert page.locator("#judge button.primary").is_disabled()
        page.click("#judge a:has-text('how far it is')")
        page.wait_for_selector(".spent:has-text('2 requests')")
        card = page.locator("section.job").inner_text()
        assert "Judging of pilot by careful" in card
        assert "judge pilot 2 of 12" in card
        assert "of $3.00" in card
        for button, then in (("Cancel", "button:has-text('Stop at once')"), ("Stop at once", ":text('Cancelled')")):
            with page.expect_navigation():
                page.click(f"form.stop button:has-text('{button}')")
            page.wait_for_selector(f"section.job {then}")
        assert graded() == {}, "what is not whole is no judging"
        judge.delay, before = 0.0, judge.attempts
        with page.expect_navigation():
            page.click("section.job a:has-text('Back to its page')")
        assert "10 of 12 items to ask about, the others are answered already" in page.locator("#judge").inner_text()
        with page.expect_navigation():
            page.click("#judge button.primary")
        page.wait_for_selector("tr:has-text('careful') td:text-is('12')")
        assert judge.attempts == before + 10, "nothing is asked twice"
        assert graded() == {"careful": 12}

        judge.delay, judge.first = 1.0, 0
        words = ["review", "judge", "pilot", "--llm", f"other@{judge.url}", "--concurrency", "1"]
        command = subprocess.Popen([sys.executable, "-m", "r2med", *words], text=True, stderr=subprocess.PIPE)
        page.goto(f"{own}/progress")
        page.wait_for_selector("section[data-card^=work]:has-text('r2med review judge pilot'):has-text('of 12')")
        with page.expect_navigation():
            page.click("section[data-card^=work] form.stop button")
        page.wait_for_selector("details[data-card]:has-text('stopped')")
        assert command.wait(30) == 130
        assert "what was finished is kept" in command.stderr.read()

        judge.delay = 0.0
        page.goto(f"{own}/rag")
        page.fill("#judge input[name=judge]", "careful")
        with page.expect_navigation():
            page.click("#judge button:has-text('What would it take')")
        assert "answers to ask about" in page.locator("#judge").inner_text()
        with page.expect_navigation():
            page.click("#judge button.primary")
        page.wait_for_selector("select[name=study] option >> nth=1", state="attached")
        page.goto(f"{own}/rag")
        assert page.locator("#judge").count() == 0
        assert page.locator("td.good:text-is('right')").count() > 3
        assert "--judge=careful" in page.locator(".cite pre").first.text_content()


def test_what_cannot_be_judged_is_refused_in_a_sentence(judge):
    with entered(Library()) as client:
        client.headers["origin"] = "http://127.0.0.1:8421"
        place = "/review/pilot/judge"
        for form, told in (
            ({"llm": "nosuch"}, "Unknown model"),
            ({"llm": ""}, "Unknown model"),
            ({"llm": "careful", "max_cost": "lots"}, "is not a limit"),
            ({"llm": "careful", "max_cost": "nan"}, "is not a limit"),
            ({"llm": "careful", "max_tokens": "-1"}, "is not a limit"),
        ):
            answer = client.post(place, data=form)
            assert answer.status_code == 400
            assert told in answer.text, form
        assert client.post("/review/nosuch/judge", data={"llm": "careful"}).status_code == 400
        assert client.post("/rag/judge", data={"study": "nosuch", "judge": "careful"}).status_code == 400
        assert client.post(place, data={}, headers={"origin": "http://evil.example"}).status_code == 403
    assert judge.attempts == 0
