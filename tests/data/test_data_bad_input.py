"""Bad input of every kind: `validate` reports it with its place, and `load` fails with the same one line."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from folders import LAYOUTS, SMALL, json_lines, put, put_parquet, write_beir, write_nano, write_parquet, write_r2med
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.data import lint
from r2med.data.loader import load
from r2med.data.problems import KINDS
from r2med.data.validate import validate
from r2med.errors import DataError

GOOD = b'{"id": "d1", "text": "one fish"}\n{"id": "d2", "text": "two fish"}\n{"id": "d3", "text": "three fish"}\n'

ERRORS = [
    (
        "corpus.jsonl",
        GOOD + b'{"id": "d4", "text"\n',
        "broken-json",
        4,
        "not JSON: unexpected end of data at column 20",
    ),
    ("corpus.jsonl", GOOD + b"\n\n[1, 2]\n", "broken-json", 6, "expected a JSON object, found a list"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": NaN}\n', "broken-json", 4, "not JSON: "),
    ("corpus.jsonl", b'{"id": "d1", "text": "\xff"}\n' + GOOD, "bad-encoding", 1, "byte 0xff at position 23"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": "a\0b"}\n', "broken-json", 4, "a null byte at position 24"),
    ("corpus.jsonl", GOOD.decode().encode("utf-16"), "bad-encoding", 1, "UTF-16"),
    ("corpus.jsonl", GOOD + b'{"text": "x"}\n', "missing-field", 4, "no id or _id; the row has text"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "body": "x"}\n', "missing-field", 4, "no text; the row has id, body"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": 5}\n', "wrong-type", 4, "text must be a string, not the number 5"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": null}\n', "wrong-type", 4, "text must be a string, not null"),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": "x", "title": ["x"]}\n', "wrong-type", 4, "title must be a string"),
    (
        "corpus.jsonl",
        GOOD + b'{"id": ["d4"], "text": "x"}\n',
        "wrong-type",
        4,
        "id must be a non-empty string, not a list",
    ),
    ("corpus.jsonl", GOOD + b'{"id": "", "text": "x"}\n', "wrong-type", 4, "id must be a non-empty string"),
    ("corpus.jsonl", GOOD + b'{"id": true, "text": "x"}\n', "wrong-type", 4, "not true"),
    ("corpus.jsonl", GOOD + b'{"id": "d2", "text": "else"}\n', "conflicting-id", 4, "corpus.jsonl:2 with another text"),
    ("corpus.jsonl", b"", "empty-file", 0, "holds no rows"),
    ("corpus.jsonl", b"\xef\xbb\xbf", "empty-file", 0, "holds no rows"),
    ("corpus.jsonl", b"\r\n \r\n", "empty-file", 0, "holds no rows"),
    ("corpus.jsonl.gz", b"", "empty-file", 0, "holds no rows"),
    ("query.jsonl", b'{"id": "q1", "text": "a"}\n', "unknown-query", 2, "judges the query 'q2', which does not exist"),
    ("query.jsonl", b"{}\n", "missing-field", 1, "the row has no fields"),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": 0.5}\n', "bad-grade", 1, "integer, not the number 0.5"),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": "high"}\n', "bad-grade", 1, "integer, not the text 'high'"),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": true}\n', "bad-grade", 1, "integer, not true"),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": null}\n', "bad-grade", 1, "integer, not null"),
    ("qrels.jsonl", b'{"q_id": "q1", "score": 1}\n', "missing-field", 1, "no document id (p_id, corpus-id"),
    ("qrels.jsonl", b'{"q_id": {}, "p_id": "d1", "score": 1}\n', "wrong-type", 1, "q_id must be a non-empty string"),
    ("qrels.jsonl", b"[]\n", "broken-json", 1, "expected a JSON object, found a list"),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": 0}\n', "no-queries", 0, "no query has a relevant document"),
    ("qrels.jsonl", b"", "empty-file", 0, "holds no rows"),
    (
        "corpus.jsonl",
        GOOD + b'{"id": "d4", "text": "x", "text": "y"}\n',
        "repeated-key",
        4,
        "the key 'text' is given twice",
    ),
    ("query.jsonl", b'{"id": "q1", "text": "\\":", "id" : "q2"}\n', "repeated-key", 1, "the key 'id' is given twice"),
    (
        "qrels.jsonl",
        b'{"q_id": "q1", "p_id": "d1", "score": 1, "score": 0}\n',
        "repeated-key",
        1,
        "the key 'score' is given twice",
    ),
    ("qrels.jsonl", b'{"q_id": "q1", "p_id": "d1", "wert": 1}\n', "unknown-column", 1, "the column 'wert' is unknown"),
    ("qrels.txt", b"q1 0 d1 1\nq1 0 d1 2\n", "conflicting-grade", 2, "judges q1 d1 as 2, "),
    ("qrels.txt", b"q1 0 d1 1\nq1 d1\n", "wrong-columns", 2, "2 columns; expected query, document, grade or"),
    ("qrels.txt", b"q1 0 d1 1\n\nq1 0 d2 1.5\n", "bad-grade", 3, "integer, not the text '1.5'"),
    ("qrels.txt", b"q1 0 d1 nan\n", "bad-grade", 1, "integer, not the text 'nan'"),
    ("qrels.txt", b"q1 0 d1 1\nq\xff 0 d2 1\n", "bad-encoding", 2, "byte 0xff"),
    (
        "qrels.tsv",
        b"query-id\tcorpus-id\tscore\nq1\td1\n",
        "wrong-columns",
        2,
        "2 columns; expected query-id, corpus-id, score",
    ),
    ("qrels.tsv", b"q1\t\t1\n", "wrong-type", 1, "must be a non-empty string"),
    ("qrels.tsv.gz", b"query-id\tcorpus-id\tscore\n", "empty-file", 0, "holds no rows"),
]


def replace_part(folder, name, content):
    """Put a file in the place of the same part's file of another name."""
    for old in folder.glob(f"{name.partition('.')[0]}.*"):
        old.unlink()
    put(folder, name, content)


