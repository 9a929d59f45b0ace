"""Systems run by the shards of a batch, each as a command of its own would, for tests of several folders."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.encode import batching as spread_encoding
from r2med.errors import Postponed
from r2med.pipeline.executor.blocks import SpreadJob, WorkBlock
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.executor.shards import Shards
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache


@dataclass
class SentShards(Shards):
    """Shards whose workers are sent as to another host, before they work."""

    done: list[str] = field(default_factory=list)
    """The keys of the blocks that it did."""

    @property
    def made(self) -> list[str]:
        """Those of them that it computed itself."""
        return [key for key in self.done if int(key[:12], 16) % self.total + 1 == self.number]

    def run(self, job: SpreadJob, blocks: Iterable[WorkBlock]) -> Iterator[tuple[WorkBlock, bytes]]:
        sent = SpreadJob(job.name, pickle.loads(pickle.dumps(job.worker)), job.keeps)
        for block, result in super().run(sent, blocks):
            self.done.append(block.key)
            yield block, result


def run_in_shards(
    system: str, collection: Collection, home: Path, total: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Run, list[str]]:
    """The lists of the command that merges, and the keys of the blocks that were done, in blocks of 400 tokens."""
    monkeypatch.setenv("R2MED_HOME", str(home))
    monkeypatch.setattr(spread_encoding, "_BLOCK_TOKENS", 400)
    done: list[str] = []
    for number in range(1, total + 1):
        shard = SentShards(number, total)
        with suppress(Postponed):
            System.parse(system).run(collection, Context(Cache.default(), Executor(spread=shard)))
        done += shard.done
    merge = SentShards(0, total)
    run = System.parse(system).run(collection, Context(Cache.default(), Executor(spread=merge)))
    assert not merge.done, "a merge computes nothing"
    return run, done


def as_bytes(run: Run) -> dict[str, bytes]:
    """Each list, documents and scores, to the bit."""
    return {query: "\n".join(run[query].documents).encode() + run[query].scores.tobytes() for query in run.queries}
