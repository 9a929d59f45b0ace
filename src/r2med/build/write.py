"""A nano set as files: parquet in the published layout, in a folder aside that becomes the set when all is done."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from r2med.data.nanoset import MANIFEST
from r2med.errors import R2medError
from r2med.store.files import draft_folder, reason

if TYPE_CHECKING:
    import polars as pl

    from r2med.build.lists import Lists
    from r2med.data.model import Dataset

LAYOUT: Mapping[str, Sequence[str]] = {
    "corpus": ("_id", "text"),
    "queries": ("_id", "text"),
    "qrels": ("query-id", "corpus-id"),
}
"""The configs that hold the data, and their columns."""
LIST_COLUMNS = ("query-id", "corpus-ids")


@contextmanager
def draft(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name when the block ends well, and is gone when it does not."""
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
    """Where a config keeps a split, as the hub writes it.

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
    kinds: dict[str, pl.DataType] = {
        name: pl.List(pl.String()) if name == LIST_COLUMNS[1] else pl.String() for name in columns
    }
    frame = pl.DataFrame({name: pl.Series(list(values), dtype=kinds[name]) for name, values in columns.items()})
    # One row group and fixed settings: the same rows are the same bytes.
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd", row_group_size=max(1, len(frame)), statistics=False)
    file.write_bytes(content.getbuffer())


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write what the set says of itself."""
    (folder / MANIFEST).write_bytes(orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n")
