"""Dense search over ten million vectors of 256 numbers, in bounded memory: floats, half floats, bytes and bits.

    python benchmarks/dense_scale.py FOLDER [--count 10000000] [--kind float32 ...]

Makes (once) FOLDER/vectors.f16, unit vectors around 20,000 centres as an encoder's would lie, kept in half precision
(two bytes a number), and 100 queries. float32 has a file of its own, twice as large. Every kind runs in a process of
its own and searches for the 100 best of all queries together; int8 and binary keep their codes in a mapped file, are
searched, and rank four times as many candidates anew by the vectors. The table has the time on the clock and on the
processor, of building the codes and of the search; the most anonymous memory (mapped files apart); and the share of
the exact lists that was lost. faiss and usearch are tried on the first million vectors, if asked for, and compared
with the exact lists of those.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

DIMENSION, QUERIES, DEPTH, CHUNK = 256, 100, 100, 65_536
KINDS = ("float32", "float16", "int8", "binary", "faiss", "usearch")
ENGINES = {"faiss": 'faiss(factory="IVF4096,Flat", nprobe=32)', "usearch": "usearch"}
MOST_OF_ENGINES = 1_000_000


def make(folder: Path, count: int) -> None:
    """Write the vectors and the queries."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    centres = random.standard_normal((20_000, DIMENSION), dtype=np.float32)
    asked = centres[:QUERIES] + 0.7 * random.standard_normal((QUERIES, DIMENSION), dtype=np.float32)
    np.save(folder / "queries.npy", asked / np.linalg.norm(asked, axis=1, keepdims=True))
    with (folder / "draft").open("wb") as file:
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            block = centres[random.integers(0, len(centres), size)]
            block = block + random.standard_normal((size, DIMENSION), dtype=np.float32)
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            file.write(block.astype(np.float16).tobytes())
    (folder / "draft").rename(folder / "vectors.f16")


def widen(folder: Path) -> None:
    """The same vectors with four bytes a number."""
    vectors = np.memmap(folder / "vectors.f16", np.float16, "r").reshape(-1, DIMENSION)
    with (folder / "draft").open("wb") as file:
        for start in range(0, len(vectors), CHUNK):
            file.write(vectors[start : start + CHUNK].astype(np.float32).tobytes())
    (folder / "draft").rename(folder / "vectors.f32")


class Mapped:
    """Vectors of a mapped file, in single precision as they are read."""

    def __init__(self, file: Path, kind: type, most: int = 0) -> None:
        self._rows = np.asarray(np.memmap(file, kind, "r").reshape(-1, DIMENSION))[: most or None]
        self.shape, self.nbytes = self._rows.shape, self._rows.nbytes

    def __getitem__(self, places: Any) -> np.ndarray:
        return self._rows[places].astype(np.float32, copy=False)


def step(kind: str, folder: Path) -> None:
    """What a process does: make ready, search, say how it went."""
    from r2med.encode.indexes import QUANTIZED, EngineSettings, FloatIndex
    from r2med.encode.vector_search import Similarity

    queries, how = np.load(folder / "queries.npy"), Similarity()
    wide = kind == "float32"
    file = folder / ("vectors.f32" if wide else "vectors.f16")
    rows = Mapped(file, np.float32 if wide else np.float16, MOST_OF_ENGINES if kind in ENGINES else 0)
    codes = folder / kind
    codes.mkdir(exist_ok=True)
    started, used = time.perf_counter(), time.process_time()
    index: Any = FloatIndex(rows, how)
    if kind in QUANTIZED:
        QUANTIZED[kind].build(rows, how, folder=codes)
        index = QUANTIZED[kind].open(rows, how, 4, codes)
    elif kind in ENGINES:
        settings = EngineSettings.read(ENGINES[kind])
        settings.write(rows, how, codes)
        index = settings.open(rows, how, codes, 4)
    built, spent = time.perf_counter() - started, time.process_time() - used
    started, used = time.perf_counter(), time.process_time()
    hits = index.search(queries, DEPTH, np.arange(rows.shape[0]))
    found = {"count": rows.shape[0], "build": built, "build_cpu": spent, "bytes": index.nbytes}
    found |= {"search": time.perf_counter() - started, "search_cpu": time.process_time() - used}
    if kind in ENGINES:
        exact = FloatIndex(rows, how).search(queries, DEPTH, np.arange(rows.shape[0]))
        pairs = zip(exact.places, hits.places, strict=True)
        found["lost"] = 1 - float(np.mean([np.isin(wanted, got).mean() for wanted, got in pairs]))
    print(json.dumps(found | {"places": hits.places.tolist()}))


def run(kind: str, folder: Path) -> dict[str, Any]:
    """One kind in a process of its own, with the most memory that it had."""
    from scale import anonymous

    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}
    output = folder / f"{kind}.json"
    most = 0
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), "--step", kind], env=environment, stdout=file
        )
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            time.sleep(0.1)
    if process.returncode:
        raise click.ClickException(f"{kind} failed")
    found: dict[str, Any] = json.loads(output.read_text())
    return found | {"anonymous_mb": most / 1e6}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", default=10_000_000, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS[1:4], show_default=True)
@click.option("--step", "only", type=click.Choice(KINDS), hidden=True)
def main(folder: Path, count: int, kinds: tuple[str, ...], only: str | None) -> None:
    """Search one large file of vectors in several ways."""
    if only:
        step(only, folder)
        return
    if not (folder / "vectors.f16").exists():
        make(folder, count)
    if "float32" in kinds and not (folder / "vectors.f32").exists():
        widen(folder)
    exact: list[list[int]] | None = None
    print(f"{QUERIES} queries, top {DEPTH}, {DIMENSION} dimensions, load {os.getloadavg()[0]:.0f}")
    heads = ["kind", "vectors", "bytes/vector", "build s", "cpu s", "search s", "cpu s", "memory MB", "lost"]
    print("| " + " | ".join(heads) + " |\n|---|" + "---:|" * (len(heads) - 1))
    for kind in kinds:
        found = run(kind, folder)
        exact = found["places"] if kind == "float16" else exact
        lost = f"{found['lost']:.2%}" if "lost" in found else ""
        if exact is not None and kind not in ENGINES:
            kept = sum(len({*one} & {*other}) for one, other in zip(found["places"], exact, strict=True))
            lost = f"{1 - kept / (QUERIES * DEPTH):.2%}"
        cells = [f"{found['count']:,}", f"{found['bytes'] / found['count']:.0f}"]
        cells += [f"{found[name]:.1f}" for name in ("build", "build_cpu", "search", "search_cpu")]
        print(f"| {kind} | " + " | ".join([*cells, f"{found['anonymous_mb']:,.0f}", lost]) + " |", flush=True)


if __name__ == "__main__":
    main()
