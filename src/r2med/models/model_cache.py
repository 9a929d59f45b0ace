"""Loaded models, kept in memory for the next task: encoders and rerankers share the room."""

from __future__ import annotations

import atexit
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """Whatever holds memory: an encoder's model, or a reranker's."""

    def close(self) -> None:
        """Give back the memory."""


Loaded = TypeVar("Loaded", bound=Closable)


class ModelCache:
    """Loaded models by what they were built from, so that the next task finds them; the oldest make room."""

    def __init__(self, limit: int = 20 << 30) -> None:
        self.limit = limit
        """The bytes of weights that may be in memory at a time; a larger model may be there alone."""
        self._loaded: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def take(self, key: object, size: int, load: Callable[[], Loaded]) -> Loaded:
        """The model of a key, loaded when it is not here; others go before so that it fits."""
        if key not in self._loaded:
            while self._loaded and sum(other for _, other in self._loaded.values()) + size > self.limit:
                self._loaded.popitem(last=False)[1][0].close()
            self._loaded[key] = load(), size
        self._loaded.move_to_end(key)
        model: Loaded = self._loaded[key][0]
        return model

    def clear(self) -> None:
        """Let every model go."""
        while self._loaded:
            self._loaded.popitem()[1][0].close()


MODEL_CACHE = ModelCache()
"""The models of this process."""
atexit.register(MODEL_CACHE.clear)
