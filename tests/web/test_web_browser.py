"""The pages in a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from webparts import ATTACK, TOKEN, faults, long_task, served

import r2med
from r2med.lexical.highlight import parts
from r2med.pipeline.named_runs import share
from r2med.runs.ledger import Ledger
from r2med.web import live as live_feed
from r2med.web.library import Library
from r2med.workbench.sides import run_kinds

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(filled):
    with served(filled[0] / "ledger.sqlite") as found:
        yield found


def names(page) -> list[str]:
    return page.locator("table.board tbody:not(.ceiling) tr:visible td.sys code").all_inner_texts()


def background(page) -> int:
    """How light the page is, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(re.search(r"\d+", colour)[0])


def test_the_printed_address_opens_the_pages_to_this_browser_alone(browser, address, monkeypatch):
    monkeypatch.setattr(live_feed, "_LASTS", 0.6)
    context, other = browser.new_context(), browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/?group=sample&token={TOKEN}")
    assert page.url == f"{address}/?group=sample"
    assert names(page)
    assert page.evaluate("document.cookie") == ""
    page.click("nav.menu a:has-text('Runs')")
    page.wait_for_url("**/runs")
    assert page.locator("main table").count() >= 1
    page.goto(f"{address}/progress")
    context.clear_cookies()
    with page.expect_navigation(timeout=20_000):  # the page asks by itself, and finds that it is not known any more
        pass
    stranger = other.new_page()
    for refused in (page, stranger):
        if refused is stranger:
            assert refused.goto(f"{address}/?group=sample").status == 403
        assert "open the address that r2med serve printed" in refused.locator("main").inner_text()
        assert refused.locator("a[href^='/']").count() == 0
        assert refused.evaluate("getComputedStyle(document.querySelector('.card')).paddingTop") != "0px"
    context.close()
    other.close()


def test_the_board_sorts_and_filters(visit, address):
    page = visit(f"{address}/?group=sample")
    ranked = names(page)
    page.click("thead a:has-text('Average')")
    page.click("thead a:has-text('Average')")
    assert names(page) == ranked[::-1]
    page.fill("input[name=q]", "classic")
    page.press("input[name=q]", "Enter")
    page.wait_for_url("**q=classic**")
    assert set(names(page)) == {name for name in ranked if "classic" in name}
    page.select_option("select[name=group]", "full")
    page.wait_for_url("**group=full**")
    assert page.locator("h1").inner_text() == "R2MED board"


def test_the_board_says_which_way_costs_are_sorted(visit, address):
    page = visit(f"{address}/?group=sample")
    for order in ("ascending", "descending"):
        page.click("thead a:has-text('s/query')")
        page.wait_for_selector(f"th[data-key=seconds][aria-sort={order}]")
        cells = page.locator("tbody:not(.ceiling) td.cost:nth-last-child(2):not([data-v=''])")
        shown = cells.evaluate_all("all => all.map((one) => Number(one.dataset.v))")
        assert len(shown) > 2
        assert shown == sorted(shown, reverse=order == "descending")


def test_ticks_survive_a_filter_another_page_an_order_and_a_reload(visit, address):
    page = visit(f"{address}/?group=full")
    first, second = names(page)[0], names(page)[3]

    def tick(name: str) -> None:
        page.locator(f"input[form=chosen][value='{name}']:visible").first.check()

    tick(first)
    page.fill("input[name=q]", second)
    page.press("input[name=q]", "Enter")
    page.wait_for_url("**q=**")
    assert first not in names(page)
    empty = [name for name, value in parse_qsl(urlsplit(page.url).query, keep_blank_values=True) if not value]
    assert empty == [], "an address holds what was asked for"
    tick(second)
    assert sorted(parse_qs(urlsplit(page.url).query)["tick"]) == sorted([first, second])
    page.goto(f"{address}/?group=full&{urlencode({'tick': [first, second]}, doseq=True)}")
    page.click(".pages a[rel=next]")
    page.wait_for_url("**page=2**")
    page.click("thead a:has-text('System')")
    page.wait_for_url("**sort=name**")
    page.reload()
    assert page.locator("form.chosen output").inner_text().split(" · ") in ([first, second], [second, first])
    with page.expect_navigation(url="**/compare?**"):
        page.click("form.chosen button:has-text('Compare')")
    chosen = page.locator("form[data-group] select option:checked").all_inner_texts()
    assert {name.partition(" (")[0] for name in chosen[1:3]} == {first.partition(" (")[0], second.partition(" (")[0]}
    page.go_back()
    page.click("form.chosen button[type=reset]")
    page.locator("form.chosen").wait_for(state="hidden")
    assert "tick=" not in page.url


