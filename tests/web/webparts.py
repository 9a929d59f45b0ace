"""Ledgers for the tests of pages: real runs of the bundled sample, and a task whose documents try to be markup."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.testclient import TestClient

import r2med
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.jobs import Job, Jobs
from r2med.web.library import Library
from r2med.web.server import page_server

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
TOKEN = "a-token-of-the-tests"
ATTACK = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def hostile_task(folder: Path) -> Path:
    """A task in which ids, queries and documents hold markup."""
    documents = {"d1": f"scurvy and swollen gums {ATTACK}", "d<b>2": "bleeding gums \x1b[31m", "d3": "a broken leg"}
    queries = {"q<i>1": f"why do gums swell? {ATTACK}", "q2": "broken leg"}
    rows = {
        "corpus.jsonl": [{"id": name, "text": text} for name, text in documents.items()],
        "query.jsonl": [{"id": name, "text": text, "answer": ATTACK} for name, text in queries.items()],
        "qrels.jsonl": [{"q_id": "q<i>1", "p_id": "d1", "score": 1}, {"q_id": "q2", "p_id": "d3", "score": 1}],
    }
    return _written(folder, rows)


def long_task(folder: Path) -> Path:
    """A task whose relevant document is a genome: one word of a million letters."""
    texts = {"d1": "gums " + 250_000 * "ACGT", "d2": 300 * "a swollen gum "}
    rows = {
        "corpus.jsonl": [{"id": name, "text": text} for name, text in texts.items()],
        "query.jsonl": [{"id": "q1", "text": "why do gums swell?"}],
        "qrels.jsonl": [{"q_id": "q1", "p_id": "d1", "score": 1}],
    }
    return _written(folder, rows)


def _written(folder: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def fill(home: Path) -> str:
    """Runs of three systems on the sample and of two on the hostile task; returns the hostile task's name."""
    r2med.evaluate(["bm25", "bm25-classic", "rrf(bm25, bm25-classic)", "replay >> bm25"], "sample")
    report = r2med.evaluate(["bm25", "bm25-classic"], hostile_task(home / "hostile"))
    return report.results[0].task


def entered(library: Library, base_url: str = "http://127.0.0.1:8421") -> TestClient:
    """A client of the whole application that has come in by the printed address."""
    client = TestClient(create_app(library, Access(TOKEN)), base_url=base_url)
    assert client.get(f"/static/icon.svg?token={TOKEN}").status_code == 200
    return client


def come_in(page: Any, url: str) -> None:
    """Have the browser of a page known to the server, as the printed address does."""
    place = urlsplit(url)
    if place.scheme == "http":
        page.request.get(f"http://{place.netloc}/static/icon.svg?token={TOKEN}")


RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
LONG = ("tbody > tr", ".onelist li", ".querylist > li")
REPEATED = [] if os.environ.get("R2MED_ALL_LOOKS") else [[f"{part}:nth-child(n+13)"] for part in LONG]
"""What is not looked at: lines of long lists that are made as the dozen before them. Their contrasts take the time."""
ASK = """([rules, exclude]) => axe.run({exclude}, {runOnly: rules, resultTypes: ['violations']}).then((found) => ({
    passes: found.passes.length,
    faults: found.violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`)),
}))"""


def faults(page: Any) -> list[str]:
    """What axe-core finds wrong with a page for people who cannot see it well."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate(ASK, [RULES, REPEATED])
    assert found["passes"] > 20
    return found["faults"]


@contextmanager
def served(path: Path, library: Library | None = None, port: int = 0) -> Iterator[str]:
    """A real server on a free port of the loopback, or on a given one, and its address; `TOKEN` opens it."""
    if not port:
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            port = place.getsockname()[1]
    app = create_app(library or Library(path), Access(TOKEN))
    server = page_server(app, "127.0.0.1", port)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.feed.close()
        server.should_exit = True
        thread.join(10)


def job_of(jobs: Jobs, number: int) -> Job:
    return next(job for job in jobs.all() if job.number == number)


def finish(jobs: Jobs) -> None:
    while any(job.active for job in jobs.all()):
        time.sleep(0.02)
