"""The files of a nano set: parquet in the published layout and a dataset card, written to a draft folder and renamed.

The card holds the configs for the hub's loader, and notes for readers of scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.errors import R2medError
from r2med.store.files import draft_folder, parquet_bytes, reason

if TYPE_CHECKING:
    from r2med.data.dataset import Dataset
    from r2med.nano.recipe import Lists

LAYOUT: Mapping[str, Sequence[str]] = {
    "corpus": ("_id", "text"),
    "queries": ("_id", "text"),
    "qrels": ("query-id", "corpus-id"),
}
"""The configs that hold the data, and their columns."""
LIST_COLUMNS = ("query-id", "corpus-ids")


@contextmanager
def draft(out: Path) -> Iterator[Path]:
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


def write_split(folder: Path, split: str, dataset: Dataset, lists: Sequence[Lists]) -> None:
    """Write all configs of a split."""
    collection = dataset.collection
    pairs = [(query, document) for query, judged in dataset.gold.qrels.items() for document in judged]
    columns: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "corpus": (collection.documents.ids, collection.documents.texts),
        "queries": (collection.queries.ids, collection.queries.texts),
        "qrels": ([query for query, _ in pairs], [document for _, document in pairs]),
    }
    for config, values in columns.items():
        _write(folder / file_of(config, split), dict(zip(LAYOUT[config], values, strict=True)))
    for each in lists:
        ranked = [list(each.documents[query]) for query in collection.queries.ids]
        _write(folder / file_of(each.config, split), {LIST_COLUMNS[0]: collection.queries.ids, LIST_COLUMNS[1]: ranked})


def _write(file: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    import polars as pl

    file.parent.mkdir(parents=True, exist_ok=True)
    kinds = {name: pl.List(pl.String()) if name == LIST_COLUMNS[1] else pl.String() for name in columns}
    file.write_bytes(parquet_bytes(pl.DataFrame(columns, schema=kinds)))


_POLICIES = {
    "source-order": "in the order of the source",
    "hard": "the documents that these systems rank highest without their being relevant: {systems}",
    "random": "drawn by a hash of the seed {seed} and the document's id",
}


def card(manifest: Mapping[str, Any]) -> str:
    """Return the text of README.md."""
    lists = manifest["candidates"]
    configs = [*LAYOUT, *(each["config"] for each in lists.values())]
    sections = [
        *_front_matter(configs, list(manifest["splits"])),
        "",
        "# A nano set",
        "",
        "Made with r2med from larger retrieval tasks, to be evaluated in minutes. It is easier than its source: scores",
        "on it compare with scores on the same set only. The terms of the source apply to its texts.",
        "",
        *_tasks(manifest["splits"]),
        "",
        "## Recipe",
        "",
        *_recipe(manifest),
        "",
        "## Configs",
        "",
        *_configs(lists),
        "",
        "`nano.json` has every parameter, the fingerprints of the sources and of the result, and the safeguards.",
        "",
        "```",
        "r2med run bm25 --tasks THIS/FOLDER",
        "r2med nano profile THIS/FOLDER",
        "```",
    ]
    return "\n".join(sections) + "\n"


def _front_matter(configs: Sequence[str], splits: Sequence[str]) -> Iterator[str]:
    """Yield the block that tells the hub's loader which files belong together."""
    yield from ("---", "configs:")
    for config in configs:
        yield from (f"- config_name: {config}", "  data_files:")
        for split in splits:
            yield from (f"  - split: {split}", f"    path: {file_of(config, split)}")
    yield from ("task_categories:", "- text-retrieval", "tags:", "- information-retrieval", "- nano", "---")


def _tasks(splits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| split | source | queries | documents | positives | safeguards |", "|---|---|---:|---:|---:|---:|")
    for split, entry in splits.items():
        source = entry["source"]
        name = source["name"] + (f" ({source['hub']}@{source['revision'][:12]})" if source["hub"] else "")
        counts = [entry["counts"][part] for part in ("queries", "documents", "positives")]
        numbers = " | ".join(f"{number:,}" for number in (*counts, len(entry["safeguards"])))
        yield f"| {split} | {_cell(name)} | {numbers} |"


def _recipe(manifest: Mapping[str, Any]) -> Iterator[str]:
    recipe = manifest["recipe"]
    systems = ", ".join(f"`{text}`" for text in recipe.get("hard_systems", ()))
    policy = _POLICIES[recipe["policy"]].format(systems=systems, seed=recipe.get("seed"))
    yield f"1. The first {recipe['queries']:,} queries of the source at the most, each with a relevant document."
    yield "2. All their relevant documents; judgements are positive only and binary."
    yield f"3. Further documents up to {recipe['documents']:,}: {policy}."
    yield "4. Empty and repeated texts are skipped; the judgements of a repeated relevant document go to its twin."


def _configs(lists: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| config | columns | content |", "|---|---|---|")
    content = {"corpus": "documents, the relevant ones first", "queries": "queries", "qrels": "judgements"}
    for config, columns in LAYOUT.items():
        yield f"| {config} | {', '.join(columns)} | {content[config]} |"
    for entry in lists.values():
        depth = entry["depth"]
        if "of" in entry:
            fused = " and ".join(entry["of"]) if len(entry["of"]) > 1 else f"{entry['of'][0]} alone"
            extra = f"where none of them is relevant, one relevant document more at rank {depth + 1}"
            text = f"reciprocal rank fusion (k = {entry['k']}) of {fused}, {depth} best; {extra}"
        else:
            text = f"the {depth} best of `{_cell(entry['system'])}`"
        yield f"| {entry['config']} | {', '.join(LIST_COLUMNS)} | {text} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