def failure(folder):
    """What `load` says of a folder; nothing when it is content."""
    try:
        load(folder)
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "content", "code", "line", "message"), ERRORS)
def test_errors_are_reported_with_their_line_and_load_says_the_same(tmp_path, name, content, code, line, message):
    write_r2med(tmp_path, SMALL)
    replace_part(tmp_path, name, content)
    report = validate(tmp_path)
    found = [problem for problem in report.problems if problem.severity == "error" and problem.code == code]
    assert found, report.problems
    assert not report.ok
    file = {"no-queries": tmp_path, "unknown-query": tmp_path / "qrels.jsonl"}.get(code, tmp_path / name)
    assert (found[0].file, found[0].line) == (str(file), line)
    assert message in found[0].message
    with pytest.raises(DataError) as error:
        load(tmp_path)
    first = next(problem for problem in report.problems if problem.severity == "error")
    assert str(error.value).startswith(str(first))
    assert "\n" not in str(error.value)


WARNINGS = [
    ("corpus.jsonl", b"\xef\xbb\xbf" + GOOD, "bom", 1),
    ("corpus.jsonl", GOOD.replace(b"\n", b"\r\n"), "crlf", 1),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": ""}\n', "empty-document", 4),
    ("corpus.jsonl", GOOD + b'{"id": "d4", "text": "\\n "}\n', "empty-document", 4),
    ("corpus.jsonl", GOOD + b'{"id": 4, "text": "x"}\n', "number-as-id", 4),
    ("corpus.jsonl", GOOD + b'{"id": "d2", "text": "two fish"}\n', "repeated-id", 4),
    ("query.jsonl", b'{"id":"q1","text":"a","answer":[1]}\n{"id":"q2","text":"b"}\n', "unused-field", 1),
    ("query.jsonl", b'{"id":"q1","text":"a"}\n{"id":"q2","text":"b"}\n{"id":"q3","text":"c"}\n', "no-positive", 3),
    ("qrels.txt", b"q1 0 d1 1\nq2 0 d1 1\nq1 0 d1 1\n", "repeated-judgement", 3),
    ("qrels.txt", b"q1 0 d1 1\nq2 0 d1 0\n", "no-positive", 2),
]


@pytest.mark.parametrize(("name", "content", "code", "line"), WARNINGS)
def test_warnings_are_reported_and_load_goes_on(tmp_path, name, content, code, line):
    write_r2med(tmp_path, SMALL)
    replace_part(tmp_path, name, content)
    report = validate(tmp_path)
    assert report.ok
    assert [(problem.code, problem.line) for problem in report.problems] == [(code, line)]
    said = () if KINDS[code].harmless else (str(report.problems[0]).removeprefix(f"{tmp_path}{os.sep}"),)
    assert load(tmp_path).warnings == said


