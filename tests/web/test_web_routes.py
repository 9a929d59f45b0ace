"""The server's pages as an HTTP client meets them."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import escape

import pytest
from click.testing import CliRunner
from webparts import ATTACK, entered, finish, hostile_task

import r2med
from ledgers import add_everywhere, add_run
from r2med.cli.main import app
from r2med.leaderboard.board import board
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger
from r2med.web.library import Library


@pytest.fixture(scope="module")
def client(filled):
    with entered(Library(filled[0] / "ledger.sqlite")) as made:
        yield made


def rows(page: str) -> list[str]:
    """The systems of a board, from top to bottom."""
    return re.findall(r'<td class="sys">.*?<code[^>]*>(.*?)</code>', page, re.DOTALL)


def entry_on(filled, task: str, system: str = "bm25"):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        return next(entry for entry in ledger.entries(system=system) if entry.task == task)


def test_a_page_shows_one_moment_of_the_ledger_though_it_changes_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    library, view = Library(), View(group="sample", tasks=("sample/Biology",))
    with library.snapshot():
        lines = library.board(view).lines
        with Ledger() as other:
            other.remove(other.entries(system="bm25"))
        assert {line.name for line in lines} == set(library.intervals(lines, "nDCG@10"))
        assert library.systems("sample") == ["bm25", "bm25-classic"]
    with library.snapshot():
        assert [line.name for line in library.board(view).lines] == ["bm25-classic"]
        assert library.systems("sample") == ["bm25-classic"]


PAGES = ["/", "/?group=full", "/?group=nano", "/compare", "/correct", "/runs", "/search", "/progress",
         "/system?system=bm25&group=sample", "/compare?group=sample&a=bm25&b=bm25-classic"]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_there_and_holds_no_script_of_its_own(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    assert not re.search(r"<script(?! src=)|\son\w+=|style=\"", answer.text)


def test_the_board_tells_first_stages_token_limits_and_sources_far_apart(client):
    page = client.get("/?group=full&retriever=diver").text
    assert "≠ 10.7 points apart" in re.search(r"<code>DIVER-Retriever-4B</code>.*?</td>", page, re.DOTALL)[0]
    assert "over diver" in page
    assert ">512 tokens</span>" in page


@pytest.mark.parametrize("address", [*PAGES, "/static/app.js", "/nothing"])
def test_every_answer_has_the_policy(client, address):
    headers = client.get(address).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_looking_changes_nothing(client, filled):
    def state() -> set[tuple[str, int]]:
        files = [path for path in filled[0].rglob("*") if path.is_file() and "sqlite" not in path.name]
        return {(str(path), path.stat().st_mtime_ns) for path in files}

    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        runs = len(ledger.entries())
        before = state()
        for address in [*PAGES, "/search/results?q=gums&task=sample/IIYi-Clinical&system=wordllama&system=bm25"]:
            client.get(address)
        assert state() == before
        assert len(ledger.entries()) == runs
    for address in PAGES:
        assert client.post(address.partition("?")[0], headers={"origin": "http://127.0.0.1:8421"}).status_code == 405
    assert client.get("/search/index").status_code == 405
    assert client.get("/system/causes").status_code == 405


HERE = {"origin": "http://127.0.0.1:8421"}


def test_a_form_of_any_length_is_cut_off_even_without_a_length(client):
    def endless():
        for _ in range(40):
            yield b"system=" + 10_000 * b"x"

    assert client.post("/system/causes", content=endless(), headers=HERE).status_code == 413


def test_both_scores_of_a_query_are_read_out(client):
    page = client.get("/query?group=sample").text
    assert re.search(r'<svg class="ab"[^>]* aria-label="A [0-9.]+, B ([0-9.]+|not known)">', page)


def test_an_error_leads_back_to_where_one_was(client):
    came = {"referer": "http://127.0.0.1:8421/compare?group=sample"}
    assert '<a href="/compare?group=sample">Back' in client.get("/run/0", headers=came).text
    assert "evil" not in client.get("/run/0", headers={"referer": "http://evil.example/x"}).text
    assert "evil" not in client.get("/run/0", headers={"referer": "http://127.0.0.1:8421//evil.example"}).text


def test_an_index_is_built_by_a_post_from_here(client):
    form = {"task": "sample/Biology", "system": "bm25(k1=1.7)"}
    answer = client.post(
        "/search/index", data=form, headers={"origin": "http://127.0.0.1:8421"}, follow_redirects=False
    )
    assert answer.status_code == 303
    assert "Index of bm25(k1=1.7) for sample/Biology" in client.get("/progress").text
    refused = client.post(
        "/search/index", data={**form, "system": "replay >> bm25"}, headers={"origin": "http://127.0.0.1:8421"}
    )
    assert refused.status_code == 400


def test_causes_are_found_by_a_post_from_here_and_shown_from_then_on(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    (result,) = r2med.evaluate("bm25-classic", "sample/Biology").results
    library = Library()
    client = entered(library)
    here, page = {"origin": "http://127.0.0.1:8421"}, "/system?system=bm25-classic&group=sample"
    before = client.get(page).text
    assert "Find causes of failure" in before
    assert "bridge missing" not in before
    form = {"system": "bm25-classic", "group": "sample"}
    answer = client.post("/system/causes", data=form, headers=here, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == page + "#causes"
    finish(library.jobs)
    assert "See the outcome" in client.get("/progress").text
    after = client.get(page).text
    assert "Find causes of failure" not in after
    assert "bridge missing" in after
    assert 'id="causes"' in client.get("/?group=sample&task=sample/Biology").text
    run = client.get(f"/run/{result.id}?cause=ranked+low").text
    told = re.findall(r"</td><td>([^<]+)</td>", run)
    assert told
    assert all("ranked low" in words for words in told)
    assert any(re.fullmatch(r"\d of \d found · \d ranked low.*", words) for words in told)


def test_a_job_is_made_once_and_its_failure_is_told(tmp_path, monkeypatch):
    from webparts import hostile_task

    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    folder = hostile_task(tmp_path / "mine")
    r2med.evaluate("bm25", folder)
    library = Library()
    client = entered(library)
    (folder / "corpus.jsonl").write_text('{"id": "d1", "text": "other"}\n{"id": "d3", "text": "words"}\n')
    form, page = {"system": "bm25", "group": "custom"}, "/system?system=bm25&group=custom"
    go = tmp_path / "go"
    (tmp_path / "held_job.py").write_text(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    library.jobs.submit(("hold",), "Something slow", "/", ("held_job",))
    for _ in range(2):
        client.post("/system/causes", data=form, headers=HERE, follow_redirects=False)
    assert [job.key[0] for job in library.jobs.all()] == ["hold", "causes"]
    assert "disabled>Find causes of failure" in client.get(page).text
    assert "waiting for the job before it" in client.get("/progress").text
    go.touch()
    finish(library.jobs)
    for address in (page, "/progress"):
        assert "has changed since" in client.get(address).text
    assert "disabled>Find" not in client.get(page).text


@pytest.mark.parametrize("form", [{}, {"system": "nothing", "group": "sample"}, {"system": "bm25", "group": "full"}])
def test_causes_of_what_was_never_run_are_refused(client, form):
    answer = client.post("/system/causes", data=form, headers={"origin": "http://127.0.0.1:8421"})
    assert answer.status_code == 400
    assert "No run of" in answer.text


def test_own_folders_and_single_tasks_have_boards(client, filled):
    page = client.get("/?group=custom").text
    assert rows(page) == ["bm25", "bm25-classic"]
    assert f'ranked by <span title="{filled[1]}">hostile</span>' in page
    alone = client.get("/?group=sample&task=sample/IIYi-Clinical").text
    assert "ranked by sample/IIYi-Clinical" in alone
    assert len(rows(alone)) >= 4
    assert "ranked by sample/Biology" in client.get("/?group=sample&task=Biology").text
    assert "ranked by MedQA-Diag" in client.get("/?group=full&task=sample/MedQA-Diag&sort=sample/MedQA-Diag").text
    dropped = client.get("/?group=sample&task=nonsense").text
    assert "This board has no task nonsense; all tasks are shown." in dropped
    assert "the average over 8 tasks" in dropped
    assert client.get("/?group=nonsense").status_code == 404


def test_folders_have_no_average_on_the_page_of_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    for name in ("mine", "yours"):
        hostile_task(tmp_path / name)
    r2med.evaluate(["bm25", "bm25-classic"], [tmp_path / "mine", tmp_path / "yours"])
    client = entered(Library(), "http://localhost")
    page = client.get("/?group=custom").text
    assert rows(page) == ["bm25", "bm25-classic"]
    assert "choose a task for ranks" in page
    assert ">Average<" not in page
    assert 'class="n rank" data-v="1"' not in page
    assert 'class="n rank" data-v="1"' in client.get("/", params={"group": "custom", "task": tmp_path / "mine"}).text


def test_the_board_sorts_both_ways_and_finds(client):
    ranked = rows(client.get("/?group=sample").text)
    assert ranked[0] == "replay &gt;&gt; bm25"
    assert len(ranked) == 4
    assert rows(client.get("/?group=sample&sort=average&order=up").text) == ranked[::-1]
    assert rows(client.get("/?group=sample&sort=name").text) == sorted(ranked)
    assert rows(client.get("/?group=sample&q=CLASSIC").text) == [name for name in ranked if "classic" in name]
    assert all("own" not in row for row in rows(client.get("/?group=full&origin=published").text))
    assert rows(client.get("/?group=full&origin=own").text) == []


def test_words_of_a_search_may_stand_apart_and_filters_can_be_cleared(client):
    found = rows(client.get("/?group=full&q=bm25+gpt4").text)
    assert found
    assert all("bm25" in name and "gpt4" in name for name in found)
    empty = client.get("/?group=sample&q=no+such+words&kind=base&metric=nDCG@10").text
    assert "No system of this board has every word of “no such words” and kind base" in empty
    cleared = re.search(r'<a href="([^"]+)">Clear the filters', empty)[1].replace("&amp;", "&")
    assert len(rows(client.get(cleared).text)) == 4


def test_a_board_is_narrowed_down_by_family_and_by_parts_of_systems(client):
    page = client.get("/?group=full&llm=gpt4&retriever=bm25").text
    assert rows(page)
    assert all("gpt4" in name and "bm25" in name for name in rows(page))
    assert '<details class="more" open>' in page
    assert "<option selected>gpt4</option>" in page
    family = client.get("/?group=full&family=clinical-case").text
    assert "the average over 2 tasks" in family
    elsewhere = client.get("/?group=sample&llm=gpt4&family=nothing").text
    assert "This board has no llm gpt4." in elsewhere
    assert "This board has no family nothing." in elsewhere
    assert len(rows(elsewhere)) == 4


def heads(page: str) -> dict[str, str]:
    return dict(re.findall(r'<th [^>]*?aria-sort="(\w+)"[^>]*><a [^>]*>([^<]+)<', page))


def test_sorting_is_kept_by_the_filters_and_told_truly(client):
    page = client.get("/?group=sample&sort=sample/Biology&order=up").text
    form = re.search(r'<form class="filters" action="/".*?</form>', page, re.DOTALL)[0]
    assert '<input type="hidden" name="sort" value="sample/Biology">' in form
    assert '<input type="hidden" name="order" value="up">' in form
    for sort, first, second in (("", "ascending", "descending"), ("name", "ascending", "descending"),
                                ("average", "descending", "ascending")):  # fmt: skip
        assert list(heads(client.get(f"/?group=sample&sort={sort}").text)) == [first]
        assert list(heads(client.get(f"/?group=sample&sort={sort}&order=up").text)) == [second]


def test_the_measure_that_is_shown_is_the_one_that_is_chosen(client):
    for measure in ("nDCG@100", "Recall@7", "nDCG@10"):
        page = client.get(f"/?group=full&metric={measure}").text
        assert re.findall(r"<option selected>([^<]+@[^<]+)</option>", page) == [measure]
    offered = re.findall(r"<option(?: selected)?>(\w+@\d+)</option>", client.get("/?group=full").text)
    assert "nDCG@1000" in offered
    assert len(rows(client.get("/?group=full&metric=nDCG@1000").text)) >= 2


def test_a_baseline_marks_the_board_and_every_file_of_it(client):
    page = client.get("/?group=sample&baseline=bm25").text
    best = re.search(r"<code>replay &gt;&gt; bm25</code>.*?</tr>", page, re.DOTALL)[0]
    assert "†" in best
    assert "† better, ‡ worse than <code>bm25</code>" in page
    for ending in ("csv", "json", "tex"):
        href = re.search(rf'href="(/board\.{ending}\?[^"]+)"', page)[1].replace("&amp;", "&")
        answer = client.get(href)
        assert answer.status_code == 200
        assert "replay >> bm25" in answer.text or "replay" in answer.text
    assert "no rank here" in client.get("/?group=sample&baseline=none").text


def cells(page: str) -> dict[str, list[str]]:
    """The figures of a board's systems, by name."""
    lines = re.findall(r'<tr class="[^"]*" data-kind.*?</tr>', page, re.DOTALL)
    return {rows(line)[0]: re.findall(r'<td class="n (?!rank|cost)[^"]*" data-v="(.*?)"', line) for line in lines}


