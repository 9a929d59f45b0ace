"""Nano sets: what building one costs, and how well sets of each policy stand for their source.

    python benchmarks/make_data.py FOLDER --task PMC-Clinical
    python benchmarks/nano_build.py FOLDER [--shared DATA]

The first table is of `r2med nano build` on 60,406 documents of 480 words, each policy in a process of its own: wall
time and peak memory are the operating system's figures for that process, start of the interpreter included. The
second compares nano sets of SciFact with the whole of it by `r2med nano agree`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1] / "shared" / "data"
SYSTEMS = (
    "bm25",
    "bm25-classic",
    "bm25(k1=1.2, b=0.75)",
    "bm25-classic(k1=0, b=0)",
    "wordllama",
    "rrf(bm25, wordllama)",
    "wsum(bm25-classic, wordllama)",
)
LIMIT_SECONDS, LIMIT_MEGABYTES = 60, 3000


@dataclass(frozen=True)
class Cost:
    """What a process took, and what it printed."""

    wall: float
    megabytes: float
    output: str


def r2med(home: Path, *arguments: str) -> Cost:
    """Run the command line in a process of its own."""
    environment = {**os.environ, "R2MED_HOME": str(home), "PYTHONPATH": str(HERE.parent / "src")}
    command = [sys.executable, "-m", "r2med", *arguments]
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
        output = process.stdout.read().decode() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise click.ClickException(f"{' '.join(arguments)} failed:\n{errors.read().decode(errors='replace')}")
    return Cost(wall, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3), output)


def cost_table(source: Path, folder: Path) -> None:
    """Build a set of full size by each policy, every time with an empty home."""
    rows: dict[str, Sequence[str]] = {
        "source-order": (),
        "random": ("--policy", "random"),
        "hard, of bm25": ("--policy", "hard"),
        "source-order, wordllama lists": ("--dense", "wordllama"),
    }
    click.echo(f"{source.name}, 10,000 documents, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    click.echo(f"{'':32} {'wall s':>8} {'peak MB':>8}")
    for place, (label, options) in enumerate(rows.items()):
        out = folder / f"set{place}"
        cost = r2med(folder / f"home{place}", "nano", "build", str(source), "--out", str(out), *options)
        over = cost.wall > LIMIT_SECONDS or cost.megabytes > LIMIT_MEGABYTES
        click.echo(f"{label:32} {cost.wall:8.1f} {cost.megabytes:8.0f}{'  over the limit' if over else ''}")


def agreement_table(source: Path, folder: Path, documents: int) -> None:
    """Build sets of a real collection by each policy and compare them with it."""
    home = folder / "home"
    policies: dict[str, Sequence[str]] = {
        "source-order": (),
        "random": ("--policy", "random"),
        "hard, of bm25": ("--policy", "hard"),
        "hard, of bm25 and wordllama": ("--policy", "hard", "--hard-systems", "bm25", "wordllama"),
    }
    found: dict[str, Mapping[str, Any]] = {}
    for place, (label, options) in enumerate(policies.items()):
        out = str(folder / f"nano{place}")
        r2med(home, "nano", "build", str(source), "--out", out, "--docs", str(documents), "--queries", "300", *options)
        answer = r2med(home, "nano", "agree", out, str(source), "--systems", *SYSTEMS, "--json")
        found[label] = json.loads(answer.output)["tasks"][0]
    click.echo(f"\n{source.name}, {documents:,} documents of the whole, nDCG@10 x 100 of each set, its own column")
    click.echo(f"{'':32} " + " ".join(f"{name:>14}" for name in ("whole", *policies)))
    for row, system in enumerate(SYSTEMS):
        nano = [100 * each["shifts"][row]["nano"] for each in found.values()]
        whole = 100 * next(iter(found.values()))["shifts"][row]["full"]
        click.echo(f"{system:32} {whole:14.2f} " + " ".join(f"{value:14.2f}" for value in nano))
    click.echo(f"\n{'':32} {'mean shift':>24} {'Spearman':>22} {'Kendall':>22} {'flips':>8} {'clear':>6}")
    for label, each in found.items():
        shift = interval(100 * each["shift"], [100 * value for value in each["shift_interval"]], "+.2f")
        rank = [interval(each[name], each[f"{name}_interval"], ".2f") for name in ("spearman", "kendall")]
        clear = sum(flip["clear"] for flip in each["flips"])
        flips = f"{len(each['flips'])}/{each['pairs']}"
        click.echo(f"{label:32} {shift:>24} {rank[0]:>22} {rank[1]:>22} {flips:>8} {clear:>6}")


def interval(value: float, around: Sequence[float], form: str) -> str:
    """A value and its interval."""
    return f"{value:{form}} [{around[0]:{form}}, {around[1]:{form}}]"


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--shared", default=SHARED, type=click.Path(path_type=Path), help="Where scifact/ lies.")
@click.option("--docs", default=1000, show_default=True, type=click.IntRange(1), help="Of the sets of SciFact.")
def main(folder: Path, shared: Path, docs: int) -> None:
    """Measure on FOLDER/PMC-Clinical, which make_data.py writes, and on SciFact."""
    with tempfile.TemporaryDirectory() as place:
        cost_table(folder / "PMC-Clinical", Path(place))
        agreement_table(shared / "scifact", Path(place), docs)


if __name__ == "__main__":
    main()
