"""The leakage gate: training data is written only after a comparison with the tasks that systems are measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import R2medError, require_extra
from r2med.formatting import counted
from r2med.leakage.check import check
from r2med.leakage.findings import LeakageReport
from r2med.pipeline.executor.local import Executor

ALWAYS = ("full", "nano")  # R2MED and NanoR2MED: what everybody measures on
_SHOWN = 5


@dataclass(frozen=True)
class GateRules:
    """Rules of the gate: additional tasks, exceptions, and whether to drop rows."""

    against: tuple[str, ...] = ()
    allow_leakage: bool = False
    allow_unchecked: bool = False
    drop_leaking: bool = False

    def __post_init__(self) -> None:
        if self.allow_leakage and self.drop_leaking:
            raise R2medError("rows with leakage are either let through or left out: name one of the two")


@dataclass(frozen=True)
class GateResult:
    """Findings of the check, and the rules that were applied."""

    checked: Sequence[str]
    unchecked: Mapping[str, str]
    rules: GateRules
    report: LeakageReport | None
    affected: tuple[int, ...] = field(default=(), repr=False)
    """The numbers of the rows that hold queries or positives, from 1."""

    @property
    def dropped(self) -> int:
        """Return the number of rows left out."""
        return len(self.affected) if self.rules.drop_leaking else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the check for a record."""
        pairs = self.report.strongest if self.report else ()
        return {
            "checked": list(self.checked),
            "unchecked": dict(self.unchecked),
            "affected_rows": len(self.affected),
            "dropped_rows": self.dropped,
            "allow_leakage": self.rules.allow_leakage,
            "allow_unchecked": self.rules.allow_unchecked,
            "tasks": self.report.as_dict()["tasks"] if self.report else [],
            "strongest": [{n: value for n, value in pair._asdict().items() if n != "file"} for pair in pairs],
        }


class LeakageGate:
    """Tasks that data is compared with; read before the data is made, since a missing one can be an error."""

    def __init__(self, rules: GateRules) -> None:
        require_extra("leakage", "rensa")
        self.rules = rules
        self.unchecked: dict[str, str] = {}
        self._tasks = []
        for task in {task.name: task for task in resolve([*ALWAYS, *rules.against])}.values():
            try:
                load(task)
                self._tasks.append(task)
            except R2medError as error:
                self.unchecked[task.name] = str(error)
        if self.unchecked and not rules.allow_unchecked:
            name, why = next(iter(self.unchecked.items()))
            raise R2medError(
                f"{counted(len(self.unchecked), 'task')} could not be compared with the data, so that nothing is"
                f" written ({name}: {why}); --allow-unchecked lets it pass and records so"
            )

    def check(self, file: Path, executor: Executor) -> GateResult:
        """Compare a file with the tasks before it is saved; data that may not pass raises an error."""
        report = check([file], self._tasks, executor=executor, limit=_SHOWN) if self._tasks else None
        affected = tuple(map(int, report.files[file].judged)) if report else ()
        if affected and not (self.rules.allow_leakage or self.rules.drop_leaking):
            pair = report.strongest[0] if report and report.strongest else None
            place = f"{pair.kind} {pair.id} of {pair.task}, found as {pair.method}" if pair else ""
            example = f" (row {pair.line} holds {place})" if pair else ""
            raise R2medError(
                f"{counted(len(affected), 'row')} of the data hold what systems are measured on, so that nothing is"
                f" written{example}; --drop-leaking leaves such rows out, --allow-leakage keeps them and records so"
            )
        return GateResult([task.name for task in self._tasks], self.unchecked, self.rules, report, affected)