def test_a_board_has_a_mean_for_every_family(client):
    page = client.get("/?group=sample").text
    assert re.findall(r'<th scope="colgroup" class="family" colspan="(\d)"', page) == ["4", "4", "3"]
    for average, *figures in cells(page).values():
        values = [*map(float, figures)]
        families = [values[:4], values[4:8], values[8:]]
        for *tasks, mean in families:
            assert mean == pytest.approx(sum(tasks) / len(tasks))
        tasks = [value for family in families for value in family[:-1]]
        assert float(average) == pytest.approx(sum(tasks) / 8)
    means = {name: float(figures[8]) for name, figures in cells(page).items()}
    sorted_page = client.get("/?group=sample&sort=family:clinical-evidence").text
    assert rows(sorted_page) == sorted(means, key=means.get, reverse=True)
    assert rows(client.get("/?group=sample&sort=family:none").text) == rows(page)
    assert "colgroup" not in client.get("/?group=sample&family=clinical-case").text


def test_the_darker_a_cell_the_better_its_place(client):
    page = client.get("/?group=full&origin=published").text
    shaded = re.findall(r'<td class="n s(\d)[^"]*" data-v="(.*?)"', page)
    assert {step for step, _ in shaded} == set("01234")
    first = re.findall(r'<td class="n avg s(\d)[^"]*" data-v="(.*?)"', page)
    steps = [int(step) for step, _ in sorted(first, key=lambda pair: float(pair[1]))]
    assert steps == sorted(steps)


