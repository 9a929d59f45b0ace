"""Indexes of vectors: floats, bytes and bits, and the graphs and lists of faiss and usearch.

The coarse indexes compare the query's own floats with coarse documents, and may rescore a longer list of candidates by
the floats these were made from. An engine names candidates, which are scored and ranked as exact search does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.vector_search import Similarity, VectorHits, VectorRows, rescore, search, unit
from r2med.errors import R2medError, SpecError, require_extra, suggest
from r2med.formatting import first_line
from r2med.pipeline.spec import Call, Value, parse

_BLOCK = 8192
_CODES, _SCALE, _ENGINE_FILE = "codes.npy", "scale.npy", "index.bin"
_CANDIDATES = 2  # that an engine names for each place of a list, unless more are asked for


@dataclass(frozen=True, eq=False)
class FirstDimensions:
    """Vectors cut to their first numbers. Cosine normalises them again by itself, for it divides by their length."""

    rows: VectorRows
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Return the size of the part that is used."""
        return self.rows.nbytes // self.rows.shape[1] * self.shape[1]

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        return self.rows[places][:, : self.shape[1]]


def first_dimensions(rows: VectorRows, dimension: int) -> VectorRows:
    """Truncate vectors, as Matryoshka models allow, to their first `dimension` numbers; all of them for 0."""
    if dimension == 0 or dimension == rows.shape[1]:
        return rows
    if not 0 < dimension < rows.shape[1]:
        raise R2medError(f"dim={dimension} of vectors that have {rows.shape[1]} dimensions")
    return FirstDimensions(rows, (rows.shape[0], dimension))


@dataclass(frozen=True, eq=False)
class FloatIndex:
    """The vectors themselves: exact."""

    rows: VectorRows
    how: Similarity

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored."""
        return self.rows.nbytes

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best documents, exactly."""
        return search(queries, self.rows, depth, tie_order, self.how)


