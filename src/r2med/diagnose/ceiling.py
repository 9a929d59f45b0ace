"""The ceiling: what a perfect answer would be worth, and how much of the way to it a system goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.model import Dataset
from r2med.diagnose.opened import HEADLINE
from r2med.diagnose.oracle import bare, measured, with_answer
from r2med.engine import Engine
from r2med.measure.bootstrap import resampled_means
from r2med.system import System

BASE = "bm25"
"""The retriever whose plain search is the floor and whose search with the gold answer is the ceiling."""

Floats = NDArray[np.float64]
ByQuery = Mapping[str, float]


@dataclass(frozen=True)
class Climb:
    """A system between floor and ceiling, on one task or averaged over several."""

    plain: float
    oracle: float
    system: float
    closed: float | None
    """The share of the way from plain to oracle that the system goes; None where the two do not differ."""
    low: float | None = None
    high: float | None = None
    """The 95% interval of that share, over resampled queries."""

    def as_dict(self) -> dict[str, float | None]:
        """The shape of `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Ceiling:
    """A base's floor and ceiling with a system between them, by task and over all of them."""

    base: str
    oracle: str
    system: str
    measure: str
    tasks: Mapping[str, Climb]
    overall: Climb

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {
            "base": self.base,
            "oracle": self.oracle,
            "system": self.system,
            "measure": self.measure,
            "tasks": {task: climb.as_dict() for task, climb in self.tasks.items()},
            "overall": self.overall.as_dict(),
        }


def floor_and_ceiling(base: str, dataset: Dataset, engine: Engine | None = None) -> tuple[ByQuery, ByQuery]:
    """The headline by query of a base's plain search and of its search with the gold answer.

    Both are runs of the ledger, the second marked as an oracle.
    """
    plain = bare(System.parse(base))
    found = [measured(system, dataset, engine) for system in (plain, with_answer(plain))]
    columns = [dict(zip(each.query_ids, each.scores[str(HEADLINE)].tolist(), strict=True)) for each in found]
    return columns[0], columns[1]


def climb(base: str, system: str, rows: Mapping[str, tuple[ByQuery, ByQuery, ByQuery]]) -> Ceiling:
    """Place a system between floor and ceiling, from the scores by query (plain, oracle, system) of each task."""
    plain = bare(System.parse(base))
    tables = {
        task: np.array([[column[query] for query in first] for column in (first, *rest)])
        for task, (first, *rest) in rows.items()
    }
    tasks = {task: _climb([table]) for task, table in tables.items()}
    whole = _climb(list(tables.values()))
    return Ceiling(plain.spec, with_answer(plain).spec, system, str(HEADLINE), tasks, whole)


def _climb(tables: Sequence[Floats]) -> Climb:
    """One place from tables of plain, oracle and system by query, the mean over tasks."""
    plain, oracle, system = np.mean([table.mean(axis=1) for table in tables], axis=0).tolist()
    if not oracle > plain:
        return Climb(plain, oracle, system, None)
    resampled = [resampled_means(table, place) for place, table in enumerate(tables)]
    floor, top, here = np.mean(resampled, axis=0)
    way = top - floor
    shares = (here - floor)[way > 0] / way[way > 0]
    low, high = np.percentile(shares, [2.5, 97.5]).tolist()
    return Climb(plain, oracle, system, (system - plain) / (oracle - plain), low, high)
