"""Judgements from a file of their own, as `eval --qrels` reads them."""

from __future__ import annotations

import pytest
from folders import LAYOUTS, SMALL, json_lines, put, put_parquet, table, write_beir

from r2med.data.loader import load
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
        ("comma.csv", b'"query-id",corpus-id,Score\r\nq1,"d1",2\r\n"q2",d2,1\r\nq2,d3,0\r\n'),
        ("comma.csv.gz", b"q1,0,d1,2\nq2,0,d2,1\n,,,\nq2,0,d3,0\n"),
        ("header.txt", b"query_id doc_id relevance\nq1 d1 2\nq2 d2 1\nq2 d3 0\n"),
    ],
)
def test_every_layout(tmp_path, name, content):
    put(tmp_path, name, content)
    assert read_qrels(tmp_path / name) == (EXPECTED, (), {})


def graded(folder, form, grade, rows):
    """A file of judgements whose column of grades has this name."""
    file = folder / f"qrels.{form}"
    names = ("query-id", "corpus-id", grade)
    if form == "parquet":
        put_parquet(folder, file.name, rows, names)
    elif form == "jsonl":
        put(folder, file.name, json_lines(dict(zip(names, row, strict=True)) for row in rows))
    else:
        put(folder, file.name, table([names, *rows], {"tsv": "\t", "csv": ",", "txt": " "}[form]))
    return file


FORMS = ("jsonl", "tsv", "csv", "txt", "parquet")


@pytest.mark.parametrize("form", FORMS)
def test_the_grade_is_known_by_its_usual_names_in_any_case(tmp_path, form):
    for grade in ("score", "Score", "REL", "rel", "label", "Grade", "relevance", "rating", "Relevance-Score"):
        assert read_qrels(graded(tmp_path, form, grade, SMALL.qrels)).qrels == EXPECTED


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("grade", ["wert", "x", "iteration"])
def test_another_column_is_an_error_that_names_it(tmp_path, form, grade):
    file = graded(tmp_path, form, grade, SMALL.qrels)
    with pytest.raises(DataError, match=f"the column '{grade}' is unknown; a column of grades is called score, rel"):
        read_qrels(file)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"q_id": "q1", "p_id": "d1", "score": 1, "label": 0}], "score and label could both be the grade"),
        (
            [{"q_id": "q1", "p_id": "d1", "score": 1}, {"q_id": "q1", "p_id": "d2"}],
            "some rows of this file have a grade",
        ),
        (
            [{"q_id": "q1", "p_id": "d1"}, {"q_id": "q1", "p_id": "d2", "score": 0}],
            "some rows of this file have a grade",
        ),
    ],
)
def test_a_grade_that_cannot_be_told_is_an_error(tmp_path, rows, said):
    put(tmp_path, "a.jsonl", json_lines(rows))
    with pytest.raises(DataError, match=said):
        read_qrels(tmp_path / "a.jsonl")


def test_further_columns_beside_a_grade_do_no_harm(tmp_path):
    put(tmp_path, "a.jsonl", json_lines([{"q_id": "q1", "p_id": "d1", "score": 2, "annotator": "x"}]))
    assert read_qrels(tmp_path / "a.jsonl").qrels == {"q1": {"d1": 2}}


@pytest.mark.parametrize("grade", ["1_0", "1e300", "1e0", "\u0661", "0x1", "inf", "1.5", "", "9999999999", "1" * 400])
@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl"])
def test_odd_spellings_of_numbers_are_no_grades(tmp_path, form, grade):
    file = graded(tmp_path, form, "score", [("q1", "d1", grade)])
    with pytest.raises(DataError, match=r"qrels\.\w+:[12]: the grade \(score\)"):
        read_qrels(file)


@pytest.mark.parametrize(("grade", "value"), [("1.0", 1), ("+2", 2), ("-1", -1), ("007", 7)])
def test_plain_spellings_of_whole_numbers_are_grades(tmp_path, grade, value):
    file = graded(tmp_path, "tsv", "score", [("q1", "d1", grade), ("q1", "d2", 1)])
    assert read_qrels(file).qrels == {"q1": {"d1": value, "d2": 1}}


@pytest.mark.parametrize("value", ["1e300", "-1e300", "99999999999999999999", "1000000000"])
def test_numbers_too_large_are_no_grades(tmp_path, value):
    put(tmp_path, "a.jsonl", b'{"q_id": "q1", "p_id": "d1", "score": ' + value.encode() + b"}\n")
    with pytest.raises(DataError, match="which is not a grade"):
        read_qrels(tmp_path / "a.jsonl")


def test_csv_judgements_of_a_task(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "qrels/test.csv", (tmp_path / "qrels/test.tsv").read_bytes().replace(b"\t", b","))
    (tmp_path / "qrels/test.tsv").unlink()
    assert load(tmp_path).gold.qrels == EXPECTED
    put(tmp_path, "qrels/test.csv", b'query-id,corpus-id,score\n"q1,d1,1\n')
    with pytest.raises(DataError, match=r"test\.csv:2: not a line of CSV"):
        load(tmp_path)


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
