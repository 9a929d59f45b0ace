"""Training files: every format, any size, blocks and slices, and bad input in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaking import changed, checked, pairs, words, write_rows

from r2med.data.loader import load
from r2med.errors import DataError
from r2med.leakage import training
from r2med.leakage.training import Block, blocks, size_of, strings

QUERIES = load("sample/Biology").collection.queries
ROWS = [
    {"query": QUERIES.texts[0], "pos": [words(30, 1), words(30, 2)], "n": 1},
    {"query": words(30, 3), "pos": [words(30, 4), QUERIES.texts[1].lower()], "n": 2},
    {"query": "", "pos": [], "n": 3},
    {"query": words(30, 5), "pos": [f"{words(200, 6)} {QUERIES.texts[2]} {words(200, 7)}"], "n": 4},
    {"query": changed(QUERIES.texts[3], 0.08), "pos": [words(30, 8)], "n": 5},
]
FOUND = {
    (1, QUERIES.ids[0], "exact"),
    (2, QUERIES.ids[1], "normalised"),
    (4, QUERIES.ids[2], "ngram"),
    (5, QUERIES.ids[3], "near"),
}


def found(file: Path, **settings: object) -> set[tuple[int, str, str]]:
    report = checked(file, **settings)
    assert report.files[file].judged.tolist() == sorted({line for line, *_ in pairs(report)})
    return {(line, name, method) for line, _, _, name, method in pairs(report)}


def json_lines() -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in ROWS)


@pytest.mark.parametrize("name", ["train.jsonl", "train.ndjson", "train.json", "train.jsonl.gz"])
def test_json_lines(name: str, tmp_path) -> None:
    data = json_lines()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert found(tmp_path / name) == FOUND
    assert checked(tmp_path / name).files[tmp_path / name].rows == len(ROWS)


def test_a_gzipped_file_of_several_members(tmp_path) -> None:
    lines = json_lines().splitlines(keepends=True)
    (tmp_path / "train.jsonl.gz").write_bytes(b"".join(gzip.compress(line) for line in lines))
    assert found(tmp_path / "train.jsonl.gz") == FOUND


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_text_is_a_row_a_line(name: str, end: str, tmp_path) -> None:
    texts = [
        words(20, 1),
        QUERIES.texts[0],
        "",
        f"{words(200, 2)} {QUERIES.texts[1]} {words(200, 3)}",
        QUERIES.texts[2],
    ]
    data = end.join(texts).encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    wanted = {(2, QUERIES.ids[0], "exact"), (4, QUERIES.ids[1], "ngram"), (5, QUERIES.ids[2], "exact")}
    assert found(tmp_path / name) == wanted
    assert checked(tmp_path / name).files[tmp_path / name].rows == 5


@pytest.mark.parametrize("group", [1, 2, 100])
def test_parquet(group: int, tmp_path) -> None:
    file = tmp_path / "train.parquet"
    pl.DataFrame(ROWS).with_columns(vector=pl.lit([0.5, 1.0])).write_parquet(file, row_group_size=group)
    assert found(file) == FOUND
    assert found(file, fields=("query",)) == {hit for hit in FOUND if hit[0] in (1, 5)}
    assert checked(file).files[file].rows == len(ROWS)


def test_parquet_with_texts_deep_inside(tmp_path) -> None:
    file = tmp_path / "train.parquet"
    turns = [
        [{"role": "user", "content": row["query"]}, {"role": "assistant", "content": text}]
        for row in ROWS
        for text in row["pos"][:1] or [""]
    ]
    pl.DataFrame({"messages": turns}).write_parquet(file)
    assert {(line, name) for line, name, _ in found(file)} == {
        (1, QUERIES.ids[0]),
        (4, QUERIES.ids[2]),
        (5, QUERIES.ids[3]),
    }


@pytest.mark.parametrize("size", [1, 300, 1_000, 5_000])
def test_the_size_of_blocks_changes_nothing(size: int, tmp_path, monkeypatch) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS * 3)
    whole = checked(file)
    monkeypatch.setattr(training, "BLOCK", size)
    parts = checked(file)
    assert sum(1 for _ in blocks(file)) > 1
    assert sorted(parts.strongest) == sorted(whole.strongest)
    assert parts.as_dict() | {"strongest": []} == whole.as_dict() | {"strongest": []}


@given(st.integers(40, 400), st.integers(0, 600))
def test_a_run_in_an_enormous_text_lies_in_some_slice(longest: int, start: int) -> None:
    text = "".join(chr(0x4E00 + place) for place in range(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "LONGEST", longest)
        patch.setattr(training, "_SHARED", 30)
        parts = [part for row in training._parts(training.TrainingRow(1, ["x", text], 7.0)) for part in row.texts]
        sizes = [row.size for row in training._parts(training.TrainingRow(1, ["x", text], 7.0))]
    assert any(text[start : start + 30] in part for part in parts)
    assert max(map(len, parts)) <= longest
    assert parts[0] == "x"
    assert sum(sizes) == 7.0


def test_enormous_texts_are_looked_at_in_slices(tmp_path, monkeypatch) -> None:
    text = f"{words(3000, 1)} {QUERIES.texts[0]} {words(3000, 2)}"
    file = write_rows(tmp_path / "train.jsonl", [{"text": words(10, 3)}, {"text": text}, {"text": QUERIES.texts[1]}])
    monkeypatch.setattr(training, "LONGEST", 6_000)
    monkeypatch.setattr(training, "BLOCK", 10_000)
    wanted = {(2, QUERIES.ids[0], "ngram"), (3, QUERIES.ids[1], "exact")}
    assert {(pair.line, pair.id, pair.method) for pair in checked(file).strongest} == wanted
    assert checked(file).files[file].rows == 3


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)


def recursive_strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in recursive_strings(each)]


@given(json_values)
def test_strings_are_all_strings_in_order(value: object) -> None:
    assert strings(value) == recursive_strings(value)


def test_strings_however_deep() -> None:
    value: object = "deep"
    for _ in range(5000):
        value = [value]
    assert strings(value) == ["deep"]


def test_blocks_know_their_rows() -> None:
    block = Block.of(
        [training.TrainingRow(3, ["a", "b"], 5), training.TrainingRow(4, [], 2), training.TrainingRow(7, ["c"], 1)]
    )
    assert (block.texts, block.rows.tolist(), block.count, block.size) == (["a", "b", "c"], [3, 3, 7], 3, 8)


def test_the_size_of_a_gzipped_file_is_that_of_its_content(tmp_path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"x" * 100_000))
    assert size_of(tmp_path / "a.jsonl.gz") == 100_000
    (tmp_path / "b.jsonl").write_bytes(b"x" * 10)
    assert size_of(tmp_path / "b.jsonl") == 10


GOOD = b'{"text": "a"}\n'


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.jsonl", GOOD * 2 + b'{"text": "b"\n' + GOOD, r"t\.jsonl:3: not JSON"),
        ("t.jsonl", GOOD + b'["b"]\n', r"t\.jsonl:2: expected a JSON object, found a list"),
        ("t.jsonl", GOOD + b'{"text": "\xff"}\n', r"t\.jsonl:2: not UTF-8: byte 0xff"),
        ("t.jsonl", '{"text": "a"}'.encode("utf-16"), r"t\.jsonl:1: the file is UTF-16"),
        ("t.jsonl", b"", r"t\.jsonl: holds no rows"),
        ("t.jsonl", b"\n \n", r"t\.jsonl: holds no rows"),
        ("t.txt", b"one\ntwo \xe9\n", r"t\.txt:2: not UTF-8: byte 0xe9 at position 5"),
        ("t.txt", b"", r"t\.txt: holds no rows"),
        ("t.jsonl.gz", GOOD, r"t\.jsonl\.gz:1: the gzip data is cut short or damaged"),
        (
            "t.jsonl.gz",
            gzip.compress(GOOD * 1000, mtime=0)[:-20],
            r"t\.jsonl\.gz:\d+: the gzip data is cut short or damaged",
        ),
        ("t.parquet", b"PAR1 not really", r"t\.parquet: is not a whole parquet file"),
        ("t.csv", b"a,b\n", r"t\.csv: the format is not known; training data ends in \.jsonl, \.ndjson, "),
        ("t.parquet.gz", b"", r"t\.parquet\.gz: the format is not known"),
        ("t", b"", r"t: the format is not known"),
    ],
)
def test_bad_files_end_in_one_line(name: str, data: bytes, message: str, tmp_path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        checked(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_error_after_many_rows_is_not_missed(tmp_path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(GOOD * 50_000 + b"{")
    with pytest.raises(DataError, match=r"t\.jsonl:50001: not JSON"):
        checked(file)


def test_files_that_are_not_there(tmp_path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        checked(tmp_path / "none.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=r"folder\.jsonl: not a file"):
        checked(tmp_path / "folder.jsonl")


def test_fields_that_no_row_has(tmp_path) -> None:
    file = write_rows(tmp_path / "t.jsonl", ROWS)
    with pytest.raises(DataError, match=r"t\.jsonl: no row has the field 'querry'; did you mean query\?"):
        checked(file, fields=("querry",))
    pl.DataFrame(ROWS).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: no row has the field 'neg'"):
        checked(tmp_path / "t.parquet", fields=("query", "neg"))
    (tmp_path / "t.txt").write_text("words\n")
    with pytest.raises(DataError, match=r"t\.txt: lines of text have no fields"):
        checked(tmp_path / "t.txt", fields=("query",))


def test_parquet_without_text_or_rows(tmp_path) -> None:
    pl.DataFrame({"n": [1], "v": [[0.5]]}).write_parquet(tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"n\.parquet: no column holds text; the columns are n, v"):
        checked(tmp_path / "n.parquet")
    pl.DataFrame({"text": []}, schema={"text": pl.String}).write_parquet(tmp_path / "e.parquet")
    with pytest.raises(DataError, match=r"e\.parquet: holds no rows"):
        checked(tmp_path / "e.parquet")
