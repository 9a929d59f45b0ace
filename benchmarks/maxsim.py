"""Exact late interaction over mapped token vectors, side by side with sentence-transformers' own scoring.

    python benchmarks/maxsim.py [--documents 6000] [--queries 1,32] [--rounds 3] [--folder FOLDER]

Makes (once) the token vectors of so many documents in FOLDER, 128 numbers a token and 20 to 300 tokens a document (160
in the mean), then ranks them for queries of 32 tokens, the best 100 documents of each. Every contestant runs in a
process of its own, in turn, ROUNDS times. Shown are each one's fastest round, the processor seconds of it, how many
times as fast as sentence-transformers it was in both, the most memory it took beyond Python and its libraries, and the
share of sentence-transformers' lists that it found too. sentence-transformers has its vectors in memory in single
precision, as its `encode` gives them; r2med maps them from disk, as its store keeps them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

DIMENSION, TOKENS, DEPTH, CHUNK = 128, 32, 100, 500
PMC_CLINICAL, CUT = 60_406, 300
"""Documents of that task, and the tokens that most models read of one."""
STORES = ("float32", "float16", "int8")
CONTESTANTS = ("sentence-transformers", *(f"r2med {store}" for store in STORES))


def texts(count: int) -> list[str]:
    return [f"document {number}" for number in range(count)]


def make(folder: Path, count: int) -> None:
    """Documents of tokens around 2,000 centres, as tokens of a language crowd around its words."""
    from r2med.encode.token_store import TokenStore
    from r2med.encode.vector_store import text_hashes

    random = np.random.default_rng(0)
    centres = random.standard_normal((2000, DIMENSION)).astype(np.float32)
    lengths = np.clip(random.lognormal(5.0, 0.5, count).astype(int), 20, 300)
    stores = {store: TokenStore({"model": "random"}, store, folder) for store in STORES}
    for start in range(0, count, CHUNK):
        some = slice(start, min(start + CHUNK, count))
        spans = [_tokens(random, centres, int(length)) for length in lengths[some]]
        for store in stores.values():
            with store.writer() as writer:
                writer.append_spans(text_hashes(texts(count)[some]), lengths[some], spans)
    queries = np.stack([_tokens(random, centres, TOKENS) for _ in range(256)])
    np.save(folder / "queries.npy", queries)


def _tokens(random: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    rows = centres[random.integers(0, len(centres), count)] + random.standard_normal((count, DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def contestant(name: str, folder: Path, count: int, queries: np.ndarray) -> Callable[[], np.ndarray]:
    from r2med.encode.maxsim import MaxSimIndex
    from r2med.encode.token_store import TokenStore
    from r2med.encode.vector_store import text_hashes

    store = TokenStore({"model": "random"}, name.removeprefix("r2med ") if " " in name else "float32", folder)
    documents = store.spans(store.find(text_hashes(texts(count))))
    if name.startswith("r2med"):
        ties = np.arange(count)
        return lambda: MaxSimIndex(documents).search(list(queries), DEPTH, ties).places
    import torch
    from sentence_transformers.util.similarity import maxsim

    held = [torch.from_numpy(documents.of(place).copy()) for place in range(count)]
    asked = [torch.from_numpy(query) for query in queries]
    return lambda: maxsim(asked, held).topk(DEPTH, dim=1).indices.numpy()


def measure(name: str, folder: Path, count: int, queries: int) -> dict[str, object]:
    import torch
    from sentence_transformers.util import similarity  # noqa: F401  # so that its memory is not anybody's

    torch.mm(torch.ones(8, 8), torch.ones(8, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work = contestant(name, folder, count, np.load(folder / "queries.npy")[:queries])
    start, spent = time.perf_counter(), time.process_time()
    places = work()
    seconds, processor = time.perf_counter() - start, time.process_time() - spent
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"seconds": seconds, "processor": processor, "memory": grown, "places": places.tolist()}


def run(name: str, folder: Path, count: int, queries: int) -> dict[str, object]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--folder", folder, "--documents", count, "--queries", queries]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def sizes(folder: Path, count: int) -> list[str]:
    """Bytes on disk as measured, and what that makes of a corpus of PMC-Clinical's size."""
    from r2med.encode.token_store import TokenStore
    from r2med.encode.vector_store import text_hashes

    lines = []
    for store in STORES:
        kept = TokenStore({"model": "random"}, store, folder)
        documents = kept.spans(kept.find(text_hashes(texts(count))))
        each = documents.nbytes / int(documents.count.sum())
        whole = each * CUT * PMC_CLINICAL / 1e9
        lines.append(
            f"{store}: {each:g} bytes a token measured; at most {whole:.1f} GB computed for {PMC_CLINICAL:,} documents"
            f" of {CUT} tokens"
        )
    return lines


@click.command()
@click.option("--documents", default=6000)
@click.option("--queries", default="1,32")
@click.option("--rounds", default=3)
@click.option("--folder", type=click.Path(path_type=Path), default=Path(tempfile.gettempdir()) / "r2med-maxsim")
@click.option("--one", default="", hidden=True)
def main(documents: int, queries: str, rounds: int, folder: Path, one: str) -> None:
    """Compare exact MaxSim with sentence-transformers' own."""
    folder = folder / str(documents) if not one else folder
    if one:
        print(json.dumps(measure(one, folder, documents, int(queries))))
        return
    if not (folder / "queries.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, documents)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {documents:,} documents")
    for count in map(int, queries.split(",")):
        best: dict[str, dict[str, object]] = {}
        for _ in range(rounds):
            for name in CONTESTANTS:
                found = run(name, folder, documents, count)
                if name not in best or float(found["seconds"]) < float(best[name]["seconds"]):
                    best[name] = found
        peer = best[CONTESTANTS[0]]
        print(f"\n| {count} queries | seconds | times | processor seconds | times | memory, MB | same |")
        print("|---|---|---|---|---|---|---|")
        for name, found in best.items():
            pairs = zip(peer["places"], found["places"], strict=True)
            same = np.mean([len(set(one) & set(other)) / DEPTH for one, other in pairs])
            ratios = [float(peer[key]) / float(found[key]) for key in ("seconds", "processor")]
            print(
                f"| {name} | {found['seconds']:.3f} | {ratios[0]:.1f} | {found['processor']:.3f} | {ratios[1]:.1f} |"
                f" {found['memory']:,.0f} | {same:.4f} |"
            )
    print("\n" + "\n".join(sizes(folder, documents)))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
