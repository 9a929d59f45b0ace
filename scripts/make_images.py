"""Draw the pictures of the pages, all from runs of the sample: the board and a review in a browser, and figures.

    python scripts/make_images.py

It needs Chromium and the extras `web`, `plots` and `minilm`. A screenshot differs with the fonts of the machine, so no
test compares these files: renew them when the pages or charts look different.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from review_images import NAME, draw_review

import r2med as r2med_package

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SYSTEMS = (
    "bm25", "bm25-classic", "wordllama", "rrf(bm25, wordllama)", "minilm(backend=onnx)",
    "rrf(bm25-classic, minilm(backend=onnx))", "replay >> bm25", "oracle-answer >> bm25",
)  # fmt: skip
COMPARED, LOOKED_AT = ("bm25", "replay >> bm25"), "sample/MedQA-Diag"
"""Whose lists the workbench shows, and of which task."""
SHORT = "wordllama(max_length=32)"
"""A system for the figures alone, which loses documents that it does not read to their end."""
FIGURES = {
    "causes.png": ("causes", "bm25", "wordllama", SHORT, "rrf(bm25, wordllama)", "replay >> bm25"),
    "gap.svg": ("gap",),
    "differences.svg": ("differences", "bm25", "wordllama"),
}
PLAN = """
[questions]
path = "query.jsonl"
question = "text"

[documents]
path = "."

[mine]
systems = ["bm25", "bm25-classic", "wordllama"]
depth = 4

[judge]
models = ["scripted:judge.jsonl"]
"""
"""A build of the bundled cases, for the figures of its check."""
GRADES = (
    (r"Correct answer:\n[^\n]*?\b(\w{9,})\b.*\nPassage:\n[^\n]*?(?i:\b\1)", 3, 3),
    (r"Correct answer:\n[^\n]*?\b(\w{7,})\b.*\nPassage:\n[^\n]*?(?i:\b\1)", 3, 2),
    (r"Question:\n[^\n]*?\b(\w{11,})\b.*\nPassage:\n[^\n]*?(?i:\b\1)", 2, 2),
    (r"Question:\n[^\n]*?\b(\w{10,})\b.*\nPassage:\n[^\n]*?(?i:\b\1)", 1, 2),
    (r"Question:\n[^\n]*?\b(\w{8,})\b.*\nPassage:\n[^\n]*?(?i:\b\1)", 0, 1),
    ("", 0, 0),
)
"""What stands in for its judge: words that question, answer and passage have in common, and the grades they bring."""
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")


def r2med(*arguments: str) -> list[str]:
    """A command of this package."""
    return [sys.executable, "-m", "r2med", *arguments]


@contextmanager
def server() -> Iterator[str]:
    """`r2med serve` on a free port, and its address."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(r2med("serve", "--port", str(port), "--no-token"))
    try:
        while not answers(address):
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def answers(address: str) -> bool:
    """Whether a server is there."""
    try:
        with urlopen(address):
            return True
    except URLError:
        return False


def screenshots(address: str) -> None:
    """The board of the sample as a browser of 1280 pixels shows it, and a review that is played there."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=list(FLAGS))
        page = chromium.new_page(viewport={"width": 1280, "height": 1470}, color_scheme="light")
        page.goto(f"{address}/?group=sample")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / "board.png")
        draw_workbench(page, address)
        draw_live(page, address)
        draw_review(chromium, address, IMAGES)
        page.set_viewport_size({"width": 1280, "height": 620})
        page.goto(f"{address}/review/{NAME}/progress")
        page.screenshot(path=IMAGES / "review-progress.png")
        chromium.close()


def draw_workbench(page: Page, address: str) -> None:
    """A query of the sample in the workbench, with the lists of two systems."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{address}/query?{urlencode({'task': LOOKED_AT, 'a': COMPARED[0], 'b': COMPARED[1]})}")
    page.wait_for_selector("svg.slopes path")
    page.screenshot(path=IMAGES / "workbench.png")


def draw_live(page: Page, address: str) -> None:
    """The live page while the systems are run once more."""
    page.set_viewport_size({"width": 1280, "height": 620})
    page.goto(f"{address}/progress")
    command = subprocess.Popen(r2med("run", *SYSTEMS[:-1], "--tasks", "sample", "--fresh"))
    page.wait_for_selector("tr:nth-child(7) .cell-done >> nth=2", timeout=180_000)
    page.screenshot(path=IMAGES / "progress.png")
    command.terminate()
    command.wait()


def draw_build(scratch: Path) -> None:
    """The figures of a checked build."""
    folder = scratch / "cases"
    shutil.copytree(Path(r2med_package.__file__).parent / "data" / "sample" / "MedQA-Diag", folder)
    (folder / "plan.toml").write_text(PLAN, "utf-8")
    (folder / "guideline.md").write_text("Relevant is what leads to the diagnosis.", "utf-8")
    replies = (f'{{"answers": {a}, "supports": {s}, "reason": "", "quote": ""}}' for _, a, s in GRADES)
    rules = [{"match": pattern, "reply": reply} for (pattern, _, _), reply in zip(GRADES, replies, strict=True)]
    (folder / "judge.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules), "utf-8")
    subprocess.run(r2med("build", "run", "cases"), check=True, cwd=scratch)
    subprocess.run(r2med("build", "check", "cases", "--plot", "drawn"), check=True, cwd=scratch)
    for name in ("members", "scores"):
        shutil.copy(scratch / "drawn" / f"{name}.svg", IMAGES / f"build-{name}.svg")


def main() -> None:
    """Run the systems in a home of their own, and draw."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["R2MED_HOME"] = home
        subprocess.run(r2med("run", *SYSTEMS, "--tasks", "sample"), check=True)
        for system in COMPARED:
            subprocess.run(r2med("diagnose", system, "--tasks", LOOKED_AT), check=True, stdout=subprocess.DEVNULL)
        with server() as address:
            screenshots(address)
        subprocess.run(r2med("run", SHORT, "--tasks", "sample"), check=True)
        for name, arguments in FIGURES.items():
            subprocess.run(r2med("plot", *arguments, "--out", str(IMAGES / name)), check=True)
        draw_build(Path(home))


if __name__ == "__main__":
    main()
