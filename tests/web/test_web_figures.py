"""What pages say about figures: the same as every other output, and nothing that cannot be known."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape

import pytest
from click.testing import CliRunner
from webparts import entered

import r2med
from ledgers import add_everywhere
from r2med.cli.main import app
from r2med.measure import bootstrap
from r2med.runs.ledger import Ledger
from r2med.web.library import Library


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    return tmp_path


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def timed(search: float, cores: int = 2, **more: object) -> dict[str, object]:
    """The record of a run that took so long to search, on a machine with so many cores."""
    return {"work": [{"load": 5.0, "index": 3.0, "search": search, "ask": 0.0, **more}],
            "machine": {"platform": "linux", "cores": cores}}  # fmt: skip


def test_seconds_that_do_not_compare_are_not_compared_and_the_page_says_so(home):
    systems = {"bm25": (0.2, timed(1.0)), "bm25-classic": (0.3, timed(2.0)), "bm25(k1=2.5)": (0.9, timed(0.1, 64)),
               "bm25(k1=3.5)": (0.8, timed(0.1, reused=["scores of pairs"]))}  # fmt: skip
    with Ledger() as ledger:
        for system, (score, record) in systems.items():
            add_everywhere(ledger, system, "sample", score, **record)
    site = home / "site" / "sample.html"
    command("site", *systems, "--no-reports", "--out", str(home / "site"))
    pages = {"server": entered(Library()).get("/?group=sample").text, "site": site.read_text("utf-8")}
    for place, page in pages.items():
        panel = re.search(r'<section class="card" id="cost-seconds">.*?</section>', page, re.DOTALL)
        assert panel, place
        points = set(re.findall(r"<title>([^<]+): nDCG@10", panel[0]))
        assert points == {"bm25", "bm25-classic"}, place
        assert "Left out, seconds not comparable" in panel[0]
        assert "bm25(k1=2.5), bm25(k1=3.5)." in panel[0]
        shown = {name: cells[-2] for name, cells in cells_of(page).items()}
        assert shown["bm25(k1=3.5)"] == "?", "a search that was partly taken from the cache took nobody knows how long"
        assert shown["bm25"] == "0.500"


def cells_of(page: str) -> dict[str, list[str]]:
    """The figures of each line of a board."""
    found = {}
    for row in re.findall(r"<tr class=.*?</tr>", page, re.DOTALL):
        name = unescape(re.search(r"<code[^>]*>([^<]+)</code>", row)[1])
        found[name] = re.findall(r'<td class="n(?! rank)[^"]*"[^>]*>([^<]*)</td>', row)
    return found


def test_known_causes_draw_no_bootstrap(home, monkeypatch):
    """The board shows means of causes: whatever it takes to draw them, it is no resampling."""
    r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    drawn, original = [], bootstrap.resampled_means
    monkeypatch.setattr(bootstrap, "resampled_means", lambda *given: drawn.append(given) or original(*given))
    page = "/?group=sample&task=sample/Biology"
    before = entered(Library()).get(page)
    without = len(drawn)
    assert without > 0, "intervals are drawn somewhere else now: count there"
    assert 'id="causes"' not in before.text
    command("diagnose", "bm25", "bm25-classic")
    drawn.clear()
    client = entered(Library())
    assert 'id="causes"' in client.get(page).text
    assert len(drawn) == without
    drawn.clear()
    for address in (page, "/?group=sample&sort=name", page + "&q=bm25"):
        client.get(address)
    again = len(drawn)
    for address in (page, "/?group=sample&sort=name", page + "&q=bm25"):
        client.get(address)
    assert len(drawn) == again, "what was drawn once is kept"


def test_marks_of_significance_are_the_same_in_every_output(home):
    """On the page, in each of its files and in each format of the command: which system, which column, which mark."""
    values = [0.40, 0.42, 0.38, 0.44, 0.36, 0.41, 0.39, 0.43]
    shifts = {
        "bm25": [0.0] * 8,
        "bm25-classic": [0.3] * 8,
        "bm25(k1=2.5)": [-0.3] * 8,
        "bm25(k1=3.5)": [0.01, -0.01] * 4,
    }
    with Ledger() as ledger:
        for system, shift in shifts.items():
            scores = [value + each for value, each in zip(values, shift, strict=True)]
            add_everywhere(ledger, system, "sample", scores)
    client = entered(Library())
    page = client.get("/?group=sample&baseline=bm25").text
    asked = ("board", "--group", "sample", "--own", "--baseline", "bm25", "--format")
    files = {name: client.get(f"/board.{name}?group=sample&baseline=bm25").text for name in ("csv", "json", "tex")}
    columns = 9
    expected = {"bm25": "", "bm25-classic": "†" * columns, "bm25(k1=2.5)": "‡" * columns, "bm25(k1=3.5)": ""}
    outputs = {
        "page": {name: "".join(cells) for name, cells in cells_of(page).items()},
        "page, CSV": from_csv(files["csv"]),
        "page, JSON": from_json(files["json"]),
        "page, LaTeX": from_lines(files["tex"], shifts, "&"),
        "CSV": from_csv(command(*asked, "csv")),
        "JSON": from_json(command(*asked, "json")),
        "LaTeX": from_lines(command(*asked, "latex"), shifts, "&"),
        "Markdown": from_lines(command(*asked, "md"), shifts, "|"),
        "terminal": from_lines(command(*asked, "terminal"), shifts, ""),
    }
    for place, found in outputs.items():
        marks = {name: re.sub(r"[^†‡]", "", text) for name, text in found.items()}
        assert marks == expected, place
    for text in (page, files["tex"], command(*asked, "md"), command(*asked, "terminal")):
        assert re.search(r"(†|dagger\$) better, (‡|.*ddagger\$) worse than (<code>)?bm25", text)


def from_csv(text: str) -> dict[str, str]:
    return {row["system"]: row["significance"] for row in csv.DictReader(io.StringIO(text))}


def from_json(text: str) -> dict[str, str]:
    return {line["name"]: "".join(line.get("significance", {}).values()) for line in json.loads(text)["lines"]}


def from_lines(text: str, systems: dict[str, list[float]], mark: str) -> dict[str, str]:
    """The line of each system in a table of text."""
    plain = text.replace(r"\dagger", "†").replace(r"\ddagger", "‡").replace("\\-", "").replace("\\allowbreak{}", "")
    rows = [line for line in plain.splitlines() if mark in line]
    return {name: next(line for line in rows if re.search(rf"(^|[\s|&]){re.escape(name)}\s", line)) for name in systems}
