"""A whole review in a real browser: two people, one by keys alone and one on a phone, and an adjudicator."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from webparts import TOKEN, faults, served

import r2med
from r2med.cli.main import app as program
from r2med.reviews.store import ReviewStore

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
    assert ada.locator("#keys-h").evaluate("each => getComputedStyle(each).marginTop") == "0px"
    ada.keyboard.press("0")
    ada.keyboard.press("Escape")
    press(ada, "u")
    for _ in range(6):
        ada.keyboard.press("a")
        ada.wait_for_selector("details.shown")
        for kind in ("query", "answer"):
            named = any(each.is_visible() for each in ada.locator(f".legend mark.{kind}").all())
            assert named == (ada.locator(f".passage mark.{kind}").count() > 0), "the legend names what is marked"
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
    eve.set_viewport_size(PHONE["viewport"])
    assert eve.evaluate("(each => each.scrollWidth <= each.clientWidth)(document.querySelector('.person'))")
    eve.set_viewport_size(DESKTOP["viewport"])
    eve.keyboard.press("n")
    eve.keyboard.type("two readings")
    eve.keyboard.press("Escape")
    eve.keyboard.press("q")
    press(eve, "1")
    press(eve, "z")  # what was written with a ruling that is taken back stays
    assert eve.locator("textarea[name=note]").input_value() == "two readings"
    assert eve.locator("input[name=cause]:checked").get_attribute("value") == "question"
    for number in range(8):
        if number:
            eve.keyboard.press("d")
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
    owner = enter("Dr. Eve", "--adjudicator", **DESKTOP)
    owner.goto(f"{pilot}/review/pilot/progress?token={TOKEN}")
    assert "Dr. Ben" in owner.locator("table").inner_text()
    assert faults(owner) == []
    exported = tmp_path / "pilot.qrels"
    run("review", "export", "pilot", "--to", "trec", "--out", str(exported))
    grades = {line.split()[2]: int(line.split()[3]) for line in exported.read_text("utf-8").splitlines()}
    with ReviewStore.open("pilot") as store:
        ruled = {store.item(number).document for number in rulings}
    assert {document for document, grade in grades.items() if grade > 0} == ruled


def begin(page):
    """Go from the welcome to the first passage."""
    page.click("a.button.primary")
    page.wait_for_selector(".desk")
    page.wait_for_load_state()
    return page


def shown(page) -> dict[str, float]:
    """Where things stand on the screen, in CSS pixels."""
    return page.evaluate("""() => {
        const box = (name) => document.querySelector(name).getBoundingClientRect();
        return {bar: box(".actions").top, bar_height: box(".actions").height, passage: box(".passage").top,
                question: document.querySelector(".asked").scrollHeight - document.querySelector(".asked").clientHeight,
                wide: document.documentElement.scrollWidth - innerWidth};
    }""")


LINE = 24
SMALL = {"200% of 1440x900": (720, 450), "a phone sideways": (844, 390), "a phone upright": (390, 664)}


@pytest.mark.parametrize("size", SMALL.values(), ids=SMALL)
def test_the_passage_is_read_where_the_screen_is_small(enter, size):
    width, height = size
    page = begin(enter("Dr. Ada", viewport={"width": width, "height": height}, has_touch=True))
    place = shown(page)
    assert place["bar_height"] <= 0.2 * height
    assert place["wide"] <= 0
    assert place["question"] <= 1, "the question is not cut"
    if width > height:
        assert place["passage"] + 4 * LINE < place["bar"], "four lines of the passage are in view at once"
    page.locator(".passage").evaluate("each => each.scrollIntoView()")
    place = shown(page)
    assert place["passage"] + 8 * LINE < place["bar"]
    assert faults(page) == []
    # The next passage of the same question comes into view without passing the question again.
    question = page.locator(".question").inner_text()
    for _ in range(6):
        before = page.url
        page.tap("[data-say='1']")
        page.wait_for_url(lambda url, before=before: url != before)
        if page.locator(".question").inner_text() == question:
            place = shown(page)
            assert place["passage"] >= 0
            assert place["passage"] + 2 * LINE < place["bar"]
        question = page.locator(".question").inner_text()


def test_on_a_phone_mark_says_what_to_do_in_view_and_the_guideline_opens_into_view(enter):
    page = begin(enter("Dr. Ada", **PHONE))
    page.locator(".passage").evaluate("each => each.scrollIntoView()")
    page.tap("[data-act=mark]")
    page.wait_for_selector("[data-said]:has-text('Tap the sentence')")
    box = page.locator("[data-said]").bounding_box()
    assert 0 < box["y"] < box["y"] + box["height"] <= shown(page)["bar"]
    page.tap(".passage .s >> nth=0")
    page.wait_for_selector(".s.proof")
    page.tap(".guide summary")
    page.wait_for_function("""() => {
        const guide = document.querySelector(".guide").getBoundingClientRect();
        return guide.top >= 0 && guide.bottom <= document.querySelector(".actions").getBoundingClientRect().top;
    }""")
    desktop = begin(enter("Dr. Ben", viewport={"width": 1440, "height": 700}))
    desktop.keyboard.press("a")
    desktop.wait_for_selector("details.shown:has-text('Gold answer')")
    desktop.keyboard.press("g")
    desktop.wait_for_selector(".guide[open]")
    desktop.keyboard.press("r")  # what is open stays so
    desktop.wait_for_selector("details.shown:has-text('Reasoning')")
    desktop.wait_for_function("""() => {
        const box = document.querySelector(".asked").getBoundingClientRect();
        const last = document.querySelector(".guide li:last-child").getBoundingClientRect();
        return last.bottom <= box.bottom && last.top >= box.top;
    }""")


def test_a_draft_survives_arrows_a_reload_and_another_page_and_goes_when_it_is_saved(enter):
    page = begin(enter("Dr. Ada", **DESKTOP))
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    press(page, "1")

    def write(text: str) -> None:
        page.keyboard.press("n")
        page.keyboard.type(text)
        page.keyboard.press("Escape")

    def drafted() -> tuple[str, int]:
        return page.locator("textarea[name=note]").input_value(), page.locator(".s.proof").count()

    write("half a thought")
    page.keyboard.press("h")
    page.keyboard.press("Enter")
    page.wait_for_selector(".s.proof")
    press(page, "ArrowLeft")
    assert drafted() == ("", 0)
    press(page, "ArrowRight")
    assert drafted() == ("half a thought", 1)
    assert asked == []
    page.reload()
    page.wait_for_selector(".s.proof")
    assert drafted() == ("half a thought", 1)
    assert asked == ["beforeunload"], "a tab that is closed would lose it"
    page.click("text=Guideline >> nth=0")
    page.wait_for_url("**/guideline")
    page.go_back()
    page.wait_for_selector(".s.proof")
    assert drafted() == ("half a thought", 1)
    assert asked == ["beforeunload"]
    here = page.url
    press(page, "2")
    assert drafted() == ("", 0)
    page.goto(here)
    page.wait_for_selector(".s.proof")
    assert (drafted(), asked) == (("half a thought", 1), ["beforeunload"])
    with ReviewStore.open("pilot") as store:
        assert [row.note for row in store.standing()] == ["", "half a thought"]


def test_saved_is_said_when_it_is_saved_and_a_server_that_hangs_is_said(enter):
    page = begin(enter("Dr. Ada", **DESKTOP))
    message = page.locator("[data-said]")
    press(page, "2")
    assert message.inner_text() == "Saved: 2, Helpful"
    press(page, "ArrowLeft")
    assert message.inner_text() == ""
    press(page, "ArrowRight")
    held = []
    page.route("**/item/*", lambda route: held.append(route) if route.request.method == "POST" else route.continue_())
    page.keyboard.press("3")
    page.wait_for_selector("[data-said]:has-text('Saving')")
    page.keyboard.press("1")  # of a passage that is not in view yet
    page.wait_for_selector("[data-said]:has-text('not taken')")
    page.wait_for_selector("[data-alert]:has-text('may not be saved')", timeout=20_000)
    assert message.inner_text() == ""
    with ReviewStore.open("pilot") as store:
        assert [row.grade for row in store.decisions()] == [2]
    page.unroute("**/item/*")
    before = page.url
    page.click("text=Try again")
    page.wait_for_url(lambda url: url != before)
    page.wait_for_selector("[data-said]:has-text('Saved: 3, Decisive')")
    with ReviewStore.open("pilot") as store:
        assert [row.grade for row in store.decisions()] == [2, 3]
    assert page.title().startswith("Passage 3 of pilot")


def test_somebody_whose_link_is_withdrawn_at_work_is_told_so(browser, pilot):
    page = browser.new_context(**DESKTOP).new_page()
    page.goto(run("review", "invite", "pilot", "Dr. Ada", "--url", pilot).strip())
    begin(page)
    run("review", "withdraw", "pilot", "Dr. Ada")
    page.keyboard.press("3")
    page.wait_for_selector("[data-alert]:has-text('your link does not open this review any more')")
    page.context.close()


def test_keys_wait_for_a_reveal_and_work_on_every_keyboard(enter):
    page = begin(enter("Dr. Ada", **DESKTOP))
    first = page.url
    page.keyboard.press("a")
    page.keyboard.press("3")
    page.wait_for_url(lambda url: url != first)
    page.wait_for_selector("[data-said]:has-text('Saved: 3')")
    typed = """([key, code, shiftKey]) =>
        document.body.dispatchEvent(new KeyboardEvent("keydown", {key, code, shiftKey, bubbles: true}))"""
    for key, code, shift, says in (
        ("é", "Digit2", False, "Saved: 2"),  # the row of digits in France
        ("1", "Digit1", True, "Saved: 1"),
        ("г", "KeyU", False, "Saved: unsure"),  # Cyrillic
        ("U", "KeyU", False, "Saved: unsure"),  # Caps Lock
    ):
        before = page.url
        page.evaluate(typed, [key, code, shift])
        page.wait_for_url(lambda url, before=before: url != before)
        page.wait_for_selector(f"[data-said]:has-text('{says}')")
    page.evaluate(typed, ["!", "Digit1", True])
    page.evaluate(typed, ["ф", "KeyA", False])
    page.wait_for_selector("details.shown")
    with ReviewStore.open("pilot") as store:
        rows = store.decisions()
        assert [row.grade for row in rows] == [3, 2, 1, None, None]
        assert [each.what for each in rows[0].revealed] == ["answer"]


def test_the_owners_table_of_items_fits_a_phone_and_shows_notes(enter, pilot):
    ada = begin(enter("Dr. Ada", **DESKTOP))
    ada.keyboard.press("n")
    ada.keyboard.type("which stage is meant?")
    ada.keyboard.press("Escape")
    press(ada, "u")
    press(ada, "2")
    for screen in (DESKTOP, PHONE):
        owner = enter("Dr. Ada", **screen)
        owner.goto(f"{pilot}/review/pilot/items?token={TOKEN}")
        owner.select_option("select[name=show]", "unsure")
        owner.click("form.filters button")
        owner.wait_for_url("**show=unsure**")
        assert "which stage is meant?" in owner.locator("table.items").inner_text()
        assert owner.locator("table.items tbody tr").count() == 1
        assert owner.evaluate("document.documentElement.scrollWidth") <= screen["viewport"]["width"]
        assert faults(owner) == []
