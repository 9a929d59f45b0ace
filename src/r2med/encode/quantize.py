"""Indexes of vectors as floats, bytes and bits, each a type with its own search.

`FloatIndex` is exact. `Int8Index` stores a byte per number, `BinaryIndex` a bit; both compare the query's own floats
with the coarse vectors (only the documents are rounded), and may then rescore a longer list of candidates by the floats
they were made from. `first_dimensions` is Matryoshka truncation, before any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.vector_search import Similarity, VectorHits, VectorRows, rescore, search, unit
from r2med.errors import R2medError

_BLOCK = 8192


class Sized(VectorRows, Protocol):
    """Rows with a known size in bytes."""

    @property
    def nbytes(self) -> int:
        """Return the size of the rows in bytes."""


class QuantizedIndex(Protocol):
    """Documents prepared for search."""

    @property
    def nbytes(self) -> int:
        """Return the size of what is searched."""

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best documents; equal scores in the order of `tie_order`."""


@dataclass(frozen=True, eq=False)
class FirstDimensions:
    """Vectors cut to their first numbers. Cosine normalises them again by itself, for it divides by their length."""

    rows: Sized
    dimension: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and their dimension after the cut."""
        return (self.rows.shape[0], self.dimension)

    @property
    def nbytes(self) -> int:
        """Return the size of the part that is used."""
        return self.rows.nbytes // self.rows.shape[1] * self.dimension

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        return self.rows[places][:, : self.dimension]


def first_dimensions(rows: Sized, dimension: int) -> Sized:
    """Truncate vectors, as Matryoshka models allow, to their first `dimension` numbers; all of them for 0.

    >>> first_dimensions(np.ones((2, 8), dtype=np.float32), 3).shape
    (2, 3)
    """
    if dimension == 0 or dimension == rows.shape[1]:
        return rows
    if not 0 < dimension < rows.shape[1]:
        raise R2medError(f"dim={dimension} of vectors that have {rows.shape[1]} dimensions")
    return FirstDimensions(rows, dimension)


@dataclass(frozen=True, eq=False)
class FloatIndex:
    """The vectors themselves: exact."""

    rows: Sized
    how: Similarity

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored."""
        return self.rows.nbytes

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best documents, exactly."""
        return search(queries, self.rows, depth, tie_order, self.how)


@dataclass(frozen=True, eq=False)
class ByteCodes:
    """Rows of whole numbers from -127 to 127."""

    codes: NDArray[np.int8]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and their dimension."""
        return self.codes.shape

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        return self.codes[places].astype(np.float32)


@dataclass(frozen=True, eq=False)
class BitCodes:
    """Rows of signs, eight to a byte, that read as plus and minus one."""

    codes: NDArray[np.uint8]
    dimension: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and their dimension."""
        return (len(self.codes), self.dimension)

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        signs = np.unpackbits(self.codes[places], axis=1, count=self.dimension).astype(np.float32)
        signs *= 2
        signs -= 1
        return signs


@dataclass(frozen=True, eq=False)
class CoarseIndex:
    """Base of the quantised indexes: a search in codes, and floats to rescore its candidates."""

    codes: ByteCodes | BitCodes
    scale: Vectors
    """What a query is multiplied by, number by number, before it meets the codes."""
    rows: VectorRows
    """The floats the codes were made from."""
    how: Similarity
    rescore: int = 0
    """How many candidates a place of the list are ranked anew by the floats; 0 for none."""

    @property
    def nbytes(self) -> int:
        """Return the size of the codes and their scale; the floats may stay on disk."""
        return self.codes.codes.nbytes + self.scale.nbytes

    def search(self, queries: Vectors, depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return each query's best documents by the codes, or the best by the floats among `rescore` times as many."""
        asked = unit(queries) if self.how.name == "cosine" else queries
        how = Similarity("dot", self.how.memory, self.how.block)
        hits = search(asked * self.scale, self.codes, depth * max(1, self.rescore), tie_order, how)
        if not self.rescore:
            return hits
        fine = rescore(queries, self.rows, hits.places, tie_order, self.how.name)
        return VectorHits(fine.places[:, :depth], fine.scores[:, :depth])


