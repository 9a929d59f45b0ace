"""kill -9 at 20 random moments over one build: what is paid for twice, and whether the same bytes come out.

    python benchmarks/build_kills.py [--kills 20] [--seed 0]

The build is the tests' own (the sample's questions, every step on, its judgements as the judge's), asked of a server
that counts. Moments are spread over the requests of the build, with some before the first request of a process and
some after the last one, while the task is written. After each kill the kept answers are counted: what the server was
asked and nobody kept was under way, and that alone may be asked again.
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
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "build"))

from llm.chat_server import ChatServer, Say

from building import brain, files_of, write_plan

SOURCE = Path(__file__).parents[1] / "src"
CONCURRENCY, LATENCY = 4, 0.05


@dataclass
class Killed:
    """What kills did to a build."""

    kills: int = 0
    requests: int = 0
    """Of a build that nobody disturbed."""
    asked: int = 0
    under_way: list[int] = field(default_factory=list)
    """At each kill, the requests that the server had and whose answers were not kept."""
    same: bool = False
    """Whether every file of the task is the same, byte for byte."""

    @property
    def twice(self) -> int:
        """Requests beyond those of a build that nobody disturbed."""
        return self.asked - self.requests


def start(folder: Path, home: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "R2MED_HOME": str(home)}
    command = [sys.executable, "-m", "r2med", "build", "run", str(folder), "--concurrency", str(CONCURRENCY)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(folder: Path, home: Path) -> None:
    process = start(folder, home)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(said.decode())


def kept(home: Path) -> int:
    """How many answers are kept."""
    file = home / "llm.sqlite"
    if not file.exists():
        return 0
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("SELECT count(*) FROM answers").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # killed before there was a table
    finally:
        connection.close()


def kill_at(process: subprocess.Popen[bytes], server: ChatServer, target: float, chance: random.Random) -> bool:
    """Kill a build once the server has been asked so often, or a moment later; whether it was still running."""
    if server.attempts >= target:
        time.sleep(chance.uniform(0, 1))
    while process.poll() is None and server.attempts < target:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, LATENCY))
    running = process.poll() is None
    process.kill()
    process.communicate()
    return running


def torment(kills: int, seed: int, folder: Path, latency: float = LATENCY) -> Killed:
    """Disturb one build so many times, and let it finish."""
    said, chance = brain(), random.Random(seed)
    with ChatServer(lambda prompt, nth: Say(text=said(prompt), delay=latency)) as server:
        model = f"tiny@{server.url}"
        finish(write_plan(folder / "whole", model), folder / "home-1")
        found = Killed(requests=server.attempts)
        server.asked.clear()
        build, home = write_plan(folder / "killed", model), folder / "home-2"
        # Beyond the last request there is still the task to write.
        for target in sorted(chance.uniform(0, 1.1 * found.requests) for _ in range(kills)):
            process = start(build, home)
            found.kills += kill_at(process, server, min(target, found.requests), chance)
            found.under_way.append(server.attempts - kept(home) - sum(found.under_way))
        finish(build, home)
        found.asked = server.attempts
    found.same = files_of(build / "task") == files_of(folder / "whole" / "task")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-kills-") as folder:
        found = torment(arguments.kills, arguments.seed, Path(folder))
    print(f"{found.kills} kills, {found.requests} requests undisturbed, {found.asked} asked: {found.twice} twice")
    print(f"under way when killed: {sum(found.under_way)}, {max(found.under_way)} at the most ({found.under_way})")
    print(f"the same bytes: {'yes' if found.same else 'NO'}")


if __name__ == "__main__":
    main()