def test_changing_the_board_keeps_the_task_and_the_order(visit, address):
    page = visit(f"{address}/?group=sample&sort=name")
    page.select_option("select[name=task]", "sample/MedQA-Diag")
    page.wait_for_url("**task=sample**")
    page.select_option("select[name=group]", "full")
    page.wait_for_url("**group=full**")
    assert page.locator("select[name=task] option:checked").get_attribute("value") == "MedQA-Diag"
    assert names(page) == sorted(names(page), key=str.casefold)
    assert "sort=name" in page.url
    page.goto(f"{address}/compare?group=sample&a=bm25&b=replay+%3E%3E+bm25")
    page.select_option("form[data-group] select[name=group]", "custom")
    page.wait_for_url("**group=custom")
    assert page.locator("select[name=a] option").all_inner_texts() == ["bm25", "bm25-classic"]


def test_a_live_search_follows_the_typing_and_can_be_reloaded_left_and_come_back_to(visit, address):
    page = visit(f"{address}/search?task=sample/Biology")
    ticked = page.locator("fieldset input:checked").evaluate_all("all => all.map((one) => one.value)")
    assert ticked == ["bm25", "rrf(bm25, bm25-classic)"], "two kinds of BM25 are one kind of list"
    page.check("input[value='bm25-classic']")
    page.locator("#question").press_sequentially("when have gums swollen?", delay=5)
    page.wait_for_selector("#found mark.query")
    assert page.locator("#found section").count() == 3
    assert page.locator("#found h2 code").first.inner_text() == "bm25"
    marked = {text.lower() for text in page.locator("#found mark").all_inner_texts()}
    assert marked <= {"gum", "gums", "swollen"}, "words that say nothing are not marked"
    page.fill("#question", "zzzz")
    page.wait_for_selector("#found :text('Nothing shares a word')")
    with page.expect_navigation():
        page.click("a[data-example] >> nth=0")
    asked = page.input_value("#question")
    assert len(asked) > 50
    found = page.locator("#found .mono").all_inner_texts()
    assert len(found) == 20, "an example is searched with what is chosen at first"
    page.reload()
    assert page.locator("#found .mono").all_inner_texts() == found
    page.goto(f"{address}/search?task=sample/MedQA-Diag")
    page.go_back()
    assert page.input_value("#question") == asked
    assert page.locator("#task option:checked").inner_text() == "sample/Biology"
    assert page.locator("#found .mono").all_inner_texts() == found


BOXES = """each => each.map((one) => {
    const box = one.getBoundingClientRect();
    return [one.textContent, box.x, box.width, box.height];
})"""


