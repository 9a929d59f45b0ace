"""Formats of other trainers: one writer per format, each a function from rows to the content of files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from r2med.errors import R2medError, suggest
from r2med.store.files import draft_folder, unwritable
from r2med.training.negatives import DEV, TRAIN, pick_evenly
from r2med.training.rows import (
    TrainerRow,
    TrainingFile,
    common_negatives,
    labelled_lists,
    labelled_pairs,
    passages_of_rows,
    trainer_rows,
    triplets,
)
from r2med.training.settings import QUESTION

RECORD = "r2med.json"


@dataclass(frozen=True)
class FormatSettings:
    """Options of a writer."""

    queries: str = QUESTION
    negatives: int | None = None
    """Of a question, for formats that have the same number for all; as many as every question has where not said."""
    instruction: str = ""
    """What is written before a question, for formats that have a place for it."""


Files = Mapping[str, bytes]
"""Files by name, of one part."""
Writer = Callable[[Sequence[TrainerRow], FormatSettings, str], Files]


def _parquet(columns: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, compression="zstd", statistics=False)
    return content.getvalue()


def _lines(rows: Iterator[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def _triplets(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    return {f"{part}.parquet": _parquet(triplets(rows, common_negatives(rows, settings.negatives)))}


def _pairs(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    return {f"{part}.parquet": _parquet(labelled_pairs(rows))}


def _lists(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    return {f"{part}.parquet": _parquet(labelled_lists(rows))}


def _flagembedding(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    def row_of(row: TrainerRow) -> dict[str, Any]:
        found: dict[str, Any] = {"query": row.query}
        for name, passages in (("pos", row.positives), ("neg", row.negatives)):
            found |= {name: [each.text for each in passages], f"{name}_scores": [each.score for each in passages]}
        return found | {"prompt": settings.instruction, "type": "normal"}

    return {f"{part}.jsonl": _lines(row_of(row) for row in rows)}


def _tevatron(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    def row_of(row: TrainerRow) -> dict[str, Any]:
        ids = {f"{name}_document_ids": [each.id for each in passages] for name, passages in _named(row)}
        return {"query_id": row.id, "query_text": f"{settings.instruction}{row.query}", **ids}

    corpus = ({"docid": name, "document_text": text} for name, text in passages_of_rows(rows).items())
    return {f"{part}.jsonl": _lines(row_of(row) for row in rows), f"{part}-corpus.jsonl": _lines(corpus)}


def _named(row: TrainerRow) -> list[tuple[str, Sequence[Any]]]:
    return [("positive", row.positives), ("negative", row.negatives)]


def _swift(role: str) -> Writer:
    """Return a writer for ms-swift with a role for passages: `user` for embedding models, `assistant` for rerankers."""

    def write(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
        def row_of(row: TrainerRow) -> dict[str, Any]:
            asked = {"messages": [{"role": "user", "content": f"{settings.instruction}{row.query}"}]}
            return asked | {
                f"{name}_messages": [[{"role": role, "content": each.text}] for each in passages]
                for name, passages in _named(row)
            }

        return {f"{part}.jsonl": _lines(row_of(row) for row in rows)}

    return write


def _pylate(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    """Write lists for distillation; a trainer of triplets reads those of sentence-transformers."""
    passages = passages_of_rows(rows)
    lists = [[*row.positives, *row.negatives] for row in rows]
    count = min(len(each) for each in lists)  # a batch has as many scores of each question
    lists = [pick_evenly(each, count) for each in lists]
    train = {
        "query_id": [row.id for row in rows],
        "document_ids": [[each.id for each in ranked] for ranked in lists],
        "scores": [[each.score for each in ranked] for ranked in lists],
    }
    queries = {"query_id": [row.id for row in rows], "text": [row.query for row in rows]}
    documents = {"document_id": list(passages), "text": list(passages.values())}
    tables: dict[str, dict[str, Any]] = {"": train, "-queries": queries, "-documents": documents}
    return {f"{part}{name}.parquet": _parquet(columns) for name, columns in tables.items()}


def _gritlm(rows: Sequence[TrainerRow], settings: FormatSettings, part: str) -> Files:
    def row_of(row: TrainerRow) -> dict[str, Any]:
        texts = {
            name: [["", each.text] for each in each_of] for name, each_of in zip(("pos", "neg"), row[2:], strict=True)
        }
        return {"query": [settings.instruction, row.query], **texts}

    return {f"{part}.jsonl": _lines(row_of(row) for row in rows)}


@dataclass(frozen=True)
class TrainerFormat:
    """A format of training data."""

    write: Writer
    reads: str
    """Who reads it."""


FORMATS: Mapping[str, TrainerFormat] = {
    "sentence-transformers": TrainerFormat(
        _triplets, "SentenceTransformer, SparseEncoder and MultiVectorEncoder trainers"
    ),
    "cross-encoder": TrainerFormat(_pairs, "sentence-transformers' CrossEncoder trainer, pairs with scores"),
    "cross-encoder-lists": TrainerFormat(_lists, "sentence-transformers' CrossEncoder trainer, listwise losses"),
    "flagembedding": TrainerFormat(_flagembedding, "FlagEmbedding: embedders and rerankers, with scores to distil"),
    "tevatron": TrainerFormat(_tevatron, "Tevatron: rows and a corpus"),
    "ms-swift": TrainerFormat(_swift("user"), "ms-swift: embedding models"),
    "ms-swift-reranker": TrainerFormat(_swift("assistant"), "ms-swift: rerankers"),
    "pylate": TrainerFormat(_pylate, "PyLate: distillation from the judges' scores"),
    "gritlm": TrainerFormat(_gritlm, "GritLM and ReasonIR"),
}
"""Every format by its name."""


@dataclass(frozen=True)
class ExportedData:
    """Record of an export."""

    folder: Path
    form: str
    files: Mapping[str, int]
    """Bytes by name."""
    questions: Mapping[str, int]
    """By part."""

    def as_dict(self) -> dict[str, Any]:
        """Return the export in the shape of `--json`."""
        return {
            "folder": str(self.folder),
            "format": self.form,
            "files": dict(self.files),
            "questions": dict(self.questions),
        }


def export(data: Sequence[TrainingFile], form: str, folder: Path, settings: FormatSettings) -> ExportedData:
    """Write files of training data in a format, into a new folder, with the records that came with them."""
    if form not in FORMATS:
        raise R2medError(f"no format {form!r}{suggest(form, FORMATS)}")
    if folder.exists():
        raise R2medError(f"{folder}: exists already; name a new folder")
    rows = {part: _rows_of(data, part, settings) for part in (TRAIN, DEV)}
    if not rows[TRAIN]:
        raise R2medError("no row to train on; every question is held out")
    files: dict[str, bytes] = {}
    for part, found in rows.items():
        files |= FORMATS[form].write(found, settings, part) if found else {}
    files[RECORD] = orjson.dumps([_record(each) for each in data], option=orjson.OPT_INDENT_2)
    try:
        with draft_folder(folder.parent, folder.name) as draft:
            for name, content in files.items():
                (draft / name).write_bytes(content)
            draft.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    sizes = {name: len(content) for name, content in files.items()}
    return ExportedData(folder, form, sizes, {part: len(found) for part, found in rows.items()})


def _rows_of(data: Sequence[TrainingFile], part: str, settings: FormatSettings) -> list[TrainerRow]:
    return [row for each in data for row in trainer_rows(each.part(part), settings.queries)]


def _record(data: TrainingFile) -> dict[str, Any]:
    """Return the record of an export: the origin of the rows, and the tasks that they were compared with."""
    names = ("fingerprint", "origin", "licence", "rows", "leakage", "r2med")
    return {"file": data.path.name, **{name: data.record.get(name) for name in names}}
