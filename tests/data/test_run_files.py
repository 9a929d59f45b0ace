"""Run files: every format gives back what was written, odd files are put right with a count, bad ones are one line."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.data.run import Run
from r2med.data.run_files import FORMATS, read_run, write_run
from r2med.errors import DataError, R2medError
from r2med.runs.ledger import pack, unpack

names = st.text(alphabet="aBc1-_./é\u00a0\u2028\x85\U0001f9ea\"'\\ \t\n", min_size=1, max_size=5)
plain_names = st.text(alphabet="aBc1-_./é\U0001f9ea\"'\\{[", min_size=1, max_size=5)
numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 1e-320]))


@st.composite
def runs(draw: st.DrawFn, ids: st.SearchStrategy[str] = names, least: int = 0) -> Run:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    lists = draw(st.dictionaries(ids, st.dictionaries(ids, numbers, min_size=least, max_size=6), max_size=4))
    with np.errstate(over="ignore"):
        columns = {query: np.array(list(found.values()), dtype=dtype) for query, found in lists.items()}
    finite = {query: np.nan_to_num(column) for query, column in columns.items()}
    return Run.from_lists({query: (list(found), finite[query]) for query, found in lists.items()})


def as_lists(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: list(zip(documents, scores.tolist(), strict=True)) for query, (documents, scores) in run}


Put = Callable[[str, bytes | str], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Put a file with this name and content somewhere."""

    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def small() -> Run:
    return Run.from_lists({"q1": (["d1", "d2"], [0.25, 1 / 3]), "q2": (["d1"], [-1e-9])})


# ---------------------------------------------------------------- what is written is read


