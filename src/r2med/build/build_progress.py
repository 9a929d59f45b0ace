"""How far a build is, and what became of one question: by what is kept of it, nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r2med.build.build_plan import BuildPlan, read_plan
from r2med.build.item_store import STORE, Count, ItemStore, Outcome, count_files, count_outcomes
from r2med.build.judged_pool import TASK
from r2med.build.question_steps import question_steps
from r2med.errors import R2medError, suggest

STEPS = (
    "read", "documents", "fold", "chunk", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "judge",
    "select", "label",
)  # fmt: skip
"""Every step in order; those that the plan has no model for are passed over."""


@dataclass(frozen=True, repr=False)
class BuildProgress:
    """How far a build is."""

    folder: Path
    counts: Sequence[Count]
    task: Path | None = None
    """The finished task; None where the build ended before."""

    def as_dict(self) -> dict[str, Any]:
        """The build for JSON."""
        return {
            "folder": str(self.folder),
            "steps": [asdict(count) for count in self.counts],
            "task": str(self.task) if self.task else None,
        }

    def __repr__(self) -> str:
        last = f"{self.counts[-1].kept} kept by {self.counts[-1].step}" if self.counts else "nothing done"
        return f"BuildProgress({str(self.folder)!r}: {last}{', task written' if self.task else ''})"


def status(folder: Path) -> BuildProgress:
    """How far a build is, by what is kept of it; nothing is run."""
    plan = read_plan(folder)
    _check_begun(folder)
    with ItemStore(folder) as store:
        finished, counts = store.counts(), []
        for step in active_steps(plan):
            if step in finished:
                counts.append(finished[step])
                continue
            so_far = f"{step} (so far)"
            if step == "documents":
                count = count_files(so_far, dict(store.stream(step)))
            else:
                count = count_outcomes(so_far, (outcome for _, outcome in store.stream(step)))
            if count.items and step not in ("fold", "chunk"):
                counts.append(count)
            break
    task = folder / TASK
    return BuildProgress(folder, counts, task if task.is_dir() else None)


def active_steps(plan: BuildPlan) -> list[str]:
    """The steps that the plan has on, in order."""
    asked = [each.step.name for each in question_steps(plan)]
    label = ["label"] if plan.label.model else []
    return ["read", "documents", "fold", "chunk", *asked, "mine", "judge", "select", *label]


def _check_begun(folder: Path) -> None:
    if not (folder / STORE).is_file():
        raise R2medError(f"{folder}: nothing is built yet; run: r2med build run {folder}")


def show(folder: Path, identifier: str, top: int | None = None) -> dict[str, Any]:
    """Everything about one question: what each step made of it, and its candidates with their scores, best first."""
    plan = read_plan(folder)
    _check_begun(folder)
    with ItemStore(folder) as store:
        read = store.outcome("read", identifier)
        if read is None:
            raise R2medError(f"{folder}: no question {identifier!r}{suggest(identifier, store.kept('read'))}")
        steps = {step: store.outcome(step, identifier) for step in active_steps(plan) if step not in _IN_PARTS}
        mined, chosen = steps.pop("mine", None), steps.pop("select", None)
        verdicts = chosen.value["verdicts"] if chosen is not None else {}
        candidates = [
            _candidate(name, ways, store.outcome("judge", f"{identifier}\t{name}"), verdicts.get(name))
            for name, ways in (mined.value.get("candidates", {}) if mined is not None else {}).items()
        ]
    candidates.sort(key=lambda candidate: -candidate.get("answers", -1.0) - candidate.get("supports", -1.0))
    found = {step: _shown(outcome) for step, outcome in steps.items() if outcome is not None}
    ended = steps | {"mine": mined, "select": chosen}
    dropped = [f"{step}: {each.dropped}" for step, each in ended.items() if each is not None and each.dropped]
    return {"id": identifier, "steps": found, "candidates": candidates[:top], "dropped": "; ".join(dropped[:1])}


_IN_PARTS = ("documents", "fold", "chunk", "judge")
"""Steps whose items are not questions."""


def _shown(outcome: Outcome) -> dict[str, Any]:
    extra = {name: value for name in ("dropped", "failed") if (value := getattr(outcome, name))}
    return {**outcome.value, **extra}


def _candidate(name: str, ways: Sequence[Sequence[Any]], judged: Outcome | None, verdict: str | None) -> dict[str, Any]:
    return {
        "passage": name,
        "found": [dict(zip(("system", "view", "rank"), way, strict=True)) for way in ways],
        "verdict": verdict,
        **(_shown(judged) if judged is not None else {}),
    }
