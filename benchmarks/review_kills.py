"""What kill -9 loses of a review: scripted browsers judge while the server dies at random moments and comes back.

Each browser does what the page does: it asks for the next item, sends the form, and believes that a decision is saved
when the server says so. When the server dies, it sends the same form again as soon as there is one. At the end every
decision that was acknowledged is looked for in the store.

    python benchmarks/review_kills.py [--kills 50] [--browsers 20] [--items 10000]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import r2med
from r2med.reviews.access import invite
from r2med.reviews.rows import ReviewItem, ReviewProject, ReviewQuestion
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE
from r2med.reviews.store import ReviewStore, create_review

WORDS = "gums bleed swell scurvy vitamin deficiency skin bruise wound heal sailor fruit collagen diet week".split()
PASSAGES = 20
"""Items of a question."""
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def make_review(name: str, items: int, chance: random.Random, overlap: float = 0.0, words: int = 120) -> ReviewStore:
    """A project with so many items."""
    questions = [
        ReviewQuestion(n, "made-up", f"q{n}", " ".join(chance.choices(WORDS, k=40)), "scurvy")
        for n in range(1, -(-items // PASSAGES) + 1)
    ]
    made = [
        ReviewItem(
            n,
            1 + (n - 1) // PASSAGES,
            f"d{n}",
            " ".join(chance.choices(WORDS, k=words)),
            "random",
            chance.random() < overlap,
        )
        for n in range(1, items + 1)
    ]
    head = (name, "2026-01-01", ("made-up",), {}, "random", {"random": items})
    return create_review(ReviewProject(*head, DEFAULT_SCALE, DEFAULT_GUIDELINE, overlap, 0.05, 0), questions, made)


class Browser(threading.Thread):
    """Somebody who judges until nothing is left."""

    def __init__(self, port: int, project: str, secret: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.port, self.project, self.secret = port, project, secret
        self.chance = random.Random(seed)
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Decision to its position and grade."""
        self.repeated = 0
        """Requests that no server answered, and that were sent again."""
        self.wrong: list[str] = []
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Judge, whatever the server does."""
        address = self._until(self._next)
        while address and not address.endswith("/done"):
            fields = self._until(
                lambda at=address: dict(FIELD.findall(self._ask("GET", f"{at}?part=1")[2].partition("decide")[2]))
            )
            grade = self.chance.randrange(4)
            reply = self._until(lambda at=address, form={**fields, "say": grade}: self._send(at, form))
            if "saved" not in reply:
                self.wrong.append(str(reply))
                address = self._until(self._next)
                continue
            self.acknowledged[reply["saved"]] = (int(address.rpartition("/")[2]), grade)
            address = reply["next"]
            if address.endswith("/done"):
                # Others may have been dealt the rest; the desk itself knows.
                address = self._until(self._next)

    def _until(self, act: Callable[[], Any]) -> Any:
        """Try until a server answers."""
        tried = 0
        while True:
            try:
                return act()
            except (OSError, http.client.HTTPException, ValueError):
                self._connection = None
                tried += 1
                self.repeated += tried == 1
                time.sleep(0.05)

    def _next(self) -> str:
        return self._ask("GET", f"/review/{self.project}")[1]

    def _send(self, address: str, form: dict[str, object]) -> dict[str, Any]:
        return json.loads(self._ask("POST", address, urlencode(form))[2])

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str, str]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {
            "cookie": f"r2med_review_{self.port}_{self.project}={self.secret}",
            "origin": f"http://127.0.0.1:{self.port}",
        }
        if method == "POST":
            headers |= {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.getheader("location", ""), answer.read().decode()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start_server(port: int) -> subprocess.Popen[bytes]:
    """A server; returns when it listens."""
    command = [sys.executable, "-m", "r2med", "serve", "--port", str(port), "--token", "of-the-benchmark"]
    env = os.environ | {"PYTHONPATH": str(Path(r2med.__file__).parents[1])}
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env)
    for _ in range(1200):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.05)
    raise SystemExit("the server does not listen")


def working(browsers: list[Browser]) -> Iterator[int]:
    """How many decisions are acknowledged, for as long as somebody judges."""
    while any(each.is_alive() for each in browsers):
        yield sum(len(each.acknowledged) for each in browsers)
        time.sleep(0.01)


def measure(kills: int, browsers: int, items: int, seed: int = 0) -> dict[str, int]:
    """Judge a whole project while the server is killed so many times; what became of the decisions."""
    chance = random.Random(seed)
    with make_review("kills", items, chance) as store:
        port = free_port()
        people = [
            Browser(port, "kills", invite(store, f"reviewer {number}"), seed + number) for number in range(browsers)
        ]
        # Kills are spread over the work, at moments that nothing else decides.
        moments = sorted(chance.uniform(0, items * 0.95) for _ in range(kills))
        server = start_server(port)
        began, killed = time.perf_counter(), 0
        for person in people:
            person.start()
        for done in working(people):
            if moments and done >= moments[0]:
                time.sleep(chance.uniform(0, 0.05))
                server.kill()
                server.wait()
                killed += 1
                moments.pop(0)
                server = start_server(port)
        taken = time.perf_counter() - began
        server.kill()
        server.wait()
        return count(store, people, killed) | {"seconds": round(taken)}


def count(store: ReviewStore, people: list[Browser], killed: int) -> dict[str, int]:
    """Compare what was acknowledged with what is kept."""
    rows = {row.id: row for row in store.decisions()}
    acknowledged = {key: value for person in people for key, value in person.acknowledged.items()}
    lost = [
        key for key, said in acknowledged.items() if key not in rows or (rows[key].position, rows[key].grade) != said
    ]
    places = Counter((row.reviewer, row.position) for row in rows.values())
    intact = sqlite3.connect(store.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    first = {row.item for row in rows.values() if not row.again}
    return {
        "kills": killed,
        "acknowledged": sum(len(person.acknowledged) for person in people),
        "kept": len(rows),
        "lost": len(lost),
        "doubled": sum(number - 1 for number in places.values()),
        "refused": sum(len(person.wrong) for person in people),
        "sent again": sum(person.repeated for person in people),
        "items judged": len(first),
        "damaged files": int(not intact),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-review-kills-") as folder:
        os.environ["R2MED_HOME"] = str(Path(folder))
        counts = measure(asked.kills, asked.browsers, asked.items, asked.seed)
    print("| " + " | ".join(counts) + " |\n|" + "---|" * len(counts))
    print("| " + " | ".join(f"{number:,}" for number in counts.values()) + " |")


if __name__ == "__main__":
    main()
