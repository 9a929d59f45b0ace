"""Every format is what its trainer reads: by the trainer's own loader where it installs, else as documented."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from bridging import training_file
from click.testing import CliRunner

from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.training.formats import FORMATS
from r2med.training.rows import read_training_files


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_file(tmp_path_factory.mktemp("data") / "bridge.parquet")


def export(data: Path, folder: Path, form: str, *more: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["train", "export", str(data), "--to", form, "--out", str(folder), *more])
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout if not status else str(done.exception)


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def truth(data: Path, part: str = "train") -> dict[str, tuple[list[str], list[str]]]:
    """Positives and negatives of each question."""
    rows = read_training_files([data])[0].part(part)
    return {
        row["query"]: tuple([each["text"] for each in row[name]] for name in ("positives", "negatives"))
        for row in rows.iter_rows(named=True)
    }


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_ms_swift(data: Path, tmp_path: Path, role: str) -> None:
    export(data, tmp_path / "out", "ms-swift" if role == "user" else "ms-swift-reranker")
    for row in lines(tmp_path / "out" / "train.jsonl"):
        assert list(row) == ["messages", "positive_messages", "negative_messages"]
        assert [message["role"] for message in row["messages"]] == ["user"]
        expected = truth(data)[row["messages"][0]["content"]]
        for name, texts in zip(("positive", "negative"), expected, strict=True):
            assert row[f"{name}_messages"] == [[{"role": role, "content": text}] for text in texts]


def test_tevatron_and_gritlm(data: Path, tmp_path: Path) -> None:
    export(data, tmp_path / "tevatron", "tevatron")
    corpus = {row["docid"]: row["document_text"] for row in lines(tmp_path / "tevatron" / "train-corpus.jsonl")}
    for row in lines(tmp_path / "tevatron" / "train.jsonl"):
        assert list(row) == ["query_id", "query_text", "positive_document_ids", "negative_document_ids"]
        positives, negatives = truth(data)[row["query_text"]]
        assert [corpus[name] for name in row["positive_document_ids"]] == positives
        assert [corpus[name] for name in row["negative_document_ids"]] == negatives
    export(data, tmp_path / "gritlm", "gritlm", "--instruction", "Find evidence")
    for row in lines(tmp_path / "gritlm" / "train.jsonl"):
        positives, negatives = truth(data)[row["query"][1]]
        assert row["query"][0] == "Find evidence"
        assert (row["pos"], row["neg"]) == ([["", text] for text in positives], [["", text] for text in negatives])


def test_sentence_transformers_columns(data: Path, tmp_path: Path) -> None:
    export(data, tmp_path / "triplets", "sentence-transformers", "--negatives", "3", "--query", "both")
    frame = pl.read_parquet(tmp_path / "triplets" / "train.parquet")
    assert frame.columns == ["anchor", "positive", "negative_1", "negative_2", "negative_3"]
    bridged = 0
    for anchor, positive, *negatives in frame.iter_rows():
        question, _, bridge = anchor.partition("\n")
        bridged += bool(bridge)
        assert positive in truth(data)[question][0]
        assert set(negatives) <= set(truth(data)[question][1])
    assert bridged == len(frame) / 2
    export(data, tmp_path / "pairs", "cross-encoder")
    pairs = pl.read_parquet(tmp_path / "pairs" / "dev.parquet")
    assert pairs.columns == ["query", "document", "label"]
    for query, document, label in pairs.iter_rows():
        assert (label == 1.0) == (document in truth(data, "dev")[query][0])
    export(data, tmp_path / "lists", "cross-encoder-lists")
    lists = pl.read_parquet(tmp_path / "lists" / "train.parquet")
    assert lists.columns == ["query", "docs", "labels"]
    assert all(len(docs) == len(labels) for _, docs, labels in lists.iter_rows())


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_carries_the_record_and_never_the_held_out_part(data: Path, tmp_path: Path, form: str) -> None:
    said = json.loads(export(data, tmp_path / "out", form, "--json"))
    assert said["questions"] == {"train": len(truth(data)), "dev": len(truth(data, "dev"))}
    record = json.loads((tmp_path / "out" / "r2med.json").read_text())
    assert record[0]["leakage"]["checked"] == ["sample/Biology"]
    train = "".join(file.read_text() for file in (tmp_path / "out").glob("train*.jsonl"))
    train += "".join(str(pl.read_parquet(file).to_dicts()) for file in (tmp_path / "out").glob("train*.parquet"))
    assert all(query in train for query in truth(data))
    assert not any(query in train for query in truth(data, "dev"))
    assert "exists already" in export(data, tmp_path / "out", form, status=1)


def test_wrong_exports_are_one_line(data: Path, tmp_path: Path) -> None:
    said = export(data, tmp_path / "out", "sentence-transformers", "--negatives", "99", status=1)
    assert "no row has 99 negatives" in said
    assert "no such file" in export(tmp_path / "none.parquet", tmp_path / "out", "pylate", status=1)
    twin = tmp_path / "twin.parquet"
    twin.write_bytes(data.read_bytes())
    with pytest.raises(R2medError, match="has the question"):
        read_training_files([data, twin])
