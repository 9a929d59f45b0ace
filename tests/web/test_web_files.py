"""Reports and sites: files that stand on their own."""

from __future__ import annotations

import base64
import re
import shutil
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import orjson
import pytest
from click.testing import CliRunner
from webparts import ATTACK

import r2med
from ledgers import add_everywhere
from r2med.cli.main import app
from r2med.leaderboard.report_file import BUDGET, ReportChoice, TaskBlock, pack_all, report
from r2med.pipeline.named_runs import share
from r2med.runs.ledger import Ledger


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found[name] for name in ("href", "src") if name in found]
        if "id" in found:
            self.anchors.add(found["id"])


@pytest.fixture(scope="module")
def page(filled, tmp_path_factory) -> str:
    """A report with causes, from a copy of the home: searches with gold answers are kept there."""
    home = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(filled[0], home)
    systems, tasks = ["bm25", "bm25-classic", "replay >> bm25"], ["sample/Biology", "sample/MedQA-Diag"]
    with pytest.MonkeyPatch.context() as patch, Ledger(home / "ledger.sqlite") as ledger:
        patch.setenv("R2MED_HOME", str(home))
        return report(ledger, ReportChoice(share(ledger, systems, tasks)))


def block(page: str, name: str):
    data = re.search(rf'<script type="application/x-r2med" id="{name}">([^<]*)</script>', page)
    return orjson.loads(zlib.decompress(base64.b64decode(data[1]), -15))


def test_a_report_needs_nothing_else(page):
    outside = [link for link in Links(page).links if not link.startswith(("#", "data:image/svg+xml;base64,"))]
    assert outside == []
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_a_report_allows_only_its_own_script_and_style(page):
    import hashlib

    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    for name in ("script", "style"):
        inner = re.findall(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert len(inner) == 1
        assert base64.b64encode(hashlib.sha256(inner[0].encode()).digest()).decode() in policy
    assert "unsafe" not in policy


def test_a_report_has_every_query_with_its_lists_and_traces(page, filled):
    task, run = block(page, "task-0"), block(page, "run-2-0")
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        entry = next(each for each in ledger.entries(system="replay >> bm25") if each.task == "sample/Biology")
        ranked = ledger.run(entry)
    assert [query["id"] for query in task["queries"]] == list(entry.queries)
    for query, (numbers, _), written in zip(entry.queries, run["lists"], run["written"], strict=True):
        assert [task["ids"][int(number)] for number in numbers] == list(ranked[query].documents[:10])
        assert written[0]["text"]
    assert len(task["ids"]) == len(set(task["ids"])) == len(task["texts"])
    causes = {re.sub(r"^\d+ (of \d+ )?", "", part) for text in run["causes"] for part in text.split(" · ")}
    assert causes <= {"found", "ranked low", "bridge missing", "out of reach", "truncated away"}
    for part in ("Q&amp;A reference", "Paired differences", "Causes of failure", "95% interval"):
        assert part in page


def test_markup_in_data_stays_text_in_a_report(filled):
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        runs = share(ledger, ["bm25", "bm25-classic"], [filled[1]])
        made = report(ledger, ReportChoice(runs, causes=False, title=f"x {ATTACK}"))
    assert "<img" not in made
    assert made.count("<script>") == 1
    assert ATTACK in block(made, "task-0")["queries"][0]["text"]


def test_documents_are_cut_to_the_budget_and_the_ids_are_not():
    import random

    letters = random.Random(5)
    texts = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=7000)) for _ in range(40)]
    made = TaskBlock("t", documents={f"d{place}": place for place in range(40)}, texts=texts)
    (_, whole), (blocks, length) = (pack_all([made], {"run-0-0": {}}, budget) for budget in (BUDGET, 60_000))
    assert whole == 6000
    assert length < 3000
    assert sum(map(len, blocks.values())) <= 60_000
    data = orjson.loads(zlib.decompress(base64.b64decode(blocks["task-0"]), -15))
    assert len(data["ids"]) == 40
    assert all(len(text) == length + 2 for text in data["texts"])