@pytest.mark.parametrize("width", [1440, 390])
def test_the_intervals_of_a_board_have_one_scale_with_figures(visit, address, width):
    page = visit(f"{address}/?group=sample", viewport={"width": width, "height": 900})
    ticks = page.locator("th.forest svg text").evaluate_all(BOXES)
    assert len(ticks) >= 3
    assert min(height for *_, height in ticks) > 9
    ends = [(x, x + wide) for _, x, wide, _ in ticks]
    assert all(end + 3 < start for (_, end), (start, _) in itertools.pairwise(ends)), "no figure on another"
    (low, left), (high, right) = ((float(text), x + wide / 2) for text, x, wide, _ in (ticks[0], ticks[-1]))
    for row in page.locator("table.board tbody:not(.ceiling) tr").all():
        ((_, x, wide, _),) = row.locator("td.forest circle").evaluate_all(BOXES)
        average = float(row.locator("td.avg").inner_text())
        assert left + (average - low) / (high - low) * (right - left) == pytest.approx(x + wide / 2, abs=1.5)
        said = row.locator("td.forest svg").get_attribute("aria-label")
        start, end = map(float, re.findall(r"\d+\.\d\d", said))
        assert start <= average <= end
        ((_, x, wide, _),) = row.locator("td.forest line").evaluate_all(BOXES)[:1]
        assert wide == pytest.approx((end - start) / (high - low) * (right - left), abs=1.5)
    board = page.locator(".scroll.tall")
    assert width < 1440 or board.evaluate("each => each.scrollWidth <= each.clientWidth"), (
        "a desk has room for all of it"
    )
    for wanted in ("descending", "ascending"):
        page.locator("th.forest a").click()
        page.wait_for_selector(f"th.forest[aria-sort={wanted}]")
        said = page.locator("td.forest svg").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
        ends = [float(re.search(r"\d+\.\d\d", text)[0]) for text in said]
        assert ends == sorted(ends, reverse=wanted == "descending")


def test_oracles_are_shown_when_they_are_asked_for(visit, address, filled):
    r2med.evaluate("oracle-answer >> bm25", "sample")
    page = visit(f"{address}/?group=sample")
    assert not [name for name in names(page) if "oracle" in name]
    ceiling = page.locator("tbody.ceiling tr")
    assert ceiling.locator("code").inner_text() == "oracle-answer >> bm25"
    assert ceiling.locator("td").first.evaluate("each => getComputedStyle(each).borderBottomStyle") == "dashed"
    page.check("input[name=oracles]")
    page.wait_for_url("**oracles=1**")
    assert "oracle-answer >> bm25" in names(page)
    assert page.locator(".ceiling").count() == 0
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        ledger.remove(ledger.entries(system="oracle-answer >> bm25"))


def test_a_comparison_leads_to_the_query(visit, address):
    page = visit(f"{address}/compare")
    if page.locator("select[name=group]").input_value() != "sample":
        with page.expect_navigation(url="**group=sample**"):  # the form is sent when the board is chosen
            page.select_option("select[name=group]", "sample")
    page.select_option("select[name=a]", "bm25")
    page.select_option("select[name=b]", "replay >> bm25")
    with page.expect_navigation(url="**b=replay**"):
        page.click("button.primary")
    assert "replay >> bm25 is better than bm25" in page.locator("main").inner_text()
    page.locator("#queries tbody a").first.click()
    page.wait_for_url("**/query?**")
    assert page.locator(".onelist").count() == 2
    assert page.locator("li.relevant").count() >= 1


def test_markup_in_documents_stays_text(visit, address, filled):
    from urllib.parse import urlencode

    page = visit(f"{address}/query?{urlencode({'task': filled[1], 'query': 'q<i>1'})}")
    assert "taken" not in page.title()
    assert ATTACK in page.locator(".question").inner_text()
    assert page.locator("main img, main script").count() == 0
    page.goto(f"{address}/search?{urlencode({'task': filled[1]})}")
    page.fill("#question", f"swollen gums {ATTACK}")
    page.wait_for_selector("#found mark")
    assert page.locator("#found img, #found script").count() == 0
    assert "taken" not in page.title()


