"""The candidate lists that lie beside a nano set, as runs that a reranker can start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from r2med.data.dataset import Collection
from r2med.data.formats import QUERY_FIELDS, read_rows
from r2med.data.layout import config_files, listing
from r2med.data.loader import fetch_config
from r2med.data.manifests import read_manifest
from r2med.data.problems import Findings, Spot
from r2med.data.run import Run
from r2med.data.tasks import candidate_configs
from r2med.errors import DataError, suggest
from r2med.formatting import describe, shorten

LIST_FIELDS = ("corpus-ids", "corpus_ids")


def candidates(collection: Collection, kind: str) -> Run:
    """Load a nano task's candidates of a kind; a document's score is its number of places above the end of its list."""
    files, findings = candidate_files(collection, kind), Findings()
    lists: dict[str, list[str]] = {}
    for file in files:
        for line, row in read_rows(file, findings):
            spot = Spot(file, line, findings)
            query = next((row[name] for name in QUERY_FIELDS if name in row), None)
            ids = next((row[name] for name in LIST_FIELDS if name in row), None)
            if not isinstance(query, str) or not isinstance(ids, list):
                spot.note("wrong-type", f"expected a query id and a list of document ids, found {describe(query)}")
                continue
            unknown = [name for name in ids if type(name) is not str or name not in collection.documents.position]
            if unknown:
                spot.note("unknown-document", f"lists {describe(unknown[0])}, which does not exist")
            elif len(set(ids)) < len(ids) or query in lists:
                spot.note("conflicting-id", f"a document or the query {shorten(query)!r} is listed twice")
            else:
                lists[query] = ids
    findings.raise_errors(collection.task.name)
    if absent := [query for query in collection.queries.ids if query not in lists]:
        raise DataError(f"{files[0]}: no candidates for {len(absent)} queries, the first is {shorten(absent[0])!r}")
    ranked = ((query, lists[query]) for query in collection.queries.ids)
    return Run.from_lists({query: (ids, [float(place) for place in range(len(ids), 0, -1)]) for query, ids in ranked})


def offered_kinds(collection: Collection) -> list[str]:
    """Return the kinds of candidates that a nano task has."""
    if collection.task.hub:
        return list(candidate_configs())
    folder = collection.origin
    return [kind for kind in candidate_configs() if folder is not None and _local_files(collection, folder, kind)[1]]


def candidate_files(collection: Collection, kind: str) -> list[Path]:
    """Return the files that hold a task's candidates of a kind, downloaded if they must be."""
    if kind not in candidate_configs():
        raise DataError(f"unknown candidates {kind!r}{suggest(kind, candidate_configs())}")
    task, folder = collection.task, collection.origin
    if folder is None:
        raise DataError(f"{task.name} was not read from a folder, so no candidates lie beside it")
    built = read_manifest(folder)
    if built is not None and kind not in built.configs:
        raise DataError(f"{folder}: built without {kind} candidates; it has {', '.join(built.configs)}")
    config, files = _local_files(collection, folder, kind)
    if files:
        return files
    if not task.hub:
        raise DataError(f"{folder}: no candidates; expected {config}/{task.split}.parquet")
    # The folder of a download is named by its commit: the lists must come from the same one as the documents.
    return fetch_config(replace(task, revision=folder.name), config)


def _local_files(collection: Collection, folder: Path, kind: str) -> tuple[str, list[Path]]:
    """Return the config of a kind, as published or as named in the manifest of the set, and its files in a folder."""
    built, configs = read_manifest(folder), candidate_configs()
    config = (built.configs if built else configs).get(kind, configs[kind])
    return config, [folder / name for name in config_files(config, listing(folder, config), collection.task.split)]