def test_a_baseline_adds_the_difference_from_it(client):
    page = client.get("/?group=sample&baseline=bm25-classic").text
    averages = {name: float(figures[0]) for name, figures in cells(page).items()}
    shown = dict(zip(rows(page), re.findall(r'<td class="n difference">(.*?)</td>', page), strict=True))
    for name, text in shown.items():
        assert float(text.replace("−", "-")) == pytest.approx(
            100 * (averages[name] - averages["bm25-classic"]), abs=0.006
        )
    assert "difference" not in client.get("/?group=sample").text


def test_systems_that_the_best_one_does_not_beat_share_a_bracket(client):
    page = client.get("/?group=sample&origin=own&kind=base").text
    best, *others = rows(page)
    assert others
    marked = client.get(f"/?group=sample&origin=own&kind=base&baseline={best}").text
    averages = re.findall(r'<td class="n avg[^"]*" data-v="[^"]*">(.*?)</td>', marked)
    beaten = {name for name, text in zip(rows(marked), averages, strict=True) if "‡" in text}
    tied = re.findall(r'<tr class="own tied".*?</tr>', page, re.DOTALL)
    assert {rows(line)[0] for line in tied} == {best, *others} - beaten
    assert all(f'<small title="{best} does not beat it after Holm">1–' in line for line in tied)
    assert "tied" not in client.get("/?group=sample&q=replay").text, "a system alone is tied with nobody"