def test_the_form_that_builds_an_index_works_in_a_new_home(visit, tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    with served(tmp_path / "ledger.sqlite") as own:
        page = visit(f"{own}/search?task=sample/Biology")
        assert "Nothing is indexed" in page.locator("fieldset").inner_text()
        assert page.locator("#task").bounding_box()["width"] < 450
        page.click("button:has-text('Build its index')")
        page.wait_for_selector("fieldset input[value='bm25']")
        page.fill("#question", "swollen gums")
        page.wait_for_selector("#found mark.query")
        page.goto(f"{own}/progress")
        assert "Index of bm25 for sample/Biology" in page.locator("main").inner_text()


def test_the_form_that_finds_causes_works(visit, filled, tmp_path, monkeypatch):
    import shutil

    shutil.copytree(filled[0], tmp_path / "home")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with served(tmp_path / "home" / "ledger.sqlite") as own:
        page = visit(f"{own}/system?system=bm25-classic&group=sample")
        page.click("button:has-text('Find causes of failure')")
        page.wait_for_selector("button:has-text('Find causes')", state="detached")
        assert "Bridge missing:" in page.locator("section#causes").inner_text()


def test_dark_by_preference_and_by_choice(visit, address):
    page = visit(f"{address}/", color_scheme="dark")
    assert background(page) < 60
    page.click("#theme")
    assert background(page) > 200
    page.reload()
    assert background(page) > 200
    assert background(visit(f"{address}/", color_scheme="light")) > 200


@pytest.mark.parametrize(("width", "layout"), [(390, "narrow"), (768, "middle"), (1440, "wide")])
def test_charts_are_drawn_for_the_width_they_have(visit, address, width, layout):
    page = visit(f"{address}/system?system=bm25&group=sample", viewport={"width": width, "height": 900})
    for chart in page.locator("svg.chart:visible").all():
        assert layout in chart.get_attribute("class").split()
        assert chart.bounding_box()["width"] <= width
        sizes = chart.locator("text").evaluate_all("each => each.map((one) => one.getBoundingClientRect().height)")
        assert min(sizes) > 10
    page.locator("details.figures summary").first.click()
    names_of_rows = page.locator("details.figures tbody th").first
    assert names_of_rows.bounding_box()["width"] > 100, "no name with a letter a line"
    marks = page.locator("svg.chart:visible").first.locator("circle").all()
    assert len(marks) == 8
    assert all(0 < mark.bounding_box()["x"] < width for mark in marks)


def test_a_chart_can_be_had_as_a_table_and_as_files(visit, address):
    page = visit(f"{address}/system?system=bm25&group=sample", color_scheme="dark")
    place = page.locator("div.charts").first
    place.locator("summary").click()
    table = place.locator("details.figures tbody tr").all_inner_texts()
    assert len(table) == 8
    files = {}
    for kind in ("SVG", "PNG"):
        with page.expect_download() as file:
            place.locator(f".tools button:text-is('{kind}')").click()
        files[kind] = Path(file.value.path()).read_bytes()
    assert file.value.suggested_filename == "ndcg-10-of-bm25-by-task.png"
    assert files["PNG"].startswith(b"\x89PNG")
    assert len(files["PNG"]) > 5000
    drawing = files["SVG"].decode()
    assert drawing.count("<text") > 16, "letters stay text"
    assert 'fill="rgb(27, 31, 36)"' in drawing, "dark ink, though the page is dark"
    assert "sample/Biology" in drawing
    assert page.evaluate("document.documentElement.dataset.theme") is None


def test_a_screen_reader_reaches_every_row_of_a_chart(visit, address):
    page = visit(f"{address}/system?system=bm25&group=sample")
    chart = page.get_by_role("group", name="nDCG@10 of bm25 by task")
    assert chart.count() == 1, "a layout that is not shown is not read either"
    rows = chart.get_by_role("img", name=re.compile(r": \d+\.\d\d, 95% interval \d+\.\d\d to \d+\.\d\d$"))
    assert rows.count() == 8
    assert chart.get_by_role("img", name=re.compile(r"Biology: ")).count() == 1


@pytest.mark.parametrize("width", [390, 1440])
def test_cards_never_touch(visit, address, filled, width):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        run = next(each.id for each in ledger.entries(system="bm25") if each.task == "sample/Biology")
    page = visit(f"{address}/run/{run}", viewport={"width": width, "height": 900})
    boxes = """all => all.map((one) => { const box = one.getBoundingClientRect();
        return {top: box.top, bottom: box.bottom, left: box.left, right: box.right}; })"""
    for path in (f"/run/{run}", "/?group=sample", "/system?system=bm25&group=sample"):
        page.goto(f"{address}{path}")
        cards = page.locator("main .card:not(.card .card):visible").evaluate_all(boxes)
        assert len(cards) >= 3, path
        for one, other in itertools.combinations(cards, 2):
            beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            gaps = (other["top"] - one["bottom"], one["top"] - other["bottom"])
            sideways = (other["left"] - one["right"], one["left"] - other["right"])
            assert max(sideways if beside else gaps) >= 10, f"{path}: {one} and {other}"


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_ids_and_dates_stay_in_one_line(visit, address, width):
    page = visit(f"{address}/runs", viewport={"width": width, "height": 900})
    lines = """all => all.map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
    })"""
    for cells in ("code.id", "td.when"):
        assert set(page.locator(f"tbody {cells}").evaluate_all(lines)) == {1}
    assert min(page.locator("td.sys").evaluate_all("all => all.map((one) => one.clientWidth)")) >= 150


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_names_and_heads_stay_in_sight(visit, address, width):
    page = visit(f"{address}/?group=full", viewport={"width": width, "height": 844})
    board = page.locator(".scroll.tall")
    before = board.bounding_box()
    board.evaluate("each => each.scrollTo(500, 1000)")
    head, name, rank = (page.locator(each) for each in ("thead th.sys", "tbody td.sys", "tbody td.rank"))
    family = page.locator("thead th.family").first
    for cell in (head, family):
        assert cell.bounding_box()["y"] == pytest.approx(before["y"], abs=2)
    for cell in (head, name.nth(20), rank.nth(20)):
        box = cell.bounding_box()
        assert before["x"] <= box["x"]
        assert box["x"] + box["width"] < before["x"] + before["width"]


BOTH = ["tbody tr:has(a code:text-is('bm25')) .pick input", "tbody tr:has(a code:text-is('bm25-classic')) .pick input"]


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (768, "light"), (1440, "dark")])
def test_two_ticked_systems_raise_a_bar_that_compares_them(visit, address, width, scheme):
    page = visit(f"{address}/?group=sample", viewport={"width": width, "height": 844}, color_scheme=scheme)
    bar = page.locator("form.chosen")
    assert bar.is_hidden()
    page.check(BOTH[0])
    assert bar.is_hidden()
    page.check(BOTH[1])
    box = bar.bounding_box()
    assert box["y"] + box["height"] <= 844
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert bar.locator("output").inner_text() == "bm25 · bm25-classic"
    names = bar.get_by_role("button").all_inner_texts()
    assert names == ["Compare", "Side by side", "Report", "CSV", "LaTeX", "×"]
    with page.expect_download() as report:
        bar.get_by_role("button", name="Report").click()
    assert report.value.suggested_filename == "report.html"
    page.check("tbody tr:nth-child(1) .pick input")
    assert bar.get_by_role("button", name="Compare").is_disabled()
    bar.get_by_role("button", name="Choose none").click()
    page.wait_for_selector("form.chosen", state="hidden")
    for place in BOTH:
        page.check(place)
    bar.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    assert [page.locator(f"select[name={side}]").input_value() for side in "ab"] == ["bm25", "bm25-classic"]
    page.go_back()
    page.wait_for_url("**group=sample**")
    page.wait_for_selector("form.chosen", state="visible")
    with page.expect_download() as file:
        bar.get_by_role("button", name="CSV").click()
    assert len(Path(file.value.path()).read_text().splitlines()) == 3