def round_trip(run: Run, name: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_run(run, path)
        assert [file.name for file in Path(folder).iterdir()] == [name]
        read, warnings = read_run(path)
    assert [sentence for sentence in warnings if "rank as equal" not in sentence] == []
    return read


@pytest.mark.parametrize("name", ["run.jsonl", "run.json", "run.jsonl.gz"])
@settings(deadline=None)
@given(run=runs().filter(len))
def test_json_gives_every_list_back_exactly(name: str, run: Run) -> None:
    read = round_trip(run, name)
    assert as_lists(read) == as_lists(run)
    assert read.scores.dtype == np.float64


@settings(deadline=None)
@given(run=runs(least=1).filter(len))
def test_parquet_gives_every_row_back_exactly_in_its_precision(run: Run) -> None:
    assert round_trip(run, "run.parquet") == run


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
@settings(deadline=None)
@given(run=runs(plain_names, least=1).filter(len))
def test_trec_gives_every_row_back_exactly(name: str, run: Run) -> None:
    assert as_lists(round_trip(run, name)) == as_lists(run)


@settings(deadline=None)
@given(run=runs())
def test_packing_is_exact(run: Run) -> None:
    packed = unpack(pack(run))
    assert packed == run
    assert packed.scores.tobytes() == run.scores.tobytes()
    assert packed.scores.dtype == run.scores.dtype


@pytest.mark.parametrize("extension", [extension for form in FORMATS.values() for extension in form.extensions])
@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_every_extension_is_written_and_read(small: Run, tmp_path: Path, extension: str, zipped: str) -> None:
    path = tmp_path / "new folder" / f"run{extension}{zipped}"
    write_run(small, path, tag="x")
    assert path.read_bytes().startswith(b"\x1f\x8b") == bool(zipped)
    assert as_lists(read_run(str(path))[0]) == as_lists(small)


@pytest.mark.parametrize(
    "written", ["run.trec", "run.jsonl", "run.json", "run.parquet", "run.trec.gz", "run.parquet.gz"]
)
@pytest.mark.parametrize("name", ["unknown", "run.2024-06-01", "results.out.gz"])
def test_unknown_extensions_are_told_by_content(small: Run, tmp_path: Path, written: str, name: str) -> None:
    write_run(small, tmp_path / written)
    (tmp_path / written).rename(tmp_path / name)
    assert as_lists(read_run(tmp_path / name)[0]) == as_lists(small)


def test_json_lines_under_the_name_json(small: Run, tmp_path: Path, put: Put) -> None:
    write_run(small, tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").rename(tmp_path / "run.json")
    assert as_lists(read_run(tmp_path / "run.json")[0]) == as_lists(small)
    assert list(read_run(put("one.json", '{"id": "q1", "topk_pid": [["d1", 1.0]]}'))[0].queries) == ["q1"]


def test_what_the_files_look_like(small: Run, tmp_path: Path) -> None:
    write_run(small, tmp_path / "run.trec", tag="hyde(x) >> bm25")
    assert (tmp_path / "run.trec").read_text().splitlines() == [
        f"q1 Q0 d2 1 {1 / 3!r} hyde(x)>>bm25",
        "q1 Q0 d1 2 0.25 hyde(x)>>bm25",
        "q2 Q0 d1 1 -1e-09 hyde(x)>>bm25",
    ]
    write_run(small, tmp_path / "run.jsonl")
    assert [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()] == [
        {"id": "q1", "topk_pid": [["d2", 1 / 3], ["d1", 0.25]]},
        {"id": "q2", "topk_pid": [["d1", -1e-9]]},
    ]
    write_run(small, tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text()) == {"q1": {"d2": 1 / 3, "d1": 0.25}, "q2": {"d1": -1e-9}}
    write_run(small, tmp_path / "run.parquet")
    assert pl.read_parquet(tmp_path / "run.parquet").rows() == [
        ("q1", "d2", 1, 1 / 3),
        ("q1", "d1", 2, 0.25),
        ("q2", "d1", 1, -1e-9),
    ]


def test_zipped_files_are_the_same_bytes_every_time(small: Run, tmp_path: Path) -> None:
    write_run(small, tmp_path / "a.trec.gz")
    first = (tmp_path / "a.trec.gz").read_bytes()
    write_run(small, tmp_path / "a.trec.gz")
    assert (tmp_path / "a.trec.gz").read_bytes() == first


def test_a_single_precision_score_keeps_its_value_in_text(tmp_path: Path) -> None:
    run = Run.from_lists({"q": (["d"], np.array([0.1], dtype=np.float32))})
    for name in ("run.trec", "run.jsonl", "run.json"):
        write_run(run, tmp_path / name)
        assert read_run(tmp_path / name)[0].scores.tolist() == [0.10000000149011612]


# ---------------------------------------------------------------- the shapes that are read

DOCS = [["d1", 2], ["d2", 1.5]]


@pytest.mark.parametrize("query", ["id", "q_id", "query_id", "qid", "query-id"])
@pytest.mark.parametrize("key", ["topk_pid", "topk_docs", "docs", "documents", "results"])
def test_json_lines_name_their_parts_in_many_ways(query: str, key: str, put: Put) -> None:
    run, warnings = read_run(put("run.jsonl", orjson.dumps({query: "q", key: DOCS, "other": 1})))
    assert as_lists(run) == {"q": [("d1", 2.0), ("d2", 1.5)]}
    assert warnings == []


@pytest.mark.parametrize(
    "value",
    [
        DOCS,
        {"d1": 2, "d2": 1.5},
        [{"id": "d1", "score": 2}, {"id": "d2", "score": 1.5}],
        [{"doc_id": "d1", "score": 2, "text": "t"}, {"p_id": "d2", "score": 1.5}],
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_lists_come_in_many_shapes(value: Any, whole: bool, put: Put) -> None:
    entry = {"q": value} if whole else {"id": "q", "topk_docs": value}
    run, warnings = read_run(put("run.json" if whole else "run.jsonl", orjson.dumps(entry)))
    assert as_lists(run) == {"q": [("d1", 2.0), ("d2", 1.5)]}
    assert warnings == []


@pytest.mark.parametrize("value", [["d9", "d1", "d5"], [{"id": "d9"}, {"id": "d1"}, {"id": "d5"}]])
def test_ids_alone_keep_their_order(value: Any, put: Put) -> None:
    text = orjson.dumps({"id": "q", "docs": value}) + b"\n" + orjson.dumps({"id": "empty", "docs": []})
    run, warnings = read_run(put("run.jsonl", text))
    assert as_lists(run) == {"q": [("d9", 3.0), ("d1", 2.0), ("d5", 1.0)], "empty": []}
    assert warnings == ["1 list has no scores; the order given was kept"]


def test_ids_may_be_numbers(put: Put) -> None:
    run, _ = read_run(put("run.jsonl", '{"id": 7, "docs": [[12, 1.0], [3, 0.5]]}'))
    assert as_lists(run) == {"7": [("12", 1.0), ("3", 0.5)]}
    table = pl.DataFrame({"qid": [7, 7], "docno": [12, 3], "score": [2, 1]})
    table.write_parquet(path := put("run.parquet", b""))
    assert as_lists(read_run(path)[0]) == {"7": [("12", 2.0), ("3", 1.0)]}


def test_lines_of_one_query_are_joined(put: Put) -> None:
    lines = '{"id": "q", "docs": {"a": 1, "b": 3}}\n\n{"id": "q", "docs": [["c", 2], ["a", 9]]}\n'
    run, warnings = read_run(put("run.jsonl", lines))
    assert as_lists(run) == {"q": [("a", 9.0), ("b", 3.0), ("c", 2.0)]}
    assert warnings[0] == "1 row repeats a document of its query; the best score was kept"


def test_trec_with_tabs_blank_lines_crlf_bom_and_no_last_line_end(put: Put) -> None:
    text = b"\xef\xbb\xbfq1\tQ0\td\xc2\xa01\t1\t2.5\tt\r\n\r\n  q1 Q0 d2 2 1e0 t"
    run, warnings = read_run(put("run.txt", text))
    assert as_lists(run) == {"q1": [("d\u00a01", 2.5), ("d2", 1.0)]}
    assert warnings == []


# ---------------------------------------------------------------- what is put right


def test_repeated_rows_keep_the_best_score_and_are_counted(put: Put) -> None:
    rows = ["q1 Q0 a 1 5 t", "q1 Q0 b 2 4 t", "q1 Q0 a 3 3 t", "q2 Q0 a 1 1 t", "q1 Q0 a 4 3 t"]
    run, warnings = read_run(put("run.trec", "\n".join(rows)))
    assert as_lists(run) == {"q1": [("a", 5.0), ("b", 4.0)], "q2": [("a", 1.0)]}
    assert warnings == ["2 rows repeat a document of their query; the best score was kept"]


def test_unsorted_lists_are_sorted_and_counted(put: Put) -> None:
    text = "q1 Q0 a 2 1 t\nq1 Q0 b 1 2 t\nq2 Q0 a 1 1 t\n"
    run, warnings = read_run(put("run.trec", text))
    assert as_lists(run)["q1"] == [("b", 2.0), ("a", 1.0)]
    assert warnings == ["1 list was not in the order of the scores, and sorted"]
    text = '{"id": "q", "docs": [["a", 1], ["b", 2]]}'
    assert read_run(put("run.jsonl", text))[1] == warnings


def test_scores_win_over_ranks(put: Put) -> None:
    text = "q1 Q0 a 1 1 t\nq1 Q0 b 2 2 t\nq2 Q0 a 1 2 t\nq2 Q0 b 2 1 t\n"
    run, warnings = read_run(put("run.trec", text))
    assert as_lists(run)["q1"] == [("b", 2.0), ("a", 1.0)]
    assert warnings == ["1 list has ranks that disagree with the scores; the scores decide"]
    table = pl.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "rank": [2, 1], "score": [2.0, 1.0]})
    table.write_parquet(path := put("run.parquet", b""))
    assert read_run(path)[1] == warnings


@pytest.mark.parametrize("scores", ["1.00000000001 1 1.00000000002", "1e200 1e201 1e202"])
def test_scores_that_are_ties_in_single_precision_are_named(scores: str, put: Put) -> None:
    # Equal as trec_eval compares them; the higher id goes first, in whatever order they stand.
    rows = [
        f"q Q0 {name} {rank} {score} t" for rank, (name, score) in enumerate(zip("acb", scores.split(), strict=True))
    ]
    run, warnings = read_run(put("run.trec", "\n".join(rows)))
    assert [document for document, _ in as_lists(run)["q"]] == ["c", "b", "a"]
    assert len(warnings) == 1
    assert warnings[0].startswith("1 list has scores that differ in double precision only")


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.trec", "q Q0 d 1 1.0 t\nq Q0 d2 2 0.5\n", ":2: 5 columns where a TREC run has 6"),
        ("run.trec", "q Q0 d 1 1.0 two words\n", ":1: 7 columns where a TREC run has 6"),
        ("run.trec", "q Q0 d 1 1.0 t\n\nq Q0 e 2 high t\n", ":3: the score is 'high', not a number"),
        ("run.trec", "q Q0 d first 1.0 t\n", ":1: the rank is 'first', not a whole number"),
        ("run.trec", "q Q0 d 1 nan t\n", ":1: the score is nan, not a finite number"),
        ("run.trec", "q Q0 d 1 -inf t\n", ":1: the score is -inf, not a finite number"),
        ("run.trec", "q Q0 d 1 1e999 t\n", ":1: the score is inf, not a finite number"),
        ("run.trec", b"q Q0 d 1 1 t\nq Q0 \xff\xfe 2 1 t\n", ":2: not UTF-8"),
        ("run.trec", b"q Q0 d 1 \xff t\n", ":1: the score is '\ufffd', not a number"),
        ("run.trec", "q1\tdoc\t1.0\n", ":1: 3 columns"),
        ("run.trec", "", ": the file is empty"),
        ("run.trec", "\n  \n", ": the file is empty"),
        ("run.trec.gz", gzip.compress(b"", mtime=0), ": the file is empty"),
        (
            "run.trec.gz",
            gzip.compress(b"q Q0 d 1 1.0 t\n" * 9, mtime=0)[:-9],
            ": the gzip data is damaged or cut short",
        ),
        (
            "run.trec.gz",
            gzip.compress(b"q Q0 d 1 1.0 t\n", mtime=0)[:15] + b"junk",
            ": the gzip data is damaged or cut short",
        ),
        ("run.jsonl", '{"id": "q", "docs": {}}\n{"id": "q2", "docs": \n', ":2: not JSON ("),
        ("run.jsonl", "q Q0 d 1 1.0 t", ":1: not JSON ("),
        ("run.jsonl", b'{"id": "\xff", "docs": {}}', ":1: not UTF-8"),
        ("run.jsonl", '{"id": "q", "docs": {"d": 1, "e": 2, "d": 3}}', ":1: the key 'd' is given twice"),
        ("run.json", '{"q": {"d": 1},\n "q": {"d": 2}}', ": the key 'q' is given twice"),
        ("run.jsonl", "[1]", ":1: not an object with a query and its documents"),
        ("run.jsonl", '{"docs": {"d": 1}}', ":1: no query id; looked for id, q_id, query_id"),
        ("run.jsonl", '{"id": "q", "text": "t"}', ":1: no list of documents; looked for topk_pid, topk_docs"),
        ("run.jsonl", '{"id": null, "docs": {"d": 1}}', ":1: expected an id, found null"),
        ("run.jsonl", '{"id": true, "docs": {"d": 1}}', ":1: expected an id, found true"),
        ("run.jsonl", '{"id": "q", "docs": "d1 d2"}', ":1: the documents are neither a list nor an object"),
        (
            "run.jsonl",
            '{"id": "q", "docs": [["d", "1.0"]]}',
            ":1: document d: the score is the text '1.0', not a number",
        ),
        ("run.jsonl", '{"id": "q", "docs": [["d", null]]}', ":1: document d: the score is null, not a number"),
        ("run.jsonl", '{"id": "q", "docs": {"d": true}}', ":1: document d: the score is true, not a number"),
        ("run.jsonl", '{"id": "q", "docs": [["d", 1], "e"]}', ":1: 1 of 2 documents have no score"),
        ("run.jsonl", '{"id": "q", "docs": [["d", 1, 2]]}', ":1: expected an id, found a list"),
        ("run.jsonl", '{"id": "q", "docs": [["d", NaN]]}', ":1: not JSON ("),
        ("run.jsonl", '{"id": "q", "docs": ["a"]}\n{"id": "q", "docs": ["b"]}', ":2: a second list for query q"),
        ("run.json", "{}", ": the file holds no query"),
        ("run.json", '{"q": {"d": "x"}}', ": query q: document d: the score is the text 'x', not a number"),
        ("run.json", '{"q": 3}', ": query q: the documents are neither a list nor an object"),
        ("run.json", '{\n "q": {\n  "d": }\n}', ":3: not JSON ("),
        ("run.json", '["q"]', ": not an object of queries"),
        ("run.json", b'{"q":\n {"\xff": 1}}', ": not UTF-8"),
        ("run.parquet", b"PAR1 and then nothing", ": not a parquet file, or a damaged one"),
        ("run.parquet", "q Q0 d 1 1.0 t\n", ": not a parquet file, or a damaged one"),
    ],
)
def test_a_bad_file_is_one_line_with_the_place(name: str, content: bytes | str, said: str, put: Put) -> None:
    path = put(name, content)
    with pytest.raises(DataError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}:")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"query": ["q"], "document": ["d"]},
            "no column of the score; looked for score, sim, similarity among query, doc",
        ),
        ({"text": ["q"], "document": ["d"], "score": [1.0]}, "no column of the query; looked for query, query_id"),
        ({"query": ["q", "q"], "document": ["d", None], "score": [1.0, 2.0]}, "row 2: no document"),
        ({"query": ["q", "q"], "document": ["d", "e"], "score": [1.0, None]}, "row 2: no score"),
        ({"query": ["q", "q"], "document": ["d", "e"], "score": [1.0, float("nan")]}, "row 2: the score is nan"),
        ({"query": ["q"], "document": ["d"], "score": [float("inf")]}, "row 1: the score is inf"),
        ({"query": ["q"], "document": ["d"], "score": ["1.0"]}, "the column score is String, not numbers"),
        ({"query": ["q"], "document": [0.5], "score": [1.0]}, "the column document is Float64, not ids"),
        ({"query": [], "document": [], "score": []}, "the column query is Null, not ids"),
    ],
)
def test_a_bad_table_is_one_line_with_the_row(columns: dict[str, list[Any]], said: str, put: Put) -> None:
    path = put("run.parquet", b"")
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(DataError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_an_empty_table_holds_no_query(tmp_path: Path) -> None:
    write_run(Run.from_lists({"q": ([], [])}), tmp_path / "run.parquet")
    with pytest.raises(DataError, match="the file holds no query"):
        read_run(tmp_path / "run.parquet")


def test_files_that_cannot_be_opened(small: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.trec: no such file"):
        read_run(tmp_path / "nowhere.trec")
    with pytest.raises(DataError, match="a folder, not a run file"):
        read_run(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"run\.trec: cannot be read"):
        read_run(tmp_path / "file" / "run.trec")
    with pytest.raises(R2medError, match=r"run\.trec: cannot be written"):
        write_run(small, tmp_path / "file" / "run.trec")
    (tmp_path / "taken.trec").mkdir()
    with pytest.raises(R2medError, match=r"taken\.trec: is a folder"):
        write_run(small, tmp_path / "taken.trec")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken.trec"]


@pytest.mark.parametrize("name", ["a b", "a\tb", "a\u00a0b", " a", "a\n", ""])
@pytest.mark.parametrize("is_query", [True, False])
def test_ids_that_trec_cannot_hold_point_to_formats_that_can(name: str, is_query: bool, tmp_path: Path) -> None:
    run = Run.from_lists({name if is_query else "q": ([name, "d"], [1.0, 2.0])})
    with pytest.raises(DataError) as caught:
        write_run(run, tmp_path / "run.trec")
    assert f"{tmp_path / 'run.trec'}: the id {name!r} " in str(caught.value)
    assert "write .jsonl or .parquet" in str(caught.value)
    assert not (tmp_path / "run.trec").exists()
    for other in ("run.jsonl", "run.parquet", "run.json"):
        write_run(run, tmp_path / other)
        assert as_lists(read_run(tmp_path / other)[0]) == as_lists(run)


@pytest.mark.parametrize("name", ["run.trec", "run.jsonl", "run.json", "run.parquet"])
def test_what_no_format_can_hold_is_not_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the score of document e is inf, not a finite number"):
        write_run(Run.from_lists({"q": (["d", "e"], [1.0, float("inf")])}), tmp_path / name)
    with pytest.raises(DataError, match="an id of the run is not valid Unicode"):
        write_run(Run.from_lists({"q": (["\ud800"], [1.0])}), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run", "run.csv", "run.gz"])
def test_an_unknown_extension_is_not_written(small: Run, name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"end it in \.trec \.run"):
        write_run(small, tmp_path / name)


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["run.trec", "run.jsonl", "run.json", "run"]))
def test_any_bytes_are_a_run_or_a_data_error(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            run, _ = read_run(path)
        except DataError:
            return
    assert len(run)


@settings(deadline=None)
@given(runs(), st.data())
def test_damaged_packed_runs_are_a_data_error(run: Run, data: st.DataObject) -> None:
    packed = pack(run)
    shorter = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(DataError, match="the stored run"):
        unpack(shorter)
    with pytest.raises(DataError, match="made by another version of r2med"):
        unpack(b"x" + packed)


@pytest.mark.parametrize(
    "change", [lambda body: body + b"\0", lambda body: body[:-1], lambda body: b"\xff" * len(body)]
)
def test_packed_runs_whose_parts_disagree_are_a_data_error(small: Run, change: Callable[[bytes], bytes]) -> None:
    magic, newline, zipped = pack(small).partition(b"\n")
    with pytest.raises(DataError, match="the stored run is damaged"):
        unpack(magic + newline + zlib.compress(change(zlib.decompress(zipped))))
