"""What the same retriever would find if it were handed the gold answer: a ceiling, kept in the ledger as such."""

from __future__ import annotations

import copy

from r2med.data.dataset import Dataset
from r2med.errors import R2medError
from r2med.expand.methods import OracleAnswer
from r2med.pipeline.engine import Engine, quiet
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.stage import Retriever, Stage
from r2med.pipeline.system import System
from r2med.runs.report import Result


def bare(system: System) -> System:
    """The retriever alone, without what is written before it and what is reranked after it, inside a fusion too.

    >>> str(bare(System.parse("oracle-answer >> rrf(replay >> bm25, bm25-classic(k1=2))")))
    'rrf(bm25, bm25-classic(k1=2))'
    """
    return System((_bare_stage(system.retriever),))


def _bare_stage(stage: Stage) -> Stage:
    # A fusion takes its systems one by one, so that it cannot be built anew by the names of its fields.
    made = copy.copy(stage)
    for name, value in vars(stage).items():
        if isinstance(value, System):
            object.__setattr__(made, name, bare(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], System):
            object.__setattr__(made, name, tuple(bare(system) for system in value))
    return made


def with_answer(system: System) -> System:
    """The system's retriever searching with the gold answer, joined as it joins any generated text.

    >>> str(with_answer(System.parse("replay >> bm25(k1=2)")))
    'oracle-answer >> bm25(k1=2)'
    """
    return OracleAnswer() >> bare(system)


def searches(system: System) -> bool:
    """Whether the retriever depends on the query at all; stored lists do not."""
    return all(stage.searches for stage in bare(system).walk() if isinstance(stage, Retriever))


def measured(system: System, dataset: Dataset, engine: Engine | None = None) -> Result:
    """A system's result on a dataset, from the ledger or made now and kept there."""
    report = evaluate(system, dataset, Options(engine=engine or quiet())).whole()
    if report.failures:
        raise R2medError(report.failures[0].message)
    return report.results[0]