def test_columns_can_be_left_out_and_the_address_knows(visit, address):
    page = visit(f"{address}/?group=sample")
    heads = page.locator("thead th[data-key]:visible")
    before = heads.count()
    page.click("details.columns summary")
    page.uncheck("details.columns label:has-text('Bioinf') input")
    page.uncheck("details.columns label:has-text('clinical case, mean') input")
    assert heads.count() == before - 2
    assert page.locator("thead th.family").first.get_attribute("colspan") == "3"
    page.click("thead a:has-text('System')")
    page.wait_for_url("**sort=name**")
    assert "hide=" in page.url
    assert heads.count() == before - 2
    columns = page.locator("table.board tbody tr:first-child td:visible").count()
    assert columns == heads.count() + 3
    page.select_option("select[name=kind]", "base")
    page.wait_for_url("**kind=base**")
    assert page.locator("thead th:has-text('Bioinf')").is_hidden()


def test_a_dark_page_prints_dark_on_light(visit, address):
    page = visit(f"{address}/?group=sample", color_scheme="dark")
    page.click("#theme")
    page.click("#theme")
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) > 240
    text = "getComputedStyle(document.querySelector('{}')).{}"
    for selector, what in (("svg.chart.wide text", "fill"), ("p.note", "color"), ("td.rank", "color")):
        assert int(re.search(r"\d+", page.evaluate(text.format(selector, what)))[0]) < 110
    assert int(re.search(r"\d+", page.evaluate(text.format("td.s0", "backgroundColor")))[0]) > 200
    page.set_viewport_size({"width": 703, "height": 1000})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide < 1.35 * 703, "a browser makes all of a page smaller until its widest table is on the paper"


