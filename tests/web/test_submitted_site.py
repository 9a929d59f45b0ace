"""A leaderboard of submissions: archives in, a site out, and whatever is broken is named and left out."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.exchange.submission import archive_bytes, own_digest, read_archive, sha256
from r2med.exchange.verify import verify
from r2med.leaderboard.board import board
from r2med.leaderboard.site import MAX_BASELINES as MOST
from r2med.leaderboard.site import baseline_names
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger

TITLE = "<script>alert(1)</script>"


def forged(path: Path) -> bytes:
    """An archive with a better figure than its lists have, and a manifest that fits."""
    files = read_archive(path)
    results = json.loads(files["results.json"])
    results["results"][0]["metrics"]["nDCG@10"] += 0.1
    files["results.json"] = json.dumps(results).encode()
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["results.json"] = {"sha256": sha256(files["results.json"]), "bytes": len(files["results.json"])}
    manifest["sha256"] = own_digest(manifest)
    return archive_bytes({**files, "manifest.json": json.dumps(manifest).encode()})


@pytest.fixture(scope="module")
def sent(filled, tmp_path_factory) -> Path:
    """Two sound submissions of the same system among others, one in a folder of its own, and three broken ones."""
    folder = tmp_path_factory.mktemp("owner") / "submissions"
    about = ["--title", TITLE, "--authors", "A. Body", "--link", "https://example.org/ours"]
    for name, runs in (("ours", ["bm25", "replay >> bm25"]), ("theirs/second", ["bm25", "bm25-classic"])):
        done = CliRunner().invoke(app, ["submit", *runs, "--tasks", "sample", *about, "--out", f"{folder / name}.zip"])
        assert done.exit_code == 0, done.output
    (folder / "README.md").write_text("Put archives here.")
    (folder / "cut.zip").write_bytes((folder / "ours.zip").read_bytes()[:2000])
    (folder / "forged.zip").write_bytes(forged(folder / "ours.zip"))
    shutil.copy(folder / "ours.zip", folder / "twin.zip")
    return folder


@pytest.fixture(scope="module")
def site(sent, tmp_path_factory) -> tuple[Path, str]:
    """The site of these, made in a home that knows none of the runs, and what the command said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("empty")))
        done = CliRunner().invoke(app, ["site", "--submissions", str(sent), "--out", str(sent.parent / "public")])
    assert done.exit_code == 3, done.output
    return sent.parent / "public", done.output


def test_a_site_of_submissions_has_recomputed_figures_and_names_what_is_left_out(site, filled):
    public, said = site
    left = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert [line.split(": ")[1] for line in left] == ["cut.zip", "forged.zip", "twin.zip"]
    assert "nDCG@10 is stated as" in left[1]
    assert "2 submissions of" in said
    with (public / "sample.csv").open() as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"bm25 [ours]", "bm25 [theirs/second]", "replay >> bm25", "bm25-classic"}
    with Ledger() as ledger:
        known = {line.name: line for line in board(ledger, View(group="sample", intervals=True)).lines}
    for name, row in rows.items():
        line = known[name.partition(" [")[0]]
        assert row["sources"] == "submitted"
        assert row["spec"] == line.name
        assert row["kind"] == line.parts.kind
        assert float(row["average"]) == pytest.approx(line.average, abs=1e-12)
        assert float(row["low"]) == pytest.approx(line.intervals[""].low)
        assert {task: float(row[task]) for task in line.values} == pytest.approx(dict(line.values), abs=1e-12)
    page = (public / "sample.html").read_text("utf-8")
    assert 'class="tag own">submitted<' in page
    assert "TITLE" not in page


def test_every_submission_has_a_page_an_archive_and_a_place_among_the_submitted(site):
    public, _ = site
    page = (public / "submit.html").read_text("utf-8")
    assert "r2med verify" in page
    assert TITLE not in page
    assert TITLE in unescape(page)
    for name in ("cut.zip", "forged.zip", "twin.zip"):
        assert name in page.partition('id="left"')[2]
    system = (public / "systems" / "sample-replay-bm25.html").read_text("utf-8")
    archive = public / "systems" / re.search(r'href="(\.\./submissions/[^"]+)"', system)[1]
    assert verify(archive).ok, "what a reader downloads can be checked"
    assert sha256(archive.read_bytes()) in system
    assert 'href="https://example.org/ours"' in system
    assert "<script>alert" not in system
    with Ledger() as ledger:
        cost = next(line.cost for line in board(ledger, View(group="sample")).lines if line.name == "bm25")
    shown = (public / "systems" / "sample-bm25-ours.html").read_text("utf-8")
    assert f"<dt>Seconds a query</dt><dd>{cost.cells()[-1]}</dd>" in shown


