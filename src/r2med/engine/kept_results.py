"""Jobs whose results are needed together and in order: each stays in the storage of blocks until all are there.

Whoever is killed meanwhile, of those who work and of those who ask, finds what is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock


def results_in_order(
    spread: Spread,
    job: SpreadJob,
    blocks: Iterable[WorkBlock],
    advance: Callable[[WorkBlock], None],
    *,
    once: bool = False,
    stays: bool = False,
) -> Iterator[tuple[Any, bytes]]:
    """What each block is about and its result, in the order of the blocks, when all are there; then they are let go.

    One result is in memory at a time. `advance` is told of each block that is done. With `once`, what is made of them
    is made by the command that merges and by no other; with `stays`, only that one lets go.
    """
    known: list[tuple[str, Any]] = []

    def noted() -> Iterator[WorkBlock]:
        for block in blocks:
            known.append((block.key, block.about))
            yield block

    done = set()
    for block, _ in spread.run(job, noted()):
        done.add(block.key)
        advance(block)
    missing = sum(key not in done for key, _ in known)
    if missing or (once and not spread.merges):
        raise spread.unfinished(f"blocks of {job.name}", missing, len(known))
    for place, (key, about) in enumerate(known):
        content = spread.store.get(key)
        if content is None:
            raise spread.unfinished(f"blocks of {job.name}", len(known) - place, len(known))
        yield about, content
    if spread.merges or not stays:
        for key, _ in known:
            spread.store.remove(key)
