"""How fast the review desk is with 100,000 items: answers of a real server on the loopback, and keys in Chromium.

Makes a project of 100,000 items, lets somebody judge a part of it, asks every page of the desk many times, and then
presses keys in a real browser: from the key to the moment when the next passage stands on the page.

    python benchmarks/review_speed.py [--items 100000] [--judged 20000]
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from review_kills import free_port, make_review, start_server

from r2med.reviews.access import invite, join_path
from r2med.reviews.batches import Dealer
from r2med.reviews.rows import GRADED, DraftDecision
from r2med.reviews.store import ReviewStore

NAME = "speed"
KEYS = """
() => {
  window.taken = [];
  document.addEventListener("keydown", () => { window.pressed = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => {
    if (window.pressed) { window.taken.push(performance.now() - window.pressed); window.pressed = 0; }
  })).observe(document.querySelector("[data-desk]"), { childList: true });
}
"""
"""From a key to the frame that shows the next item, by the browser's own clock."""


def judge(store: ReviewStore, name: str, count: int) -> str:
    """Somebody who has judged so many items; their secret."""
    secret = invite(store, name)
    dealer, person = Dealer(store), store.reviewer(name)
    store.rows("PRAGMA synchronous = OFF")
    for number in range(count):
        place = dealer.next_open(person)
        if place is None:
            break
        store.record(person.id, place.position, DraftDecision(GRADED, number % 4), f"t{number}")
    return secret


def ask(port: int, path: str, cookie: str, times: int) -> list[float]:
    """Milliseconds until a page is there."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(times):
        began = time.perf_counter()
        connection.request("GET", path, headers={"cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        taken.append(1000 * (time.perf_counter() - began))
        assert answer.status in (200, 303), (path, answer.status)
    return taken


def show(name: str, taken: Sequence[float]) -> None:
    slowest = sorted(taken)[int(0.95 * len(taken))]
    print(f"| {name} | {statistics.median(taken):.1f} | {slowest:.1f} | {max(taken):.1f} |")


def press_keys(port: int, secret: str, count: int) -> list[float]:
    """Milliseconds from a key to the next item on the screen; nothing without Chromium."""
    chromium = shutil.which("chromium")
    if not chromium:
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}{join_path(NAME, secret)}")
        page.click("a.button.primary")
        page.wait_for_selector(".desk")
        page.evaluate(KEYS)
        for number in range(count):
            page.keyboard.press(str(number % 4))
            while page.evaluate("window.taken.length") <= number:
                page.wait_for_timeout(5)
            # A person reads; meanwhile the page fetches what comes next.
            page.wait_for_timeout(150)
        taken: list[float] = page.evaluate("window.taken")
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--judged", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-review-speed-") as folder:
        os.environ["R2MED_HOME"] = folder
        began = time.perf_counter()
        with make_review(NAME, asked.items, random.Random(0), overlap=0.2) as store:
            size = store.path.stat().st_size / 1e6
            print(f"{asked.items:,} items made in {time.perf_counter() - began:.0f} s, {size:.0f} MB")
            secret = judge(store, "Ada", asked.judged)
            fresh = invite(store, "Ben")
        port = free_port()
        server = start_server(port)
        try:
            cookie, new = (f"r2med_review_{port}_{NAME}={each}" for each in (secret, fresh))
            last, place = asked.judged, f"/review/{NAME}"
            print("| page | median | 95% | slowest |\n|---|---|---|---|")
            show("first page of somebody new", ask(port, place, new, 1))
            show("where to go on", ask(port, place, cookie, 100))
            show("an item", ask(port, f"{place}/item/{last + 1}", cookie, 200))
            show("an item that was judged", ask(port, f"{place}/item/{last // 2}", cookie, 200))
            show("an item, its changing part", ask(port, f"{place}/item/{last + 1}?part=1", cookie, 200))
            show("the end of the desk", ask(port, f"{place}/done", cookie, 100))
            keys = press_keys(port, secret, 100)
            if keys:
                show("a key to the next item on the screen", keys)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
