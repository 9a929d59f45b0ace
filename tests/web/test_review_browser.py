"""A whole review in a real browser: two people, one by keys alone and one on a phone, and an adjudicator."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from webparts import TOKEN, faults, served

import r2med
from r2med.cli.main import app as program
from r2med.review.review_store import ReviewStore

playwright = pytest.importorskip("playwright.sync_api")
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
TASK = "sample/MedQA-Diag"


def run(*words: str) -> str:
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


@pytest.fixture
def pilot(tmp_path, monkeypatch):
    """A server with a review of a dozen items that everybody judges, and how to invite people to it."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    r2med.evaluate("bm25", TASK)
    run("review", "new", "pilot", "--from", TASK, "bm25", "--items", "8", "--overlap", "1", "--repeat", "0")
    with served(tmp_path / "ledger.sqlite") as address:
        yield address


@pytest.fixture
def enter(browser, pilot):
    """Open the desk as somebody, by the link that they are sent; nothing may be complained about in the console."""
    contexts, complaints = [], []

    def opened(name: str, *options: str, **how):
        context = browser.new_context(**how)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(run("review", "invite", "pilot", name, "--url", pilot, *options).strip())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def press(page, key: str) -> None:
    """Press a key that leads to another address, and wait until the page is there."""
    before = page.url
    page.keyboard.press(key)
    page.wait_for_url(lambda url: url != before)
    page.wait_for_selector(".desk:not([aria-busy]), h1:has-text('Done')")


def test_two_people_and_an_adjudicator_from_invitation_to_exported_judgements(enter, pilot, tmp_path):
    ada = enter("Dr. Ada", **DESKTOP)
    ada.keyboard.press("Tab")  # by keys alone, from the welcome on
    while ada.evaluate("document.activeElement.textContent.trim()") != "Begin":
        ada.keyboard.press("Tab")
    press(ada, "Enter")
    assert ada.evaluate("document.activeElement.id") == "read-h"
    assert faults(ada) == []
    ada.keyboard.press("h")
    ada.keyboard.press("ArrowDown")
    ada.keyboard.press("Enter")
    ada.wait_for_selector(".s.proof")
    proof = ada.locator(".s.proof").inner_text()
    ada.keyboard.press("a")
    ada.wait_for_selector("details.shown")
    ada.keyboard.press("n")
    ada.keyboard.type("keys 0 and z are text here")
    ada.keyboard.press("Escape")
    press(ada, "3")
    assert ada.locator("[data-said]").inner_text() == "Saved: 3, Decisive"
    press(ada, "z")
    assert ada.locator("[data-said]").inner_text() == "Taken back"
    assert ada.locator("textarea[name=note]").input_value() == "keys 0 and z are text here"
    press(ada, "3")
    press(ada, "ArrowLeft")
    assert "you said 3" in ada.locator("#read-h").inner_text()
    assert ada.locator(".s.proof").inner_text() == proof
    press(ada, "ArrowRight")
    ada.keyboard.press("?")
    ada.wait_for_selector("dialog[open]")
    ada.keyboard.press("0")
    ada.keyboard.press("Escape")
    press(ada, "u")
    for _ in range(6):
        press(ada, "1")
    ada.wait_for_url("**/done")

    ben = enter("Dr. Ben", **PHONE)
    ben.tap("a.button.primary")
    ben.wait_for_selector(".desk")
    assert ben.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    assert faults(ben) == []
    for button in ben.locator(".actions button:visible, .actions a:visible").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 40, "a thumb hits it"
    while not ben.url.endswith("/done"):
        before = ben.url
        ben.tap("[data-say='0']")
        ben.wait_for_url(lambda url, before=before: url != before)

    eve = enter("Dr. Eve", "--adjudicator", **DESKTOP)
    eve.click("a.button.primary")
    eve.wait_for_selector(".desk")
    assert faults(eve) == []
    assert not re.search("Ada|Ben", eve.locator("main").inner_text())
    eve.keyboard.press("2")
    eve.wait_for_selector("[data-alert]:has-text('Name the cause')")
    for number in range(8):
        eve.keyboard.press("d" if number else "q")
        press(eve, "2")
    eve.wait_for_url("**/done")

    with ReviewStore.open("pilot") as store:
        labels, rulings = store.labels(), store.rulings()
        assert sorted(labels["Dr. Ada"].values()) == [1] * 6 + [3]
        assert set(labels["Dr. Ben"].values()) == {0}
        assert len(rulings) == 8
        assert [each.cause for each in rulings.values()].count("guideline") == 7
        first = next(row for row in store.standing() if row.grade == 3)
        assert store.item(first.item).text[slice(*first.span)].strip() == proof.strip()
        assert [each.what for each in first.revealed] == ["answer"]
        assert first.seconds is not None
    keeper = enter("Dr. Eve", "--adjudicator", **DESKTOP)
    keeper.goto(f"{pilot}/review/pilot/progress?token={TOKEN}")
    assert "Dr. Ben" in keeper.locator("table").inner_text()
    assert faults(keeper) == []
    exported = tmp_path / "pilot.qrels"
    run("review", "export", "pilot", "--to", "trec", "--out", str(exported))
    grades = {line.split()[2]: int(line.split()[3]) for line in exported.read_text("utf-8").splitlines()}
    with ReviewStore.open("pilot") as store:
        ruled = {store.item(number).document for number in rulings}
    assert {document for document, grade in grades.items() if grade > 0} == ruled
