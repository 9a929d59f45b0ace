"""Every control of every page does something: each form is sent and each switch is used, in a real browser.

The controls are found on the pages, so that a new one is tried the day it is there: a choice must end up in the
address, in the list that it filters or in the order that it sorts. What cannot be tried like this fails here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import test_citing
import test_judging
import test_live_page
import test_web_browser
import test_workbench
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.runs.ledger import Ledger
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.library import Library

playwright = pytest.importorskip("playwright.sync_api")
TEMPLATES = Path(r2med.__file__).parent / "render" / "templates"
POSTS = {
    "/search/index": test_web_browser.test_the_form_that_builds_an_index_works_in_a_new_home,
    "/system/causes": test_web_browser.test_the_form_that_finds_causes_works,
    "/rag/judge": test_judging.test_judging_is_priced_begun_cancelled_and_gone_on_with,
    "/progress/cancel": test_live_page.test_a_run_fills_the_page_and_is_cancelled_without_loss,
}
"""Forms that change something, each with the test that sends it from a page and sees the outcome."""
SOON = "domcontentloaded"
"""When a page can be used: its scripts have run."""
FRAGMENTS = {"/search/results", "/progress/events"}
"""Parts of pages, which pages ask for by themselves."""
ELSEWHERE: dict[str, str] = {"/review": "web/test_review_browser.py"}
"""Paths whose pages are tried in another file, with that file."""


@dataclass(frozen=True)
class Control:
    """Something on a page that a person can use."""

    form: str
    """The address of its form, or how a script knows it."""
    tag: str
    name: str


@pytest.fixture
def use(rich, monkeypatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(rich))


def pages(home: Path) -> dict[str, str]:
    """Every page of the server: its route, and an address on which all of its controls are shown."""
    with Ledger(home / "ledger.sqlite") as ledger:
        entry = next(each for each in ledger.entries(system="bm25") if each.task == "sample/Biology")
    both = {"group": "sample", "a": "bm25", "b": "replay >> bm25"}
    query = {"task": "sample/MedQA-Diag", "a": "bm25", "b": "replay >> bm25"}
    return {
        "/": "/?group=sample",
        "/published": "/published?name=base/bge&group=full",
        "/sources": "/sources",
        "/system": "/system?system=bm25-classic&group=sample",
        "/compare": f"/compare?{urlencode(both)}",
        "/query": f"/query?{urlencode(query)}",
        "/document": f"/document?{urlencode({'task': entry.task, 'query': entry.queries[0], 'document': 'bio-d001'})}",
        "/search": "/search?task=sample/Biology",
        "/runs": "/runs",
        "/run/{id}": f"/run/{entry.id}",
        "/progress": "/progress",
        "/rag": "/rag",
        "/correct": "/correct",
    }


TRIED_BY_THEMSELVES = {
    "form[action='/query']": test_workbench.test_every_choice_is_reached_at_every_width_and_used,
    ".unscripted": test_workbench.test_without_scripts_links_lead_everywhere,
    ".listbar button, #help, #keys": test_workbench.test_queries_are_filtered_ordered_and_gone_through_by_keys,
    ".chosen": test_web_browser.test_two_ticked_systems_raise_a_bar_that_compares_them,
    ".page-tools": test_citing.test_a_link_that_is_copied_opens_the_same_view,
    ".tools": test_web_browser.test_a_chart_can_be_had_as_a_table_and_as_files,
}
"""Places whose controls make files or wait for others, each with the test that uses them."""
FIND = """(apart) => [...document.querySelectorAll('form select, form input, form textarea, form button, button')]
    .filter((each) => each.type !== 'hidden' && !each.disabled && !each.closest(apart)).map((each, place) => {
        each.dataset.place = place;
        const form = each.closest('form');
        const known = form ? form.getAttribute('action') || form.id || form.dataset.filter : '';
        const name = each.name || each.id || (each.closest('th') ? 'sort' : each.textContent);
        return [known, form?.method ?? '', each.tagName.toLowerCase(), name, place];
    })"""


def controls_on(page: Any) -> list[tuple[Control, str, str]]:
    """The controls of a page that is open, with the method of their form and how to find them."""
    found = []
    for form, method, tag, name, place in page.evaluate(FIND, ", ".join(TRIED_BY_THEMSELVES)):
        known = re.sub(r"^/run/\w+", "/run/", form.partition("#")[0])
        found.append((Control(known, tag, name.strip()), method, f"[data-place='{place}']"))
    return found


def in_templates() -> set[Control]:
    """Every control of a form that stands in a template, whatever it takes for a page to show it."""
    found = set()
    for path in TEMPLATES.glob("*.html"):
        if "review" in path.name:
            continue
        for form in re.findall(r"<form.*?</form>", path.read_text("utf-8"), re.DOTALL):
            head = form.partition(">")[0]
            if 'method="dialog"' in head:
                continue
            known = re.search(r'(?: id| data-filter| action)="([^"#{]*)', head)
            assert known, f"a form of {path.name} has neither an address nor a name"
            for tag, name in re.findall(r'<(select|input|textarea)(?! type="hidden")[^>]*? name="([^"]+)"', form):
                names = ("family", "retriever", "llm", "reranker") if "{{" in name else (name,)
                found |= {Control(known[1] or "board", tag, each) for each in names}
    return found


def other_option(page: Any, where: str) -> str:
    """An option of a choice that is not the present one."""
    values = page.locator(f"{where} option").evaluate_all("all => all.map((one) => one.value)")
    chosen = page.locator(where).input_value()
    return next(value for value in reversed(values) if value != chosen)


def change(page: Any, control: Control, where: str) -> str:
    """Use a control; returns what must then be in the address."""
    if control.tag == "select":
        wanted = other_option(page, where)
        page.select_option(where, wanted)
        return wanted
    if page.locator(where).get_attribute("type") == "checkbox":
        value = page.locator(where).get_attribute("value")
        page.click(where)
        return value
    page.fill(where, "swollen gums")
    return "swollen gums"


def try_on_server(page: Any, control: Control, where: str) -> None:
    """A control of the server's pages: what was chosen is in the address afterwards, and the page is there."""
    page.evaluate("document.querySelectorAll('details:not(.cite)').forEach((each) => { each.open = true; })")
    if control.name == "theme":
        before = page.evaluate("document.documentElement.dataset.theme ?? ''")
        page.click(where)
        assert page.evaluate("document.documentElement.dataset.theme") != before
        return
    form = page.locator(f"form:has({where})")
    live = form.get_attribute("data-live") is not None
    if control.tag == "button":
        for field in form.locator("input[required]").all():
            field.fill("gpt-4o")
        with page.expect_response(lambda answer: urlsplit(answer.url).path.startswith(control.form)) as sent:
            page.click(where)
        assert sent.value.ok
        page.wait_for_load_state(SOON)
        return
    by_itself = control.tag == "select" or page.locator(where).get_attribute("type") == "checkbox"
    by_itself = by_itself and (form.get_attribute("data-auto") is not None or control.name == "group" or live)
    checked = page.locator(where).get_attribute("type") == "checkbox" and page.locator(where).is_checked()
    if live and control.name != "task":
        if control.name == "system":
            page.fill("#question", "gums")
            page.wait_for_url("**q=gums**")
            page.wait_for_selector("#found mark")
        wanted = change(page, control, where)
        pair = (control.name, wanted)
        page.wait_for_url(lambda url: (pair in parse_qsl(urlsplit(url).query)) != checked)
        page.wait_for_selector("#found:not([aria-busy])")
        return
    with page.expect_navigation(wait_until=SOON):
        wanted = change(page, control, where)
        if not by_itself and control.tag == "input":
            page.press(where, "Enter")
        elif not by_itself:
            form.locator("button[type=submit]").click()
    assert (control.name, wanted) in parse_qsl(urlsplit(page.url).query), page.url
    assert page.locator("main").count() == 1
    assert page.locator("h1").inner_text() not in ("That cannot be shown", "That cannot be done", "Refused")


