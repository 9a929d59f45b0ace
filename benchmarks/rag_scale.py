"""A study of answers at full size against a server of 200 ms latency: how near to the best possible time it comes.

    python benchmarks/rag_scale.py

876 questions in eight tasks, as R2MED has, made up; five kinds of arms with three systems: closed, gold and random are
the same for all systems and asked once, so that there are nine arms and 7,884 answers at concurrency 32. The bound is
what they would take if the client took no time. The systems are run before the clock starts. The server is the tests'
own, in a process of its own. Then the same command again, which asks nothing.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from r2med.answers.arms import make_arms
from r2med.answers.report import make_report
from r2med.answers.study import StudyOptions, run_study
from r2med.llm.budget import Limits
from r2med.llm.cards import find_model
from r2med.llm.client import Client, session
from r2med.pipeline.evaluate import evaluate
from r2med.store.cache import home

SIZES = (103, 77, 88, 97, 118, 150, 114, 129)
DOCUMENTS = 1_000
SYSTEMS = ("bm25", "bm25-classic", "rrf(bm25, bm25-classic)")
CONCURRENCY = 32
LATENCY = 0.2
SERVER = Path(__file__).parents[1] / "tests" / "llm" / "chat_server.py"


@contextmanager
def serving(latency: float) -> Iterator[str]:
    command = [sys.executable, str(SERVER), "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"tiny@{process.stdout.readline().strip()}"
        process.stdin.close()


def write_task(folder: Path, questions: int, seed: int) -> Path:
    """Questions and documents of made-up words, in which a question shares a few with its relevant documents."""
    drawn = random.Random(seed)
    words = [f"w{number}" for number in range(5_000)]
    folder.mkdir()
    documents = [" ".join(drawn.choices(words, k=180)) for _ in range(DOCUMENTS)]
    asked, judged = [], []
    for number in range(questions):
        relevant = drawn.sample(range(DOCUMENTS), 4)
        text = " ".join([*drawn.choices(words, k=120), *documents[relevant[0]].split()[:8]])
        asked.append({"id": f"q{number}", "text": text, "answer": f"disease {number}"})
        judged += [{"q_id": f"q{number}", "p_id": f"d{place}", "score": 1} for place in relevant]
    rows = {"query": asked, "qrels": judged}
    rows["corpus"] = [{"id": f"d{place}", "text": text} for place, text in enumerate(documents)]
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def timed(tasks: list[str], options: StudyOptions) -> tuple[float, float, int]:
    """Seconds on the clock, seconds of the processor, and answers."""
    arms = make_arms(SYSTEMS)
    clock, processor = time.perf_counter(), time.process_time()
    with session(Limits(concurrency=CONCURRENCY)):
        answers, notes = run_study(arms, tasks, options)
    took = time.perf_counter() - clock, time.process_time() - processor
    report = make_report(answers, notes)
    return *took, sum(arm.counts.asked for arm in report.arms)


def bare(model: str, count: int) -> float:
    """Seconds a request of the client alone, with prompts of the same length."""
    asked = find_model(model)
    requests = [asked.request(f"{count} case {number} " + "w1234 " * 1_000) for number in range(count)]
    started = time.perf_counter()
    with Client(Limits(concurrency=CONCURRENCY)) as client:
        client.ask_all(requests)
    return (time.perf_counter() - started) / count


def answers_kept() -> int:
    """How many answers are in the file of answers."""
    with closing(sqlite3.connect(home() / "llm.sqlite")) as database:
        return int(database.execute("SELECT count(*) FROM answers").fetchone()[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = f"{folder}/home"
        tasks = [str(write_task(Path(folder) / f"task{n}", size, n)) for n, size in enumerate(SIZES)]
        evaluate(list(SYSTEMS), tasks)
        with serving(LATENCY) as model:
            options = StudyOptions(model)
            before = bare(model, 1_600)
            kept = answers_kept()
            wall, processor, asked = timed(tasks, options)
            requests = answers_kept() - kept
            alone = (before + bare(model, 1_601)) / 2
            again, _, _ = timed(tasks, options)
    # Arms that show the same passages to the same question ask once.
    bound = requests * LATENCY / CONCURRENCY
    print(
        f"{asked:,} answers by {requests:,} requests of {LATENCY * 1000:.0f} ms, {CONCURRENCY} at a time: {wall:.1f} s"
    )
    print(f"the bound: {bound:.1f} s; ratio {wall / bound:.3f}")
    print(f"the client alone, before and after: {alone * asked:.1f} s for as many; ratio {wall / (alone * asked):.3f}")
    print(f"processor of this process: {processor:.1f} s, {processor / asked * 1000:.2f} ms an answer")
    print(f"the same again, from the ledger: {again:.1f} s")


if __name__ == "__main__":
    main()