def test_costs_that_submitters_state_are_marked_and_rank_nothing(visit, site, own_files):
    public, _ = site
    page = visit((public / "sample.html").as_uri())
    assert page.locator("svg.chart").count() == 0, "no frontier over costs that nobody has checked"
    heads = page.locator("th.stated")
    assert heads.count() == 2
    assert heads.first.evaluate("each => getComputedStyle(each, '::after').content") == '"stated"'
    colour = "each => getComputedStyle(each).color"
    stated = page.locator("tbody:not(.ceiling) td.stated:not([data-v=''])").first
    assert re.fullmatch(r"[\d.]+", stated.inner_text())
    assert (
        stated.evaluate(colour)
        == page.locator("p.note").first.evaluate(colour)
        != page.locator("td.avg").first.evaluate(colour)
    )
    assert "nobody has checked them" in page.locator("p.legend").inner_text()
    assert any("not checked" in note for note in json.loads((public / "sample.json").read_text())["notes"])
    assert "Cost, as stated" in (public / "systems" / "sample-bm25-ours.html").read_text("utf-8")
    measured = visit((own_files["site"] / "sample.html").as_uri())
    assert measured.locator("td.cost").count() > 0
    assert measured.locator(".stated").count() == 0, "costs of own runs were measured"


def test_a_static_board_sorts_the_cheapest_first_and_says_so(visit, site):
    page = visit((site[0] / "sample.html").as_uri())
    head = page.locator("th[data-key=seconds]")
    for order in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        cells = page.locator("tbody:not(.ceiling) td.cost:nth-last-child(2):not([data-v=''])")
        shown = cells.evaluate_all("all => all.map((one) => Number(one.dataset.v))")
        assert len(shown) > 1
        assert shown == sorted(shown, reverse=order == "descending")


def test_a_submitted_system_has_its_title_authors_date_and_link(visit, filled, tmp_path):
    folder, public = tmp_path / "private" / "subs", tmp_path / "private" / "public"
    about = ["--title", "Our plain search", "--authors", "A. Body, B. Else", "--link", "https://example.org/ours"]
    for name, words in (("one", [*about, "--notes", 3000 * "x "]), ("two", ["--title", "Theirs"]), ("three", [])):
        system = {"one": "bm25", "two": "bm25", "three": "bm25-classic"}[name]
        words = ["submit", system, "--tasks", "sample", *words, "--out", str(folder / f"{name}.zip")]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    site = ["site", "--submissions", str(folder), "--out", str(public), "--url", "https://example.org/board/"]
    done = CliRunner().invoke(app, site)
    assert done.exit_code == 0, done.output
    page = visit((public / "sample.html").as_uri())
    ours = page.locator("tbody:not(.ceiling) tr", has=page.locator("input[value='bm25 [one]']"))
    name = ours.locator("td.sys a.title")
    assert (name.inner_text(), name.get_attribute("title")) == ("Our plain search", "bm25")
    told = ours.locator(".by").inner_text()
    assert re.fullmatch(r"A\. Body, B\. Else · \d{4}-\d\d-\d\d · link", told)
    assert ours.locator(".by a").get_attribute("href") == "https://example.org/ours"
    assert page.locator("td.sys", has_text="bm25-classic").count() == 1, "without a title the spec is the name"
    page.locator("input[form=chosen]").nth(0).check()
    page.locator("input[form=chosen]").nth(1).check()
    assert "[one]" not in page.locator("form.chosen output").inner_text()
    page.click("a[data-compare]")
    page.wait_for_selector("#verdict, #outcome .card")
    assert "Our plain search" in page.locator("select[name=a] option").all_inner_texts()
    page.go_back()
    page.click("td.sys a.title >> text=Our plain search")
    assert page.locator("h1").inner_text() == "Our plain search"
    assert len(page.locator("main").inner_text()) < 4000, "long notes are folded"
    for file in public.rglob("*.*"):
        if file.suffix in (".html", ".json", ".csv"):
            assert str(tmp_path) not in file.read_text("utf-8"), "no folder of this machine is shown"
    cited = (public / "sample.html").read_text("utf-8")
    assert "r2med site --submissions subs --out public" in cited
    assert "url          = {https://example.org/board/sample.html}" in cited
    assert re.search(r"year         = \{20\d\d\}", cited)
    wrong = CliRunner().invoke(app, [*site[:-1], "example.org"])
    assert "is not an address" in str(wrong.exception)