def try_in_file(page: Any, control: Control, where: str) -> None:
    """A control of a page without a server: what it filters or sorts looks different, and then as before."""
    shown: dict[str, Callable[[], object]] = {
        "board": lambda: [page.locator("table.board tr:visible").count(), page.locator("table.board").inner_text()],
        "pair": lambda: page.locator("#outcome").inner_text(),
        "browser": lambda: [page.locator("#browse-count").inner_text(), page.locator("#queries").inner_text()],
        "": lambda: page.evaluate("document.documentElement.dataset.theme ?? ''"),
    }
    if control.tag == "button" and control.name == "sort":
        page.click(where)
        head = page.locator(f"th:has({where})")
        assert head.get_attribute("aria-sort") in ("ascending", "descending")
        return
    if control.form == "browser":
        page.evaluate("document.getElementById('browse').scrollIntoView()")
        page.wait_for_selector("#queries li.here")
        if control.name == "order":
            page.select_option("#browser select[name=beside]", "1")
            page.wait_for_selector(".onelist[data-number='2']")
    before, value = shown[control.form](), page.locator(where).evaluate("one => one.value")
    if control.tag == "button":
        page.click(where)
    else:
        change(page, control, where)
    if control.form == "browser":
        playwright.expect(page.locator("#queries")).not_to_have_text(before[1], use_inner_text=True)
    assert shown[control.form]() != before
    if control.form == "board":
        rows = page.locator("table.board tbody:not(.ceiling) tr:visible").count()
        assert page.locator("#board-count").inner_text() == f"{rows} system{'s' * (rows != 1)}"
    take_back(page, control, where, value)
    if control.form == "browser":
        playwright.expect(page.locator("#queries")).to_have_text(before[1], use_inner_text=True)
    assert shown[control.form]() == before or control.form == ""


