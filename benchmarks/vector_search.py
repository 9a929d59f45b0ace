"""Exact search over mapped vectors, side by side with BEIR's and MTEB's and with the bare matrix product.

    python benchmarks/vector_search.py [--folder FOLDER] [--rounds 3] [--peers PYTHON]

Makes (once) a file of 357,000 x 1,024 unit vectors of single precision in FOLDER, then searches it for 876 queries,
100 documents each, by cosine. Every contestant runs in a process of its own, in turn, ROUNDS times; the table shows
each one's fastest round, its ratio to the bare product of that file in blocks (which keeps nothing), and the most
memory it took beyond the mapped file. BEIR and MTEB are handed views of the mapped file in place of encoding, so that
only their search is timed. PYTHON is an interpreter with `beir` and `mteb`, this one by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

COUNT, DIMENSION, QUERIES, DEPTH, CHUNK = 357_000, 1024, 876, 100, 8192
Lists = dict[str, list[str]]


def make(folder: Path) -> None:
    """Documents around 2,000 centres, so that scores crowd together as those of a real corpus do."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    centres = random.standard_normal((2000, DIMENSION), dtype=np.float32)
    queries = centres[:QUERIES] + random.standard_normal((QUERIES, DIMENSION), dtype=np.float32)
    np.save(folder / "queries.npy", queries / np.linalg.norm(queries, axis=1, keepdims=True))
    draft = folder / "documents.draft"
    with draft.open("wb") as file:
        for start in range(0, COUNT, CHUNK):
            size = min(CHUNK, COUNT - start)
            block = centres[random.integers(0, len(centres), size)]
            block = block + 1.5 * random.standard_normal((size, DIMENSION), dtype=np.float32)
            file.write((block / np.linalg.norm(block, axis=1, keepdims=True)).astype(np.float32).tobytes())
    draft.rename(folder / "documents.f32")


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The queries, and the documents mapped and brought into the page cache."""
    documents = np.memmap(folder / "documents.f32", np.float32, "r").reshape(-1, DIMENSION)
    for start in range(0, len(documents), CHUNK):
        documents[start : start + CHUNK, ::256].sum()
    return np.load(folder / "queries.npy"), np.asarray(documents)


def bare(queries: np.ndarray, documents: np.ndarray) -> Callable[[], Lists]:
    def work() -> Lists:
        turned = np.ascontiguousarray(queries.T)
        products = np.empty((CHUNK, len(queries)), dtype=np.float32)
        for start in range(0, len(documents), CHUNK):
            rows = documents[start : start + CHUNK]
            np.matmul(rows, turned, out=products[: len(rows)])
        return {}

    return work


def r2med(queries: np.ndarray, documents: np.ndarray) -> Callable[[], Lists]:
    from r2med.encode.vector_search import search
    from r2med.lexical.ranking import id_order

    ids = [str(number) for number in range(len(documents))]
    order = id_order(ids)

    def work() -> Lists:
        hits = search(queries, documents, DEPTH, order)
        return {f"q{number}": [ids[place] for place in row] for number, row in enumerate(hits.places.tolist())}

    return work


def beir(queries: np.ndarray, documents: np.ndarray) -> Callable[[], Lists]:
    import torch
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    views = Views(documents)

    class Model:
        def encode_queries(self, texts: list[str], **_: Any) -> torch.Tensor:
            return torch.from_numpy(queries)

        def encode_corpus(self, texts: list[dict[str, str]], **_: Any) -> torch.Tensor:
            return torch.from_numpy(views.take(len(texts)))

    corpus = {str(number): {"text": "x"} for number in range(len(documents))}
    asked = {f"q{number}": "x" for number in range(len(queries))}

    def work() -> Lists:
        found = DenseRetrievalExactSearch(Model(), show_progress_bar=False).search(corpus, asked, DEPTH, "cos_sim")
        return {query: sorted(scores, key=scores.__getitem__, reverse=True) for query, scores in found.items()}

    return work


def mteb(queries: np.ndarray, documents: np.ndarray) -> Callable[[], Lists]:
    import mteb as package
    import torch
    from datasets import Dataset
    from mteb.models.search_wrappers import chunked_full_corpus_search
    from mteb.similarity_functions import cos_sim

    views = Views(documents)
    corpus = Dataset.from_dict({"id": [str(n) for n in range(len(documents))], "text": ["x"] * len(documents)})
    metadata = package.get_task("SciFact").metadata

    def work() -> Lists:
        heaps = chunked_full_corpus_search(
            task_corpus=corpus,
            corpus_chunk_size=50_000,
            query_idx_to_id={number: f"q{number}" for number in range(len(queries))},
            query_embeddings=torch.from_numpy(queries),
            task_metadata=metadata,
            hf_subset="default",
            hf_split="test",
            top_k=DEPTH,
            encode_kwargs={"show_progress_bar": False},
            encode_fn=lambda loader, **_: torch.from_numpy(views.take(len(loader.dataset))),
            similarity_fn=cos_sim,
            search_k_offset=1,
        )
        return {query: [document for _, document in sorted(heap, reverse=True)] for query, heap in heaps.items()}

    return work


class Views:
    """The documents in the order in which a search comes to encode them."""

    def __init__(self, documents: np.ndarray) -> None:
        self.documents, self.place = documents, 0

    def take(self, count: int) -> np.ndarray:
        self.place += count
        return self.documents[self.place - count : self.place]


CONTESTANTS = {"bare": bare, "r2med": r2med, "beir": beir, "mteb": mteb}


class Memory:
    """The most memory of this process that is not a mapped file, watched from a thread."""

    def __enter__(self) -> Memory:
        self.least = self.most = self._now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.02):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def run_one(name: str, folder: Path) -> None:
    """What a contestant's process does: search once and say how it went."""
    work = CONTESTANTS[name](*read(folder))
    with Memory() as memory:
        started = time.perf_counter()
        lists = work()
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "bytes": memory.most - memory.least, "lists": lists}))


