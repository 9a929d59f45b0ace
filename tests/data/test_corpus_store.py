"""A corpus that is not held in memory is the same corpus: rows, order, fingerprint, problems and results."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import polars
import pytest
from folders import LAYOUTS, SMALL, json_lines
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.data import corpus as corpora
from r2med.data.dataset import Texts
from r2med.data.formats import read_rows
from r2med.data.loader import load
from r2med.data.problems import Findings
from r2med.data.stored_texts import StoredIds, StoredTexts, encode
from r2med.data.validate import validate
from r2med.errors import DataError
from r2med.lexical.ranking import id_order
from r2med.settings import overriding
from r2med.store.cache import Cache


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    monkeypatch.setattr(corpora, "_LARGE", 0)


def stored_load(folder: Path):
    with overriding(memory=1):
        return load(folder)


def entries() -> list[Path]:
    return sorted((Cache.default().root / "corpus").glob("[!.]*"))


def is_stored(texts: Texts) -> bool:
    return isinstance(texts.ids, StoredIds) and isinstance(texts.texts, StoredTexts)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_stored_corpus_is_the_same_corpus(tmp_path, layout):
    odd = [("d10", "", "lone"), ("d9", "Täx", "東京\n👩‍🔬"), ("é", "", "é")]
    LAYOUTS[layout](tmp_path, replace(SMALL, documents=[*SMALL.documents, *odd]))
    whole = load(tmp_path)
    for _ in range(2):
        stored = stored_load(tmp_path)
        documents, wanted = stored.collection.documents, whole.collection.documents
        assert is_stored(documents)
        assert not is_stored(wanted)
        assert stored.fingerprint == whole.fingerprint
        assert list(documents) == list(wanted)
        assert dict(documents.position) == wanted.position
        assert [documents.text(name) for name in wanted.ids] == list(wanted.texts)
        assert id_order(documents.ids).tolist() == id_order(wanted.ids).tolist()
        assert documents.texts[1:3] == wanted.texts[1:3]
        assert documents.ids[-1] == wanted.ids[-1]
        assert "nobody" not in documents.position
        assert list(documents.without([1])) == list(wanted.without([1]))
        assert dict(documents.without([1]).position) == wanted.without([1]).position
    assert len(entries()) == 1


def test_files_of_lines_are_stored_as_one_corpus(tmp_path):
    """Several files, with a byte order mark, Windows line ends, blank lines, and no end of a line at the end."""
    title = {"id": "a", "title": "Iron", "text": 'in "rust"'}
    contents = {
        "one.jsonl": b"\xef\xbb\xbf" + json_lines([title, {"id": "b", "text": ""}]) + b"\n\n",
        "two.jsonl": rows(("c", "東京\n👩‍🔬"), ("a", 'Iron in "rust"'), ("d", "x" * 3000)).replace(b"\n", b"\r\n"),
        "three.jsonl": b"  " + rows(("e", "last"), ("b", ""), ("f", '{"id": "z"}'), ("g", "{x")).removesuffix(b"\n"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [tmp_path / name for name in contents]
    whole = corpora.read_corpus(files, Findings()).documents
    with overriding(memory=1):
        for _ in range(2):
            stored = corpora.recall_corpus(files, found := Findings()).documents
            assert list(stored) == list(whole)
            assert [stored.text(name) for name in reversed(whole.ids)] == list(reversed(whole.texts))
            assert stored.texts[::2] == whole.texts[::2]
            assert list(stored.without([1, 3])) == list(whole.without([1, 3]))
            codes = [problem.code for problem in found.problems]
            assert codes.count("repeated-id") == 2
    assert len(entries()) == 1


awkward = st.text(st.sampled_from('{"}\\ adt:é\n'), max_size=8)


@given(st.lists(st.tuples(awkward, awkward), min_size=1, max_size=6), st.booleans())
def test_any_text_is_read_back(tmp_path_factory, texts: list[tuple[str, str]], escaped: bool):
    """Whatever a text shares with the row around it, and however the row is written."""
    file = tmp_path_factory.mktemp("rows") / "corpus.jsonl"
    found = [{"id": f"d{place}", "title": title, "text": text} for place, (title, text) in enumerate(texts)]
    file.write_text("".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in found), "utf-8")
    with overriding(memory=1):
        stored = corpora.read_corpus([file], Findings()).documents
    assert is_stored(stored)
    assert list(stored) == list(corpora.read_corpus([file], Findings()).documents)


def test_a_parquet_file_is_never_held_whole(tmp_path, monkeypatch):
    """One row group of 16 MB, of which a megabyte is asked for at a time and let go before the next."""
    draw = Random(0)
    texts = [draw.randbytes(125_000 if place % 1_000 == 0 else 3_750).hex() for place in range(2_000)]
    ids = [f"d{place}" for place in range(len(texts))]
    polars.DataFrame({"_id": ids, "text": texts}).write_parquet(tmp_path / "corpus.parquet", row_group_size=len(ids))
    sizes: list[int] = []
    collect = polars.LazyFrame.collect

    def counted(frame, *arguments, **options):
        part = collect(frame, *arguments, **options)
        sizes.append(int(part.estimated_size()))
        return part

    monkeypatch.setattr(polars.LazyFrame, "collect", counted)
    rows = read_rows(tmp_path / "corpus.parquet", Findings())
    assert next(rows) == (1, {"_id": "d0", "text": texts[0]})
    assert len(sizes) == 2, "a count of the rows, and the first few of them"
    assert sizes[1] < sum(map(len, texts)) / 4
    with overriding(memory=1 << 20):
        corpus = corpora.read_corpus([tmp_path / "corpus.parquet"], Findings())
    assert list(corpus.documents) == list(zip(ids, texts, strict=True))
    assert is_stored(corpus.documents)
    assert len(sizes) > 12
    assert max(sizes[4:]) < 3 << 20


def test_a_parquet_file_that_changes_while_it_is_read_is_not_believed(tmp_path):
    file = tmp_path / "corpus.parquet"
    table = polars.DataFrame({"_id": [f"d{place}" for place in range(400)], "text": ["old"] * 400})
    table.write_parquet(file)
    found = Findings()
    rows = read_rows(file, found)
    next(rows)
    table.with_columns(text=polars.lit("newer")).write_parquet(file)
    list(rows)
    assert [problem.message for problem in found.problems] == ["changed while it was read; read it again"]
    assert found.errors == 1


def rows(*pairs: tuple[str, str]) -> bytes:
    return json_lines({"id": name, "text": text} for name, text in pairs)


BAD = {
    "repeats": rows(("a", "x"), ("b", "y"), ("a", "x"), ("c", " "), ("b", "y"), ("a", "x")),
    "conflict": rows(("a", "x"), ("c", ""), ("a", "other"), ("b", "y")),
    "broken": rows(("a", "x")) + b"{no\n" + rows(("a", "x"), ("b", "y")),
    "empty": b"",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_problems_are_those_of_the_whole_reader(tmp_path, content):
    LAYOUTS["r2med"](tmp_path, SMALL)
    (tmp_path / "corpus.jsonl").write_bytes(content)
    wanted = validate(tmp_path)
    with overriding(memory=1):
        assert validate(tmp_path) == wanted
        assert validate(tmp_path / "corpus.jsonl").problems == validate(tmp_path / "corpus.jsonl").problems
    assert not entries(), "what was only checked is not kept"
    whole, stored = Findings(), Findings()
    before = corpora.recall_corpus([tmp_path / "corpus.jsonl"], whole)
    with overriding(memory=1):
        for _ in range(2):
            after = corpora.recall_corpus([tmp_path / "corpus.jsonl"], stored := Findings())
            assert list(after.documents) == list(before.documents)
            assert (after.rows, after.whole) == (before.rows, before.whole)
            assert stored == whole
    assert len(entries()) == (not whole.errors), "what has errors in it is not kept"


def test_results_are_the_same_and_so_is_every_page_of_them(collections):
    folder = collections / "medline"
    wanted = r2med.evaluate(["bm25", "wordllama"], folder, measures=["nDCG@10"]).as_dict()["results"]
    with overriding(memory=1 << 20):
        found = r2med.evaluate(["bm25", "wordllama"], folder, measures=["nDCG@10"], fresh=True).as_dict()["results"]
        hits = r2med.search("bm25", folder, "lens protein")
    assert entries()
    assert [row["metrics"] for row in found] == [row["metrics"] for row in wanted]
    assert [hit.text for hit in hits] == [hit.text for hit in r2med.search("bm25", folder, "lens protein")]


@pytest.mark.parametrize("name", ["texts.utf8", "ids.utf8", "order.npy", "text_starts.npy", "facts.json", "meta.json"])
def test_a_damaged_copy_is_never_believed(tmp_path, name):
    LAYOUTS["r2med-gz"](tmp_path, SMALL)
    wanted = list(stored_load(tmp_path).collection.documents)
    (entry,) = entries()
    data = bytearray((entry / name).read_bytes())
    data[-1] ^= 1
    (entry / name).write_bytes(data)
    if name == "texts.utf8":
        damaged = stored_load(tmp_path).collection.documents
        assert damaged.text("d1") == wanted[0][1], "a text is checked by itself"
        for look in (lambda: damaged.text("d3"), lambda: list(damaged)):
            with pytest.raises(DataError, match="is damaged; run the same command again"):
                look()
    assert list(stored_load(tmp_path).collection.documents) == wanted


def test_a_file_that_changed_is_stored_anew(tmp_path):
    LAYOUTS["r2med"](tmp_path, SMALL)
    before = stored_load(tmp_path)
    file = tmp_path / "corpus.jsonl"
    status = file.stat()
    file.write_bytes(file.read_bytes().replace(b"Iron", b"Zinc"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stored_load(tmp_path).collection.documents.text("d1").startswith("Zinc")
    assert before.collection.documents.text("d1").startswith("Iron")
    assert len(entries()) == 2


def test_a_file_that_is_cut_short_or_goes_away_while_it_is_in_use_changes_nothing(tmp_path):
    LAYOUTS["r2med"](tmp_path, SMALL)
    wanted = list(load(tmp_path).collection.documents)
    documents, file = stored_load(tmp_path).collection.documents, tmp_path / "corpus.jsonl"
    with file.open("r+b") as stream:
        stream.truncate(10)
    assert list(documents) == wanted
    file.unlink()
    assert list(documents) == wanted


identifiers = st.lists(st.text(st.sampled_from("ab\0é\ud8ff\ue000👩z"), max_size=18), unique=True, max_size=20)


@given(identifiers, st.sampled_from(["", "PMC", "a-common-beginning-", "x" * 70]))
def test_stored_ids_are_in_the_order_of_texts(tmp_path_factory, names: list[str], prefix: str):
    names = [prefix + name for name in names]
    file = tmp_path_factory.mktemp("ids") / "ids"
    parts = [encode(name) for name in names]
    file.write_bytes(b"".join(parts))
    lengths = [len(part) for part in parts]
    starts = [sum(lengths[:place]) for place in range(len(parts))]
    columns = np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.uint32)
    order = StoredTexts(file, *columns).alphabetical()
    assert [names[place] for place in order] == sorted(names)
    stored = StoredIds(file, *columns, order)
    assert stored.descending_ranks().tolist() == id_order(names).tolist()
    assert all(stored.positions[name] == place for place, name in enumerate(names))
