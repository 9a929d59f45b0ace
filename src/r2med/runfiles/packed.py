"""A run as a few bytes, exact and with the precision of its scores kept: how the ledger stores it.

A JSON head (queries, distinct documents, precision), then the columns: list lengths, document numbers, scores.
The columns are stored byte plane by byte plane, in which neighbours resemble each other, and all of it is deflated.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.ranking import Run

_MAGIC = b"r2med run 1\n"
_COUNT = np.dtype("<u4")


def pack(run: Run) -> bytes:
    """The bytes of a run; `unpack` gives an equal run back.

    >>> run = Run.from_lists({"q1": (["d1", "d2"], [0.5, 0.7]), "q2": ([], [])})
    >>> unpack(pack(run)) == run
    True
    """
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(document, len(numbers)) for document in run.documents]
    scores = run.scores.astype(run.scores.dtype.newbyteorder("<"), copy=False)
    head = orjson.dumps({"scores": scores.dtype.str, "queries": list(run.queries), "documents": list(numbers)})
    columns = (np.diff(run.offsets).astype(_COUNT), np.array(codes, dtype=_COUNT), scores)
    parts = [np.array(len(head), dtype=_COUNT).tobytes(), head, *map(_planes, columns)]
    return _MAGIC + zlib.compress(b"".join(parts))


def unpack(data: bytes) -> Run:
    """The run that `pack` made these bytes of."""
    if not data.startswith(_MAGIC):
        raise DataError("the stored run is not in a format of this version of r2med")
    try:
        body = zlib.decompress(data[len(_MAGIC) :])
        start = _COUNT.itemsize + int(np.frombuffer(body, _COUNT, 1)[0])
        head = orjson.loads(body[_COUNT.itemsize : start])
        return _rebuilt(head, body[start:])
    except (zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError("the stored run is damaged") from error


def _rebuilt(head: dict[str, Any], body: bytes) -> Run:
    dtype = np.dtype(head["scores"])
    if dtype.kind != "f":
        raise ValueError(f"scores of type {dtype}")
    middle = len(head["queries"]) * _COUNT.itemsize
    offsets = np.zeros(len(head["queries"]) + 1, dtype=np.int64)
    np.cumsum(_values(body[:middle], _COUNT), out=offsets[1:])
    rows = int(offsets[-1])
    if len(body) != middle + rows * (_COUNT.itemsize + dtype.itemsize):
        raise ValueError(f"{len(body)} bytes for {rows} rows")
    end = middle + rows * _COUNT.itemsize
    names = head["documents"]
    documents = [names[code] for code in _values(body[middle:end], _COUNT).tolist()]
    return Run(head["queries"], offsets, documents, _values(body[end:], dtype).astype(dtype.newbyteorder("=")))


def _planes(column: NDArray[Any]) -> bytes:
    """A column's first bytes, then all its second bytes, and so on."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _values(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The inverse of `_planes`."""
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(-1)
