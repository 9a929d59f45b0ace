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

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
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
        found = getattr(import_module(PUBLIC[name]), name)
        # A verb that a folder is called after is the folder, which can be called: the same before and after its import.
        return globals().get(name, found)
    raise AttributeError(f"module 'r2med' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _VerbFolder(ModuleType):
    """A folder with the name of a verb: `r2med.board("full")` calls the verb, `r2med.render.scores.model` is a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        """The verb: its signature is the one that editors and notebooks show."""
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(PUBLIC[name]), name)


class _Package(ModuleType):
    """The package: a folder with the name of a verb becomes callable when it is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in PUBLIC and isinstance(value, ModuleType):
            value.__class__ = _VerbFolder
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