def test_ticked_systems_are_files_a_comparison_and_a_report(client):
    chosen = "group=sample&metric=nDCG%4010&system=bm25&system=bm25-classic"
    lines = client.get(f"/board.csv?{chosen}").text.splitlines()
    assert [line.split(",")[3] for line in lines[1:]] == ["bm25", "bm25-classic"]
    assert "rrf" not in client.get(f"/board.tex?{chosen}").text
    compared = client.get(f"/compare?{chosen}").text
    assert re.findall(r"<option[^>]* selected>(bm25.*?)</option>", compared) == ["bm25", "bm25-classic"]
    report = client.get(f"/report?{chosen}")
    assert report.headers["content-disposition"] == 'attachment; filename="report.html"'
    assert "<!DOCTYPE html>" in report.text
    assert "rrf(" not in report.text
    assert "/search?" not in report.text
    searched = client.get(f"/search?{chosen}").text
    assert re.search(r"<option[^>]* selected>sample/Biology", searched)
    assert re.findall(r'name="system" value="(.*?)" checked', searched) == ["bm25", "bm25-classic"]
    refused = client.get("/report?group=sample&system=bm52")
    assert refused.status_code == 404
    assert "no own run of bm52 on this board" in refused.text.lower()
    assert client.get("/board.csv?group=sample&system=bm52").status_code == 404


