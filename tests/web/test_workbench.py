"""The query workbench, and a comparison that leads to it, in a real browser: at three widths, light and dark."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner
from webparts import entered, faults, long_task, served

import r2med
from r2med.cli.main import app
from r2med.comparison.study import p_after_holm
from r2med.diagnosis.attribution import load_cached_diagnosis
from r2med.diagnosis.causes import moves
from r2med.expand.agents import SearchR1
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.measure.significance import difference
from r2med.runs.ledger import Ledger
from r2med.runs.selection import current_runs
from r2med.web.library import Library

playwright = pytest.importorskip("playwright.sync_api")
TASK = "sample/MedQA-Diag"
BOTH = {"task": TASK, "a": "bm25", "b": "replay >> bm25"}
LOOKS = [(390, "light", "dark"), (768, "dark", "light"), (1440, "light", "dark")]
"""Widths, each with the theme in which everything is clicked, and the one in which it is looked at again."""


@pytest.fixture(autouse=True)
def _rich(rich, _home, monkeypatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(rich))


@pytest.fixture
def known(rich):
    """What the ledger and the data say of A and B, to hold the page against."""
    with Ledger(rich / "ledger.sqlite") as ledger:
        runs = current_runs(ledger.entries())
        entries = [runs[system][TASK] for system in (BOTH["a"], BOTH["b"])]
        yield {
            "data": r2med.load(TASK),
            "runs": [ledger.run(entry) for entry in entries],
            "causes": [load_cached_diagnosis(entry, ledger).by_query for entry in entries],
            "scores": [
                {
                    m: dict(zip(entry.queries, values.tolist(), strict=True))
                    for m, values in ledger.scores(entry).items()
                }
                for entry in entries
            ],
        }


def at(**changes: str) -> str:
    return "/query?" + urlencode({**BOTH, **changes})


def asked(page) -> dict[str, str]:
    """What the address of the page says."""
    return {name: values[-1] for name, values in parse_qs(page.evaluate("location.search.slice(1)")).items()}


def listed(page) -> list[str]:
    return page.locator(".querylist .id").all_inner_texts()


def go(page, act) -> None:
    """Do something that leads to another page, and wait until it is there."""
    with page.expect_navigation():
        act()


def press(page, key: str) -> None:
    go(page, lambda: page.keyboard.press(key))


CHOICES = {
    "sort": "gained", "won": "b", "from": "bridge missing", "to": "found", "measure": "MRR@10", "b": "bm25-classic",
    "also": "oracle-answer >> bm25", "a": "replay >> bm25", "task": "sample/Biology",
}  # fmt: skip


ON_TOP = """one => {
    one.scrollIntoView({block: 'center'});
    const {x, y, width, height} = one.getBoundingClientRect();
    return document.elementFromPoint(x + width / 2, y + height / 2) === one;
}"""
"""Whether a pointer would meet just this."""


def reach_choice(page, name: str, width: int) -> Any:
    """A list of choices as one gets to it at a width; a phone has some behind tabs. It must be ready to be used."""
    page.set_viewport_size({"width": width, "height": 860})
    tab = page.locator(f".tabs a[data-tab='{'1' if name == 'also' else 'queries'}']")
    if name not in ("a", "b", "measure") and tab.is_visible():
        tab.click()
    found = page.locator(f"select[name={name}]")
    assert found.is_enabled(), name
    assert found.evaluate(ON_TOP), f"{name} cannot be clicked at {width}"
    return found


def test_every_choice_is_reached_at_every_width_and_used(visit, rich_address):
    page = visit(rich_address + at(query="mqd-q02"))
    widths = [width for width, *_ in LOOKS]
    for place, (name, value) in enumerate(CHOICES.items()):
        # Each is used at one of the widths, all widths in turn.
        for width in sorted(widths, key=lambda width: width == widths[place % 3]):
            found = reach_choice(page, name, width)
        go(page, lambda found=found, value=value: found.select_option(value))
        assert asked(page)[name] == value
        assert page.locator(".problem").count() == 0
    names = page.locator("main select").evaluate_all("all => all.map((one) => one.name)")
    assert set(names) <= set(CHOICES), "a choice that nobody tried"


@pytest.mark.parametrize(("width", "scheme", "other"), LOOKS)
def test_every_part_is_reached_at_every_width(visit, rich_address, width, scheme, other):
    page = visit(rich_address + at(query="mqd-q02"), viewport={"width": width, "height": 860}, color_scheme=scheme)
    parts = {
        "queries": ".querylist", "question": ".question", "relevant": "#relevant", "written": "#written",
        "answers": "#answers", "1": ".onelist[data-number='1']", "2": ".onelist[data-number='2']",
    }  # fmt: skip
    beside = {"queries", "question", "1", "2"} if width > 704 else set()
    middle = "relevant"
    for name in parts:
        if page.locator(f".tabs a[data-tab='{name}']").is_visible():
            page.click(f".tabs a[data-tab='{name}']")
            assert asked(page)["tab"] == name
        else:
            assert name in beside
        shown = {each for each, where in parts.items() if page.locator(where).is_visible()}
        middle = name if name in ("relevant", "written", "answers") else middle
        assert shown == (beside | {middle} if beside else {name}), (name, shown)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.reload()
    assert page.locator(".bench").get_attribute("data-tab") == asked(page).get("tab", "")
    page.emulate_media(color_scheme=other)
    if width > 390:  # every page is looked at on a phone elsewhere
        page.goto(rich_address + at(depth="100", tab="answers"))
        assert faults(page) == []
    page.emulate_media(media="print")
    for name in ("question", "relevant", "written", "answers", "1", "2"):
        assert page.locator(parts[name]).is_visible(), name
    assert page.locator(".querylist").is_hidden()


def test_relevant_documents_have_their_text_and_their_places_found_or_not(visit, rich_address, known):
    qrels, first = known["data"].gold.qrels, known["runs"][0]
    query = next(q for q, judged in qrels.items() if any(name not in first[q].documents[:10] for name in judged))
    page = visit(rich_address + at(query=query))
    relevant = [name for name, grade in qrels[query].items() if grade > 0]
    cards = {card.get_attribute("data-doc"): card for card in page.locator("#relevant li").all()}
    assert set(cards) == set(relevant)
    for name, card in cards.items():
        places = [
            run[query].documents.index(name) + 1 if name in run[query].documents else None for run in known["runs"]
        ]
        for letter, place in zip("AB", places, strict=True):
            assert f"{letter} {place or 'not found'}" in card.inner_text()
    missed = next(name for name in relevant if name not in first[query].documents[:10])
    cards[missed].locator("summary").click()
    page.wait_for_selector("#relevant details[open] .whole:not(:has(a))")
    assert (
        cards[missed].locator(".whole").inner_text().strip() == known["data"].collection.documents.text(missed).strip()
    )
    assert known["causes"][0][query].summary in page.locator("table.sides").inner_text()
    lists = [set(run[query].documents[:10]) for run in known["runs"]]
    joined = page.locator("svg.slopes path").evaluate_all("all => all.map((one) => one.dataset.doc)")
    assert set(joined) == lists[0] & lists[1]
    ends = """() => [...document.querySelectorAll('svg.slopes path')].map((path) => {
        const frame = document.querySelector('.benchlists').getBoundingClientRect();
        const row = document.querySelectorAll('.onelist')[1].querySelector(`li[data-doc="${path.dataset.doc}"]`);
        const head = row.querySelector('.head').getBoundingClientRect();
        const end = path.getPointAtLength(path.getTotalLength());
        return Math.abs(end.y + frame.top - (head.top + head.height / 2));
    })"""
    assert max(page.evaluate(ends)) < 2, "lines end at their documents"
    page.locator(".onelist summary").first.click()  # a text that is opened moves the rows below it, and the lines
    page.wait_for_selector(".onelist details[open] .whole:not(:has(a))")
    page.wait_for_function(f"Math.max(...({ends})()) < 2")
    page.hover(f".onelist li[data-doc='{joined[0]}'] .head")
    assert page.locator(f".lit[data-doc='{joined[0]}']").count() >= 3, "both rows and the line"
    go(page, lambda: page.click("a:has-text('To 100')"))
    assert page.locator(".onelist[data-number='1'] li").count() == min(100, len(first[query].documents))
    page.locator(".onelist li.brief summary").first.click()
    page.wait_for_selector("li.brief details[open] .whole:not(:has(a))")


def test_queries_are_filtered_ordered_and_gone_through_by_keys(visit, rich_address, known):
    page = visit(rich_address + at())
    values = [scores["nDCG@10"] for scores in known["scores"]]
    given = listed(page)
    assert given == list(values[0])
    go(page, lambda: page.select_option("select[name=sort]", "gained"))
    gains = sorted(values[0], key=lambda query: values[0][query] - values[1][query])
    assert listed(page) == gains
    go(page, lambda: page.click(f".querylist a:has-text('{gains[0]}')"))
    press(page, "j")
    press(page, "j")
    assert asked(page)["query"] == gains[2]
    page.keyboard.press("g")
    assert page.locator("#gold").get_attribute("open") is not None
    page.keyboard.press("2")
    assert page.locator(".onelist[data-number='2']").is_hidden()
    assert page.locator("button[data-list='2']").get_attribute("aria-pressed") == "false"
    press(page, "k")
    assert (asked(page)["query"], asked(page)["gold"], asked(page)["hide"]) == (gains[1], "1", "2")
    assert page.locator("#gold .text").is_visible()
    assert page.locator(".onelist[data-number='2']").is_hidden()
    page.click("button[data-list='2']")
    assert page.locator(".onelist[data-number='2']").is_visible()
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.uncheck("#keys-on")
    page.click("#keys button")
    page.keyboard.press("1")
    assert page.locator(".onelist[data-number='1']").is_visible(), "keys that are off do nothing"
    page.click("#help")
    page.check("#keys-on")
    page.keyboard.press("Escape")
    assert page.locator("#keys").is_hidden()
    page.keyboard.press("/")
    page.keyboard.type("woman")
    press(page, "Enter")
    texts = dict(known["data"].collection.queries)
    assert listed(page) == [query for query in gains if "woman" in texts[query]]
    go(page, lambda: page.click("a:has-text('show all')"))
    go(page, lambda: page.select_option("select[name=won]", "b"))
    assert listed(page) == [query for query in gains if values[1][query] > values[0][query]]
    go(page, lambda: page.select_option("select[name=from]", "bridge missing"))
    go(page, lambda: page.select_option("select[name=to]", "found"))
    steps = {q: {(a.value, b.value) for a, b in known["causes"][0][q].moves(known["causes"][1][q])} for q in gains}
    assert set(listed(page)) == {
        q for q in gains if ("bridge missing", "found") in steps[q] and values[1][q] > values[0][q]
    }


def test_systems_measure_and_task_are_chosen_and_the_address_knows(visit, rich_address, known):
    page = visit(rich_address + at(query="mqd-q04"))
    assert page.title() == f"mqd-q04 of {TASK}: bm25 against replay >> bm25 · r2med"
    measure = next(name for name in known["scores"][0] if name != "nDCG@10")
    go(page, lambda: page.select_option("select[name=measure]", measure))
    shown = [float(text) for text in page.locator("table.sides td.n").all_inner_texts()]
    assert shown == pytest.approx([100 * scores[measure]["mqd-q04"] for scores in known["scores"]], abs=0.006)
    go(page, lambda: page.select_option("#also", "bm25-classic"))
    assert page.locator(".onelist h2 code").all_inner_texts() == ["bm25", "replay >> bm25", "bm25-classic"]
    go(page, lambda: page.click("a[aria-label='Drop list B']"))
    go(page, lambda: page.select_option("select[name=a]", "oracle-answer >> bm25"))
    assert page.locator("table.sides tr:first-child .tag:text-is('oracle')").count() == 1
    assert asked(page) == {
        "group": "sample", "task": TASK, "query": "mqd-q04", "a": "oracle-answer >> bm25", "b": "bm25-classic",
        "measure": measure,
    }  # fmt: skip
    go(page, lambda: page.select_option(".queries select[name=task]", ""))
    assert {text.split(" · ")[0] for text in listed(page)} == {"Bio", "MedQA"}
    assert page.locator(".pages .here").count() == 0
    page.click(".standings-part summary")
    go(page, lambda: page.locator(".standings-part li a").first.click())
    assert page.locator(".onelist").count() == 2
    go(page, lambda: page.click("a:has-text('Compare A and B')"))
    assert urlsplit(page.url).path == "/compare"


def test_a_conversation_is_shown_turn_by_turn(rich, tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    said = "I wonder. <search>swollen gums</search>", "<answer>Scurvy <b></answer>"
    add_model(scripted(lambda request: said[request.messages[-1].role == "assistant"], "asks"))
    r2med.evaluate(SearchR1("asks", turns=3) >> r2med.BM25(), "sample/Biology")
    page = entered(Library()).get("/query?task=sample/Biology&tab=written").text
    bare = re.sub(r"</?mark[^>]*>", "", page)
    for kind, text in (("thought", "I wonder."), ("search", "swollen gums"), ("answer", "Scurvy &lt;b&gt;")):
        assert re.search(rf'<li class="{kind}"><b>\w+</b><div class="text" dir="auto">{re.escape(text)}', bare)


@pytest.mark.parametrize(
    ("wrong", "message", "right"),
    [
        ({"query": "mqd-q9x"}, "No query of sample/MedQA-Diag 'mqd-q9x'", {"query": "mqd-q09"}),
        ({"task": "sample/MedQADiag"}, "No task with runs or answers 'sample/MedQADiag'", {"task": TASK}),
        ({"b": "replay>bm25"}, "No system 'replay>bm25'", {"b": "replay >> bm25"}),
        ({"measure": "nDCG10"}, "No measure of these runs 'nDCG10'", {}),
        ({"from": "rank low"}, "No cause 'rank low'", {"from": "ranked low", "b": "replay >> bm25"}),
        ({"sort": "lowes"}, "No order 'lowes'", {"sort": "lowest", "b": "replay >> bm25"}),
        ({"group": "sampel"}, "No group 'sampel'", {"group": "sample"}),
        ({"at": "x"}, "No place 'x' of the scatter", None),
    ],
)
def test_an_error_keeps_the_form_and_offers_the_nearest(wrong, message, right):
    client = entered(Library())
    answer = client.get("/query", params={**BOTH, **wrong})
    assert answer.status_code == 404
    told = html.unescape(re.search(r'<p class="card problem" role="alert">(.*?)</p>', answer.text, re.DOTALL)[1])
    assert message in told
    assert '<select name="a">' in answer.text
    assert 'class="querylist"' in answer.text
    if right is not None:
        link = re.search(r'<a href="([^"]+)">Show', told)[1]
        assert client.get(link).status_code == 200
        found = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
        assert right.items() <= found.items()


def test_without_scripts_links_lead_everywhere(visit, rich_address):
    page = visit(rich_address + at(), java_script_enabled=False, viewport={"width": 390, "height": 844})
    go(page, lambda: page.click(".tabs a[data-tab='2']"))
    assert page.locator(".onelist[data-number='2'] li").first.is_visible()
    go(page, lambda: page.click("a[rel=next]"))
    go(page, lambda: page.click(".tabs a[data-tab='queries']"))
    page.fill(".queries input[name=q]", "woman")
    go(page, lambda: page.locator(".queries form[role=search] button").click())
    assert page.locator(".querylist li:not(.none)").count() >= 1
    assert page.locator("button:visible:has-text('Keys')").count() == 0


def test_a_long_document_is_sent_when_it_is_opened_and_stays_in_its_place(visit, tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    task = r2med.evaluate("bm25", long_task(tmp_path / "long")).results[0].task
    with served(tmp_path / "home" / "ledger.sqlite") as own:
        page = visit(
            f"{own}/query?{urlencode({'task': task, 'tab': 'relevant'})}", viewport={"width": 390, "height": 844}
        )
        assert len(page.content()) < 40_000
        document = page.locator("#relevant details", has_text="ACGT")
        assert document.locator(".start").inner_text().endswith("...")
        document.locator("summary").click()
        page.wait_for_selector("details[open] .whole:not(:has(a))")
        assert len(document.locator(".whole").inner_text()) > 100_000
        assert document.locator(".start").is_hidden()
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_files_of_the_page_are_small(rich):
    client = entered(Library())
    page = client.get(at())
    files = ["style.css", "app.js", "workbench.css", "workbench.js", "slopes.js", "icon.svg"]
    assert all(f"/static/{name}" in page.text for name in files)
    sent = len(page.content) + sum(len(client.get(f"/static/{name}").content) for name in files)
    assert sent < 300_000, "unpacked, before the server packs them"
    assert Path(rich).exists()


COMPARED = "/compare?" + urlencode({"group": "sample", "a": "bm25", "b": "replay >> bm25"})


def test_every_figure_of_why_leads_to_its_queries(rich):
    client = entered(Library())
    page = client.get(COMPARED).text
    with Ledger(rich / "ledger.sqlite") as ledger:
        runs = current_runs(ledger.entries())
        tasks = ("sample/Biology", TASK)
        causes = [[load_cached_diagnosis(runs[name][task], ledger) for task in tasks] for name in ("bm25", BOTH["b"])]
        scores = {
            (task, query): [ledger.scores(runs[name][task])["nDCG@10"][place] for name in ("bm25", BOTH["b"])]
            for task in runs["bm25"]
            if task in runs[BOTH["b"]] and task.startswith("sample/")
            for place, query in enumerate(runs["bm25"][task].queries)
        }
    counts = moves(*causes, of="documents")
    cells = re.findall(r'<a href="([^"]+)" aria-label="(\d+) documents: ([a-z ]+) in A, ([a-z ]+) in B">', page)
    assert {(a, b): int(count) for _, count, a, b in cells} == {(a.value, b.value): n for (a, b), n in counts.items()}
    for link, _, before, after in cells:
        queries = [
            (one.task, query.query)
            for one, other in zip(*causes, strict=True)
            for query in one.queries
            if (before, after) in {(a.value, b.value) for a, b in query.moves(other.by_query[query.query])}
        ]
        found = client.get(html.unescape(link)).text
        assert f"{len(queries)} of {len(scores)} queries" in found
        here = re.search(r"<h1>(.*?) · (.*?)</h1>", found)
        assert (here[1], here[2]) == queries[0], "the first of them is shown"
    dots = [
        (html.unescape(link), said) for link, said in re.findall(r'<a href="([^"]+)" aria-label="([^"]+)" tab', page)
    ]
    several = [(link, int(said.split()[0])) for link, said in dots if re.match(r"\d+ queries", said)]
    assert len(dots) - len(several) + sum(count for _, count in several) == len(scores)
    for link, count in several[:3]:
        assert f'<p class="note">{count} of {len(scores)} queries, at one place' in client.get(link).text
    link, said = next(dot for dot in dots if dot not in several and "queries" not in dot[1])
    name, a, b = re.fullmatch(r"(.*): A ([\d.]+), B ([\d.]+)", said).groups()
    assert [float(a), float(b)] == pytest.approx([100 * each for each in scores[tuple(name.split(" · "))]], abs=0.006)
    assert f"<h1>{name}</h1>" in client.get(link).text
    unknown = client.get("/compare?" + urlencode({"group": "sample", "a": "bm25", "b": "bm25-classic"})).text
    assert "The causes of failure of" in unknown
    assert 'class="transitions"' not in unknown


def test_p_values_are_corrected_and_a_floor_is_a_bound():
    few, many = (difference([np.full(count, 0.1)]) for count in (9, 40))
    assert p_after_holm(few, 8 * few.randomisation) == "0.0312"
    assert p_after_holm(many, 8 * many.randomisation) == "< 0.0001"
    assert p_after_holm(many, many.randomisation) == "< 0.0001"
    page = entered(Library()).get(COMPARED).text
    shown = re.findall(r'<td>(sample/[\w-]+)</td>(?:<td class="n">[^<]*</td>){3}<td class="n">([\d.]+)</td>', page)
    said = json.loads(
        CliRunner().invoke(app, ["compare", "bm25", "replay >> bm25", "--tasks", "sample", "--json"]).stdout
    )
    tasks = said[0]["tasks"]
    assert dict(shown) == {task: f"{found['holm']:.4f}" for task, found in tasks.items()}


def test_the_command_that_is_cited_says_the_same():
    client = entered(Library())

    def cited(page: str) -> list[str]:
        text = client.get(page).text
        assert "data-copy-link" in text
        return shlex.split(html.unescape(re.search(r"<pre[^>]*data-copy>(r2med .*?)</pre>", text)[1]))[1:]

    case = json.loads(CliRunner().invoke(app, [*cited(at(query="mqd-q03")), "--json"]).stdout)[0]
    assert (case["query"], case["side"]["system"], case["other"]["system"]) == ("mqd-q03", "bm25", "replay >> bm25")
    said = json.loads(CliRunner().invoke(app, [*cited(COMPARED + "&measure=MRR@10"), "--json"]).stdout)[0]
    shown = f"{100 * said['overall']['mean']:+.2f}"
    assert f">{shown}</strong> MRR@10" in client.get(COMPARED + "&measure=MRR@10").text


@pytest.mark.parametrize(
    ("wrong", "message", "right"),
    [
        ({"b": "replay > bm25"}, "No system 'replay > bm25'", {"b": "replay >> bm25"}),
        ({"group": "sampel"}, "No group 'sampel'", {"group": "sample"}),
        ({"measure": "nDCG10"}, "No measure of both systems 'nDCG10'", {}),
        ({"task": "sample/Biologie"}, "No task 'sample/Biologie'", {"task": "sample/Biology"}),
        ({"b": "bm25"}, "Choose two different systems", None),
    ],
)
def test_a_wrong_comparison_keeps_its_form(wrong, message, right):
    client = entered(Library())
    answer = client.get("/compare", params={"group": "sample", "a": "bm25", "b": "replay >> bm25", **wrong})
    assert answer.status_code == 404
    told = html.unescape(re.search(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)[1])
    assert message in told
    assert '<select name="b">' in answer.text
    if right is not None:
        link = re.search(r'<a href="([^"]+)">Show', told)[1]
        assert client.get(link).status_code == 200
        assert right.items() <= {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}.items()


@pytest.mark.parametrize(("width", "scheme", "other"), LOOKS)
def test_a_comparison_asks_why_and_leads_to_the_workbench(visit, rich_address, width, scheme, other):
    page = visit(rich_address + COMPARED, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() == "replay >> bm25 against bm25, nDCG@10 · r2med"
    page.select_option("select[name=measure]", "MRR@10")
    go(page, lambda: page.click("button.primary"))
    assert "MRR@10 × 100" in page.locator("#verdict").inner_text()
    go(page, lambda: page.select_option("#why select[name=task]", TASK))
    assert (asked(page)["task"], asked(page)["measure"]) == (TASK, "MRR@10")
    go(page, lambda: page.select_option("#queries select[name=sort]", "moved"))
    assert (asked(page)["task"], asked(page)["sort"]) == (TASK, "moved")
    cell = page.locator("table.transitions a[aria-label*='bridge missing in A, found in B']")
    count, place = cell.inner_text(), page.url.partition("#")[0]
    go(page, lambda: cell.click())
    assert (asked(page)["from"], asked(page)["to"], asked(page)["measure"]) == ("bridge missing", "found", "MRR@10")
    assert int(count) >= page.locator(".querylist li").count() >= 1
    page.goto(place)
    page.emulate_media(color_scheme=other)
    assert width != 1440 or faults(page) == []
    go(page, lambda: page.locator("svg.square a").last.dispatch_event("click"))
    assert urlsplit(page.url).path == "/query"