def test_the_keyboard_reaches_the_content(visit, address):
    page = visit(f"{address}/?group=sample")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_url("**#main")


@pytest.fixture(scope="module")
def report_file(filled, tmp_path_factory) -> Path:
    from r2med.leaderboard.report_file import ReportChoice, report

    path = tmp_path_factory.mktemp("report") / "report.html"
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        runs = share(ledger, ["bm25", "bm25-classic", "replay >> bm25"], ["sample/Biology", "sample/MedQA-Diag"])
        path.write_text(report(ledger, ReportChoice(runs, causes=False)))
    return path


SHORT = ".onelist[data-number='{}'] li .start"


def marks_in_lists(page, number: int) -> list[list[tuple[str, str]]]:
    """The words that a list of a report marks, with their kinds, by document."""
    script = (
        "all => all.map((one) => [...one.querySelectorAll('mark')].map((each) => [each.textContent, each.className]))"
    )
    found = page.locator(SHORT.format(number)).evaluate_all(script)
    return [[tuple(pair) for pair in each] for each in found]


def marks_on_server(home: Path, query: str, system: str, page) -> list[list[tuple[str, str]]]:
    """The words that the server marks in the same texts."""
    library = Library(home / "ledger.sqlite")
    entry = next(each for each in library.entries() if (each.system, each.task) == (system, "sample/Biology"))
    kinds = run_kinds(library, [entry], query)
    texts = page.locator(SHORT.format(1 if system != "bm25" else 2)).all_text_contents()
    return [[(part.text, part.kind) for part in parts(text, kinds) if part.kind] for text in texts]