def test_a_site_is_whole_and_relative(tmp_path):
    done = CliRunner().invoke(app, ["site", "bm25", "replay >> bm25", "--out", str(tmp_path / "public")])
    assert done.exit_code == 0, done.output
    pages = sorted((tmp_path / "public").rglob("*.html"))
    assert {"index.html", "nano.html", "sample.html", "sources.html", "report-sample.html", "compare.html"} <= {
        p.name for p in pages
    }
    for page in pages:
        found = Links(page.read_text("utf-8"))
        assert found.links
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme == "https" and (page.name == "sources.html" or page.parent.name == "published"):
                continue  # where figures were published, which is elsewhere
            assert not parts.scheme, link
            assert not parts.path.startswith("/"), link
            target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
            assert target.is_file(), f"{link} in {page.name}"
            # Scripts of a report and of a comparison open the system of an address.
            if parts.fragment and not parts.fragment.startswith(("system-", "a=")):
                assert parts.fragment in Links(target.read_text("utf-8")).anchors


def test_sources_lead_to_where_they_were_published(tmp_path):
    assert CliRunner().invoke(app, ["site", "--out", str(tmp_path)]).exit_code == 0
    outside = [link for link in Links((tmp_path / "sources.html").read_text("utf-8")).links if "://" in link]
    assert len(outside) >= 5
    assert all(re.fullmatch(r"https://[\w./#?=&-]+", link) for link in outside)
    board = (tmp_path / "index.html").read_text("utf-8")
    assert 'href="sources.html#paper"' in board
    lines = re.findall(r'<td class="sys">.*?</td>', board, re.DOTALL)
    links = [re.search(r'<a href="(published/[^"]+)"><code>([^<]+)</code></a>', line) for line in lines]
    assert len(lines) > 100
    assert None not in links, "every published name is a link"
    assert len({link[1] for link in links}) == len({link[2] for link in links})
    for link in links:
        page = (tmp_path / link[1]).read_text("utf-8")
        assert f"<h1><code>{link[2]}</code></h1>" in page
        assert 'href="../sources.html#' in page
    two = (tmp_path / "published" / "full-base-medcpt.html").read_text("utf-8")
    assert {"../sources.html#paper", "../sources.html#page"} <= set(Links(two).links)
    assert "<form" not in two, "nobody would answer it"
    assert "<td>nDCG@100</td>" in two


def test_a_published_system_on_a_site_leads_to_its_own_run_and_no_name_is_taken_for_another(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with Ledger() as ledger:
        for system in ("bm25", "base/bge"):
            add_everywhere(ledger, system, "full", 0.25)
    runs = ["site", "bm25", "base/bge", "--no-reports", "--out", str(tmp_path / "site")]
    done = CliRunner().invoke(app, runs)
    assert done.exit_code == 0, done.output
    site = tmp_path / "site"
    assert 'href="../systems/full-bm25.html"' in (site / "published" / "full-base-bm25.html").read_text("utf-8")
    assert "25.00" in (site / "systems" / "full-base-bge.html").read_text("utf-8")
    assert "25.00" not in (site / "published" / "full-base-bge.html").read_text("utf-8")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "empty"))
    assert CliRunner().invoke(app, ["site", "--measure", "nDCG@100", "--out", str(site)]).exit_code == 0
    assert not (site / "systems" / "full-bm25.html").exists()
    assert "nDCG@100 × 100" in (site / "published" / "full-base-bge.html").read_text("utf-8")


def test_a_site_shows_only_chosen_runs_and_ranks_them_anew(tmp_path):
    assert CliRunner().invoke(app, ["site", "bm25", "--no-reports", "--out", str(tmp_path)]).exit_code == 0
    sample = (tmp_path / "sample.html").read_text("utf-8")
    assert "bm25-classic" not in sample
    assert re.findall(r'<td class="n rank" data-v="(.*?)">', sample) == ["1"]
    assert len((tmp_path / "index.csv").read_text("utf-8").splitlines()) > 100
    assert not (tmp_path / "report-sample.html").exists()


