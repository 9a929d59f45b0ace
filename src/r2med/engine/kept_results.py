"""Jobs whose results are needed together and in order: each stays in the storage of blocks until all are there.

Whoever is killed meanwhile, of those who work and of those who ask, finds what is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock


def results_in_order(
    spread: Spread, job: SpreadJob, blocks: Iterable[WorkBlock], advance: Callable[[WorkBlock], None]
) -> Iterator[bytes]:
    """The results of all blocks in the order of the blocks, once every one is there; then they are let go.

    One of them is in memory at a time. `advance` is told of each block that is done.
    """
    keys: list[str] = []

    def noted() -> Iterator[WorkBlock]:
        for block in blocks:
            keys.append(block.key)
            yield block

    done = set()
    for block, _ in spread.run(job, noted()):
        done.add(block.key)
        advance(block)
    _check(spread, job, sum(key not in done for key in keys), len(keys))
    for place, key in enumerate(keys):
        content = spread.store.get(key)
        if content is None:
            raise spread.unfinished(f"blocks of {job.name}", len(keys) - place, len(keys))
        yield content
    for key in keys:
        spread.store.remove(key)


def _check(spread: Spread, job: SpreadJob, missing: int, total: int) -> None:
    if missing:
        raise spread.unfinished(f"blocks of {job.name}", missing, total)
