"""What is known of the training data of models: whether it held the tasks that they are measured on.

Two files in `R2MED_HOME` say so. `contamination.toml` is written by hand, from what the makers of a model published:

    [model.my-encoder]
    trained_on = ["MedQA-Diag"]
    source = "https://example.org/my-encoder"

`leakage.json` is written by `r2med leakage --model NAME`. A model that neither names is not known, which is not clean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from r2med.store.cache import home
from r2med.store.typed import Typed, read_json, read_toml, write_json

TRAINED, OVERLAP, NO_OVERLAP, NOT_KNOWN = "trained on it", "overlap found", "no overlap found", "not known"
NOT_TRAINED = "not trained"
_COUNTING = ("bm25", "bm25-classic")  # what counts words and was never trained


class ModelStatement(Typed, frozen=True):
    """Statement about the training data of a model."""

    trained_on: tuple[str, ...]
    source: str = ""


class _Statements(Typed, frozen=True):
    model: dict[str, ModelStatement]


class Contamination(Typed, frozen=True):
    """What is known of a system on the tasks of a board: the worst of its models."""

    status: str
    """`trained on it`, `overlap found`, `no overlap found`, `not trained` or `not known`."""
    tasks: tuple[str, ...] = ()
    """The tasks that it holds for."""
    source: str = ""
    """Where it was stated, or that r2med leakage found it."""


Checks = Mapping[str, Mapping[str, int]]
"""Model to task to how many queries and positives were found in its training data."""


def keep_check(model: str, affected: Mapping[str, int]) -> None:
    """Keep what a check of a model's training data found; a task that is checked again takes the newer result."""
    checks = {name: dict(tasks) for name, tasks in _checks().items()}
    write_json(home() / "leakage.json", {**checks, model: {**checks.get(model, {}), **affected}})


def _checks() -> Checks:
    file = home() / "leakage.json"
    return read_json(file, dict[str, dict[str, int]]) if file.is_file() else {}


class ContaminationFacts(msgspec.Struct, frozen=True):
    """Statements and checks, read once for a board."""

    statements: Mapping[str, ModelStatement]
    checks: Checks

    @classmethod
    def read(cls) -> ContaminationFacts:
        """Read both files; without them nothing is known."""
        file = home() / "contamination.toml"
        return cls(read_toml(file, _Statements).model if file.is_file() else {}, _checks())

    def of(self, parts: Iterable[str], spec: str, tasks: Sequence[str]) -> Contamination:
        """Return what is known of a system on some tasks, from the names of its parts and the words of its spec.

        >>> facts = ContaminationFacts({"bge": ModelStatement(("Biology",))}, {"nv": {"Biology": 0}})
        >>> facts.of(["rrf"], "rrf(bm25, bge)", ["Biology"]).status, facts.of(["nv"], "nv", ["Biology"]).status
        ('trained on it', 'no overlap found')
        >>> facts.of(["nv", "gpt-4o"], "", ["Biology"]).status, facts.of(["bm25"], "bm25", ["Biology"]).status
        ('not known', 'not trained')
        """
        models = [name for name in dict.fromkeys(parts) if name not in _COUNTING]
        if not models:
            return Contamination(NOT_TRAINED)
        # A fusion hides its systems in its spec.
        words = dict.fromkeys((*models, *re.findall(r"[\w./-]+", spec)))
        for name in words:
            if name in self.statements and (trained := _among(self.statements[name].trained_on, tasks)):
                return Contamination(TRAINED, trained, self.statements[name].source)
        checks = [self.checks.get(name, {}) for name in words]
        if overlap := _among([task for checked in checks for task, n in checked.items() if n], tasks):
            return Contamination(OVERLAP, overlap, "r2med leakage")
        # Clean is only what every model of the system was checked for.
        if clean := tuple(task for task in tasks if all(task in self.checks.get(name, {}) for name in models)):
            return Contamination(NO_OVERLAP, clean, "r2med leakage")
        return Contamination(NOT_KNOWN)


def _among(names: Iterable[str], tasks: Sequence[str]) -> tuple[str, ...]:
    """Return the tasks that are named; a nano task is part of the full one."""
    listed = set(names)
    return tuple(task for task in tasks if listed & {task, task.removeprefix("nano/")})
