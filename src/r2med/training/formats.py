"""Formats of other trainers: one writer per format, each a function from rows to the content of files."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from r2med.errors import R2medError, suggest
from r2med.store.files import draft_folder, unwritable
from r2med.store.typed import Typed, json_bytes, json_lines
from r2med.training import rows as tables
from r2med.training.negatives import DEV, TRAIN, pick_evenly
from r2med.training.rows import TrainerRow, TrainingFile, passages_of_rows, trainer_rows
from r2med.training.settings import QUESTION

RECORD = "r2med.json"


@dataclass(frozen=True)
class FormatSettings:
    """Options of a writer."""

    queries: str = QUESTION
    negatives: int | None = None
    """Of a question, for formats that have the same number for all; as many as every question has where not said."""
    instruction: str = ""


Files = Mapping[str, bytes]


def _parquet(columns: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, compression="zstd", statistics=False)
    return content.getvalue()


def _flagembedding(rows: Sequence[TrainerRow], settings: FormatSettings) -> Files:
    def row_of(row: TrainerRow) -> dict[str, Any]:
        values: dict[str, Any] = {"query": row.query}
        for name, passages in (("pos", row.positives), ("neg", row.negatives)):
            values |= {name: [p.text for p in passages], f"{name}_scores": [p.score for p in passages]}
        return values | {"prompt": settings.instruction, "type": "normal"}

    return {".jsonl": json_lines(map(row_of, rows))}


def _tevatron(rows: Sequence[TrainerRow], settings: FormatSettings) -> Files:
    lines = [
        {
            "query_id": row.id,
            "query_text": f"{settings.instruction}{row.query}",
            "positive_document_ids": [passage.id for passage in row.positives],
            "negative_document_ids": [passage.id for passage in row.negatives],
        }
        for row in rows
    ]
    corpus = ({"docid": name, "document_text": text} for name, text in passages_of_rows(rows).items())
    return {".jsonl": json_lines(lines), "-corpus.jsonl": json_lines(corpus)}


def _swift(rows: Sequence[TrainerRow], settings: FormatSettings, role: str = "user") -> Files:
    """Write for ms-swift with a role for passages: `user` for embedding models, `assistant` for rerankers."""
    lines = [
        {
            "messages": [{"role": "user", "content": f"{settings.instruction}{row.query}"}],
            "positive_messages": [[{"role": role, "content": passage.text}] for passage in row.positives],
            "negative_messages": [[{"role": role, "content": passage.text}] for passage in row.negatives],
        }
        for row in rows
    ]
    return {".jsonl": json_lines(lines)}


def _pylate(rows: Sequence[TrainerRow], settings: FormatSettings) -> Files:
    """Write lists for distillation; a trainer of triplets reads those of sentence-transformers."""
    lists = [[*row.positives, *row.negatives] for row in rows]
    count = min(map(len, lists))  # a batch has as many scores of each question
    lists = [pick_evenly(passages, count) for passages in lists]
    names, passages = [row.id for row in rows], passages_of_rows(rows)
    columns_of: dict[str, dict[str, Any]] = {
        "": {
            "query_id": names,
            "document_ids": [[passage.id for passage in ranked] for ranked in lists],
            "scores": [[passage.score for passage in ranked] for ranked in lists],
        },
        "-queries": {"query_id": names, "text": [row.query for row in rows]},
        "-documents": {"document_id": list(passages), "text": list(passages.values())},
    }
    return {f"{name}.parquet": _parquet(columns) for name, columns in columns_of.items()}


def _gritlm(rows: Sequence[TrainerRow], settings: FormatSettings) -> Files:
    lines = [
        {
            "query": [settings.instruction, row.query],
            "pos": [["", passage.text] for passage in row.positives],
            "neg": [["", passage.text] for passage in row.negatives],
        }
        for row in rows
    ]
    return {".jsonl": json_lines(lines)}


@dataclass(frozen=True)
class TrainerFormat:
    """A format of training data."""

    write: Callable[[Sequence[TrainerRow], FormatSettings], Files]
    reads: str


FORMATS: Mapping[str, TrainerFormat] = {
    "sentence-transformers": TrainerFormat(
        lambda rows, how: {".parquet": _parquet(tables.triplets(rows, tables.common_negatives(rows, how.negatives)))},
        "SentenceTransformer, SparseEncoder and MultiVectorEncoder trainers",
    ),
    "cross-encoder": TrainerFormat(
        lambda rows, _: {".parquet": _parquet(tables.labelled_pairs(rows))},
        "sentence-transformers' CrossEncoder trainer, pairs with scores",
    ),
    "cross-encoder-lists": TrainerFormat(
        lambda rows, _: {".parquet": _parquet(tables.labelled_lists(rows))},
        "sentence-transformers' CrossEncoder trainer, listwise losses",
    ),
    "flagembedding": TrainerFormat(_flagembedding, "FlagEmbedding: embedders and rerankers, with scores to distil"),
    "tevatron": TrainerFormat(_tevatron, "Tevatron: rows and a corpus"),
    "ms-swift": TrainerFormat(_swift, "ms-swift: embedding models"),
    "ms-swift-reranker": TrainerFormat(partial(_swift, role="assistant"), "ms-swift: rerankers"),
    "pylate": TrainerFormat(_pylate, "PyLate: distillation from the judges' scores"),
    "gritlm": TrainerFormat(_gritlm, "GritLM and ReasonIR"),
}


class ExportedData(Typed, frozen=True):
    """Record of an export."""

    folder: Path
    format: str
    files: Mapping[str, int]
    questions: Mapping[str, int]


def export(data: Sequence[TrainingFile], form: str, folder: Path, settings: FormatSettings) -> ExportedData:
    """Write files of training data in a format, into a new folder, with the records that came with them."""
    if form not in FORMATS:
        raise R2medError(f"no format {form!r}{suggest(form, FORMATS)}")
    if folder.exists():
        raise R2medError(f"{folder}: exists already; name a new folder")
    rows = {
        part: [row for file in data for row in trainer_rows(file.part(part), settings.queries)] for part in (TRAIN, DEV)
    }
    if not rows[TRAIN]:
        raise R2medError("no row to train on; every question is held out")
    files = {
        f"{part}{name}": content
        for part, several in rows.items()
        if several
        for name, content in FORMATS[form].write(several, settings).items()
    }
    files[RECORD] = json_bytes([{**file.facts, "r2med": file.record.get("r2med")} for file in data], indent=2)
    try:
        with draft_folder(folder.parent, folder.name) as draft:
            for name, content in files.items():
                (draft / name).write_bytes(content)
            draft.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    sizes = {name: len(content) for name, content in files.items()}
    return ExportedData(folder, form, sizes, {part: len(several) for part, several in rows.items()})
