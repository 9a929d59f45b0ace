"""A folder of submissions as a ledger: archives are verified, figures computed again, and faulty ones left out.

Statements of a submission that cannot be computed (its cost, its stages, how many queries are incomplete) are taken
over; one of another type than r2med writes is a fault.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import asdict

from r2med.data.tasks import registry
from r2med.errors import R2medError
from r2med.exchange.submission import About, Description, StatedResult
from r2med.exchange.verify import CheckedRun, verify_all
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import Machine, Provenance, RunRecord, StageRecord, StepRecord
from r2med.runs.selection import Current
from r2med.store.hashes import cache_key
from r2med.store.typed import convert
from r2med.usage import Usage

_STATED = "as the submission states"
_TOKENS = ("prompt", "completion", "reasoning")
_LONGEST_TITLE = 120
"""Characters of a title that a table has room for."""


@dataclass(frozen=True)
class Accepted:
    """A submission without a fault."""

    path: Path
    name: str
    """The file's name, below the folder."""
    digest: str
    """The sha256 of the file."""
    about: About
    created: str
    systems: Mapping[str, str]
    """The name of each of its lines to the system's spec."""
    figures: int
    """How many were computed anew."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The name that the submission gives a system, by its spec."""


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
    runs: Current = field(default_factory=dict)
    """The name of a line to task to its run."""

    def of(self, line: str) -> Accepted | None:
        """Return the submission that a line is from."""
        return next((submission for submission in self.accepted if line in submission.systems), None)

    def titles(self) -> dict[str, str]:
        """Return the title of each line: its name, or the title of its submission, with its spec among several."""
        titles = {}
        for submission in self.accepted:
            for line, spec in submission.systems.items():
                title = submission.about.title.strip()[:_LONGEST_TITLE]
                named = line if not title else title if len(submission.systems) == 1 else f"{title}: {spec}"
                titles[line] = submission.labels.get(spec, "").strip()[:_LONGEST_TITLE] or named
        counts = Counter(titles.values())
        files = {
            line: submission.name.removesuffix(".zip") for submission in self.accepted for line in submission.systems
        }
        return {line: f"{title} [{files[line]}]" if counts[title] > 1 else title for line, title in titles.items()}


def read_submissions(folder: Path, ledger: Ledger, measure: Measure) -> Submissions:
    """Verify every archive of a folder and put the runs of the sound ones into a ledger, which should be empty."""
    try:
        paths = sorted(path for path in folder.rglob("*.zip") if path.is_file() and not path.name.startswith("."))
        if not folder.is_dir():
            raise R2medError(f"{folder}: no such folder of submissions")
    except OSError as error:
        raise R2medError(f"{folder}: cannot be read ({error.strerror})") from error
    entries: dict[Path, list[Entry]] = {path: [] for path in paths}
    digests = {path: _digest(path) for path in paths}
    first: dict[str, Path] = {}
    for path in paths:
        first.setdefault(digests[path], path)
    once = list(first.values())

    def keep(checked: CheckedRun) -> None:
        entries[checked.path].append(_add(ledger, checked, digests[checked.path]))

    checked_paths = list(zip(once, verify_all(once, [measure], keep), strict=True))
    sound = {path: verified for path, verified in checked_paths if verified.ok}
    left = {path: verified.faults[0] for path, verified in checked_paths if not verified.ok}
    for path in left:
        ledger.remove(entries[path])
    twins = {path: first[digests[path]] for path in paths if path not in once}
    left |= {path: f"the same file as {_name(twin, folder)}" for path, twin in twins.items()}
    names = _line_names({path: [entry.system for entry in entries[path]] for path in sound}, folder)
    about = {path: convert(verified.description, Description) for path, verified in sound.items()}
    runs: dict[str, dict[str, Entry]] = {}
    places = {name: place for place, name in enumerate(registry())}
    for path, verified in sound.items():
        stages = {system["system"]: system["stages"] for system in verified.description["systems"]}
        systems = {system.system: system for system in about[path].systems}
        for entry in sorted(entries[path], key=lambda entry: places[entry.task]):
            line = names[path, entry.system]
            stated = systems[entry.system].versions
            machine = None if stated.machine is None else Machine(**asdict(stated.machine))
            versions = Provenance(stated.r2med, stated.python, stated.packages, machine)
            record = replace(
                entry.record, stages=tuple(map(StageRecord.from_json, stages[entry.system])), provenance=versions
            )
            runs.setdefault(line, {})[entry.task] = replace(entry, record=record)
    accepted = [
        Accepted(
            path,
            _name(path, folder),
            digests[path],
            about[path],
            about[path].created[:19],
            {line: spec for (where, spec), line in names.items() if where == path},
            verified.figures,
            {system.system: system.name for system in about[path].systems},
        )
        for path, verified in sound.items()
    ]
    return Submissions(accepted, [Left(_name(path, folder), _plain(left[path], path)) for path in sorted(left)], runs)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unread {path}: {error}"


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _plain(fault: str, path: Path) -> str:
    """Return a fault without the path that it begins with, and without control characters."""
    text = fault.removeprefix(f"{path}: ")
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _add(ledger: Ledger, checked: CheckedRun, digest: str) -> Entry:
    row = convert(checked.result, StatedResult)
    record = RunRecord(
        data=checked.data,
        documents=row.documents,
        # How many is stated, and not which.
        incomplete={f"{place + 1} of {row.incomplete}": _STATED for place in range(row.incomplete)},
        work=stated_work(row.cost),
    )
    result = Entry(
        cache_key(submission=digest, system=row.system, task=row.task),
        row.system,
        row.task,
        row.group,
        tuple(checked.scores.queries),
        row.cost.get("seconds") or 0.0,
        record,
        row.created,
        scores={str(measure): checked.scores.values(measure) for measure in checked.scores.measures},
    )
    return ledger.add(result, checked.run)


def stated_work(cost: Mapping[str, float | None]) -> tuple[StepRecord, ...] | None:
    """Return the work of a run from its stated cost: the record whose `Cost.as_dict` is that cost.

    >>> stated_work({"loading": 1.0, "indexing": 0.0, "searching": 2.5, "requests": 0})[0].search
    2.5
    >>> stated_work({}) is None
    True
    """
    load, index, search, requests = map(cost.get, ("loading", "indexing", "searching", "requests"))
    if load is None or index is None or requests is None:
        return None
    account = None
    if requests:
        prompt, completion, reasoning = (int(cost.get(f"{kind}_tokens") or 0) for kind in _TOKENS)
        account = Usage(
            requests=int(requests),
            prompt_tokens=prompt,
            completion_tokens=completion,
            reasoning_tokens=reasoning,
            cost=cost.get("dollars"),
        )
    return (StepRecord("", load, index, search or 0.0, 0.0, account, () if search is not None else (_STATED,)),)


def _line_names(systems: Mapping[Path, Sequence[str]], folder: Path) -> dict[tuple[Path, str], str]:
    """Return the name of each submitted system: its spec, with the file if several submit the same."""
    submitted: dict[str, list[Path]] = {}
    for path, specs in systems.items():
        for spec in dict.fromkeys(specs):
            submitted.setdefault(spec, []).append(path)
    return {
        (path, spec): spec if len(several) == 1 else f"{spec} [{_name(path, folder).removesuffix('.zip')}]"
        for spec, several in submitted.items()
        for path in several
    }
