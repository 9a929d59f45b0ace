"""Exact late interaction over mapped token vectors, side by side with sentence-transformers' and PyLate's own scoring.

    python benchmarks/maxsim.py [--documents 2000] [--queries 1,32] [--rounds 5] [--folder FOLDER]

Makes (once) the token vectors of so many documents in FOLDER, 128 numbers a token and 20 to 300 tokens a document (160
in the mean), then ranks them for queries of 32 tokens, the best 100 documents of each. All contestants run in one
process with the same number of threads, in turn, ROUNDS times after one round that does not count. Shown are each one's
median seconds and processor seconds, and how many times as fast as each peer it was in both; the most memory that it
takes in a process of its own, beyond Python and its libraries; the share of sentence-transformers' lists that it found
too, and how far the best score of a query is off from that in double precision.

The peers have their vectors in memory in single precision, as their `encode` gives them; PyLate's are also padded
already, 250 documents at a time, since `colbert_scores` takes a rectangle. r2med maps its vectors from disk as its
store keeps them, in single precision, half precision or a byte a number, and widens them while it searches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import torch
from sentence_transformers.util.similarity import maxsim

from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.vectors import TokenStore, TokenVectors
from r2med.store.columns import text_hashes

DIMENSION, TOKENS, DEPTH, CHUNK, PADDED = 128, 32, 100, 500, 250
PMC_CLINICAL, CUT = 60_406, 300
"""Documents of that task, and the tokens that most models read of one."""
STORES = ("float32", "float16", "int8")
PEERS = ("sentence-transformers", "PyLate")
CONTESTANTS = (*PEERS, *(f"r2med {store}" for store in STORES))


def texts(count: int) -> list[str]:
    return [f"document {number}" for number in range(count)]


def make(folder: Path, count: int) -> None:
    """Documents of tokens around 2,000 centres, as tokens of a language crowd around its words."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((2000, DIMENSION)).astype(np.float32)
    lengths = np.clip(random.lognormal(5.0, 0.5, count).astype(int), 20, 300)
    stores = {store: TokenStore({"model": "random"}, store, folder) for store in STORES}
    for start in range(0, count, CHUNK):
        some = slice(start, min(start + CHUNK, count))
        spans = [_tokens(random, centres, int(length)) for length in lengths[some]]
        for store in stores.values():
            with store.writer() as writer:
                writer.append(text_hashes(texts(count)[some]), lengths[some], spans)
    queries = np.stack([_tokens(random, centres, TOKENS) for _ in range(256)])
    np.save(folder / "queries.npy", queries)


