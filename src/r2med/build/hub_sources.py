"""Questions and documents that a plan takes from the hub: `hf:ORG/NAME/FILE`, or `hf:ORG/NAME` for a whole corpus.

A revision may stand behind an @. What was fetched once is read from this machine from then on, and the finished task
says which commit it was made of.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from r2med.build.build_plan import PLAN, BuildPlan
from r2med.data.hub_tasks import HUB
from r2med.data.layout import choose_part, listing
from r2med.data.tasks import HUB_PREFIX
from r2med.errors import DataError
from r2med.storage.hub_client import Snapshot

_PLACE = re.compile(rf"{HUB_PREFIX}([^/@\s]+/[^/@\s]+)(?:/([^@]+))?(?:@(\S+))?")


class HubPlace(NamedTuple):
    """A file of a dataset on the hub, or all of it."""

    repo: str
    file: str
    """Empty for the repository itself."""
    revision: str


def hub_place(text: str) -> HubPlace | None:
    """What a path of a plan names on the hub; None for a path of this machine.

    >>> hub_place("hf:org/exams/data/train.parquet@v2")
    HubPlace(repo='org/exams', file='data/train.parquet', revision='v2')
    """
    if not text.startswith(HUB_PREFIX):
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise DataError(f"{text}: not a place on the hub; write {HUB_PREFIX}ORG/NAME/FILE or {HUB_PREFIX}ORG/NAME")
    return HubPlace(match[1], match[2] or "", match[3] or "main")


def fetch_sources(plan: BuildPlan) -> BuildPlan:
    """The plan with what it takes from the hub on this machine, and a note of where that came from."""
    origins: dict[str, str] = {}
    questions, documents = (hub_place(source.path.as_posix()) for source in (plan.questions, plan.documents))
    if questions is not None:
        if not questions.file:
            raise DataError(f"{plan.folder / PLAN}: [questions] path must name a file: hf:{questions.repo}/FILE")
        snapshot = _fetch_files(questions, [questions.file])
        origins["questions"] = _origin(questions, snapshot)
        plan = replace(plan, questions=replace(plan.questions, path=snapshot.folder / questions.file))
    if documents is not None:
        snapshot = _fetch_files(documents, [documents.file]) if documents.file else _fetch_corpus(documents)
        origins["documents"] = _origin(documents, snapshot)
        plan = replace(plan, documents=replace(plan.documents, path=snapshot.folder / documents.file))
    return replace(plan, origins=origins)


def _origin(place: HubPlace, snapshot: Snapshot) -> str:
    return f"{HUB_PREFIX}{place.repo}{'/' * bool(place.file)}{place.file}@{snapshot.commit}"


def _fetch_files(place: HubPlace, names: list[str]) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and all((cached.folder / name).is_file() for name in names):
        return cached
    revision = place.revision if cached is None else cached.commit
    known = HUB.names(place.repo, revision)
    for name in names:
        if name not in known:
            raise DataError(f"{place.repo} at {revision} has no file {name!r}")
    return HUB.download(place.repo, revision, names)


def _fetch_corpus(place: HubPlace) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and _documents(cached.folder):
        return cached
    names = HUB.names(place.repo, place.revision)
    chosen = choose_part("documents", sorted(names))
    if not chosen:
        advice = f"name its file: {HUB_PREFIX}{place.repo}/FILE"
        raise DataError(f"{place.repo} at {place.revision} has no documents in BEIR's or R2MED's layout; {advice}")
    return _fetch_files(place, list(chosen))


def _documents(folder: Path) -> bool:
    chosen = choose_part("documents", listing(folder))
    return bool(chosen) and all((folder / name).is_file() for name in chosen)
