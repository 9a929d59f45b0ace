"""The clean file: affected rows are gone, everything else is as it was, and a check of it finds nothing."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaking import changed, checked, words, write_rows

from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.leakage.check import check, exclude, targets

DATA = load("sample/Biology")
QUERIES = DATA.collection.queries.texts
JUDGED = {document for grades in DATA.gold.qrels.values() for document in grades}
POSITIVE = next(text for name, text in DATA.collection.documents if name in JUDGED)
OTHER = next(text for name, text in DATA.collection.documents if name not in JUDGED)

clean_lines = st.one_of(
    st.builds(
        lambda count, seed: orjson.dumps({"text": words(count, seed), "n": seed}), st.integers(0, 30), st.integers(0, 9)
    ),
    st.sampled_from([b"{}", b"", b"  ", b'{ "spaced" :\t1.50 }', '{"text":"\\u00e9 é"}'.encode(), b'{"text": null} ']),
)
leaking_lines = st.sampled_from(
    [orjson.dumps({"a": [text]}) for text in (QUERIES[0], QUERIES[1].upper(), changed(QUERIES[2], 0.08), POSITIVE)]
)
other_lines = st.just(orjson.dumps({"text": OTHER}))
ends = st.sampled_from([b"\n", b"\r\n"])
marked = st.one_of(
    st.tuples(st.just("clean"), clean_lines),
    st.tuples(st.just("leak"), leaking_lines),
    st.tuples(st.just("other"), other_lines),
)


def cleaned(file: Path, out: Path, documents: bool = False) -> bytes:
    places = targets([file], out)
    exclude(checked(file), places, documents)
    return out.read_bytes()


@settings(max_examples=40)
@given(st.lists(st.tuples(marked, ends), min_size=1, max_size=8), st.booleans(), st.booleans(), st.booleans())
def test_what_is_left_is_byte_for_byte_what_was_there(rows, zipped: bool, documents: bool, mark: bool) -> None:
    lines = [(kind, line + end) for (kind, line), end in rows]
    lines[0] = (lines[0][0], b"\xef\xbb\xbf" * mark + lines[0][1])
    lines[-1] = (lines[-1][0], lines[-1][1].rstrip(b"\r\n") + b" ")
    lines.append(("clean", b'\n{"last": "line"}'))
    unwanted = {"leak", "other"} if documents else {"leak"}
    with tempfile.TemporaryDirectory() as place:
        file, out = (Path(place) / f"{name}.jsonl{'.gz' * zipped}" for name in ("train", "clean"))
        data = b"".join(line for _, line in lines)
        original = gzip.compress(data) if zipped else data
        file.write_bytes(original)
        left = cleaned(file, out, documents)
        assert file.read_bytes() == original
        # The line before the last has no end of its own: the last one brings it.
        wanted = b"".join(line for kind, line in lines[:-2] if kind not in unwanted)
        wanted += (lines[-2][1] + b"\n" if lines[-2][0] not in unwanted else b"") + b'{"last": "line"}'
        assert (gzip.decompress(left) if zipped else left) == wanted
        assert not checked(out).leaks(documents)


def test_a_clean_file_is_copied(tmp_path) -> None:
    file = write_rows(tmp_path / "train.jsonl", [{"text": words(30, 1)}])
    assert cleaned(file, tmp_path / "clean.jsonl") == file.read_bytes()


def test_the_same_lines_zipped_are_the_same_bytes(tmp_path) -> None:
    file = tmp_path / "train.txt.gz"
    file.write_bytes(gzip.compress(f"{words(30, 1)}\n{QUERIES[0]}\n".encode()))
    once = cleaned(file, tmp_path / "one.txt.gz")
    assert cleaned(file, tmp_path / "two.txt.gz") == once
    assert gzip.decompress(once).decode() == f"{words(30, 1)}\n"


def test_parquet_keeps_its_other_rows_and_columns(tmp_path) -> None:
    file, out = tmp_path / "train.parquet", tmp_path / "clean.parquet"
    frame = pl.DataFrame(
        {"text": [words(30, 1), QUERIES[0], OTHER, None], "n": [1, 2, 3, 4], "v": [[0.5], [], [1.5], None]}
    )
    frame.write_parquet(file, row_group_size=2)
    cleaned(file, out)
    assert pl.read_parquet(out).equals(frame[[0, 2, 3]])
    assert pl.read_parquet(out).schema == frame.schema
    cleaned(file, tmp_path / "cleaner.parquet", documents=True)
    assert pl.read_parquet(tmp_path / "cleaner.parquet").equals(frame[[0, 3]])


def test_several_files_go_into_a_folder(tmp_path) -> None:
    one = write_rows(tmp_path / "one.jsonl", [{"text": QUERIES[0]}, {"text": words(30, 1)}])
    (tmp_path / "two.txt").write_text(f"{words(30, 2)}\n{QUERIES[1]}\n")
    files = [one, tmp_path / "two.txt", one]
    places = targets(files, tmp_path / "clean")
    report = check(files, ["sample/Biology"])
    lost = exclude(report, places)
    assert lost == {tmp_path / "clean" / "one.jsonl": 1, tmp_path / "clean" / "two.txt": 1}
    assert (tmp_path / "clean" / "one.jsonl").read_bytes() == orjson.dumps({"text": words(30, 1)}) + b"\n"
    assert (tmp_path / "clean" / "two.txt").read_text() == f"{words(30, 2)}\n"
    assert sorted(path.name for path in (tmp_path / "clean").iterdir()) == ["one.jsonl", "two.txt"]


def test_targets_that_cannot_be(tmp_path) -> None:
    train = write_rows(tmp_path / "train.jsonl", [{"text": "a"}])
    (tmp_path / "sub").mkdir()
    twin = write_rows(tmp_path / "sub" / "train.jsonl", [{"text": "a"}])
    for files, out, message in (
        ([train], train, "exists already"),
        ([train], tmp_path / "sub", "exists already"),
        ([train], tmp_path / "clean.txt", r"must end in \.jsonl"),
        ([train], tmp_path / "clean.jsonl.gz", r"must end in \.jsonl as"),
        ([train], tmp_path / "none" / "clean.jsonl", "no such folder"),
        ([train, twin], tmp_path / "clean", r"two of the files are called train\.jsonl"),
    ):
        with pytest.raises(R2medError, match=message):
            targets(files, out)
