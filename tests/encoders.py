"""Small encoders for tests: real vectors, no model, and ways to go wrong."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from r2med.data.dataset import Texts
from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache


def context() -> Context:
    return Context(Cache.default(), quiet())


def numbered(count: int, start: int = 0) -> Texts:
    """Texts of many lengths, none like another."""
    numbers = range(start, start + count)
    return Texts([f"d{n}" for n in numbers], [f"text {n} " + "word " * (n * 7 % 23) for n in numbers])


class HashEncoder(Encoder):
    """Vectors drawn from a hash of the prompted text; tokens are words. Remembers what it was asked."""

    def __init__(self, name: str = "hash", dimension: int = 8, limit: int = 0, batch_tokens: int = 64) -> None:
        self.name, self.dimension, self._limit, self._batch_tokens = name, dimension, limit, batch_tokens
        self.prompts = {Role.QUERY: "query: ", Role.DOCUMENT: ""}
        self.loads = 0
        self.batches: list[list[str]] = []
        self.pause = 0.0
        self.spoil: Callable[[Sequence[str], Vectors], Vectors] = lambda texts, vectors: vectors

    def settings(self, role: Role) -> Mapping[str, object]:
        return {"model": self.name, "role": role.value, "prompt": self.prompts[role], "max_length": self._limit}

    @property
    def similarity(self) -> str:
        return "cosine"

    def load(self) -> None:
        self.loads += 1

    def lengths(self, texts, role):
        return np.array([len(self.prompted(text, role).split()) for text in texts], dtype=np.int64)

    def limit(self, role: Role) -> int:
        return self._limit

    @property
    def batch_tokens(self) -> int:
        return self._batch_tokens

    def encode(self, texts, role):
        self.batches.append(list(texts))
        time.sleep(self.pause)
        vectors = np.array([self.vector(self.prompted(text, role)) for text in texts])
        return self.spoil(texts, vectors)

    def vector(self, text: str) -> Vectors:
        words = text.split()[: self._limit or None]
        seed = int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension).astype(np.float32)

    def prompted(self, text: str, role: Role) -> str:
        return self.prompts[role] + text

    def for_passages(self) -> HashEncoder:
        plain = HashEncoder(self.name, self.dimension, self._limit, self._batch_tokens)
        plain.prompts[Role.QUERY] = ""
        return plain

    @property
    def encoded(self) -> list[str]:
        """Every text it was asked to encode, in order."""
        return [text for batch in self.batches for text in batch]
