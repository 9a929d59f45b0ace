"""kill -9 at random moments, many times: is anything lost, unreadable, different, or paid for twice?

    python benchmarks/kills.py [--kills 100] [--seed 0]

Five kinds of work: runs, encoding, generating with a language model, reranking, building a nano set. Models answer on
loopback. In each home the same command is started, killed at a random moment of its work, and started again, a few
times over; then it may finish. After every kill the ledger must open whole and hold what it held before, as must kept
answers, scores and vectors. At the end every ranked list and every score must be, bit for bit, those of a command that
nobody disturbed, and nothing unfinished may lie about. One process at a time; about six minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import orjson
from bitflips import World, write_data

from chat_server import ChatServer
from jsonserver import JsonServer
from r2med.runs.ledger import Ledger
from r2med.store.arrays import count_entries
from rerank_server import RerankServer

IN_A_HOME = 5
"""Kills before the command may finish."""
CONCURRENCY = 4
LATENCY = 0.1
_MOST = "most between two kills"
HEADS = ("kills", "lost", "unreadable", "different", "left over", "requests", "paid twice", _MOST)


class Work(NamedTuple):
    """A command that is killed, and the server that it asks."""

    command: Sequence[str]
    server: JsonServer | None = None


def works(folder: Path, chat: ChatServer, pairs: RerankServer) -> dict[str, Work]:
    large, run = str(write_data(World(folder, {})).folder / "large"), ["run", "--tasks"]
    asking = ["--concurrency", str(CONCURRENCY)]
    return {
        "run": Work([*run, "sample", large, "--", "bm25", "bm25-classic", "rrf(bm25, bm25-classic)"]),
        "encode": Work([*run, large, "sample", "--", "wordllama"]),
        "generate": Work([*run, "sample", *asking, "--", f"hyde(tiny@{chat.url}) >> bm25"], chat),
        "rerank": Work([*run, "sample", *asking, "--", f"bm25 >> api-rerank(tiny@{pairs.url}, depth=20)"], pairs),
        "nano build": Work(["nano", "build", large, "--out", "nano", "--docs", "3000", "--dense", "wordllama"]),
    }


def start(work: Work, home: Path) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "R2MED_HOME": str(home / "home"), "R2MED_RERANK_KEY": "none", "R2MED_LLM_KEY": "none"}
    command = [sys.executable, "-m", "r2med", *work.command]
    return subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(work: Work, home: Path) -> float:
    """Let the command run to its end; how long that took."""
    began, process = time.perf_counter(), start(work, home)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"{work.command} failed:\n{said.decode()}")
    return time.perf_counter() - began


def held(home: Path) -> Counter[str]:
    """How much of each kind is kept: what may only grow."""
    found: Counter[str] = Counter()
    for name, table in (("ledger", "runs"), ("llm", "answers")):
        file = home / "home" / f"{name}.sqlite"
        if file.exists():
            connection = sqlite3.connect(file)
            if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise ValueError(f"{file} is damaged")
            if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]:
                found[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            connection.close()
    for kind in ("vectors", "scores"):
        found[kind] = sum(map(count_entries, (home / "home" / kind).glob("*/*.log")))
    return found


def outcome(home: Path) -> Any:
    """Every list and score of the ledger, and every byte of a nano set."""
    with Ledger(home / "home" / "ledger.sqlite") as ledger:
        runs = {
            (entry.system, entry.task): (ledger.run(entry), ledger.scores(entry), ledger.generations(entry))
            for entry in ledger.entries()
        }
    files = {str(file.relative_to(home)): file.read_bytes() for file in home.glob("nano/**/*") if file.is_file()}
    comparable = {
        key: (list(run.documents), run.scores.tobytes(), {m: v.tobytes() for m, v in scores.items()}, repr(texts))
        for key, (run, scores, texts) in runs.items()
    }
    return comparable, files


def left_over(home: Path) -> int:
    drafts = [path for path in home.rglob("*") if ".r2med-" in path.name]
    # What became of finished work is kept on purpose, in a folder of its own.
    accounts = [path for path in (home / "home" / "progress").glob("*") if path.name != "finished"]
    return len(drafts) + len(accounts)


def requests(work: Work) -> tuple[int, int]:
    """How many requests came, and how many of them had come before."""
    if work.server is None:
        return 0, 0
    bodies = [orjson.dumps(body, option=orjson.OPT_SORT_KEYS) for body in work.server.bodies]
    return len(bodies), len(bodies) - len(set(bodies))


def torment(work: Work, home: Path, moment: Callable[[], float], kills: int) -> Counter[str]:
    """Kill a command so many times in one home, and let it finish."""
    counts: Counter[str] = Counter()
    if work.server is not None:
        work.server.bodies.clear()
    before, twice = held(home), 0
    for _ in range(kills):
        process = start(work, home)
        try:
            process.wait(timeout=moment())
            continue  # it was faster
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        counts["kills"] += 1
        try:
            after = held(home)
        except (ValueError, sqlite3.Error):
            counts["unreadable"] += 1
            continue
        counts["lost"] += any(after[name] < count for name, count in before.items())
        before = after
        again = requests(work)[1]
        counts[_MOST] = max(counts[_MOST], again - twice)
        twice = again
    if not (home / "nano").exists():
        finish(work, home)
    made, again = requests(work)
    counts[_MOST] = max(counts[_MOST], again - twice)
    counts["requests"], counts["paid twice"] = made, again
    counts["left over"] = left_over(home)
    return counts


def measure(kills: int, seed: int, folder: Path, names: Sequence[str] = ()) -> dict[str, Counter[str]]:
    """The counts of each kind of work, or of those that are named."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        chat, pairs = (stack.enter_context(server) for server in (ChatServer(latency=LATENCY), RerankServer()))
        pairs.latency = LATENCY
        every = works(folder, chat, pairs)
        chosen = names or list(every)
        return {name: torment_often(every[name], kills // len(chosen), chance, folder / name) for name in chosen}


def torment_often(work: Work, kills: int, chance: random.Random, folder: Path) -> Counter[str]:
    """Kill a command so many times in all, in several homes."""
    usual = finish(work, folder / "whole")
    truth = outcome(folder / "whole")
    total: Counter[str] = Counter()
    for number in range(3 * kills):
        if total["kills"] >= kills:
            break
        # The first third of a second is Python's own.
        moment = partial(chance.uniform, 0.35, usual)
        counts = torment(work, folder / str(number), moment, min(IN_A_HOME, kills - total["kills"]))
        counts["different"] = int(outcome(folder / str(number)) != truth)
        most = max(total[_MOST], counts[_MOST])
        total += counts
        total[_MOST] = most
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-kills-") as folder:
        table = measure(arguments.kills, arguments.seed, Path(folder))
    print(f"| work | {' | '.join(HEADS)} |\n|{'---|' * (len(HEADS) + 1)}")
    for name, counts in table.items():
        print(f"| {name} | {' | '.join(str(counts[head]) for head in HEADS)} |")


if __name__ == "__main__":
    main()
