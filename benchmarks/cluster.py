"""Encoding on a Ray cluster of this machine: two workers against one, Ray against one process, the driver's memory.

    python benchmarks/cluster.py
    python benchmarks/cluster.py --documents 64 --few 1000 --many 4000

Every figure is a process of its own with a home of its own; models are loaded before the clock starts. A worker and the
process beside it have one thread each. Needs the extras ray and torch, and the packages of MiniLM and wordllama.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import r2med
from r2med.config import EngineSettings
from r2med.data.dataset import Texts
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.engine.spreading import SpreadingEngine
from r2med.pipeline.engine import Engine, quiet
from r2med.pipeline.stage import Context
from r2med.storage.cache import Cache

_SENTENCES = tuple(r2med.load("sample/Biology").collection.documents.texts)


class _Passages(Sequence[str]):
    """Passages made when they are looked at, none like another, so that only the driver's own memory grows.

    Without sentences they are ids, a number each.
    """

    def __init__(self, count: int, start: int, sentences: int = 0) -> None:
        self._count, self._start, self._sentences = count, start, sentences

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self._count))]
        number = self._start + range(self._count)[place]
        chosen = (_SENTENCES[(number * 31 + step * 17) % len(_SENTENCES)] for step in range(self._sentences))
        return " ".join([str(number), *chosen])


def _texts(count: int, start: int, sentences: int) -> Texts:
    return Texts(_Passages(count, start), _Passages(count, start, sentences))


def _engine(workers: int) -> Engine:
    if not workers:
        return quiet()
    from r2med.engine.ray_cluster import RayCluster

    return SpreadingEngine(RayCluster("", EngineSettings(workers=workers)))


def _one(model: str, documents: int, workers: int, sentences: int) -> dict[str, float]:
    """Seconds and the peak memory of this process, for one engine.

    Its own memory is told from the pages of mapped files, which the system takes back when it needs them.
    """
    context = Context(Cache.default(), _engine(workers))
    encoder = encoder_for(model, {}, r2med.load("sample/Biology").collection.task)
    # Enough blocks that every worker has loaded.
    encode_all(encoder, _texts(1 + 700 * workers, 10**9, sentences), Role.DOCUMENT, context)
    own: list[float] = [0.0]
    threading.Thread(target=_watch, args=(own,), daemon=True).start()
    begun = time.perf_counter()
    encode_all(encoder, _texts(documents, 0, sentences), Role.DOCUMENT, context)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "own": own[0], "all": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _watch(own: list[float]) -> None:
    """Note the most memory that this process has had to itself, in megabytes."""
    while True:
        status = Path("/proc/self/status").read_text()
        own[0] = max(own[0], int(status.partition("RssAnon:")[2].split()[0]) / 1024)
        time.sleep(0.1)


def _measured(model: str, documents: int, workers: int, sentences: int) -> dict[str, float]:
    words = ["--one", model, str(documents), str(workers), str(sentences)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "R2MED_THREADS"), "1")
    with tempfile.TemporaryDirectory(prefix="r2med-cluster-") as home:
        environment = os.environ | threads | {"R2MED_HOME": home, "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run([sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print every figure with its ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=6500, help="passages that MiniLM encodes, 400 to a block")
    parser.add_argument("--few", type=int, default=50_000, help="passages of the smaller collection")
    parser.add_argument("--many", type=int, default=500_000, help="passages of the larger collection")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, *numbers = options.one
        print(json.dumps(_one(model, *map(int, numbers))))
        return
    seconds = {workers: _measured("minilm", options.documents, workers, 2)["seconds"] for workers in (0, 1, 2)}
    for workers, name in ((0, "one process"), (1, "Ray, one worker"), (2, "Ray, two workers")):
        print(f"{name}: {seconds[workers]:.1f} s, {options.documents / seconds[workers]:.1f} passages a second")
    print(f"two workers against one: {seconds[1] / seconds[2]:.2f}x")
    print(f"Ray against one process, one thread each: {seconds[1] / seconds[0] - 1:+.1%}")
    memory = [_measured("wordllama", count, 2, 1) for count in (options.few, options.many)]
    for count, used in zip((options.few, options.many), memory, strict=True):
        print(f"driver with {count:,} passages: {used['own']:,.0f} MB, {used['all']:,.0f} MB with mapped files")
    times = memory[1]["own"] / memory[0]["own"]
    print(f"{options.many / options.few:.0f} times the passages: {times:.2f} times the memory of its own")


if __name__ == "__main__":
    main()
