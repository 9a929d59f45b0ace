"""The arms of a study: the passages that a question is asked with, and what chose them.

`closed` shows none, `system` and a run file the first k of a ranked list. Three are chosen by the judgements, which no
system sees, and are oracles: `gold` shows relevant passages, `random` relevant passages of other questions, and `hard`
the passages that a system ranks highest although they are not relevant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.errors import R2medError, SpecError, suggest
from r2med.measure.score import positive
from r2med.pipeline.system import System
from r2med.store.typed import Typed

KINDS = ("closed", "system", "gold", "random", "hard")
"""The arms with a name, in the order of reports."""
_BY_SYSTEM = ("system", "hard")
_JUDGED = ("gold", "random", "hard")


class Arm(Typed, frozen=True):
    """One condition under which every question is answered."""

    kind: str  # one of `KINDS`, or `run` for the lists of a file
    label: str  # as reports name it
    system: str = ""  # the spec of the system whose lists it is made of
    file: Path | None = None  # the run file whose lists it is made of
    oracle_system: bool = False  # whether that system was itself shown gold answers

    @property
    def oracle(self) -> bool:
        """Return whether its passages were chosen by judgements or gold answers, which no system can see."""
        return self.kind in _JUDGED or self.oracle_system

    @property
    def retrieves(self) -> bool:
        """Return whether its passages are the first of a list that can be measured."""
        return self.kind in ("system", "run")

    @property
    def is_system(self) -> bool:
        """Return whether its passages are those of a system that saw no judgements."""
        return self.retrieves and not self.oracle

    @property
    def title(self) -> str:
        """Return the label, marked if it is an oracle."""
        return f"{self.label} (oracle)" if self.oracle else self.label


class ArmPassage(NamedTuple):
    """A document that a question is asked with, and its score in the list that it came from."""

    document: str
    score: float | None = None


def make_arms(systems: Sequence[str], names: Sequence[str] = ()) -> list[Arm]:
    """Build the arms of names: kinds, run files (`FILE` or `NAME=FILE`), further systems; by default all kinds.

    >>> [arm.title for arm in make_arms(["bm25"], ["closed", "system", "gold", "bm25-classic"])]
    ['closed', 'bm25', 'gold (oracle)', 'bm25-classic']
    """
    specs = list(dict.fromkeys(System.parse(text).spec for text in systems))
    labels = list(dict.fromkeys(names)) or [kind for kind in KINDS if specs or kind not in _BY_SYSTEM]
    arms: dict[str, Arm] = {}
    for name in labels:
        for arm in _arms_of(name, specs):
            if arm.label in arms and arms[arm.label] != arm:
                raise R2medError(f"two arms are called {arm.label!r}; give one another name, as in NAME=FILE")
            arms[arm.label] = arm
    return list(arms.values())


def _arms_of(name: str, specs: Sequence[str]) -> list[Arm]:
    if name in _BY_SYSTEM:
        if not specs:
            raise R2medError(f"the arm {name} needs a system: r2med rag SYSTEM --arms {name}")
        return [_of_system(name, spec) for spec in specs]
    if name in KINDS:
        return [Arm(name, name)]
    label, _, path = name.rpartition("=")
    file = Path(path).expanduser()
    if file.is_file():
        return [Arm("run", label or file.name, file=file)]
    if label and "(" not in label:
        raise R2medError(f"{path}: no such run file, for the arm {label!r}")
    try:
        return [_of_system("system", System.parse(name).spec)]
    except SpecError as error:
        why = f"{suggest(name, KINDS)}, no run file of that name, and no system: {error}"
        raise R2medError(f"no arm {name!r}{why}") from error


def _of_system(kind: str, spec: str) -> Arm:
    oracle = System.parse(spec).oracle
    return Arm(kind, spec if kind == "system" else f"{kind}: {spec}", spec, oracle_system=oracle)


def file_lists(arm: Arm, dataset: Dataset) -> Run:
    """Read the lists of a run file, for the questions of a task."""
    if arm.file is None:
        raise TypeError(f"{arm.label} has no file")
    run, _ = read_run(arm.file)
    documents = dataset.collection.documents.position
    queries = [query for query in dataset.collection.queries.ids if query in run]
    if not queries:
        raise R2medError(f"{arm.file}: none of its {len(run):,} queries is a question of {dataset.name}")
    unknown = next((name for query in queries for name in run[query].documents if name not in documents), None)
    if unknown is not None:
        raise R2medError(f"{arm.file}: document {unknown!r} is not in {dataset.name}")
    return run.select(dataset.collection.queries.ids)


def choose(arm: Arm, dataset: Dataset, run: Run | None, k: int) -> Mapping[str, Sequence[ArmPassage]]:
    """Choose the passages of every question, the best first; `run` are the lists of the arm's system or file."""
    queries = dataset.collection.queries.ids
    relevant = positive(dataset.gold.qrels)
    if arm.kind == "closed":
        return dict.fromkeys(queries, ())
    passages = {}
    for query in queries:
        grades = relevant.get(query, {})
        if arm.kind == "gold":
            passages[query] = list(map(ArmPassage, sorted(grades, key=lambda name: (-grades[name], name))[:k]))
        elif arm.kind == "random":
            # Relevant passages of other questions, the same ones every time.
            pool = {name for other, names in relevant.items() if other != query for name in names}
            passages[query] = list(map(ArmPassage, nsmallest(k, pool - set(grades), key=partial(draw, query))))
        elif run is None:
            raise TypeError(f"{arm.label} needs ranked lists")
        else:
            without = grades if arm.kind == "hard" else {}
            pairs = zip(run[query].documents, run[query].scores.tolist(), strict=True)
            passages[query] = list(islice((ArmPassage(name, score) for name, score in pairs if name not in without), k))
    return passages


def draw(query: str, document: str) -> bytes:
    """Return a place in a random order that depends on the two names alone."""
    return hashlib.blake2b(f"{query}\0{document}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
