"""Approximate late interaction by fast-plaid (PLAID): it names documents to look at, exact MaxSim ranks them.

    colbert(lateon, index=plaid)
    colbert(lateon, index=plaid(nbits=2, n_ivf_probe=16))

Token vectors are grouped around centroids, and each is kept as its centroid and a few bits a number of what is left. A
search looks at the documents with a token near one of the query's, scores them by centroids, the best of these by the
bits, and names a few candidates for every place of the list. They are scored by exact MaxSim, so that a score does not
depend on the index; what is lost against exact search is measured by who asks for this.

fast-plaid is compiled against one version of torch, and beside another it ends the process with a segmentation fault.
Its wheels say in their version which torch that is, and they are never imported beside another.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.config.limits import thread_count
from r2med.encode.approximate import CANDIDATES, engine_call, engine_options
from r2med.encode.encoder import Vectors
from r2med.encode.maxsim import MaxSimIndex, rank_tokens, single_threads
from r2med.encode.token_store import TokenVectors
from r2med.encode.vector_search import VectorHits
from r2med.errors import MissingExtra, R2medError, SpecError, first_line, suggest
from r2med.models.devices import fix_rounding
from r2med.pipeline.spec import Call, Value

NAME = "plaid"
EXTRA = "plaid"
_PACKAGE = "fast-plaid"
_OPTIONS: Mapping[str, Value] = {
    "nbits": 4,
    "kmeans_niters": 4,
    "max_points_per_centroid": 256,
    "n_samples_kmeans": 0,
    "seed": 42,
    "n_ivf_probe": 8,
    "n_full_scores": 4096,
}
"""fast-plaid's own names and defaults; 0 samples are as many as it chooses by itself."""
_ZERO = ("seed", "n_samples_kmeans")
_SEARCHING = ("n_ivf_probe", "n_full_scores")
"""What the search alone depends on: one index serves all of their values."""
_ALIASES = {"nprobe": "n_ivf_probe"}
"""faiss's name of the same thing."""
_NBITS = (1, 2, 4, 8)
_NAMED_SHARE = 4
"""fast-plaid scores the n_full_scores best by their centroids, and one of four of those by all of their bits."""
_PACKED = 8
"""Numbers of a vector whose bits are packed together."""
_INSTALL = "pip install 'r2med[plaid]' in a virtual environment of its own"


def torch_of(version: str) -> str:
    """The torch that a wheel of fast-plaid was built for, by the end of its version; empty where it does not say.

    >>> torch_of("1.7.0.2110"), torch_of("1.4.5.271"), torch_of("1.2.0")
    ('2.11.0', '2.7.1', '')
    """
    parts = re.fullmatch(r"\d+\.\d+\.\d+\.(\d)(\d+)(\d)", version)
    return ".".join(parts.groups()) if parts else ""


def plaid_version() -> str:
    """The version of fast-plaid, if it can work with the torch that is here. Nothing is imported to find out."""
    found, torch = _installed(_PACKAGE), _installed("torch").partition("+")[0]
    if not found:
        raise MissingExtra(f"index=plaid needs fast-plaid, which works with one version of torch only: {_INSTALL}")
    wanted = torch_of(found)
    if not wanted:
        raise MissingExtra(f"fast-plaid {found} does not say which torch it was built for: {_INSTALL}")
    if wanted != torch:
        here = f"torch {torch}" if torch else "no torch"
        ending = f", or a fast-plaid whose version ends in .{torch.replace('.', '')}" if torch else ""
        raise MissingExtra(
            f"fast-plaid {found} works with torch {wanted} only, and {here} is installed: "
            f"pip install 'torch=={wanted}'{ending}"
        )
    return found


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def plaid_call(value: object) -> Call:
    """The index as a spec has it, with fast-plaid's own names of the options.

    >>> str(plaid_call("plaid(nprobe=16)"))
    'plaid(n_ivf_probe=16)'
    """
    call = engine_call(value)
    return Call(call.name, call.args, tuple((_ALIASES.get(name, name), given) for name, given in call.options))