def test_a_board_is_narrowed_down_by_source(client):
    page = client.get("/?group=full&source=grouprank").text
    assert 0 < len(rows(page)) < 20
    assert set(re.findall(r'<a class="tag pub"[^>]*>(.*?)</a>', page)) >= {"grouprank"}
    assert "<option selected>grouprank</option>" in page
    assert client.get("/?group=full&source=nobody").status_code == 404


def test_published_systems_have_a_page_with_their_sources(client):
    page = client.get("/?group=full").text
    links = re.findall(r'<td class="sys"><div class="tags"><a href="([^"]+)"', page)
    assert len(links) == 50
    answer = client.get(links[0].replace("&amp;", "&"))
    assert answer.status_code == 200
    assert "/sources#" in answer.text
    assert 'href="https://' in client.get("/sources").text
    pair = client.get("/published?name=base/medcpt&group=full").text
    assert pair.count('<th scope="col" class="n">') == 2
    assert client.get("/published?name=none&group=full").status_code == 404
    apart = client.get("/published?name=DIVER-Retriever-4B&group=full").text
    assert all(part in apart for part in ("42.90", "32.23", "Tokens read (reasonembed)", "512 of a document"))
    assert "Tokens read (grouprank)" not in apart, "not known"
    reranker = client.get("/published?name=reranker/rank1-7b/e5&group=full").text
    assert "<dt>First stage</dt><dd>e5</dd>" in reranker
    remarks = client.get("/sources").text
    assert "<code>reranker/rank1-7b/e5</code> (reasonrank): reasoning pointwise; reranks the first 100" in remarks
    assert "an earlier release of the model, texts cut at 512 tokens" in remarks


def test_a_long_board_has_pages_without_overlap(client):
    pages = [rows(client.get(f"/?group=full&page={number}").text) for number in (1, 2, 3)]
    assert len(pages[0]) == len(pages[1]) == 50
    everything = [row for page in pages for row in page]
    assert len(everything) > 120
    assert "Page 2 of" in client.get("/?group=full&page=2").text
    assert rows(client.get("/?group=full&page=99999").text) == rows(client.get("/?group=full&page=9").text)


WRONG = ["/?sort=nothing", "/?group=none", "/?metric=xyz", "/?kind=<b>", "/run/0", "/run/%3Cscript%3E",
         "/query?task=x&query=y", "/query?task=sample/Biology&query=none", "/compare?group=sample&a=bm25&b=none",
         "/compare?group=sample&a=bm25&b=bm25", "/system?system=<script>&group=sample",
         "/search?task=/etc/passwd&q=x"]  # fmt: skip


@pytest.mark.parametrize("address", WRONG)
def test_a_wrong_address_is_a_page_that_says_so(client, address):
    answer = client.get(address)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text
    assert "<script>" not in answer.text


def test_a_comparison_says_who_won_each_query(client):
    page = client.get("/compare", params={"group": "sample", "a": "bm25", "b": "replay >> bm25"}).text
    assert "<dt>Verdict</dt><dd>replay &gt;&gt; bm25 is better than bm25 (" in page
    gains = [
        float(text.replace("\N{MINUS SIGN}", "-"))
        for text in re.findall(r"<td class=\"n (?:good|bad|)\">([+\N{MINUS SIGN}\d.]+) [AB=]", page)
    ]
    assert len(gains) == 20
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0


def test_two_lists_show_which_documents_moved(client, filled):
    a, b = (entry_on(filled, "sample/Biology", system) for system in ("bm25", "replay >> bm25"))
    page = client.get("/query", params={"task": a.task, "query": a.queries[0], "run": [a.id, b.id]}).text
    assert re.search(r"Higher than in A\">▲ \d|Lower than in A\">▼ \d|>new<", page)
    assert "Written by" in page


def test_a_run_shows_everything_recorded(client, filled):
    entry = entry_on(filled, "sample/Biology")
    page = client.get(f"/run/{entry.id}").text
    assert entry.data in page
    assert "query-side BM25" in page
    assert all(query in page for query in entry.queries)