def take_back(page: Any, control: Control, where: str, value: str) -> None:
    """Use a control once more, so that all is as it was."""
    if control.tag == "button" or page.locator(where).get_attribute("type") == "checkbox":
        page.click(where)
    elif control.tag == "select":
        page.select_option(where, value)
    else:
        page.fill(where, value)


def try_all(page: Any, addresses: list[str], tried: set[Control], attempt: Callable[[Any, Control, str], None]) -> set:
    """Try every control of some pages that was not tried yet; returns the forms that change something.

    A page that a form leads to has the same controls: what is left is tried there, and on the first page again only
    where it is not there.
    """
    posts = set()
    for url in addresses:
        page.goto(url, wait_until=SOON)
        first = True
        while True:
            found = controls_on(page)
            posts |= {control.form for control, method, _ in found if method == "post"}
            left = [(c, where) for c, method, where in found if method != "post" and c not in tried]
            if not left and first:
                break
            if not left:
                page.goto(url, wait_until=SOON)
                first = True
                continue
            control, where = left[0]
            by_itself = control.tag != "button" and page.locator(f"form[data-auto]:has({where})").count()
            if not first and not by_itself:
                page.goto(
                    url, wait_until=SOON
                )  # what is chosen together and sent by a button need not fit what was tried before
                first = True
                continue
            attempt(page, control, where)
            tried.add(control)
            first = first and attempt is try_in_file
    return posts


