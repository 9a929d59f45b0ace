"""A second process that indexes a collection from its end, while the first one does from its beginning.

They go on until they meet, so that neither waits for the other. The first process reads all texts and sends some; the
second one writes runs, as the first one does, and names them when it is told that no more will come. If it is lost, the
first process does the rest alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.retrieve.both_ends import BothEnds
from r2med.retrieve.postings_builder import TextBlock, TextBuilder, block_size, fill
from r2med.retrieve.sorted_runs import read_column
from r2med.storage.child_process import ChildProcess, Pipes, caller_pipes, read_frame, write_frame
from r2med.text.blocks import JoinedTexts

_LENGTHS = "lengths"


class SecondIndexer:
    """This side of the process: a thread sends it texts from the end."""

    def __init__(self, ends: BothEnds, folder: Path, memory: int) -> None:
        self._ends, self._folder, self._memory = ends, folder, memory
        self._process: ChildProcess | None = None
        self._sent = self._told = 0
        self._lost = False

    def __enter__(self) -> Self:
        self._folder.mkdir()
        try:
            # It multiplies no matrices, and threads for that would take time to start.
            self._process = ChildProcess("r2med.retrieve.second_indexer", OPENBLAS_NUM_THREADS="1")
        except OSError:
            self._lost = True
        self._feeder = Thread(target=self._feed, daemon=True)
        self._feeder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
        self._feeder.join()

    def newly_sent(self) -> int:
        """How many documents have been sent since this was last asked."""
        before, self._told = self._told, self._sent
        return self._told - before

    def finish(self) -> tuple[list[Path], NDArray[np.int32]] | None:
        """Wait until it has indexed all that was sent: its runs and its documents' lengths; nothing if it was lost."""
        self._feeder.join()
        if self._lost or self._process is None:
            return None
        try:
            names = orjson.loads(self._process.receive())
        except EOFError:
            return None
        return [self._folder / name for name in names], read_column(self._folder, _LENGTHS)

    def _feed(self) -> None:
        if self._process is None:
            return
        try:
            self._process.send(json.dumps({"folder": str(self._folder), "memory": self._memory}).encode())
            for first, texts in self._ends.from_back(block_size(self._memory)):
                self._process.send(orjson.dumps({"first": first, "documents": len(texts.lengths)}))
                self._process.send(texts.lengths.tobytes(), texts.data)
                self._sent += len(texts.lengths)
            self._process.send(b"")
        except Exception:
            # What could not be read is read again by the first process, which says why.
            self._lost = True


def _serve(pipes: Pipes) -> None:
    """The other side: take in blocks of texts until an empty frame, then name the runs, the earliest first."""
    asked = json.loads(read_frame(pipes.requests))  # paths may hold what orjson cannot carry
    folder = Path(asked["folder"])
    builder = TextBuilder.within(folder, asked["memory"])
    fill(builder, _received(pipes))
    builder.spill()
    np.save(folder / f"{_LENGTHS}.npy", builder.lengths, allow_pickle=False)
    write_frame(pipes.answers, orjson.dumps([run.name for run in reversed(builder.runs)]))


def _received(pipes: Pipes) -> Iterator[TextBlock]:
    while head := read_frame(pipes.requests):
        block = orjson.loads(head)
        content = read_frame(pipes.requests)
        lengths = np.frombuffer(content, dtype=np.int64, count=block["documents"])
        yield TextBlock(block["first"], JoinedTexts(content[lengths.nbytes :], lengths))


def main() -> None:
    """The second process; whoever started it does without it where memory or the disk are full."""
    with suppress(EOFError, OSError, MemoryError):
        _serve(caller_pipes())


if __name__ == "__main__":
    main()