@dataclass(frozen=True)
class PlaidSettings:
    """All settings of an index."""

    options: tuple[tuple[str, Any], ...]

    @classmethod
    def read(cls, value: object, depth: int) -> PlaidSettings:
        """From what a spec says, for lists of so many documents.

        >>> dict(PlaidSettings.read("plaid(nbits=2)", 100).options)["nbits"]
        2
        """
        call = plaid_call(value)
        if call.name != NAME:
            raise SpecError(f"unknown index {call.name!r} of late interaction{suggest(call.name, (NAME,))}")
        made = cls(engine_options(call, _OPTIONS, _ZERO))
        if made["nbits"] not in _NBITS:
            raise SpecError(f"plaid: nbits must be 1, 2, 4 or 8, not {made['nbits']}")
        least = _NAMED_SHARE * (depth + 1)
        if made["n_full_scores"] < least:
            raise SpecError(
                f"plaid: n_full_scores={made['n_full_scores']} is too few for lists of {depth}: "
                f"a quarter of them are scored in full, so give it {least} or more"
            )
        return made

    def __getitem__(self, name: str) -> Any:
        return dict(self.options)[name]

    def fingerprint(self) -> tuple[object, ...]:
        """What the lists depend on beyond the vectors."""
        return (NAME, plaid_version(), self.options)

    def index_key(self) -> tuple[object, ...]:
        """What the index depends on beyond the vectors."""
        return (NAME, plaid_version(), [pair for pair in self.options if pair[0] not in _SEARCHING])

    def recorded(self) -> dict[str, Any]:
        """For the record of a run: every setting, the seed among them, and the version."""
        return {"version": plaid_version(), **dict(self.options)}

    def write(self, documents: TokenVectors, folder: Path) -> None:
        """Build the index of some documents in a folder."""
        if documents.dimension % _PACKED:
            raise R2medError(f"plaid needs vectors of 8, 16, 24, ... numbers, and these have {documents.dimension}")
        with _engine(folder) as engine, _own_randomness():
            engine.create(
                documents_embeddings=_tensors(documents),
                nbits=self["nbits"],
                kmeans_niters=self["kmeans_niters"],
                max_points_per_centroid=self["max_points_per_centroid"],
                n_samples_kmeans=self["n_samples_kmeans"] or None,
                seed=self["seed"],
                use_triton_kmeans=False,
                start_from_scratch=0,  # else it keeps a pickle of small collections, to add documents to
            )
            # Frozen, the files of an index stay as they are when it is opened.
            engine.freeze()

    def open(self, exact: MaxSimIndex, folder: Path, rescored: int) -> PlaidIndex:
        """The index in a folder, with the vectors by which its candidates are ranked."""
        return PlaidIndex(self, exact, folder, rescored or CANDIDATES)


@dataclass(frozen=True, eq=False)
class PlaidIndex:
    """An index of fast-plaid, and the vectors by which its candidates are ranked."""

    settings: PlaidSettings
    exact: MaxSimIndex
    folder: Path
    wider: int

    @property
    def nbytes(self) -> int:
        """The size of fast-plaid's index on disk; the vectors have their own."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def candidates(self, queries: Sequence[Vectors], count: int) -> list[NDArray[np.intp]]:
        """At most so many documents for every query, as fast-plaid finds them."""
        import torch

        centroids = len(np.load(self.folder / "centroids.npy", mmap_mode="r"))
        with _engine(self.folder) as engine:
            found = engine.search(
                queries_embeddings=[torch.from_numpy(np.array(query, dtype=np.float32)) for query in queries],
                top_k=count,
                n_ivf_probe=min(self.settings["n_ivf_probe"], centroids),
                n_full_scores=self.settings["n_full_scores"],
                n_processes=max(1, min(thread_count(), len(queries))),
                show_progress=False,
            )
        return [np.unique(np.array([place for place, _ in row], dtype=np.intp)) for row in found]

    def search(self, queries: Sequence[Vectors], depth: int, tie_order: NDArray[np.int64]) -> tuple[VectorHits, int]:
        """Each query's best among its candidates, and how many queries had too few of them: those are searched for
        exactly.
        """
        documents = self.exact.documents
        depth = min(depth, len(documents))
        found = self.candidates(queries, min(depth * self.wider, len(documents)))
        places = np.empty((len(queries), depth), dtype=np.intp)
        scores = np.empty((len(queries), depth), dtype=np.float32)
        short = [number for number, named in enumerate(found) if len(named) < depth]
        whole = [number for number, named in enumerate(found) if len(named) >= depth]

        def rank(number: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
            return rank_tokens(queries[number], documents, found[number], depth, tie_order)

        with single_threads() as pool:
            for number, best in zip(whole, pool.map(rank, whole), strict=True):
                places[number], scores[number] = best
        if short:
            places[short], scores[short] = self.exact.search([queries[number] for number in short], depth, tie_order)
        return VectorHits(places, scores), len(short)


def _tensors(documents: TokenVectors) -> list[Any]:
    """A tensor of half precision for each document: of the mapped file itself, where that has it so."""
    import torch

    def rows(place: int) -> Any:
        shard, first = documents.shards[documents.shard[place]], int(documents.row[place])
        if shard.dtype == np.float16:
            return shard[first : first + int(documents.count[place])]
        return documents.of(place).astype(np.float16)

    with warnings.catch_warnings():
        # A mapped file cannot be written to, and fast-plaid does not.
        warnings.simplefilter("ignore")
        return [torch.from_numpy(rows(place)) for place in range(len(documents))]


@contextmanager
def _engine(folder: Path) -> Iterator[Any]:
    """fast-plaid at work on a folder; what goes wrong there is told in one line."""
    plaid_version()
    fix_rounding()
    try:
        from fast_plaid.search import FastPlaid

        # It prints its troubles, and standard output is for results.
        with redirect_stdout(io.StringIO()), FastPlaid(index=str(folder), device="cpu") as engine:
            yield engine
    except (R2medError, OSError):
        raise
    except ImportError as error:
        raise MissingExtra(f"fast-plaid cannot be imported ({error}): {_INSTALL}") from error
    except BaseException as error:
        # A panic in its Rust code is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        line = first_line(error)[:200]
        raise R2medError(f"fast-plaid failed ({line}); without index=plaid, search is exact") from error


@contextmanager
def _own_randomness() -> Iterator[None]:
    """fast-plaid seeds the generators of the whole process; give them back as they were."""
    import torch

    state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(state)