@pytest.mark.usefixtures("use")
def test_every_control_of_every_page_does_something(visit, rich_address, rich, own_files):
    known = {route.path: route.methods for route in create_app(Library(rich / "ledger.sqlite"), Access(None)).routes}
    of_pages = pages(rich)
    files = {path for path in known if path.startswith(("/static/", "/board.", "/report"))}
    elsewhere = {path for path in known if any(path.startswith(start) for start in ELSEWHERE)}
    for file in ELSEWHERE.values():
        assert (Path(__file__).parents[1] / file).is_file()
    looked_at = {path for path, methods in known.items() if "GET" in methods} - files - FRAGMENTS - elsewhere
    assert looked_at == set(of_pages), "a page is missing here, and with it its controls"
    tried: set[Control] = set()
    addresses = [
        rich_address + path for path in (*of_pages.values(), "/?group=full", "/search?task=sample/IIYi-Clinical")
    ]
    page = visit(addresses[0])
    posts = try_all(page, addresses, tried, try_on_server)
    assert (
        posts | {"/progress/cancel", "/rag/judge"}
        == set(POSTS)
        == {path for path, methods in known.items() if "POST" in methods} - elsewhere
    )
    site = own_files["site"]
    of_site = [site / f"{name}.html" for name in ("sample", "compare-sample", "sources")]
    files_of = [own_files["report"], *of_site, next((site / "systems").iterdir())]
    assert try_all(page, [path.as_uri() for path in files_of], tried, try_in_file) == set()
    every = {control for control in in_templates() if control.form not in (*POSTS, "/query")}
    missing = every - tried
    assert not missing, "no page that was looked at shows these"


def test_a_long_list_of_queries_in_a_report_has_pages(visit, tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    folder = tmp_path / "many"
    folder.mkdir()
    rows = {
        "corpus.jsonl": [{"id": f"d{place}", "text": f"gum {place}"} for place in range(60)],
        "query.jsonl": [{"id": f"q{place}", "text": f"gum {place}"} for place in range(60)],
        "qrels.jsonl": [{"q_id": f"q{place}", "p_id": f"d{place}", "score": 1} for place in range(60)],
    }
    for name, several in rows.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in several))
    r2med.evaluate("bm25", folder)
    path = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", "bm25", "--no-causes", "--out", str(path)])
    assert done.exit_code == 0, done.output
    page = visit(path.as_uri())
    page.evaluate("document.getElementById('browse').scrollIntoView()")
    page.wait_for_selector("#query-pages :text('Page 1 of 2')")
    assert page.locator("#queries > li").count() == 50
    first = page.locator("#queries .mono").all_inner_texts()
    page.click("#query-pages button:has-text('Next')")
    page.wait_for_selector("#query-pages :text('Page 2 of 2')")
    assert sorted(first + page.locator("#queries .mono").all_inner_texts()) == sorted(f"q{n}" for n in range(60))
    page.click("#query-pages button:has-text('Previous')")
    page.wait_for_selector("#query-pages :text('Page 1 of 2')")
    assert page.locator("#queries .mono").all_inner_texts() == first


def test_wide_tables_keep_their_first_column_and_fit_on_paper(visit, rich_address):
    page = visit(f"{rich_address}/rag", viewport={"width": 390, "height": 844})
    table = page.locator("table.wide").first
    first = table.locator("tbody td").first
    before = first.bounding_box()["x"]
    table.locator("xpath=..").evaluate("each => { each.scrollLeft = 200; }")
    assert first.bounding_box()["x"] == pytest.approx(before, abs=20), "the first column stays"
    assert "-0" not in " ".join(table.locator("td.n").all_inner_texts()), "negative numbers have minus signs"
    page.set_viewport_size({"width": 700, "height": 900})
    page.emulate_media(media="print")
    for each in page.locator("table.wide").all():
        assert each.evaluate("one => one.scrollWidth <= document.body.clientWidth"), "paper has no scroll bar"


def test_a_comparison_has_short_pages_and_a_button_address_says_what_it_is(visit, rich_address):
    page = visit(f"{rich_address}/compare?group=sample&a=bm25&b=bm25-classic")
    assert page.locator("#queries tbody tr").count() == 20
    page.click("#queries .pages a[rel=next]")
    page.wait_for_url("**page=2**")
    assert page.locator("#queries tbody tr").count() == 20
    answer = page.request.get(f"{rich_address}/progress/cancel")
    assert answer.status == 405
    assert "takes what a button of a page sends" in answer.text().lower()
