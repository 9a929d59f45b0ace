"""Encodes numbered texts on a Ray cluster: the driver of tests that kill it, and an encoder that notes every block."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import encoders
from r2med.encode import batching as spread_encoding
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.vectors import StoredVectors
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.executor.ray import RayCluster
from r2med.pipeline.stage import Context
from r2med.settings import ExecutorSettings
from r2med.store.cache import Cache

TEXTS = 300
HOST = "TEST_HOST"
"""The variable with the name of a host, where a test has several."""
_BEFORE_THE_GATE = 3
"""Blocks that a worker does before it waits for the gate to open."""
_LONG = 120.0


class Computed(NamedTuple):
    """A block that somebody began to compute."""

    process: int
    node: str
    text: str
    """The beginning of its first text."""


class NotingEncoder(encoders.HashEncoder):
    """Writes a line for each block when it begins, and after a few of them waits until a file is there."""

    def __init__(self, log: Path, gate: Path | None = None) -> None:
        super().__init__(batch_tokens=200)
        self.log, self.gate = log, gate

    def encode(self, texts, role):
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {_node()} {' '.join(texts[0].split()[:2])}\n")
        if self.gate is not None and len(self.batches) >= _BEFORE_THE_GATE:
            wait_until(self.gate.exists)
        return super().encode(texts, role)


def _node() -> str:
    import ray

    if HOST in os.environ:
        return os.environ[HOST]
    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else "here"


def computed(log: Path) -> list[Computed]:
    """What the log says."""
    rows = [line.split(" ", 2) for line in log.read_text().splitlines()] if log.exists() else []
    return [Computed(int(process), node, text) for process, node, text in rows]


def computed_again(log: Path) -> int:
    """How many blocks were computed that had been computed before."""
    return sum(count - 1 for count in Counter(block.text for block in computed(log)).values())


def expected(tmp_path: Path) -> bytes:
    """The vectors of all texts, as this process makes them."""
    texts = list(encoders.numbered(TEXTS).texts)
    return NotingEncoder(tmp_path / "unused").encode(texts, Role.DOCUMENT).tobytes()


def wait_until(true: Callable[[], object]) -> None:
    """Wait for something that has to happen."""
    deadline = time.monotonic() + _LONG
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def on_ray(workers: int) -> Executor:
    return Executor(spread=RayCluster("", ExecutorSettings(workers=workers)))


def encode(log: Path, executor: Executor | None = None, gate: Path | None = None) -> StoredVectors:
    context = Context(Cache.default(), executor or quiet())
    return encode_all(NotingEncoder(log, gate), encoders.numbered(TEXTS), Role.DOCUMENT, context)


if __name__ == "__main__":
    spread_encoding._BLOCK_TOKENS = 1  # a block is a batch
    encode(Path(sys.argv[1]), on_ray(int(sys.argv[3])), Path(sys.argv[2]))
