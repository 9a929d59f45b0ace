"""r2med: how well does a search system find the medical evidence that a question only implies?

A research instrument for reasoning-driven medical retrieval, not a clinical decision system.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "load": "r2med.data",
    "Dataset": "r2med.data.dataset",
    "Run": "r2med.data.run",
    "System": "r2med.pipeline.system",
    "evaluate": "r2med.pipeline.evaluate",
    "Options": "r2med.pipeline.evaluate",
    "Report": "r2med.runs.report",
    "BM25": "r2med.retrieve.bm25",
    "BM25Classic": "r2med.retrieve.bm25",
    "Dense": "r2med.retrieve.dense",
    "RRF": "r2med.retrieve.fusion",
    "WeightedSum": "r2med.retrieve.fusion",
    "CombMNZ": "r2med.retrieve.fusion",
    "Views": "r2med.retrieve.fusion",
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
    "ApiRerank": "r2med.rerank.rerank_api",
    "Measure": "r2med.measure.metrics",
    "R2medError": "r2med.errors",
}
"""Every public name and the module that holds it; a module is imported when its name is first used."""

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from r2med.data import load as load
    from r2med.data.dataset import Dataset as Dataset
    from r2med.data.run import Run as Run
    from r2med.errors import R2medError as R2medError
    from r2med.expand.agents import SearchO1 as SearchO1
    from r2med.expand.agents import SearchR1 as SearchR1
    from r2med.expand.methods import Answer as Answer
    from r2med.expand.methods import HyDE as HyDE
    from r2med.expand.methods import LameR as LameR
    from r2med.expand.methods import OracleAnswer as OracleAnswer
    from r2med.expand.methods import Query2Doc as Query2Doc
    from r2med.expand.replay import Replay as Replay
    from r2med.measure.metrics import Measure as Measure
    from r2med.pipeline.evaluate import Options as Options
    from r2med.pipeline.evaluate import evaluate as evaluate
    from r2med.pipeline.system import System as System
    from r2med.rerank.cross_encoder import CrossEncoder as CrossEncoder
    from r2med.rerank.groupwise import Groupwise as Groupwise
    from r2med.rerank.listwise import Listwise as Listwise
    from r2med.rerank.pointwise import Pointwise as Pointwise
    from r2med.rerank.rerank_api import ApiRerank as ApiRerank
    from r2med.retrieve.bm25 import BM25 as BM25
    from r2med.retrieve.bm25 import BM25Classic as BM25Classic
    from r2med.retrieve.dense import Dense as Dense
    from r2med.retrieve.fusion import RRF as RRF
    from r2med.retrieve.fusion import CombMNZ as CombMNZ
    from r2med.retrieve.fusion import Views as Views
    from r2med.retrieve.fusion import WeightedSum as WeightedSum
    from r2med.runs.report import Report as Report


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'r2med' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
