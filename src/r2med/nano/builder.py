"""Nano sets: small tasks made from large ones by the recipe of NanoR2MED, with candidate lists for rerankers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import r2med
from r2med.data.candidates import candidates
from r2med.data.dataset import Dataset
from r2med.data.layout import choose_part, listing, splits
from r2med.data.loader import load
from r2med.data.manifests import FORMAT
from r2med.data.problems import Findings, place
from r2med.data.qrels import read_judgements
from r2med.data.tasks import Task, resolve
from r2med.data.texts import read_queries
from r2med.errors import DataError, R2medError
from r2med.nano.files import card, draft, write_manifest, write_split
from r2med.nano.recipe import Lists, Recipe, Searchers, make_lists, split_name
from r2med.nano.selection import NanoSelection, choose
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache
from r2med.store.files import expanded

Source = str | Path | Task | Dataset


@dataclass(frozen=True)
class Built:
    """A nano set that was made."""

    folder: Path
    manifest: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """What the readers of the sources noticed."""


def build(
    sources: Source | Sequence[Source], out: str | Path, recipe: Recipe | None = None, executor: Executor | None = None
) -> Built:
    """Make a nano set with one split for each task that the sources stand for.

    The folder `out` appears when all is done and checked, or not at all. Nothing in it depends on when or where it
    was made: the same sources and recipe give the same bytes.
    """
    recipe, executor, folder = recipe or Recipe(), executor or quiet(), expanded(out)
    searchers = Searchers.of(recipe.dense)
    for text in recipe.hard_systems if recipe.policy == "hard" else ():
        System.parse(text)
    tasks = _named([sources] if isinstance(sources, str | Path | Task | Dataset) else sources)
    splits: dict[str, Any] = {}
    warnings: list[str] = []
    with draft(folder) as aside:
        for split, source in tasks.items():
            splits[split], noticed = _build_split(aside, split, source, _BuildSettings(recipe, searchers, executor))
            warnings += noticed
        manifest = {
            "format": FORMAT,
            "r2med": r2med.__version__,
            "recipe": recipe.as_dict(),
            "candidates": searchers.as_dict(),
            "splits": splits,
        }
        write_manifest(aside, manifest)
        (aside / "README.md").write_text(card(manifest), "utf-8")
        _check(aside, manifest, executor)
    return Built(folder, manifest, tuple(warnings))


@dataclass(frozen=True)
class _BuildSettings:
    """Settings that all splits share."""

    recipe: Recipe
    searchers: Searchers
    executor: Executor


def _named(sources: Sequence[Source]) -> dict[str, Dataset | Task]:
    """Return the tasks of the sources, by the names of their splits."""
    found: list[Dataset | Task] = []
    for source in sources:
        found += [source] if isinstance(source, Dataset) else resolve([source])
    names = [split_name(each.task if isinstance(each, Dataset) else each) for each in found]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        both = [each.name for each, name in zip(found, names, strict=True) if name == twice]
        raise R2medError(f"{' and '.join(both)} would both be the split {twice}; build them into two sets")
    if not found:
        raise R2medError("no source to build a nano set from")
    return dict(zip(names, found, strict=True))


def _build_split(
    folder: Path, split: str, task: Dataset | Task, settings: _BuildSettings
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Write a split; return its manifest entry and its reader's notes. Only one source is in memory at a time."""
    source = _loaded(task, settings.executor)
    if not settings.recipe.drop_unjudged:
        _refuse_unjudged(source)
    context = Context(Cache.default(), settings.executor)
    chosen = choose(source, settings.recipe, context)
    lists = make_lists(chosen.dataset, settings.searchers, context)
    with settings.executor.progress(f"writing {split}", 1) as bar:
        write_split(folder, split, chosen.dataset, lists)
        bar.advance()
    return _entry(source, chosen, lists), source.warnings


def _loaded(task: Dataset | Task, executor: Executor) -> Dataset:
    if isinstance(task, Dataset):
        return task
    with executor.progress(f"reading {task.name}", 1) as bar:
        dataset = load(task)
        bar.advance()
    return dataset


def _entry(source: Dataset, chosen: NanoSelection, lists: Sequence[Lists]) -> dict[str, Any]:
    task, counts = source.task, chosen.counts
    return {
        # A folder is known by its name only: where it lay must not change the result.
        "source": {
            "name": task.base if task.folder is not None else task.name,
            "group": task.group,
            "hub": task.hub,
            "revision": source.revision,
            "fingerprint": source.fingerprint,
        },
        "task": {name: getattr(task, name) for name in ("base", *Task.STATED)}
        | {"queries": counts["queries"], "documents": counts["documents"], "qrels": counts["positives"]},
        "counts": dict(counts),
        "fingerprint": chosen.dataset.fingerprint,
        "safeguards": {query: document for each in lists for query, document in each.safeguards.items()},
    }


def _refuse_unjudged(source: Dataset) -> None:
    """Refuse a source with a query that cannot be answered, which the loader leaves out."""
    folder = source.collection.origin
    if folder is None:
        return
    names, split = listing(folder), source.task.split
    table = read_queries([folder / name for name in choose_part("queries", names, split)], Findings())
    absent = [position for query, position in table.position.items() if query not in source.collection.queries.position]
    if len(splits(names)) > 1:  # a query that this split does not mention is another's
        judged = read_judgements([folder / name for name in choose_part("qrels", names, split)], Findings()).grades
        absent = [position for position in absent if table.ids[position] in judged]
    if absent:
        where = place(*table.origin(absent[0]))
        what = f"{len(absent):,} queries have no relevant document, the first is {table.ids[absent[0]]!r} ({where})"
        raise DataError(f"{source.name}: {what}; remove them or leave them out with --drop-unjudged")


def _check(folder: Path, manifest: Mapping[str, Any], executor: Executor) -> None:
    """Read the finished set as users will, and check all references and lists."""

    def read(split: str) -> None:
        dataset = load(folder, split=split)
        if dataset.fingerprint != manifest["splits"][split]["fingerprint"] or dataset.warnings:
            raise R2medError(f"{split} cannot be read back as it was written; {'; '.join(dataset.warnings) or 'a bug'}")
        for kind in manifest["candidates"]:
            candidates(dataset.collection, kind)

    executor.map("checking", read, list(manifest["splits"]))
