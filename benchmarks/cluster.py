"""Encoding on a Ray cluster of this machine: two workers against one, Ray against one process, the driver's memory.

    python benchmarks/cluster.py
    python benchmarks/cluster.py --documents 64 --few 1000 --many 4000
    python benchmarks/cluster.py --only memory

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
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import r2med
from r2med.cli.main import app
from r2med.data.dataset import Texts
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.stage import Context
from r2med.settings import ExecutorSettings
from r2med.store.cache import Cache

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


def _engine(workers: int) -> Executor:
    if not workers:
        return quiet()
    from r2med.pipeline.executor.ray import RayCluster

    return Executor(spread=RayCluster("", ExecutorSettings(workers=workers)))


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


def _command(documents: int, workers: int) -> dict[str, float]:
    """The same for a whole command over files, whose texts stay on disk: reading, encoding, search and measures."""
    folder, texts, asked = Path(os.environ["R2MED_HOME"]) / "collection", _texts(documents, 0, 1), range(50)
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts)
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": f"q{place}", "text": texts.texts[place]}) + "\n" for place in asked)
    rows = ["query-id\tcorpus-id\tscore", *(f"q{place}\t{place}\t1" for place in asked)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    (Path(os.environ["R2MED_HOME"]) / "config.toml").write_text(f"[executor]\nworkers = {workers}\n")
    own: list[float] = [0.0]
    threading.Thread(target=_watch, args=(own,), daemon=True).start()
    begun = time.perf_counter()
    words = ["run", "wordllama", "--tasks", str(folder), "--executor", "ray", "--memory", "32MB", "--json"]
    with redirect_stdout(sys.stderr):
        app(words, standalone_mode=False)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "own": own[0], "all": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


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
    parser.add_argument("--only", choices=("speed", "memory"), help="one half of it")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, *numbers = options.one[0], *map(int, options.one[1:])
        print(json.dumps(_command(*numbers[:2]) if model == _COMMAND else _one(model, *numbers)))
        return
    if options.only != "memory":
        _show_speed(options.documents)
    if options.only != "speed":
        _show_memory("driver that encodes", "wordllama", options.few, options.many)
        _show_memory("driver of a whole command", _COMMAND, options.few, options.many)


_COMMAND = "command"


def _show_speed(documents: int) -> None:
    seconds = {workers: _measured("minilm", documents, workers, 2)["seconds"] for workers in (0, 1, 2)}
    for workers, name in ((0, "one process"), (1, "Ray, one worker"), (2, "Ray, two workers")):
        print(f"{name}: {seconds[workers]:.1f} s, {documents / seconds[workers]:.1f} passages a second")
    print(f"two workers against one: {seconds[1] / seconds[2]:.2f}x")
    print(f"Ray against one process, one thread each: {seconds[1] / seconds[0] - 1:+.1%}")


def _show_memory(what: str, model: str, few: int, many: int) -> None:
    memory = [_measured(model, count, 2, 1) for count in (few, many)]
    for count, used in zip((few, many), memory, strict=True):
        print(f"{what}, {count:,} passages: {used['own']:,.0f} MB, {used['all']:,.0f} MB with mapped files")
    times = memory[1]["own"] / memory[0]["own"]
    print(f"{many / few:.0f} times the passages: {times:.2f} times the memory of its own")


if __name__ == "__main__":
    main()