@dataclass(frozen=True, eq=False)
class Codes:
    """Rows of whole numbers from -127 to 127, or of signs, eight to a byte, that read as plus and minus one."""

    codes: NDArray[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Return the size of the codes."""
        return self.codes.nbytes

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        codes = self.codes[places]
        if codes.dtype == np.int8:
            return codes.astype(np.float32)
        signs = np.unpackbits(codes, axis=1, count=self.shape[1]).astype(np.float32)
        signs *= 2
        signs -= 1
        return signs


@dataclass(frozen=True, eq=False)
class CoarseIndex:
    """Base of the quantised indexes: a search in codes, and floats to rescore its candidates."""

    codes: Codes
    scale: Vectors  # what a query is multiplied by, number by number, before it meets the codes
    rows: VectorRows  # the floats the codes were made from
    how: Similarity
    rescore: int = 0  # how many candidates a place of the list are ranked anew by the floats; 0 for none

    @classmethod
    def open(cls, rows: VectorRows, how: Similarity, rescore: int, folder: Path) -> Self:
        """Open the codes that were built in a folder, memory-mapped."""
        codes = np.load(folder / _CODES, mmap_mode="r").view(np.ndarray)
        return cls(Codes(codes, rows.shape), np.load(folder / _SCALE), rows, how, rescore)

    @property
    def nbytes(self) -> int:
        """Return the size of the codes and their scale; the floats may stay on disk."""
        return self.codes.nbytes + self.scale.nbytes

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best documents by the codes, or the best by the floats among `rescore` times as many."""
        scaled = (unit(queries) if self.how.name == "cosine" else queries) * self.scale
        how = Similarity("dot", self.how.memory, self.how.block)
        hits = search(scaled, self.codes, depth * max(1, self.rescore), tie_order, how)
        if not self.rescore:
            return hits
        fine = rescore(queries, self.rows, hits.places, tie_order, self.how.name)
        return VectorHits(fine.places[:, :depth], fine.scores[:, :depth])


class Int8Index(CoarseIndex):
    """Index of a byte per number. Each dimension has its own scale: its largest number becomes 127."""

    @classmethod
    def build(cls, rows: VectorRows, how: Similarity, rescore: int = 0, folder: Path | None = None) -> Self:
        """Build the index, reading the vectors twice: for scales and for codes. For cosine they are normalised."""
        largest = np.zeros(rows.shape[1], dtype=np.float32)
        for _, block in _blocks(rows, how):
            np.maximum(largest, np.abs(block).max(axis=0), out=largest)
        scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
        codes = _new_codes(folder, (rows.shape[0], rows.shape[1]), np.dtype(np.int8), scale)
        for places, block in _blocks(rows, how):
            codes[places] = np.rint(block / scale).astype(np.int8)
        return cls(Codes(codes, rows.shape), scale, rows, how, rescore)


class BinaryIndex(CoarseIndex):
    """Index of a bit per number: 1 if it is above zero. A bit stands for plus or minus one over sqrt(dimension)."""

    @classmethod
    def build(cls, rows: VectorRows, how: Similarity, rescore: int = 0, folder: Path | None = None) -> Self:
        """Build the index; the vectors are read once."""
        count, dimension = rows.shape
        scale = np.array([dimension**-0.5], dtype=np.float32)
        codes = _new_codes(folder, (count, -(-dimension // 8)), np.dtype(np.uint8), scale)
        for places, block in _blocks(rows, Similarity("dot")):
            codes[places] = np.packbits(block > 0, axis=1)
        return cls(Codes(codes, rows.shape), scale, rows, how, rescore)


VectorIndex: TypeAlias = "FloatIndex | CoarseIndex | ApproximateIndex"
"""Documents prepared for search."""
QUANTIZED: dict[str, type[Int8Index] | type[BinaryIndex]] = {"int8": Int8Index, "binary": BinaryIndex}
"""The quantised kinds by the name that a spec gives them."""


def build_index(rows: VectorRows, how: Similarity, quantize: str = "", rescore: int = 0) -> VectorIndex:
    """Prepare documents for search: floats, or the quantised kind of this name."""
    return QUANTIZED[quantize].build(rows, how, rescore) if quantize else FloatIndex(rows, how)


def _new_codes(folder: Path | None, shape: tuple[int, int], kind: np.dtype[Any], scale: Vectors) -> NDArray[Any]:
    if folder is not None:
        np.save(folder / _SCALE, scale, allow_pickle=False)
    if folder is None or 0 in shape:
        return np.empty(shape, dtype=kind)
    return np.lib.format.open_memmap(folder / _CODES, "w+", kind, shape)


def _blocks(rows: VectorRows, how: Similarity) -> Iterator[tuple[slice, Vectors]]:
    """Yield the vectors block by block, of length 1 for cosine."""
    for start in range(0, rows.shape[0], _BLOCK):
        places = slice(start, min(start + _BLOCK, rows.shape[0]))
        yield places, unit(rows[places]) if how.name == "cosine" else rows[places]


class _Faiss:
    """An index of faiss, of any factory."""

    options: ClassVar[Mapping[str, Value]] = {"factory": "HNSW32", "nprobe": 8, "ef": 64, "sample": 100_000}

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

    def write(self, rows: VectorRows, how: Similarity, file: Path) -> None:
        if not self._index.is_trained:
            # The documents to learn from are sampled evenly from all.
            count = rows.shape[0]
            places = np.unique(np.linspace(0, count - 1, min(count, self._settings["sample"])).astype(np.intp))
            try:
                self._index.train(_comparable(rows[places], how))
            except RuntimeError as error:
                factory = self._settings["factory"]
                raise R2medError(f"faiss cannot learn {factory} from {len(places)} documents") from error
        for start in range(0, rows.shape[0], 2 * _BLOCK):
            self._index.add(_comparable(rows[start : start + 2 * _BLOCK], how))
        self._faiss.write_index(self._index, str(file))

    def candidates(self, queries: Vectors, count: int) -> NDArray[np.int64]:
        """Return `count` documents per query, a row each; -1 for missing ones."""
        inner = self._faiss.downcast_index(self._index)
        if hasattr(inner, "nprobe"):
            inner.nprobe = self._settings["nprobe"]
        if hasattr(inner, "hnsw"):
            inner.hnsw.efSearch = max(self._settings["ef"], count)
        return self._index.search(queries, count)[1]


class _Usearch:
    """An index of usearch: a graph."""

    options: ClassVar[Mapping[str, Value]] = {"connectivity": 16, "expansion": 128, "dtype": "f32"}

    def __init__(self, settings: Mapping[str, Any], dimension: int, file: Path | None = None) -> None:
        from usearch.index import Index

        try:
            self._index = Index(
                ndim=dimension,
                metric="ip",
                dtype=settings["dtype"],
                connectivity=settings["connectivity"],
                expansion_add=settings["expansion"],
                expansion_search=settings["expansion"],
            )
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise SpecError(f"usearch refuses these settings: {first_line(error)}") from error
        if file is not None:
            self._index.view(str(file))

    def write(self, rows: VectorRows, how: Similarity, file: Path) -> None:
        for start in range(0, rows.shape[0], 2 * _BLOCK):
            block = _comparable(rows[start : start + 2 * _BLOCK], how)
            self._index.add(np.arange(start, start + len(block)), block)
        self._index.save(str(file))

    def candidates(self, queries: Vectors, count: int) -> NDArray[np.int64]:
        documents = np.full((len(queries), count), -1, dtype=np.int64)
        for row, query in zip(documents, queries, strict=True):
            keys = self._index.search(query, count).keys
            row[: len(keys)] = keys
        return documents


_ENGINES: Mapping[str, type[_Faiss] | type[_Usearch]] = {"faiss": _Faiss, "usearch": _Usearch}
_PACKAGES = {"faiss": "faiss-cpu", "usearch": "usearch"}


def engine_call(value: object) -> Call:
    """Parse an engine in a spec: a name, or a name with options, perhaps as text."""
    return value if isinstance(value, Call) else parse(str(value)).calls[0]


@dataclass(frozen=True)
class EngineSettings:
    """An engine with all of its settings."""

    engine: str  # also the name of its optional dependency group
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def read(cls, value: object) -> EngineSettings:
        """Parse the value of a spec; options that it leaves out have their defaults.

        >>> EngineSettings.read("faiss(nprobe=4)").options[2]
        ('nprobe', 4)
        """
        call = engine_call(value)
        if call.name not in _ENGINES:
            raise SpecError(f"unknown index {call.name!r}{suggest(call.name, _ENGINES) or '; known: faiss, usearch'}")
        defaults = _ENGINES[call.name].options
        if call.args:
            raise SpecError(f"{call}: options have names: {', '.join(defaults)}")
        for name, option in call.options:
            if name not in defaults:
                raise SpecError(f"{call.name} has no option {name!r}; it takes {', '.join(defaults)}")
            kind = type(defaults[name])
            if type(option) is not kind or (kind is int and int(str(option)) < 1):
                words = "a whole number of 1 or more" if kind is int else "a name or text"
                raise SpecError(f"{call.name}: {name} must be {words}, not {option!r}")
        return cls(call.name, tuple(sorted({**defaults, **dict(call.options)}.items())))

    def fingerprint(self) -> tuple[object, ...]:
        """Return the settings that the index depends on besides the vectors."""
        require_extra(self.engine, self.engine)
        return (self.engine, version(_PACKAGES[self.engine]), self.options)

    def write(self, rows: VectorRows, how: Similarity, folder: Path) -> None:
        """Build the index of some documents in a folder, block by block."""
        _ENGINES[self.engine](dict(self.options), rows.shape[1]).write(rows, how, folder / _ENGINE_FILE)

    def open(self, rows: VectorRows, how: Similarity, folder: Path, rescored: int) -> ApproximateIndex:
        """Open the index in a folder, memory-mapped."""
        file = folder / _ENGINE_FILE
        engine = _ENGINES[self.engine](dict(self.options), rows.shape[1], file)
        return ApproximateIndex(engine, rows, how, file.stat().st_size, rescored or _CANDIDATES)


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """An engine's index, and the vectors by which its candidates are ranked."""

    engine: _Faiss | _Usearch
    rows: VectorRows
    how: Similarity
    nbytes: int  # the size of the engine's index
    rescored: int  # candidates for each place of a list

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best among the engine's candidates; a query with too few of them is searched exactly."""
        depth = min(depth, self.rows.shape[0])
        count = min(depth * self.rescored, self.rows.shape[0])
        candidates = self.engine.candidates(_comparable(queries, self.how), count)
        places = np.empty((len(queries), depth), dtype=np.intp)
        scores = np.empty((len(queries), depth), dtype=np.float32)
        whole = (candidates >= 0).all(axis=1)
        if whole.any():
            best = rescore(queries[whole], self.rows, candidates[whole], tie_order, self.how.name)
            places[whole], scores[whole] = best.places[:, :depth], best.scores[:, :depth]
        if not whole.all():
            places[~whole], scores[~whole] = search(queries[~whole], self.rows, depth, tie_order, self.how)
        return VectorHits(places, scores)


def _comparable(rows: Vectors, how: Similarity) -> Vectors:
    """Prepare vectors so that their dot product is the similarity."""
    return np.ascontiguousarray(unit(rows) if how.name == "cosine" else rows, dtype=np.float32)
