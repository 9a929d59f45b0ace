"""An inverted index built elsewhere: a sorted run for each block of documents, and one merging where the index lies.

The files are those of `write_index`, bit for bit. A run is kept until the index is whole, so that whoever is killed
meanwhile finds it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock, block_key, carried, packed_columns, unpacked_columns
from r2med.pipeline.engine import Engine
from r2med.retrieve.index_builder import build_run, merge_index
from r2med.retrieve.sorted_runs import TermPostings, read_column, save_run
from r2med.storage.files import draft_folder
from r2med.storage.home import home
from r2med.text.portions import by_size

_BLOCK = 64_000_000
"""Characters of a block: ten seconds of work, and what is lost when a worker dies."""
_LEAST = 4
"""A collection of fewer blocks is indexed here: to send it would take as long."""
_LENGTHS = "lengths"


def worth_spreading(documents: Texts) -> bool:
    """Whether a collection is so large that its index is better built by several."""
    size, most = 0, _LEAST * _BLOCK
    for text in documents.texts:
        size += len(text)
        if size >= most:
            return True
    return False


def write_spread_index(documents: Texts, folder: Path, key: str, spread: Spread, engine: Engine) -> None:
    """Write the index of some documents into a folder, its runs made by others; `key` is that of the index."""
    kept = home() / "blocks" / f"bm25-{key}"
    job = SpreadJob("index bm25", IndexWorker())
    with engine.progress("indexing", len(documents)) as bar:
        for block, result in spread.run(job, _missing(documents, key, kept)):
            bar.advance(_keep(result, kept, *block.about))
    total = sum(1 for _ in by_size(documents.texts, len, _BLOCK))
    runs = [kept / str(number) for number in range(total)]
    missing = sum(not run.exists() for run in runs)
    if missing:
        raise spread.unfinished("the runs of index bm25", missing, total)
    lengths = np.concatenate([read_column(run, _LENGTHS) for run in runs])
    merge_index([run / "run" for run in runs], lengths, documents.ids, folder, engine.memory)
    shutil.rmtree(kept, ignore_errors=True)


def _keep(result: bytes, kept: Path, number: int, start: int) -> int:
    """Write a run, whole or not at all; its documents are numbered from `start`. How many they are."""
    run, lengths = _unpacked(result)
    kept.mkdir(parents=True, exist_ok=True)
    with draft_folder(kept, str(number)) as draft:
        save_run(run._replace(documents=run.documents + np.int32(start)), draft / "run")
        np.save(draft / f"{_LENGTHS}.npy", lengths, allow_pickle=False)
        draft.rename(kept / str(number))
    return len(lengths)


def _missing(documents: Texts, key: str, kept: Path) -> Iterator[WorkBlock]:
    """The blocks whose runs are not there, each with its number and that of its first document."""
    start = 0
    for number, texts in enumerate(by_size(documents.texts, len, _BLOCK)):
        if not (kept / str(number)).exists():
            name = block_key(b"bm25", key.encode(), str((number, _BLOCK)).encode())
            yield WorkBlock(name, orjson.dumps([carried(text) for text in texts]), (number, start))
        start += len(texts)


@dataclass(frozen=True)
class IndexWorker:
    """Makes runs of blocks of texts, wherever it was sent to."""

    def load(self) -> None:
        """There is no model."""

    def run(self, payload: bytes) -> bytes:
        """The run of a block, its documents numbered from 0."""
        run, lengths = build_run(orjson.loads(payload))
        return _packed(run, lengths)


def _packed(run: TermPostings, lengths: NDArray[np.int32]) -> bytes:
    terms = np.frombuffer(b"\n".join(run.terms), dtype=np.uint8)
    return packed_columns(lengths, run.offsets, run.documents, run.values, terms)


def _unpacked(content: bytes) -> tuple[TermPostings, NDArray[np.int32]]:
    lengths, offsets, documents, values, terms = unpacked_columns(content)
    return TermPostings(terms.tobytes().split(b"\n") if len(terms) else [], offsets, documents, values), lengths
