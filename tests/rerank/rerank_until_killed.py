"""Reranks a made-up collection, notes every batch, and dies by SIGKILL in the middle of the given one (0: never)."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tiny
from rerank_parts import collection, context, run_over

from r2med.rerank.cross_encoder import CrossEncoder
from r2med.rerank.pair_models import TorchPairModel


def rerank(model: str, log: str, last: int, queries: int = 12, documents: int = 10) -> tuple[int, int]:
    """How many pairs were scored, and how many there are."""
    chance = random.Random(1)

    def text(longest: int) -> str:
        return " ".join(chance.choices(tiny.WORDS, k=chance.randint(3, longest)))

    data = collection({f"q{n}": text(9) for n in range(queries)}, {f"d{n}": text(40) for n in range(documents)})
    real, batches = TorchPairModel.columns, 0

    def columns(self, batch):
        nonlocal batches
        batches += 1
        found = real(self, batch)
        with Path(log).open("a") as file:
            file.write(f"{len(batch.ids)}\n")
        if batches == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    TorchPairModel.columns = columns
    own = context()
    CrossEncoder(f"ce:{model}", batch_tokens=400).rerank(data, run_over(data), own)
    return own.notes.facts["scored"], queries * documents


if __name__ == "__main__":
    done, every = rerank(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
    sys.stdout.write(f"{done} of {every} pairs scored\n")
