"""How pages look: nothing that keeps people out (axe-core), and nothing that has changed by accident (screenshots).

Every page of the server is looked at, by the list that is held against the routes, and every kind of static page, at a
desk and in the dark of a phone; with R2MED_ALL_LOOKS=1 at all widths in both themes. Screenshots are compared with
small stored ones, in which letters are too small for fonts to matter; R2MED_NEW_LOOKS=1 stores them anew.
"""

from __future__ import annotations

import io
import os
import shutil
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from test_web_controls import pages
from webparts import come_in, faults, served

from r2med.cli.main import app

STORED = Path(__file__).parent / "looks"
SIZE = (120, 75)
"""Of a stored screenshot: 12 points of a page are one of it."""
TOLERANCE = 3.0
"""How far shades may be from the stored ones on average, of 255; a card that is missing makes more."""
OTHER_FONT = 9.0
"""The same where letters have another width than those of the stored screenshots, so that columns move."""
WIDTH = """() => {
    const line = document.createElement('span');
    line.textContent = 'Hamburgefonstiv 0123456789';
    line.style.position = 'absolute';
    document.body.append(line);
    return line.getBoundingClientRect().width;
}"""
ALL = [(width, scheme) for width in (1440, 768, 390) for scheme in ("light", "dark")]
STATES = [ALL] if os.environ.get("R2MED_ALL_LOOKS") else [[(1440, "light")], [(390, "dark")]]
"""How pages are looked at, in turn."""
MAIN = (
    "board", "system", "published", "run", "progress", "query", "compare", "site-board", "site-submit", "report",
)  # fmt: skip
HIDDEN = "td.when, [id^=cost-], #provenance dd, dd, [data-card=runs] td, .lead code { visibility: hidden !important }"
"""What is different on every machine and in every run: dates, seconds, ids. By a style: a page may bring it anew."""


@pytest.fixture(scope="module")
def static_pages(rich, own_files, tmp_path_factory) -> dict[str, str]:
    """One of each kind of static page."""
    place = tmp_path_factory.mktemp("static")
    sent, public, own = place / "submissions", place / "public", own_files["site"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(shutil.copytree(rich, place / "home")))
        for words in (
            [
                "submit",
                "bm25",
                "replay >> bm25",
                "--tasks",
                "sample",
                "--title",
                "Ours",
                "--out",
                str(sent / "ours.zip"),
            ],
            ["site", "--submissions", str(sent), "--no-reports", "--out", str(public)],
            ["inspect", "bm25", "--tasks", "sample/Biology", "--worst", "2", "--html", str(place / "i.html")],
        ):
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
    files = {
        "site-board": public / "sample.html",
        "site-submit": public / "submit.html",
        "site-system": public / "systems" / "sample-bm25.html",
        "site-own": own / "sample.html",
        "site-published": own / "published" / "full-base-medcpt.html",
        "site-compare": own / "compare-sample.html",
        "site-sources": own / "sources.html",
        "report": own_files["report"],
        "inspect": place / "i.html",
    }
    return {name: path.as_uri() for name, path in files.items()}


@pytest.fixture(scope="module")
def quiet_home(rich, tmp_path_factory) -> Path:
    """A home in which nothing is worked on: what took a second, on a busy machine much, is shown as ended."""
    home = tmp_path_factory.mktemp("quiet") / "home"
    shutil.copytree(rich, home)
    shutil.rmtree(home / "progress", ignore_errors=True)
    return home


@pytest.fixture(scope="module")
def address(quiet_home):
    """A server over that home, of which nobody else asks anything."""
    with served(quiet_home / "ledger.sqlite") as found:
        yield found


@pytest.fixture(scope="module")
def looked_at(quiet_home, address, static_pages) -> dict[str, str]:
    """Every page by a name."""
    of_server = {path.strip("/").partition("/")[0] or "board": address + url for path, url in pages(quiet_home).items()}
    return {**of_server, "runs": address + "/runs", "reviews": address + "/review", **static_pages}


@pytest.fixture(scope="module")
def window(browser, address):
    """One tab for all of it."""
    # The style that hides what changes is one that no page would let in.
    context = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    context.set_default_timeout(20_000)
    page = context.new_page()
    come_in(page, address)
    yield page
    context.close()


def test_nothing_keeps_anybody_out(window, looked_at, quiet_home, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(quiet_home))
    found = {}
    for (name, url), states in zip(looked_at.items(), cycle(STATES), strict=False):
        window.goto(url, wait_until="load")
        for width, scheme in states:
            window.set_viewport_size({"width": width, "height": 900})
            window.emulate_media(color_scheme=scheme)
            wide = window.evaluate("document.documentElement.scrollWidth") > width
            for sentence in [*faults(window), *["needs sideways scrolling"] * wide]:
                found.setdefault(f"{name}: {sentence}", []).append((width, scheme))
    assert found == {}


def small(window, url: str) -> np.ndarray:
    """A page at a desk, seen from far away."""
    window.set_viewport_size({"width": 1440, "height": 900})
    window.emulate_media(color_scheme="light", reduced_motion="reduce")
    window.goto(url, wait_until="load")
    shot = Image.open(io.BytesIO(window.screenshot(style=HIDDEN)))
    return np.asarray(shot.convert("L").resize(SIZE, Image.Resampling.BOX), dtype=np.float64)


def apart(seen: np.ndarray, stored: np.ndarray) -> float:
    """How far shades are apart, on average."""
    return float(np.abs(seen - stored).mean())


def test_the_main_pages_look_as_they_did(window, looked_at, quiet_home, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(quiet_home))
    seen = {name: small(window, looked_at[name]) for name in MAIN}
    letters = window.evaluate(WIDTH)
    if os.environ.get("R2MED_NEW_LOOKS"):
        STORED.mkdir(exist_ok=True)
        (STORED / "letters.txt").write_text(f"{letters:.2f}\n")
        for name, shades in seen.items():
            Image.fromarray(shades.round().astype(np.uint8)).save(STORED / f"{name}.png", optimize=True)
    stored = {name: np.asarray(Image.open(STORED / f"{name}.png"), dtype=np.float64) for name in MAIN}
    changed = {name: apart(seen[name], stored[name]) for name in MAIN}
    same = abs(letters - float((STORED / "letters.txt").read_text())) < 0.01 * letters
    assert {name: value for name, value in changed.items() if value > (TOLERANCE if same else OTHER_FONT)} == {}
    pairs = [(one, other) for one in MAIN for other in MAIN if one != other]
    near = {pair: apart(seen[pair[0]], stored[pair[1]]) for pair in pairs}
    assert min(near.values()) > TOLERANCE, "one page would be taken for another"
    assert sum(path.stat().st_size for path in STORED.iterdir()) < 300_000
