"""Indexing by two processes: the caller begins at the front of a collection, a worker at its end, until they meet.

The caller reads all texts and sends blocks of them to the worker, which writes runs as the caller does. If the worker
is lost, the caller does its part too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.pieces import join_texts
from r2med.lexical.postings import TextBlock, TextBuilder, block_size

MIN_CHARACTERS = 20_000_000  # fewer characters are indexed before a worker has well begun
_STEP = 64  # texts read at a time
_WAITING = 3  # blocks sent ahead of the worker
_SAMPLE = 256
_START = Lock()


def is_worthwhile(texts: Sequence[str], threads: int) -> bool:
    """Return True if a worker saves time: a second processor, and enough to do by a sample of texts."""
    # Daemonic processes must not start others.
    if threads < 2 or len(texts) < 2 * _STEP or multiprocessing.current_process().daemon:
        return False
    places = range(0, len(texts), max(1, len(texts) // _SAMPLE))
    return sum(len(texts[place]) for place in places) / len(places) * len(texts) >= MIN_CHARACTERS


class TextQueue:
    """Queue of texts that are taken in blocks from both ends until none is left."""

    def __init__(self, texts: Sequence[str], start: int = 0) -> None:
        self._texts, self.start, self.stop = texts, start, len(texts)

    def blocks(self, characters: int) -> Iterator[TextBlock]:
        """Take blocks of about this many characters from the front."""
        while self.start < self.stop:
            first = self.start
            yield TextBlock(first, join_texts(self._take(characters, back=False)))

    def take_last(self, characters: int) -> TextBlock | None:
        """Take a block from the back."""
        texts = self._take(characters, back=True)[::-1]
        return TextBlock(self.stop, join_texts(texts)) if texts else None

    def _take(self, characters: int, *, back: bool) -> list[str]:
        texts: list[str] = []
        while characters > 0 and self.start < self.stop:
            if back:
                step = self._texts[max(self.start, self.stop - _STEP) : self.stop][::-1]
            else:
                step = self._texts[self.start : min(self.start + _STEP, self.stop)]
            totals = list(accumulate(map(len, step)))
            count = min(bisect_left(totals, characters) + 1, len(step))
            texts += step[:count]
            characters -= totals[count - 1]
            if back:
                self.stop -= count
            else:
                self.start += count
        return texts


class SecondIndexer:
    """Process that indexes blocks from the back of a queue."""

    def __init__(self, queue: TextQueue, folder: Path, memory: int) -> None:
        self._queue, self._block = queue, block_size(memory)
        folder.mkdir()
        # Not a fork: nothing of threads or of CUDA is carried over.
        self._pool = futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (folder, memory))
        self._sent: list[futures.Future[Any]] = []
        with suppress(OSError), _prepared_start():
            self._sent.append(self._pool.submit(os.getpid))
        self._result: futures.Future[tuple[list[Path], NDArray[np.int32]]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def feed(self) -> int:
        """Send blocks until enough of them wait, and return how many documents they have."""
        documents = 0
        with suppress(futures.BrokenExecutor):
            while self._sent and sum(not sent.done() for sent in self._sent) < _WAITING:
                block = self._queue.take_last(self._block)
                if block is None:
                    break
                documents += len(block.texts.lengths)
                self._sent.append(self._pool.submit(_add, block))
        return documents

    def finish(self) -> None:
        """Make the worker write what it holds after the blocks that wait."""
        with suppress(futures.BrokenExecutor, OSError):
            self._result = self._pool.submit(_finish)

    def result(self) -> tuple[list[Path], NDArray[np.int32]] | None:
        """Return the worker's runs, the earliest documents first, and all its documents' lengths; None if it failed."""
        try:
            for sent in self._sent:
                sent.result()
            return None if self._result is None else self._result.result()
        except (futures.BrokenExecutor, OSError, MemoryError):
            return None
        finally:
            self._pool.shutdown(wait=False)


@contextmanager
def _prepared_start() -> Iterator[None]:
    """Keep a process that is started in the block from running the caller's script, which need not be guarded."""
    with _START:
        main = sys.modules["__main__"]
        hidden = {name: value for name, value in vars(main).items() if name in ("__spec__", "__file__")}
        main.__spec__ = main.__file__ = None
        blas_threads = os.environ.get("OPENBLAS_NUM_THREADS")
        # It multiplies no matrices, and threads for that would take time to start.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        try:
            yield
        finally:
            del os.environ["OPENBLAS_NUM_THREADS"]
            os.environ |= {} if blas_threads is None else {"OPENBLAS_NUM_THREADS": blas_threads}
            del main.__spec__, main.__file__
            vars(main).update(hidden)


_builder: TextBuilder


def _start(folder: Path, memory: int) -> None:
    """Prepare the worker, and make it exit as soon as its caller does."""
    global _builder
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_caller, daemon=True).start()
    _builder = TextBuilder.within(folder, memory)


def _end_with_caller() -> None:
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os._exit(1)


def _add(block: TextBlock) -> None:
    _builder.add(block)


def _finish() -> tuple[list[Path], NDArray[np.int32]]:
    return _builder.finish()[::-1], _builder.lengths
