"""fast-plaid at work, for an interpreter in which it can be: see test_plaid.py. What it finds goes out as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch

from r2med.data.run import id_order
from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.plaid import PlaidSettings
from r2med.encode.text_hashes import text_hashes
from r2med.encode.token_store import TokenStore, TokenVectors
from r2med.errors import R2medError
from r2med.retrieve.recall_lost import recall_lost

DEPTH = 10


def spans(random: np.random.Generator, count: int, dimension: int) -> list[np.ndarray]:
    """Tokens around 60 centres, as the tokens of a language crowd around its words."""
    centres = np.random.default_rng(7).standard_normal((60, dimension))
    found = []
    for length in random.integers(4, 40, count):
        rows = centres[random.integers(0, 60, length)] + random.standard_normal((length, dimension))
        found.append((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))
    return found


def stored(vectors: list[np.ndarray], precision: str, folder: Path) -> TokenVectors:
    """Documents as the store keeps them."""
    store, hashes = (
        TokenStore({"model": "random"}, precision, folder),
        text_hashes([str(n) for n in range(len(vectors))]),
    )
    with store.writer() as writer:
        writer.append_spans(hashes, np.ones(len(vectors), np.int64), vectors)
    store.refresh()
    return store.spans(store.find(hashes))


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.iterdir()))).hexdigest()


def built(spec: str, documents: TokenVectors, folder: Path) -> Path:
    folder.mkdir()
    PlaidSettings.read(spec, DEPTH).write(documents, folder)
    return folder


def refusal(spec: str, documents: TokenVectors, folder: Path) -> str:
    try:
        built(spec, documents, folder)
    except R2medError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    random = np.random.default_rng(1)
    documents, queries = stored(spans(random, 300, 16), "float16", folder / "half"), spans(random, 30, 16)
    exact, ties = MaxSimIndex(documents), id_order([f"d{number}" for number in range(300)])
    whole = exact.search(queries, 300, ties)
    known = [dict(zip(*row, strict=True)) for row in zip(whole.places.tolist(), whole.scores.tolist(), strict=True)]
    torch.manual_seed(3)
    np.random.seed(3)
    once = built("plaid(nbits=2)", documents, folder / "once")
    numbers = [torch.rand(1).item(), np.random.random()]
    torch.manual_seed(3)
    np.random.seed(3)
    found = {"randomness kept": numbers == [torch.rand(1).item(), np.random.random()], "lost": {}}
    torch.set_num_threads(1)
    found["same index again"] = digest(built("plaid(nbits=2)", documents, folder / "again")) == digest(once)
    found["seed counts"] = digest(built("plaid(nbits=2, seed=0)", documents, folder / "seed")) != digest(once)
    before, right = digest(once), True
    for spec, rescored in (("n_ivf_probe=1", 1), ("n_ivf_probe=1", 30), ("n_ivf_probe=100000", 1)):
        index = PlaidSettings.read(f"plaid(nbits=2, {spec})", DEPTH).open(exact, once, rescored)
        hits, short = index.search(queries, DEPTH, ties)
        pairs = zip(hits.places.tolist(), hits.scores.tolist(), known, strict=True)
        right = right and all([all_[place] for place in row] == scores for row, scores, all_ in pairs)
        found["lost"][f"{spec}, rescore={rescored}"] = recall_lost(hits.places, whole.places[:, :DEPTH])
    found |= {"scores are exact": right, "unchanged by searching": digest(once) == before, "short": short}
    for precision in ("int8", "float32"):
        other = stored(spans(np.random.default_rng(1), 300, 16), precision, folder / precision)
        index = PlaidSettings.read("plaid", DEPTH).open(
            MaxSimIndex(other), built("plaid", other, folder / f"p-{precision}"), 0
        )
        lists = index.search(queries, DEPTH, ties)[0].places
        found["lost"][precision] = recall_lost(lists, MaxSimIndex(other).search(queries, DEPTH, ties).places)
    found["odd"] = refusal("plaid", stored(spans(random, 50, 12), "float16", folder / "odd"), folder / "p-odd")
    found["tiny"] = refusal("plaid", stored(spans(random, 1, 16)[:1], "float16", folder / "tiny"), folder / "p-tiny")
    found["pickles"] = [
        file.name for file in once.iterdir() if b"numpy.core" in file.read_bytes() or "embeddings" in file.name
    ]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