def _tokens(random: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    rows = centres[random.integers(0, len(centres), count)] + random.standard_normal((count, DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Lists(NamedTuple):
    """What a search gives: a row a query, the best first."""

    places: np.ndarray
    scores: np.ndarray


def vectors_of(store: str, folder: Path, count: int) -> TokenVectors:
    kept = TokenStore({"model": "random"}, store, folder)
    return kept.vectors(kept.find(text_hashes(texts(count))))


def contestant(name: str, folder: Path, count: int, queries: np.ndarray) -> Callable[[], Lists]:
    """A search, with all that it needs at hand."""
    documents = vectors_of(name.removeprefix("r2med ") if name not in PEERS else "float32", folder, count)
    if name not in PEERS:
        return lambda: Lists(*MaxSimIndex(documents).search(list(queries), DEPTH, np.arange(count)))
    held = [torch.from_numpy(documents.of(place).copy()) for place in range(count)]
    if name == "PyLate":
        return pylate_search(held, torch.from_numpy(queries))
    asked = [torch.from_numpy(query) for query in queries]
    return lambda: best(maxsim(asked, held))


def pylate_search(held: list[torch.Tensor], queries: torch.Tensor) -> Callable[[], Lists]:
    from pylate.scores import colbert_scores

    starts = range(0, len(held), PADDED)
    padded = [torch.nn.utils.rnn.pad_sequence(held[start : start + PADDED], batch_first=True) for start in starts]
    return lambda: best(torch.cat([colbert_scores(queries, part) for part in padded], dim=1))


def best(scores: torch.Tensor) -> Lists:
    found = scores.topk(DEPTH, dim=1)
    return Lists(found.indices.numpy(), found.values.numpy())


class Timed(NamedTuple):
    """Median seconds of the clock and of the processor, and what was found."""

    seconds: float
    processor: float
    lists: Lists


def race(folder: Path, count: int, queries: np.ndarray, rounds: int) -> dict[str, Timed]:
    """Every contestant in turn, so that what else the machine does meets all of them alike."""
    works = {name: contestant(name, folder, count, queries) for name in CONTESTANTS}
    lists = {name: work() for name, work in works.items()}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            clock, processor = time.perf_counter(), time.process_time()
            work()
            spent[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return {name: Timed(*np.median(spent[name], axis=0).tolist(), lists[name]) for name in works}


def memory_of(name: str, folder: Path, count: int, queries: int) -> float:
    """Megabytes of a contestant in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--folder", folder, "--documents", count, "--queries", queries]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def measure_memory(name: str, folder: Path, count: int, queries: np.ndarray) -> float:
    torch.mm(torch.ones(8, 8), torch.ones(8, 8))
    if name == "PyLate":
        import pylate.scores  # noqa: F401  # so that its libraries are not its memory
    before = peak()
    contestant(name, folder, count, queries)()
    return (peak() - before) / 1024


def peak() -> int:
    """The most memory of this process since it began, in kilobytes; `getrusage` counts its parent's as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def off_by(lists: Lists, documents: TokenVectors, queries: np.ndarray) -> float:
    """The greatest distance of a query's best score from plain arithmetic in double precision."""
    plain = [
        (documents.of(int(row[0])).astype(np.float64) @ query.T).max(axis=0).sum()
        for query, row in zip(queries, lists.places, strict=True)
    ]
    return float(np.abs(lists.scores[:, 0] - plain).max())


def show(timed: dict[str, Timed], folder: Path, count: int, queries: np.ndarray) -> None:
    heads = [f"{len(queries)} queries", "seconds", "times", "processor", "times", "memory, MB", "same", "off by"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    expected = timed[PEERS[0]].lists.places
    for name, found in timed.items():
        pairs = zip(expected, found.lists.places, strict=True)
        same = np.mean([len(set(one) & set(other)) / DEPTH for one, other in pairs])
        documents = vectors_of(name.removeprefix("r2med ") if name not in PEERS else "float32", folder, count)
        cells = [
            name,
            f"{found.seconds:.3f}",
            " / ".join(f"{timed[peer].seconds / found.seconds:.1f}" for peer in PEERS),
        ]
        cells += [f"{found.processor:.3f}"]
        cells += [" / ".join(f"{timed[peer].processor / found.processor:.1f}" for peer in PEERS)]
        cells += [f"{memory_of(name, folder, count, len(queries)):,.0f}", f"{same:.4f}"]
        print(f"| {' | '.join(cells)} | {off_by(found.lists, documents, queries):.0e} |", flush=True)


def sizes(folder: Path, count: int) -> list[str]:
    """Bytes on disk as measured, and what that makes of a corpus of PMC-Clinical's size."""
    lines = []
    for store in STORES:
        documents = vectors_of(store, folder, count)
        each = documents.nbytes / int(documents.count.sum())
        whole = each * CUT * PMC_CLINICAL / 1e9
        lines.append(
            f"{store}: {each:g} bytes a token measured; at most {whole:.1f} GB computed for {PMC_CLINICAL:,} documents"
            f" of {CUT} tokens"
        )
    return lines


@click.command()
@click.option("--documents", default=2000)
@click.option("--queries", default="1,32")
@click.option("--rounds", default=5)
@click.option("--folder", type=click.Path(path_type=Path), default=Path(tempfile.gettempdir()) / "r2med-maxsim")
@click.option("--one", default="", hidden=True)
def main(documents: int, queries: str, rounds: int, folder: Path, one: str) -> None:
    """Compare exact MaxSim with sentence-transformers' and PyLate's own."""
    folder = folder / str(documents) if not one else folder
    if one:
        print(measure_memory(one, folder, documents, np.load(folder / "queries.npy")[: int(queries)]))
        return
    if not (folder / "queries.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, documents)
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {torch.get_num_threads()} threads, {documents:,}"
        f" documents; times: speed as a multiple of {' / '.join(PEERS)}"
    )
    for count in map(int, queries.split(",")):
        asked = np.load(folder / "queries.npy")[:count]
        show(race(folder, documents, asked, rounds), folder, documents, asked)
    print("\n" + "\n".join(sizes(folder, documents)))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