def ask(name: str, folder: Path, python: str) -> dict[str, Any] | None:
    """One round of a contestant in a process of its own; None when it cannot run."""
    source = Path(__file__).resolve().parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "TQDM_DISABLE": "1"}
    command = [python, __file__, "--folder", str(folder), "--only", name]
    made = subprocess.run(command, env=environment, capture_output=True, text=True)
    if made.returncode:
        print(f"{name}: {made.stderr.strip().splitlines()[-1] if made.stderr.strip() else 'failed'}")
        return None
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def agreement(lists: Lists, wanted: Lists) -> float:
    """The share of documents that two results have in common."""
    return sum(len(set(lists[q]) & set(wanted[q])) for q in wanted) / sum(map(len, wanted.values()))


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), default=Path(tempfile.gettempdir()) / "r2med-vectors")
@click.option("--rounds", default=3, show_default=True)
@click.option("--peers", default=sys.executable, help="an interpreter that has beir and mteb")
@click.option("--only", type=click.Choice(list(CONTESTANTS)), hidden=True)
def main(folder: Path, rounds: int, peers: str, only: str | None) -> None:
    """Search one large file of vectors in four ways."""
    if only:
        run_one(only, folder)
        return
    if not (folder / "documents.f32").exists():
        make(folder)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        for name in CONTESTANTS:
            found = ask(name, folder, peers if name in ("beir", "mteb") else sys.executable)
            results[name] += [found] if found else []
    floor = min(round_["seconds"] for round_ in results["bare"])
    print(f"{COUNT:,} x {DIMENSION:,} float32, {QUERIES} queries, top {DEPTH}, {os.cpu_count()} cores")
    print(f"{'':8}{'seconds':>10}{'ratio':>8}{'all rounds':>32}{'memory MB':>12}{'same as r2med':>15}")
    for name, rows in results.items():
        if rows:
            seconds = [row["seconds"] for row in rows]
            every = " ".join(f"{value:.1f}" for value in seconds)
            most = max(row["bytes"] for row in rows) / 1e6
            same = f"{agreement(rows[0]['lists'], results['r2med'][0]['lists']):.5f}" if rows[0]["lists"] else ""
            print(f"{name:8}{min(seconds):10.2f}{min(seconds) / floor:8.2f}{every:>32}{most:12.0f}{same:>15}")


if __name__ == "__main__":
    main()
