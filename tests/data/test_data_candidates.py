"""Candidate lists beside a nano set in a folder."""

from __future__ import annotations

import pytest
from folders import SMALL, put_parquet, write_nano, write_r2med

from r2med.data.candidates import candidates
from r2med.data.loader import load
from r2med.errors import DataError

LISTS = [("q2", ["d3", "d1"]), ("q1", ["d1", "d3", "d2"])]


def folder_with(path, lists):
    write_nano(path, SMALL)
    put_parquet(path, "bm25/NanoR2MEDBiology-00000-of-00001.parquet", lists, ("query-id", "corpus-ids"))
    return load(path).collection


def test_lists_become_a_run_in_their_order(tmp_path):
    run = candidates(folder_with(tmp_path, LISTS), "bm25")
    assert run.queries == ["q1", "q2"]
    assert run["q1"].documents == ["d1", "d3", "d2"]
    assert run["q2"].documents == ["d3", "d1"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([("q1", ["d1"])], "no candidates for 1 queries, the first is 'q2'"),
        ([("q1", ["d1", "d9"]), ("q2", ["d1"])], r"parquet:1: lists the text 'd9', which does not exist"),
        ([("q1", ["d1", "d1"]), ("q2", ["d1"])], r"parquet:1: a document or the query 'q1' is listed twice"),
        ([("q1", ["d1"]), ("q2", ["d1"]), ("q2", ["d2"])], r"parquet:3: .* is listed twice"),
        ([("q1", "d1"), ("q2", "d2")], r"parquet:1: expected a query id and a list"),
        ([("q1", [["d1"]]), ("q2", [["d2"]])], r"parquet:1: lists a list, which does not exist"),
    ],
)
def test_bad_lists_are_one_line(tmp_path, lists, message):
    with pytest.raises(DataError, match=message):
        candidates(folder_with(tmp_path, lists), "bm25")


def test_lists_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="unknown candidates 'bm52'; did you mean bm25"):
        candidates(folder_with(tmp_path, LISTS), "bm52")
    with pytest.raises(DataError, match="no candidates; expected reranking_hybrid"):
        candidates(load(tmp_path).collection, "hybrid")
    write_r2med(tmp_path / "plain", SMALL)
    with pytest.raises(DataError, match="no candidates; expected bm25/"):
        candidates(load(tmp_path / "plain").collection, "bm25")
