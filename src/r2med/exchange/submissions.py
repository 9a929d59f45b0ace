"""A folder of submissions as a ledger: archives are verified, figures computed again, and faulty ones left out.

Statements of a submission that cannot be computed (its cost, its stages, how many queries are incomplete) are taken
over as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from r2med.data.tasks import registry
from r2med.errors import R2medError
from r2med.exchange.submission import About
from r2med.exchange.verify import CheckedRun, Verified, printable, verify_all
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord, StageRecord, StepRecord
from r2med.runs.selection import Current
from r2med.store.hashes import cache_key
from r2med.usage import Usage

_STATED = "as the submission states"
_LONGEST_TITLE = 120  # characters of a title that a table has room for


@dataclass(frozen=True)
class Accepted:
    """A submission without a fault."""

    path: Path
    name: str  # the file's name, below the folder
    digest: str  # the sha256 of the file
    about: About
    created: str
    systems: Mapping[str, str]  # the name of each of its lines to the system's spec
    figures: int  # how many were computed anew
    labels: Mapping[str, str] = field(default_factory=dict)  # the name that the submission gives a system, by its spec


@dataclass(frozen=True)
class Left:
    """A submission that is left out, with the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Submissions:
    """Accepted and refused submissions of a folder."""

    accepted: Sequence[Accepted] = ()
    left: Sequence[Left] = ()
    runs: Current = field(default_factory=dict)  # the name of a line to task to its run

    def of(self, line: str) -> Accepted | None:
        """Return the submission that a line is from."""
        return next((submission for submission in self.accepted if line in submission.systems), None)

    def titles(self) -> dict[str, str]:
        """Return the title of each line: its name, or the title of its submission, with its spec among several."""
        titles: dict[str, str] = {}
        files: dict[str, str] = {}
        for part in self.accepted:
            for line, spec in part.systems.items():
                title = part.about.title.strip()[:_LONGEST_TITLE]
                name = line if not title else title if len(part.systems) == 1 else f"{title}: {spec}"
                titles[line] = part.labels.get(spec, "").strip()[:_LONGEST_TITLE] or name
                files.setdefault(line, part.name.removesuffix(".zip"))
        counts = Counter(titles.values())
        return {line: f"{title} [{files[line]}]" if counts[title] > 1 else title for line, title in titles.items()}


def read_submissions(folder: Path, ledger: Ledger, measure: Measure) -> Submissions:
    """Verify every archive of a folder and put the runs of the sound ones into a ledger, which should be empty."""
    try:
        paths = sorted(path for path in folder.rglob("*.zip") if path.is_file() and not path.name.startswith("."))
        if not folder.is_dir():
            raise R2medError(f"{folder}: no such folder of submissions")
    except OSError as error:
        raise R2medError(f"{folder}: cannot be read ({error.strerror})") from error
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    digests = {path: _digest(path) for path in paths}
    first = {digest: path for path, digest in reversed(digests.items())}
    entries: dict[Path, list[Entry]] = {path: [] for path in paths}

    def keep(checked: CheckedRun) -> None:
        entries[checked.path].append(_add(ledger, checked, digests[checked.path]))

    once = [path for path in paths if first[digests[path]] == path]
    sound: dict[Path, Verified] = {}
    left = {path: f"the same file as {names[first[digests[path]]]}" for path in paths if path not in once}
    for path, verified in zip(once, verify_all(once, [measure], keep), strict=True):
        if verified.ok:
            sound[path] = verified
        else:
            ledger.remove(entries[path])
            left[path] = printable(verified.faults[0].removeprefix(f"{path}: "))
    submitters = Counter(system for path in sound for system in {entry.system for entry in entries[path]})
    places = {name: place for place, name in enumerate(registry())}
    runs: dict[str, dict[str, Entry]] = {}
    accepted = []
    for path, verified in sound.items():
        description = verified.description
        described = {system.system: system for system in description.systems}
        systems = {}
        for entry in sorted(entries[path], key=lambda entry: places[entry.task]):
            spec = entry.system
            line = spec if submitters[spec] == 1 else f"{spec} [{names[path].removesuffix('.zip')}]"
            systems[line] = spec
            stages = tuple(StageRecord(stage.spec, stage.kind) for stage in described[spec].stages)
            record = replace(entry.record, stages=stages, provenance=described[spec].versions)
            runs.setdefault(line, {})[entry.task] = replace(entry, record=record)
        labels = {spec: system.name for spec, system in described.items()}
        created = description.created[:19]
        accepted.append(
            Accepted(path, names[path], digests[path], description, created, systems, verified.figures, labels)
        )
    return Submissions(accepted, [Left(names[path], left[path]) for path in sorted(left)], runs)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unread {path}: {error}"


def _add(ledger: Ledger, checked: CheckedRun, digest: str) -> Entry:
    result = checked.result
    record = RunRecord(
        data=checked.data,
        documents=result.documents,
        # How many is stated, and not which.
        incomplete={f"{place + 1} of {result.incomplete}": _STATED for place in range(result.incomplete)},
        work=stated_work(result.cost),
    )
    key = cache_key(submission=digest, system=result.system, task=result.task)
    scores = {str(measure): checked.scores.values(measure) for measure in checked.scores.measures}
    facts = (tuple(checked.scores.queries), _number(result.cost, "seconds") or 0.0, record, result.created)
    return ledger.add(Entry(key, result.system, result.task, result.group, *facts, scores=scores), checked.run)


def stated_work(cost: Mapping[str, object]) -> tuple[StepRecord, ...] | None:
    """Return the work of a run from its stated cost: the record whose `Cost.as_dict` is that cost.

    >>> [step.search for step in stated_work({"loading": 1.0, "indexing": 0.0, "searching": 2.5, "requests": 0})]
    [2.5]
    >>> stated_work({}) is None
    True
    """
    load, index, search = (_number(cost, phase) for phase in ("loading", "indexing", "searching"))
    requests = _number(cost, "requests")
    if load is None or index is None or requests is None:
        return None
    account = None
    if requests:
        names = [f"{kind}_tokens" for kind in ("prompt", "completion", "reasoning")]
        tokens: Any = {name: int(_number(cost, name) or 0) for name in names}
        account = Usage(requests=int(requests), cost=_number(cost, "dollars"), **tokens)
    return (StepRecord("", load, index, search or 0.0, 0.0, account, () if search is not None else (_STATED,)),)


def _number(cost: Mapping[str, object], name: str) -> float | None:
    value = cost.get(name)
    return float(value) if isinstance(value, int | float) else None