def test_a_site_and_a_report_show_the_very_runs_that_were_named(tmp_path, monkeypatch):
    """Also where the system was run again since, and the two have other figures."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with Ledger() as ledger:
        old = [entry.id for entry in add_everywhere(ledger, "bm25", "sample", 0.25)]
        add_everywhere(ledger, "bm25", "sample", 0.75)
    for names, figure in ((old, "25.00"), (["bm25"], "75.00")):
        done = CliRunner().invoke(app, ["site", *names, "--no-reports", "--out", str(tmp_path / "site")])
        assert done.exit_code == 0, done.output
        assert re.findall(r"bm25,own,.*", (tmp_path / "site" / "sample.csv").read_text("utf-8"))
        assert {figure} == set(re.findall(r"\b[27]5\.00\b", (tmp_path / "site" / "sample.html").read_text("utf-8")))


def test_two_runs_of_one_system_stand_side_by_side_in_a_report(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    first = r2med.evaluate("bm25", "sample/Biology").results[0]
    with Ledger() as ledger:
        entry = ledger.get(first.id)
        values = {"nDCG@10": np.full(len(entry.queries), 0.5)}
        other = ledger.add(replace(entry, key="f" * 32, created="", scores=values), ledger.run(entry))
    names, path = [first.id, other.id], tmp_path / "r.html"
    done = CliRunner().invoke(app, ["report", *names, "--no-causes", "--out", str(path)])
    assert done.exit_code == 0, done.output
    page = path.read_text("utf-8")
    for name in names:
        assert f"bm25 [{name}]" in page
    assert re.findall(r'<td class="n rank" data-v="(\d)">', page) == ["1", "2"], "both saw the same data"


def test_a_report_takes_ids_other_spellings_and_repeated_names(tmp_path, filled):
    with Ledger() as ledger:
        entry = share(ledger, ["bm25"], ["sample/Biology"]).on("sample/Biology")[0]
    for names in ([entry.id, "bm25-classic"], ["bm25( )", "bm25-classic", "bm25"]):
        arguments = ["report", *names, "--tasks", "sample/Biology", "--no-causes", "--out", str(tmp_path / "r.html")]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        page = (tmp_path / "r.html").read_text("utf-8")
        assert "Minus bm25, nDCG@10" in page
        assert set(re.findall(r'href="(#system-\d+)"', page)) == {"#system-0", "#system-1"}


def test_without_runs_a_site_has_the_published_figures(tmp_path):
    assert CliRunner().invoke(app, ["site", "--out", str(tmp_path)]).exit_code == 0
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "base/bge" in page
    assert 'class="tag own"' not in page
    assert not (tmp_path / "sample.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "none", "--out", "x.html"],
        ["report", "bm25", "--tasks", "sample", "--no-causes", "--out", "/proc/nowhere/x.html"],
        ["site", "none", "--out", "x"],
        ["site", "--out", "/proc/x"],
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, tmp_path, monkeypatch):
    from r2med.errors import R2medError

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, R2medError)
    assert "\n" not in str(done.exception)
    assert list(Path().iterdir()) == []


def test_a_report_and_a_site_say_how_they_were_made(tmp_path, filled):
    run = ["bm25", "bm25-classic"]
    made = [["report", *run, "--tasks", "sample/Biology", "--no-causes", "--out", str(tmp_path / "report.html")],
            ["site", *run, "--no-reports", "--out", str(tmp_path / "public")]]  # fmt: skip
    with Ledger(filled[0] / "ledger.sqlite") as ledger:
        entry = next(each for each in ledger.entries(system="bm25") if each.task == "sample/Biology")
    for arguments, page in zip(made, ("report.html", "public/sample.html"), strict=True):
        assert CliRunner().invoke(app, arguments).exit_code == 0
        told = unescape(re.search(r'id="colophon".*?</section>', (tmp_path / page).read_text("utf-8"), re.DOTALL)[0])
        typed = [*arguments[:-1], Path(arguments[-1]).name]
        assert f"<code>r2med {' '.join(typed)}</code>" in told, "without the folders of this machine"
        assert entry.data[:16] in told
        assert f"r2med {entry.record.provenance.r2med}" in told
        assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", told)
        assert f"{entry.record.provenance.machine.cores} cores" in told
