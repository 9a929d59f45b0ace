"""r2med: how well does a search system find the medical evidence that a question only implies?

    import r2med

    dataset = r2med.load("sample/MedQA-Diag")
    r2med.search("bm25", dataset, "fatigue, golden-brown corneal rings")  # a ranked list, with texts
    report = r2med.evaluate(["bm25", r2med.BM25Classic()], "sample", measures=["nDCG@10", "Recall@100"])
    print(report)
    report.per_query()  # a data frame
    r2med.compare("bm25", "bm25-classic")

A research instrument for reasoning-driven medical retrieval, not a clinical decision system.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
PUBLIC = {
    "load": "r2med.api",
    "search": "r2med.api",
    "evaluate": "r2med.api",
    "compare": "r2med.api",
    "diagnose": "r2med.api",
    "board": "r2med.api",
    "build": "r2med.api",
    "rag": "r2med.api",
    "tune": "r2med.api",
    "Dataset": "r2med.data.dataset",
    "Run": "r2med.data.run",
    "System": "r2med.pipeline.system",
    "Options": "r2med.pipeline.evaluate",
    "Report": "r2med.runs.report",
    "BM25": "r2med.retrieve.bm25",
    "BM25Classic": "r2med.retrieve.bm25",
    "Dense": "r2med.retrieve.dense",
    "Splade": "r2med.retrieve.sparse",
    "ColBERT": "r2med.retrieve.colbert",
    "RRF": "r2med.retrieve.fusion",
    "WeightedSum": "r2med.retrieve.fusion",
    "CombMNZ": "r2med.retrieve.fusion",
    "Views": "r2med.retrieve.fusion",
    "retriever": "r2med.engines.user",
    "HyDE": "r2med.expand.methods",
    "Query2Doc": "r2med.expand.methods",
    "LameR": "r2med.expand.methods",
    "Answer": "r2med.expand.methods",
    "SearchO1": "r2med.expand.agents",
    "SearchR1": "r2med.expand.agents",
    "Replay": "r2med.expand.replay",
    "OracleAnswer": "r2med.expand.methods",
    "CrossEncoder": "r2med.rerank.cross_encoder",
    "Listwise": "r2med.rerank.listwise",
    "Groupwise": "r2med.rerank.groupwise",
    "Pointwise": "r2med.rerank.pointwise",
    "ApiRerank": "r2med.rerank.api",
    "Measure": "r2med.measure.metrics",
    "R2medError": "r2med.errors",
}
"""Every public name and the module that holds it, which is imported when the name is first used.

For type checkers `make reference` writes the same into `__init__.pyi`.
"""
__all__ = ["__version__", *PUBLIC]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    raise AttributeError(f"module 'r2med' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
