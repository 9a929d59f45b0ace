"""Judgements from a file of their own, as `eval --qrels` reads them."""

from __future__ import annotations

import pytest
from folders import LAYOUTS, SMALL, json_lines, put, put_parquet, write_beir

from r2med.data.qrels import read_qrels
from r2med.errors import DataError

EXPECTED = {"q1": {"d1": 2}, "q2": {"d2": 1, "d3": 0}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", json_lines({"q_id": q, "p_id": d, "score": grade} for q, d, grade in SMALL.qrels)),
        ("a.jsonl.gz", json_lines({"query-id": q, "corpus-id": d, "score": grade} for q, d, grade in SMALL.qrels)),
        ("trec", b"q1 0 d1 2\nq2 Q0 d2 1\nq2\t0\td3\t0\n"),
        ("qrels.trec.gz", b"q1  0   d1 2\n q2 0 d2 1\nq2 0 d3 0\n"),
        ("beir.tsv", b"query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td2\t1\nq2\td3\t0\n"),
        ("three.txt", b"q1 d1 2\nq2 d2 1\nq2 d3 0\n"),
        ("header.txt", b"query_id doc_id relevance\nq1 d1 2\nq2 d2 1\nq2 d3 0\n"),
    ],
)
def test_every_layout(tmp_path, name, content):
    put(tmp_path, name, content)
    assert read_qrels(tmp_path / name) == (EXPECTED, ())


def test_parquet_with_and_without_grades(tmp_path):
    put_parquet(tmp_path, "a.parquet", SMALL.qrels, ("query-id", "corpus-id", "score"))
    assert read_qrels(tmp_path / "a.parquet").qrels == EXPECTED
    put_parquet(tmp_path, "b.parquet", [("q1", "d1"), ("q2", "d2")], ("query-id", "corpus-id"))
    assert read_qrels(tmp_path / "b.parquet").qrels == {"q1": {"d1": 1}, "q2": {"d2": 1}}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_folder_of_a_task(tmp_path, layout):
    LAYOUTS[layout](tmp_path, SMALL)
    assert read_qrels(tmp_path).qrels == EXPECTED


def test_a_split_of_a_folder(tmp_path):
    write_beir(tmp_path, SMALL, "dev")
    assert read_qrels(tmp_path, split="dev").qrels == EXPECTED
    with pytest.raises(DataError, match="no qrels for the split 'test'; splits here: dev"):
        read_qrels(tmp_path)


def test_ids_with_blanks_are_kept_between_tabs(tmp_path):
    put(tmp_path, "a.tsv", "query-id\tcorpus-id\tscore\nq 1\tNBK 1\u00a0a\t1\n".encode())
    assert read_qrels(tmp_path / "a.tsv").qrels == {"q 1": {"NBK 1\u00a0a": 1}}


def test_only_ascii_blanks_separate(tmp_path):
    put(tmp_path, "a.txt", "q\u00a01 0 d\u30001 1\n".encode())
    assert read_qrels(tmp_path / "a.txt").qrels == {"q\u00a01": {"d\u30001": 1}}


def test_an_id_that_looks_like_json_or_a_header(tmp_path):
    put(tmp_path, "a.txt", b"{q1 0 [d1 1\nqid 0 d2 1\n")
    assert read_qrels(tmp_path / "a.txt").qrels == {"{q1": {"[d1": 1}, "qid": {"d2": 1}}


def test_what_was_folded_or_left_out_is_counted(tmp_path):
    put(tmp_path, "a.txt", b"q1 0 d1 1\nq1 0 d1 1\nq2 0 d1 0\nq3 0 d1 -1\n")
    found = read_qrels(tmp_path / "a.txt")
    assert found.qrels == {"q1": {"d1": 1}}
    file = tmp_path / "a.txt"
    assert found.warnings == (
        f"{file}:2: repeats the judgement of q1 d1 in {file}:1, counted once",
        f"{file}: 2 queries without a relevant document, which were left out; the first in line 3",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no rows"),
        (b"q1 0 d1 0\n", "no query has a relevant document"),
        (b"q1 0 d1 1\nq1 0 d1 3\n", "a.txt:2: judges q1 d1 as 3"),
        (b"q1 0 d1 1\nq1 0 d2 maybe\nq1 0 d3 1\nq2 x\n", r"a.txt:2: .*'maybe' \(and 1 more"),
    ],
)
def test_errors_are_one_line(tmp_path, content, message):
    put(tmp_path, "a.txt", content)
    with pytest.raises(DataError, match=message) as error:
        read_qrels(tmp_path / "a.txt")
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read_qrels(tmp_path / "absent.txt")
