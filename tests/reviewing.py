"""Projects for tests of reviews: small ones by hand, and answers that only the item decides."""

from __future__ import annotations

from r2med.reviews.rows import ReviewItem, ReviewProject, ReviewQuestion
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE
from r2med.reviews.store import ReviewStore, create_review


def make_project(
    name: str = "pilot", questions: int = 6, passages: int = 4, *, overlap: float = 0.5, repeat: float = 0.0, seed=0
) -> ReviewStore:
    """A project in which every `1 / overlap`-th item is for everybody."""
    step = round(1 / overlap) if overlap else 0
    asked = [
        ReviewQuestion(n, "made-up", f"q{n}", f"Why question {n}?", f"answer {n}") for n in range(1, questions + 1)
    ]
    items = [
        ReviewItem(number, 1 + (number - 1) // passages, f"d{number}", f"Passage {number} says something.", "random",
                   bool(step) and number % step == 0, facts={"label": number % 2, "ranks": {"bm25": number}})
        for number in range(1, questions * passages + 1)
    ]  # fmt: skip
    head = (name, "2026-01-01", ("made-up",), {"made-up": "x"}, "random", {"random": 1000})
    project = ReviewProject(*head, DEFAULT_SCALE, DEFAULT_GUIDELINE, overlap, repeat, seed)
    made = create_review(project, asked, items)
    made.rows(
        "PRAGMA synchronous = OFF"
    )  # a disk that syncs takes most of the time, and matters to none of these tests
    return made