def test_queries_of_other_splits_are_for_validate_alone(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "qrels/dev.tsv", b"query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    assert load(tmp_path, split="dev").warnings == ()
    report = validate(tmp_path, split="dev")
    assert report.ok
    assert [(problem.code, problem.line) for problem in report.problems] == [("other-split", 2)]
    put(tmp_path, "qrels/dev.tsv", b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td1\t0\n")
    (sentence,) = load(tmp_path, split="dev").warnings
    assert sentence == "queries.jsonl:2: the query 'q2' has no relevant document, left out"


def test_every_kind_of_problem_is_tested():
    elsewhere = {"missing-file", "unreadable-file", "damaged-file", "unexpected-count", "other-split"}
    elsewhere |= {"shared-id", "unknown-document", "empty-query", "missing-document", "bad-weight", *lint.KINDS}
    assert {case[2] for case in ERRORS} | {case[2] for case in WARNINGS} | elsewhere == set(KINDS)


def test_grades_may_be_written_in_several_ways(tmp_path):
    write_r2med(tmp_path, SMALL)
    rows = [("q1", "d1", 1), ("q1", "d2", 2.0), ("q2", "d1", "3"), ("q2", "d2", -1), ("q2", "d3", "0")]
    put(tmp_path, "qrels.jsonl", json_lines({"q_id": q, "p_id": d, "score": grade} for q, d, grade in rows))
    assert load(tmp_path).gold.qrels == {"q1": {"d1": 1, "d2": 2}, "q2": {"d1": 3, "d2": -1, "d3": 0}}


def test_every_problem_is_found_grouped_and_counted(tmp_path):
    write_r2med(tmp_path, SMALL)
    put(tmp_path, "corpus.jsonl", GOOD + b'{"id": "d1", "text": "one fish"}\nbroken\n{"id": "d9"}\n' + b"also broken\n")
    put(
        tmp_path,
        "qrels.jsonl",
        json_lines([{"q_id": "q1", "p_id": "d1", "score": 1}, {"q_id": "q8", "p_id": "d9", "score": 1}]),
    )
    report = validate(tmp_path)
    groups = {group.code: [problem.line for problem in group.problems] for group in report.groups()}
    assert groups == {
        "broken-json": [5, 7],
        "missing-field": [6],
        "unknown-query": [2],
        "missing-document": [2],
        "repeated-id": [4],
        "no-positive": [2],
    }
    assert (report.errors, report.warnings) == (4, 3)
    assert (report.queries, report.documents, report.judgements) == (2, 4, 2)
    assert str(report.groups()[0]) == "error: lines that are not JSON objects: 2"
    assert report.as_dict()["problems"][0] == {"severity": "warning", **report.problems[0]._asdict()}
    with pytest.raises(DataError, match=r"corpus.jsonl:5: .* \(and 3 more, see: r2med tasks validate .*\)$"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["corpus.jsonl", "query.jsonl", "qrels.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    write_r2med(tmp_path, SMALL)
    (tmp_path / name).unlink()
    assert [problem.code for problem in validate(tmp_path).problems] == ["missing-file"]
    with pytest.raises(DataError, match=f"expected .*{name}"):
        load(tmp_path)


def test_an_empty_folder_and_no_folder(tmp_path):
    assert [problem.code for problem in validate(tmp_path).problems] == ["missing-file"] * 3
    for call in (load, validate):
        with pytest.raises(DataError, match="no such folder"):
            call(tmp_path / "absent")
    put(tmp_path, "file.txt", b"x")
    with pytest.raises(DataError, match="not a folder"):
        load(tmp_path / "file.txt")


def test_a_folder_in_the_place_of_a_file(tmp_path):
    write_r2med(tmp_path, SMALL)
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "corpus.jsonl").mkdir()
    with pytest.raises(DataError, match=r"corpus.jsonl: cannot be read: Is a directory"):
        load(tmp_path)


def test_a_link_that_leads_nowhere(tmp_path):
    write_r2med(tmp_path, SMALL)
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "corpus.jsonl").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=r"corpus.jsonl: cannot be read: No such file"):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX users")
@pytest.mark.parametrize(("mode", "place"), [(0o644, "folder/corpus.jsonl"), (0o755, "folder")])
def test_permission_denied(mode, place):
    # The folders that pytest makes are closed to other users, which root becomes here to meet closed doors at all.
    parent = Path(tempfile.mkdtemp())
    parent.chmod(0o755)
    folder = parent / "folder"
    write_r2med(folder, SMALL)
    (parent / place).chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(DataError, match=f"{place}.*: cannot be read: Permission denied"):
            load(folder)
    finally:
        if root:
            os.seteuid(0)
        (parent / place).chmod(mode)
        shutil.rmtree(parent)


def test_a_gzip_file_cut_anywhere_fails_in_one_line(tmp_path):
    write_r2med(tmp_path, SMALL)
    rng = random.Random(0)
    rows = [{"id": f"d{n}", "text": "".join(rng.choices("abcdefgh ", k=300))} for n in range(1, 200)]
    whole = gzip.compress(json_lines(rows))
    (tmp_path / "corpus.jsonl").unlink()
    for cut in [1, 9, 10, 11, 500, len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1]:
        (tmp_path / "corpus.jsonl.gz").write_bytes(whole[:cut])
        report = validate(tmp_path)
        assert [problem.code for problem in report.problems if problem.code != "broken-json"] == ["damaged-file"], cut
        with pytest.raises(DataError, match=r"corpus.jsonl.gz:\d+: the gzip data is cut short or damaged") as error:
            load(tmp_path)
        assert "\n" not in str(error.value)


def test_a_file_that_is_not_gzip_but_named_so_and_the_reverse(tmp_path):
    write_r2med(tmp_path, SMALL)
    (tmp_path / "corpus.jsonl").rename(tmp_path / "corpus.jsonl.gz")
    with pytest.raises(DataError, match=r"corpus.jsonl.gz:1: the gzip data"):
        load(tmp_path)
    (tmp_path / "corpus.jsonl.gz").unlink()
    (tmp_path / "corpus.jsonl").write_bytes(gzip.compress(GOOD))
    assert len(load(tmp_path).collection.documents) == 3


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 600), tail=st.binary(max_size=12))
def test_a_parquet_file_cut_anywhere_fails_in_one_line(tmp_path_factory, cut, tail):
    folder = tmp_path_factory.mktemp("cut")
    write_parquet(folder, SMALL)
    file = folder / "corpus.parquet"
    file.write_bytes(file.read_bytes()[:cut] + tail)
    message = failure(folder)
    shutil.rmtree(folder)
    assert "corpus.parquet: is not a whole parquet file" in message
    assert "\n" not in message


