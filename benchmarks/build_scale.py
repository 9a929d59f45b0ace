"""A build of 5,000 questions with 60 candidates each from 60,000 documents, against a judge that takes 50 ms.

    python benchmarks/build_scale.py [--share 0.1] [--concurrency 32] [--folder FOLDER]

Documents are real sentences in new order (make_data.py). The judge is an HTTP server in a process of its own that
answers so many requests at a time and no more, each after 50 ms: no client can be faster than requests x 50 ms /
concurrency. The build runs as a person runs it (`r2med build run`), is killed halfway and gone on with. Reported are
the time against that bound, the peak of memory, how long it takes after the kill until the server is asked again and
after the end until the command knows that nothing is left to do, and how many requests came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from make_data import SHARED, Writer, real_sentences

QUESTIONS, DOCUMENTS, POOL = 5_000, 60_000, 60
LATENCY = 0.05
WORDS = 150
_SOURCE = Path(__file__).parents[1] / "src"


class Judge:
    """Speaks /v1/chat/completions: `slots` requests at a time, each after the latency; GET /counts says what came."""

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.asked: dict[int, int] = {}
        self.first = self.last = 0.0

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                content = await self.respond(head, reader)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ")
                writer.write(b"%d\r\n\r\n" % len(content) + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def respond(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        if head.startswith(b"GET"):
            counts = {"distinct": len(self.asked), "all": sum(self.asked.values()), "first": self.first}
            self.first = 0.0
            return orjson.dumps(counts)
        body = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        self.first = self.first or time.time()
        number = zlib.crc32(body)
        self.asked[number] = self.asked.get(number, 0) + 1
        async with self.slots:
            await asyncio.sleep(LATENCY)
        return reply(number)


def reply(number: int) -> bytes:
    """One of ten pairs is relevant, by chance that the request decides."""
    grade = 3 if number % 10 == 0 else number % 2
    said = {"answers": grade, "supports": grade, "reason": "It names the mechanism that is asked for.", "quote": ""}
    message = {"role": "assistant", "content": json.dumps(said)}
    usage = {"prompt_tokens": 400, "completion_tokens": 40}
    return orjson.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})


async def serve(slots: int) -> None:
    server = await asyncio.start_server(Judge(slots).connection, "127.0.0.1", 0, backlog=512, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


@contextmanager
def serving(slots: int) -> Iterator[str]:
    """The judge in a process of its own; its address."""
    command = [sys.executable, __file__, "--serve", "--concurrency", str(slots)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def counts(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/counts") as answer:
        return dict(orjson.loads(answer.read()))


def write_build(folder: Path, url: str, share: float) -> None:
    """Questions whose text and answer are taken from two documents each, so that two views find different ones."""
    writer = Writer(real_sentences(SHARED), 14)
    folder.mkdir(parents=True)
    documents = [writer.text(WORDS) for _ in range(round(DOCUMENTS * share))]
    lines = (orjson.dumps({"id": f"d{place}", "text": text}) + b"\n" for place, text in enumerate(documents))
    (folder / "documents.jsonl").write_bytes(b"".join(lines))
    rows = []
    for number in range(round(QUESTIONS * share)):
        asked, answered = writer.random.sample(documents, 2)
        question, answer = " ".join(asked.split()[:40]), " ".join(answered.split()[-8:])
        rows.append(orjson.dumps({"id": f"q{number}", "question": f"{question}?", "answer": answer}) + b"\n")
    (folder / "questions.jsonl").write_bytes(b"".join(rows))
    (folder / "guideline.md").write_text("3 answers it, 0 has nothing to do with it.\n")
    (folder / "plan.toml").write_text(
        f'[documents]\npath = "documents.jsonl"\n[chunk]\ntokens = 0\n[rules]\non = false\n'
        f'[mine]\ndepth = {POOL // 2}\n[judge]\nmodels = ["judge@{url}/v1"]\n'
    )


@dataclass(frozen=True)
class Measured:
    """One command."""

    seconds: float
    cpu: float
    """Of the processor, in seconds."""
    megabytes: float
    """The peak of its memory."""
    asked_after: float | None
    """Seconds from its start to the first request that the server saw; None where it saw none."""


def run(folder: Path, home: Path, url: str, slots: int, kill_at: int = 0) -> Measured:
    """`r2med build run`, killed once the server has been asked so many requests (0 for never)."""
    command = [sys.executable, "-m", "r2med", "build", "run", str(folder), "--concurrency", str(slots)]
    environment = {**os.environ, "R2MED_HOME": str(home), "PYTHONPATH": str(_SOURCE), "R2MED_PROGRESS": "0"}
    counts(url)
    began = time.time()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    first = 0.0
    while kill_at:
        time.sleep(0.5)
        seen = counts(url)
        first = first or seen["first"]
        if seen["all"] >= kill_at:
            process.kill()
            break
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 or kill_at, process.returncode
    seconds = time.time() - began
    first = first or counts(url)["first"]
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(seconds, cpu, usage.ru_maxrss / 1024, first - began if first else None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0, help="of questions and documents")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--folder", type=Path, help="where to build; a temporary folder otherwise")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    slots = arguments.concurrency
    if arguments.serve:
        asyncio.run(serve(slots))
        return
    with tempfile.TemporaryDirectory(prefix="r2med-build-") as place, serving(slots) as url:
        folder = arguments.folder or Path(place)
        write_build(folder / "build", url, arguments.share)
        expected = round(QUESTIONS * arguments.share) * POOL
        half = run(folder / "build", folder / "home", url, slots, expected // 2)
        killed = counts(url)
        rest = run(folder / "build", folder / "home", url, slots)
        done = counts(url)
        again = run(folder / "build", folder / "home", url, slots)
        final = counts(url)
    bound = done["all"] * LATENCY / slots
    took = half.seconds + rest.seconds
    twice, late = done["all"] - done["distinct"], final["all"] - done["all"]
    print(f"requests {done['distinct']:,}, asked twice {twice:,}, after the end {late:,}")
    print(f"bound {bound:.1f} s at {slots} at a time; both runs took {took:.1f} s = {took / bound:.2f} x")
    print(f"  (half {half.seconds:.1f} s for {killed['all']:,}, the rest {rest.seconds:.1f} s)")
    print(f"processor {half.cpu + rest.cpu:.1f} s, {(half.cpu + rest.cpu) / done['all'] * 1000:.2f} ms a request")
    print(f"peak memory {max(half.megabytes, rest.megabytes):,.0f} MB, of the repeat {again.megabytes:,.0f} MB")
    print(f"first request after {half.asked_after:.1f} s; after the kill {rest.asked_after:.1f} s")
    print(f"repeat of the finished build {again.seconds:.1f} s")


if __name__ == "__main__":
    main()