def test_documents_queries_and_ids_stay_text(client, filled):
    task = filled[1]
    entry = entry_on(filled, task)
    pages = [
        client.get("/query", params={"task": task, "query": "q<i>1"}).text,
        client.get(f"/run/{entry.id}").text,
        client.get("/search", params={"task": task, "q": f"gums {ATTACK}", "system": ["bm25", "bm25-classic"]}).text,
        client.get("/search/results", params={"task": task, "q": "gums", "system": "bm25"}).text,
        client.get("/compare", params={"group": "custom", "a": "bm25", "b": "bm25-classic"}).text,
        client.get("/", params={"q": ATTACK}).text,
    ]
    for page in pages:
        assert not re.search(r"<script(?! src=)|<img|<i>1|\x1b", page)
    assert all("&lt;" in page and "onerror" in page for page in pages[:4])


def test_live_search_returns_each_chosen_system_with_marks(client):
    found = client.get(
        "/search/results", params={"task": "sample/Biology", "q": "bruised gums", "system": ["bm25", "bm25-classic"]}
    ).text
    assert found.count("<section") == 2
    assert '<mark class="query">bruised</mark>' in found
    assert "<html" not in found


def test_a_long_list_of_systems_to_search_with_is_folded(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    variants = [f"bm25(k1={number / 10})" for number in range(1, 13)]
    task = r2med.evaluate([*variants, "rrf(bm25, bm25-classic)"], hostile_task(tmp_path / "task")).results[0].task
    with entered(Library()) as client:
        page = client.get("/search", params={"task": task}).text
        first, _, rest = page.partition("<fieldset")[2].partition("</fieldset>")[0].partition("<details>")
        assert "<summary>6 more</summary>" in rest
        assert (first.count("checkbox"), rest.count("checkbox")) == (8, 6), "0.9 is what bm25 has anyway"
        assert re.findall(r'value="([^"]+)" checked', page) == ["bm25", "rrf(bm25, bm25-classic)"]
        chosen = [*variants[-2:], "bm25-classic"]
        asked = client.get("/search", params={"task": task, "system": chosen}).text
        assert re.findall(r'value="([^"]+)" checked', asked) == chosen, "what is chosen stands before the fold"


def test_a_system_whose_folder_is_gone_does_not_stop_the_search_page(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    r2med.evaluate("bm25", "sample/Biology")
    with Ledger() as ledger:
        for system in (
            "./my-encoder",
            "rrf(bm25, ./my-encoder)",
            "http(gone.toml)",
            "sql(gone.sql)",
            "./my-encoder >> x",
        ):
            add_run(ledger, system, "sample/Biology", [0.1, 0.2])
    with entered(Library()) as client:
        for place in ("/search", "/search?task=sample/Biology&q=gums"):
            answer = client.get(place)
            assert answer.status_code == 200, answer.text
            assert 'value="bm25"' in answer.text
            assert "my-encoder" not in answer.text


def test_a_page_follows_the_ledger(filled, tmp_path):
    import r2med

    library = Library(filled[0] / "ledger.sqlite")
    with entered(library, "http://localhost") as own:
        before = rows(own.get("/?group=sample").text)
        r2med.evaluate("bm25(k1=2.5)", "sample")
        assert set(rows(own.get("/?group=sample").text)) - set(before) == {"bm25(k1=2.5)"}
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        ledger.remove(ledger.entries(system="bm25(k1=2.5)"))


def test_a_ledger_that_is_taken_away_is_not_shown_any_more(filled, tmp_path):
    path = tmp_path / "ledger.sqlite"
    shutil.copy(filled[0] / "ledger.sqlite", path)
    client = entered(Library(path))
    assert "bm25-classic" in client.get("/runs").text
    for each in tmp_path.glob("ledger.sqlite*"):
        each.unlink()
    assert "No run is like that" in client.get("/runs").text
    for each in tmp_path.glob("ledger.sqlite*"):
        each.unlink()
    shutil.copy(filled[0] / "ledger.sqlite", path)
    assert "bm25-classic" in client.get("/runs").text


def test_a_board_is_sorted_by_what_systems_cost(client):
    cheap, dear = (rows(client.get(f"/?group=sample&sort=seconds{order}").text) for order in ("", "&order=up"))
    assert cheap[-1] == dear[-1] == "replay &gt;&gt; bm25", "what is unknown comes last"
    assert cheap[:-1] == dear[-2::-1]


def test_data_that_is_gone_leaves_ids_and_scores(filled, tmp_path):
    from webparts import hostile_task

    import r2med

    folder = hostile_task(tmp_path / "passing")
    name = r2med.evaluate("bm25", folder).results[0].task
    (folder / "corpus.jsonl").unlink()
    entry = entry_on(filled, name)
    with entered(Library(filled[0] / "ledger.sqlite"), "http://localhost") as own:
        page = own.get("/query", params={"task": name, "query": "q2"})
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        ledger.remove([entry])
    assert page.status_code == 200
    assert "not on this machine" in page.text
    assert "d3" in page.text


def test_the_verb_serves_and_says_when_it_cannot():
    import socket
    import subprocess
    import sys
    import time

    import httpx2 as httpx

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        place.listen()
        port = place.getsockname()[1]
        command = [sys.executable, "-m", "r2med", "serve", "--port", str(port)]
        taken = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert taken.returncode == 1
        assert "choose another with --port" in taken.stderr
        assert "Traceback" not in taken.stderr
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server, httpx.Client(timeout=30) as browser:
        try:
            address = server.stderr.readline().split()[0]
            for _ in range(200):
                try:
                    assert browser.get(address.partition("?")[0]).status_code == 403
                    answer = browser.get(address, follow_redirects=True)
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            assert "replay &gt;&gt; bm25" in answer.text
            assert "token" not in str(answer.url)
        finally:
            server.terminate()


def test_an_unknown_cost_is_never_nothing(client):
    page = client.get("/?group=sample").text
    cells = re.search(r"<code>replay &gt;&gt; bm25</code>.*?</tr>", page, re.DOTALL)[0]
    assert re.findall(r'<td class="n cost"[^>]*>([^<]*)</td>', cells)[-2:] == ["?", "?"]
    for address in ("/system?system=replay+%3E%3E+bm25&group=sample",):
        text = client.get(address).text
        assert "<dt>Dollars</dt><dd>?</dd>" in text
        assert "<dt>Seconds a query</dt><dd>?</dd>" in text


def test_figures_of_different_data_are_marked_and_not_ranked(tmp_path, monkeypatch):
    from webparts import hostile_task

    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    hostile_task(tmp_path / "mine")
    r2med.evaluate("bm25-classic", "mine")
    (tmp_path / "mine" / "qrels.jsonl").write_text('{"q_id": "q2", "p_id": "d1", "score": 1}\n')
    r2med.evaluate("bm25", "mine")
    page = entered(Library(), "http://localhost").get("/?group=custom").text
    changed = re.search(r"<tr[^>]*>(?:(?!</tr>).)*<code>bm25-classic</code>.*?</tr>", page, re.DOTALL)[0]
    assert re.search(r'<td class="n rank" data-v="">(?:(?!</td>).)*–</label></td>', changed, re.DOTALL)
    assert re.search(r'<td class="n other[^>]*>[\d.]+°</td>', changed)
    assert '<details class="card" open>' in page


def test_a_run_begins_with_its_headline_and_leaves_out_what_is_empty(client, filled):
    page = client.get(f"/run/{entry_on(filled, 'sample/Biology').id}").text
    measured = re.search(r"<h2>Measured</h2>.*?</dl>", page, re.DOTALL)[0]
    assert re.findall(r"<dt>([^<]+)</dt>", measured)[0] == "nDCG@10"
    assert "<dd></dd>" not in page
    assert "<dd>False</dd>" not in page


def test_a_comparison_names_oracles_and_the_tasks_it_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    r2med.evaluate(["bm25"], ["sample/Biology", "sample/MedQA-Diag", "sample/IIYi-Clinical"])
    r2med.evaluate(["bm25-classic", "oracle-answer >> bm25"], ["sample/Biology", "sample/MedQA-Diag"])
    client = entered(Library(), "http://localhost")
    page = client.get("/compare?group=sample&a=bm25&b=oracle-answer+%3E%3E+bm25").text
    assert "Over 2 of 3 tasks: only one of the two was run on sample/IIYi-Clinical." in page
    assert '<code>oracle-answer &gt;&gt; bm25</code> <span class="tag warn">oracle</span> minus' in page
    assert "an oracle is shown the answers and is not a system" in page
    assert "is better" not in page.partition("<dt>Verdict</dt>")[2]
    assert re.search(r"\(p (≤|&lt;) 0\.0\d+\)", page)
    assert '<optgroup label="Oracles, shown the gold answers"><option selected>oracle-answer' in page
    plain = client.get("/compare?group=sample&a=bm25&b=bm25-classic").text
    assert 'class="tag warn"' not in plain


def test_a_run_and_a_published_line_are_compared_by_task(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    lines = board(Ledger(), View(group="full", own=False)).lines
    best, second = (line for line in lines if line.rank in (1, 2))
    with Ledger() as ledger:
        add_everywhere(ledger, "mine", "full", 0.25)
    with entered(Library()) as client:
        for a, b in ((best.name, second.name), ("mine", best.name)):
            answer = client.get("/compare", params={"group": "full", "system": [a, b]})
            assert answer.status_code == 200, answer.text
            shown = re.findall(r'<th scope="row">(.*?)</th>' + 3 * r'<td class="n">(.*?)</td>', answer.text)
            assert {task for task, *_ in shown} == {*best.values, "average"}
            for task, left, right, gain in shown:
                one, other = (
                    25.0 if name == "mine" else 100 * line.value("" if task == "average" else task)
                    for name, line in ((a, best), (b, second if a != "mine" else best))
                )
                assert (float(left), float(right)) == pytest.approx((one, other), abs=0.006)
                assert float(gain.replace("−", "-")) == pytest.approx(other - one, abs=0.006)
            assert "cannot be tested" in answer.text
        twice = next(line for line in lines if sum(each.name == line.name for each in lines) > 1)
        answer = client.get("/compare", params={"group": "full", "system": [twice.name] * 2}).text
        chosen = re.findall(r"<option[^>]* selected>(.*?)</option>", answer)
        assert len({name for name in chosen if name.startswith(escape(twice.name))}) == 2, "two sources of a system"
        assert client.get("/compare", params={"group": "full", "a": "mine", "b": "nobody"}).status_code == 404


def test_own_data_are_called_by_short_names_with_the_path_on_hover(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    folder = hostile_task(tmp_path / "somewhere" / "guidelines")
    task = r2med.evaluate(["bm25", "bm25-classic"], folder).results[0].task
    assert task.startswith("/")
    with Ledger() as ledger:
        run = ledger.entries()[0].id
    with entered(Library()) as client:
        for place, more in (
            ("/", {"group": "custom"}),
            ("/compare", {"group": "custom", "a": "bm25", "b": "bm25-classic"}),
            ("/runs", {}),
            (f"/run/{run}", {}),
            ("/progress", {}),
            ("/query", {"task": task, "query": "q2"}),
            ("/search", {"task": task, "q": "gums"}),
            ("/document", {"task": task, "document": "d3"}),
            ("/system", {"group": "custom", "system": "bm25"}),
        ):
            page = client.get(place, params=more).text
            # The command and what a run has recorded of its files hold the path that a terminal needs.
            shown = re.sub(
                r'<details class="cite">.*?</details>|<code.*?</code>|<dl.*?</dl>', "", page, flags=re.DOTALL
            )
            texts = [text for text in re.sub(r"<[^>]*>", "\0", shown).split("\0") if task in text]
            assert texts == [], place
            assert "guidelines" in shown, place
            assert task in page, "the path is on hover, or behind a choice"
        searched = client.get("/search", params={"task": task}).text
        assert f'<option value="{task}" selected' in searched


def test_the_page_of_a_system_shows_the_ceiling_that_was_measured_as_an_oracle(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lengths.py").write_text(
        "class Longest:\n    def score(self, query, documents):\n        return list(map(len, documents))\n"
    )
    r2med.evaluate("bm25", "sample/Biology")
    words = ["diagnose", "bm25", "--verify", "lengths:Longest", "--tasks", "sample/Biology", "--json"]
    with entered(Library()) as client:
        address = "/system?system=bm25&group=sample"
        assert "Verifiability ceiling" not in client.get(address).text
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        (row,) = json.loads(done.stdout)["overall"]
        page = client.get(address).text
    assert "Verifiability ceiling (oracle)" in page
    assert "lengths:Longest" in page
    for part in ("score", "ceiling", "distance", "retrieval", "verification"):
        assert f"{100 * row[part]['mean']:z.2f}" in page