class Int8Index(CoarseIndex):
    """Index of a byte per number. Each dimension has its own scale: its largest number becomes 127."""

    @classmethod
    def build(cls, rows: Sized, how: Similarity, rescore: int = 0, folder: Path | None = None) -> Int8Index:
        """Build the index, reading the vectors twice: for scales and for codes. For cosine they are normalised."""
        count, dimension = rows.shape
        largest = np.zeros(dimension, dtype=np.float32)
        for _, block in _blocks(rows, how):
            np.maximum(largest, np.abs(block).max(axis=0), out=largest)
        scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
        codes = _room(folder, (count, dimension), np.dtype(np.int8))
        for places, block in _blocks(rows, how):
            codes[places] = np.rint(block / scale).astype(np.int8)
        _keep_scale(folder, scale)
        return cls(ByteCodes(codes), scale, rows, how, rescore)

    @classmethod
    def open(cls, rows: Sized, how: Similarity, rescore: int, folder: Path) -> Int8Index:
        """Open the codes that were built in a folder, memory-mapped."""
        return cls(ByteCodes(_mapped(folder)), np.load(folder / _SCALE), rows, how, rescore)


class BinaryIndex(CoarseIndex):
    """Index of a bit per number: 1 if it is above zero. A bit stands for plus or minus one over sqrt(dimension)."""

    @classmethod
    def build(cls, rows: Sized, how: Similarity, rescore: int = 0, folder: Path | None = None) -> BinaryIndex:
        """Build the index; the vectors are read once."""
        count, dimension = rows.shape
        codes = _room(folder, (count, -(-dimension // 8)), np.dtype(np.uint8))
        for places, block in _blocks(rows, Similarity("dot")):
            codes[places] = np.packbits(block > 0, axis=1)
        scale = np.array([dimension**-0.5], dtype=np.float32)
        _keep_scale(folder, scale)
        return cls(BitCodes(codes, dimension), scale, rows, how, rescore)

    @classmethod
    def open(cls, rows: Sized, how: Similarity, rescore: int, folder: Path) -> BinaryIndex:
        """Open the codes that were built in a folder, memory-mapped."""
        return cls(BitCodes(_mapped(folder), rows.shape[1]), np.load(folder / _SCALE), rows, how, rescore)


QUANTIZED: dict[str, type[Int8Index] | type[BinaryIndex]] = {"int8": Int8Index, "binary": BinaryIndex}
"""The quantised kinds by the name that a spec gives them."""


def build_index(rows: Sized, how: Similarity, quantize: str = "", rescore: int = 0) -> QuantizedIndex:
    """Prepare documents for search: floats, or the quantised kind of this name.

    >>> build_index(np.eye(16, dtype=np.float32), Similarity(), "binary").nbytes
    36
    """
    return QUANTIZED[quantize].build(rows, how, rescore) if quantize else FloatIndex(rows, how)


_CODES, _SCALE = "codes.npy", "scale.npy"


def _room(folder: Path | None, shape: tuple[int, int], kind: np.dtype[Any]) -> NDArray[Any]:
    """Allocate room for codes: in memory, or in a mapped file of a folder."""
    if folder is None or 0 in shape:
        return np.empty(shape, dtype=kind)
    return np.lib.format.open_memmap(folder / _CODES, "w+", kind, shape)


def _keep_scale(folder: Path | None, scale: Vectors) -> None:
    if folder is not None:
        np.save(folder / _SCALE, scale, allow_pickle=False)


def _mapped(folder: Path) -> NDArray[Any]:
    found: NDArray[Any] = np.load(folder / _CODES, mmap_mode="r").view(np.ndarray)
    return found


def _blocks(rows: VectorRows, how: Similarity) -> Iterator[tuple[slice, Vectors]]:
    """Yield the vectors block by block, of length 1 for cosine."""
    for start in range(0, rows.shape[0], _BLOCK):
        places = slice(start, min(start + _BLOCK, rows.shape[0]))
        yield places, unit(rows[places]) if how.name == "cosine" else rows[places]