def test_a_report_opens_from_a_file_and_browses(visit, report_file, filled):
    page = visit(report_file.as_uri())
    ranked = names(page)
    page.click("th.forest button")
    ends = page.locator("td.forest").evaluate_all("all => all.map((one) => Number(one.dataset.v))")
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] > 0
    page.click("thead button:has-text('Bio')")
    shown = [float(text) for text in page.locator("table.board tbody td:nth-child(5)").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    page.fill("form[data-filter] input[name=text]", "classic")
    assert names(page) == ["bm25-classic"]
    page.fill("form[data-filter] input[name=text]", "")
    assert sorted(names(page)) == sorted(ranked)
    page.click("td.sys a:has-text('replay')")
    page.wait_for_selector("#queries li.here")
    assert page.locator("#browser select[name=system] option:checked").inner_text() == "replay >> bm25"
    page.select_option("#browser select[name=beside]", "0")
    page.wait_for_selector(".onelist[data-number='2'] li")
    assert page.locator(".relevant-part li.relevant").count() >= 1
    ids = page.locator("#queries .id").all_inner_texts()
    page.keyboard.press("j")
    page.wait_for_selector(f".question-part h3:has-text('{ids[1]}')")
    page.keyboard.press("g")
    page.wait_for_selector("#gold[open]")
    lists = [
        set(page.locator(f".onelist[data-number='{n}'] li").evaluate_all("all => all.map((one) => one.dataset.doc)"))
        for n in (1, 2)
    ]
    page.wait_for_function(f"document.querySelectorAll('svg.slopes path').length === {len(lists[0] & lists[1])}")
    document = page.locator(".onelist details").first
    assert re.search(r"[\w.,;:)] …$", document.locator(".start").inner_text())
    document.locator("summary").click()
    assert document.locator(".start").is_hidden()
    start = document.locator(".start").text_content().removesuffix(" …")
    assert document.inner_text().count(start) == 1
    for number, run in ((1, "replay >> bm25"), (2, "bm25")):
        assert marks_in_lists(page, number) == marks_on_server(filled[0], ids[1], run, page)
    assert {"query", "generated", "answer"} <= {kind for text in marks_in_lists(page, 1) for _, kind in text}
    page.click(".tabs a[data-tab=written]")
    assert page.locator(".written-part summary:has-text('written by')").first.is_visible()
    page.reload()
    page.wait_for_selector("#gold[open]")
    assert page.locator(".question-part h3").inner_text().endswith(ids[1])
    assert page.locator(".written-part").is_visible()
    page.evaluate("scrollTo(0, 0)")  # nothing stands under the menu then
    assert faults(page) == []
    page.fill("#browser input[name=text]", "no such words anywhere")
    page.wait_for_selector("#browse-count:has-text('0 of')")
    page.emulate_media(media="print")
    charts = page.locator("#tasks svg.chart.wide").evaluate_all("all => all.map((one) => one.checkVisibility())")
    assert charts == [True, True], "paper has no lines to open"


def test_a_report_with_markup_in_its_data_is_harmless(visit, filled, tmp_path):
    from r2med.leaderboard.report_file import ReportChoice, report

    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        runs = share(ledger, ["bm25", "bm25-classic"], [filled[1]])
        (tmp_path / "r.html").write_text(report(ledger, ReportChoice(runs, causes=False)))
    page = visit((tmp_path / "r.html").as_uri())
    page.locator("#browse").scroll_into_view_if_needed()
    page.wait_for_selector("#queries li.here")
    for row in page.locator("#queries a").all():
        row.click()
        page.wait_for_selector(".question-part")
        assert page.locator("#browse img, #browse script").count() == 0
    assert "taken" not in page.title()


def test_files_with_long_words_need_no_sideways_scrolling(visit, filled, tmp_path):
    from click.testing import CliRunner

    from r2med.cli.main import app

    folder = str(long_task(tmp_path / "long"))
    task = r2med.evaluate("bm25", folder).results[0].task
    inspected, reported = tmp_path / "inspect.html", tmp_path / "report.html"
    for arguments in (
        ["inspect", "bm25", "--tasks", folder, "--html", str(inspected)],
        ["report", "bm25", "--tasks", folder, "--no-causes", "--out", str(reported)],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    for path in (inspected, reported):
        page = visit(path.as_uri(), viewport=PHONE)
        assert page.locator("main").count() == 1
        page.evaluate("document.querySelector('#browse, article').scrollIntoView()")
        page.wait_for_selector("#bench .question, article")
        for _ in range(2):
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        ledger.remove([entry for entry in ledger.entries() if entry.task == task])


def test_a_site_sorts_filters_and_compares_from_files(visit, tmp_path):
    from click.testing import CliRunner

    from r2med.cli.main import app

    assert CliRunner().invoke(app, ["site", "bm25", "replay >> bm25", "--out", str(tmp_path)]).exit_code == 0
    page = visit((tmp_path / "index.html").as_uri())
    everything = len(names(page))
    assert everything > 100
    page.select_option("form[data-filter] select[name=kind]", "reranker")
    assert 0 < len(names(page)) < everything
    assert page.evaluate("location.hash") == "#kind=reranker"
    page.reload()
    rerankers = names(page)
    assert 0 < len(rerankers) < everything
    for place in (0, 1):
        page.locator("tbody tr:visible .pick input").nth(place).check()
    with page.expect_download() as file:
        page.click("form.chosen button:has-text('CSV')")
    header, *lines = Path(file.value.path()).read_text().splitlines()
    assert header.startswith("#,System,Average,ranks,P above next,contamination,Biology,")
    assert [line.split(",")[1] for line in lines] == rerankers[:2]
    with page.expect_download() as file:
        page.click("form.chosen button:has-text('LaTeX')")
    assert Path(file.value.path()).read_text().count("\\\\") == 3
    pair = page.locator("form.chosen a[data-compare]").get_attribute("href")
    assert pair.removeprefix(f"{tmp_path.as_uri()}/") == "compare.html#" + urlencode(
        {"a": rerankers[0], "b": rerankers[1]}
    )
    page.click("form.chosen button:has-text('Only these')")
    assert names(page) == rerankers[:2]
    page.click("form.chosen button[type=reset]")
    page.wait_for_selector("form.chosen", state="hidden")
    assert names(page) == rerankers
    page.click("thead button:has-text('System')")
    assert names(page) == sorted(names(page), key=str.lower)
    page.locator("td.sys a code:visible").first.click()
    page.wait_for_url("**/published/**")
    page.locator("a.tag.pub").first.click()
    page.wait_for_url("**/sources.html#**")
    page.click("nav.menu a:has-text('sample')")
    page.wait_for_url("**/sample.html")
    page.click("td.sys a:has-text('replay')")
    page.wait_for_url("**/systems/**")
    assert page.locator("h1").inner_text() == "replay >> bm25"
    page.click("a:has-text('Compare with another system')")
    page.wait_for_url("**/compare-sample.html#a=replay**")
    page.select_option("#pair select[name=b]", "bm25")
    (made,) = r2med.compare("replay >> bm25", "bm25", tasks="sample")
    assert page.title() == "bm25 against replay >> bm25, nDCG@10 · r2med"
    verdict = page.locator("#verdict").inner_text()
    assert made.verdict in verdict
    assert f"−{-100 * made.overall.mean:.2f} nDCG@10" in verdict
    assert f"B won {made.overall.wins}, A won {made.overall.losses}" in verdict
    cells = page.locator("#tasks tbody tr").first.locator("td.n").all_inner_texts()
    first = made.tasks["sample/Biology"]
    assert cells[2] == f"−{-100 * first.mean:.2f}"
    assert cells[3] == f"−{-100 * first.low:.2f} to −{-100 * first.high:.2f}"
    assert cells[5:] == [str(first.wins), str(first.losses)]
    page.click("#pair [data-swap]")
    assert f"+{-100 * made.overall.mean:.2f} nDCG@10" in page.locator("#verdict").inner_text()
    address = page.url
    shown = page.locator("#outcome").inner_text()
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("#outcome").inner_text() == shown, "the address is the state"
    page.click("#verdict a:has-text('Every query in both')")
    page.wait_for_selector(".onelist[data-number='2'] li")
    chosen = [
        page.locator(f"#browser select[name={name}] option:checked").inner_text() for name in ("system", "beside")
    ]
    assert chosen == ["bm25", "replay >> bm25"]
    page.goto((tmp_path / "compare.html").as_uri() + "#a=base/bgee&b=base/bm25&order=gained")
    assert "the nearest, “base/bge”" in page.locator("[data-problem]").inner_text()
    assert "nobody can test" in page.locator("#verdict").inner_text()
    gains = page.locator("#tasks tbody tr td:nth-child(4)").all_inner_texts()[:-1]
    values = [float(text.replace("−", "-")) for text in gains]
    assert values == sorted(values, reverse=True)
    page.click("[data-board]:has-text('sample')")
    page.wait_for_url("**/compare-sample.html#**")
    assert "No system “base/bge” is on this board" in page.locator("[data-problem]").inner_text()
