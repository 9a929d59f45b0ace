"""Nano sets: small tasks made from large ones by the recipe of NanoR2MED, with candidate lists for rerankers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from r2med.nano.recipe import Lists, Recipe, Searchers, choose, find_searchers, list_facts, make_lists, split_name
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.render.html import render_card
from r2med.store.cache import Cache
from r2med.store.files import draft_folder, expanded, parquet_bytes, reason
from r2med.store.typed import write_json


@dataclass(frozen=True)
class Built:
    """A nano set that was made."""

    folder: Path
    manifest: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def build(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    recipe: Recipe | None = None,
    executor: Executor | None = None,
) -> Built:
    """Make a nano set with one split for each task that the sources stand for.

    The folder `out` appears when all is done and checked, or not at all. Nothing in it depends on when or where it
    was made: the same sources and recipe give the same bytes.
    """
    recipe, executor, folder = recipe or Recipe(), executor or quiet(), expanded(out)
    searchers = find_searchers(recipe.dense)
    for text in recipe.hard_systems if recipe.policy == "hard" else ():
        System.parse(text)
    tasks: dict[str, Task] = {}
    for task in resolve([sources] if isinstance(sources, str | Path) else sources):
        other = tasks.setdefault(split_name(task), task)
        if other is not task:
            both = f"{other.name} and {task.name}"
            raise R2medError(f"{both} would both be the split {split_name(task)}; build them into two sets")
    if not tasks:
        raise R2medError("no source to build a nano set from")
    splits: dict[str, Any] = {}
    warnings: list[str] = []
    with _draft(folder) as aside:
        for split, task in tasks.items():
            splits[split], notes = _build_split(aside, split, task, recipe, searchers, executor)
            warnings += notes
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "r2med": r2med.__version__,
            "recipe": recipe.as_dict(),
            "candidates": list_facts(searchers),
            "splits": splits,
        }
        write_json(aside / MANIFEST, manifest)
        configs = [*LAYOUT, *(entry["config"] for entry in manifest["candidates"].values())]
        files = {config: {split: file_of(config, split) for split in splits} for config in configs}
        card = render_card("nano/card.md", **manifest, files=files, layout=LAYOUT, list_columns=LIST_COLUMNS)
        (aside / "README.md").write_text(f"{card}\n", "utf-8")

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


def _build_split(
    folder: Path, split: str, task: Task, recipe: Recipe, searchers: Searchers, executor: Executor
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Write a split; return its manifest entry and its reader's notes. Only one source is in memory at a time."""
    with executor.progress(f"reading {task.name}", 1) as bar:
        source = load(task)
        bar.advance()
    if not recipe.drop_unjudged and source.collection.origin is not None:
        _refuse_unjudged(source, source.collection.origin)
    context = Context(Cache.default(), executor)
    selection = choose(source, recipe, context)
    lists = make_lists(selection.dataset, searchers, context)
    with executor.progress(f"writing {split}", 1) as bar:
        _write_split(folder, split, selection.dataset, lists)
        bar.advance()
    facts, counts = source.task, selection.counts
    sizes = {"queries": counts["queries"], "documents": counts["documents"], "qrels": counts["positives"]}
    return {
        # A folder is known by its name only: where it lay must not change the result.
        "source": {
            "name": facts.base if facts.folder is not None else facts.name,
            "group": facts.group,
            "hub": facts.hub,
            "revision": source.revision,
            "fingerprint": source.fingerprint,
        },
        "task": {name: getattr(facts, name) for name in ("base", *Task.STATED)} | sizes,
        "counts": dict(counts),
        "fingerprint": selection.dataset.fingerprint,
        "safeguards": {query: document for kind in lists for query, document in kind.safeguards.items()},
    }, source.warnings


def _refuse_unjudged(source: Dataset, folder: Path) -> None:
    """Refuse a source with a query that cannot be answered, which the loader leaves out."""
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


LAYOUT: Mapping[str, Sequence[str]] = {
    "corpus": ("_id", "text"),
    "queries": ("_id", "text"),
    "qrels": ("query-id", "corpus-id"),
}
"""The configs that hold the data, and their columns."""
LIST_COLUMNS = ("query-id", "corpus-ids")


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """Yield a folder next to `out` that is renamed to it if the block succeeds and removed if it fails."""
    if out.exists() or out.is_symlink():
        raise R2medError(f"{out}: exists already; give another --out or remove it")
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(draft_folder(out.parent, out.name))
        except OSError as error:
            raise R2medError(f"{out}: cannot be made: {reason(error)}") from error
        try:
            yield folder
            if out.exists():
                raise R2medError(f"{out}: appeared while the nano set was built; give another --out or remove it")
            folder.rename(out)
        except OSError as error:
            raise R2medError(f"{out}: cannot be written: {reason(error)}") from error


def file_of(config: str, split: str) -> str:
    """Return the path of a config's split, as the hub writes it.

    >>> file_of("corpus", "NanoMine")
    'corpus/NanoMine-00000-of-00001.parquet'
    """
    return f"{config}/{split}-00000-of-00001.parquet"


def _write_split(folder: Path, split: str, dataset: Dataset, lists: Sequence[Lists]) -> None:
    """Write all configs of a split."""
    import polars as pl

    queries = dataset.collection.queries.ids
    tables: dict[str, list[Any]] = {
        "corpus": list(dataset.collection.documents),
        "queries": list(dataset.collection.queries),
        "qrels": [(query, document) for query, judged in dataset.gold.qrels.items() for document in judged],
        **{kind.config: [(query, list(kind.documents[query])) for query in queries] for kind in lists},
    }
    for config, rows in tables.items():
        columns = LAYOUT.get(config, LIST_COLUMNS)
        schema = {name: pl.List(pl.String()) if name == LIST_COLUMNS[1] else pl.String() for name in columns}
        file = folder / file_of(config, split)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(parquet_bytes(pl.DataFrame(rows, schema=schema, orient="row")))
