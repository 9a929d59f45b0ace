"""Nano sets: small tasks made from large ones by the recipe of NanoR2MED, with candidate lists for rerankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import r2med
from r2med.data.candidates import candidates
from r2med.data.dataset import Dataset
from r2med.data.layout import choose_part, listing, splits
from r2med.data.loader import load
from r2med.data.manifests import FORMAT, MANIFEST
from r2med.data.problems import Findings, place
from r2med.data.qrels import read_judgements
from r2med.data.tasks import Task, resolve
from r2med.data.texts import read_queries
from r2med.errors import DataError, R2medError
from r2med.nano.files import card, draft, write_split
from r2med.nano.recipe import Recipe, Searchers, find_searchers, list_facts, make_lists, split_name
from r2med.nano.selection import choose
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache
from r2med.store.files import expanded
from r2med.store.typed import write_json

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
    searchers = find_searchers(recipe.dense)
    for text in recipe.hard_systems if recipe.policy == "hard" else ():
        System.parse(text)
    tasks = _named([sources] if isinstance(sources, str | Path | Task | Dataset) else sources)
    splits: dict[str, Any] = {}
    warnings: list[str] = []
    with draft(folder) as aside:
        for split, source in tasks.items():
            splits[split], notes = _build_split(aside, split, source, recipe, searchers, executor)
            warnings += notes
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "r2med": r2med.__version__,
            "recipe": recipe.as_dict(),
            "candidates": list_facts(searchers),
            "splits": splits,
        }
        write_json(aside / MANIFEST, manifest)
        (aside / "README.md").write_text(card(manifest), "utf-8")

        def read(split: str) -> None:
            """Read a finished split as users will, and check all references and lists."""
            dataset = load(aside, split=split)
            if dataset.fingerprint != splits[split]["fingerprint"] or dataset.warnings:
                why = "; ".join(dataset.warnings) or "a bug"
                raise R2medError(f"{split} cannot be read back as it was written; {why}")
            for kind in manifest["candidates"]:
                candidates(dataset.collection, kind)

        executor.map("checking", read, list(splits))
    return Built(folder, manifest, tuple(warnings))


def _named(sources: Sequence[Source]) -> dict[str, Dataset | Task]:
    """Return the tasks of the sources, by the names of their splits."""
    named: dict[str, Dataset | Task] = {}
    for source in sources:
        for task in [source] if isinstance(source, Dataset) else resolve([source]):
            name = split_name(task.task if isinstance(task, Dataset) else task)
            if name in named:
                both = f"{named[name].name} and {task.name}"
                raise R2medError(f"{both} would both be the split {name}; build them into two sets")
            named[name] = task
    if not named:
        raise R2medError("no source to build a nano set from")
    return named


def _build_split(
    folder: Path, split: str, task: Dataset | Task, recipe: Recipe, searchers: Searchers, executor: Executor
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Write a split; return its manifest entry and its reader's notes. Only one source is in memory at a time."""
    if isinstance(task, Dataset):
        source = task
    else:
        with executor.progress(f"reading {task.name}", 1) as bar:
            source = load(task)
            bar.advance()
    if not recipe.drop_unjudged:
        _refuse_unjudged(source)
    context = Context(Cache.default(), executor)
    selection = choose(source, recipe, context)
    lists = make_lists(selection.dataset, searchers, context)
    with executor.progress(f"writing {split}", 1) as bar:
        write_split(folder, split, selection.dataset, lists)
        bar.advance()
    facts, counts = source.task, selection.counts
    return {
        # A folder is known by its name only: where it lay must not change the result.
        "source": {
            "name": facts.base if facts.folder is not None else facts.name,
            "group": facts.group,
            "hub": facts.hub,
            "revision": source.revision,
            "fingerprint": source.fingerprint,
        },
        "task": {name: getattr(facts, name) for name in ("base", *Task.STATED)}
        | {"queries": counts["queries"], "documents": counts["documents"], "qrels": counts["positives"]},
        "counts": dict(counts),
        "fingerprint": selection.dataset.fingerprint,
        "safeguards": {query: document for each in lists for query, document in each.safeguards.items()},
    }, source.warnings


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
