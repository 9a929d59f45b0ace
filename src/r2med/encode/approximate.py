"""Approximate search: faiss or usearch selects candidates, which are scored and ranked as exact search does.

    minilm(index=faiss)                                   a graph of 32 neighbours (HNSW)
    minilm(index=faiss(factory="IVF1024,Flat", nprobe=16))
    minilm(index=usearch(connectivity=16, expansion=128))

The engine names a few candidates for every place of the list. Callers measure what is lost against exact search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.vector_search import Similarity, VectorHits, VectorRows, rescore, search, unit
from r2med.errors import R2medError, SpecError, require_extra, suggest
from r2med.formatting import first_line
from r2med.pipeline.spec import Call, Value, parse

_BLOCK = 16_384
_CANDIDATES = 2
"""How many candidates an engine names for each place of a list, unless more are asked for."""


class _Engine(Protocol):
    """A search engine that builds its own index."""

    def add(self, start: int, rows: Vectors) -> None:
        """Add some documents."""

    def save(self, file: Path) -> None:
        """Write the index."""

    def candidates(self, queries: Vectors, count: int) -> NDArray[np.int64]:
        """Return `count` documents per query, a row each; -1 for missing ones."""


class _Faiss:
    """An index of faiss, of any factory."""

    extra, module, package = "faiss", "faiss", "faiss-cpu"
    options: Mapping[str, Value] = {"factory": "HNSW32", "nprobe": 8, "ef": 64, "sample": 100_000}

    def __init__(self, settings: Mapping[str, Any], dimension: int, file: Path | None = None) -> None:
        import faiss

        self._faiss, self._settings = faiss, settings
        if file is not None:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
            return
        try:
            self._index = faiss.index_factory(dimension, settings["factory"], faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as error:
            line = str(error).strip().splitlines()[-1]
            raise SpecError(f"faiss knows no index {settings['factory']!r} ({line})") from error

    def train(self, rows: VectorRows, how: Similarity) -> None:
        """Train the index, if it needs training, on documents sampled evenly from all."""
        if self._index.is_trained:
            return
        count = rows.shape[0]
        places = np.unique(np.linspace(0, count - 1, min(count, self._settings["sample"])).astype(np.intp))
        try:
            self._index.train(_ready(rows[places], how))
        except RuntimeError as error:
            raise R2medError(f"faiss cannot learn {self._settings['factory']} from {len(places)} documents") from error

    def add(self, start: int, rows: Vectors) -> None:
        self._index.add(rows)

    def save(self, file: Path) -> None:
        self._faiss.write_index(self._index, str(file))

    def candidates(self, queries: Vectors, count: int) -> NDArray[np.int64]:
        inner = self._faiss.downcast_index(self._index)
        if hasattr(inner, "nprobe"):
            inner.nprobe = self._settings["nprobe"]
        if hasattr(inner, "hnsw"):
            inner.hnsw.efSearch = max(self._settings["ef"], count)
        found: NDArray[np.int64] = self._index.search(queries, count)[1]
        return found


class _Usearch:
    """An index of usearch: a graph."""

    extra, module, package = "usearch", "usearch", "usearch"
    options: Mapping[str, Value] = {"connectivity": 16, "expansion": 128, "dtype": "f32"}

    def __init__(self, settings: Mapping[str, Any], dimension: int, file: Path | None = None) -> None:
        from usearch.index import Index

        expansion = settings["expansion"]
        try:
            self._index = Index(
                ndim=dimension,
                metric="ip",
                dtype=settings["dtype"],
                connectivity=settings["connectivity"],
                expansion_add=expansion,
                expansion_search=expansion,
            )
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise SpecError(f"usearch refuses these settings: {first_line(error)}") from error
        if file is not None:
            self._index.view(str(file))

    def train(self, rows: VectorRows, how: Similarity) -> None:
        """Do nothing: a graph needs no training."""

    def add(self, start: int, rows: Vectors) -> None:
        self._index.add(np.arange(start, start + len(rows)), rows)

    def save(self, file: Path) -> None:
        self._index.save(str(file))

    def candidates(self, queries: Vectors, count: int) -> NDArray[np.int64]:
        found = np.full((len(queries), count), -1, dtype=np.int64)
        for row, query in zip(found, queries, strict=True):
            keys = self._index.search(query, count).keys
            row[: len(keys)] = keys
        return found


_ENGINES: Mapping[str, type[_Faiss] | type[_Usearch]] = {"faiss": _Faiss, "usearch": _Usearch}


def engine_call(value: object) -> Call:
    """Parse an engine in a spec: a name, or a name with options, perhaps as text.

    >>> engine_call("faiss(nprobe=4)").options
    (('nprobe', 4),)
    """
    return value if isinstance(value, Call) else parse(str(value)).calls[0]


def _engine_options(call: Call, known: Mapping[str, Value]) -> tuple[tuple[str, Any], ...]:
    """Return all options of an engine; those that a spec leaves out have their defaults."""
    if call.args:
        raise SpecError(f"{call}: options have names: {', '.join(known)}")
    for name, given in call.options:
        if name not in known:
            raise SpecError(f"{call.name} has no option {name!r}; it takes {', '.join(known)}")
        wanted = type(known[name])
        if type(given) is not wanted or (wanted is int and int(str(given)) < 1):
            words = "a whole number of 1 or more" if wanted is int else "a name or text"
            raise SpecError(f"{call.name}: {name} must be {words}, not {given!r}")
    return tuple(sorted({**known, **dict(call.options)}.items()))


@dataclass(frozen=True)
class ApproximateSettings:
    """An engine with all of its settings."""

    engine: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def read(cls, value: object) -> ApproximateSettings:
        """Parse the value of a spec: a name, or a name with options.

        >>> ApproximateSettings.read("faiss(nprobe=4)").options[2]
        ('nprobe', 4)
        """
        call = engine_call(value)
        if call.name not in _ENGINES:
            raise SpecError(f"unknown index {call.name!r}{suggest(call.name, _ENGINES) or '; known: faiss, usearch'}")
        return cls(call.name, _engine_options(call, _ENGINES[call.name].options))

    @property
    def extra(self) -> str:
        """Return the optional dependency group."""
        return _ENGINES[self.engine].extra

    def fingerprint(self) -> tuple[object, ...]:
        """Return the settings that the index depends on besides the vectors."""
        kind = _ENGINES[self.engine]
        require_extra(kind.extra, kind.module)
        return (self.engine, version(kind.package), self.options)

    def write(self, rows: VectorRows, how: Similarity, folder: Path) -> None:
        """Build the index of some documents in a folder, block by block."""
        engine = _ENGINES[self.engine](dict(self.options), rows.shape[1])
        engine.train(rows, how)
        for start in range(0, rows.shape[0], _BLOCK):
            engine.add(start, _ready(rows[start : start + _BLOCK], how))
        engine.save(folder / _FILE)

    def open(self, rows: VectorRows, how: Similarity, folder: Path, rescored: int) -> ApproximateIndex:
        """Open the index in a folder, memory-mapped."""
        engine = _ENGINES[self.engine](dict(self.options), rows.shape[1], folder / _FILE)
        return ApproximateIndex(engine, rows, how, (folder / _FILE).stat().st_size, rescored or _CANDIDATES)


_FILE = "index.bin"


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """An engine's index, and the vectors by which its candidates are ranked."""

    engine: _Engine
    rows: VectorRows
    how: Similarity
    nbytes: int
    """The size of the engine's index."""
    wider: int

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best among the engine's candidates; a query with too few of them is searched exactly."""
        depth = min(depth, self.rows.shape[0])
        count = min(depth * self.wider, self.rows.shape[0])
        found = self.engine.candidates(_ready(queries, self.how), count)
        places = np.empty((len(queries), depth), dtype=np.intp)
        scores = np.empty((len(queries), depth), dtype=np.float32)
        whole = (found >= 0).all(axis=1)
        if whole.any():
            best = rescore(queries[whole], self.rows, found[whole], tie_order, self.how.name)
            places[whole], scores[whole] = best.places[:, :depth], best.scores[:, :depth]
        if not whole.all():
            places[~whole], scores[~whole] = search(queries[~whole], self.rows, depth, tie_order, self.how)
        return VectorHits(places, scores)


def _ready(rows: Vectors, how: Similarity) -> Vectors:
    """Prepare vectors so that their dot product is the similarity."""
    return np.ascontiguousarray(unit(rows) if how.name == "cosine" else rows, dtype=np.float32)
