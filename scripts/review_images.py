"""Play a review of the bundled sample in Chromium and take the pictures of its page: two people and an adjudicator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

TASK, NAME = "sample/MedQA-Diag", "pilot"
DESKTOP = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "color_scheme": "dark",
}
NOTE = "Names the disease, but not what tells it from others."


def call(*arguments: str) -> str:
    """What a command of this package prints."""
    command = [sys.executable, "-m", "r2med", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def draw_review(chromium: Any, address: str, images: Path) -> None:
    """Make a project on a server that runs, judge it, and take pictures on the way."""
    call("review", "new", NAME, "--from", TASK, "bm25", "--items", "20", "--overlap", "50%")
    ada = enter(chromium, address, "Dr. Ada", DESKTOP)
    judge(ada, 0, 2)
    ada.keyboard.press("h")
    ada.keyboard.press("Enter")
    ada.keyboard.press("a")
    ada.wait_for_selector("details.shown")
    ada.screenshot(path=images / "review-desk.png")
    judge(ada, 0)
    ben = enter(chromium, address, "Dr. Ben", PHONE)
    ben.screenshot(path=images / "review-phone.png")
    judge(ben, 1)
    eve = enter(chromium, address, "Dr. Eve", DESKTOP, "--adjudicator")
    eve.screenshot(path=images / "review-ruling.png")


def enter(chromium: Any, address: str, person: str, screen: dict[str, Any], *options: str) -> Any:
    """Somebody at the desk, by the link that they are sent."""
    page = chromium.new_context(**screen).new_page()
    page.goto(call("review", "invite", NAME, person, "--url", address, *options).strip())
    page.click("a.button.primary")
    page.wait_for_selector(".desk")
    return page


def judge(page: Any, strictness: int, most: int = 1000) -> None:
    """Judge what comes by how many words of the question a passage has: enough for a picture."""
    for _ in range(most):
        if page.url.endswith("/done"):
            return
        marked = page.locator(".passage mark.query").count()
        page.locator("details.noted").evaluate("each => { each.open = true }")
        if strictness and marked:
            page.fill("textarea[name=note]", NOTE)
        before = page.url
        page.locator(f".grades [data-say='{grade(marked, strictness)}']").click()
        page.wait_for_url(lambda url, before=before: url != before)


def grade(marked: int, strictness: int) -> int:
    """Return a grade by how many words of the question a passage has; a stricter person gives one less."""
    return max(0, min(3, marked // 2) - strictness * (marked > 3))
