"""Training data compared elsewhere: the blocks that this process would look at, several to one of work, in order.

The tasks' indexes travel to each worker once; what comes back are pairs, in the pieces in which one process finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from r2med.engine.kept_results import results_in_order
from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock, block_key, packed_columns, unpacked_columns
from r2med.leakage.index import FORMAT, IndexedTask
from r2med.leakage.lookup import LeakHits
from r2med.leakage.match import Matcher
from r2med.leakage.settings import Settings
from r2med.leakage.training import Block, blocks, size_of
from r2med.pipeline.engine import Progress
from r2med.text.portions import by_size

_TOGETHER = 16
"""Blocks of training data that make one of work: seconds of it, and what is lost when a worker dies."""
_LEAST = 100_000_000
"""Bytes of training data from which on several are faster than one."""
_COLUMNS = tuple(column.name for column in fields(LeakHits))
MEGABYTE = 1_000_000

Piece = tuple[int, LeakHits]
"""The place of a task, and pairs with its texts."""


class MatchedBlock(NamedTuple):
    """What a block of a training file holds."""

    path: Path
    rows: int
    """How many rows begin in it."""
    pieces: Iterable[Piece]


def worth_spreading(paths: Sequence[Path]) -> bool:
    """Whether there is so much training data that several are faster than one."""
    return sum(map(size_of, paths)) >= _LEAST


def spread_matches(
    paths: Sequence[Path], subjects: Sequence[IndexedTask], settings: Settings, spread: Spread, bar: Progress
) -> Iterator[MatchedBlock]:
    """What all files hold, block by block in their order, found by others."""
    job = SpreadJob("leakage", LeakWorker(subjects, settings), keeps=True)
    work = _work(paths, settings, _depends(subjects, settings))
    results = results_in_order(spread, job, work, lambda done: bar.advance(done.about.size / MEGABYTE), once=True)
    for group, result in results:
        for rows, pieces in zip(group.rows, _unpacked(result, len(group.rows)), strict=True):
            yield MatchedBlock(group.path, rows, pieces)


class _Counted(NamedTuple):
    """What the driver knows of a block of work without its texts."""

    path: Path
    rows: list[int]
    """How many begin in each of its blocks of training data."""
    size: float
    """How many bytes of the file they take."""


def _work(paths: Sequence[Path], settings: Settings, depends: bytes) -> Iterator[WorkBlock]:
    """The blocks of work of all files."""
    for path in paths:
        for group in by_size(blocks(path, settings.fields), lambda _: 1, _TOGETHER):
            payload = _packed_texts(group)
            about = _Counted(path, [block.count for block in group], sum(block.size for block in group))
            yield WorkBlock(block_key(b"leakage", depends, payload), payload, about)


def _depends(subjects: Sequence[IndexedTask], settings: Settings) -> bytes:
    """A hash of all that the pairs depend on besides the training data."""
    texts = [subject.index.raw.tobytes() for subject in subjects]
    return block_key(str((FORMAT, settings)).encode(), *texts).encode()


@dataclass(frozen=True)
class LeakWorker:
    """Looks for texts of tasks in blocks of training data, wherever it was sent to."""

    subjects: Sequence[IndexedTask]
    settings: Settings

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.subjects, self.settings)

    def load(self) -> None:
        """Make the tables."""
        self._matcher  # noqa: B018 - this makes them

    def run(self, payload: bytes) -> bytes:
        """The pairs of each block, in pieces."""
        return _packed_pieces([self._matcher.match(block) for block in _unpacked_texts(payload)])


def _packed_texts(group: Sequence[Block]) -> bytes:
    counts = np.array([len(block.texts) for block in group])
    texts = [text.encode("utf-8", "surrogatepass") for block in group for text in block.texts]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    rows = np.concatenate([block.rows for block in group])
    return packed_columns(counts, rows, lengths, np.frombuffer(b"".join(texts), dtype=np.uint8))


def _unpacked_texts(payload: bytes) -> Iterator[Block]:
    counts, rows, lengths, content = unpacked_columns(payload)
    whole, ends = content.tobytes(), np.cumsum(lengths)
    spans = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    texts = [whole[start:end].decode("utf-8", "surrogatepass") for start, end in spans]
    done = 0
    for count in counts.tolist():
        yield Block(texts[done : done + count], rows[done : done + count], 0, 0.0)
        done += count


def _packed_pieces(groups: Iterable[Iterable[Piece]]) -> bytes:
    """Pieces as columns: of which block and task each is, how many pairs it has, and these one after another."""
    pieces = [(number, place, hits) for number, group in enumerate(groups) for place, hits in group]
    heads = np.array([(number, place, len(hits)) for number, place, hits in pieces], dtype=np.int64).reshape(-1, 3)
    parts = [LeakHits.none(), *(hits for *_, hits in pieces)]
    return packed_columns(heads, *(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))


def _unpacked(result: bytes, count: int) -> list[list[Piece]]:
    """For each of so many blocks its pieces."""
    heads, *columns = unpacked_columns(result)
    hits, done = LeakHits(*columns), 0
    found: list[list[Piece]] = [[] for _ in range(count)]
    for number, place, size in heads.tolist():
        found[number].append((place, hits.take(slice(done, done + size))))
        done += size
    return found