def test_parquet_problems_have_the_row(tmp_path):
    write_parquet(tmp_path, SMALL)
    put_parquet(tmp_path, "corpus.parquet", [("d1", "a"), ("d2", None), ("d3", "c")], ("_id", "text"))
    with pytest.raises(DataError, match=r"corpus.parquet:2: the field text must be a string, not null"):
        load(tmp_path)
    put_parquet(tmp_path, "corpus.parquet", [("d1",), ("d2",)], ("_id",))
    with pytest.raises(DataError, match=r"corpus.parquet:1: no text; the row has _id \(and 1 more, see"):
        load(tmp_path)
    put(tmp_path, "corpus.parquet", b"not parquet")
    with pytest.raises(DataError, match=r"corpus.parquet: is not a whole parquet file"):
        load(tmp_path)


def test_conflicting_ids_across_pieces_name_both_files(tmp_path):
    LAYOUTS["configs"](tmp_path, SMALL)
    put_parquet(tmp_path, "corpus/corpus-00001-of-00002.parquet", [("d2", "x"), ("d1", "other")], ("id", "text"))
    with pytest.raises(
        DataError, match=r"corpus-00001-of-00002.parquet:2: repeats the id 'd1' of .*00000-of-00002.parquet:1 "
    ):
        load(tmp_path)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["corpus.jsonl", "query.jsonl", "qrels.jsonl", "qrels.txt"]),
    st.binary(max_size=80),
    st.integers(0, 3),
)
def test_random_bytes_never_give_a_traceback(tmp_path_factory, name, junk, after):
    folder = tmp_path_factory.mktemp("junk")
    write_r2med(folder, SMALL)
    before = b"".join((folder / name).read_bytes().splitlines(keepends=True)[:after]) if name != "qrels.txt" else b""
    replace_part(folder, name, before + junk)
    report = validate(folder)
    message = failure(folder)
    shutil.rmtree(folder)
    assert report.ok == (message == "")
    assert "\n" not in message


def test_single_files_are_validated_by_their_name(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "corpus.jsonl", GOOD + b"broken\n")
    put(tmp_path, "qrels/test.tsv", b"q1\td1\tx\n")
    assert [str(problem.line) for problem in validate(tmp_path / "corpus.jsonl").problems] == ["4"]
    assert [problem.code for problem in validate(tmp_path / "qrels" / "test.tsv").problems] == ["bad-grade"]
    assert validate(str(tmp_path / "queries.jsonl")).ok
    put(tmp_path, "other.jsonl", GOOD)
    with pytest.raises(DataError, match="cannot tell what it holds"):
        validate(tmp_path / "other.jsonl")


def test_validating_several_tasks_gives_one_report(tmp_path):
    write_nano(tmp_path, SMALL)
    write_nano(tmp_path, SMALL, "NanoR2MEDPMCClinical")
    report = validate(tmp_path)
    assert (report.ok, report.queries, report.documents, report.judgements) == (True, 4, 6, 4)
