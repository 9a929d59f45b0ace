"""A review that decides, through the real server: two people at once, and one in a browser until it is decided."""

from __future__ import annotations

import re
import threading
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar

import pytest
from click.testing import CliRunner
from webparts import TOKEN, faults, served

import r2med
from r2med.cli.main import app as program
from r2med.reviews.deciding import Decider
from r2med.reviews.store import ReviewStore

TASK = "sample/Biology"
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def run(*words: str) -> str:
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


@pytest.fixture
def address(tmp_path, monkeypatch):
    """A server with a review that is to decide between two systems."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    r2med.evaluate(["bm25", "wordllama"], TASK)
    options = ("--queue", "decide", "--fresh", "--error", "20%", "--overlap", "0", "--repeat", "0")
    run("review", "new", "which", "--from", TASK, "bm25", "wordllama", *options)
    with served(tmp_path / "ledger.sqlite") as address:
        yield address


def grade_of(store: ReviewStore, name: str, page: str) -> str:
    """The grade of the item of a page, by the task's own labels."""
    position = int(re.search(r"/item/(\d+)", page)[1])
    item = store.item(store.dealt(store.reviewer(name).id, position).item)
    return "3" if item.facts["label"] else "0"


def test_two_people_at_once_are_never_dealt_the_same_and_both_are_done_when_it_is_decided(address):
    complaints = []

    def judge(name: str, link: str) -> None:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        try:
            with ReviewStore.open("which") as store:
                opener.open(link).read()
                for _ in range(200):
                    with opener.open(f"{address}/review/which") as answer:
                        place, page = answer.geturl(), answer.read().decode()
                    if "/item/" not in place:
                        assert "nothing is left for you" in page
                        return
                    if "data-left" in page or "wordllama" in page:
                        complaints.append(place)
                    form = dict(FIELD.findall(page.partition('class="decide"')[2])) | {
                        "say": grade_of(store, name, place)
                    }
                    request = urllib.request.Request(place.partition("?")[0], urllib.parse.urlencode(form).encode())
                    request.add_header("Origin", address)
                    opener.open(request).read()
        except Exception as error:
            complaints.append(repr(error))

    links = {name: run("review", "invite", "which", name, "--url", address).strip() for name in ("Ada", "Ben")}
    threads = [threading.Thread(target=judge, args=item) for item in links.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert complaints == []
    with ReviewStore.open("which") as store:
        judged = [row.item for row in store.standing()]
        assert len(judged) == len(set(judged))
        assert {row.reviewer for row in store.standing()} == {1, 2}
        assert Decider(store).decided()


def test_in_a_browser_it_is_judged_until_it_is_decided_and_the_owner_sees_who_leads(address, request):
    pytest.importorskip("playwright.sync_api")
    browser = request.getfixturevalue("browser")
    page = browser.new_page()
    page.goto(run("review", "invite", "which", "Ada", "--url", address).strip())
    assert "left" not in page.locator("main").inner_text()
    page.click("a.button.primary")
    with ReviewStore.open("which") as store:
        for _ in range(200):
            page.wait_for_selector(".desk:not([aria-busy]), h1:has-text('Done')")
            if page.url.endswith("/done"):
                break
            before = page.url
            assert not re.search("bm25|wordllama", page.content())
            page.keyboard.press(grade_of(store, "Ada", before))
            page.wait_for_url(lambda url, before=before: url != before)
        assert page.url.endswith("/done")
        assert Decider(store).decided()
        verdict = Decider(store).report().pairs[0].verdict
    page.goto(f"{address}/review/which/progress?token={TOKEN}")
    assert verdict in page.locator("#decision").inner_text()
    assert faults(page) == []
    page.close()
