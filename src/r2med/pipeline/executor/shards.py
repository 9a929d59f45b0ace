"""Shards of a batch system: N commands over one `R2MED_HOME`, each with its share of the blocks, and one that merges.

A block belongs to a shard by its key, so that no command has to know of the others. The results of a shard are stored
in the usual caches; the merging command finds them there and computes the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from r2med.errors import Postponed, R2medError
from r2med.formatting import counted
from r2med.pipeline.executor.blocks import BlockStore, SpreadJob, WorkBlock
from r2med.store.cache import home

_FORM = re.compile(r"(\d+|merge)/(\d+)")


@dataclass
class Shards:
    """Shard of a batch; `number` 0 is the one that merges."""

    number: int
    total: int
    only_large: bool = True
    _lacking: set[int] = field(default_factory=set)
    """The shards whose blocks were found missing."""

    @classmethod
    def parse(cls, text: str) -> Shards:
        """Parse `3/16`, or `merge/16`.

        >>> Shards.parse("3/16").number, Shards.parse("merge/16").number
        (3, 0)
        """
        form = _FORM.fullmatch(text)
        number = 0 if form and form[1] == "merge" else int(form[1]) if form else -1
        total = int(form[2]) if form else 0
        if form is None or not total or number > total or (form[1] != "merge" and number < 1):
            raise R2medError(f"--executor shard:{text} is not of the form shard:3/16 (1 to 16) or shard:merge/16")
        return cls(number, total)

    def __str__(self) -> str:
        return f"shard {self.number or 'merge'}/{self.total}"

    @property
    def merges(self) -> bool:
        """Return whether it is the one that merges."""
        return not self.number

    @property
    def store(self) -> BlockStore:
        """Return the storage that the commands share, for results of jobs that keep them."""
        return BlockStore()

    def owner(self, block: WorkBlock) -> int:
        """Return the shard that a block belongs to, counted from 1."""
        return int(block.key[:12], 16) % self.total + 1

    def run(self, job: SpreadJob, blocks: Iterable[WorkBlock]) -> Iterator[tuple[WorkBlock, bytes]]:
        """Compute the blocks of this shard; read kept results of the others."""
        ready, store = False, self.store
        for block in blocks:
            if job.keeps and (content := store.get(block.key)) is not None:
                yield block, content
                continue
            if self.owner(block) != self.number:
                self._lacking.add(self.owner(block))
                continue
            if not ready:
                job.worker.load()
                ready = True
            result = job.worker.run(block.payload)
            if job.keeps:
                store.put(block.key, result)
                _keys().mkdir(parents=True, exist_ok=True)
                with (_keys() / f"{self.number}").open("a", encoding="ascii") as file:
                    file.write(f"{block.key}\n")
            yield block, result

    def unfinished(self, job: str, missing: int, total: int) -> R2medError:
        """Return the error: other shards have to do their share, or if this one merges, have not done it."""
        lacking = ", ".join(map(str, sorted(self._lacking)))
        if self.number:
            return Postponed(f"{self}: its share of {job} is done; {missing:,} of {total:,} are left to other shards")
        return R2medError(
            f"{job}: {missing:,} of {total:,} are missing; run {counted(len(self._lacking), 'shard')} again ({lacking})"
        )

    def check_siblings(self, settings: Mapping[str, object]) -> None:
        """Refuse a command that differs from those that ran before it, until one of them has merged."""
        mine = orjson.dumps({"shards": self.total, **settings}, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
        try:
            path = _manifest()
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
            draft.write_bytes(mine)
            try:
                os.link(draft, path)
            finally:
                draft.unlink()
        except FileExistsError:
            theirs = orjson.loads(_manifest().read_bytes())
            for name, value in orjson.loads(mine).items():
                if theirs.get(name) == value:
                    continue
                sides = (value, theirs.get(name))
                texts = [", ".join(map(str, side)) if isinstance(side, list) else str(side) for side in sides]
                if name == "shards":
                    texts = [f"{total} shards in all" for total in texts]
                else:
                    texts[0] = f"{name} {texts[0]}"
                differing = f"{self} has {texts[0]}, its siblings have {texts[1]}"
                raise R2medError(f"{differing}; give it theirs, or remove {_manifest()}") from None

    def merged(self) -> None:
        """Close the batch if this command merges, so that the next may be another, and remove its blocks; another shard
        that found everything may get here before, and changes nothing."""
        if self.number:
            return
        for notes in _keys().glob("*"):
            for key in notes.read_text("ascii").split():
                self.store.remove(key)
            notes.unlink()
        with suppress(FileNotFoundError):
            _manifest().unlink()


def _keys() -> Path:
    """Return the folder with a file per shard of the keys of the blocks that it keeps."""
    return home() / "shards"


def _manifest() -> Path:
    return home() / "shards.json"
