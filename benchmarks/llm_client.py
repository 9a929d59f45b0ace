"""The chat client against a server of 200 ms latency: how much faster than one after another, and at what cost.

    python benchmarks/llm_client.py

The server is the tests' own, in a process of its own. 876 requests is one for each query of R2MED. The time for asking
them one after another is not sat out but computed: 876 times the mean of 25 that were asked one after another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from r2med.llm.budget import Limits
from r2med.llm.cards import find_model
from r2med.llm.client import Client
from r2med.llm.types import Model, Request

REQUESTS = 876
CONCURRENCY = 32
LATENCY = 0.2
IN_A_ROW = 25
SERVER = Path(__file__).parents[1] / "tests" / "chat_server.py"
CASE = "A 54-year-old man has bled from the gums for three weeks and has coiled hairs on his shins. " * 16


@contextmanager
def serving(latency: float) -> Iterator[Model]:
    command = [sys.executable, str(SERVER), "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield find_model(f"tiny@{process.stdout.readline().strip()}")
        process.stdin.close()


def requests(model: Model, label: str, count: int) -> list[Request]:
    return [model.request(f"{label} {number}\n{CASE}") for number in range(count)]


def timed(client: Client, asked: list[Request]) -> tuple[float, float]:
    """Seconds on the clock and seconds of this process's processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    replies = client.ask_all(asked)
    assert all(getattr(reply, "text", "") for reply in replies)
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = folder
        with serving(LATENCY) as model:
            with Client(Limits(concurrency=1)) as client:
                timed(client, requests(model, "warm", 2))
                single = timed(client, requests(model, "single", IN_A_ROW))[0] / IN_A_ROW
            with Client(Limits(concurrency=CONCURRENCY)) as client:
                timed(client, requests(model, "warm too", CONCURRENCY))
                wall, processor = timed(client, requests(model, "case", REQUESTS))
        started = time.perf_counter()
        with Client() as client:
            cached = client.ask_all(requests(model, "case", REQUESTS))
        repeat = time.perf_counter() - started
        assert all(getattr(reply, "cached", False) for reply in cached)
        with serving(0.0) as model, Client(Limits(concurrency=CONCURRENCY)) as client:
            timed(client, requests(model, "warm again", CONCURRENCY))
            bare = timed(client, requests(model, "no latency", REQUESTS))[0]
    ideal = -(-REQUESTS // CONCURRENCY) * LATENCY
    rows = [
        (
            "one request",
            f"{single * 1000:.1f} ms",
            f"mean of {IN_A_ROW} in a row; the server takes {LATENCY * 1000:.0f} ms",
        ),
        (f"{REQUESTS} one after another", f"{single * REQUESTS:.1f} s", "computed from the mean"),
        (f"{REQUESTS} at concurrency {CONCURRENCY}", f"{wall:.2f} s", f"{ideal:.1f} s if the client took no time"),
        ("times faster", f"{single * REQUESTS / wall:.1f}", ""),
        ("overhead on the clock", f"{(wall - ideal) / REQUESTS * 1000:.2f} ms", "a request, above the best possible"),
        ("overhead of the processor", f"{processor / REQUESTS * 1000:.2f} ms", "a request"),
        ("no latency at all", f"{bare / REQUESTS * 1000:.2f} ms", "a request, client and server together"),
        ("fully cached repeat", f"{repeat:.3f} s", f"{REQUESTS} requests, opening the file included"),
    ]
    for label, value, note in rows:
        print(f"{label:28}{value:>12}  {note}".rstrip())


if __name__ == "__main__":
    main()
