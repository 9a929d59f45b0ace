"""Small collections, runs and contexts for tests of rerankers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import folder_task
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache, home

DOCUMENTS = {
    "d1": "scurvy is a lack of vitamin",
    "d2": "gout is uric acid in the bone",
    "d3": "anaemia : a lack of iron in the blood",
    "d4": "sepsis with fever and pain",
    "d5": "asthma and cough",
}
QUERIES = {"q1": "why does the skin of a child with fever rash ?", "q2": "what does iron treat"}


def collection(queries: dict[str, str] = QUERIES, documents: dict[str, str] = DOCUMENTS) -> Collection:
    task = folder_task(Path(home()))
    return Collection(
        task, Texts(list(documents), list(documents.values())), Texts(list(queries), list(queries.values()))
    )


def run_over(data: Collection) -> Run:
    """Every query with all documents in the order they have."""
    ids = list(data.documents.ids)
    scores = np.arange(len(ids), 0, -1, dtype=np.float64)
    return Run.from_lists(dict.fromkeys(data.queries.ids, (ids, scores)))


def context() -> Context:
    return Context(Cache.default(), quiet())


def order(run: Run, query: str) -> list[str]:
    return list(run[query].documents)