def test_the_steps_of_the_workflow_work(site, sent, tmp_path, monkeypatch):
    file = tmp_path / "owner" / ".github" / "workflows" / "leaderboard.yml"
    assert CliRunner().invoke(app, ["site", "--workflow", str(file)]).exit_code == 0
    content = yaml.safe_load(file.read_text())
    assert content["env"]["R2MED"] == f"r2med=={r2med.__version__}"
    file.write_text("mine")
    assert CliRunner().invoke(app, ["site", "--workflow", str(file)]).exit_code == 0
    assert file.read_text() == "mine"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "r2med"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m r2med "$@"\n')
    program.chmod(0o755)
    place = tmp_path / "owner"
    (place / "submissions").mkdir()
    shutil.copy(sent / "ours.zip", place / "submissions")

    def codes(job: str) -> list[int]:
        steps = [step["run"] for step in content["jobs"][job]["steps"] if "run" in step]
        assert steps.pop(0) == 'pip install "$R2MED"'
        environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
        return [subprocess.run([*shell, step], cwd=place, env=environment, check=False).returncode for step in steps]

    assert codes("verify") == [0]
    shutil.copy(sent / "cut.zip", place / "submissions" / "a cut.zip")
    assert codes("verify") == [1]
    assert codes("publish") == [0], "a broken archive does not keep the others from being shown"
    assert "bm25" in (place / "public" / "sample.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["bm25", "--submissions", "."], "cannot stand together"),
        (["--submissions", "nowhere"], "no such folder"),
    ],
)
def test_what_a_site_of_submissions_cannot_be_is_one_line(more, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["site", *more, "--out", "public"])
    assert said in str(done.exception)
    assert not Path("public").exists()


def test_a_static_board_marks_against_a_baseline_as_the_server_does(visit, filled, tmp_path, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(filled[0], home)
    monkeypatch.setenv("R2MED_HOME", str(home))
    r2med.evaluate("oracle-answer >> bm25", "sample")
    runs = ["bm25", "bm25-classic", "replay >> bm25", "oracle-answer >> bm25"]
    done = CliRunner().invoke(app, ["site", *runs, "--no-reports", "--out", str(tmp_path / "public")])
    assert done.exit_code == 0, done.output
    with Ledger() as ledger:
        view = View(group="sample", baseline="bm25")
        lines = {line.name: line for line in board(ledger, view).lines}
    page = visit((tmp_path / "public" / "sample.html").as_uri())
    ceiling = page.locator("tbody.ceiling")
    assert "oracle-answer >> bm25" in ceiling.inner_text()
    assert not page.locator("th.difference").is_visible()
    page.get_by_label("show ceilings").check()
    assert not ceiling.is_visible()
    page.get_by_label("show ceilings").uncheck()
    page.get_by_label("Baseline").select_option("bm25")
    for _ in range(2):  # the second time from the address
        row = page.locator("tbody:not(.ceiling) tr", has=page.locator("input[value='replay >> bm25']"))
        gain = 100 * (lines["replay >> bm25"].average - lines["bm25"].average)
        assert row.locator("td.difference").inner_text() == f"{gain:+.2f}"
        cells = row.locator("td[data-plain]").all_inner_texts()
        wanted = lines["replay >> bm25"]
        marks = [wanted.marks.get(column, "") for column in ("", *wanted.values)]
        assert sorted(re.sub(r"[\d.]", "", text) for text in cells) == sorted(marks)
        assert "†" in cells[0]
        assert page.locator("[data-baseline-note] code").inner_text() == "bm25"
        page.goto(page.url)
        page.reload()
    page.get_by_label("Baseline").select_option("")
    assert not page.locator("th.difference").is_visible()
    assert "†" not in page.locator("table.board").inner_text()


def test_of_many_systems_the_plain_and_the_best_can_be_baselines(tmp_path):
    from ledgers import BM25, add_everywhere

    reranked = ({"spec": "x", "kind": "reranker"},)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for place in range(20):
            stages = BM25 if place < 9 else (*BM25, *reranked)
            add_everywhere(ledger, f"system{place:02}", "sample", 0.02 * place, stages=stages)
        found = baseline_names(board(ledger, View(group="sample")))
    assert len(found) == MOST
    assert {"system19", "system14", "system08", "system03"} <= set(found)
