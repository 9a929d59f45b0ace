"""Encodes numbered texts on a Ray cluster: the driver of tests that kill it, and an encoder that notes every batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import encoders
from r2med.config import EngineSettings
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.vector_store import StoredVectors
from r2med.engine.ray_cluster import RayCluster
from r2med.engine.spreading import SpreadingEngine
from r2med.pipeline.engine import Engine, quiet
from r2med.pipeline.stage import Context
from r2med.storage.cache import Cache

TEXTS = 600


class NotingEncoder(encoders.HashEncoder):
    """Takes its time, and writes a line for each batch: the process, and the first text."""

    def __init__(self, log: Path, pause: float = 0.0) -> None:
        super().__init__(batch_tokens=200)
        self.log, self.pause = log, pause

    def encode(self, texts, role):
        vectors = super().encode(texts, role)
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {' '.join(texts[0].split()[:2])}\n")
        return vectors


def on_ray(workers: int) -> Engine:
    return SpreadingEngine(RayCluster("", EngineSettings(workers=workers)))


def encode(log: Path, engine: Engine | None = None, pause: float = 0.0) -> StoredVectors:
    context = Context(Cache.default(), engine or quiet())
    return encode_all(NotingEncoder(log, pause), encoders.numbered(TEXTS), Role.DOCUMENT, context)


if __name__ == "__main__":
    encode(Path(sys.argv[1]), on_ray(2), float(sys.argv[2]))
